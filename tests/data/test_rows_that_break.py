"""No error before payment depends on a row: anything that a row can break is unobserved, or is paid for."""

from __future__ import annotations

import gzip
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import LostSales, Pool, Table
from poolrl.data.sources import log_files
from poolrl.data.sources.duckdb import connected, run_query
from poolrl.data.sources.engine import RowError
from tests.helpers.ledgers import spent
from tests.helpers.neighbours import Recorder
from tests.helpers.shops import Facts, Run, write_config
from tests.helpers.sources import seen, usually_seen

pytestmark = pytest.mark.usefixtures("no_page")

# What one row may hold instead of itself.
BROKEN_ROWS = {
    "no UTF-8": b"\xff\xfe,0,1,1,1,1,1,1",
    "half a character": b"7,0,1,1,1,1,1,\xc3",
    "zero bytes": b"\0\0\0,0,1,1,1,1,1,1",
    "the reader's own separator": b"7\x01,0,1,1,1,1,1,1",
    "longer than a reader's line": b"7" * 3_000_000 + b",0,1,1,1,1,1,1",
    "a carriage return": b"7,0,1\r1,1,1,1,1",
    "nothing": b"",
}


def as_csv(folder: Path) -> list[bytes]:
    """The small shop's log as lines of CSV, the first one the header."""
    pyarrow.csv.write_csv(pq.read_table(folder / "log.parquet"), folder / "log.csv")
    return (folder / "log.csv").read_bytes().splitlines()


@pytest.mark.parametrize("place", [0, 450, 900], ids=["first", "in between", "last"])
def test_broken_rows_are_left_out_by_themselves(tmp_path: Path, facts: Facts, place: int) -> None:
    """Also as the first ones, where a reader would look before anything is paid."""
    expected = usually_seen(tmp_path, facts)
    header, *rows = as_csv(tmp_path)
    rows[place:place] = BROKEN_ROWS.values()
    (tmp_path / "log.csv").write_bytes(b"\n".join([header, *rows, b""]))
    found = seen(tmp_path, facts, source="log.csv")
    assert (found.units, found.leaves) == (expected.units, expected.leaves)


def test_a_fit_with_a_byte_that_is_no_text_succeeds(tmp_path: Path, facts: Facts, run: Run) -> None:
    header, first, *rows = as_csv(tmp_path)
    (tmp_path / "log.csv").write_bytes(b"\n".join([header, b"\xff" + first, *rows, b""]))
    facts["log"]["source"] = "log.csv"
    run("fit", "--new-account", "--config", write_config(tmp_path, facts))
    assert spent(tmp_path) == Fraction(1, 2)


def test_a_packed_file_that_breaks_at_a_row_is_paid_for(tmp_path: Path, facts: Facts, run: Run) -> None:
    """Its header can be read. So what follows is rows, and where they break is one of them."""
    packed = gzip.compress(b"\n".join(as_csv(tmp_path)))
    (tmp_path / "log.csv.gz").write_bytes(packed[: len(packed) * 2 // 3])
    facts["log"]["source"] = "log.csv.gz"
    with pytest.raises(ValueError, match=r"DuckDB refused.*One row may have caused that.*stays spent"):
        run("fit", "--new-account", "--config", write_config(tmp_path, facts))
    assert spent(tmp_path) == Fraction(1, 2)


def header_of(path: Path, content: bytes) -> Any:
    """The names of a header, or the message about it."""
    path.write_bytes(content)
    try:
        return log_files.header_of(str(path))
    except ValueError as error:
        return str(error)


@settings(max_examples=50, deadline=None)
@given(
    header=st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")),
    rows=st.binary(max_size=200),
    end=st.sampled_from([b"\n", b"\r", b"\r\n"]),
    cut=st.integers(0, 100),
)
def test_a_header_is_read_without_its_rows(
    tmp_path_factory: pytest.TempPathFactory, header: bytes, rows: bytes, end: bytes, cut: int
) -> None:
    """Whatever bytes follow, and wherever a packed file is cut off after its header."""
    folder = tmp_path_factory.mktemp("header")
    plain, packed = folder / "log.csv", folder / "log.csv.gz"
    expected = header_of(plain, header + b"\n")
    assert header_of(plain, header + end + rows) == expected
    # Two members: the second may be broken in any way.
    broken = gzip.compress(rows)[cut:]
    alone = header_of(packed, gzip.compress(header + end))
    assert header_of(packed, gzip.compress(header + end) + broken) == alone
    assert str(alone).replace(".gz", "") == str(expected)


def test_a_fault_of_a_packed_file_is_met_at_its_own_byte(tmp_path: Path) -> None:
    """One member of many rows: any byte from the two hundredth on may be wrong."""
    packed = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(300)))
    for place in range(200, len(packed), 7):
        wrong = bytearray(packed)
        wrong[place] ^= 0xFF
        assert header_of(tmp_path / "log.csv.gz", bytes(wrong)) == ("a", "b")


def test_a_header_that_is_no_text_is_refused(tmp_path: Path, facts: Facts, run: Run) -> None:
    """By the header alone, at no cost."""
    _, *rows = as_csv(tmp_path)
    (tmp_path / "log.csv").write_bytes(b"\n".join([b"a,\xff", *rows]))
    facts["log"]["source"] = "log.csv"
    with pytest.raises(ValueError, match=r"not a readable CSV file.*Nothing was spent"):
        run("fit", "--new-account", "--config", write_config(tmp_path, facts))
    assert spent(tmp_path) == 0


def test_reading_the_header_as_text_would_be_caught(tmp_path: Path) -> None:
    """A text reader decodes 8 KB at once, rows and all."""
    (tmp_path / "log.csv").write_bytes(b"a,b\n\xff,1\n")
    assert log_files.header_of(str(tmp_path / "log.csv")) == ("a", "b")
    with pytest.raises(UnicodeDecodeError), open(tmp_path / "log.csv", encoding="utf-8-sig") as text:
        text.readline()


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
        return np.floor(seen), cut


class CastSales(LostSales):
    """The same by a cast."""

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return seen.astype(np.int64).astype(np.float64), cut


@pytest.mark.parametrize("kind", [WholeSales, CastSales])
@pytest.mark.parametrize("known", [{}, {"clip": True}, {"scale": ["usual"]}], ids=str)
def test_no_number_is_too_large_to_be_made_whole(kind: type[LostSales], known: dict[str, Any]) -> None:
    """An engine's cast of a huge number failed, so that one row decided whether there was a release at all."""
    problem = kind(horizon=1, products=1, holding=0.1, shortage=0.4, demand_max=100.0)
    prepared = Pool(1.0).prepare(problem)
    actions, left = [50.0, 50.0, 1e140, -1e149, math.nan, math.inf], [20.0, 20.0, -1e140, 3.0, 1.0, 1.0]
    rows = {"week": range(6), "day": [0] * 6, "stock": [0.0] * 6, "order": actions, "left": left}
    named = {"trajectory": "week", "step": "day", "states": ["stock"], "actions": ["order"], "next_states": ["left"]}
    log = Table(pa.table(rows | {"usual": [1.0, *[1e-50] * 5]}), **named, **known)
    recorder = Recorder()
    prepared.release(log, recorder)
    assert recorder.tables
