"""A command with a short plan, and the files that it opens below a folder: `watched_poolrl.py FOLDER VERB ...`."""

from __future__ import annotations

import os
import sys
from typing import Any

watched, opened = os.path.realpath(sys.argv[1]), []
EVENTS = ("open", "os.listdir", "os.scandir", "sqlite3.connect")


def hook(event: str, args: tuple[Any, ...]) -> None:
    if event in EVENTS and args and isinstance(args[0], str | bytes):
        path = os.path.realpath(os.fsdecode(args[0]))
        if path.startswith(watched):
            opened.append(os.path.basename(path))


if __name__ == "__main__":
    sys.addaudithook(hook)
    from poolrl.cli.main import app
    from tests.helpers.simulations import shorten_plan

    shorten_plan()

    app(sys.argv[2:], result_action="return_value")
    print("OPENED", sorted(set(opened)), "duckdb" in sys.modules, "pyarrow.parquet" in sys.modules)
