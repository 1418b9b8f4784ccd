"""The ledger under many processes and kill -9: what was confirmed is there, and nothing is gained."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from poolrl.ledger.accounts import Entry
from poolrl.ledger.chain import Chain
from poolrl.ledger.ledger import Ledger

TENTH = Fraction(1, 10)


SPENDER = """
import sys
from poolrl.ledger.accounts import OverspendError
from poolrl.ledger.chain import Chain
from poolrl.ledger.ledger import Ledger
won = 0
for _ in range(6):
    with Ledger(sys.argv[1]) as ledger:
        try:
            if ledger.account("shop") is None:
                ledger.open_account("shop", 1)
            entry = ledger.reserve("shop", 0.1)
            ledger.read(entry, [b"rows"])
            ledger.commit(entry, {})
            won += 1
        except OverspendError:
            pass
print(won)
"""


def test_many_processes_cannot_overspend(tmp_path: Path) -> None:
    """Twelve processes ask for 7.2 of a budget of 1, from the creation of the file on; exactly ten tenths are given."""
    path = tmp_path / "ledger.sqlite"
    running = [
        subprocess.Popen([sys.executable, "-c", SPENDER, path], stdout=subprocess.PIPE, text=True) for _ in range(12)
    ]
    won = [int(process.communicate()[0]) for process in running]
    assert all(process.returncode == 0 for process in running)
    assert sum(won) == 10
    with Ledger(path) as ledger:
        account = ledger.account("shop")
        assert account is not None
        assert account.left == 0
        assert ledger.verify() == []


OPENER = """
import sys
from poolrl.ledger.ledger import Ledger
with Ledger(sys.argv[1]) as ledger:
    try:
        ledger.open_account("shop", float(sys.argv[2]))
        print("opened")
    except ValueError as error:
        assert "was given a budget of" in str(error), error
        print("refused")
"""


def test_whoever_comes_first_sets_the_budget(tmp_path: Path) -> None:
    """Eight processes open one account with budgets of their own; nobody raises another's unseen."""
    path = tmp_path / "ledger.sqlite"
    running = [
        subprocess.Popen([sys.executable, "-c", OPENER, path, str(1 + i)], stdout=subprocess.PIPE, text=True)
        for i in range(8)
    ]
    said = [process.communicate()[0].strip() for process in running]
    assert sorted(said) == ["opened"] + ["refused"] * 7
    with Ledger(path) as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["open"]


def test_a_reader_sees_one_state_while_another_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer who comes between two reads of one check must not look like a forger."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("shop", 1)
    read_entries, writers = Chain.entries, []

    about_to_write = threading.Event()

    def write() -> None:
        with Ledger(tmp_path / "ledger.sqlite") as other:
            about_to_write.set()
            other.reserve("shop", 0.1)

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


# For n = 1, 2, ...: a child that kills itself, as kill -9 would, when SQLite is about to run the n-th statement.
# Prints how each child ended and what had been confirmed to it before.
VICTIMS = """
import json, os, signal, sqlite3, sys
from poolrl.ledger.chain import Chain
from poolrl.ledger.ledger import Ledger

connect = sqlite3.connect

def live(path, last, say):
    seen = 0
    def traced(*args, **kwargs):
        file = connect(*args, **kwargs)
        def count(statement):
            nonlocal seen
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)
        file.set_trace_callback(count)
        return file
    sqlite3.connect = traced
    with Ledger(path) as ledger:
        say("opened")
        ledger.open_account("shop", 1)
        say("budget")
        entry = ledger.reserve("shop", 0.1)
        say("reserved")
        ledger.read(entry, [b"rows"])
        say("released")
        ledger.commit(entry, {"policy": "ab"})
        say("committed")
        entry = ledger.reserve("shop", 0.1)
        say("reserved again")
        ledger.void(entry)
        say("void")

number = status = 1
while status != 0:
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        live(f"{sys.argv[1]}/{number}.sqlite", number, lambda word: os.write(start, (word + "\\n").encode()))
        os._exit(0)
    os.close(start)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = os.fdopen(end).read().splitlines()
    print(json.dumps([number, status, said]))
    number += 1
"""


def test_kill_9_at_every_statement_never_gains(tmp_path: Path) -> None:
    """At each SQL statement of a whole life of a ledger, its creation included: what was confirmed is there."""
    answer = subprocess.run([sys.executable, "-c", VICTIMS, tmp_path], capture_output=True, text=True, check=True)
    lives = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(lives) > 30  # it did walk through the statements
    assert lives[-1][1:] == [0, ["opened", "budget", "reserved", "released", "committed", "reserved again", "void"]]
    for number, status, said in lives[:-1]:
        assert status == -signal.SIGKILL
        with Ledger(tmp_path / f"{number}.sqlite") as ledger:
            assert ledger.verify() == [], said
            account = ledger.account("shop")
            spent = account.spent if account else Fraction(0)
        released = TENTH if "reserved" in said else 0
        held = TENTH if "reserved again" in said and "void" not in said else 0
        assert spent >= released, said
        # The statement that was killed may have been the COMMIT of one further step, and no more.
        assert abs(spent - released - held) <= TENTH, said
