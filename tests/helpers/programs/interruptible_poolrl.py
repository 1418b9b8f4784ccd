"""The command line where Ctrl-C works, also if the caller ignores it: `interruptible_poolrl.py VERB ...`."""

from __future__ import annotations

import signal
import sys

from poolrl.cli.main import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[0] = "poolrl"
    main()
