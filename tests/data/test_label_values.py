"""Labels: which values may be declared, and in which cell a value stands."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrl import LostSales
from poolrl.problems.labels import Labels


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=5, unique=True), min_size=1, max_size=3), st.data())
def test_cells_count_in_the_order_of_declaration(values: list[list[int]], data: st.DataObject) -> None:
    """The last label runs fastest, as in an array of shape `labels.shape`."""
    labels = Labels({f"label {i}": each for i, each in enumerate(values)})
    places = [data.draw(st.integers(0, len(each) - 1)) for each in values]
    chosen = {f"label {i}": values[i][place] for i, place in enumerate(places)}
    assert labels.count == np.prod(labels.shape)
    assert labels.cells(chosen).item() == np.ravel_multi_index(places, labels.shape)


def test_what_was_not_declared_has_no_cell() -> None:
    labels = Labels({"shop": [7, 1, 2.5], "kind": ["b", "a"]})
    shop, kind = [7, 1, 2.5, 2, np.nan, 7], ["b", "a", "a", "b", "b", None]
    assert labels.cells({"shop": shop, "kind": kind}).tolist() == [0, 3, 5, -1, -1, -1]
    assert labels.places("shop", [1.0, True, -0.0, 1 + 1e-12]).tolist() == [1, 1, -1, -1]
    assert labels.places("kind", np.array(["a", "ab", ""])).tolist() == [1, -1, -1]
    # Arrays broadcast: one shop, and every day of two weeks.
    assert labels.cells({"shop": 1, "kind": np.array([["a", "b"], ["b", "c"]])}).tolist() == [[3, 2], [2, -1]]


def test_no_labels_are_one_cell() -> None:
    nothing = Labels()
    assert (nothing.shape, nothing.count, bool(nothing)) == ((), 1, False)
    assert nothing.cells({}).item() == 0
    assert nothing == Labels({})


def test_values_of_every_kind_are_kept_as_plain_ones() -> None:
    labels = Labels({"shop": np.arange(3), "size": (0.5, 1), "name": np.array(["a", "b"]), "open": range(2)})
    assert labels.facts() == [["shop", [0, 1, 2]], ["size", [0.5, 1]], ["name", ["a", "b"]], ["open", [0, 1]]]
    again = Labels(json.loads(json.dumps(labels.facts(), sort_keys=True)))
    assert again == labels
    assert hash(again) == hash(labels)
    assert Labels(labels.facts()[::-1]) != labels  # another order makes other cells


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "label 'shop' must have values, all numbers or all text"),
        ([1, "a"], "label 'shop' must have values, all numbers or all text"),
        ([1, None], "label 'shop' must have values, all numbers or all text"),
        ([1.0, np.nan], "label 'shop' must have values, all numbers or all text"),
        ([np.inf], "label 'shop' must have values, all numbers or all text"),
        ("north", "label 'shop' must have a list of values, got the text 'north'"),
        ([1, 2, 1], "label 'shop' must not have a value twice"),
        ([1, 1.0], "label 'shop' must not have a value twice"),
        (["a", "a"], "label 'shop' must not have a value twice"),
    ],
)
def test_values_that_cannot_be_declared(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Labels({"shop": values})


def test_cells_stay_countable() -> None:
    with pytest.raises(ValueError, match="labels must make at most 10,000,000 cells, got 16,000,000"):
        Labels({"shop": range(4000), "product": range(4000)})


def test_costs_and_bounds_broadcast_over_labels() -> None:
    """A number, one per label value, or a full table; and what does not fit is refused with the shape it needs."""
    shop = {"shop": [1, 2, 3]}
    facts = {"horizon": 2, "products": 2, "shortage": 1.0}
    problem = LostSales(
        **facts, holding=np.ones((3, 1, 1)), demand_max=[[1.0, 2.0], [4.0, 8.0], [2.0, 8.0]], labels=shop
    )
    assert problem.holding.shape == (3, 2, 2)
    assert problem.demand_max.tolist() == [4.0, 8.0]
    assert problem.bound_share.tolist() == [[0.25, 0.25], [1.0, 1.0], [0.5, 1.0]]
    assert LostSales(**{k: v for k, v in problem.facts().items() if k != "kind"}).facts() == problem.facts()
    with pytest.raises(ValueError, match=r"holding must broadcast to shape \(3, 2, 2\), got shape \(4, 1, 1\)"):
        LostSales(**facts, holding=np.ones((4, 1, 1)), demand_max=1.0, labels=shop)
    with pytest.raises(ValueError, match="demand_max must be positive, got 0"):
        LostSales(**facts, holding=1.0, demand_max=np.array([1.0, 0.0, 1.0])[:, None], labels=shop)
    with pytest.raises(ValueError, match="scale_profile must be positive, got -1"):
        LostSales(**facts, holding=1.0, demand_max=1.0, scale_profile=[[1.0, 1.0], [-1.0, 1.0]])
