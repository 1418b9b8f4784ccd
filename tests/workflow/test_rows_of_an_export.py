"""The sales recipe reads every row without failing, and no row decides about another week or how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl.data.sources.engine import answer
from poolrl.workflow.open_log import open_log
from tests.helpers.exports import configured, export_facts, write_export

# Two shops, two weeks of two days, two products.
DATES = ("2025-03-03", "2025-03-04", "2025-03-10", "2025-03-11")
ROWS = [
    (shop, date, product, "2", "5", "4", "false") for shop in "78" for date in DATES for product in ("bread", "milk")
]
NUMBERS = [
    "0",
    "3",
    "-1",
    "",
    "x",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1e308",
    "1e999",
    "NULL",
    "1,5",
    "７",
    "0x10",
    "true",
]
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
    _, weeks = columns_of_weeks(tmp_path, ROWS)
    plain = weeks["shop 7, week of 2025-03-03"]
    first = ROWS[0]
    for rows in (
        ROWS[1:],
        [first, *ROWS],
        [(*first[:3], "x", *first[4:]), *ROWS[1:]],
        [(*first[:5], "", first[6]), *ROWS[1:]],
        [(*first[:6], "ja"), *ROWS[1:]],
        [(*first[:6], ""), *ROWS[1:]],
    ):
        units, changed = columns_of_weeks(tmp_path, rows)
        assert units == 4
        week = changed["shop 7, week of 2025-03-03"]
        assert week.pop((1, "bread"), ("None",) * 3) == ("None",) * 3
        assert week == {cell: value for cell, value in plain.items() if cell != (1, "bread")}


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
