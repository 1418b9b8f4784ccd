"""A user's `observe` divided by the largest value of its batch. One row then moved every other one.

22 was paid, 19,960,020 was moved, and the policy said "Private". Three things stand in the way now: `fit` tries the
formulas on public dummy rows, no formula sees a log at all, and the door takes no counts but our own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, Boundary, DynamicPricing, LostSales, Pool, Trajectories, check_problem
from poolrl.privacy.release import release_outcomes
from tests.helpers.broken_problems import BROKEN, FACTS, LEVELS, DividesByTheLargest, Shop, Untouched, a_log, neighbour
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.own_problems import Pinned, PostedPrice, Wear


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_fit_refuses_before_it_looks_at_the_log(kind: type[LostSales]) -> None:
    for act in (lambda: check_problem(kind(**FACTS)), lambda: Pool(1.0).fit(kind(**FACTS), Untouched.log())):
        with pytest.raises(ValueError, match=BROKEN[kind]):
            act()


@pytest.mark.parametrize("kind", [Shop, *BROKEN], ids=lambda kind: kind.__name__)
def test_no_formula_moves_more_than_is_paid_for(kind: type[LostSales]) -> None:
    """At the door itself, without the check on dummy rows: counts are those of single rows, or nothing is counted."""
    problem, log = kind(**FACTS), a_log()
    noise = Recorder(), Recorder()
    try:
        for each, counted in zip((log, neighbour(log)), noise, strict=True):
            # A new problem for each log: a formula that remembers its calls begins anew.
            release_outcomes(each, kind(**FACTS), level_sizes=LEVELS, rho=1.0, noise=counted)
    except (ValueError, TypeError) as refusal:
        assert kind is not Shop
        assert "17.25" not in str(refusal)
        return
    paid = 2 * problem.horizon * problem.products * len(LEVELS)
    assert sum(squared_change(*noise)) <= paid


def test_what_the_bug_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: formulas that are called with the log itself. One row then moves nearly all of them."""

    class Called:
        def __init__(self, formula: Any, shapes: Any) -> None:
            self.formula, self.outputs = formula, [np.ones(2), np.ones(2), True]

        def __call__(self, *row: Any) -> Any:
            return self.formula(*row)

    monkeypatch.setattr("poolrl.data.trace.Recording", Called)
    problem, log = DividesByTheLargest(**FACTS), a_log()
    parts = {name: getattr(log, name).copy() for name in ("states", "actions", "next_states")}
    quiet = np.minimum(parts["actions"], 40.0)
    calm = {"states": np.minimum(parts["states"], quiet), "actions": quiet, "next_states": np.zeros_like(quiet)}
    loud = {name: part.copy() for name, part in calm.items()}
    loud["actions"][0] = 100.0
    noise = Recorder(), Recorder()
    for each, counted in zip((calm, loud), noise, strict=True):
        release_outcomes(Trajectories(**each), problem, level_sizes=LEVELS, rho=1.0, noise=counted)
    assert sum(squared_change(*noise)) > 1_000 * 2 * problem.horizon * problem.products * len(LEVELS)


@pytest.mark.parametrize("problem", [PostedPrice(3, 5.0), PostedPrice(2), Wear(2), Pinned(2), Shop(**FACTS)])
def test_good_problems_pass(problem: Any) -> None:
    """Those of the registry: tests/problems/test_kinds.py."""
    check_problem(problem)


def test_a_wrong_meaning_is_named() -> None:
    class Naive(LostSales):
        """Sales are taken for demand, sold out or not."""

        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            seen, cut = super().observe(step, state, action, next_state)
            return seen, np.zeros_like(cut)

    class OtherSide(PostedPrice):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            seen, cut = super().observe(step, state, action, next_state)
            return np.where(cut, 0.0, seen), cut

    class Overflows(Backlog):
        def next_state(self, step: int, state: Any, action: Any, outcome: Any) -> Any:
            return action + outcome

    class NothingIsFeasible(LostSales):
        def feasible(self, step: int, state: Any) -> Any:
            return super().feasible(step, state)[::-1]

    class Doubles(LostSales):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            seen, cut = super().observe(step, state, action, next_state)
            return 2 * seen, cut

    class CutsWhatIsNeverCut(Backlog):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return super().observe(step, state, action, next_state)[0], next_state <= 0

    class PaysEachProduct(LostSales):
        def reward(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return self.coordinate_reward(step, state, action, next_state)

    class Approves(LostSales):
        def coordinate_reward(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return next_state > 0

        def reward(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return next_state.sum(axis=-1)

    class CostsByProduct(LostSales):
        def cost(self, step: int, state: Any, action: Any, outcome: Any) -> Any:
            return np.abs(action - outcome)

    for problem, words in (
        (NothingIsFeasible(**FACTS), r"feasible\(\) of .* must give lower limits that are not above the upper ones"),
        (Doubles(**FACTS), r"observe\(\) of Doubles must report values within outcome_low and outcome_high"),
        (CutsWhatIsNeverCut(**FACTS), r"observe\(\) of CutsWhatIsNeverCut must report no cut"),
        (PaysEachProduct(**FACTS), r"reward\(\) of PaysEachProduct must return shape \(\d+,\), got \(\d+, 2\)"),
        (Approves(**FACTS), r"coordinate_reward\(\) of Approves must return numbers"),
        (CostsByProduct(**FACTS), r"cost\(\) of CostsByProduct must return shape"),
        (Naive(**FACTS), r"observe\(\) of Naive must report the outcome from which next_state came"),
        (OtherSide(2), r"observe\(\) of OtherSide must cut off on the side where the outcome lies"),
        (Overflows(**FACTS), r"next_state\(\) of Overflows must stay within state_low and state_high"),
    ):
        with pytest.raises(ValueError, match=words):
            check_problem(problem)


def test_facts_that_do_not_fit_each_other_are_named() -> None:
    def changed(**attributes: Any) -> PostedPrice:
        problem = PostedPrice(2)
        vars(problem).update(attributes)
        return problem

    share = np.zeros((2, 2))
    for problem, words in (
        (changed(state_low=[0.0]), "state_low and state_high of PostedPrice must be finite, of shape"),
        (changed(boundary=Boundary(share[:1], "higher")), r"boundary of PostedPrice must have shape \(2, 2\)"),
        (changed(action_low=np.full(1, 50.0)), "action_low and action_high of PostedPrice must be finite, of shape"),
        (changed(outcome_high=np.full(1, np.inf)), "outcome_high of PostedPrice must be finite"),
    ):
        for act in (lambda p=problem: check_problem(p), lambda p=problem: Pool(1.0).fit(p, Untouched.log())):
            with pytest.raises(ValueError, match=words):
                act()


def quoted(number: float) -> float:
    if not 0 <= number <= 10:
        raise ValueError(f"I was given {number}")
    return number


class QuotesWhatItIsGiven(LostSales):
    """Code of its own that fails on numbers beyond the bounds, and says on which."""

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        return super().observe(step, state, np.frompyfunc(quoted, 1, 1)(action), next_state)


def test_formulas_see_no_row_beyond_its_bounds() -> None:
    problem = QuotesWhatItIsGiven(horizon=1, products=1, holding=1.0, shortage=1.0, demand_max=10.0)
    actions = np.array([5.0, 777.125]).reshape(2, 1, 1)
    log = Trajectories(states=np.zeros((2, 1, 1)), actions=actions, next_states=np.ones((2, 1, 1)))
    with pytest.raises(ValueError, match=r"^actions must lie within the public bounds"):
        log.check(problem)


class SeesWholeRows(LostSales):
    """Its rule forgets the coordinates: one answer for each row."""

    def seen_coordinates(self, step: int, state: Any, action: Any) -> Any:
        return state[..., 0] < 5.0


def test_an_answer_for_a_whole_row_is_none_for_other_rows() -> None:
    """With as many rows as products, NumPy took the answers of rows for those of products: 12,288 moved, 256 paid."""
    problem = SeesWholeRows(horizon=1, products=64, holding=1.0, shortage=1.0, demand_max=10.0)
    with pytest.raises(ValueError, match=r"seen_coordinates\(\) of SeesWholeRows must return values of shape \(64,\)"):
        Pool(1.0).prepare(problem)
    noise = Recorder(), Recorder()
    for first, counted in zip((0.0, 6.0), noise, strict=True):
        states = np.zeros((64, 1, 64))
        states[0, 0, 0] = first
        log = Trajectories(states=states, actions=np.full(states.shape, 8.0), next_states=np.full(states.shape, 3.0))
        release_outcomes(log, problem, level_sizes=LEVELS, rho=1.0, noise=counted)
    assert 0 < sum(squared_change(*noise)) <= 2 * 64 * len(LEVELS)


def test_a_formula_that_is_set_on_an_object_is_tried_as_well() -> None:
    problem: Any = DynamicPricing(horizon=1, stock=1, price_max=10.0)
    Pool(1.0).prepare(problem)
    problem.seen_coordinates = lambda step, state, action: state[..., 0] >= 0.5
    with pytest.raises(ValueError, match=r"seen_coordinates\(\) of DynamicPricing must return values of shape \(1,\)"):
        Pool(1.0).prepare(problem)
