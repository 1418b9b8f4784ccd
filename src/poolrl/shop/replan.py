"""Plan a release again with other costs or lower bounds: from its model, without the log, the ledger or ρ.

A plan is post-processing of what the release has paid for. The folder holds the new policy, the certified one that it
comes from, and that one's certificate. So whoever gets the folder can make the plan again (`poolrl verify`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.files import CERTIFICATE, CERTIFIED, CONFIG, POLICY, SIGNATURE
from poolrl.checks import FloatArray
from poolrl.learning.model import PrivateModel
from poolrl.shop.config_file import ConfigFile
from poolrl.shop.fit import Released
from poolrl.shop.what_if import cost_by_model

# A level that moved by more than this share is worth a word.
MOVED = 0.05


@dataclass(frozen=True)
class Replanned:
    """A new plan beside the old one: what both cost by the model, under the costs of now."""

    release: Released
    before: FloatArray  # levels of the old plan
    kept: float  # what the old plan would cost now
    planned: float  # what the new one costs

    @property
    def in_words(self) -> list[str]:
        """For people."""
        after = self.release.policy.levels
        moves = np.where(self.before > 0, np.abs(after / np.where(self.before > 0, self.before, 1.0) - 1), 0.0)
        moved = int((moves > MOVED).sum())
        saved = 1 - self.planned / self.kept if self.kept > 0 else 0.0
        return [
            f"Of {moves.size:,} levels {moved:,} moved by more than {MOVED:.0%}; the typical one moved by "
            f"{np.median(moves):.1%}.",
            f"By the model, keeping the old levels would cost {self.kept:.4g} now, and the new ones cost "
            f"{self.planned:.4g} ({saved:.1%} less).",
        ]


def replan_release(source: Released, file: ConfigFile, folder: Path) -> Replanned:
    """Leave a new plan of a verified release in a new folder. Nothing is read but public files, and nothing is paid."""
    if folder.exists() or folder.name in ("", ".."):
        raise ValueError(f"{folder} exists, or is no name: name a new folder with --out")
    model, problem, names = PrivateModel.of(source.policy), file.config.problem.shop, source.policy.names
    if file.config.problem.products != names.products or problem.horizon != source.policy.problem.horizon:
        raise ValueError(f"{file.path} declares other products or steps than {source.folder} was learned for")
    policy = model.plan(problem)
    old = source.policy
    kept, planned = cost_by_model(replace(old, problem=problem, outcomes=policy.outcomes)), cost_by_model(policy)
    folder.mkdir(parents=True)
    policy.save(folder / POLICY)
    certified = source.folder / CERTIFIED
    shutil.copyfile(certified if certified.exists() else source.folder / POLICY, folder / CERTIFIED)
    for name in (CERTIFICATE, SIGNATURE):
        shutil.copyfile(source.folder / name, folder / name)
    (folder / CONFIG).write_bytes(file.content)
    made = Released(folder, policy, Certificate.read((folder / CERTIFICATE).read_bytes()))
    return Replanned(made, old.levels, kept, planned)
