"""A fit that waits while it reads its log: `slow_reading.py CONFIG ERROR`.

ERROR names the exception that the reading library makes of a KeyboardInterrupt.
"""

from __future__ import annotations

import builtins
import sys
import time

import poolrl.shop.fit
from poolrl.cli.main import main

config, becomes = sys.argv[1], getattr(builtins, sys.argv[2])


def slow(log: object) -> None:
    try:
        print("reading", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        raise becomes from None


if __name__ == "__main__":
    poolrl.shop.fit.digests = slow  # type: ignore[assignment]
    sys.argv = ["poolrl", "fit", "--config", config]
    main()
