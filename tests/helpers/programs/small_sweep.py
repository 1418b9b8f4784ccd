"""The small sweep with two workers: `small_sweep.py RESULTS RUNS`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.helpers.sweeps import do, small_plan

if __name__ == "__main__":
    do(replace(small_plan(), runs=int(sys.argv[2])), Path(sys.argv[1]), workers=2)
