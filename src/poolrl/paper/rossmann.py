"""Daily sales of Rossmann stores as weekly demand, from the user's own copy of Kaggle's `train.csv`.

The file may not be redistributed, so it is not part of this project: get it from the competition "Rossmann Store
Sales" on Kaggle. Sales stand in for demand, as in the paper. A week runs from Monday to Sunday, so H = 7.
"""

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from poolrl.checks import FloatArray

PATH_VARIABLE = "POOLRL_ROSSMANN"
MD5 = "d47aedd9e2d580e06a6ef7ce1732e8b6"  # of Kaggle's train.csv, unpacked
STORES = (1, 2, 3, 4, 5, 6, 7, 8)  # Store 1 is the paper's
# Public bounds in euros a day, declared as round numbers; sales beyond them count as the bound itself.
BOUND, BOUND_OF_SEVERAL = 15_000.0, 20_000.0


@dataclass(frozen=True)
class Rossmann:
    """Whole weeks of daily sales (weeks, 7, stores) in calendar order, and which file they came from."""

    # The file alone says what is equal, so that a copy that reaches a worker finds the benches of another copy.
    weeks: FloatArray = field(compare=False)
    md5: str

    @property
    def is_kaggles(self) -> bool:
        """Whether the file is byte for byte the one that the results in docs/results.md came from."""
        return self.md5 == MD5

    def halves(self, stores: int, bound: float) -> tuple[FloatArray, FloatArray]:
        """The first half of the weeks to learn from, the second to be judged on, for the first `stores` stores."""
        middle = len(self.weeks) // 2
        demand = np.minimum(self.weeks[:, :, :stores], bound)
        return demand[:middle], demand[middle:]


def find(path: Path | None) -> Path | None:
    """The file that the user or the environment names, or None."""
    named = path or (Path(os.environ[PATH_VARIABLE]) if os.environ.get(PATH_VARIABLE) else None)
    if named is not None and not named.is_file():
        where = "--rossmann" if path else PATH_VARIABLE
        raise ValueError(f"{where} names {named}, which is not a file; it must be Kaggle's train.csv, plain or .gz")
    return named


def read(path: Path, stores: tuple[int, ...] = STORES) -> Rossmann:
    """Whole weeks of the stores from `train.csv` or `train.csv.gz`."""
    columns = {"Store": pa.int64(), "Date": pa.date32(), "Sales": pa.float64()}
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        options = csv.ConvertOptions(include_columns=[*columns], column_types=columns)
        table = csv.read_csv(path, convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowException, EOFError, gzip.BadGzipFile, zlib.error):
        raise ValueError(
            f"{path} does not read as Kaggle's train.csv, a table with columns Store, Date and Sales"
        ) from None
    days = [_daily(table, store, path) for store in stores]
    first, last = max(low for low, _ in days), min(low + timedelta(len(sales)) for low, sales in days)
    first += timedelta(-first.weekday() % 7)  # the first Monday
    count = (last - first).days // 7
    if count < 4:
        raise ValueError(f"{path} holds fewer than four whole weeks that all stores share")
    weeks = [sales[(first - low).days :][: 7 * count].reshape(count, 7) for low, sales in days]
    return Rossmann(np.stack(weeks, axis=-1), digest.hexdigest())


def _daily(table: pa.Table, store: int, path: Path) -> tuple[date, FloatArray]:
    rows = table.filter(pc.equal(table["Store"], store)).sort_by("Date")
    if not rows.num_rows:
        raise ValueError(f"{path} has no rows of store {store}")
    low, high = rows["Date"][0].as_py(), rows["Date"][-1].as_py()
    sales = rows["Sales"].to_numpy()
    if (high - low).days + 1 != rows.num_rows or pc.count_distinct(rows["Date"]).as_py() != rows.num_rows:
        raise ValueError(f"{path} has days of store {store} that are missing or double")
    if not np.isfinite(sales).all() or (sales < 0).any():
        raise ValueError(f"{path} has sales of store {store} that are missing or negative")
    return low, sales
