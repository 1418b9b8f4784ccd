"""The recipe for the sales export of a till."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from poolrl.data.counts import count_outcomes
from poolrl.data.fingerprints import sketch_of
from poolrl.data.log import Columns
from poolrl.data.sources.opening import open_table
from poolrl.privacy.sensitivity import every_level
from poolrl.shop.config_file import load_config
from poolrl.shop.example import write_example
from poolrl.shop.open_log import open_log
from poolrl.shop.sales import from_sales
from poolrl.shop.toml import write_toml

SALES = """shop,date,product,opening,delivery,sales,stock_out
7,2025-03-03,bread,0,10,10,true
7,2025-03-03,milk,2,5,4,false
7,2025-03-04,bread,0,8,5,false
7,2025-03-04,milk,3,4,7,true
7,2025-03-10,bread,1,1,0,false
"""


def rows_of(folder: Path, recipe: dict[str, Any]) -> dict[str, list[Any]]:
    opening, order_up_to, left = (tuple(recipe[part]) for part in ("opening", "order_up_to", "left"))
    columns = Columns("week", "day", opening, order_up_to, left)
    with open_table("sales.csv", columns, query=recipe["query"], folder=folder) as rows:
        return rows.order_by("day").to_pyarrow().to_pydict()


def test_the_recipe_for_a_sales_export_by_hand(tmp_path: Path) -> None:
    """Monday and Tuesday of a week of two days."""
    (tmp_path / "sales.csv").write_text(SALES[: SALES.index("7,2025-03-10")])
    recipe = from_sales(["bread", "milk"], days=2)
    table = rows_of(tmp_path, recipe)
    assert table["week"] == ["shop 7, week of 2025-03-03"] * 2
    assert table["day"] == [1, 2]
    assert (table["bread_opening"], table["milk_opening"]) == ([0, 0], [2, 3])
    assert (table["bread_order_up_to"], table["milk_order_up_to"]) == ([10, 8], [7, 7])
    assert (table["bread_left"], table["milk_left"]) == ([0, 3], [3, 0])


def test_a_week_that_lacks_rows_is_there_and_leaves_them_unobserved(tmp_path: Path) -> None:
    """Whether a week is complete changes no number that is public."""
    (tmp_path / "sales.csv").write_text(SALES)
    table = rows_of(tmp_path, from_sales(["bread", "milk"], days=2))
    assert sorted(set(table["week"])) == ["shop 7, week of 2025-03-03", "shop 7, week of 2025-03-10"]
    (short,) = (i for i, week in enumerate(table["week"]) if week.endswith("10"))
    assert (table["bread_opening"][short], table["milk_opening"][short], table["milk_left"][short]) == (1, None, None)


def test_a_day_that_ran_out_shows_at_least_the_sales(tmp_path: Path) -> None:
    """Five loaves spoilt, three sold, none left: at least three were wanted, and nothing says that it was eight."""
    (tmp_path / "sales.csv").write_text(
        "shop,date,product,opening,delivery,sales,stock_out\n"
        "7,2025-03-03,bread,6,2,3,true\n7,2025-03-04,bread,0,2,4,true\n7,2025-03-05,bread,0,2,2,true\n"
    )
    recipe = from_sales(["bread"], days=2)  # and Wednesday is not asked for
    table = rows_of(tmp_path, recipe)
    assert table["bread_order_up_to"] == [3, 4]
    assert table["bread_left"] == [0, 0]
    assert table["bread_opening"] == [3, 0]


def test_the_recipe_gives_the_log_that_the_sales_came_from(tmp_path: Path) -> None:
    found = []
    for sales in (False, True):
        facts = write_example(tmp_path, sales=sales, seed=3)
        (tmp_path / "poolrl.toml").write_text(write_toml(facts))
        file = load_config(tmp_path / "poolrl.toml")
        with open_log(file) as log:
            assert log.units == (2000 if file.config.privacy.unit is None else log.units)
            counts = count_outcomes(log, file.config.problem.shop, level_sizes=every_level(64))
            found.append((sketch_of(log), [level.tolist() for level in counts.levels]))
    assert found[0] == found[1]


def test_names_with_quotes_survive_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text(SALES.replace("bread", "baker's"))
    recipe = from_sales(["baker's", "milk"], days=2)
    assert set(recipe["left"]) <= set(rows_of(tmp_path, recipe))
