"""Pairs of neighbouring logs: one shop of a small chain is replaced by another that is as odd as its rows can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from poolrl.workflow.config.answers import write_toml

PRODUCTS, DAYS, WEEKS = ("bread", "milk"), 3, 2
NUMBERS = tuple(f"{name}_{product}" for name in ("opening", "order_up_to", "left") for product in PRODUCTS)
HEADER = ("shop", "week", "day", *NUMBERS)
LARGEST_DEMAND = 40
SHOPS_OF_CHAIN, REPLACED = 300, 150
# Sizes of what one odd shop brings.
LONG_ID, LONG_LINE, QUOTES, SURPLUS = 10**6, 10**7, 10**6, 10**4

# A shop, a week, a day, and six numbers. None is a missing field. Text is written as it is.
LogRow = tuple[Any, ...]


def write_log(path: Path, replaced: list[LogRow], *, seed: int = 0) -> None:
    """The chain, with these rows in the place of one shop. Another seed gives another chain."""
    shops = [shop_rows(f"s{number:03d}", seed=seed * SHOPS_OF_CHAIN + number) for number in range(SHOPS_OF_CHAIN)]
    shops[REPLACED] = replaced
    rows = [row for shop in shops for row in shop]
    if path.suffix == ".csv":
        lines = (",".join("" if field is None else str(field) for field in row) for row in (HEADER, *rows))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    kinds = [pa.string(), pa.string(), pa.int64()] + [pa.float64()] * len(NUMBERS)
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(columns, names=list(HEADER)), path)


def shop_rows(shop: str, *, seed: int, weeks: int = WEEKS) -> list[LogRow]:
    """Weeks of a usual shop, in whole numbers."""
    rng, rows = np.random.default_rng(seed), []
    for week in range(weeks):
        stock = np.zeros(len(PRODUCTS), dtype=np.int64)
        for day in range(1, DAYS + 1):
            level = np.maximum(stock, rng.integers(10, 36, len(PRODUCTS)))
            left = np.maximum(level - rng.gamma(4.0, 4.0, len(PRODUCTS)).astype(np.int64), 0)
            rows.append((shop, f"w{week}", day, *stock.tolist(), *level.tolist(), *left.tolist()))
            stock = left
    return rows


def chain_facts(ending: str, *, budget: float = 1000.0) -> dict[str, dict[str, Any]]:
    """The configuration of a chain whose log has this ending."""
    names = [[f"{name}_{product}" for product in PRODUCTS] for name in ("opening", "order_up_to", "left")]
    return {
        "problem": {
            "kind": "lost sales",
            "products": list(PRODUCTS),
            "horizon": DAYS,
            "holding": 0.2,
            "shortage": 0.5,
            "demand_max": float(LARGEST_DEMAND),
        },
        "log": {
            "source": f"log.{ending}",
            "trajectory": "week",
            "step": "day",
            "first_step": 1,
            **dict(zip(("opening", "order_up_to", "left"), names, strict=True)),
        },
        "privacy": {
            "unit": "shop",
            "max_per_unit": WEEKS,
            "rho": 0.5,
            "budget": budget,
            "data_set": "chain",
            "ledger": "ledger.sqlite",
        },
        "plan": {"units": SHOPS_OF_CHAIN},
    }


def write_chain_config(folder: Path, ending: str) -> Path:
    """Write poolrl.toml; its path."""
    path = folder / "poolrl.toml"
    path.write_bytes(write_toml(chain_facts(ending)).encode())
    return path


def _usual() -> list[LogRow]:
    return shop_rows(f"s{REPLACED}", seed=REPLACED)


def _with_id(shop: str) -> list[LogRow]:
    return [(shop, *row[1:]) for row in _usual()]


def _with_numbers(*values: Any) -> list[LogRow]:
    """Each number of the shop is one of these, in turn."""
    return [(*row[:3], *(values[(row[2] + i) % len(values)] for i in range(len(NUMBERS)))) for row in _usual()]


def _with_a_week_named(week: str) -> list[LogRow]:
    """The second week has this id. By the first the shop stays in the log, whatever becomes of the second."""
    return [row if row[1] == "w0" else (row[0], week, *row[2:]) for row in _usual()]


def _sells_nothing() -> list[LogRow]:
    full = [LARGEST_DEMAND] * len(PRODUCTS)
    return [(*row[:3], *full, *full, *full) for row in _usual()]


def _surplus() -> list[LogRow]:
    """Half of the rows are weeks beyond max_per_unit; half repeat one day of one week."""
    weeks = shop_rows(f"s{REPLACED}", seed=REPLACED, weeks=SURPLUS // (2 * DAYS))
    return weeks + _usual()[:1] * (SURPLUS - len(weeks))


# Spaces, full-width letters and digits, and a letter with its accent apart: text that has more than one form.
_ODD_ID = "  ｓｈｏｐ\u3000０１５０ e\u0301 "


@dataclass(frozen=True)
class LogPair:
    """Two logs that differ in one shop, by the rows of that shop in each. Some are large, so they are made late."""

    name: str
    second: Callable[[], list[LogRow]]
    first: Callable[[], list[LogRow]] = _usual
    ending: str = "csv"

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Both logs, under one name in folders of their own."""
        paths = folder / "1" / f"log.{self.ending}", folder / "2" / f"log.{self.ending}"
        for path, rows in zip(paths, (self.first, self.second), strict=True):
            path.parent.mkdir(parents=True)
            write_log(path, rows())
        return paths


PAIRS = (
    LogPair("the same log twice", _usual),
    LogPair("sells nothing", _sells_nothing),
    LogPair("numbers out of bounds", lambda: _with_numbers("1e300", "-5", "nan", "inf", "", "many")),
    LogPair(
        "NULL and NaN in Parquet", lambda: _with_numbers(None, float("nan"), float("inf"), 1e300), ending="parquet"
    ),
    LogPair("an id of 1 MB", lambda: _with_a_week_named("x" * LONG_ID)),
    LogPair("an id of 1 MB in Parquet", lambda: _with_a_week_named("x" * LONG_ID), ending="parquet"),
    LogPair("10,000 rows against one", _surplus, first=lambda: _usual()[:1]),
    LogPair("lines of 10 MB", lambda: _with_a_week_named("w" * LONG_LINE)),
    LogPair("1 MB of quotes", lambda: _with_a_week_named('"' * QUOTES)),
    LogPair("an id with other forms", lambda: _with_id(_ODD_ID)),
)
