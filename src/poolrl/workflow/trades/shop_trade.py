"""The trade of shops: order-up-to levels of products whose shelves run empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolrl.problems.inventory import Backlog, LostSales
from poolrl.workflow.trades.declared_trade import Trade
from poolrl.workflow.trades.vocabulary import Words

if TYPE_CHECKING:
    from rich.progress import Progress

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


class ShopTrade(Trade):
    """Lost sales, or backlog."""

    earns = False
    # Shelves that held more would have sold what was asked for, and the log tells that on most days.
    why_no_backtest = ""
    before_switch = "replay it on later weeks of the log: poolrl backtest {folder}"

    @property
    def section(self) -> type[ProblemSection]:
        """Products, costs and bounds."""
        from poolrl.workflow.trades.shop_section import ShopFacts

        return ShopFacts

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """The sales export of a simulated chain."""
        from poolrl.workflow.trades.shop_example import write_example

        return write_example(folder, seed=1)

    def fields(self, file: ConfigFile) -> Iterable[LogFinding]:
        """Whether the fields of a sales export can be read."""
        from poolrl.workflow.trades.shop_findings import fields_of_rows

        return [] if file.config.sales is None else fields_of_rows(file, file.config.sales)

    def findings(self, file: ConfigFile, log: Table) -> Iterable[LogFinding]:
        """Rows of a sales export or of a wide table, empty shelves, and whether orders follow demand."""
        from poolrl.workflow.trades.shop_findings import rows_of_shops

        return rows_of_shops(file, log)

    def judge(self, problem: Any, world: World) -> tuple[Callable[[Policy], float], Policy]:
        """Costs of levels are known exactly. Somebody who knows the demand may order beyond λ."""
        from poolrl.simulation.evaluation import expected_costs, optimum

        best = optimum(problem.without_boundary(), world.probabilities)
        return lambda policy: float(expected_costs(problem, policy.levels, world.probabilities).sum()), best

    def forecast(self, policy: Policy, trees: FadedTrees | None, progress: Progress) -> Forecast:
        """Costs of today's ordering, of the policy, and of knowing the demand."""
        from poolrl.workflow.trades.shop_forecast import make_forecast

        return make_forecast(policy, progress=progress)

    def cost_by_model(self, policy: Policy, problem: Any) -> float:
        """Exactly, as far as the problem's bounds allow the levels."""
        from poolrl.workflow.trades.shop_levels import cost_by_model

        return cost_by_model(policy, problem)

    def page(self, policy: Policy, forecast: Forecast) -> TradePage:
        """Levels that a script shows, and what empty shelves hid."""
        from poolrl.workflow.trades.shop_levels import shop_page

        return shop_page(policy, forecast)

    def decisions_file(self, policy: Policy) -> tuple[str, str]:
        """For each label cell, product and step."""
        from poolrl.workflow.decision_tables import LEVELS_FILE, levels_csv

        return LEVELS_FILE, levels_csv(policy)

    def desk(self, policy: Policy) -> Desk:
        """A question says stocks, an answer what to order."""
        from poolrl.workflow.trades.shop_desk import ShopDesk

        return ShopDesk(policy)


WORDS = Words(
    decision="order-up-to level",
    decisions="order-up-to levels",
    past="orders",
    scope="{count} products",
    outcome="demand",
    trajectory="week",
    step="day",
    logged="stocks and sales",
    earned="minus the cost",
    estimate="Kaplan-Meier estimate of demand beyond empty shelves",
    # Only the ratio of both costs matters: half the cost of a missed sale is twice that of what is left.
    costs={"shortage": "a missed sale costs"},
    advice="Fill the shelf up to this number, whatever is still on it.",
)
LOST_SALES, BACKLOG = ShopTrade("lost sales", LostSales, WORDS), ShopTrade("backlog", Backlog, WORDS)
