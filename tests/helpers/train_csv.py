"""A file of the same schema as Kaggle's train.csv of the Rossmann stores."""

from __future__ import annotations

import gzip
from datetime import date, timedelta
from pathlib import Path

HEADER = '"Store","DayOfWeek","Date","Sales","Customers","Open","Promo","StateHoliday","SchoolHoliday"'


def write_train_csv(
    path: Path, *, days: int = 100, stores: int = 8, drop: int | None = None, header: str = HEADER
) -> Path:
    """Newest day first, as Kaggle's: Tuesday 2013-01-01 onwards; closed on Sundays."""
    lines = [header]
    for day in reversed(range(days)):
        today = date(2013, 1, 1) + timedelta(day)
        for store in range(1, stores + 1):
            if day == drop and store == 2:
                continue
            sales = 0 if today.isoweekday() == 7 else 1000 * store + 100 * today.isoweekday() + day
            lines.append(f'{store},{today.isoweekday()},{today},{sales},{sales // 10},{int(sales > 0)},1,"0","1"')
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path
