"""Processes that use one new ledger at the same time: `ledger_at_once.py TASK LEDGER COUNT`.

Prints one line for each of them. They are forked before any of them has made the ledger's file.
"""

from __future__ import annotations

import os
import sys

from poolrl.ledger.accounts import OverspendError
from poolrl.ledger.ledger import Ledger
from tests.helpers.ledgers import WEEK, rows


def spend(path: str, number: int) -> int:
    """Ask six times for a tenth of a budget of 1: how often it is given."""
    won = 0
    for _ in range(6):
        with Ledger(path) as ledger:
            try:
                if ledger.account("shop") is None:
                    ledger.open_account("shop", 1)
                entry = ledger.reserve("shop", 0.1, WEEK)
                ledger.read(entry, rows("rows"))
                ledger.commit(entry, {})
                won += 1
            except OverspendError:
                pass
    return won


def open_account(path: str, number: int) -> str:
    """Open an account with a budget that no other process asks for."""
    with Ledger(path) as ledger:
        try:
            ledger.open_account("shop", 1 + number)
        except ValueError as error:
            assert "was given a budget of" in str(error), error
            return "refused"
    return "opened"


if __name__ == "__main__":
    task = {"spend": spend, "open": open_account}[sys.argv[1]]
    end, start = os.pipe()
    children = []
    for number in range(int(sys.argv[3])):
        child = os.fork()
        if child == 0:
            os.write(start, f"{task(sys.argv[2], number)}\n".encode())
            os._exit(0)
        children.append(child)
    os.close(start)
    failed = [child for child in children if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    print(os.fdopen(end).read(), end="")
    sys.exit(len(failed))
