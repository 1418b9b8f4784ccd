"""The trade of shops: order-up-to levels of products whose shelves run empty."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolrl.problems.registry import KINDS
from poolrl.workflow.trades.declared_trade import DeclaredTrade

if TYPE_CHECKING:
    from rich.progress import Progress

    from poolrl.data.table import Table
    from poolrl.learning.faded_trees import FadedTrees
    from poolrl.learning.policy import Policy
    from poolrl.workflow.config.configuration import ConfigFile
    from poolrl.workflow.config.sections import ProblemSection
    from poolrl.workflow.findings import LogFinding


class ShopTrade(DeclaredTrade):
    """Lost sales, or backlog."""

    @property
    def section(self) -> type[ProblemSection]:
        """Products, costs and bounds."""
        from poolrl.workflow.trades.shop_section import ShopFacts

        return ShopFacts

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """The sales export of a simulated chain."""
        from poolrl.workflow.trades.shop_example import write_example

        return write_example(folder, seed=1)

    def findings(self, file: ConfigFile, log: Table) -> Iterable[LogFinding]:
        """Rows of a sales export or of a wide table, empty shelves, and whether orders follow demand."""
        from poolrl.workflow.check import shop_rows

        return shop_rows(file, log)

    def simulator(self, problem: Any) -> Any:
        """Costs of shops are known exactly."""
        from poolrl.workflow.prediction import Simulator

        return Simulator(problem)

    def forecast(self, policy: Policy, trees: FadedTrees | None, progress: Progress) -> Any:
        """Costs of today's ordering, of the policy, and of knowing the demand."""
        from poolrl.workflow.forecast import make_forecast

        return make_forecast(policy, progress=progress)


LOST_SALES, BACKLOG = (ShopTrade(kind, KINDS[kind]) for kind in ("lost sales", "backlog"))
