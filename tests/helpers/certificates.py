"""What a certificate says beside the guarantee, of a release that nobody made."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from poolrl import LostSales
from poolrl.certificate.certificate import AssumedPublic, LedgerEntry, Publication
from poolrl.workflow.trades.trade import trade_of


def release_facts(problem: LostSales, *, spent: Fraction, units: int) -> dict[str, Any]:
    """The facts of the first release of a data set, which takes all of its budget."""
    public = AssumedPublic(
        problem=problem.facts(),
        products=[f"product {i + 1}" for i in range(problem.products)],
        steps=[str(step) for step in range(problem.horizon)],
        columns=[],
        unit_column=None,
        clip=False,
        query=None,
        protects="",
        publication=Publication(),
        words=trade_of(problem).words.certified([""] * problem.products, censored=problem.censored),
        units=units,
    )
    paid = LedgerEntry(data_set="shop", account="", entry=2, seal="", budget=str(spent), spent=str(spent))
    hashes = {"policy_sha256": "", "config_sha256": ""}
    return hashes | {"issued": "2026-01-01", "public": public, "versions": {}, "ledger": paid}
