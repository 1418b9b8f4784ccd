"""Write to a file of results as `poolrl reproduce` does: `alone_with_results.py RESULTS`."""

from __future__ import annotations

import sys
from pathlib import Path

from poolrl.paper.results import Results

if __name__ == "__main__":
    with Results(Path(sys.argv[1])) as results, results.alone():
        print("alone")
