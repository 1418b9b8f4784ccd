"""Are the rows of two reproductions equal? Compares all measures bit by bit, except the seconds that a fit took.

    python -m benchmarks.rows old/results.sqlite reproduction/results.sqlite

Exits with 1 if a row of the first is missing in the second, or differs by more than one part in 10⁹.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from dataclasses import fields

from poolrl.paper.sweeps import Setting
from poolrl.paper.trials import MEASURES

KEYS = [*(field.name for field in fields(Setting)), "seed"]
COMPARED = [name for name in MEASURES if name != "seconds"]
Rows = dict[tuple[object, ...], list[float]]


def rows_of(path: str) -> Rows:
    """Setting and seed → measures; NULL is NaN."""
    query = f"SELECT {', '.join([*KEYS, *COMPARED])} FROM runs"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        found = file.execute(query).fetchall()
    return {row[: len(KEYS)]: [math.nan if x is None else x for x in row[len(KEYS) :]] for row in found}


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
        methods = Counter(str(key[KEYS.index("method")]) for key in differ)
        print(f"{len(differ):,} differ, by at most {max(differ.values()):.1e} of their value: {dict(methods)}")
    if len(apart) < len(old) or max(differ.values(), default=0.0) > 1e-9:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
