"""Learn a decision policy from a sensitive, censored log, with a differential-privacy guarantee."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolrl.data.simulation import simulate_log
    from poolrl.data.tables import Table
    from poolrl.data.trajectories import Trajectories
    from poolrl.evaluation import cost_difference, data_free, relative_gap, rollout_cost, saa
    from poolrl.learning.grid import Grid
    from poolrl.learning.kernel import Visits
    from poolrl.learning.outcomes import Outcomes
    from poolrl.learning.pessimism import Bernstein
    from poolrl.learning.policy import Policy
    from poolrl.learning.separable import Separable
    from poolrl.learning.zones import Zones
    from poolrl.pool import Pool
    from poolrl.privacy.guarantee import Guarantee
    from poolrl.privacy.noise import SeededNoise
    from poolrl.problems.inventory import Backlog, LostSales
    from poolrl.problems.problem import Boundary, OutcomeProblem, Problem, SeparableProblem

__version__ = "0.5.0"

# Public name → its module, imported on first use: `poolrl --help` should not wait for SciPy.
_HOME = {
    "Backlog": "problems.inventory",
    "Bernstein": "learning.pessimism",
    "Boundary": "problems.problem",
    "Grid": "learning.grid",
    "Guarantee": "privacy.guarantee",
    "LostSales": "problems.inventory",
    "OutcomeProblem": "problems.problem",
    "Outcomes": "learning.outcomes",
    "Policy": "learning.policy",
    "Pool": "pool",
    "Problem": "problems.problem",
    "SeededNoise": "privacy.noise",
    "Separable": "learning.separable",
    "SeparableProblem": "problems.problem",
    "Table": "data.tables",
    "Trajectories": "data.trajectories",
    "Visits": "learning.kernel",
    "Zones": "learning.zones",
    "cost_difference": "evaluation",
    "data_free": "evaluation",
    "relative_gap": "evaluation",
    "rollout_cost": "evaluation",
    "saa": "evaluation",
    "simulate_log": "data.simulation",
}

__all__ = [
    "Backlog",
    "Bernstein",
    "Boundary",
    "Grid",
    "Guarantee",
    "LostSales",
    "OutcomeProblem",
    "Outcomes",
    "Policy",
    "Pool",
    "Problem",
    "SeededNoise",
    "Separable",
    "SeparableProblem",
    "Table",
    "Trajectories",
    "Visits",
    "Zones",
    "cost_difference",
    "data_free",
    "relative_gap",
    "rollout_cost",
    "saa",
    "simulate_log",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'poolrl' has no attribute {name!r}")
    return getattr(import_module(f"poolrl.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
