"""Counts inside an engine are those of the arrays, bit for bit; what cannot be used is unobserved, and never fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import Backlog, Grid, LostSales, Pool, SeededNoise, Table, Trajectories, Zones, simulate_log
from poolrl.data.counts import count_outcomes, count_visits
from poolrl.privacy.sensitivity import every_level
from poolrl.problems.inventory import Inventory
from tests.helpers.own_problems import OrderQuantity, PostedPrice, Wear
from tests.helpers.tables import a_mess, a_shop, assert_same_counts, by_hand, columns


@pytest.mark.parametrize("gridded", [False, True], ids=["random", "gridded"])
@pytest.mark.parametrize("kind", [LostSales, Backlog])
def test_duckdb_counts_like_arrays(kind: type[Inventory], gridded: bool) -> None:
    assert_same_counts(lambda table: table, kind, gridded=gridded)


@pytest.mark.parametrize("problem", [PostedPrice(3, lowest_price=10.0), OrderQuantity(3, 2, 0.2, 0.4, cap=60.0)])
def test_your_own_problem_is_counted_by_its_own_formulas(problem: Any) -> None:
    """Feedback on the higher side, and a separable problem where the state matters, as a user writes them."""
    rng = np.random.default_rng(0)
    outcomes = rng.uniform(problem.outcome_low, problem.outcome_high, (400, 3, problem.outcome_dim))
    log = simulate_log(problem, outcomes, rng=rng)
    for clip in (False, True):
        table = Table(log.to_arrow(), **columns(problem.state_dim), clip=clip)
        for expected, found in zip(
            count_outcomes(log, problem, level_sizes=every_level(32)).levels,
            count_outcomes(table, problem, level_sizes=every_level(32)).levels,
            strict=True,
        ):
            np.testing.assert_array_equal(found, expected)


def test_a_problem_without_outcomes_is_counted_by_visits() -> None:
    problem, rng = Wear(2), np.random.default_rng(0)
    state, action = rng.uniform(0, 10, (300, 2, 1)), rng.uniform(0, 10, (300, 2, 1))
    log = Trajectories(states=state, actions=action, next_states=problem.arrive(state, action, rng))
    partition = Grid(8).partition(problem)
    by_array, by_engine = (count_visits(each, partition) for each in (log, Table(log.to_arrow(), **columns(1))))
    np.testing.assert_array_equal(by_engine.pairs, by_array.pairs)


def test_the_published_algorithm_takes_a_table_of_one_product() -> None:
    """A ring of one dimension has one point, which no direction tells apart."""
    problem = LostSales(horizon=2, holding=0.2, shortage=0.4, demand_max=10.0)
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 10, (300, 2, 1)), rng=rng)
    pool = Pool.published(np.inf, 10)
    mine, theirs = (pool.fit(problem, each) for each in (Table(log.to_arrow(), **columns(1)), log))
    np.testing.assert_array_equal(mine.rule.arrays()["q"], theirs.rule.arrays()["q"])


def test_a_formula_that_no_engine_has_is_refused_in_words() -> None:
    class Odd(PostedPrice):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return np.cbrt(action) ** 3, next_state <= 0

    log = Trajectories(states=np.ones((2, 1, 1)), actions=np.ones((2, 1, 1)), next_states=np.ones((2, 1, 1)))
    with pytest.raises(ValueError, match=r"Odd .*cbrt.* give the log as Trajectories"):
        count_outcomes(Table(log.to_arrow(), **columns(1)), Odd(1), level_sizes=every_level(4))


@pytest.mark.parametrize("max_per_unit", [None, 1, 3])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_what_cannot_be_used_is_unobserved(tmp_path: Path, seed: int, max_per_unit: int | None) -> None:
    """From Parquet, whose statistics pass over NaN, and from memory, against a count row by row."""
    problem = LostSales(horizon=3, holding=0.2, shortage=0.4, demand_max=10.0)
    mess = a_mess(np.random.default_rng(seed))
    pq.write_table(mess, tmp_path / "mess.parquet")
    named = columns(1) | ({"unit": "unit", "max_per_unit": max_per_unit} if max_per_unit else {})
    units, leaves = by_hand(mess, bins=16, max_per_unit=max_per_unit)
    assert leaves.sum() > 30
    for source in (mess, ibis.read_parquet(tmp_path / "mess.parquet")):
        table = Table(source, **named)
        assert table.units == units
        counts = count_outcomes(table, problem, level_sizes=every_level(16))
        np.testing.assert_array_equal(counts.levels[-1].reshape(leaves.shape), leaves)
        total = counts.levels[0].sum(axis=(2, 3)) + counts.unobserved
        assert (total == table.slots).all()


def test_a_step_named_twice_is_found_among_many_steps() -> None:
    """Bits are counted thirty steps at a time."""
    horizon = 75
    problem = LostSales(horizon=horizon, holding=0.2, shortage=0.4, demand_max=10.0)
    log = problem.simulate_log(np.full((6, horizon, 1), 4.0), rng=np.random.default_rng(0)).to_arrow()
    steps = np.asarray(log["step"]).copy().reshape(6, horizon)
    steps[1, 74], steps[2, 31], steps[3, :] = 73, 30, 7  # one twice, one twice, one seventy-five times
    log = log.set_column(1, "step", pa.array(steps.ravel()))
    found = Table(log, **columns(1)).outcome_leaves(problem, bins=2)
    np.testing.assert_array_equal(found.sum(axis=(1, 2)), np.full(horizon, 3))


def test_a_fit_takes_a_table_like_trajectories() -> None:
    """Without noise the same policy; with noise the unobserved slots are released too."""
    problem, log = a_shop(LostSales, gridded=True, trajectories=1_000)
    table = Table(log.to_arrow(), **columns(2))
    for pool in (Pool(np.inf), Pool.published(np.inf, 20, scale=0.0)):
        mine, theirs = pool.fit(problem, table), pool.fit(problem, log)
        np.testing.assert_array_equal(mine.rule.arrays().popitem()[1], theirs.rule.arrays().popitem()[1])
    policy = Pool(1.0).fit(problem, table, noise=SeededNoise(1))
    assert policy.guarantee.rho == 1
    assert not policy.guarantee.private
    assert policy.problem is problem


def test_the_expressions_are_translated_for_engines_that_are_not_here() -> None:
    """Translated, which finds a function that an engine lacks; not executed."""
    problem, _ = a_shop(LostSales, gridded=False, trajectories=2)
    numbers = {f"{part}_{i}": "float64" for part in ("state", "action", "next_state") for i in range(2)}
    log = ibis.table({"trajectory": "string", "unit": "string", "step": "int64"} | numbers, name="log")
    table = Table(log, **columns(2, unit="unit", max_per_unit=3))
    for expression in (
        table.outcome_expression(problem, bins=16),
        table.visit_expression(Zones(4).partition(problem)),
        table.visit_expression(Grid(4).partition(problem)),
    ):
        for engine in ("bigquery", "snowflake", "databricks", "trino"):
            assert "GROUP BY" in ibis.to_sql(expression, dialect=engine)


def test_columns_are_checked_by_name_and_kind_alone() -> None:
    problem, log = a_shop(LostSales, gridded=False, trajectories=5)
    table = log.to_arrow()
    with pytest.raises(ValueError, match=r"one column 'stat_0' \(did you mean 'state_0'"):
        Table(table, **columns(2) | {"states": ["stat_0", "state_1"]})
    with pytest.raises(ValueError, match="column 'action_1' must hold numbers"):
        Table(table.set_column(5, "action_1", pa.array(["1"] * 15)), **columns(2))
    with pytest.raises(ValueError, match="states must name 2 columns, got 1"):
        Table(table, **columns(1)).check(problem)
    with pytest.raises(ValueError, match="states must be a list of column names"):
        Table(table, **columns(2) | {"states": "state_0"})
    with pytest.raises(ValueError, match="for files, Table"):
        Table("log.parquet", **columns(2))
    with pytest.raises(ValueError, match=r"log .*got .*DataFrame"):
        Pool(1.0).fit(problem, table.to_pandas())
    with pytest.raises(ValueError, match="max_per_unit needs unit"):
        Table(table, **columns(2, max_per_unit=2))
    with pytest.raises(ValueError, match="the table must not be empty"):
        _ = Table(table.slice(0, 0), **columns(2)).slots
    assert repr(Table(table, **columns(2))) == "Table(sensitive)"
