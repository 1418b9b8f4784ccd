"""Learn a decision policy from a sensitive, censored log, with a differential-privacy guarantee."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolrl.data.check_problem import check_problem as check_problem
    from poolrl.data.table import Table as Table
    from poolrl.data.trajectories import Trajectories as Trajectories
    from poolrl.geometry.axes import Separable as Separable
    from poolrl.geometry.partition import Grid as Grid
    from poolrl.geometry.partition import Zones as Zones
    from poolrl.learning.backward_induction import Bernstein as Bernstein
    from poolrl.learning.backward_induction import Visits as Visits
    from poolrl.learning.by_count import ByCount as ByCount
    from poolrl.learning.fitted import Fitted as Fitted
    from poolrl.learning.model import PrivateModel as PrivateModel
    from poolrl.learning.outcomes import Outcomes as Outcomes
    from poolrl.learning.policy import Policy as Policy
    from poolrl.plans.capacity import plan_capacity as plan_capacity
    from poolrl.plans.lead_time import plan_backlog as plan_backlog
    from poolrl.plans.lead_time import plan_lead_time as plan_lead_time
    from poolrl.plans.orders import plan_orders as plan_orders
    from poolrl.plans.saved import load_plan as load_plan
    from poolrl.plans.saved import save_plan as save_plan
    from poolrl.pool import Pool as Pool
    from poolrl.privacy.guarantee import Guarantee as Guarantee
    from poolrl.privacy.noise.seeded import SeededNoise as SeededNoise
    from poolrl.problems.inventory import Backlog as Backlog
    from poolrl.problems.inventory import Depot as Depot
    from poolrl.problems.inventory import LostSales as LostSales
    from poolrl.problems.operations import Operations as Operations
    from poolrl.problems.problem import Boundary as Boundary
    from poolrl.problems.problem import OutcomeProblem as OutcomeProblem
    from poolrl.problems.problem import Problem as Problem
    from poolrl.problems.problem import SeparableProblem as SeparableProblem
    from poolrl.problems.rounds import DynamicPricing as DynamicPricing
    from poolrl.problems.rounds import FirstPriceBidding as FirstPriceBidding
    from poolrl.problems.rounds import ReserveAuction as ReserveAuction
    from poolrl.simulation.evaluation import cost_difference as cost_difference
    from poolrl.simulation.evaluation import data_free as data_free
    from poolrl.simulation.evaluation import relative_gap as relative_gap
    from poolrl.simulation.evaluation import rollout_cost as rollout_cost
    from poolrl.simulation.evaluation import saa as saa
    from poolrl.simulation.logs import simulate_log as simulate_log
    from poolrl.workflow.trades.trade import TableColumn as TableColumn
    from poolrl.workflow.trades.trade import Words as Words

__version__ = "0.19.1"  # here and nowhere else: the package, certificates and results take it from here

# Module → its public names, imported on first use: `poolrl --help` should not wait for SciPy.
_PUBLIC = {
    "data.check_problem": ("check_problem",),
    "data.table": ("Table",),
    "data.trajectories": ("Trajectories",),
    "geometry.axes": ("Separable",),
    "geometry.partition": ("Grid", "Zones"),
    "learning.backward_induction": ("Bernstein", "Visits"),
    "learning.by_count": ("ByCount",),
    "learning.fitted": ("Fitted",),
    "learning.model": ("PrivateModel",),
    "learning.outcomes": ("Outcomes",),
    "learning.policy": ("Policy",),
    "plans.capacity": ("plan_capacity",),
    "plans.lead_time": ("plan_backlog", "plan_lead_time"),
    "plans.orders": ("plan_orders",),
    "plans.saved": ("load_plan", "save_plan"),
    "pool": ("Pool",),
    "privacy.guarantee": ("Guarantee",),
    "privacy.noise.seeded": ("SeededNoise",),
    "problems.inventory": ("Backlog", "Depot", "LostSales"),
    "problems.operations": ("Operations",),
    "problems.problem": ("Boundary", "OutcomeProblem", "Problem", "SeparableProblem"),
    "problems.rounds": ("DynamicPricing", "FirstPriceBidding", "ReserveAuction"),
    "simulation.evaluation": ("cost_difference", "data_free", "relative_gap", "rollout_cost", "saa"),
    "simulation.logs": ("simulate_log",),
    "workflow.trades.trade": ("TableColumn", "Words"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'poolrl' has no attribute {name!r}")
    if _HOME[name] == "problems.inventory":
        import_module("poolrl.simulation.logs")  # gives shops their `simulate_log`
    return getattr(import_module(f"poolrl.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
