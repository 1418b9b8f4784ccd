"""The ledger: nothing is spent twice, not even by a hair; nothing comes back, nothing can be changed unseen."""

from __future__ import annotations

import base64
import copy
import math
import random
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from poolrl.ledger import chain
from poolrl.ledger.accounts import OverspendError, Spend, apply, replay
from poolrl.ledger.chain import STATEMENTS
from poolrl.ledger.ledger import Ledger
from tests.helpers.ledgers import WEEK, rows

TENTH = Fraction(1, 10)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with Ledger(tmp_path / "ledger.sqlite") as opened:
        opened.open_account("shop", 1.0)
        yield opened


def left(ledger: Ledger, data_set: str = "shop") -> Fraction:
    return ledger.account(data_set).left


def test_a_spend_step_by_step(ledger: Ledger) -> None:
    entry = ledger.reserve("shop", 0.1, WEEK)
    assert left(ledger) == 1 - TENTH  # exact: 0.1 is the decimal that was written
    account = ledger.read(entry, rows("rows"))
    assert (account.data_set, account.left) == ("shop", 1 - TENTH)
    assert account.spends == {entry.number: Spend(TENTH, "read", WEEK)}
    assert account == ledger.account("shop")  # what is returned is what was written
    done = ledger.commit(entry, {"policy": "é"})
    assert left(ledger) == 1 - TENTH
    assert [e.kind for e in ledger.entries()] == ["open", "reserve", "read", "commit"]
    assert (done.refers, ledger.entries()[-1].note) == (entry.number, {"policy": "é"})
    assert ledger.state() == (ledger.entries(), ledger.accounts())
    assert ledger.verify() == []


def test_an_entry_that_breaks_a_rule_changes_nothing(ledger: Ledger) -> None:
    entry = ledger.reserve("shop", 0.4, WEEK)
    entries, accounts = ledger.state()
    before = copy.deepcopy(accounts)
    for broken in (
        replace(entry, number=3, kind="gift"),
        replace(entry, number=3, kind="open"),
        replace(entry, number=3, account="another"),
        replace(entry, number=3, rho=Fraction(7, 10)),
        replace(entry, number=3, rho=Fraction(0)),
        replace(entry, number=3, rho=None),
        replace(entry, number=3, kind="commit", rho=None, refers=entry.number),
        replace(entry, number=3, kind="void", rho=None, refers=99),
    ):
        with pytest.raises(ValueError, match="entry 3"):
            apply(broken, accounts)
        assert accounts == before
    assert replay(entries) == before


NONSENSE = [0.0, -0.1, math.nan, math.inf, -math.inf, True, "1", None, Fraction(-1), Fraction(0)]


@pytest.mark.parametrize("rho", [*NONSENSE, Fraction(1, 10**450)])
def test_nonsense_is_not_a_spend(ledger: Ledger, rho: object) -> None:
    """Nor is a fraction of 450 digits: it would make the file unreadable for good."""
    calls = (partial(ledger.reserve, unit=WEEK), ledger.open_account, partial(ledger.change_budget, reason="why"))
    for call in calls:
        with pytest.raises((ValueError, TypeError)):
            call("shop", rho)
    assert left(ledger) == 1
    assert len(ledger.entries()) == 1
    assert ledger.verify() == []


def test_the_same_rows_under_another_name_are_recognised(ledger: Ledger) -> None:
    ledger.read(ledger.reserve("shop", 0.5, WEEK), rows("rows"))
    ledger.open_account("shop, renamed", 1.0)
    second = ledger.reserve("shop, renamed", 0.5, WEEK)
    with pytest.raises(OverspendError, match="as 'shop': a new name gives no new budget"):
        ledger.read(second, rows("rows"))
    ledger.void(second)
    assert left(ledger, "shop, renamed") == 1  # nothing was released, so nothing is lost
    ledger.read(ledger.reserve("shop, renamed", 0.5, WEEK), rows("other rows"))
    ledger.read(ledger.reserve("shop", 0.1, WEEK), rows("rows"))  # the same rows on their own account pay again
    assert left(ledger) == Fraction(4, 10)


def test_the_rows_leave_no_trace_that_could_be_guessed(ledger: Ledger) -> None:
    """Without the key neither a guess of the log nor its size can be confirmed from the file."""
    read = []
    for marks in (rows("rows"), replace(rows("few"), marks=rows("few").marks[:1])):
        ledger.read(ledger.reserve("shop", 0.4, WEEK), marks)
        read.append(ledger.entries()[-1].note["sketch"])
        stored = ledger.path.read_bytes()
        for mark in (marks.whole, *marks.marks):
            assert mark not in stored
            assert mark.hex().encode() not in stored
            assert mark not in base64.b64decode(read[-1])
    assert len(read[0]) == len(read[1])
    assert bytes.fromhex(ledger.key_path.read_text()).hex().encode() not in stored
    assert ledger.key_path.stat().st_mode & 0o077 == 0


def test_a_budget_may_change_in_the_open(ledger: Ledger) -> None:
    ledger.reserve("shop", 0.8, WEEK)
    with pytest.raises(ValueError, match=r"was given a budget of 1 in the ledger, not 0\.5"):
        ledger.open_account("shop", 0.5)
    assert ledger.change_budget("shop", 0.5, reason="the board").left == 0
    assert ledger.change_budget("shop", 2.0, reason="the board, again").left == Fraction(12, 10)
    assert [e.kind for e in ledger.entries()] == ["open", "reserve", "budget", "budget"]
    assert ledger.entries()[-1].note == {"reason": "the board, again"}
    with pytest.raises(ValueError, match="reason must say why"):
        ledger.change_budget("shop", 3.0, reason=" ")
    with pytest.raises(ValueError, match="no account 'shp'"):
        ledger.change_budget("shp", 3.0, reason="the board")
    with pytest.raises(ValueError, match="no account 'shp'"):
        ledger.reserve("shp", 0.1, WEEK)


def test_missing_halves_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with pytest.raises(ValueError, match="the first fit makes one"):
        Ledger.existing(path)
    with Ledger(path) as ledger:
        ledger.open_account("shop", 1.0)
        key = ledger.key_path
    kept = key.read_text()
    key.unlink()
    with pytest.raises(ValueError, match=r"key .* is missing"):
        Ledger(path)
    key.write_text("zz")
    with pytest.raises(ValueError, match="is not the key"):
        Ledger(path)
    key.write_text(kept)
    path.unlink()
    for content in (None, b""):  # gone; or emptied, which must not look like a new one
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match="is gone, empty or damaged, but its key"):
            Ledger(path)
    path.write_text("not a database, but long enough to look like a file of one" * 20)
    with pytest.raises(ValueError, match="cannot be used as a ledger"):
        Ledger(path)


def test_only_a_file_of_its_own_is_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE customers (name)")
    other.close()
    with pytest.raises(ValueError, match="is not a ledger"):
        Ledger(tmp_path / "other.sqlite")
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(ValueError, match="is not a ledger"):
        Ledger.existing(tmp_path / "empty.sqlite")  # to look is not to make
    assert not list(tmp_path.glob("*.key*"))
    assert not (tmp_path / "other.sqlite.key").exists()
    monkeypatch.chdir(tmp_path)
    with Ledger(":memory:") as ledger:  # a name like any other
        ledger.open_account("shop", 1.0)
    with Ledger(":memory:") as ledger:
        assert left(ledger) == 1
    with pytest.raises(ValueError, match="cannot be used as a ledger"):
        Ledger(tmp_path / "nowhere" / "ledger.sqlite")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "link.sqlite").symlink_to(tmp_path / ":memory:")
    with Ledger(tmp_path / "project" / "link.sqlite") as ledger:  # the key lies with the file, not with the link
        assert left(ledger) == 1


def test_a_ledger_that_somebody_holds_is_said_to_be_held(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolrl.ledger.chain.LOCK_PATIENCE", 0.05)
    holder = sqlite3.connect(ledger.path, isolation_level=None)
    with Ledger(ledger.path) as other:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ValueError, match="cannot be used as a ledger: database is locked"):
            other.reserve("shop", 0.1, WEEK)
        with pytest.raises(ValueError, match="cannot be used as a ledger: database is locked"):
            Ledger(ledger.path)
        holder.execute("ROLLBACK")
        other.reserve("shop", 0.1, WEEK)
    holder.close()


# What a call finds a spend in, and what it leaves it in.
STAGES = {"void": ("reserved", "void"), "read": ("reserved", "read"), "commit": ("read", "committed")}
FIRST, SECOND = ["reserve", "void", "void", "read"], ["reserve", "read", "void", "commit", "commit"]
TWICE = [(1, what) for what in (*FIRST, *SECOND)]  # each of the second spend, once there are two


class JumpingClock(datetime):
    """Jumps by up to fifty years, either way, each time somebody looks at it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return super().now(tz) + timedelta(days=random.uniform(-18_000, 18_000))


@settings(max_examples=30, deadline=None)
@example(TWICE)
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["reserve", *STAGES])), max_size=25))
def test_whatever_is_called_the_books_balance(tmp_path_factory: pytest.TempPathFactory, calls: list) -> None:
    """Against a bookkeeper who writes down what came back and nothing else; and whatever the clock says."""
    path = tmp_path_factory.mktemp("l") / "ledger.sqlite"
    with patch("poolrl.ledger.chain.datetime", JumpingClock), Ledger(path) as ledger:
        ledger.open_account("shop", 2)
        read, commit = partial(ledger.read, sketch=rows("r")), partial(ledger.commit, released={})
        call = {"void": ledger.void, "read": read, "commit": commit}
        spent, stages, entries = Fraction(0), {}, []
        for tenths, what in calls:
            rho = Fraction(tenths, 10)
            if what == "reserve" and spent + rho > 2:
                with pytest.raises(OverspendError):
                    ledger.reserve("shop", rho, WEEK)
            elif what == "reserve":
                entries.append(ledger.reserve("shop", rho, WEEK))
                stages[entries[-1].number] = "reserved"
                spent += rho
            elif entries:
                entry, (wanted, becomes) = entries[tenths % len(entries)], STAGES[what]
                if stages[entry.number] != wanted:
                    with pytest.raises(ValueError, match=f"is {stages[entry.number]}, not {wanted}"):
                        call[what](entry)
                    continue
                call[what](entry)
                stages[entry.number] = becomes
                spent -= entry.rho if what == "void" else 0
        assert ledger.account("shop").spent == spent <= 2
        assert ledger.verify() == []


def test_one_name_has_one_budget_whatever_its_fingerprint(tmp_path: Path) -> None:
    """An earlier version hashed names as they were written. Its account must be found, and not opened again."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        raw = ledger._chain.fingerprint("data set", b"Bakery 2025")
        ledger._append(ledger.accounts(), "open", raw, rho=Fraction(1), note={"data_set": "Bakery 2025"})
        ledger.reserve("bakery 2025", 1, WEEK)
        assert ledger.account("BAKERY  2025").fingerprint == raw
        assert ledger.open_account("Bakery 2025", 1).left == 0
        assert len(ledger.accounts()) == 1


EXTRA = 3  # SQLite's number for synchronous = EXTRA


def synchronous(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """What SQLite itself says of every connection that a ledger writes with, at each COMMIT."""
    found = []
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
    assert len(found) >= 4
    return set(found)


def test_a_confirmed_entry_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert synchronous(tmp_path / "ledger.sqlite", monkeypatch) == {EXTRA}


@pytest.mark.parametrize("level", ["OFF", "NORMAL", "FULL"])
def test_a_lower_level_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """The planted bug: `PRAGMA synchronous` set to less."""
    source = Path(chain.__file__).read_text().replace("synchronous = EXTRA", f"synchronous = {level}")
    assert level in source
    planted: dict[str, object] = {"__name__": chain.__name__}
    exec(compile(source, "planted", "exec"), planted)
    monkeypatch.setattr("poolrl.ledger.ledger.Chain", planted["Chain"])
    assert EXTRA not in synchronous(tmp_path / "ledger.sqlite", monkeypatch)


# 2⁻⁶⁰ and 10⁻³⁰ are lost when they are added to 1 as doubles.
HAIRS = [Fraction(1, 2**60), Fraction(1, 10**30)]


@pytest.mark.parametrize("hair", HAIRS)
def test_a_hair_above_the_budget_is_refused(ledger: Ledger, hair: Fraction) -> None:
    """A comparison of doubles would let it through: float(1 + hair) is 1."""
    assert float(1 + hair) == 1.0
    for _ in range(10):
        ledger.reserve("shop", 0.1, WEEK)
    assert left(ledger) == 0
    with pytest.raises(OverspendError, match="only 0 of 1 is left"):
        ledger.reserve("shop", hair, WEEK)
    ledger.open_account("other", 1)
    with pytest.raises(OverspendError):
        ledger.reserve("other", 1 + hair, WEEK)
    ledger.reserve("other", 1 - hair, WEEK)
    ledger.reserve("other", hair, WEEK)  # and what fits to the hair is given
    assert left(ledger, "other") == 0
    with pytest.raises(ValueError, match="was given a budget of"):
        ledger.open_account("shop", 1 + hair)
    # The rule that adds up a file is exact as well, not only the call that writes it.
    *entries, last = ledger.entries()
    replay([*entries, last])
    with pytest.raises(ValueError, match="does not allow rho"):
        replay([*entries, replace(last, rho=2 * hair)])


# In the hands of a forger without its key: whatever is changed is found, by the seals and by the schema.


NOT_OURS = "it has tables or triggers that poolrl did not make, or lacks its own"
TRIGGERS = [statement for statement in STATEMENTS if statement.startswith("CREATE TRIGGER")]


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


def test_the_file_itself_refuses_changes_and_a_forger_cannot_reseal(ledger: Ledger, tmp_path: Path) -> None:
    """The same entries written with another key do not pass for the original."""
    file = sqlite3.connect(ledger.path)
    for change in ("UPDATE entries SET rho = '1/1000'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            file.execute(change)
    file.close()
    with Ledger(tmp_path / "forged.sqlite") as forged:
        forged.open_account("shop", 100.0)
    (tmp_path / "forged.sqlite").replace(ledger.path)
    with Ledger(ledger.path) as again:
        assert again.verify()
