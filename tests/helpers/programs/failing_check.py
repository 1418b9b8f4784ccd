"""`poolrl check` where a library fails with a message that quotes the log: `failing_check.py CONFIG MESSAGE`."""

from __future__ import annotations

import sys
from typing import Any

import poolrl.shop.check
from poolrl.cli.main import main

config, message = sys.argv[1:]


def fail(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError(message)


if __name__ == "__main__":
    poolrl.shop.check.run_check = fail
    sys.argv = ["poolrl", "check", "--config", config]
    main()
