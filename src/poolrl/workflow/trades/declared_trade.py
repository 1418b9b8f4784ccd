"""A trade that is made from the declarations of a problem: it serves a user's own, and is where others begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrl.problems.problem import Problem
from poolrl.workflow.trades.vocabulary import Words

if TYPE_CHECKING:
    from rich.progress import Progress

    from poolrl.checks import FloatArray
    from poolrl.data.table import Table
    from poolrl.learning.faded_trees import FadedTrees
    from poolrl.learning.policy import Policy
    from poolrl.simulation.families import World
    from poolrl.workflow.check import LogFinding
    from poolrl.workflow.config.configuration import ConfigFile
    from poolrl.workflow.config.sections import ProblemSection
    from poolrl.workflow.desk import Desk
    from poolrl.workflow.forecast import Forecast
    from poolrl.workflow.trades.trade import TradePage

# Paths on which policies of simulated fits are compared.
JUDGING_PATHS = 10_000


class DeclaredTrade:
    """Everything follows from the problem's class and its words."""

    earns = True
    before_switch = "try it on a part, chosen by lot, and compare"

    def __init__(self, kind: str, problem: type[Problem], words: Words | None = None) -> None:
        self.kind, self.problem = kind, problem
        self.words: Words = getattr(problem, "words", Words()) if words is None else words

    @property
    def section(self) -> type[ProblemSection]:
        """The constructor's arguments."""
        from poolrl.workflow.trades.declared_section import DeclaredFacts

        return DeclaredFacts

    @property
    def cost_words(self) -> dict[str, str]:
        """By the names of the arguments."""
        return {name: f"{name} is" for name in getattr(self.problem, "costs", ())}

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Nobody knows what a log of a user's own problem looks like."""
        raise ValueError(f"there is no example of {self.kind}: write --facts, and --columns for your table")

    def fields(self, file: ConfigFile) -> Iterable[LogFinding]:
        """Nothing is said of fields before rows are read."""
        return []

    def findings(self, file: ConfigFile, log: Table) -> Iterable[LogFinding]:
        """Which rows cannot be used, how much of the log a fit would use, and how decisions were made."""
        from poolrl.workflow.trades.declared_findings import rows_of_table

        return rows_of_table(file, log)

    @property
    def why_no_backtest(self) -> str:
        """Other decisions would have met outcomes that nobody has seen."""
        words = self.words
        return (
            f"nothing can be replayed: the log does not tell what other {words.decisions} would have met. It shows "
            f"{words.outcome} only as far as past {words.decisions} did. Try the policy on a part, chosen by lot, and "
            "compare"
        )

    def judge(self, problem: Any, world: World) -> tuple[Callable[[Policy], FloatArray], Policy]:
        """On simulated paths."""
        from poolrl.simulation.evaluation import rollout_cost, saa

        rng = np.random.default_rng(0)
        best = saa(problem, world.sample(problem, 2 * JUDGING_PATHS, rng))
        paths = world.sample(problem, JUDGING_PATHS, rng)
        return lambda policy: np.array([rollout_cost(problem, policy, paths)]), best

    def forecast(self, policy: Policy, trees: FadedTrees | None, progress: Progress) -> Forecast:
        """What is earned, by the model."""
        from poolrl.workflow.trades.round_forecast import forecast_rounds

        return forecast_rounds(policy, trees, progress=progress)

    def desk(self, policy: Policy) -> Desk:
        """A question says the state, an answer the decision."""
        from poolrl.workflow.desk import StateDesk

        return StateDesk(policy, self.words)

    def cost_by_model(self, policy: Policy, problem: Any) -> float:
        """Played on the model's outcomes."""
        from poolrl.workflow.trades.round_forecast import earned_by_model

        return -earned_by_model(policy, problem)

    def page(self, policy: Policy, forecast: Forecast) -> TradePage:
        """A table of decisions for each label cell."""
        from poolrl.workflow.page import declared_page

        return declared_page(policy, forecast)

    def decisions_file(self, policy: Policy) -> tuple[str, str]:
        """For each label cell, state and step."""
        from poolrl.workflow.decision_tables import DECISIONS_FILE, decisions_csv

        return DECISIONS_FILE, decisions_csv(policy)
