"""Are the rows of two reproductions equal? Compares all measures bit by bit, except the seconds that a fit took.

    python -m benchmarks.rows old/results.jsonl reproduction/results.jsonl

Exits with 1 if a row of the first is missing in the second, or differs by more than one part in 10⁹.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path

Rows = dict[tuple[object, ...], list[float]]


def rows_of(path: str) -> Rows:
    """Setting and seed → measures, whichever version has written the file."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    rows = {}
    for run in (line for line in lines if "setting" in line):
        setting, seed, _ = run.pop("setting"), run.pop("seed"), run.pop("seconds")
        rows[(setting["method"], *setting.items(), seed)] = [*run.values()]
    return rows


def difference(one: list[float], other: list[float]) -> float:
    """The largest relative difference; two NaN are equal."""
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        if a != b and not (math.isnan(a) and math.isnan(b)):
            worst = max(worst, abs(a - b) / max(abs(a), 1e-6))
    return worst


def main() -> None:
    """Print how many rows are equal, and how far the others are apart."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    old, new = rows_of(sys.argv[1]), rows_of(sys.argv[2])
    apart = {key: difference(old[key], new[key]) for key in old.keys() & new.keys()}
    differ = {key: worst for key, worst in apart.items() if worst > 0}
    print(
        f"{len(old):,} and {len(new):,} rows, {len(apart):,} in both: {len(apart) - len(differ):,} equal in every bit"
    )
    if differ:
        methods = Counter(str(key[0]) for key in differ)
        print(f"{len(differ):,} differ, by at most {max(differ.values()):.1e} of their value: {dict(methods)}")
    if len(apart) < len(old) or max(differ.values(), default=0.0) > 1e-9:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
