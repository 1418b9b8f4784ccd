"""The command line with a short forecast: `quick_poolrl.py VERB ...`. Ctrl-C works, also if the caller ignores it."""

from __future__ import annotations

import signal
import sys

from poolrl.cli.main import main
from tests.helpers.simulations import shorten_forecast

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shorten_forecast()
    sys.argv[0] = "poolrl"
    main()
