"""Store runs until the disk is full: `full_disk.py RESULTS` prints how many were stored, and the complaint."""

from __future__ import annotations

import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

from poolrl.paper.results import Results
from poolrl.paper.trials import run
from tests.helpers.sweeps import SMALL

if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = Path(sys.argv[1])
    first = run(SMALL, 0)
    with Results(path) as results:
        results.add(first)
        room = max(each.stat().st_size for each in path.parent.iterdir()) + 50_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        count = 1
        try:
            for seed in range(1, 100_000):
                results.add(replace(first, seed=seed))
                count += 1
        except OSError as error:
            print(count, error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
