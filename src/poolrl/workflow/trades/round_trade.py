"""The trades of rounds in which one amount is named: reserves of auctions, posted prices, bids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from poolrl.problems.registry import KINDS
from poolrl.workflow.trades.declared_trade import DeclaredTrade


class RoundTrade(DeclaredTrade):
    """One of the package's own problems of rounds."""

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Things of very different size, whose scale is what an expert thought before."""
        from poolrl.workflow.kind_init import write_kind_example

        return write_kind_example(folder, self.kind)


RESERVES, PRICES, BIDS = (
    RoundTrade(kind, KINDS[kind]) for kind in ("reserve-auction", "dynamic-pricing", "first-price-bidding")
)
