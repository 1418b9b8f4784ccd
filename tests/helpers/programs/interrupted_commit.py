"""A fit that gets a signal just after its commit: `interrupted_commit.py CONFIG SIGNAL`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from poolrl.cli.main import main
from poolrl.ledger.ledger import Ledger

config, number = sys.argv[1], int(sys.argv[2])
honest = Ledger.commit


def interrupted(*args: Any) -> Any:
    entry = honest(*args)
    os.kill(os.getpid(), number)
    return entry


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the caller may have ignored it
    Ledger.commit = interrupted  # type: ignore[method-assign]
    sys.argv = ["poolrl", "fit", "--config", config]
    main()
