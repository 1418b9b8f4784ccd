"""The query of [sales] reads every row by itself, without failing, whatever other rows or names a file has."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl.data.sources import duckdb as duckdb_files
from poolrl.data.sources import opening
from poolrl.data.sources.engine import answer
from poolrl.privacy.release import release_outcomes
from poolrl.workflow.config import sales
from poolrl.workflow.open_log import open_log
from tests.helpers.duckdb_files import write_file
from tests.helpers.exports import ROLES, configured, export_facts, write_export
from tests.helpers.ledgers import spent
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.shops import Facts, Run, message_of_failed_fit

# Two shops, two weeks of two days, two products.
DATES = ("2025-03-03", "2025-03-04", "2025-03-10", "2025-03-11")
ROWS = [
    (shop, date, product, "2", "5", "4", "false") for shop in "78" for date in DATES for product in ("bread", "milk")
]
PLAIN = {(day, product): ("2.0", "7.0", "3.0") for day in (1, 2) for product in ("bread", "milk")}
UNOBSERVED = ("None",) * 3
NUMBERS = ["0", "3", "-1", "", "x", "nan", "inf", "-inf", "1e308", "-1e308", "1e999"]
NUMBERS += ["NULL", "1,5", "７", "0x10", "true"]
FLAGS = ["true", "false", "", "ja", "2", "NULL", "TRUE", "t"]
PRODUCTS = ["bread", "milk", "Bread", "", "beer", "bread "]
# Dates that name no week, and so no unit.
NO_DATES = ["300000-01-01", "infinity", "-infinity", "5874897-12-31", "290309-12-22 (BC)", "", "tomorrow", "2025-02-30"]
NO_SHOPS = ["", "  ", "1e3", "\u200b"]

Row = tuple[str, ...]


def columns_of_weeks(folder: Path, rows: Sequence[Row], **sales: Any) -> tuple[int, dict[str, dict[Any, Any]]]:
    """The number of units, and what the query says about each day and listed product of each week."""
    write_export(folder, rows)
    weeks: dict[str, dict[Any, Any]] = {}
    with open_log(configured(folder, export_facts(**sales))) as log:
        for row in answer(log.rows).to_pylist():
            week = weeks.setdefault(row["week"], {})
            if row["product"] in ("bread", "milk"):
                cell = row["day"], row["product"]
                assert cell not in week
                week[cell] = tuple(repr(row[name]) for name in ("opening", "order_up_to", "left"))
        return log.units, weeks


other_rows = st.tuples(
    st.sampled_from(DATES[:2]), st.sampled_from(PRODUCTS), *[st.sampled_from(NUMBERS)] * 3, st.sampled_from(FLAGS)
)
SPELLINGS = ("{}", "0{}", " {}", "{}.0", "+{}")


@pytest.mark.parametrize("missing", ["unobserved", "nothing happened"])
@settings(max_examples=3, deadline=None)
@given(others=st.lists(st.tuples(other_rows, st.integers(0, 3), st.sampled_from(SPELLINGS)), min_size=60, max_size=60))
def test_a_row_changes_its_own_week_alone(
    tmp_path_factory: pytest.TempPathFactory, missing: str, others: list[tuple[Row, int, str]]
) -> None:
    """Any row of a week in the place of another of that week: the same units, the same of every other week.

    Sixty pairs of shops at once, each with one such row in the first week of its first shop.
    """
    rows = []
    for number, (other, place, spelling) in enumerate(others):
        shops = {"7": str(1000 + 2 * number), "8": str(1001 + 2 * number)}
        mine: list[Row] = [(shops[row[0]], *row[1:]) for row in ROWS]
        mine[place] = (spelling.format(shops["7"]), *other)
        rows += mine
    units, weeks = columns_of_weeks(tmp_path_factory.mktemp("sales"), rows, missing_days=missing)
    assert units == len(weeks) == 4 * len(others)
    for name, week in weeks.items():
        if not (int(name.split()[1].rstrip(",")) % 2 == 0 and name.endswith("2025-03-03")):
            assert week == PLAIN, name


def test_rows_that_name_no_week_are_no_units_and_break_nothing(tmp_path: Path) -> None:
    """All at once. The year 300000 made DuckDB's date_trunc fail."""
    expected = columns_of_weeks(tmp_path, ROWS)
    odd = [("7", date, "bread", "1", "1", "1", "false") for date in NO_DATES]
    odd += [(shop, DATES[0], "bread", "1", "1", "1", "false") for shop in NO_SHOPS]
    odd += [("7", "2025-03-05", "bread", "1", "1", "1", "false")]  # a Wednesday, which is no day of a week of two
    assert columns_of_weeks(tmp_path, [*odd, *ROWS, *odd]) == expected
    # What a shop sold does not decide whether its week is there.
    beer = [(*row[:2], "beer", *row[3:]) if row[0] == "8" else row for row in ROWS]
    assert columns_of_weeks(tmp_path, beer)[0] == 4


def test_every_nasty_value_leaves_its_cell_unobserved(tmp_path: Path) -> None:
    """By hand: what is missing, twice, in words or without a flag is NULL for that product and day, nothing else."""
    first, rows = ROWS[0], []
    spoilt = [(*first[:3], "x", *first[4:]), (*first[:5], "", first[6]), (*first[:6], "ja"), (*first[:6], "")]
    for shop, nasty in enumerate([[], [first, first], *([row] for row in spoilt)]):
        rows += [(str(shop), *row[1:]) for row in (*nasty, *ROWS[1 : len(ROWS) // 2])]
    units, weeks = columns_of_weeks(tmp_path, rows)
    assert units == 6 * 2
    for name, week in weeks.items():
        if name.endswith("2025-03-03"):
            assert week.pop((1, "bread"), UNOBSERVED) == UNOBSERVED, name
            assert week == {cell: value for cell, value in PLAIN.items() if cell != (1, "bread")}
        else:
            assert week == PLAIN


GERMAN = {"date_format": "%d.%m.%Y", "decimal": ",", "thousands": ".", "yes": ["ja", "t"], "no": ["nein", ""]}


def test_no_value_makes_a_declared_reading_fail(tmp_path: Path) -> None:
    """Formats of dates and numbers are total: every nasty value in every column, one row each."""
    nasty = sorted(
        {*NUMBERS, *FLAGS, *PRODUCTS, *NO_DATES, *NO_SHOPS, "31.12.99999", "00.00.0000", "1.1.1", "-1.1.2025"}
    )
    rows = [("7", "03.03.2025", "bread", "2", "5", "4", "nein")]
    rows += [(*rows[0][:i], value, *rows[0][i + 1 :]) for i in range(7) for value in nasty]
    units, weeks = columns_of_weeks(tmp_path, rows, **GERMAN)
    assert units == len(weeks) >= 1
    assert weeks["shop 7, week of 2025-03-03"][1, "bread"] == UNOBSERVED  # it stands more than once


MONDAY, NAN = datetime.date(2025, 3, 3), float("nan")
WEEKS = 24


def columns(**changed: Sequence[Any]) -> dict[str, Any]:
    """Mondays of one shop; sales that the scale of the next week follows."""
    same = {"shop": "a", "product": "bread", "opening": 1.0, "delivery": 50.0, "stock_out": False}
    usual: dict[str, Any] = {name: [value] * WEEKS for name, value in same.items()}
    usual["date"] = [MONDAY + datetime.timedelta(7 * week) for week in range(WEEKS)]
    usual["sales"] = [2.0 + week % 2 for week in range(WEEKS)]
    return usual | changed


def moved(
    folder: Path, source: str, *logs: dict[str, Any], macros: Sequence[str] = ("", ""), weeks: int = 1
) -> tuple[int, int]:
    """The squared distance between what two logs release, and what is paid for. A DuckDB file may define macros."""
    recorders, in_duckdb = [Recorder() for _ in logs], source.endswith(".duckdb")
    table = {"table": "x"} if in_duckdb else {}
    facts = export_facts(["bread"], days=1, scale=f"same weekday, last {weeks} weeks", scale_floor=0.01, **table)
    facts["log"]["source"] = source
    facts["problem"]["demand_max"] = 4.0
    facts["privacy"]["weeks_public"] = True
    file = configured(folder, facts)
    problem = file.config.problem.posed
    for log, macro, recorder in zip(logs, macros, recorders, strict=True):
        pq.write_table(pa.table(log), folder / "sales.parquet")
        if in_duckdb:
            write_file(folder / source, folder / "sales.parquet", *filter(None, [macro]))
        with open_log(file) as opened:
            released = release_outcomes(opened, problem, level_sizes=(8,), rho=Fraction(1), noise=recorder)
    (mechanism,) = released.guarantee.mechanisms
    return sum(squared_change(recorders[0], recorders[-1])), int(mechanism.sensitivity_squared)


def test_no_week_decides_how_a_nan_of_another_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Parquet file says that all numbers of a column are equal, and does not count NaN among them."""
    logs = [
        columns(opening=[NAN if week % 2 == 0 else 1.0 for week in range(WEEKS - 1)] + [last]) for last in (1.0, 2.0)
    ]
    squared, paid = moved(tmp_path, "sales.parquet", *logs)
    assert squared <= paid
    # As it was: DuckDB believes the file, and takes the question whether a number is one for answered.
    believing = {name: value for name, value in opening.DUCKDB_SETTINGS.items() if name != "disabled_optimizers"}
    monkeypatch.setattr(opening, "DUCKDB_SETTINGS", believing)
    total = sales.unreadable
    monkeypatch.setattr(sales, "unreadable", lambda name: total(name).replace(f"isfinite({name}) AND ", ""))
    squared, paid = moved(tmp_path, "sales.parquet", *logs)
    assert squared > paid


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_no_number_makes_the_query_fail(tmp_path: Path, kind: pa.DataType) -> None:
    """Each odd number in each column, in a week of its own."""
    odd, roles = (NAN, float("inf"), 1e30, -1e30, None), ("opening", "delivery", "sales")
    numbers = {
        role: [2.0] * len(odd) * place + [*odd] + [2.0] * (WEEKS - len(odd) * (place + 1))
        for place, role in enumerate(roles)
    }
    log = columns(**{role: pa.array(column, kind) for role, column in numbers.items()})
    moved(tmp_path, "sales.parquet", log, macros=("",))


DATEDIFF = "CREATE MACRO datediff(part, a, b) AS date_diff(part, a, b) // 8"


def test_a_macro_of_the_file_does_not_lengthen_a_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [columns(sales=[first] + [8.0] * (WEEKS - 1)) for first in (1.0, 40.0)]
    squared, paid = moved(tmp_path, "sales.duckdb", *logs, weeks=2, macros=(DATEDIFF, DATEDIFF))
    assert 0 < squared <= paid
    # As it was: the whole query ran where the file's names are known.
    keep = duckdb_files._keep_answer

    def inside_the_file(query: str, database: Any, inside: str | None, export: str | None = None) -> None:
        keep(query.replace("FROM log\n", "FROM x\n"), database, inside)

    monkeypatch.setattr(duckdb_files, "_keep_answer", inside_the_file)
    squared, paid = moved(tmp_path, "sales.duckdb", *logs, weeks=2, macros=(DATEDIFF, DATEDIFF))
    assert squared > paid


@pytest.mark.parametrize("macro", ['"||"(a, b) AS a', "poolrl_id(a) AS 1"])
def test_a_query_with_our_function_needs_a_file_that_leaves_it_alone(
    tmp_path: Path, facts: Facts, run: Run, macro: str
) -> None:
    """`poolrl_id` means one thing. It is refused for what the file defines, so nothing is paid."""
    write_file(tmp_path / "shop.duckdb", tmp_path / "log.parquet", f"CREATE MACRO {macro}")
    facts["log"]["source"] = "shop.duckdb"
    message = message_of_failed_fit(tmp_path, facts, "SELECT *, poolrl_id('7.0') AS same FROM x", run)
    assert "the query uses poolrl_id, and the file defines" in message
    assert "give it another name" in message
    assert spent(tmp_path) == 0


# The query by hand, and against the example.


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
    week = "shop 7, week of 2025-03-03"
    assert rows_of(tmp_path, export_facts(["Baker's"], delimiter=";", **names, **GERMAN)) == [
        (week, 1, "Baker's", 0.5, 1000.75, 0),
        (week, 2, "Baker's", None, None, None),
    ]


def test_a_day_that_ran_out_shows_at_least_the_sales(tmp_path: Path) -> None:
    """Five loaves spoilt, three sold, none left: at least three were wanted, and nothing says that it was eight."""
    days = [("6", "2", "3"), ("0", "2", "4"), ("0", "2", "2")]  # Wednesday is not asked for
    write_export(tmp_path, [("7", f"2025-03-0{3 + i}", "bread", *day, "true") for i, day in enumerate(days)])
    assert [row[3:] for row in rows_of(tmp_path, export_facts(["bread"]))] == [(3, 3, 0), (0, 4, 0)]
    # Without a flag a shelf is empty where all was sold.
    write_export(tmp_path, SALES[:4])
    assert rows_of(tmp_path, export_facts(stock_out=None)) == rows_of(tmp_path, export_facts())


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
