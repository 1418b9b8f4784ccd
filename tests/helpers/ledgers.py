"""What the ledger of a small shop says."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from poolrl.ledger.ledger import Ledger


def spent(folder: Path, data_set: str = "small shop") -> Fraction:
    """How much a data set has spent, by a ledger that verifies."""
    with Ledger.existing(folder / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        account = ledger.account(data_set)
        assert account is not None
        return account.spent


def stages(folder: Path) -> list[str]:
    """The kinds of all entries, in their order."""
    with Ledger.existing(folder / "ledger.sqlite") as ledger:
        return [entry.kind for entry in ledger.entries()]
