"""The query that [sales] stands for, by hand and against the example."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl.data.counts import count_outcomes
from poolrl.data.sources.engine import answer
from poolrl.data.sources.opening import count_lines
from poolrl.privacy.sensitivity import every_level
from poolrl.workflow.open_log import open_log
from poolrl.workflow.trades.shop_example import simulated_chain, write_example
from tests.helpers.exports import ROLES, configured, export_facts, write_export
from tests.helpers.shops import Facts

SALES = [
    ("7", "2025-03-03", "bread", "0", "10", "10", "true"),
    ("7", "2025-03-03", "milk", "2", "5", "4", "false"),
    ("7", "2025-03-04", "bread", "0", "8", "5", "false"),
    ("7", "2025-03-04", "milk", "3", "4", "7", "true"),
    ("7", "2025-03-10", "bread", "1", "1", "0", "false"),
]


def rows_of(folder: Path, facts: Facts) -> list[tuple[Any, ...]]:
    """Week, day, product and the three stocks of every row, in order."""
    with open_log(configured(folder, facts)) as log:
        names = ["week", "day", "product", "opening", "order_up_to", "left"]
        table = answer(log.rows.order_by(names[:3]).select(names))
        return [tuple(row.values()) for row in table.to_pylist()]


def test_an_export_by_hand(tmp_path: Path) -> None:
    """Monday and Tuesday of a week of two days, and a week that has one row."""
    write_export(tmp_path, SALES)
    first, second = "shop 7, week of 2025-03-03", "shop 7, week of 2025-03-10"
    assert rows_of(tmp_path, export_facts()) == [
        (first, 1, "bread", 0, 10, 0),
        (first, 1, "milk", 2, 7, 3),
        (first, 2, "bread", 0, 8, 3),
        (first, 2, "milk", 3, 7, 0),
        (second, 1, "bread", 1, 2, 2),
    ]


def test_a_german_export_by_hand(tmp_path: Path) -> None:
    """Semicolons, decimal commas, points between thousands, German dates and words, and a name with quotes."""
    header = ("Filiale", "Datum", "Artikel", "Bestand", "Lieferung", "Absatz", "Ausverkauft")
    rows = [
        ("7", "3.3.2025", "Baker's", "0,5", "1.000,25", "1000,75", "JA"),
        ("07", "04.03.2025", " Baker's ", "0", "1.5", "1", "nein"),  # 1.5 is no number with a decimal comma
        ("7", "2025-03-04", "Baker's", "0", "1", "1", "nein"),  # nor is this a date
    ]
    write_export(tmp_path, rows, header, ";")
    names = dict(zip(ROLES, header, strict=True))
    form = {
        "delimiter": ";",
        "decimal": ",",
        "thousands": ".",
        "date_format": "%d.%m.%Y",
        "yes": ["ja"],
        "no": ["nein"],
    }
    week = "shop 7, week of 2025-03-03"
    assert rows_of(tmp_path, export_facts(["Baker's"], **names, **form)) == [
        (week, 1, "Baker's", 0.5, 1000.75, 0),
        (week, 2, "Baker's", None, None, None),
    ]


def test_letters_of_windows(tmp_path: Path) -> None:
    """In latin-1, which is no UTF-8: the one reads the file, the other loses its line."""
    write_export(tmp_path, [("7", "2025-03-03", "Brötchen", "0", "4", "1", "false")])
    text = (tmp_path / "sales.csv").read_text()
    (tmp_path / "sales.csv").write_bytes(text.encode("latin-1"))
    week = "shop 7, week of 2025-03-03"
    assert rows_of(tmp_path, export_facts(["Brötchen"], encoding="latin-1")) == [(week, 1, "Brötchen", 0, 4, 3)]
    assert rows_of(tmp_path, export_facts(["Brötchen"])) == []
    # Windows writes a euro sign as the byte 128. It costs no other row.
    (tmp_path / "sales.csv").write_bytes(text.encode("latin-1") + b"8,2025-03-03,\x80\x9f,0,4,1,false\n")
    assert (week, 1, "Brötchen", 0, 4, 3) in rows_of(tmp_path, export_facts(["Brötchen"], encoding="latin-1"))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_lines_are_counted_whatever_their_bytes(tmp_path: Path, ending: str) -> None:
    """Weißbrot and Äpfel in UTF-8, lines that end in 13 10, blank lines, no end of the last one, over several reads."""
    many = 400_000
    text = "Artikel;Menge\r\n" + "Weißbrot;Äpfel\r\n \n" * many + "letzte;\x80"
    path = tmp_path / f"sales.csv{ending}"
    path.write_bytes(gzip.compress(text.encode(), 1) if ending else text.encode())
    assert count_lines(path.name, tmp_path) == many + 1
    path.write_bytes(gzip.compress(b"header only", 1) if ending else b"header only")
    assert count_lines(path.name, tmp_path) == 0


def test_a_day_that_ran_out_shows_at_least_the_sales(tmp_path: Path) -> None:
    """Five loaves spoilt, three sold, none left: at least three were wanted, and nothing says that it was eight."""
    days = [("6", "2", "3"), ("0", "2", "4"), ("0", "2", "2")]  # Wednesday is not asked for
    write_export(tmp_path, [("7", f"2025-03-0{3 + i}", "bread", *day, "true") for i, day in enumerate(days)])
    assert [row[3:] for row in rows_of(tmp_path, export_facts(["bread"]))] == [(3, 3, 0), (0, 4, 0)]


def test_without_a_flag_a_shelf_is_empty_where_all_was_sold(tmp_path: Path) -> None:
    write_export(tmp_path, SALES[:4])
    facts = export_facts()
    with_flag = rows_of(tmp_path, facts)
    facts["sales"]["stock_out"] = None
    assert rows_of(tmp_path, facts) == with_flag


def test_closed_days_are_no_steps_and_closed_shops_are_unobserved(tmp_path: Path) -> None:
    """Closed on Monday and Wednesday: Tuesday is the first of the five steps, Thursday the second."""
    rows = [(*row, "yes") for row in SALES[2:3]]
    rows += [("7", f"2025-03-0{day}", "bread", "0", "8", "5", "false", "no") for day in (3, 5, 6)]
    write_export(tmp_path, rows, ("shop", "date", "product", "opening", "delivery", "sales", "stock_out", "open"))
    facts = export_facts(["bread"], days=5, closed=["Mon", "Wed"], open="open", yes=["true", "yes"], no=["false", "no"])
    facts["problem"]["steps"] = []
    week = "shop 7, week of 2025-03-03"
    assert rows_of(tmp_path, facts) == [(week, 1, "bread", 0, 8, 3), (week, 2, "bread", None, None, None)]
    names = configured(tmp_path, facts).config.names()
    assert (names.steps, names.first_step) == (["Tue", "Thu", "Fri", "Sat", "Sun"], 1)


def test_a_day_without_a_row_on_which_nothing_happened(tmp_path: Path) -> None:
    """It has the stock of the row before in its week. The first day has none before it, whatever the last week left."""
    rows = [
        ("7", "2025-03-03", "bread", "0", "9", "5", "false"),
        ("7", "2025-03-05", "bread", "4", "0", "4", "true"),
        ("7", "2025-03-11", "bread", "1", "5", "x", "false"),
    ]
    write_export(tmp_path, rows)
    first, second = "shop 7, week of 2025-03-03", "shop 7, week of 2025-03-10"
    assert rows_of(tmp_path, export_facts(["bread"], days=4, missing_days="nothing happened")) == [
        (first, 1, "bread", 0, 9, 4),
        (first, 2, "bread", 4, 4, 4),
        (first, 3, "bread", 4, 4, 0),
        (first, 4, "bread", 0, 0, 0),
        (second, 2, "bread", None, None, None),
        (second, 3, "bread", None, None, None),
        (second, 4, "bread", None, None, None),
    ]


def test_the_scale_of_the_same_weekday_by_hand(tmp_path: Path) -> None:
    """Means of the two weeks before, by calendar: the third week has none of its own, and the floor holds."""
    mondays = ["2025-03-03", "2025-03-10", "2025-03-24", "2025-04-14", "2025-04-21"]
    sold = ["6", "3", "8", "0", "1"]
    rows = [("7", day, "bread", "0", "9", sales, "false") for day, sales in zip(mondays, sold, strict=True)]
    rows.append(("8", "2025-03-10", "bread", "0", "9", "9", "false"))  # another shop does not count
    write_export(tmp_path, rows)
    facts = export_facts(["bread"], days=1, scale="same weekday, last 2 weeks", scale_floor=0.25)
    with open_log(configured(tmp_path, facts)) as log:
        found = answer(log.rows.order_by("week").select("week", "scale")).to_pylist()
    assert [row["scale"] for row in found] == [None, 6.0, 3.0, None, 0.25, None]


def test_the_example_is_counted_as_it_was_simulated(tmp_path: Path) -> None:
    """Every cell of the export once, in its promotion's tree, against a count of the simulated columns."""
    facts = write_example(tmp_path, seed=3)
    facts["sales"]["scale"] = None
    facts["privacy"]["weeks_public"] = False
    facts["problem"]["demand_max"] = 4000.0
    file, export = configured(tmp_path, facts), simulated_chain(3)[0]
    with open_log(file) as log:
        assert log.units == 2000
        counts = count_outcomes(log, file.config.problem.posed, level_sizes=every_level(2))
    observed = counts.levels[0].sum(axis=-1)  # (promotion, day, product, seen or cut off)
    rows = export.to_pandas()
    days = (np.asarray(export["date"]).astype("datetime64[D]").astype(int) + 3) % 7  # 1970 began on a Thursday
    for p, promotion in enumerate(("no", "yes")):
        for k, product in enumerate(("bread", "milk", "salad")):
            mine = ((rows.promotion == promotion) & (rows["product"] == product)).to_numpy()
            for kind, cut in enumerate((False, True)):
                expected = np.bincount(days[mine & (rows.stock_out == cut).to_numpy()], minlength=7)
                np.testing.assert_array_equal(observed[p, :, k, kind], expected)


@pytest.mark.parametrize("kind", ["parquet", "duckdb"])
def test_other_files_than_csv(tmp_path: Path, kind: str) -> None:
    """Numbers, dates and truth values of a database are read like the text of a CSV file."""
    table = pa.table(
        {"shop": [7, 7], "date": [datetime.date(2025, 3, 3), datetime.date(2025, 3, 4)], "product": ["bread"] * 2}
        | {"opening": [0, 1], "delivery": [2.5, 3.0], "sales": [1, 4], "stock_out": [False, True]}
    )
    pq.write_table(table, tmp_path / "sales.parquet")
    facts = export_facts(["bread"])
    facts["log"]["source"] = f"sales.{kind}"
    if kind == "duckdb":
        facts["sales"]["table"] = "my sales"
        with duckdb.connect(str(tmp_path / "sales.duckdb")) as database:
            database.execute(f"CREATE TABLE \"my sales\" AS FROM '{tmp_path}/sales.parquet'")
    assert [row[3:] for row in rows_of(tmp_path, facts)] == [(0, 2.5, 1.5), (1, 4, 0)]
