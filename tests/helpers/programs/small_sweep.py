"""The small sweep with two workers: `small_sweep.py RESULTS BACKEND RUNS`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.helpers.sweeps import do, small_plan

if __name__ == "__main__":
    do(replace(small_plan(), runs=int(sys.argv[3])), Path(sys.argv[1]), workers=2, backend=sys.argv[2])
