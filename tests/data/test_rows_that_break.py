"""What one row, line or folder can break is unobserved, or is paid for, and changes what is read of no other unit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from poolrl import LostSales, Pool, Table
from poolrl.data.sources import log_files
from poolrl.data.sources.duckdb import connected, run_query
from poolrl.data.sources.engine import RowError
from poolrl.data.sources.log_files import LINES_AT_ONCE, LONGEST_LINE, csv_reader
from tests.helpers.ledgers import spent
from tests.helpers.neighbours import Recorder
from tests.helpers.shops import Facts, Run, write_config
from tests.helpers.sources import seen, usually_seen

pytestmark = pytest.mark.usefixtures("no_page")


def as_csv(folder: Path) -> list[bytes]:
    """The small shop's log as lines of CSV, the first one the header."""
    pyarrow.csv.write_csv(pq.read_table(folder / "log.parquet"), folder / "log.csv")
    return (folder / "log.csv").read_bytes().splitlines()


def header_of(path: Path, content: bytes) -> Any:
    """The names of a header, or the message about it."""
    path.write_bytes(content)
    try:
        return log_files.header_of(str(path))
    except ValueError as error:
        return str(error)


@settings(max_examples=25, deadline=None)
@given(
    header=st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")),
    rows=st.binary(max_size=200),
    end=st.sampled_from([b"\n", b"\r", b"\r\n"]),
)
def test_a_header_is_read_without_its_rows(
    tmp_path_factory: pytest.TempPathFactory, header: bytes, rows: bytes, end: bytes
) -> None:
    """Whatever bytes follow."""
    file = tmp_path_factory.mktemp("header") / "log.csv"
    assert header_of(file, header + end + rows) == header_of(file, header + b"\n")


def test_a_header_that_is_no_text_is_refused(tmp_path: Path, facts: Facts, run: Run) -> None:
    """By the header alone, at no cost."""
    _, *rows = as_csv(tmp_path)
    (tmp_path / "log.csv").write_bytes(b"\n".join([b"a,\xff", *rows]))
    facts["log"]["source"] = "log.csv"
    with pytest.raises(ValueError, match=r"not a readable CSV file.*Nothing was spent"):
        run("fit", "--new-account", "--config", write_config(tmp_path, facts))
    assert spent(tmp_path) == 0


def test_columns_that_rows_decide_are_paid_for() -> None:
    """A query gives the columns that it gave without rows, or one of the rows may be the reason."""
    with connected(":memory:", {}) as database:
        run_query("SELECT 1 AS a", database, {"a": "INTEGER"})
    for expected in ({"a": "VARCHAR"}, {"b": "INTEGER"}, {"a": "INTEGER", "b": "INTEGER"}):
        with connected(":memory:", {}) as database, pytest.raises(RowError, match="other columns"):
            run_query("SELECT 1 AS a", database, expected)
    pivots = ("PIVOT log ON b USING sum(a)", "SELECT * FROM (PIVOT log ON b USING sum(a))")
    kinds = [duckdb.extract_statements(query)[0].type for query in pivots]
    assert duckdb.StatementType.SELECT not in kinds  # which `try_query` refuses


class WholeSales(LostSales):
    """What is seen is rounded down, as people count pieces."""

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return np.floor(seen).astype(np.int64).astype(np.float64), cut


@pytest.mark.parametrize("known", [{}, {"clip": True}, {"scale": ["usual"]}], ids=str)
def test_no_number_is_too_large_to_be_made_whole(known: dict[str, Any]) -> None:
    """An engine's cast of a huge number failed, so that one row decided whether there was a release at all."""
    problem = WholeSales(horizon=1, products=1, holding=0.1, shortage=0.4, demand_max=100.0)
    prepared = Pool(1.0).prepare(problem)
    actions, left = [50.0, 50.0, 1e140, -1e149, math.nan, math.inf], [20.0, 20.0, -1e140, 3.0, 1.0, 1.0]
    rows = {"week": range(6), "day": [0] * 6, "stock": [0.0] * 6, "order": actions, "left": left}
    named = {"trajectory": "week", "step": "day", "states": ["stock"], "actions": ["order"], "next_states": ["left"]}
    log = Table(pa.table(rows | {"usual": [1.0, *[1e-50] * 5]}), **named, **known)
    recorder = Recorder()
    prepared.release(log, recorder)
    assert recorder.tables


# Lines, folders and queries.


def rows_of(path: Path, content: bytes) -> list[tuple[str | None, ...]]:
    """The rows that are read of a file's bytes, in order."""
    path.write_bytes(content)
    with duckdb.connect() as database:
        return database.execute(csv_reader([str(path)])).fetchall()


def _of_another_kind(line: bytes) -> bytes:
    return line.split(b",")[0] + b",oops" + b",1.5" * 6


# What may stand in the place of a line.
BAD_LINES: dict[bytes, list[Callable[[bytes], bytes]]] = {
    b"\n": [
        lambda line: b'"' + line,
        lambda line: b'"a"b,' + line,
        lambda line: b",",
        lambda line: b"\r",
        lambda line: b"\xff\xfe" + line,  # no UTF-8
        lambda line: line + b"\xc3",  # half a character
        lambda line: b"\0\0\0" + line,
        lambda line: line.replace(b",", b"\x01,", 1),  # the reader's own separator
        lambda line: b"7" * 3_000_000 + line,
        _of_another_kind,
    ],
    b"\r\n": [
        lambda line: b"\r",
        lambda line: _of_another_kind(line) + b"\r",
        lambda line: _of_another_kind(line) + b"\r\r",
    ],
}


@pytest.mark.parametrize("end", BAD_LINES, ids=["LF", "CRLF"])
@pytest.mark.parametrize("query", [None, pytest.param("FROM log", marks=pytest.mark.slow)], ids=["file", "query"])
def test_one_line_of_a_csv_changes_no_other(tmp_path: Path, facts: Facts, query: str | None, end: bytes) -> None:
    """A quote that is not closed, a comment, no text, too many commas: that line alone, also where it is the first."""
    path, (header, *lines) = tmp_path / "log.csv", as_csv(tmp_path)
    whole, rows = usually_seen(tmp_path, facts), rows_of(path, end.join([header, *lines, b""]))
    for bad in BAD_LINES[end]:
        for place in (0, 300, 899):
            found = rows_of(path, end.join([header, *lines[:place], bad(lines[place]), *lines[place + 1 :], b""]))
            assert found[:place] == rows[:place], (bad(b"x")[:20], place)
            assert found[len(found) - 899 + place :] == rows[place + 1 :], (bad(b"x")[:20], place)
    # All of them at once, each in a week of its own, and what is counted of the others.
    for number, bad in enumerate(BAD_LINES[end]):
        lines[9 * number] = bad(lines[9 * number])
    path.write_bytes(end.join([header, *lines, b""]))
    found = seen(tmp_path, facts, source="log.csv", query=query)
    assert 300 <= found.units <= 303  # a line may name a week of its own
    lost = whole.counts().sum() - found.counts().sum()
    assert 0 < lost <= 2 * len(BAD_LINES[end])  # one day's products for each line
    assert (found.counts() <= whole.counts()).all()


def read_alone(content: bytes) -> list[tuple[str, str]]:
    """Lines of two plain fields, without DuckDB: each by itself, and nothing of what is no text."""
    found = []
    for line in re.split(b"[\r\n]", content):
        try:
            fields = line.split(b"\x01")[0].decode().split(",")
        except UnicodeDecodeError:
            continue
        if len(fields) == 2:
            found.append((fields[0], fields[1]))
    return found


ODD_BYTES = b"\r|\r\r|n,|a|,|\0|\x01|\xff|\xc3|\xe2\x80\xa8|#|'|\\| ".split(b"|")


@settings(max_examples=25, deadline=None)
@given(
    lines=st.lists(st.lists(st.sampled_from(ODD_BYTES), max_size=5).map(b"".join), min_size=1, max_size=6),
    end=st.sampled_from([b"\n", b"\r\n"]),
    last=st.booleans(),
)
@example(lines=[b"L,y\r"] * 100, end=b"\r\n", last=True)  # an end and a byte of the next line, whose field it changed
def test_every_line_is_read_by_itself(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, last: bool
) -> None:
    """Whatever bytes stand in the lines beside it: what is read of all is what is read of each."""
    path = tmp_path_factory.getbasetemp() / "lines.csv"
    kept = [part for i, line in enumerate(lines) for part in (line, b"n%d,x" % i)]
    found = rows_of(path, b"a,b" + end + end.join(kept) + (end if last else b""))
    expected = [(one or None, two or None) for line in kept for one, two in read_alone(line)]
    assert found == expected
    assert {(f"n{i}", "x") for i in range(len(lines))} <= {*found}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_long_line_is_judged_by_its_length_alone(tmp_path: Path, end: bytes) -> None:
    """First, in between or last; in bytes; and at DuckDB's own limit as well."""
    others = [b"n%d,x" % i for i in range(100)]
    for size in (LONGEST_LINE, LONGEST_LINE + 1, 2 * LONGEST_LINE + 1, 10**6):
        long = b"L," + "é".encode() * ((size - 2) // 2) + b"y" * (size % 2)
        assert len(long) == size
        for place in (0, 50, 100):
            found = rows_of(tmp_path / "t.csv", end.join([b"a,b", *others[:place], long, *others[place:], b""]))
            assert [row for row in found if row[0] != "L"] == [(f"n{i}", "x") for i in range(100)]
            assert len(found) == 100 + (size <= LONGEST_LINE), (size, place)


def test_no_line_is_lost_at_the_end_of_a_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a buffer of an odd size, which this test then finds, DuckDB loses some."""
    line, long = b"n123456,x\n", b"L," + b"y" * 40_000 + b"\n"

    def lost(buffer: int) -> int:
        monkeypatch.setattr("poolrl.data.sources.log_files.LINES_AT_ONCE", buffer)
        count = (buffer - 20_000) // len(line)
        found = rows_of(tmp_path / "t.csv", b"a,b\n" + line * count + long + line * 50_000)
        return count + 1 + 50_000 - len(found)

    assert LINES_AT_ONCE % 64 == 0
    assert lost(2**18) == 0
    assert lost(2**18 + 7777) > 0


def test_one_folders_name_changes_no_other(tmp_path: Path, facts: Facts) -> None:
    """Weeks 9 and 10 as folders: were they numbers as long as all are, a folder "x" would turn their order round."""
    table = pq.read_table(tmp_path / "log.parquet").drop_columns(["trajectory"])
    for week in ("9", "10"):
        (tmp_path / f"hive/week={week}").mkdir(parents=True)
        rows = table.append_column("shop", pa.array([i // 3 for i in range(900)]))
        sold = rows.set_column(5, "next_state_0", rows["action_0"]) if week == "9" else rows  # nothing, in week 9
        pq.write_table(sold, tmp_path / f"hive/week={week}/part.parquet")
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 1}
    before = seen(tmp_path, facts, source="hive", trajectory="week")
    (tmp_path / "hive/week=x").mkdir()
    pq.write_table(rows.slice(0, 3).set_column(7, "shop", pa.array([7000] * 3)), tmp_path / "hive/week=x/part.parquet")
    after = seen(tmp_path, facts, source="hive", trajectory="week")
    assert (before.units, after.units) == (300, 301)
    assert (after.counts() - before.counts() >= 0).all()
    assert after.counts().sum() - before.counts().sum() <= 3 * 2


def test_a_query_is_asked_once(tmp_path: Path, facts: Facts) -> None:
    """Whatever it draws: were it asked anew for every count, a repeated step could slip through."""
    query = "SELECT * FROM log UNION ALL SELECT * FROM log WHERE random() < 0.3"
    found = seen(tmp_path, facts, query=query)
    assert found.units == 300
    told = found.counts().reshape(3, 2, -1).sum(axis=-1)
    assert 0 < told[0, 0] < 300  # weeks of which a row was drawn for a second time tell nothing
    assert (told == told[0, 0]).all()  # and the others every day of every product, once
