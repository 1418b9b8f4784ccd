"""Plan a release again with other costs or lower bounds: from its model, without the log, the ledger or ρ.

The folder holds the new policy, the certified one that it comes from, and that one's certificate, so that anybody can
make the plan again (`poolrl verify`). With [operations] the plan is one of orders, and is compared with the release's
own levels, filled up to as far as the shop can.
"""

import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.release_files import CERTIFICATE, CERTIFIED, CONFIG, POLICY, SIGNATURE
from poolrl.checks import FloatArray
from poolrl.learning.model import PrivateModel
from poolrl.learning.stored import Names
from poolrl.plans.capacity import JUDGED_PATHS, scaled_down, simulated_costs, solve_capacity
from poolrl.plans.lead_time import base_stock_cost, solve_lead_time
from poolrl.plans.orders import OrderPlan, fill_up, one_cell, solve_orders, unit_laws
from poolrl.plans.saved import AnyPlan, load_plan, save_plan
from poolrl.problems.inventory import Inventory
from poolrl.problems.labels import Labels
from poolrl.problems.operations import column_values
from poolrl.workflow.config.configuration import ConfigFile
from poolrl.workflow.decision_tables import ORDERS_FILE, decisions_of, from_empty_csv, in_one_sentence, orders_csv
from poolrl.workflow.forecast import average_over_cells
from poolrl.workflow.release_folder import Released, refuse_existing
from poolrl.workflow.trades.trade import own_problem, trade_of

PLAN_FILE, EMPTY_FILE = "plan.npz", "from_empty.csv"
# Paths are drawn from the model, not from the log: the same for everybody who plans again.
SEED = 0
Progress = Callable[[int, int], None]


def replan_release(source: Released, file: ConfigFile, folder: Path) -> tuple[Released, float, float, list[str]]:
    """Leave a new plan of a verified release in a new folder. Nothing is read but public files, and nothing is paid.

    With what the old plan and the new one cost by the model, under the costs of now, and with that in words.
    """
    model, problem, old = known_model(source, file, folder), file.config.problem.posed, source.policy
    policy, trade = model.plan(problem), trade_of(problem)
    kept, planned = trade.cost_by_model(old, problem), trade.cost_by_model(policy, problem)
    make_folder(source, file, folder, lambda draft: policy.save(draft / POLICY))
    decisions = trade.words.decisions
    verb, better, sign = ("earn", "more", -1) if trade.earns else ("cost", "less", 1)
    saved = f" ({abs(1 - planned / kept):.1%} {better})" if planned < kept != 0 else ""
    lines = [
        in_one_sentence(decisions_of(old), decisions_of(policy), decisions),
        f"By the model, keeping the old {decisions}, as far as they are allowed, would {verb} {sign * kept:.4g} now; "
        f"the new ones {verb} {sign * planned:.4g}{saved}.",
    ]
    return Released(folder, policy, Certificate.read((folder / CERTIFICATE).read_bytes())), kept, planned, lines


def known_model(source: Released, file: ConfigFile, folder: Path) -> PrivateModel:
    """The model of a release that the file speaks of; refuses before anything is made."""
    refuse_existing(folder)
    names, facts = source.policy.names, file.config.problem
    if own_problem(facts.posed) is not None:
        raise ValueError("replan needs a problem of the package; plan your own with PrivateModel.of(policy).plan(...)")
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


@dataclass(frozen=True)
class ReplannedOrders:
    """Orders for [operations], and what they cost beside what people do without a plan."""

    plan: AnyPlan
    kept: float
    planned: float
    cycle: bool
    instead: str  # what is done without a plan
    bound: float | None = None  # no plan costs less, on the model
    doubt: float = 0.0  # two standard errors of what is simulated
    room_falls: bool = False  # a shared capacity that is smaller on a later step

    @property
    def file(self) -> str:
        """What to order at each stock, or from empty shelves where products or steps share something."""
        return ORDERS_FILE if isinstance(self.plan, OrderPlan) else EMPTY_FILE

    @property
    def in_words(self) -> list[str]:
        """For people."""
        round_of = "a round of all steps, on average," if self.cycle else "one trajectory"
        doubt = f" ± {self.doubt:.2g}" if self.doubt else ""
        saves = f", so the plan saves {1 - self.planned / self.kept:.1%}"
        if self.kept - self.planned <= self.doubt:
            saves = ", so nothing is gained for sure: do not switch to this plan"
        lines = [
            f"By the model, {round_of} costs {self.planned:.4g}{doubt}, all products together. {self.instead} costs "
            f"{self.kept:.4g}{saves}."
        ]
        if self.bound is not None and self.bound > 0:
            most = max(self.planned / self.bound - 1, 0.0) + self.doubt / self.bound
            least = f"No plan costs less than {self.bound:.4g} on the model"
            lines.append(f"{least}, so this one is within {most:.1%} of the best.")
        if self.room_falls:
            lines.append("The room becomes smaller later. The bound does not ask that stock fits into it then.")
        return lines


def replan_orders(
    source: Released, file: ConfigFile, folder: Path, progress: Progress = lambda done, all_: None
) -> ReplannedOrders:
    """The best orders of a shop with [operations], in a new folder; as free as `replan_release`."""
    config, problem = file.config, file.config.problem.posed
    model = known_model(source, file, folder).under(problem)
    facts = config.operations
    if model.guarantee.scaled and facts.usual_scale is None:
        raise ValueError("amounts are multiples of a scale: say in [operations] usual_scale how large it usually is")
    scale = facts.usual_scale if model.guarantee.scaled else None
    laws = unit_laws(model, facts.of_steps(config.names().steps), scale=scale)
    levels = column_values(source.policy.levels * np.asarray(1.0 if scale is None else scale))
    # Bounds may be lower now than when the release was made.
    levels = np.minimum(levels, laws.caps * laws.width[:, None])
    shared, filling = facts.capacity is not None, "Filling up to the levels of the release,"
    if shared or facts.lead_time:
        # Each label cell has the capacity for itself; a lead time is planned column by column.
        parts = levels.reshape(-1, problem.products, problem.horizon) if shared else levels
        plans: list[Any] = []
        costs = np.empty((4, len(parts)))  # of filling up and the plan, its bound (NaN where none is known), its error
        for number, own_levels in enumerate(parts):
            rng, again = np.random.default_rng(SEED), np.random.default_rng(SEED)
            if shared:
                own, volume = one_cell(laws, number), 1.0 if facts.volume is None else facts.volume
                by_room = solve_capacity(own, volume, facts.capacity or 0.0, rng=rng)
                rule = scaled_down(own_levels.T, by_room.volumes, by_room.capacity)
                filled_up = float(simulated_costs(own, rule, again, JUDGED_PATHS).mean())
                plans.append(by_room)
                costs[:, number] = filled_up, by_room.cost, by_room.bound, by_room.error
            else:
                late = solve_lead_time(laws, facts.lead_time, column=number, rng=rng)
                filled_up = base_stock_cost(laws, facts.lead_time, own_levels, column=number, rng=again)
                plans.append(late)
                costs[:, number] = filled_up, late.cost, math.nan if late.bound is None else late.bound, late.doubt
            progress(number + 1, len(parts))
        kept, planned, bound, error = (_average_cell(problem, model, each) for each in costs)
        falls = shared and any((plan.capacity < plan.room).any() for plan in plans)
        they_fit = "all lowered by the same share until they fit," if shared else "and to what is sold until then,"
        known = None if math.isnan(bound) else bound
        made = ReplannedOrders(plans, kept, planned, not shared, f"{filling} {they_fit}", known, 2 * error, falls)
    else:
        best = solve_orders(laws)
        kept, planned = (_average_cell(problem, model, each.cost) for each in (fill_up(laws, levels), best))
        made = ReplannedOrders(best, kept, planned, laws.terms.cycle, f"{filling} as far as the shop can,")
    make_folder(source, file, folder, lambda draft: _write(draft, made, source.policy.names, problem.labels))
    return made


def _average_cell(problem: Inventory, model: PrivateModel, costs: FloatArray) -> float:
    """Of an average label cell, all products together, from costs by cell or by cell and product."""
    by_cell = costs.reshape(*problem.labels.shape, -1)
    return float(average_over_cells(model.outcomes, by_cell).sum())


def _write(draft: Path, made: ReplannedOrders, names: Names, labels: Labels) -> None:
    save_plan(draft / PLAN_FILE, made.plan, names, labels)
    if isinstance(made.plan, OrderPlan):
        text = orders_csv(made.plan, names, labels)
    else:
        text = from_empty_csv(load_plan(draft / PLAN_FILE))
    (draft / made.file).write_text(text, encoding="utf-8", newline="")
