"""Every way in: replace one unit by anything that can be written, and the counts move by no more than is paid for.

A log is ten shops of three weeks of two days, of which two weeks count. One shop is replaced by a hostile one. The rows
go in as files, as frames whose columns have their types, and as tables of DuckDB, some of them with collations.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import ibis
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales, Table, Trajectories
from poolrl.data.log import Columns, Log
from poolrl.data.sources import duckdb as duckdb_files
from poolrl.data.sources import engine, opening
from poolrl.data.sources.opening import open_source
from poolrl.privacy.release import release_outcomes
from poolrl.workflow.open_log import open_log
from tests.helpers.exports import configured, export_facts
from tests.helpers.neighbours import Recorder, squared_change

Row = dict[str, Any]
Way = Callable[[list[Row], Path], Any]  # a context manager: the log of these rows
TEXTS, NUMBERS = ("shop", "week", "store", "promo"), ("day", "opening", "target", "left")
NAMES: dict[str, Any] = {
    **{"trajectory": "week", "step": "day", "states": ("opening",), "actions": ("target",), "next_states": ("left",)},
    **{"unit": "shop", "labels": {"store": "store", "promo": "promo"}},
}
LABELS: dict[str, list[Any]] = {"store": [1, 2], "promo": ["no", "yes"]}
PROBLEM = LostSales(horizon=2, holding=1, shortage=1, demand_max=10.0, labels=LABELS)
SHOPS, REPLACED = 10, 4


def name_of(week: int, number: int) -> str:
    """The name of a week of a shop: a date for some shops, a text for others."""
    day = datetime.date(2025, 1, 6) + datetime.timedelta(days=7 * (3 * number + week))
    return f"{'e' * (number % 2)}{day}"


def shop(number: int, name: str = "", **changes: Any) -> list[Row]:
    """Three weeks of a shop, which sells more from week to week."""
    return [
        {
            **{"shop": name or f"e{number}", "week": name_of(week, number), "day": day, "opening": 0.0, "target": 8.0},
            **{"left": 6.0 - 2 * week, "store": str(1 + number % 2), "promo": ("no", "yes")[day]},
            **changes,
        }
        for week in range(3)
        for day in (0, 1)
    ]


def log_with(replaced: list[Row]) -> list[Row]:
    others = [shop(number) for number in range(SHOPS)]
    others[REPLACED] = replaced
    return [row for rows in others for row in rows]


# What stands in a field of one shop. Its other rows are as before, so that arrays take them.
ODD_TEXTS = ("unknown", '"1', 'no"', "1e0", " 1", "", "x\0y", '"1,5"', "\u0661", "\u00e9", "y" * 300, "2025-03-03")
ODD_NUMBERS = ("abc", "", "NaN", "inf", "1e400", "-1", "1_0", "0x1", "1e9", '"5', "5\0", "y" * 70_000)


def hostile_shops() -> Iterator[list[Row]]:
    """Shops that are read as they are, or of which something cannot be used."""
    for text in ODD_TEXTS:
        yield shop(REPLACED, store=text)
        yield shop(REPLACED, promo=text)
        yield shop(REPLACED, name=f"{text}x")
        yield [row | {"week": f"{text}{row['week']}"} for row in shop(REPLACED)]
        yield [row | {"week": f"{text}w{day}"} for day in range(20, 23) for row in shop(REPLACED)[:2]]
    yield [row | {"week": f"{row['week']} 00:00:00"} for row in shop(REPLACED)]
    yield shop(REPLACED, left=0.0)
    yield accented()


def accented() -> list[Row]:
    """Weeks that are called like the later weeks of other shops, but for an accent."""
    names = [name_of(week, number).replace("e", "\u00e9") for number in range(1, SHOPS, 2) for week in (1, 2)]
    return [row | {"week": name} for name in names for row in shop(REPLACED)[:2]]


def unreadable_shops() -> Iterator[list[Row]]:
    """Shops with text or nothing in the place of numbers, in one row or in all."""
    for text in ODD_NUMBERS:
        for column in NUMBERS:
            yield [shop(REPLACED)[0] | {column: text}, *shop(REPLACED)[1:]]


def as_csv(rows: list[Row], path: Path) -> Path:
    """Fields as they stand, without quotes around them, but for what somebody wrote."""
    lines = [",".join(map(str, row.values())) for row in rows]
    path.write_text("\n".join([",".join(rows[0]), *lines, ""]), encoding="utf-8", newline="")
    return path


def typed(rows: list[Row]) -> pa.Table:
    """Columns whose types are known, whatever the rows hold."""

    def number(value: Any) -> float | None:
        try:
            return float(str(value).replace("_", "?"))
        except ValueError:
            return None

    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in TEXTS}
    return pa.table(columns | {name: pa.array([number(row[name]) for row in rows], pa.float64()) for name in NUMBERS})


def as_parquet(rows: list[Row], path: Path) -> Path:
    pq.write_table(typed(rows), path)
    return path


def as_duckdb(rows: list[Row], path: Path) -> Path:
    """A table in which texts are equal that differ in case or accents."""
    path.unlink(missing_ok=True)
    kinds = dict.fromkeys(TEXTS, "VARCHAR COLLATE NOCASE.NOACCENT") | dict.fromkeys(NUMBERS, "DOUBLE")
    with duckdb.connect(str(path)) as database:
        listed = ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())
        database.execute(f"CREATE TABLE log ({listed})")
        database.register("frame", typed(rows))
        database.execute("INSERT INTO log FROM frame")
    return path


@contextmanager
def held(log: Log) -> Iterator[Log]:
    yield log


@contextmanager
def opened(path: Path, query: str | None = None) -> Iterator[Log]:
    """As the command line opens it."""
    with open_source(path.name, Columns(**NAMES), query=query, folder=path.parent) as source:
        yield Table(source, **NAMES, max_per_unit=2)


@contextmanager
def in_duckdb(path: Path) -> Iterator[Log]:
    connection = ibis.duckdb.connect(path, read_only=True)
    try:
        yield Table(connection.table("log"), **NAMES, max_per_unit=2)
    finally:
        connection.disconnect()


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "pandas": pa.Table.to_pandas,
    "polars": pl.from_arrow,
    "Arrow": lambda table: table,
}
WAYS: dict[str, Way] = {
    "from_csv": lambda rows, at: held(Trajectories.from_csv(as_csv(rows, at / "log.csv"), **NAMES, max_per_unit=2)),
    "opened, CSV": lambda rows, at: opened(as_csv(rows, at / "log.csv")),
    "opened, DuckDB": lambda rows, at: opened(as_duckdb(rows, at / "log.duckdb"), "FROM log"),
    "Table, DuckDB": lambda rows, at: in_duckdb(as_duckdb(rows, at / "log.duckdb")),
    "opened, Parquet": lambda rows, at: opened(as_parquet(rows, at / "log.parquet")),
    "from_parquet": lambda rows, at: held(
        Trajectories.from_parquet(as_parquet(rows, at / "log.parquet"), **NAMES, max_per_unit=2)
    ),
    **{
        f"{read.__name__}, {name}": lambda rows, at, frame=frame, read=read: held(
            read(frame(typed(rows)), **NAMES, max_per_unit=2)
        )
        for name, frame in FRAMES.items()
        for read in (Table, Trajectories.from_table)
    },
}


def exact(way: Way, rows: list[Row], at: Path) -> tuple[Recorder, int, int]:
    """What noise is added to, what is paid for, and how many units there are."""
    found = Recorder()
    with way(rows, at) as log:
        released = release_outcomes(log, PROBLEM, level_sizes=(2, 8), rho=Fraction(1), noise=found)
        return found, int(released.guarantee.mechanisms[0].sensitivity_squared), log.units


USUAL = log_with(shop(REPLACED))


@cache
def usual_of(way: str) -> tuple[Recorder, int, int]:
    """The same of the log that others are compared with."""
    with TemporaryDirectory() as at:
        return exact(WAYS[way], USUAL, Path(at))


# Arrays are read by the engine of tables. So few ways are tried in the quick tests, and files by most shops. Each way
# begins with another shop.
@pytest.mark.parametrize(
    ("way", "every"),
    [
        ("from_csv", 11),
        *((way, 37) for way in ("opened, CSV", "opened, DuckDB", "Table, DuckDB", "Table, pandas")),
        *(pytest.param(way, 4, marks=pytest.mark.slow) for way in [*WAYS][1:]),
    ],
)
def test_one_unit_moves_no_more_than_is_paid_for(way: str, every: int, tmp_path: Path) -> None:
    """Arrays refuse fields that are no numbers, in words for the data holder. Tables make such rows unobserved."""
    first, arrays = [*WAYS].index(way) % every, way.startswith("from_")
    usual, paid, units = usual_of(way)
    assert (usual.tables[0].sum() > 0, units) == (True, SHOPS)
    moved = 0
    refused: dict[bool, list[bool]] = {True: [], False: []}  # of the shops that arrays can read, and of others
    shops = [(each, True) for each in hostile_shops()] + [(each, not arrays) for each in unreadable_shops()]
    for replaced, readable in shops[first::every]:
        try:
            found, same, same_units = exact(WAYS[way], log_with(replaced), tmp_path)
        except ValueError as error:
            assert arrays
            assert re.search("must", str(error))
            assert not any(text in str(error) for text in ("unknown", "abc", "1e400", "0x1"))
            refused[readable].append(True)
        else:
            refused[readable].append(False)
            assert (same, same_units) == (paid, units)
            change = sum(squared_change(usual, found))
            assert change <= paid, replaced
            moved += change > 0
    assert moved > 0
    assert np.mean(refused[True]) < 0.3
    assert not arrays or np.mean(refused[False]) > 0.6


def test_every_way_reads_the_same_log(tmp_path: Path) -> None:
    """An odd label, a quote, a time among dates: other ways in, the same counts."""
    leaves = []
    for way in WAYS.values():
        with way(log_with(shop(REPLACED, promo="unknown", store="1e0", name='"7')), tmp_path) as log:
            leaves.append(log.outcome_leaves(PROBLEM, bins=8).tolist())
    assert leaves == [leaves[0]] * len(leaves)


def moved(way: Way, other: list[Row], at: Path, one: list[Row] = USUAL) -> tuple[int, int]:
    """The squared change between two logs, and what is paid for."""
    (usual, paid, _), (found, _, _) = exact(way, one, at), exact(way, other, at)
    return sum(squared_change(usual, found)), paid


def assert_within(way: str, other: list[Row], at: Path) -> None:
    """The usual log and the other one are something apart, and no more than is paid for."""
    (usual, paid, _), (found, _, _) = usual_of(way), exact(WAYS[way], other, at)
    assert 0 < sum(squared_change(usual, found)) <= paid


@contextmanager
def guessing(path: str, columns: Columns, *, is_csv: bool) -> Iterator[pa.Table]:
    """As files were read: by a reader that guesses a column's type from all rows."""
    yield pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))


def test_a_reader_that_guesses_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One odd label turned a column of numbers into text, which is no number then."""
    other = log_with(shop(REPLACED, store="unknown"))
    assert_within("from_csv", other, tmp_path)
    monkeypatch.setattr(opening, "open_columns", guessing)
    monkeypatch.setattr("poolrl.data.log_labels.numbers_spelt", lambda texts: np.full(len(texts), np.nan))
    squared, paid = moved(WAYS["from_csv"], other, tmp_path)
    assert squared > paid


def test_a_reader_whose_quotes_span_lines_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines of one shop with a quote each, the first and the last one, swallowed all lines between them."""
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=10.0, labels=LABELS)
    monkeypatch.setattr(f"{__name__}.PROBLEM", problem)
    way, days = WAYS["from_csv"], [row for number in range(40) for row in shop(number)[::2]]
    two = [row for row in days if row["shop"] == "e4"][:2]
    others = [row for row in days if row["shop"] != "e4"]
    spoilt = [two[0] | {"promo": '"no'}, *others, two[1] | {"promo": 'no"'}]
    squared, paid = moved(way, spoilt, tmp_path, [two[0], *others, two[1]])
    assert 0 < squared <= paid
    monkeypatch.setattr(opening, "open_columns", guessing)
    squared, paid = moved(way, spoilt, tmp_path, [two[0], *others, two[1]])
    assert squared > paid


@pytest.mark.parametrize("way", ["Table, DuckDB", "opened, DuckDB"])
def test_a_collation_that_merges_ids_is_caught(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a collation, the later weeks of other shops were equal to those of this one, and read like them."""
    assert_within(way, log_with(accented()), tmp_path)
    monkeypatch.setattr(engine, "_BY_BYTES", {})
    monkeypatch.setattr(duckdb_files, "plain_column", lambda column, kind: duckdb_files.quoted_name(column))
    squared, paid = moved(WAYS[way], log_with(accented()), tmp_path)
    assert squared > paid


@pytest.mark.parametrize("collation", ["noaccent", "nocase.noaccent"])
def test_a_connection_that_merges_texts_is_refused(collation: str, tmp_path: Path) -> None:
    """By the setting alone, and not by a row."""
    connection = ibis.duckdb.connect()
    connection.create_table("log", typed(log_with(accented())))
    connection.raw_sql(f"SET default_collation = '{collation}'")
    with pytest.raises(ValueError, match="default_collation must be binary"):
        Table(connection.table("log"), **NAMES)


def test_frames_never_meet_the_default_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a server, or compare texts in another way."""
    other = ibis.duckdb.connect()
    other.raw_sql("SET default_collation = 'nocase.noaccent'")
    monkeypatch.setattr(ibis.options, "default_backend", other)
    change, paid = moved(WAYS["Table, Arrow"], log_with(accented()), tmp_path)
    assert 0 < change <= paid


GROUPING = 'SELECT shop, week, day, max(opening) AS opening, max(target) AS target, max("left") AS "left", '
GROUPING += "any_value(store) AS store, any_value(promo) AS promo FROM log GROUP BY shop, week, day"


@pytest.mark.parametrize("query", [None, GROUPING], ids=["rows in another order", "a query that groups"])
def test_which_trajectories_a_unit_keeps_depends_on_no_other_unit(
    query: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of rows is the database's. By a rank among everybody, more would move than is paid for."""
    rng = np.random.default_rng(4)

    def way(rows: list[Row], at: Path) -> Any:
        return opened(as_parquet([rows[i] for i in rng.permutation(len(rows))], at / "log.parquet"), query)

    other = [row | {"week": f"1w{n}"} for n in range(20) for row in shop(REPLACED, name="another")[:2]]
    squared, paid = moved(way, log_with(other), tmp_path)
    assert 0 < squared <= paid

    def among_everybody(lives: Any) -> Any:
        return ibis.row_number().over(order_by=[lives.trajectory, lives.unit]) // SHOPS

    if query is None:
        monkeypatch.setattr("poolrl.data.table.Table._rank", staticmethod(among_everybody))
        squared, paid = moved(way, log_with(other), tmp_path)
        assert squared > paid


def recipes() -> list[str]:
    """Every statement in the documents by which a person makes a table out of a file."""
    texts = "\n".join(
        path.read_text(encoding="utf-8") for path in [Path("README.md"), *sorted(Path("docs").glob("*.md"))]
    )
    return re.findall(r"CREATE TABLE [^;`]*?;", texts)


def export(*hostile: dict[str, str]) -> list[Row]:
    """Mondays and Tuesdays of six shops; each day of a hostile one has something else in its fields."""
    rows = []
    for number in range(6):
        for day, other in zip((3, 4, 10, 11), hostile or [{}] * 4, strict=True):
            row = {"shop": str(number), "date": f"{day:02}/03/2025", "product": "bread", "after_delivery": "9"}
            row |= {"opening": "0", "delivery": "9", "closing": str(number % 3), "sales": str(9 - number % 3)}
            rows.append(row | (other if number == 3 else {}))
    return rows


def by_recipe(recipe: str, rows: list[Row], at: Path, date_format: str | None) -> tuple[list[Any], int]:
    """What noise is added to if a person follows the recipe, and what is paid for."""
    named = re.findall(r"(\w+): 'VARCHAR'", recipe) or [*rows[0]]
    as_csv([{name: row[name] for name in named} for row in rows], at / "export.csv")
    (at / "shop.duckdb").unlink(missing_ok=True)
    with duckdb.connect(str(at / "shop.duckdb")) as database:
        database.execute(recipe.replace("'export.csv'", f"'{at / 'export.csv'}'"))
    facts = export_facts(["bread"], stock_out=None, table="sales", date_format=date_format)
    facts["log"]["source"] = "shop.duckdb"
    file, found = configured(at, facts), Recorder()
    with open_log(file) as log:
        posed = file.config.problem.posed
        released = release_outcomes(log, posed, level_sizes=(2, 8), rho=Fraction(1), noise=found)
    return found.tables, int(released.guarantee.mechanisms[0].sensitivity_squared)


def recipe_moves(
    recipe: str, at: Path, *hostile: dict[str, str], date_format: str | None = "%d/%m/%Y"
) -> tuple[int, int]:
    """How far a hostile shop moves what is released, and what its two weeks pay for: c = 2."""
    usual, paid = by_recipe(recipe, export(), at, date_format)
    found, _ = by_recipe(recipe, export(*hostile), at, date_format)
    assert usual[0].sum() > 0
    return sum(int(((a - b) ** 2).sum()) for a, b in zip(usual, found, strict=True)), 4 * paid


@pytest.mark.parametrize("number", range(len(recipes())))
def test_recipes_of_the_documents_read_each_row_by_itself(number: int, tmp_path: Path) -> None:
    days = {"date": "soon"}, {"product": '"bread'}, {"product": "x" * 70_000}, {"delivery": "1e400"}
    squared, paid = recipe_moves(recipes()[number], tmp_path, *days)
    assert 0 < squared <= paid


def test_a_recipe_that_guesses_is_caught(tmp_path: Path) -> None:
    """As the documents had it. One shop's text turned all dates into text, which nobody had said how to read."""
    assert len(recipes()) == 2
    old = "CREATE TABLE sales AS SELECT *, after_delivery - delivery AS other FROM read_csv('export.csv');"
    squared, paid = recipe_moves(old, tmp_path, *[{"date": "2025-03-04"}] * 4, date_format=None)
    assert squared > paid
