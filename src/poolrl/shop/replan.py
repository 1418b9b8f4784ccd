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

import numpy as np

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.files import CERTIFICATE, CERTIFIED, CONFIG, POLICY, SIGNATURE
from poolrl.checks import FloatArray
from poolrl.learning.model import PrivateModel
from poolrl.plans.orders import OrderPlan, fill_up, solve_orders
from poolrl.plans.unit_laws import unit_laws
from poolrl.problems.operations import column_values
from poolrl.shop.changes import in_one_sentence
from poolrl.shop.config_file import ConfigFile
from poolrl.shop.fit import Released
from poolrl.shop.hidden import average_over_cells
from poolrl.shop.orders_csv import ORDERS_FILE, orders_csv
from poolrl.shop.what_if import cost_by_model


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
    model, problem, old = _known_model(source, file, folder), file.config.problem.shop, source.policy
    policy = model.plan(problem)
    kept, planned = cost_by_model(old, problem), cost_by_model(policy, problem)
    _make_folder(source, file, folder, lambda draft: policy.save(draft / POLICY))
    made = Released(folder, policy, Certificate.read((folder / CERTIFICATE).read_bytes()))
    return Replanned(made, old.levels, kept, planned)


@dataclass(frozen=True)
class ReplannedOrders:
    """Orders for [operations], and what they cost beside filling up to the release's levels as far as the shop can."""

    plan: OrderPlan
    kept: float
    planned: float
    cycle: bool

    @property
    def in_words(self) -> list[str]:
        """For people."""
        round_of = "a round of all steps, on average," if self.cycle else "one trajectory"
        return [
            f"By the model, {round_of} costs {self.planned:.4g}, all products together. Filling up to the levels of "
            f"the release, as far as the shop can, costs {self.kept:.4g}{_saved(self.kept, self.planned)}.",
        ]


def replan_orders(source: Released, file: ConfigFile, folder: Path) -> ReplannedOrders:
    """The best orders of a shop with [operations], as a CSV file in a new folder; as free as `replan_release`."""
    config, problem = file.config, file.config.problem.shop
    model = _known_model(source, file, folder).under(problem)
    facts = config.operations
    if model.guarantee.scaled and facts.usual_scale is None:
        raise ValueError(
            "the release's amounts are multiples of a scale: say in [operations] usual_scale how large it usually is"
        )
    scale = facts.usual_scale if model.guarantee.scaled else None
    laws = unit_laws(model, facts.of_steps(config.names().steps), scale=scale)
    plan = solve_orders(laws)
    filled = fill_up(laws, column_values(source.policy.levels * np.asarray(1.0 if scale is None else scale)))

    def mean_cost(costs: FloatArray) -> float:
        by_cell = costs.reshape(*problem.labels.shape, problem.products)
        return float(average_over_cells(problem, model.outcomes, by_cell).sum())

    text = orders_csv(plan, source.policy.names, problem.labels)
    _make_folder(
        source, file, folder, lambda draft: (draft / ORDERS_FILE).write_text(text, encoding="utf-8", newline="")
    )
    return ReplannedOrders(plan, mean_cost(filled.cost), mean_cost(plan.cost), laws.terms.cycle)


def _known_model(source: Released, file: ConfigFile, folder: Path) -> PrivateModel:
    """The model of a release that the file speaks of; refuses before anything is made."""
    if folder.exists() or folder.name in ("", ".."):
        raise ValueError(f"{folder} exists, or is no name: name a new folder with --out")
    names, facts = source.policy.names, file.config.problem
    if facts.products != names.products or file.config.names().steps != names.steps:
        raise ValueError(f"{file.path} declares other products or steps than {source.folder} was learned for")
    return PrivateModel.of(source.policy)


def _make_folder(source: Released, file: ConfigFile, folder: Path, write: Callable[[Path], object]) -> None:
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
