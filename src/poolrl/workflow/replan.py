"""Plan a release again with other costs or lower bounds: from its model, without the log, the ledger or ρ.

A plan is post-processing of what the release has paid for. The folder holds the new policy, the certified one that it
comes from, and that one's certificate. So whoever gets the folder can make the plan again (`poolrl verify`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.files import CERTIFICATE, CERTIFIED, CONFIG, POLICY, SIGNATURE
from poolrl.checks import FloatArray
from poolrl.learning.model import PrivateModel
from poolrl.problems.inventory import Inventory
from poolrl.workflow.changes import in_one_sentence
from poolrl.workflow.config_file import ConfigFile
from poolrl.workflow.fit import Released
from poolrl.workflow.what_if import cost_by_model


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
        return [
            in_one_sentence(self.before, self.release.policy.levels),
            f"By the model, keeping the old levels, as far as they are allowed, would cost {self.kept:.4g} now; the "
            f"new ones cost {self.planned:.4g}{_saved(self.kept, self.planned)}.",
        ]


def replan_release(source: Released, file: ConfigFile, folder: Path) -> Replanned:
    """Leave a new plan of a verified release in a new folder. Nothing is read but public files, and nothing is paid."""
    model, problem, old = known_model(source, file, folder), file.config.problem.posed, source.policy
    policy = model.plan(problem)
    kept, planned = cost_by_model(old, problem), cost_by_model(policy, problem)
    make_folder(source, file, folder, lambda draft: policy.save(draft / POLICY))
    made = Released(folder, policy, Certificate.read((folder / CERTIFICATE).read_bytes()))
    return Replanned(made, old.levels, kept, planned)


def known_model(source: Released, file: ConfigFile, folder: Path) -> PrivateModel:
    """The model of a release that the file speaks of; refuses before anything is made."""
    if not isinstance(source.policy.problem, Inventory):
        raise ValueError(
            "replan plans shops again; for another problem use PrivateModel.of(policy).plan(...) in Python"
        )
    if folder.exists() or folder.name in ("", ".."):
        raise ValueError(f"{folder} exists, or is no name: name a new folder with --out")
    names, facts = source.policy.names, file.config.problem
    if facts.products != names.products or file.config.names().steps != names.steps:
        raise ValueError(f"{file.path} declares other products or steps than {source.folder} was learned for")
    return PrivateModel.of(source.policy)


def make_folder(source: Released, file: ConfigFile, folder: Path, write: Callable[[Path], object]) -> None:
    """A plan, and what it comes from: certified policy, certificate, and the configuration of now. All or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as made:
        draft = Path(made) / "plan"
        draft.mkdir()
        write(draft)
        certified = source.folder / CERTIFIED
        shutil.copyfile(certified if certified.exists() else source.folder / POLICY, draft / CERTIFIED)
        for name in (CERTIFICATE, SIGNATURE):
            if (source.folder / name).exists():
                shutil.copyfile(source.folder / name, draft / name)
        (draft / CONFIG).write_bytes(file.content)
        draft.rename(folder)


def _saved(kept: float, planned: float) -> str:
    return f" ({1 - planned / kept:.1%} less)" if planned < kept else ""
