"""A log in PostgreSQL: the same log as from a file, read only, and no value of it in any message."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import Table
from poolrl.data.ids import canonical, canonical_texts
from poolrl.data.log import Columns
from poolrl.data.row_rules import PARTS
from poolrl.data.sources import engine
from poolrl.data.sources.opening import open_source
from tests.helpers.interrupts import interrupted_soon
from tests.helpers.ledgers import spent
from tests.helpers.long_tables import long
from tests.helpers.shops import Facts, Run, message_of_failed_fit
from tests.helpers.sources import SECRET, seen, usually_seen
from tests.helpers.spellings import NO_UNIT, ONE_UNIT, some_texts
from tests.helpers.tables import a_labelled_shop, assert_counted_like_arrays, columns

try:
    import psycopg
except ImportError:  # the quick tests do without it
    psycopg = None  # type: ignore[assignment]

ZEROS = ", ".join(f"0 AS {part}_{i}" for part in ("state", "action", "next_state") for i in range(2))


def _postgres() -> Path | None:
    """The folder of the server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of our own, on a socket and a port of its own."""
    programs = _postgres()
    if programs is None or psycopg is None:
        if os.environ.get("POOLRL_TEST_EVERYTHING"):
            pytest.fail("PostgreSQL or psycopg is not installed")
        pytest.skip("needs PostgreSQL's server programs (Debian: postgresql) and pip install 'poolrl[postgres]'")
    folder = Path("/tmp") / f"poolrl-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    as_user = []
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data, port = folder / "data", str(20000 + os.getpid() % 20000)

    def control(program: str, *arguments: str) -> None:
        subprocess.run([*as_user, programs / program, *arguments], check=True, cwd=folder, capture_output=True)

    control("initdb", "-D", str(data), "-A", "trust", "-U", "shop")
    options = f"-k {folder} -p {port} -c listen_addresses= -c fsync=off"
    control("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log.txt"), "-o", options, "start")
    yield f"postgresql://shop@/postgres?host={folder}&port={port}"
    control("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    shutil.rmtree(folder)


def test_postgres_gives_the_same_log(tmp_path: Path, facts: Facts, server: str) -> None:
    table = pq.read_table(tmp_path / "log.parquet")
    log = copied(server, table, trajectory="int8", step="int4")
    expected = usually_seen(tmp_path, facts)
    assert seen(tmp_path, facts, source=server, query=f"SELECT * FROM {log};") == expected
    # Ids as numerics of different scale, as uuid and as text; a number as numeric.
    columns = "step::numeric AS step, state_0::numeric, state_1, action_0, action_1, next_state_0, next_state_1"
    for name in (
        "CASE step WHEN 0 THEN trajectory::numeric(20, 0) ELSE trajectory::numeric(20, 3) END",
        "md5(trajectory::text)::uuid",
        "('a' || trajectory)::text",
    ):
        query = f"SELECT {name} AS trajectory, {columns} FROM {log}"
        assert seen(tmp_path, facts, source=server, query=query).leaves == expected.leaves, name
    # A value that cannot be used is unobserved, and nothing fails: no number, or one that no double can hold.
    # 1e-400 is as good as nothing, where PostgreSQL's own arithmetic would fail.
    for bad, lost in (("0 + 1e-400", 0), ("'NaN'", 3), ("1e200 * 1e200", 3)):
        part = "action_0" if lost else "state_0::numeric"
        name = part.split(":")[0]
        rest = columns.replace(f"{part},", f"CASE trajectory WHEN 7 THEN {bad} ELSE {name}::numeric END AS {name},")
        found = seen(tmp_path, facts, source=server, query=f"SELECT trajectory, {rest} FROM {log}")
        assert found.counts().sum() == expected.counts().sum() - lost, bad


def copied(server: str, table: pa.Table, **kinds: str) -> str:
    """The name of a new table of the server with these rows; columns without a kind hold numbers."""
    name = f"rows_{uuid.uuid4().hex[:8]}"
    listed = ", ".join(f'"{column}" {kinds.get(column, "float8")}' for column in table.column_names)
    with psycopg.connect(server) as connection:
        connection.execute(f"CREATE TABLE {name} ({listed})")
        with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
            for row in zip(*table.to_pydict().values(), strict=True):
                copy.write_row(row)
    return name


def test_postgres_counts_long_tables_like_arrays(server: str) -> None:
    with ExitStack() as opened:

        def put(table: pa.Table) -> Any:
            copy = copied(server, table, product="text", promo="text")
            there = {part: (column,) for part, column in zip(PARTS, ("state", "action", "left"), strict=True)}
            more = {"unit": "unit", "scale": ("scale",), "labels": ["store", "promo"]}
            columns_of = Columns("trajectory", "step", **there, **more, coordinate="product")
            return opened.enter_context(open_source(server, columns_of, query=f"SELECT * FROM {copy}")).rows

        assert_counted_like_arrays("labels and units", lambda log, clip: long(log, clip, put), everything=False)


def test_postgres_counts_labels_and_multiples_like_arrays(server: str) -> None:
    """Labels as numeric and as whole numbers; nothing is written, and no scale makes it fail."""
    problem, log = a_labelled_shop()
    table = log.to_arrow()
    labelled = copied(server, table, trajectory="int8", step="int4", promo="text")
    expected = log.outcome_leaves(problem, bins=16)
    names = columns(2, scale=["scale_0", "scale_1"], labels=["store", "promo"])
    for store in ("store", "nullif(store, 'NaN')::int8", "store::numeric"):
        rest = ", ".join(name for name in table.column_names if name != "store")
        query = f"SELECT {rest}, {store} AS store FROM {labelled}"
        with open_source(server, Columns(**names), query=query) as opened:
            found = Table(opened.rows, **names, labels_public=True)
            found.check(problem)
            np.testing.assert_array_equal(found.outcome_leaves(problem, bins=16), expected, store)
            np.testing.assert_array_equal(found.label_totals(problem), log.label_totals(problem), store)


def test_no_message_of_postgres_quotes_the_log(tmp_path: Path, facts: Facts, server: str) -> None:
    with psycopg.connect(server) as connection:
        connection.execute("CREATE SEQUENCE numbers")
    for query, message in (
        (f"SELECT 'secret {SECRET}'::int", "PostgreSQL refused .*22P02"),
        ("SELECT nothing FROM nowhere", "PostgreSQL refused .*42P01"),
        ("CREATE TABLE written (x int)", "PostgreSQL refused .*42601"),  # no table
        ("SELECT 1) AS x; COMMIT; CREATE TABLE written (x int); SELECT * FROM (SELECT 1", "PostgreSQL refused .*42601"),
        (f"SELECT nextval('numbers') AS trajectory, 0 AS step, {ZEROS}", "PostgreSQL refused .*25006"),  # reading only
    ):
        with pytest.raises(ValueError, match=message) as caught:
            seen(tmp_path, facts, source=server, query=query)
        assert "31337" not in str(caught.value)
    with pytest.raises(ValueError, match="PostgreSQL refused the connection"):
        seen(tmp_path, facts, source="postgresql://shop@localhost:1/none", query="SELECT 1")


ROWS = "generate_series(0, 9) AS trajectory, generate_series(0, 2) AS step"
DECIDED = "(CASE WHEN trajectory = 7 THEN 'nowhere' ELSE 'pg_class' END)::regclass::int8 AS state_0"
ASKED = "xpath_exists('/diary/row[action_0 > 20]', table_to_xml('diary'::regclass, true, false, ''))"


@pytest.mark.parametrize(
    ("query", "code", "cost"),
    [
        (f"SELECT *, {ZEROS} FROM nowhere", "42P01", 0),
        # A name that a row decides is "undefined" like one that the query got wrong, which costs nothing.
        (f"SELECT trajectory, step, {ZEROS.replace('0 AS state_0', DECIDED)} FROM {ROWS}", "42P01", 1),
        # PostgreSQL evaluates what is constant in a query while it plans it, and that may read every row. So a query
        # is not planned before it is paid for; 22012 is a division by zero.
        (f"SELECT trajectory, 0 AS step, {ZEROS} FROM diary WHERE trajectory < 9 / (1 - {ASKED}::int)", "22012", 1),
        # A function that Ibis took for another one.
        (f"SELECT array_length(ARRAY[1], 1) AS trajectory, 0 AS step, {ZEROS}", "42883", 0),
    ],
    ids=["no table", "a row's name", "a row's constant", "other words"],
)
def test_a_query_is_not_planned_before_it_is_paid_for(
    tmp_path: Path, facts: Facts, server: str, run: Run, query: str, code: str, cost: int
) -> None:
    """A failure at rows is paid for, whatever PostgreSQL calls it."""
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS diary AS SELECT 7 AS trajectory, 23.5 AS action_0")
    facts["log"]["source"] = server
    assert code in message_of_failed_fit(tmp_path, facts, query, run)
    assert spent(tmp_path) == Fraction(cost, 2)


@pytest.mark.parametrize("when", ["described", "run"])
def test_a_signal_stops_the_server(tmp_path: Path, facts: Facts, server: str, when: str) -> None:
    """It waits for a lock that somebody holds: on a table while it reads the query, or one that the query asks for."""
    with psycopg.connect(server) as holder:
        holder.execute("CREATE TABLE IF NOT EXISTS shelf (x int)")
        holder.commit()
        if when == "described":
            holder.execute("LOCK TABLE shelf IN ACCESS EXCLUSIVE MODE")
        else:
            holder.execute("SELECT pg_advisory_xact_lock(7)")
        rows = "shelf" if when == "described" else "pg_advisory_lock(7)"
        query = f"SELECT 1 AS trajectory, 0 AS step, {ZEROS} FROM {rows}"
        with interrupted_soon(holder.rollback):
            seen(tmp_path, facts, source=server, query=query)


def test_rows_are_seen_as_they_are_when_they_are_asked_for(tmp_path: Path, facts: Facts, server: str) -> None:
    """A load that replaces all rows empties the table for transactions that began before, also if they waited."""
    query = f"SELECT x AS trajectory, 0 AS step, {ZEROS} FROM stock"
    with psycopg.connect(server) as loader:
        loader.execute("CREATE TABLE stock AS SELECT generate_series(1, 5) AS x")
        loader.commit()
        loader.execute("TRUNCATE stock; INSERT INTO stock SELECT generate_series(1, 9)")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: seen(tmp_path, facts, source=server, query=query).units)
            with psycopg.connect(server, autocommit=True) as watcher:
                while not (waiting.done() or watcher.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone()):
                    time.sleep(0.05)
            loader.commit()
            assert waiting.result(timeout=60) == 9


def test_postgres_reads_ids_like_python(server: str) -> None:
    """Whatever its locale is. PostgreSQL has no text with a zero byte."""
    spellings = [*NO_UNIT, *(text for group in ONE_UNIT.values() for text in group), *some_texts(600)]
    spellings = [text for text in spellings if "\0" not in text]
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE spelt (place int, spelling text, exact numeric)")
        with connection.cursor().copy("COPY spelt (place, spelling) FROM STDIN") as copy:
            for row in enumerate(spellings):
                copy.write_row(row)
        connection.execute("UPDATE spelt SET exact = CASE place WHEN 0 THEN 'NaN' ELSE 7.00 END")
    zeros = ", ".join(f"0 AS {name}" for name in ("state_0", "action_0", "next_state_0"))
    query = f"SELECT *, {zeros}, place AS step FROM spelt"
    with open_source(server, Columns(**columns(1) | {"trajectory": "spelling"}), query=query) as opened:
        found = (
            opened.rows.select("step", id=canonical(opened.rows.spelling))
            .order_by("step")
            .to_pyarrow()["id"]
            .to_pylist()
        )
    assert found == canonical_texts(spellings)
    # Of numerics, 7.00 is 7, and NaN is no id.
    names = columns(1) | {"trajectory": "exact"}
    with open_source(server, Columns(**names), query=query) as opened:
        assert Table(opened.rows, **names).units == 1
    names = columns(1) | {"trajectory": "bytes"}
    opening = open_source(server, Columns(**names), query=query.replace("*", "*, '7'::bytea AS bytes"))
    with pytest.raises(ValueError, match="column 'bytes' must hold ids"), opening:
        pass


def test_the_views_and_functions_that_a_query_comes_through_are_told(server: str) -> None:
    """Views of views, functions in them, the function behind an operator, and nothing that has another name."""
    names = Columns(**columns(2))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            "CREATE SCHEMA chain;"
            "CREATE FUNCTION chain.cut(v int4) RETURNS int4 AS 'SELECT v % 3' LANGUAGE sql;"
            "CREATE FUNCTION chain.join_of(text, text) RETURNS text AS 'SELECT $1 || $2' LANGUAGE sql;"
            "CREATE OPERATOR chain.<=>  (LEFTARG = text, RIGHTARG = text, FUNCTION = chain.join_of);"
            f"CREATE VIEW chain.inner_rows AS SELECT chain.cut(x) AS trajectory, 0 AS step, {ZEROS} "
            "FROM generate_series(1, 9) AS x;"
            "CREATE VIEW chain.outer_rows AS SELECT * FROM chain.inner_rows;"
            "CREATE VIEW chain.salaries AS SELECT 1 AS nobodys_business"
        )
        try:
            with open_source(server, names, query="SELECT * FROM chain.outer_rows") as opened:
                told = "\n".join(opened.definitions)
                assert Table(opened.rows, **columns(2)).units == 3
            assert len(opened.definitions) == 3
            assert all(word in told for word in ("outer_rows", "inner_rows", "v % 3"))
            assert "salaries" not in told
            query = "SELECT o.*, 'a' OPERATOR(chain.<=>) 'b' AS joined FROM chain.outer_rows o"
            with open_source(server, names, query=query) as opened:
                assert any("$1 || $2" in sql for sql in opened.definitions)
            # A query that puts its own SQL together may come through anything.
            query = "SELECT o.*, query_to_xml('SELECT 1', true, true, '') AS x FROM chain.outer_rows o"
            with open_source(server, names, query=query) as opened:
                assert any("nobodys_business" in sql for sql in opened.definitions)
        finally:
            connection.execute("DROP SCHEMA chain CASCADE")


def test_a_table_of_ones_own_connection_compares_texts_by_their_bytes(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a collation without accents, "é1" and "e1" are one text. The server refuses to look for patterns in it."""
    with psycopg.connect(server) as connection:
        connection.execute(
            "CREATE COLLATION IF NOT EXISTS plain (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        connection.execute("CREATE TABLE accents (trajectory text COLLATE plain, step int)")
        connection.execute("INSERT INTO accents VALUES ('e1', 0), ('\u00e91', 0), ('f1', 0)")
    numbers = {"states": ["a"], "actions": ["b"], "next_states": ["c"]}

    def units() -> int:
        with psycopg.connect(server) as connection:
            rows = ibis.postgres.from_connection(connection).table("accents")
            return Table(rows.mutate(a=0.0, b=1.0, c=0.0), trajectory="trajectory", step="step", **numbers).units

    assert units() == 3
    monkeypatch.setattr(engine, "_BY_BYTES", {})
    with pytest.raises(engine.RowError, match="FeatureNotSupported"):  # patterns need a plain collation
        units()
