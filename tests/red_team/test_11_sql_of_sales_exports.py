"""The SQL that [sales] stands for reads each row by itself, whatever other rows or names a file has."""

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

from poolrl.data.sources import opening
from poolrl.privacy.release import release_outcomes
from poolrl.workflow import sales
from poolrl.workflow.open_log import open_log
from tests.helpers.duckdb_files import write_file
from tests.helpers.exports import configured, export_facts
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.shops import Facts
from tests.helpers.sources import seen

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


def moved(folder: Path, *logs: dict[str, Any]) -> tuple[int, int]:
    """The squared distance between what two Parquet files release, and what is paid for."""
    recorders, paid = [], 0
    for log in logs:
        pq.write_table(pa.table(log), folder / "sales.parquet")
        facts = export_facts(["bread"], days=1, scale="same weekday, last 1 weeks", scale_floor=0.01)
        facts["log"]["source"] = "sales.parquet"
        facts["problem"]["demand_max"] = 4.0
        facts["privacy"]["weeks_public"] = True
        file = configured(folder, facts)
        recorders.append(Recorder())
        with open_log(file) as opened:
            released = release_outcomes(
                opened, file.config.problem.posed, level_sizes=(8,), rho=Fraction(1), noise=recorders[-1]
            )
        paid = int(released.guarantee.mechanisms[0].sensitivity_squared)
    return sum(squared_change(recorders[0], recorders[-1])), paid


def every_second(value: float, last: float) -> list[float]:
    return [NAN if week % 2 == 0 else value for week in range(WEEKS - 1)] + [last]


@pytest.mark.parametrize(("column", "value"), [("opening", 1.0), ("delivery", 50.0)])
def test_no_week_decides_how_a_nan_of_another_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, value: float
) -> None:
    """A Parquet file says that all numbers of a column are equal, and does not count NaN among them."""
    logs = [columns(**{column: every_second(value, last)}) for last in (value, value + 1)]
    squared, paid = moved(tmp_path, *logs)
    assert squared <= paid
    # As it was: DuckDB believes the file, and takes the question whether a number is one for answered.
    believing = {name: value for name, value in opening.DUCKDB_SETTINGS.items() if name != "disabled_optimizers"}
    monkeypatch.setattr(opening, "DUCKDB_SETTINGS", believing)
    total = sales.unreadable
    monkeypatch.setattr(sales, "unreadable", lambda name: total(name).replace(f"isfinite({name}) AND ", ""))
    squared, paid = moved(tmp_path, *logs)
    assert squared > paid


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("column", ["opening", "delivery", "sales"])
def test_no_number_makes_the_query_fail(tmp_path: Path, column: str, kind: pa.DataType) -> None:
    for odd in (NAN, float("inf"), 1e30, -1e30, None):
        log = columns(**{column: pa.array([2.0] * (WEEKS - 1) + [odd], kind)})
        moved(tmp_path, log)


def test_our_function_works_in_a_file_without_such_names(tmp_path: Path, facts: Facts) -> None:
    expected = seen(tmp_path, facts)
    write_file(tmp_path / "shop.duckdb", tmp_path / "log.parquet", "CREATE MACRO poolrl_ids(a) AS a")
    query = "SELECT * FROM x WHERE poolrl_id(' 07.0') = '7'"
    assert seen(tmp_path, facts, source="shop.duckdb", query=query) == expected


@pytest.mark.parametrize("table", ["log", "typed", "days", "scaled"])
def test_a_table_may_be_called_like_a_part_of_our_sql(tmp_path: Path, table: str) -> None:
    found = []
    pq.write_table(pa.table(columns()), tmp_path / "sales.parquet")
    with duckdb.connect(str(tmp_path / "sales.duckdb")) as database:
        database.execute(f"CREATE TABLE {table} AS FROM '{tmp_path / 'sales.parquet'}'")
    for source, named in (("sales.parquet", {}), ("sales.duckdb", {"table": table})):
        facts = export_facts(["bread"], days=1, scale="same weekday, last 2 weeks", scale_floor=0.01)
        facts["log"]["source"] = source
        facts["sales"] |= named
        file = configured(tmp_path, facts)
        with open_log(file) as opened:
            found.append(opened.outcome_leaves(file.config.problem.posed, bins=8).tolist())
    assert found[0] == found[1]
    assert sum(map(sum, found[0][0])) > 0


def test_a_certificate_tells_which_table_was_read(tmp_path: Path) -> None:
    facts = export_facts(["bread"], days=1, table='my "sales"', labels={"promotion": "Aktion"})
    facts["problem"]["labels"] = {"promotion": ["yes", "no"]}
    facts["log"]["source"] = "shop.duckdb"
    query = configured(tmp_path, facts).config.terms(units=1).public.query
    assert query is not None
    assert 'FROM main."my ""sales"""\n' in query
    duckdb.extract_statements(query)
