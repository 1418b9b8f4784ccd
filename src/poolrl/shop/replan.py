"""Plan a release again with other costs or lower bounds: from its model, without the log, the ledger or ρ.

A plan is post-processing of what the release has paid for. The folder holds the new policy, the certified one that it
comes from, and that one's certificate. So whoever gets the folder can make the plan again (`poolrl verify`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.files import CERTIFICATE, CERTIFIED, CONFIG, POLICY, SIGNATURE
from poolrl.checks import FloatArray
from poolrl.learning.level_costs import costs_of_levels
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.shop.config_file import ConfigFile
from poolrl.shop.fit import Released
from poolrl.shop.hidden import average_over_cells, log_levels

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
    kept, planned = (
        _cost(problem, each) for each in (Policy(problem, old.rule, old.guarantee, old.report, policy.outcomes), policy)
    )
    folder.mkdir(parents=True)
    policy.save(folder / POLICY)
    certified = source.folder / CERTIFIED
    shutil.copyfile(certified if certified.exists() else source.folder / POLICY, folder / CERTIFIED)
    for name in (CERTIFICATE, SIGNATURE):
        shutil.copyfile(source.folder / name, folder / name)
    (folder / CONFIG).write_bytes(file.content)
    made = Released(folder, policy, Certificate.read((folder / CERTIFICATE).read_bytes()))
    return Replanned(made, old.levels, kept, planned)


def _cost(problem: Inventory, policy: Policy) -> float:
    """Of one trajectory by the model, all products together, averaged over label cells."""
    assert policy.outcomes is not None
    costs = costs_of_levels(problem, policy.outcomes, log_levels(policy))
    return float(average_over_cells(problem, policy.outcomes, costs).sum())
