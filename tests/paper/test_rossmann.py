"""Kaggle's train.csv: the real one where it is at hand, else a file of the same schema."""

from __future__ import annotations

import gzip
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from poolrl.paper import rossmann
from poolrl.paper.figures import weekly_cycle

HEADER = '"Store","DayOfWeek","Date","Sales","Customers","Open","Promo","StateHoliday","SchoolHoliday"'
REAL = Path(__file__).parents[3] / "shared" / "data" / "rossmann" / "train.csv.gz"


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


@pytest.fixture
def train_csv(tmp_path: Path) -> Path:
    return REAL if REAL.exists() else write_train_csv(tmp_path / "train.csv.gz", days=942)


def test_weeks_run_from_monday_to_sunday(tmp_path: Path) -> None:
    """Also in a packed file."""
    data, packed = (rossmann.read(write_train_csv(tmp_path / f"train.csv{end}"), (1, 3)) for end in ("", ".gz"))
    assert (data.weeks == packed.weeks).all()
    assert data.md5 == packed.md5
    assert not data.is_kaggles
    assert data.weeks.shape == (13, 7, 2)  # 2013-01-07 .. 2013-04-07; days 0-5 and 97-99 are not whole weeks
    assert (data.weeks[:, 6] == 0).all()  # Sunday
    assert data.weeks[0, 0].tolist() == [1000 + 100 + 6, 3000 + 100 + 6]  # Monday 2013-01-07 is day 6
    assert data.weeks[12, 5, 0] == 1000 + 600 + 6 + 12 * 7 + 5
    train, test = data.halves(1, 1500.0)
    assert (train.shape, test.shape) == ((6, 7, 1), (7, 7, 1))
    assert train.max() <= 1500
    assert (test == np.minimum(data.weeks[6:, :, :1], 1500)).all()


def test_store_1_has_133_weeks_with_a_weekly_cycle(train_csv: Path) -> None:
    data = rossmann.read(train_csv)
    assert data.weeks.shape == (133, 7, 8)
    assert data.is_kaggles == (train_csv == REAL)
    train, test = data.halves(1, rossmann.BOUND)
    assert (len(train), len(test)) == (66, 67)
    (lines, *_) = weekly_cycle(data).axes[0].collections
    found = {int(x): y for (x, _), (_, y) in lines.get_segments()}
    assert found[0] == pytest.approx(1)
    assert max(found[lag] for lag in range(1, 7)) < found[7] > 0.3
    assert max(found[lag] for lag in range(8, 14)) < found[14]


def test_where_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rossmann.PATH_VARIABLE, raising=False)
    assert rossmann.find(None) is None
    file = write_train_csv(tmp_path / "train.csv", days=30)
    assert rossmann.find(file) == file
    monkeypatch.setenv(rossmann.PATH_VARIABLE, str(file))
    assert rossmann.find(None) == file
    monkeypatch.setenv(rossmann.PATH_VARIABLE, str(tmp_path / "gone.csv"))
    with pytest.raises(ValueError, match=r"POOLRL_ROSSMANN names .*gone\.csv, which is not a file"):
        rossmann.find(None)
    with pytest.raises(ValueError, match=r"--rossmann names .*nowhere\.csv, which is not a file"):
        rossmann.find(tmp_path / "nowhere.csv")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: write_train_csv(p, header=HEADER.replace("Sales", "Turnover")), "columns Store, Date and Sales"),
        (lambda p: write_train_csv(p, drop=40), "days of store 2 that are missing or double"),
        (lambda p: write_train_csv(p, stores=1), "no rows of store 2"),
        (lambda p: write_train_csv(p, days=20), "fewer than four whole weeks"),
        (lambda p: p.write_bytes(b"\x00\x01\x02") and p, "does not read as Kaggle's train.csv"),
        (lambda p: p.write_text("") or p, "does not read as Kaggle's train.csv"),
        (lambda p: p.write_text(write_train_csv(p).read_text().replace(",1,1,", ",oops,1,", 1)) and p, None),
    ],
)
def test_bad_files(tmp_path: Path, make, message: str | None) -> None:
    path = make(tmp_path / "train.csv")
    if message is None:  # a column that is not read may hold anything
        assert rossmann.read(path).weeks.shape[1:] == (7, 8)
        return
    with pytest.raises(ValueError, match=message):
        rossmann.read(path)


def test_a_damaged_gz_is_refused(tmp_path: Path) -> None:
    """Cut off, not packed at all, or changed in the middle."""
    path = write_train_csv(tmp_path / "train.csv.gz")
    whole, damaged = path.read_bytes(), "does not read as Kaggle's train"
    changed = [whole[:place] + b"\xff\x00\xff" + whole[place + 3 :] for place in range(100, 1000, 60)]
    for content in (whole[:-200], b"plain,text\n1,2\n", *changed):
        path.write_bytes(content)
        words = f"{damaged}|has days|has no rows|has sales" if content in changed else damaged
        with pytest.raises(ValueError, match=words):
            rossmann.read(path)
