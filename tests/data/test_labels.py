"""Labels of a log: which cell a row is counted in, whatever its column is, and what is public. What they cost:
tests/privacy/test_what_is_paid.py.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales, Table, Trajectories
from poolrl.data.counts import count_outcomes
from poolrl.data.log_labels import LogLabel, cells_of, log_labels
from poolrl.data.row_rules import PARTS
from poolrl.geometry.bins import bin_of
from poolrl.privacy.release import release_outcomes
from poolrl.problems.labels import Labels
from tests.helpers.neighbours import Recorder
from tests.helpers.tables import a_labelled_shop, columns

BINS = 8


def shop(labels: dict[str, Any], **more: Any) -> LostSales:
    return LostSales(**({"horizon": 1, "holding": 1, "shortage": 1, "demand_max": 8.0} | more), labels=labels)


def rows(stock: Any, order: Any, left: Any) -> dict[str, Any]:
    return {"states": np.array(stock), "actions": np.array(order), "next_states": np.array(left)}


ONE_ROW = rows([[[0.0]]], [[[4.0]]], [[[2.0]]])


def by_rows(problem: LostSales, log: Trajectories) -> Any:
    """Leaves of lost sales in multiples of a scale and of a label cell's bound, by the documented rules."""
    found = np.zeros((*problem.labels.shape, 2, 2, 2 * BINS), dtype=np.int64)
    shares = problem.bound_share.reshape(*problem.labels.shape, 2)
    stores, promos = log.labels["store"], log.labels["promo"]
    for n, h, i in np.ndindex(len(log), 2, 2):
        if stores[n] not in (1.0, 2.0, 7.0) or promos[n, h] not in ("no", "it's on"):
            continue
        cell = (1.0, 2.0, 7.0).index(stores[n]), ("no", "it's on").index(promos[n, h])
        scale = log.scale[n, h, i]  # type: ignore[index]
        if not 1e-50 <= scale * shares[cell][i] <= 1e50:
            continue
        stock, order, left = (float(getattr(log, part)[n, h, i] / (scale * shares[cell][i])) for part in PARTS)
        # More than can be left, less than nothing sold, or an order below the stock.
        slack = 1e-9 * problem.outcome_high[i]
        if order < stock - slack or left > order + slack or min(stock, order, left) < -slack:
            continue
        top = float(problem.outcome_high[i])
        sold = order - left
        cut = left <= 1e-9 * top or sold >= top
        leaf = int(bin_of(np.array(sold / top), BINS))
        found[(*cell, h, i, leaf + BINS * cut)] += 1
    return found


def test_rows_are_counted_in_the_cell_of_their_labels() -> None:
    """By arrays and by an engine, against a count row by row: labels of two kinds, scales, bounds by store."""
    problem, log = a_labelled_shop(trajectories=250)
    expected = by_rows(problem, log)
    assert expected.sum() > 100
    table = Table(log.to_arrow(), **columns(2, scale=["scale_0", "scale_1"], labels=["store", "promo"]))
    table.check(problem)
    for each in (log, table):
        np.testing.assert_array_equal(each.outcome_leaves(problem, bins=BINS), expected)


@pytest.mark.parametrize("public", [False, True])
def test_every_slot_is_somewhere(public: bool) -> None:
    """Seen, cut off or unobserved: together the slots of each label cell, or of all where labels are protected."""
    problem, log = a_labelled_shop(trajectories=90)
    log = Trajectories(**log._arguments() | {"labels_public": public})
    assert (log.facts.label_names, log.facts.step_labels) == (("store", "promo"), ("promo",))
    counts = count_outcomes(log, problem, level_sizes=(1, 2, 8))
    for level, size in zip(counts.levels, (1, 2, 8), strict=True):
        assert level.shape == (3, 2, 2, 2, 2, size)
        there = level.sum(axis=(-1, -2))
        if public:
            totals = log.label_totals(problem)
            np.testing.assert_array_equal(counts.totals, totals)
            np.testing.assert_array_equal(there + counts.unobserved, np.stack([totals, totals], axis=-1))
        else:
            assert counts.totals is None
            np.testing.assert_array_equal(there.sum(axis=(0, 1)) + counts.unobserved, np.full((2, 2), 90))
        # Each range is the sum of its halves, which lie side by side.
        np.testing.assert_array_equal(level, counts.levels[-1].reshape(*level.shape, -1).sum(axis=-1))
    assert there.sum() > 20


def test_public_labels_have_public_totals() -> None:
    """Worked by hand: three weeks, and one of a store that nobody declared."""
    problem = shop({"store": ["a", "b"]}, boundary=0.5)
    log = Trajectories(
        **rows([[[0.0]]] * 4, [[[4.0]], [[8.0]], [[4.0]], [[4.0]]], [[[1.0]]] * 4),
        labels={"store": ["b", "b", "a", "elsewhere"]},
        labels_public=True,
    )
    table = Table(log.to_arrow(), **columns(1, labels=["store"]), labels_public=True)
    for each in (log, table):
        released = release_outcomes(each, problem, level_sizes=(1, 2), rho=1.0, noise=Recorder())
        assert released.totals is not None
        assert released.unobserved is not None
        assert released.totals.tolist() == [[1], [2]]
        assert released.unobserved.tolist() == [[[0]], [[1]]]  # of b, the order of 8 lies beyond λ
        assert released.total == 4
        assert released.guarantee.labels == "public"
        # 2 labels × (2 kinds × 3 nodes + 1), and 2 H k L c² with L = 2 whatever the labels.
        assert released.guarantee.mechanisms[0].cells == 2 * 7
        assert released.guarantee.mechanisms[0].sensitivity_squared == 4
    protected = Trajectories(**{n: getattr(log, n) for n in PARTS}, labels=log.labels)
    released = release_outcomes(protected, problem, level_sizes=(1, 2), rho=1.0, noise=Recorder())
    assert released.totals is None
    assert released.unobserved is not None
    assert released.unobserved.tolist() == [[2]]
    assert released.guarantee.labels == "protected"
    assert released.guarantee.mechanisms[0].cells == 2 * 6 + 1


# Columns of labels.


def spoilt(numbers: Any) -> pa.Table:
    """One trajectory of one step for each value of a label."""
    many = len(numbers)
    zeros, full = np.zeros(many), np.full(many, 8.0)
    made = {"trajectory": np.arange(many), "step": np.zeros(many, dtype=np.int64)}
    made |= {"state_0": zeros, "action_0": full, "next_state_0": zeros + 2.0}
    return pa.table({**made, "label": numbers})


@pytest.mark.parametrize(
    ("declared", "given", "found"),
    [
        ([0, 1, 2**53], pa.array([0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), None, 2.0**53]), [2, 1, 1]),
        ([0, 1], pa.array([True, False, True, None]), [1, 2]),
        (["a", "b'c", "ü"], pa.array(["a", "b'c", "ü", "A", "a ", "", None, "ü"]), [1, 1, 2]),
        ([-1, 0], pa.array([0, 2**64 - 1, None], pa.uint64()), [0, 1]),
        ([2**53, 2**53 + 2], pa.array([2**53, 2**53 + 1, 2**53 + 2]), [2, 1]),
        ([2**53 + 1], pa.array([2**53]), [1]),  # the nearest double of both
        ([0.1, 1.5], pa.array(["0.1", "1.5", " 1.50", "1", "x", None]), [1, 2]),
        ([0.1, 1.5], pa.array([0.1, 1.5, 1.0, 1.5]), [1, 2]),
    ],
    ids=["doubles", "truth values", "text", "unsigned", "large", "odd and large", "numbers in text", "fractions"],
)
def test_labels_of_every_type_are_compared_alike(
    tmp_path: Path, declared: Any, given: pa.Array, found: list[int]
) -> None:
    """By arrays, by an engine, and from Parquet, whose statistics pass over NaN."""
    problem, named, table = shop({"label": declared}), columns(1, labels=["label"]), spoilt(given)
    pq.write_table(table, tmp_path / "log.parquet")
    in_file = ibis.duckdb.connect().read_parquet(tmp_path / "log.parquet")
    for log in (Trajectories.from_table(table, **named), Table(table, **named), Table(in_file, **named)):
        log.check(problem)
        assert log.outcome_leaves(problem, bins=2).sum(axis=(1, 2, 3)).tolist() == found
        assert log.label_totals(problem).ravel().tolist() == found


# Labels of arrays.


def label(given: Any) -> LogLabel:
    return LogLabel.of("store", given)


NAN = math.nan


@pytest.mark.parametrize(
    ("given", "read", "codes"),
    [
        (np.array(["b", "a", "b"]), ["b", "a", "b"], [1, 0, 1]),
        (np.array([2.0, NAN, 1.0, np.inf, -np.inf]), [2.0, NAN, 1.0, NAN, NAN], [2, 0, 1, 0, 0]),
        (np.array([True, False]), [1.0, 0.0], [1, 0]),
        # A list with a missing value is one of objects. Numbers that single precision cannot tell apart are two values.
        ([2**24, 2**24 + 1, None, 0.1], [2.0**24, 2.0**24 + 1, NAN, 0.1], [0, 1, 2, 3]),
        ([5, "5", None, 5.0, NAN, "5"], [5.0, "5", None, 5.0, None, "5"], [0, 1, 2, 0, 2, 1]),
        (["x", "y", "x"], ["x", "y", "x"], [0, 1, 0]),
        ((5, "5"), [5.0, "5"], [0, 1]),
        ([[1, 2], [2, 1]], [[1.0, 2.0], [2.0, 1.0]], [[0, 1], [1, 0]]),
    ],
)
def test_values_and_codes(given: Any, read: Any, codes: Any) -> None:
    """As it was given: missing is NaN among numbers, and None elsewhere."""
    found = label(given)
    assert (found.codes.tolist(), found.codes.dtype) == (codes, np.int64)
    assert found.array().dtype in (np.float64, object)
    np.testing.assert_array_equal(found.array(), np.array(read, dtype=found.array().dtype))


STORES = Labels({"store": [1, 2, 7], "promo": ["no", "yes"]})


def test_cells_by_hand() -> None:
    """store · 2 + promo; what is missing or not declared in either label is nowhere, also if the other one is fine."""
    given = log_labels(
        {"store": [1, 7, 3, None], "promo": [["no", "yes"], ["yes", "?"], ["no", "no"], ["no", "yes"]]}, (4, 2)
    )
    for each in (given, {"promo": given["promo"], "store": given["store"]}):
        assert cells_of(STORES, each, (4, 2)).tolist() == [[0, 1], [5, -1], [-1, -1], [-1, -1]]
    assert cells_of(Labels({}), {}, (2, 3)).tolist() == [[0] * 3] * 2


def test_the_type_of_an_array_must_be_that_of_the_declared_values() -> None:
    assert label(np.array([7.0, 3.0, 1.0])).places(STORES, "store").tolist() == [2, -1, 0]
    assert LogLabel.of("promo", np.array(["yes", "x"])).places(STORES, "promo").tolist() == [1, -1]
    with pytest.raises(ValueError, match="label 'store' must hold numbers, as declared"):
        label(np.array(["7"])).places(STORES, "store")
    with pytest.raises(ValueError, match="label 'promo' must hold text, as declared"):
        LogLabel.of("promo", np.array([1.0])).places(STORES, "promo")


def test_one_trajectorys_label_does_not_decide_how_others_are_read() -> None:
    """NumPy makes text of a list of numbers and text, and objects of it if a None is in it."""
    problem, zero = shop({"store": ["1", "2"]}), np.zeros((30, 1, 1))

    def leaves(last: Any) -> Any:
        log = Trajectories(**rows(zero, zero + 8, zero + 5), labels={"store": [1] * 28 + ["1", last]})
        return log.outcome_leaves(problem, bins=4)

    assert leaves("2").sum() == 2  # 1 is not "1"
    for other in (None, 7, 10**400, b"2", object()):
        assert np.abs(leaves("2") - leaves(other)).sum() == 1


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


def test_labels_are_checked_by_name_before_a_row_is_read() -> None:
    bad = rows([[[0.0]]], [[[900.0]]], [[[950.0]]])  # such a row would be refused
    plain, labelled = shop({}), shop({"store": [1]})
    with_labels, without = Trajectories(**bad, labels={"store": [1]}), Trajectories(**bad)
    for log in (with_labels, Table(with_labels.to_arrow(), **columns(1, labels=["store"]))):
        with pytest.raises(ValueError, match=r"labels must be those of the problem \(none\), got store"):
            log.check(plain)
    for log in (without, Table(without.to_arrow(), **columns(1))):
        with pytest.raises(ValueError, match=r"labels must be those of the problem \(store\), got none"):
            log.check(labelled)
    with pytest.raises(ValueError, match="actions must lie within the public bounds"):
        with_labels.check(labelled)


def test_what_labels_need() -> None:
    with pytest.raises(ValueError, match="labels_public needs labels"):
        Trajectories(**ONE_ROW, labels_public=True)
    with pytest.raises(ValueError, match="labels must be a list of column names, got the text 'store'"):
        Table(spoilt(pa.array([1])), **columns(1, labels="store"))
