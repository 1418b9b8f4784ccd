"""The command line with a short forecast: `quick_poolrl.py VERB ...`."""

from __future__ import annotations

import sys

from poolrl.cli.main import main
from tests.helpers.simulations import shorten_forecast

if __name__ == "__main__":
    shorten_forecast()
    sys.argv[0] = "poolrl"
    main()
