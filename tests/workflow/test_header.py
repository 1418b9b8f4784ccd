"""What columns may mean, by their names alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl.workflow.column_names import MEANINGS, meanings_of
from poolrl.workflow.config.answers import propose_columns


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("STORE_ID", "shop"),
        ("Filialnummer", "shop"),
        ("Kalendertag", "date"),
        ("artikel-nr.", "product"),
        ("Eroeffnungsbestand", "opening"),
        ("ERÖFFNUNGSBESTAND", "opening"),
        ("Zugaenge", "delivery"),
        ("Verkaufte  Menge", "sales"),
        ("Out of stock?", "stock_out"),
        ("Stockout", "stock_out"),
        ("geoeffnet", "open"),
        ("Promo", "promotion"),
        ("StateHoliday", "holiday"),
    ],
)
def test_a_name_has_one_meaning(name: str, meaning: str) -> None:
    assert {each: names for each, names in meanings_of([name]).items() if names} == {meaning: [name]}


def test_a_column_without_a_name_means_nothing() -> None:
    """Not even a label that no list of words knows."""
    assert meanings_of(["", "?"], {"colour": "", "shop": "shop,"}) == {"colour": [], "shop": []}


def test_no_word_has_two_meanings() -> None:
    for meaning, words in MEANINGS.items():
        for word in words.split(","):
            assert [each for each, names in meanings_of([word]).items() if names] == [meaning], word


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_that_explains_most(tmp_path: Path, delimiter: str) -> None:
    """Names with commas or semicolons in quotes are no second delimiter."""
    names = ["shop", "date", '"a,b;c"', "sales"]
    (tmp_path / "x.csv").write_bytes(delimiter.join(names).encode() + b"\n\xff\xff\n")
    found = propose_columns(tmp_path / "x.csv", delimiter=None, encoding="utf-8")
    assert (found.delimiter, found.only("sales"), found.only("opening")) == (delimiter, "sales", None)


def test_a_parquet_file_has_a_schema(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Filiale": [1], "Markt": [2], "Absatz": [3]}), tmp_path / "x.parquet")
    found = propose_columns(tmp_path / "x.parquet", delimiter=None, encoding="utf-8")
    assert (found.only("sales"), found.only("shop"), found.columns["shop"]) == ("Absatz", None, ["Filiale", "Markt"])
