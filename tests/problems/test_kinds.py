"""Every kind of the registry: what is promised of one problem is tested for all of them, and for those to come."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import (
    Boundary,
    FirstPriceBidding,
    Grid,
    Policy,
    Pool,
    PrivateModel,
    ReserveAuction,
    SeededNoise,
    Table,
    Trajectories,
    Visits,
    Zones,
    check_problem,
    data_free,
    simulate_log,
)
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import CASES, AuditCase
from poolrl.data.cells import joint_cells
from poolrl.data.check_problem import check_rows
from poolrl.learning.by_count import CountTable
from poolrl.learning.planning import PLANNERS
from poolrl.privacy import sensitivity
from poolrl.privacy.release import release_rows
from poolrl.privacy.sensitivity import joint_table, outcome_trees
from poolrl.problems.problem import OutcomeProblem
from poolrl.problems.registry import KINDS
from poolrl.problems.rounds import DynamicPricing
from poolrl.workflow.trades.trade import TRADES, trade_named
from tests.helpers.neighbours import plant_layout

LABELS: dict[str, Any] = {"item": ["watch", "game"], "house": [1, 2]}
SHOP_FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 1.0, "shortage": 2.0, "demand_max": 9.0}
LEVELS = (1, 2, 4, 8)


def make(name: str, **more: Any) -> OutcomeProblem:
    """A small problem of each kind."""
    kind = KINDS[name]
    return kind(**(dict(kind.example) or SHOP_FACTS), **more)


def a_log(problem: OutcomeProblem, episodes: int, rng: np.random.Generator, *, scaled: bool = False) -> Trajectories:
    """Whatever can happen: uniform outcomes and actions, any labels, and some that nobody declared."""
    shape = (episodes, problem.horizon, problem.outcome_dim)
    outcomes = problem.arranged(rng.uniform(problem.outcome_low, problem.outcome_high, shape))
    known: dict[str, Any] = {}
    if scaled:
        known["scale"] = rng.choice([0.5, 1.0, 7.0, np.nan], (*shape[:2], problem.scale_dim))
        outcomes = outcomes * np.nan_to_num(known["scale"], nan=1.0)
    if problem.labels:
        known["labels"] = {
            "item": rng.choice(["watch", "game", "boat"], episodes),
            "house": rng.choice([1, 2, 3], (episodes, problem.horizon)),
        }
    return simulate_log(problem, outcomes, rng=rng, **known)


def replaced(log: Trajectories, other: Trajectories) -> Trajectories:
    """The log with its first trajectory replaced by that of another one."""
    parts = {
        n: np.concatenate([getattr(other, n)[:1], getattr(log, n)[1:]]) for n in ("states", "actions", "next_states")
    }
    more: dict[str, Any] = {}
    if log.scale is not None and other.scale is not None:
        more["scale"] = np.concatenate([other.scale[:1], log.scale[1:]])
    if log.facts.label_names:
        more["labels"] = {n: np.concatenate([other.labels[n][:1], log.labels[n][1:]]) for n in log.facts.label_names}
    return Trajectories(**parts, **more)


def squared_change(
    problem: OutcomeProblem, first: Trajectories, second: Trajectories, sizes: tuple[int, ...] = LEVELS
) -> int:
    """How far two logs' trees lie apart, over the levels of such sizes."""
    trees = [log.outcome_leaves(problem, bins=LEVELS[-1]) for log in (first, second)]
    moved = (trees[0] - trees[1]).reshape(*trees[0].shape[:-1], problem.kinds, LEVELS[-1])
    return sum(int((moved.reshape(*moved.shape[:-1], size, -1).sum(axis=-1) ** 2).sum()) for size in sizes)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_keeps_its_promises_and_can_be_made_again(name: str) -> None:
    check_problem(make(name))
    assert make(name).planner in PLANNERS
    assert make(name).costs
    assert {*make(name).costs} < make(name).facts().keys()
    for problem in (make(name), make(name, labels=LABELS)):
        check_rows(problem)
        facts = json.loads(json.dumps(problem.facts()))
        assert facts.pop("kind") == type(problem).__name__
        assert type(problem)(**facts).facts() == problem.facts()


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), labelled=st.booleans(), scaled=st.booleans())
def test_one_trajectory_moves_no_more_than_is_paid_for(name: str, seed: int, labelled: bool, scaled: bool) -> None:
    """Δ₂² = 2 H k L of trees and 2 H k of the joint table, in which every row of the trees stands too."""
    problem, rng = make(name, **({"labels": LABELS} if labelled else {})), np.random.default_rng(seed)
    first = a_log(problem, 6, rng, scaled=scaled)
    second = replaced(first, a_log(problem, 1, rng, scaled=scaled))
    paid = outcome_trees(problem, level_sizes=LEVELS, per_unit=1, complete=False).sensitivity_squared
    assert squared_change(problem, first, second) <= paid
    if problem.shows_levels:
        one, other = (each.outcome_leaves(problem, bins=8, formula=joint_cells) for each in (first, second))
        assert ((one - other) ** 2).sum() <= joint_table(problem, bands=8, per_unit=1).sensitivity_squared
        np.testing.assert_array_equal(one.sum(axis=-1), first.outcome_leaves(problem, bins=8).sum(axis=-1))


class TwoKnobs(FirstPriceBidding):
    """A bid, and how much is advertised: of two actions none is the level."""

    def __init__(self) -> None:
        super().__init__(horizon=2, wins=2, worth=2.0, bid_max=4.0, feedback="won")
        self.action_low, self.action_high = np.zeros(2), np.full(2, 4.0)
        self.boundary = Boundary(np.ones((2, 3)))


def test_an_action_of_two_numbers_is_no_level() -> None:
    """A row would stand in two cells of the joint table, and move four times what is paid for."""
    problem = TwoKnobs()
    assert not problem.shows_levels
    with pytest.raises(ValueError, match="counts_down of TwoKnobs must go with one state and one action"):
        check_problem(problem)
    rows = Trajectories(
        states=np.full((3, 2, 1), 2.0), actions=np.ones((3, 2, 2)), next_states=np.full((3, 2, 2), [2.0, 1.0])
    )
    # And if it came so far, rows are not counted.
    with pytest.raises(ValueError, match="one value for each outcome"):
        rows.outcome_leaves(problem, bins=8, formula=joint_cells)


class Boaster(DynamicPricing):
    """A price shows one side of a value, whatever the class says."""

    @property
    def shows_levels(self) -> bool:
        return True


def test_what_follows_from_declarations_cannot_be_replaced() -> None:
    """The noise of the joint table rests on it."""
    with pytest.raises(ValueError, match="shows_levels of Boaster must be that of poolrl"):
        check_problem(Boaster(horizon=2, stock=1, price_max=4.0))


@pytest.mark.parametrize("name", KINDS)
def test_a_row_that_is_counted_twice_would_be_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: rows of one trajectory stand in two label cells, or twice in one."""
    problem = make(name)
    with AuditCase(problem, units=2).logs("arrays") as logs:
        first, second = logs
    paid = outcome_trees(problem, level_sizes=LEVELS[2:], per_unit=1, complete=False).sensitivity_squared
    plain = Trajectories.outcome_leaves
    coarse = squared_change(problem, first, second, LEVELS[2:])
    assert coarse <= paid
    monkeypatch.setattr(Trajectories, "outcome_leaves", lambda log, *a, **k: 2 * plain(log, *a, **k))
    assert squared_change(problem, first, second, LEVELS[2:]) > paid


@pytest.mark.parametrize(("name", "scaled"), [("lost sales", False), *((name, True) for name in KINDS)])
def test_an_engine_counts_what_arrays_count(name: str, scaled: bool) -> None:
    problem = make(name, labels=LABELS)
    log = a_log(problem, 60, np.random.default_rng(5), scaled=scaled)
    rows = log.to_arrow()
    columns: dict[str, Any] = {
        f"{part}s": [each for each in rows.column_names if each.startswith(f"{part}_")]
        for part in ("state", "action", "next_state")
    }
    columns |= {"scale": [each for each in rows.column_names if each.startswith("scale_")]} if scaled else {}
    table = Table(
        rows, trajectory="trajectory", step="step", labels=["item", "house"], step_labels=["house"], **columns
    )
    np.testing.assert_array_equal(table.outcome_leaves(problem, bins=8), log.outcome_leaves(problem, bins=8))
    if problem.shows_levels:
        np.testing.assert_array_equal(
            table.outcome_leaves(problem, bins=8, formula=joint_cells),
            log.outcome_leaves(problem, bins=8, formula=joint_cells),
        )


@pytest.mark.parametrize("name", KINDS)
def test_a_policy_and_its_model_survive_a_file(name: str, tmp_path: Any) -> None:
    """With labels and a scale: every array and every fact."""
    shop = {"scale_profile": [[1.0], [3.0], [2.0]]} if not KINDS[name].example else {}
    problem, rng = make(name, labels=LABELS, **shop), np.random.default_rng(1)
    policy = Pool(1.0).fit(problem, a_log(problem, 200, rng, scaled=True), noise=SeededNoise(1))
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    assert (again.problem.facts(), again.guarantee) == (problem.facts(), policy.guarantee)
    assert policy.outcomes is not None
    assert again.outcomes is not None
    for one, other in ((policy.outcomes, again.outcomes), (policy.rule, again.rule)):
        for part, array in one.arrays().items():
            np.testing.assert_array_equal(array, other.arrays()[part])
    states = np.linspace(problem.state_low, problem.state_high, 4)
    known: dict[str, Any] = {"labels": {"item": "game", "house": 2}, "scale": 2.0}
    for step in range(problem.horizon):
        np.testing.assert_array_equal(policy.act(step, states, **known), again.act(step, states, **known))
    PrivateModel.of(policy).save(tmp_path / "model.npz")
    assert PrivateModel.load(tmp_path / "model.npz").problem.facts() == problem.facts()


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_declares_more_steps_than_it_holds_is_refused(name: str, tmp_path: Any) -> None:
    """Before anything is made of them: a few bytes may declare millions of steps, or an empty table that has them."""
    problem = make(name)
    policy = data_free(problem)
    problem.horizon = 10**12
    policy.save(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match="declares steps"):
        Policy.load(tmp_path / "policy.npz")
    if KINDS[name].example:
        problem.horizon = 10**9
        empty = CountTable(np.zeros((10**9, 0, 1)), np.zeros((10**9, 0, 1)))
        Policy(problem, empty, policy.guarantee).save(tmp_path / "policy.npz")
        with pytest.raises(ValueError, match="must hold finite numbers"):
            Policy.load(tmp_path / "policy.npz")


def test_every_kind_but_shops_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """By arrays: that engines count what they do is tested above. With seeded noise no verdict depends on luck."""
    monkeypatch.setattr("poolrl.audit.faults._counted_faults", lambda *_: [])
    audited = {type(case.problem): case for case in CASES}
    assert set(KINDS.values()) <= audited.keys()
    for case in audited.values():
        if not case.problem.action_sets_state:
            found = attack_case(replace(case, engine="arrays"), rho=1.0, releases=800, noise="seeded")
            assert (found.verdict, found.moved_share) == ("not refuted", 1.0), case.name


@pytest.mark.parametrize("table", ["trees", "dependence"])
def test_the_audit_notices_a_table_that_pays_too_little(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bugs: noise for a quarter of what a trajectory moves, and a joint table that forgets its steps."""
    joint = table == "dependence"
    plain = sensitivity.joint_table if joint else sensitivity.outcome_trees
    case = next(each for each in CASES if (each.on_top.get(table) if joint else not each.problem.action_sets_state))
    assert case.problem.horizon > 1 or not joint

    def cheap(*arguments: Any, **known: Any) -> Any:
        layout = plain(*arguments, **known)
        less = case.problem.horizon**4 if joint else 16
        return type(layout)(layout.name, layout.cells, layout.sensitivity_squared / less)

    if joint:
        plant_layout(monkeypatch, table, cheap)
    else:
        monkeypatch.setattr(sensitivity, "outcome_trees", cheap)
    monkeypatch.setattr("poolrl.audit.faults._counted_faults", lambda *_: [])  # engines have no part in it
    assert attack_case(case, rho=1.0, releases=600).verdict == "FLAGGED"


def test_what_shows_more_than_states_is_counted_as_outcomes_only() -> None:
    """Visits and single rows are paid for by states and actions: what else a row shows would be free."""
    problem = make("reserve-auction")
    log = a_log(problem, 5, np.random.default_rng(0))
    with pytest.raises(ValueError, match="show more than the next state"):
        release_rows(log, problem, rho=1.0, noise=SeededNoise(1))
    for values in (Zones(3), Grid(3)):
        with pytest.raises(ValueError, match="show more than the next state"):
            Pool(1.0, counts=Visits(), values=values).fit(problem, log)


class Signed(ReserveAuction):
    """A problem whose formula gives no number for some rows."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self.outcome_low = np.full(2, -4.0)

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return np.where(action > 3.0, np.nan, seen), cut


def test_a_formula_without_a_number_leaves_a_row_unobserved() -> None:
    """In arrays as in an engine, and without an error that would tell that there is such a row."""
    problem = Signed(bid_max=4.0)
    rng = np.random.default_rng(3)
    log = a_log(problem, 80, rng, scaled=True)
    assert np.isnan(
        problem.observe(0, *(part[:, 0] / 0.5 for part in (log.states, log.actions, log.next_states)))[0]
    ).any()
    rows = log.to_arrow()
    after = [each for each in rows.column_names if each.startswith("next_state_")]
    names: dict[str, Any] = {"states": ["state_0"], "actions": ["action_0"], "next_states": after, "scale": ["scale_0"]}
    table = Table(rows, trajectory="trajectory", step="step", **names)
    np.testing.assert_array_equal(log.outcome_leaves(problem, bins=4), table.outcome_leaves(problem, bins=4))


@pytest.mark.parametrize("high", [np.array([np.nan, 4.0]), np.array([np.inf, 4.0]), np.zeros(2), np.full(3, 4.0)])
def test_bounds_of_what_is_shown_are_checked(high: Any) -> None:
    problem = ReserveAuction(bid_max=4.0)
    problem.shown_high = high
    with pytest.raises(ValueError, match="shown_high"):
        check_problem(problem)


def test_every_kind_has_its_trade() -> None:
    for name, kind in KINDS.items():
        assert trade_named(name).problem is kind
    assert set(TRADES) == set(KINDS)
