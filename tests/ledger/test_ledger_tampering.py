"""A ledger in the hands of a forger without its key: whatever is changed is found, by the seals and by the schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from poolrl.ledger.chain import STATEMENTS
from poolrl.ledger.ledger import Ledger
from tests.helpers.ledgers import WEEK, rows

NOT_OURS = "it has tables or triggers that poolrl did not make, or lacks its own"
TRIGGERS = [statement for statement in STATEMENTS if statement.startswith("CREATE TRIGGER")]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite") as opened:
        opened.open_account("shop", 1.0)
        yield opened


TAMPERING = {
    "a cheaper spend": "UPDATE entries SET rho = '1/1000' WHERE number = 2",
    "a larger budget": "UPDATE entries SET rho = '100' WHERE number = 1",
    "another time": "UPDATE entries SET time = '2020-01-01T00:00:00+00:00' WHERE number = 2",
    "another note": 'UPDATE entries SET note = \'{"content": "00"}\' WHERE number = 3',
    "a spend turned void": "UPDATE entries SET kind = 'void', note = '{}' WHERE number = 3",
    "the last one removed": "DELETE FROM entries WHERE number = 4",
    "one in the middle removed": "DELETE FROM entries WHERE number = 3",
    "all removed": "DELETE FROM entries",
    "numbers swapped": "UPDATE entries SET number = -number; UPDATE entries SET number = 5 + number",
    "one inserted": "INSERT INTO entries SELECT 5, 'void', time, account, NULL, 2, '{}', seal FROM entries LIMIT 1",
    "a broken fraction": "UPDATE entries SET rho = '1/0' WHERE number = 2",
    "a blob": "UPDATE entries SET note = x'00ff' WHERE number = 2",
    "no head": "DELETE FROM head",
    "an older head": "UPDATE head SET number = 3",
    "no head at all": "DROP TABLE head",
    "no entries at all": "DROP TABLE entries",
    "nothing at all": "DROP TABLE entries; DROP TABLE head",
}


@pytest.mark.parametrize("what", TAMPERING)
def test_tampering_is_found(ledger: Ledger, what: str) -> None:
    """By a forger who puts back the triggers that were in the way, so that the seals must tell."""
    entry = ledger.reserve("shop", 0.5, WEEK)
    ledger.read(entry, rows("rows"))
    ledger.commit(entry, {"policy": "ab"})
    dropped = "DROP TABLE" in TAMPERING[what]
    with sqlite3.connect(ledger.path) as file:
        file.executescript("DROP TRIGGER entries_stay; DROP TRIGGER entries_remain;" + TAMPERING[what])
        if not dropped:
            file.executescript("".join(f"{statement};" for statement in TRIGGERS))
    file.close()
    try:
        with Ledger(ledger.path) as again:
            faults = again.verify()
            assert faults, what
            assert faults != [NOT_OURS], what
            with pytest.raises(ValueError, match="tampered with or damaged"):
                again.reserve("shop", 0.1, WEEK)
    except ValueError as error:
        assert dropped  # it does not even open
        assert "restore it from a backup" in str(error)


def test_a_trigger_that_is_missing_or_not_ours_is_found(ledger: Ledger) -> None:
    """It could take every later entry back, and put the head where it was."""
    file = sqlite3.connect(ledger.path)
    (seal,) = file.execute("SELECT seal FROM head").fetchone()
    for change in (
        "DROP TRIGGER entries_stay",
        "DROP TRIGGER entries_remain",
        "CREATE TRIGGER undo AFTER INSERT ON head WHEN new.number > 1 BEGIN DELETE FROM entries WHERE number > 1; "
        f"UPDATE head SET number = 1, seal = '{seal}'; END",
    ):
        assert ledger.verify() == []
        file.executescript(change)
        assert ledger.verify() == [NOT_OURS]
        with pytest.raises(ValueError, match="tampered with or damaged"):
            ledger.reserve("shop", 0.5, WEEK)
        file.executescript("DROP TRIGGER IF EXISTS undo; DROP TRIGGER IF EXISTS entries_stay;")
        file.executescript("DROP TRIGGER IF EXISTS entries_remain;" + "".join(f"{each};" for each in TRIGGERS))
    file.close()


def test_the_file_itself_refuses_changes(ledger: Ledger) -> None:
    file = sqlite3.connect(ledger.path)
    for change in ("UPDATE entries SET rho = '1/1000'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            file.execute(change)
    file.close()


def test_a_forger_without_the_key_cannot_reseal(ledger: Ledger, tmp_path: Path) -> None:
    """The same entries written with another key do not pass for the original."""
    with Ledger(tmp_path / "forged.sqlite") as forged:
        forged.open_account("shop", 100.0)
    (tmp_path / "forged.sqlite").replace(ledger.path)
    with Ledger(ledger.path) as again:
        assert again.verify()
