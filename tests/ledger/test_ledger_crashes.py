"""The ledger under many processes and kill -9: what was confirmed is there, and nothing is gained."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from poolrl.ledger.accounts import Entry
from poolrl.ledger.chain import Chain
from poolrl.ledger.ledger import Ledger
from tests.helpers.ledgers import WEEK, spent, stages
from tests.helpers.processes import environment, program

TENTH = Fraction(1, 10)


def at_once(task: str, path: Path, processes: int) -> list[str]:
    """What each of these processes says, which use one new ledger at the same time."""
    command = program("ledger_at_once", task, path, processes)
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment()).stdout.split()


def test_many_processes_cannot_overspend(tmp_path: Path) -> None:
    """Twelve processes ask for 7.2 of a budget of 1, from the creation of the file on; exactly ten tenths are given."""
    given = at_once("spend", tmp_path / "ledger.sqlite", 12)
    assert (len(given), sum(map(int, given))) == (12, 10)
    assert spent(tmp_path, "shop") == 1


def test_the_first_process_sets_the_budget(tmp_path: Path) -> None:
    """Eight processes open one account, each with another budget: one succeeds, and no other one changes it."""
    said = at_once("open", tmp_path / "ledger.sqlite", 8)
    assert sorted(said) == ["opened"] + ["refused"] * 7
    assert stages(tmp_path) == ["open"]


def test_a_reader_sees_one_state_while_another_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer who comes between two reads of one check must not look like a forger."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("shop", 1)
    read_entries, writers = Chain.entries, []

    about_to_write = threading.Event()

    def write() -> None:
        with Ledger(tmp_path / "ledger.sqlite") as other:
            about_to_write.set()
            other.reserve("shop", 0.1, WEEK)

    def slow(self: Chain) -> list[Entry]:
        found = read_entries(self)
        if threading.current_thread() is threading.main_thread() and not writers:
            writers.append(threading.Thread(target=write))
            writers[0].start()
            assert about_to_write.wait(timeout=30)
            writers[0].join(timeout=0.5)  # time enough to write, if it may
        return found

    with Ledger(tmp_path / "ledger.sqlite") as reader:
        monkeypatch.setattr(Chain, "entries", slow)
        assert reader.verify() == []
        writers[0].join()
        assert len(reader.entries()) == 2


@pytest.mark.slow
def test_kill_9_at_every_statement_never_gains(tmp_path: Path) -> None:
    """At each SQL statement of a ledger's life, its creation included: what was confirmed is there."""
    answer = subprocess.run(
        program("killed_ledgers", tmp_path), capture_output=True, text=True, check=True, env=environment()
    )
    lives = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(lives) > 30  # it did walk through the statements
    assert lives[-1][1:] == [0, ["opened", "budget", "reserved", "released", "committed", "reserved again", "void"]]
    for number, status, said in lives[:-1]:
        assert status == -signal.SIGKILL
        with Ledger(tmp_path / f"{number}.sqlite") as ledger:
            assert ledger.verify() == [], said
            account = ledger.account("shop")
            taken = account.spent if account else Fraction(0)
        released = TENTH if "reserved" in said else 0
        held = TENTH if "reserved again" in said and "void" not in said else 0
        assert taken >= released, said
        # The statement that was killed may have been the COMMIT of one further step, and no more.
        assert abs(taken - released - held) <= TENTH, said
