"""One line of a file, one folder, one draw of a query: it changes what is read of itself, and of no other unit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.helpers.shops import Facts
from tests.helpers.sources import seen


@pytest.mark.parametrize("query", [None, pytest.param("FROM log", marks=pytest.mark.slow)], ids=["file", "query"])
def test_one_line_of_a_csv_changes_no_other(tmp_path: Path, facts: Facts, query: str | None) -> None:
    """A quote that is not closed, a comment, a number of another kind, too many commas: that line, and no other."""
    table = pq.read_table(tmp_path / "log.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "log.csv")
    lines = (tmp_path / "log.csv").read_text().splitlines()
    whole = seen(tmp_path, facts, source="log.csv", query=query)
    assert whole == seen(tmp_path, facts)
    fields = lines[301].split(",")
    odd = f"{fields[0]},oops" + ",1.5" * 6
    for bad in ('"' + lines[301], '"a"b,' + lines[301], "# a note", "", ",", "x," * 40, "\r", odd):
        (tmp_path / "log.csv").write_text("\n".join([*lines[:301], bad, *lines[302:]]) + "\n")
        found = seen(tmp_path, facts, source="log.csv", query=query)
        assert found.units in (300, 301)  # a line may name a week of its own
        assert found.counts().sum() in (whole.counts().sum() - 2, whole.counts().sum()), bad  # one day's products
        assert (found.counts() <= whole.counts()).all()


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
