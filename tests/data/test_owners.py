"""Who owns a trajectory and which label it has, worked by hand for every type that an array can hold."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from poolrl.data.ids import canonical_text, first_of_each, owners
from poolrl.data.log_labels import LogLabel, cells_of, log_labels
from poolrl.problems.labels import Labels

DAY, NOON = dt.date(2024, 3, 1), dt.datetime(2024, 3, 1, 12, 0)
LARGEST = 2**53


@pytest.mark.parametrize(
    "same",
    [
        [7, 7.0, "07", np.int8(7), np.uint64(7), np.float32(7), Decimal("7.00"), Decimal("7"), Fraction(7), "+7"],
        [1, True, np.bool_(True), "1", Decimal(1)],
        [0, False, np.bool_(False), -0.0, "-0", Decimal("-0.0")],
        [LARGEST, float(LARGEST), str(LARGEST), Decimal(LARGEST)],
        [-LARGEST, -float(LARGEST), str(-LARGEST)],
        [10**30, str(10**30), Decimal(10) ** 30],
        [
            DAY,
            dt.datetime(2024, 3, 1),
            np.datetime64("2024-03-01"),
            np.datetime64("2024-03-01T00:00:00.000"),
            "2024-03-01",
        ],
        [NOON, np.datetime64("2024-03-01T12:00:00"), "2024-03-01 12:00:00"],
        [dt.datetime(2024, 3, 1, 0, 0, 1), "2024-03-01 00:00:01"],
        [Decimal("7.5"), "7.5"],
        [uuid.UUID(int=5), str(uuid.UUID(int=5)).upper()],
    ],
)
def test_entries_that_spell_one_unit(same: list[Any]) -> None:
    entries = [*same, "another", same[0]]
    assert owners(entries, len(entries)).tolist() == [0] * len(same) + [1, 0]


@pytest.mark.parametrize(
    "bad",
    [
        *(None, float("nan"), float("inf"), -float("inf"), 7.5, LARGEST * 2.0, -LARGEST * 2.0, np.float64(LARGEST + 2)),
        *("", " ", "1e3", "7.50", b"7", [1], np.datetime64("NaT"), Decimal("NaN"), Decimal("Infinity"), 1j),
    ],
)
def test_entries_that_are_no_ids(bad: Any) -> None:
    entries = np.empty(2, dtype=object)
    entries[:] = ["x", bad]
    with pytest.raises(ValueError, match="missing ids, or values that are not ids"):
        owners(entries, 2)


def test_units_must_be_one_for_each_trajectory() -> None:
    for bad in ([1], [[1, 2]], 7, [np.zeros((2, 1)), np.zeros((2, 2))]):
        with pytest.raises(ValueError, match="unit must hold one id per trajectory"):
            owners(bad, 2)


def test_units_are_numbered_as_the_array_has_them() -> None:
    """Numbers in their own order, others in the order in which they come first; text arrays in the order of text."""
    assert owners(np.array([9, 3, 9, 5]), 4).tolist() == [2, 0, 2, 1]
    assert owners(np.array([True, False, True]), 3).tolist() == [1, 0, 1]
    assert owners(np.array([3, 1], dtype=np.uint8), 2).tolist() == [1, 0]
    assert owners(["b", "a", "b"], 3).tolist() == [0, 1, 0]
    assert owners(("b", "a", "b"), 3).tolist() == [0, 1, 0]
    assert owners(np.array(["b", "a", "B "]), 3).tolist() == [0, 1, 0]  # "B " comes first
    for found in (owners(np.array([9, 3]), 2), owners(["b", "a"], 2), owners(np.array(["b", "a"]), 2)):
        assert found.dtype == np.int64
    # One entry does not decide how the others are read: NumPy alone would make all of them text.
    assert owners([True, "x", 1], 3).tolist() == [0, 1, 0]
    for wrong in ([1, 2], [[1], [2], [3]], np.zeros((3, 1)), 7):
        with pytest.raises(ValueError, match="unit must hold one id per trajectory"):
            owners(wrong, 3)


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_the_first_of_each_unit_are_kept(most: int) -> None:
    rng = np.random.default_rng(most)
    owner = np.unique(rng.integers(0, 9, 60), return_inverse=True)[1]
    expected = [list(owner[:place]).count(each) < most for place, each in enumerate(owner)]
    assert first_of_each(owner, most).tolist() == expected


STORES = Labels({"store": [1, 2, 7], "promo": ["no", "yes"]})


def label(given: Any) -> LogLabel:
    return LogLabel.of("store", given)


@pytest.mark.parametrize(
    ("given", "values", "codes"),
    [
        (np.array(["b", "a", "b"]), ["a", "b"], [1, 0, 1]),
        (np.array([2.0, np.nan, 1.0, np.inf, -np.inf]), [1.0, 2.0], [1, -1, 0, -1, -1]),
        (np.array([5, 3, 5], dtype=np.int8), [3.0, 5.0], [1, 0, 1]),
        (np.array([True, False]), [0.0, 1.0], [1, 0]),
        (np.array([2**24 + 1, 2**24]), [2.0**24, 2.0**24 + 1], [1, 0]),
        ([5, "5", None, 5.0, float("nan"), "5"], [5.0, "5"], [0, 1, -1, 0, -1, 1]),
        (["x", "y", "x"], ["x", "y"], [0, 1, 0]),
        (("x", "y", "x"), ["x", "y"], [0, 1, 0]),
        ([], [], []),
        ([[1, 2], [2, 1]], [1.0, 2.0], [[0, 1], [1, 0]]),
    ],
)
def test_values_and_codes(given: Any, values: list[Any], codes: Any) -> None:
    found = label(given)
    assert found.values.tolist() == values
    assert found.codes.tolist() == codes
    assert found.codes.dtype == np.int64
    assert found.one_type is isinstance(given, np.ndarray)
    kinds = {type(value) for value in values} or {float}
    assert found.values.dtype.kind == ("O" if len(kinds) > 1 else "f" if kinds == {float} else "U")
    # As it was given: missing is NaN among numbers, and None elsewhere.
    numbers = found.values.dtype.kind == "f"
    expected = [(np.nan if numbers else None) if code < 0 else values[code] for code in found.codes.ravel()]
    np.testing.assert_array_equal(found.array().ravel(), np.array(expected, dtype=float if numbers else object))
    assert found.array().dtype == (np.float64 if numbers else object)
    taken = found.taken(slice(1))
    assert (taken.codes.tolist(), taken.one_type) == (codes[:1], found.one_type)


def test_labels_of_another_kind_or_shape_are_refused() -> None:
    for bad in (np.array([b"x"]), np.array([1j]), np.array(["2024-01-01"], dtype="datetime64[D]")):
        with pytest.raises(ValueError, match="label 'store' must hold numbers or text"):
            label(bad)
    uneven = [np.zeros((2, 1)), np.zeros((2, 2))]  # NumPy makes no array of it, not even one of objects
    for shape in ([1, 2, 3], [[1], [2]], [[1, 2, 3], [4, 5, 6]], 5, uneven):
        with pytest.raises(ValueError, match="label 'store' must have one value per trajectory"):
            log_labels({"store": shape}, (2, 2))
    found = log_labels({"store": [1, 2], 7: [[1, 2], [3, 4]]}, (2, 2))
    assert list(found) == ["store", "7"]
    assert log_labels(found, (2, 2)) == found


def test_cells_by_hand() -> None:
    """store · 2 + promo; what is missing or not declared in either label is nowhere, also if the other one is fine."""
    given = log_labels(
        {"store": [1, 7, 3, None], "promo": [["no", "yes"], ["yes", "?"], ["no", "no"], ["no", "yes"]]}, (4, 2)
    )
    assert cells_of(STORES, given, (4, 2)).tolist() == [[0, 1], [5, -1], [-1, -1], [-1, -1]]
    swapped = {"promo": given["promo"], "store": given["store"]}
    assert cells_of(STORES, swapped, (4, 2)).tolist() == [[0, 1], [5, -1], [-1, -1], [-1, -1]]
    assert cells_of(Labels({}), {}, (2, 3)).tolist() == [[0] * 3] * 2


def test_the_type_of_an_array_must_be_that_of_the_declared_values() -> None:
    assert label(np.array([7.0, 3.0, 1.0])).places(STORES, "store").tolist() == [2, -1, 0]
    assert LogLabel.of("promo", np.array(["yes", "x"])).places(STORES, "promo").tolist() == [1, -1]
    with pytest.raises(ValueError, match="label 'store' must hold numbers, as declared"):
        label(np.array(["7"])).places(STORES, "store")
    with pytest.raises(ValueError, match="label 'promo' must hold text, as declared"):
        LogLabel.of("promo", np.array([1.0])).places(STORES, "promo")
    # Entry by entry, a list has no type of its own: what does not fit is nowhere.
    assert label(["7", 7]).places(STORES, "store").tolist() == [-1, 2]
    assert label([None, None]).places(STORES, "store").tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        *(
            ("7", "7"),
            ("07", "7"),
            ("+7", "7"),
            ("-7", "-7"),
            ("-07", "-7"),
            ("7.0", "7"),
            ("7.", "7"),
            ("007.00", "7"),
        ),
        *(("0", "0"), ("00", "0"), ("-0", "0"), ("-00", "0"), ("+0", "0"), ("0.0", "0"), ("-0.0", "0"), (".0", None)),
        *(("7.5", "7.5"), ("0.5", ".5"), (".5", ".5"), ("-0.5", "-.5"), ("7.50", None), ("0.10", None), ("10", "10")),
        *(("1e3", None), ("1E3", None), ("1e+3", None), (".5e-3", None), ("-1.e3", None), ("1e", "1e"), ("e3", "e3")),
        *(("x.0", "x"), ("x.00", "x"), ("x.10", "x.10"), ("00x", "x"), ("0-1", "-1"), ("A b", "ab"), ("", None)),
        *(("a-0", "a-0"), ("12-3", "12-3"), ("3/4", "3/4"), ("0/4", "/4"), ("!", "!"), ("é", "?"), ("e\u0301", "?")),
        *(
            ("\uff17", "7"),
            ("\u0667", "7"),
            ("\ufb01", None),
            ("\u00bd", None),
            ("7\n", "7"),
            ("a\n", "a"),
            ("\u200bx", "x"),
        ),
    ],
)
def test_texts_by_hand(text: str, read: str | None) -> None:
    assert canonical_text(text) == read
