"""Planted bugs in the ledger that no test had caught: each must be caught now."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from poolrl.ledger import chain
from poolrl.ledger.accounts import OverspendError
from poolrl.ledger.ledger import Ledger
from tests.helpers.ledgers import WEEK

EXTRA = 3  # SQLite's number for synchronous = EXTRA


def synchronous(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What SQLite itself says of every connection that a ledger writes with, at each COMMIT."""
    found: list[int] = []
    connect = sqlite3.connect

    class Watched(sqlite3.Connection):
        def execute(self, statement: str, *rest: object) -> sqlite3.Cursor:
            if statement == "COMMIT":
                found.append(super().execute("PRAGMA synchronous").fetchone()[0])
            return super().execute(statement, *rest)

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, **kwargs, factory=Watched))
    with Ledger(path) as ledger:
        ledger.open_account("shop", 1)
        ledger.void(ledger.reserve("shop", 0.1, WEEK))
    return found


def test_a_confirmed_entry_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = synchronous(tmp_path / "ledger.sqlite", monkeypatch)
    assert len(found) >= 4
    assert set(found) == {EXTRA}


@pytest.mark.parametrize("level", ["OFF", "NORMAL", "FULL"])
def test_a_lower_level_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """The planted bug: `PRAGMA synchronous` set to less."""
    source = Path(chain.__file__).read_text().replace("synchronous = EXTRA", f"synchronous = {level}")
    assert level in source
    planted: dict[str, object] = {"__name__": chain.__name__}
    exec(compile(source, "planted", "exec"), planted)
    monkeypatch.setattr("poolrl.ledger.ledger.Chain", planted["Chain"])
    assert EXTRA not in set(synchronous(tmp_path / "ledger.sqlite", monkeypatch))


# 2⁻⁶⁰ and 10⁻³⁰ are lost when they are added to 1 as doubles.
HAIRS = [Fraction(1, 2**60), Fraction(1, 10**30)]


@pytest.mark.parametrize("hair", HAIRS)
def test_a_hair_above_the_budget_is_refused(tmp_path: Path, hair: Fraction) -> None:
    """A comparison of doubles would let it through: float(1 + hair) is 1."""
    assert float(1 + hair) == 1.0
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("shop", 1)
        ledger.reserve("shop", Fraction(1), WEEK)
        with pytest.raises(OverspendError):
            ledger.reserve("shop", hair, WEEK)
        ledger.open_account("other", 1)
        with pytest.raises(OverspendError):
            ledger.reserve("other", 1 + hair, WEEK)
        ledger.reserve("other", 1 - hair, WEEK)
        ledger.reserve("other", hair, WEEK)  # and what fits to the hair is given
        account = ledger.account("other")
        assert account is not None
        assert account.left == 0


def test_a_budget_a_hair_away_is_another_budget(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("shop", Fraction(1))
        with pytest.raises(ValueError, match="was given a budget of"):
            ledger.open_account("shop", 1 + HAIRS[0])


def test_a_replayed_entry_a_hair_above_the_budget_is_refused(tmp_path: Path) -> None:
    """The rule that adds up a file is exact as well, not only the call that writes it."""
    from dataclasses import replace

    from poolrl.ledger.accounts import replay

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("shop", 1)
        ledger.reserve("shop", 1, WEEK)
        opened, reserved = ledger.entries()
    replay([opened, reserved])
    with pytest.raises(ValueError, match="does not allow rho"):
        replay([opened, replace(reserved, rho=1 + HAIRS[1])])
