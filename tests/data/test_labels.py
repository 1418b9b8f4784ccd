"""Labels of a log: which cell a row is counted in, who may change them, and that they cost nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import Guarantee, LostSales, SeededNoise, Table, Trajectories, Zones
from poolrl.data.counts import count_outcomes
from poolrl.data.log import Columns
from poolrl.data.sources.opening import open_source
from poolrl.geometry.bins import bin_of
from poolrl.privacy.release import release_outcomes, release_visits
from tests.helpers.neighbours import (
    LABELS,
    PROMOS,
    STORES,
    Recorder,
)
from tests.helpers.tables import assert_same_labelled_counts, columns

SIZES = (1, 4, 16)
SHOP = LostSales(horizon=2, holding=1, shortage=1, demand_max=10.0, labels=LABELS)
OWN_BOUNDS = LostSales(
    horizon=2, holding=1, shortage=1, demand_max=np.array([10.0, 5.0, 1.0]).reshape(3, 1, 1), labels=LABELS
)


def rows(stock: Any, order: Any, left: Any) -> dict[str, Any]:
    return {"states": np.array(stock), "actions": np.array(order), "next_states": np.array(left)}


def a_log(rng: np.random.Generator, trajectories: int = 500, **more: Any) -> Trajectories:
    """Stores 1 to 4 for whole trajectories, promotions by step; some values undeclared or missing."""
    shape = (trajectories, 2, 1)
    order = rng.integers(0, 101, shape) / 10
    labels = {"promo": rng.choice(PROMOS, shape[:2]), "store": rng.integers(1, STORES + 1, trajectories)}
    left = order * rng.random(shape) * (rng.random(shape) < 0.7)
    return Trajectories(**rows(order / 2, order, left), labels=labels, **more)


def by_hand(log: Trajectories, problem: LostSales, *, bins: int) -> Any:
    """The leaves, one row after the other."""
    leaves = np.zeros((3, 2, 2, 1, 2 * bins), dtype=np.int64)
    for i in range(len(log)):
        for step in range(2):
            store, promo = log.labels["store"][i], log.labels["promo"][i, step]
            if store == 4 or promo is None:
                continue
            cell = int(store) - 1, ["no", "yes"].index(promo), step, 0
            share = problem.bound_share[cell[0], cell[1], 0]
            order, left = log.actions[i, step, 0] / share, log.next_states[i, step, 0] / share
            sold = min(order - left, 10.0)
            cut_off = left <= 1e-8 or order - left >= 10.0
            leaves[cell][int(bin_of(np.array(sold / 10.0), bins)) + bins * cut_off] += 1
    return leaves


@pytest.mark.parametrize("problem", [SHOP, OWN_BOUNDS], ids=["one bound", "a bound for each store"])
def test_rows_are_counted_in_the_cell_of_their_labels(problem: LostSales) -> None:
    log = a_log(np.random.default_rng(0))
    expected = by_hand(log, problem, bins=16)
    assert 0 < expected.sum() < 1000
    np.testing.assert_array_equal(log.outcome_leaves(problem, bins=16), expected)
    table = Table(log.to_arrow(), **columns(1, labels=["store", "promo"]))
    table.check(problem)
    np.testing.assert_array_equal(table.outcome_leaves(problem, bins=16), expected)
    counts = count_outcomes(log, problem, level_sizes=SIZES)
    assert [level.shape for level in counts.levels] == [(3, 2, 2, 1, 2, size) for size in SIZES]
    np.testing.assert_array_equal(counts.unobserved, 500 - expected.sum(axis=(0, 1, 4)))
    assert counts.totals is None


def test_duckdb_counts_labels_and_multiples_like_arrays() -> None:
    assert_same_labelled_counts(lambda table: table)


def test_public_labels_have_public_totals() -> None:
    """Worked by hand: three weeks, of which one is of a store that nobody declared."""
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"store": ["a", "b"]}, boundary=0.5)
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
    protected = Trajectories(**{n: getattr(log, n) for n in ("states", "actions", "next_states")}, labels=log.labels)
    released = release_outcomes(protected, problem, level_sizes=(1, 2), rho=1.0, noise=Recorder())
    assert released.totals is None
    assert released.unobserved is not None
    assert released.unobserved.tolist() == [[2]]
    assert released.guarantee.labels == "protected"
    assert released.guarantee.mechanisms[0].cells == 2 * 6 + 1


def spoilt(numbers: Any, **texts: Any) -> pa.Table:
    """One trajectory of one step for each value of a label."""
    many = len(numbers)
    zeros, full = np.zeros(many), np.full(many, 8.0)
    made = {"trajectory": np.arange(many), "step": np.zeros(many, dtype=np.int64)}
    made |= {"state_0": zeros, "action_0": full, "next_state_0": zeros + 2.0}
    return pa.table({**made, "label": numbers, **texts})


@pytest.mark.parametrize(
    ("declared", "given", "found"),
    [
        ([0, 1, 2**53], pa.array([0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), None, 2.0**53]), [2, 1, 1]),
        ([1, 7], pa.array([1, 7, 7, 3, None]), [1, 2]),
        ([0, 1], pa.array([True, False, True, None]), [1, 2]),
        (["a", "b'c", "ü"], pa.array(["a", "b'c", "ü", "A", "a ", "", None, "ü"]), [1, 1, 2]),
        (["a", "b"], pa.array(["a", "b", "b", None]).dictionary_encode(), [1, 2]),
        ([0.5], pa.array([0.5, 0.25, 0.5]), [2]),
        ([-1, 0, 1], pa.array([-1.0, -0.0, 0.5, 1.0, 1e-20, 1e300, float("nan"), float("-inf"), None]), [1, 1, 1]),
        ([3, 4], pa.array([3, 4, 4, 5, -(2**63), 2**63 - 1, None]), [1, 2]),
        ([-1, 0], pa.array([0, 2**64 - 1, None], pa.uint64()), [0, 1]),
        ([200, 201, 300], pa.array([200, 201, 44], pa.uint8()), [1, 1, 0]),
        ([127, 128], pa.array([127, -128, None], pa.int8()), [1, 0]),
        ([2**53, 2**53 + 2], pa.array([2**53, 2**53 + 1, 2**53 + 2]), [2, 1]),
    ],
    ids=[
        "doubles",
        "integers",
        "truth values",
        "text",
        "dictionary",
        "fractions",
        "consecutive doubles",
        "consecutive integers",
        "unsigned",
        "gap",
        "beyond the type",
        "large",
    ],
)
def test_labels_of_every_type_are_compared_alike(declared: Any, given: pa.Array, found: list[int]) -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"label": declared})
    named, table = columns(1, labels=["label"]), spoilt(given)
    logs = [Trajectories.from_table(table, **named), Table(table, **named)]
    for log in logs:
        log.check(problem)
        assert log.outcome_leaves(problem, bins=2).sum(axis=(1, 2, 3)).tolist() == found
        assert log.label_totals(problem).ravel().tolist() == found


def test_labels_in_a_csv_file(tmp_path: Path) -> None:
    """Every column of it is text: a text label stays as it is written, and a number is read row by row."""
    lines = ["week,day,x,y,left,store,size", "a,0,0,8,2,007,1", "b,0,0,8,2,007,1.0", "c,0,0,8,2,7,many", "d,0,0,8,2,,2"]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    names: dict[str, Any] = {"states": ("x",), "actions": ("y",), "next_states": ("left",)}
    for labels, found in (({"shop": "store"}, [2, 1]), ({"how large": "size"}, [2, 1])):
        (name,) = labels
        declared = {"shop": ["007", "7"], "how large": [1, 2]}[name]
        problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={name: declared})
        with open_source(str(tmp_path / "log.csv"), Columns("week", "day", **names, labels=labels)) as opened:
            log = Table(opened.rows, trajectory="week", step="day", **names, labels=labels)
            log.check(problem)
            assert log.outcome_leaves(problem, bins=2).sum(axis=(1, 2, 3)).tolist() == found


def test_a_store_may_be_the_unit_and_a_label() -> None:
    table = spoilt(pa.array(["a", "a", "b", "c"]))
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"store": ["a", "b"]})
    named = columns(1, unit="label", max_per_unit=2, labels={"store": "label"})
    for log in (Trajectories.from_table(table, **named), Table(table, **named)):
        assert log.slots == 6
        assert log.outcome_leaves(problem, bins=2).sum(axis=(1, 2, 3)).tolist() == [2, 1]


def test_statistics_of_parquet_do_not_decide_what_a_label_is(tmp_path: Path) -> None:
    numbers = pa.array([1.0, float("nan"), 1.0, 2.0])
    pq.write_table(spoilt(numbers), tmp_path / "log.parquet")
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"label": [1, 2]})
    log = Table(ibis.read_parquet(tmp_path / "log.parquet"), **columns(1, labels=["label"]))
    assert log.outcome_leaves(problem, bins=2).sum(axis=(1, 2, 3)).tolist() == [2, 1]


def test_labels_are_translated_for_engines_that_are_not_here() -> None:
    numbers = {f"{part}_0": "float64" for part in ("state", "action", "next_state", "scale")}
    kinds = {"trajectory": "string", "step": "int64", "store": "int64", "promo": "string"} | numbers
    table = Table(ibis.table(kinds, name="log"), **columns(1, labels=["store", "promo"], scale=["scale_0"]))
    table.check(OWN_BOUNDS)
    expression = table.outcome_expression(OWN_BOUNDS, bins=16)
    for engine in ("bigquery", "snowflake", "databricks", "trino", "postgres"):
        assert "GROUP BY" in ibis.to_sql(expression, dialect=engine)


def test_labels_survive_tables_and_clipping() -> None:
    log = a_log(np.random.default_rng(2), 60, unit=np.arange(60) // 3, max_per_unit=2, labels_public=True)
    named = columns(1, unit="unit", max_per_unit=2, labels=["store", "promo"], labels_public=True)
    for other in (
        Trajectories.from_table(log.to_arrow(), **named),
        log.clipped(OWN_BOUNDS),
    ):
        assert set(other.facts.label_names) == {"store", "promo"}
        assert other.facts.labels_public
        np.testing.assert_array_equal(other.label_totals(SHOP), log.label_totals(SHOP))
        np.testing.assert_array_equal(
            other.outcome_leaves(OWN_BOUNDS, bins=16), log.outcome_leaves(OWN_BOUNDS, bins=16)
        )


def test_labels_are_checked_by_name_before_a_row_is_read() -> None:
    bad = rows([[[0.0]]], [[[900.0]]], [[[950.0]]])  # such a row would be refused
    plain = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0)
    labelled = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"store": [1]})
    with_labels = Trajectories(**bad, labels={"store": [1]})
    for log in (with_labels, Table(with_labels.to_arrow(), **columns(1, labels=["store"]))):
        with pytest.raises(ValueError, match=r"labels must be those of the problem \(none\), got store"):
            log.check(plain)
        with pytest.raises(ValueError, match="labels and a scale need outcome counts"):
            release_visits(log, labelled, Zones(2).partition(labelled), rho=1.0, noise=SeededNoise(0))
    without = Trajectories(**bad)
    for log in (without, Table(without.to_arrow(), **columns(1))):
        with pytest.raises(ValueError, match=r"labels must be those of the problem \(store\), got none"):
            log.check(labelled)
    with pytest.raises(ValueError, match="actions must lie within the public bounds"):
        with_labels.check(labelled)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"store": [1, 2]}, "label 'store' must have one value per trajectory, or one per trajectory and step"),
        ({"store": [[1], [2], [3, 4]]}, "label 'store' must have one value per trajectory"),
        ({"store": np.array(["2026-01-01"], dtype="datetime64")}, "label 'store' must hold numbers or text"),
    ],
)
def test_labels_of_the_wrong_shape_or_kind(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Trajectories(**rows([[[0.0]]], [[[4.0]]], [[[2.0]]]), labels=labels)


def test_what_labels_need() -> None:
    one = rows([[[0.0]]], [[[4.0]]], [[[2.0]]])
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"store": ["a"]})
    with pytest.raises(ValueError, match="labels_public needs labels"):
        Trajectories(**one, labels_public=True)
    with pytest.raises(ValueError, match="label 'store' must hold text, as declared"):
        Trajectories(**one, labels={"store": np.array([7])}).outcome_leaves(problem, bins=2)
    for kind in (pa.array([1.5]), pa.array([0], pa.date32())):
        with pytest.raises(ValueError, match="label 'label' must hold text, as declared, but its column has type"):
            Table(spoilt(kind), **columns(1, labels=["label"])).check(
                LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"label": ["a"]})
            )
    with pytest.raises(ValueError, match="labels must be a list of column names, got the text 'store'"):
        Table(spoilt(pa.array([1])), **columns(1, labels="store"))
    log = Trajectories(**one, labels={"store": ["a"]})
    with pytest.raises(AttributeError):
        log.facts.labels_public = True  # type: ignore[misc]
    assert not log.is_full


def test_the_guarantee_says_whether_labels_are_protected() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels={"store": ["a"]})
    for public, words in (
        (True, "products) with the same labels, and how many rows"),
        (False, "may have other labels"),
    ):
        log = Trajectories(**rows([[[0.0]]], [[[4.0]]], [[[2.0]]]), labels={"store": ["a"]}, labels_public=public)
        guarantee = release_outcomes(log, problem, level_sizes=(1, 2), rho=1.0, noise=SeededNoise(0)).guarantee
        assert words in str(guarantee)
        assert Guarantee.from_dict(guarantee.to_dict()) == guarantee
