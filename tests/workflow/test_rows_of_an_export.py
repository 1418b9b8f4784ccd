"""The query of [sales] reads every row by itself, without failing, whatever other rows or names a file has."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl.data.sources import duckdb as duckdb_files
from poolrl.data.sources import opening, sales
from poolrl.data.sources.engine import answer
from poolrl.privacy.release import release_outcomes
from poolrl.workflow.open_log import open_log
from tests.helpers.duckdb_files import hostile, write_file
from tests.helpers.exports import configured, export_facts, write_export
from tests.helpers.ledgers import spent
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.shops import Facts, Run, message_of_failed_fit
from tests.helpers.sources import seen, usually_seen

# Two shops, two weeks of two days, two products.
DATES = ("2025-03-03", "2025-03-04", "2025-03-10", "2025-03-11")
ROWS = [
    (shop, date, product, "2", "5", "4", "false") for shop in "78" for date in DATES for product in ("bread", "milk")
]
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
    plain = {(day, product): ("2.0", "7.0", "3.0") for day in (1, 2) for product in ("bread", "milk")}
    for name, week in weeks.items():
        if not (int(name.split()[1].rstrip(",")) % 2 == 0 and name.endswith("2025-03-03")):
            assert week == plain, name


def test_rows_that_name_no_week_are_no_units_and_break_nothing(tmp_path: Path) -> None:
    """All at once. The year 300000 made DuckDB's date_trunc fail."""
    expected = columns_of_weeks(tmp_path, ROWS)
    odd = [("7", date, "bread", "1", "1", "1", "false") for date in NO_DATES]
    odd += [(shop, DATES[0], "bread", "1", "1", "1", "false") for shop in NO_SHOPS]
    odd += [("7", "2025-03-05", "bread", "1", "1", "1", "false")]  # a Wednesday, which is no day of a week of two
    assert columns_of_weeks(tmp_path, [*odd, *ROWS, *odd]) == expected


def test_every_nasty_value_leaves_its_cell_unobserved(tmp_path: Path) -> None:
    """By hand: what is missing, twice, in words or without a flag is NULL for that product and day, nothing else."""
    first = ROWS[0]
    rows = []
    for shop, nasty in enumerate(
        (
            [],
            [first, first],
            [(*first[:3], "x", *first[4:])],
            [(*first[:5], "", first[6])],
            [(*first[:6], "ja")],
            [(*first[:6], "")],
        )
    ):
        rows += [(str(shop), *row[1:]) for row in (*nasty, *ROWS[1 : len(ROWS) // 2])]
    units, weeks = columns_of_weeks(tmp_path, rows)
    assert units == 6 * 2
    plain = {(day, product): ("2.0", "7.0", "3.0") for day in (1, 2) for product in ("bread", "milk")}
    for name, week in weeks.items():
        if name.endswith("2025-03-03"):
            assert week.pop((1, "bread"), ("None",) * 3) == ("None",) * 3, name
            assert week == {cell: value for cell, value in plain.items() if cell != (1, "bread")}
        else:
            assert week == plain


def test_a_week_without_a_listed_product_is_a_unit(tmp_path: Path) -> None:
    """What a shop sold does not decide whether its week is there."""
    beer = [(*row[:2], "beer", *row[3:]) if row[0] == "8" else row for row in ROWS]
    assert columns_of_weeks(tmp_path, beer)[0] == 4


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
    assert weeks["shop 7, week of 2025-03-03"][1, "bread"] == ("None",) * 3  # it stands more than once


MONDAY, NAN = datetime.date(2025, 3, 3), float("nan")
WEEKS = 24


def columns(**changed: Sequence[Any]) -> dict[str, Any]:
    """Mondays of one shop; sales that the scale of the next week follows."""
    usual: dict[str, Any] = {
        "shop": ["a"] * WEEKS,
        "product": ["bread"] * WEEKS,
        "date": [MONDAY + datetime.timedelta(7 * week) for week in range(WEEKS)],
        "opening": [1.0] * WEEKS,
        "delivery": [50.0] * WEEKS,
        "sales": [2.0 + week % 2 for week in range(WEEKS)],
        "stock_out": [False] * WEEKS,
    }
    return usual | changed


def moved(folder: Path, source: str, *logs: dict[str, Any], macro: str = "", weeks: int = 1) -> tuple[int, int]:
    """The squared distance between what two logs release, and what is paid for."""
    recorders, paid = [], 0
    for log in logs:
        if source.endswith(".parquet"):
            pq.write_table(pa.table(log), folder / source)
        else:
            (folder / source).unlink(missing_ok=True)
            pq.write_table(pa.table(log), folder / "rows.parquet")
            with duckdb.connect(str(folder / source)) as database:
                database.execute(f"CREATE TABLE sales AS FROM '{folder / 'rows.parquet'}'; {macro}")
        facts = export_facts(["bread"], days=1, scale=f"same weekday, last {weeks} weeks", scale_floor=0.01)
        facts["log"]["source"] = source
        facts["problem"]["demand_max"] = 4.0
        facts["privacy"]["weeks_public"] = True
        if source.endswith(".duckdb"):
            facts["sales"]["table"] = "sales"
        file = configured(folder, facts)
        recorders.append(Recorder())
        with open_log(file) as opened:
            released = release_outcomes(
                opened, file.config.problem.posed, level_sizes=(8,), rho=Fraction(1), noise=recorders[-1]
            )
        paid = int(released.guarantee.mechanisms[0].sensitivity_squared)
    return sum(squared_change(recorders[0], recorders[-1])), paid


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
    moved(tmp_path, "sales.parquet", columns(**{role: pa.array(column, kind) for role, column in numbers.items()}))


DATEDIFF = "CREATE MACRO datediff(part, a, b) AS date_diff(part, a, b) // 8"


def test_a_macro_of_the_file_does_not_lengthen_a_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [columns(sales=[first] + [8.0] * (WEEKS - 1)) for first in (1.0, 40.0)]
    without = moved(tmp_path, "sales.duckdb", *logs, weeks=2)
    assert 0 < without[0] <= without[1]
    assert moved(tmp_path, "sales.duckdb", *logs, weeks=2, macro=DATEDIFF) == without
    # As it was: the whole query ran where the file's names are known.
    keep = duckdb_files._keep_answer

    def inside_the_file(query: str, database: Any, inside: str | None, export: str | None = None) -> None:
        keep(query.replace("FROM log\n", "FROM sales\n"), database, inside)

    monkeypatch.setattr(duckdb_files, "_keep_answer", inside_the_file)
    squared, paid = moved(tmp_path, "sales.duckdb", *logs, weeks=2, macro=DATEDIFF)
    assert squared > paid


@pytest.mark.slow
def test_no_macro_of_the_file_runs_in_our_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolrl.data.sources.duckdb.MOST_DEFINITIONS", 2**30)
    logs = [columns(), columns(sales=[7.0] * WEEKS)]
    macros = "; ".join(hostile())
    assert moved(tmp_path, "sales.duckdb", *logs, macro=macros) == moved(tmp_path, "sales.duckdb", *logs)


@pytest.mark.parametrize(
    "macro", ["regexp_matches(a, b) AS true", "lower(a) AS a", '"||"(a, b) AS a', "poolrl_id(a) AS 1"]
)
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


def test_our_function_works_in_a_file_without_such_names(tmp_path: Path, facts: Facts) -> None:
    expected = usually_seen(tmp_path, facts)
    write_file(tmp_path / "shop.duckdb", tmp_path / "log.parquet", "CREATE MACRO poolrl_ids(a) AS a")
    query = "SELECT * FROM x WHERE poolrl_id(' 07.0') = '7'"
    assert seen(tmp_path, facts, source="shop.duckdb", query=query) == expected


def test_a_certificate_tells_which_table_was_read(tmp_path: Path) -> None:
    facts = export_facts(["bread"], days=1, table='my "sales"', labels={"promotion": "Aktion"})
    facts["problem"]["labels"] = {"promotion": ["yes", "no"]}
    facts["log"]["source"] = "shop.duckdb"
    query = configured(tmp_path, facts).config.terms(units=1).public.query
    assert query is not None
    assert query.startswith('WITH log AS (SELECT "shop", "date", "product", ')
    assert '"Aktion" FROM "my ""sales"""), typed AS (' in query
    duckdb.extract_statements(query)
