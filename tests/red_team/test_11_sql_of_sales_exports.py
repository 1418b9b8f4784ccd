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

from poolrl.data.sources import duckdb as duckdb_files
from poolrl.data.sources import opening, sales
from poolrl.privacy.release import release_outcomes
from poolrl.workflow.open_log import open_log
from tests.helpers.duckdb_files import hostile, write_file
from tests.helpers.exports import configured, export_facts
from tests.helpers.ledgers import spent
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.shops import Facts, Run, message_of_failed_fit
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


def every_second(value: float, last: float) -> list[float]:
    return [NAN if week % 2 == 0 else value for week in range(WEEKS - 1)] + [last]


@pytest.mark.parametrize(("column", "value"), [("opening", 1.0), ("delivery", 50.0)])
def test_no_week_decides_how_a_nan_of_another_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, value: float
) -> None:
    """A Parquet file says that all numbers of a column are equal, and does not count NaN among them."""
    logs = [columns(**{column: every_second(value, last)}) for last in (value, value + 1)]
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
@pytest.mark.parametrize("column", ["opening", "delivery", "sales"])
def test_no_number_makes_the_query_fail(tmp_path: Path, column: str, kind: pa.DataType) -> None:
    for odd in (NAN, float("inf"), 1e30, -1e30, None):
        log = columns(**{column: pa.array([2.0] * (WEEKS - 1) + [odd], kind)})
        moved(tmp_path, "sales.parquet", log)


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
    expected = seen(tmp_path, facts)
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
