"""What the ledger of a small shop says."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path

from poolrl.ledger.accounts import ProtectedUnit
from poolrl.ledger.ledger import Ledger, Sketch

WEEK = ProtectedUnit("week")


def rows(name: str) -> Sketch:
    """The sketch of a log of twenty trajectories, another one for every name."""
    whole, *marks = (hashlib.sha256(f"{name} {i}".encode()).digest()[:16] for i in range(21))
    return Sketch(whole, tuple(marks))


def spent(folder: Path, data_set: str = "small shop") -> Fraction:
    """How much a data set has spent, by a ledger that verifies."""
    with Ledger.existing(folder / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        account = ledger.account(data_set)
        assert account is not None
        return account.spent


def stages(folder: Path) -> list[str]:
    """The kinds of all entries of accounts, in their order."""
    with Ledger.existing(folder / "ledger.sqlite") as ledger:
        return [entry.kind for entry in ledger.entries() if entry.kind != "key"]
