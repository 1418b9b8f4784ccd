"""Auctions, posted prices and bids: rules worked out by hand, laws found again, and plans against textbook optima."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poolrl import (
    ByCount,
    DynamicPricing,
    FirstPriceBidding,
    Grid,
    LostSales,
    Policy,
    Pool,
    ReserveAuction,
    SeededNoise,
    Trajectories,
    relative_gap,
    saa,
    simulate_log,
)
from poolrl.learning.by_count import CountTable, tried_range
from poolrl.learning.estimation import isotonic_laws
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.model import PrivateModel
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.trees import Cells
from poolrl.problems.problem import OutcomeProblem
from poolrl.simulation.evaluation import optimum
from poolrl.workflow.trades.round_forecast import counted_today, forecast_rounds


def test_a_round_of_an_auction_by_hand() -> None:
    """Two lots, reserve 5: sold at 7 to a bid of 9; at the reserve to a single bidder; not at all; and no lot left."""
    auction = ReserveAuction(horizon=1, lots=2, bid_max=10.0, keep=1.0)
    state, reserve = np.array([[2.0], [2.0], [2.0], [0.0]]), np.full((4, 1), 5.0)
    bids = np.array([[9.0, 7.0], [6.0, 3.0], [4.0, 4.0], [9.0, 7.0]])
    after = auction.next_state(0, state, reserve, bids)
    np.testing.assert_array_equal(after, [[1, 9, 7], [1, 6, 5], [2, 5, 5], [0, 5, 5]])
    seen, cut = auction.observe(0, state, reserve, after)
    np.testing.assert_array_equal(cut[:3], [[False, False], [False, True], [True, True]])
    np.testing.assert_array_equal(seen[:3], [[9, 7], [6, 5], [5, 5]])
    np.testing.assert_array_equal(auction.reward(0, state, reserve, after), [6, 4, 0, 0])
    np.testing.assert_array_equal(auction.seen_coordinates(0, state, reserve)[:, 0], [True, True, True, False])
    # Where the winner's bid is not known, only its side of the reserve is.
    blind = ReserveAuction(horizon=1, lots=2, bid_max=10.0, sees_highest=False)
    seen, cut = blind.observe(0, state, reserve, blind.next_state(0, state, reserve, bids))
    np.testing.assert_array_equal(seen[:3], [[5, 7], [5, 5], [5, 5]])
    np.testing.assert_array_equal(cut[:3, 0], [False, False, True])


@pytest.mark.parametrize(
    ("feedback", "seen", "cut"),
    [("lost", [5.0, 8.0], [True, False]), ("won", [3.0, 5.0], [False, True]), ("never", [5.0, 5.0], [False, True])],
)
def test_a_round_of_bids_by_hand(feedback: str, seen: list[float], cut: list[bool]) -> None:
    """A bid of 5 against 3 and against 8: the same round, seen from both sides and from none."""
    bidding = FirstPriceBidding(horizon=1, wins=1, worth=9.0, bid_max=10.0, feedback=feedback)
    state, bid = np.ones((2, 1)), np.full((2, 1), 5.0)
    after = bidding.next_state(0, state, bid, np.array([[3.0], [8.0]]))
    np.testing.assert_array_equal(bidding.reward(0, state, bid, after), [4.0, 0.0])
    found = bidding.observe(0, state, bid, after)
    np.testing.assert_array_equal(found[0].ravel(), seen)
    np.testing.assert_array_equal(found[1].ravel(), cut)


def uniform(problem: OutcomeProblem, bins: int = 400) -> np.ndarray:
    return np.full((problem.horizon, problem.outcome_dim, bins), 1 / bins)


def test_prices_of_the_textbook() -> None:
    """Values uniform on [0, 1]: p(1 − p) is best at 1/2 and worth 1/4; a round before, at (1 + 1/4) / 2."""
    rule = optimum(
        DynamicPricing(horizon=2, stock=1, price_max=1.0), uniform(DynamicPricing(horizon=2, price_max=1.0))
    ).rule
    assert isinstance(rule, CountTable)
    assert rule.actions[1, 1, 0] == pytest.approx(0.5, abs=0.01)
    assert rule.values[1, 1, 0] == pytest.approx(0.25, abs=0.002)
    assert rule.actions[0, 1, 0] == pytest.approx(0.625, abs=0.01)
    assert rule.values[0, 1, 0] == pytest.approx(0.625**2, abs=0.002)
    # A unit that is worth 0.2 unsold moves the price to (1 + 0.2) / 2.
    kept = optimum(DynamicPricing(price_max=1.0, keep=0.2), uniform(DynamicPricing(price_max=1.0)))
    assert kept.act(0, [1.0])[0] == pytest.approx(0.6, abs=0.01)


def test_bids_of_the_textbook() -> None:
    """Competing bids uniform on [0, 1], worth 1: b(1 − b) is best at 1/2."""
    bidding = FirstPriceBidding(horizon=1, wins=1, worth=1.0, bid_max=1.0)
    assert optimum(bidding, uniform(bidding)).act(0, [1.0])[0] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("bidders", [2, 5])
def test_the_reserve_of_the_textbook(bidders: int) -> None:
    """Myerson 1981: with independent uniform values the best reserve is 1/2, however many come."""
    values = np.random.default_rng(0).random((200_000, 1, bidders))
    bids = -np.sort(-values, axis=-1)[..., :2]
    auction = ReserveAuction(bid_max=1.0)
    best = saa(auction, bids)
    # The optimum is flat, so what it earns is compared too.
    assert best.act(0, [1.0])[0] == pytest.approx(0.5, abs=0.06)
    half = np.where(bids[..., 0] >= 0.5, np.maximum(bids[..., 1], 0.5), 0.0).mean()
    assert isinstance(best.rule, CountTable)
    assert best.rule.values[0, 1, 0] == pytest.approx(half, abs=0.003)


def test_fewer_lots_and_more_rounds_ask_for_more() -> None:
    auction = ReserveAuction(horizon=4, lots=3, bid_max=1.0)
    rule = optimum(auction, uniform(auction)).rule
    assert isinstance(rule, CountTable)
    reserves = rule.actions[:, 1:, 0]
    assert (np.diff(reserves, axis=1) <= 1e-9).all()
    assert (np.diff(reserves, axis=0) <= 1e-9).all()


WORLDS: list[tuple[OutcomeProblem, float]] = [
    (ReserveAuction(bid_max=4.0), 0.02),
    (ReserveAuction(bid_max=4.0, sees_highest=False), 0.04),
    (DynamicPricing(price_max=4.0), 0.04),
    (FirstPriceBidding(horizon=1, wins=1, worth=2.0, bid_max=4.0, feedback="lost"), 0.02),
    (FirstPriceBidding(horizon=1, wins=1, worth=2.0, bid_max=4.0, feedback="won"), 0.02),
    (FirstPriceBidding(horizon=1, wins=1, worth=2.0, bid_max=4.0, feedback="never"), 0.04),
]


@pytest.mark.parametrize(("problem", "within"), WORLDS)
def test_the_law_is_found_again(problem: OutcomeProblem, within: float) -> None:
    """A large log, no noise: F lies within a little of the truth wherever enough was tried."""
    rng = np.random.default_rng(3)
    outcomes = problem.arranged(rng.gamma(6.0, 0.2, (4_000, 1, problem.outcome_dim)).clip(0, 4))
    model = Pool(np.inf).model(problem, simulate_log(problem, outcomes, rng=rng))
    for i in range(problem.outcome_dim):
        law, points = model.outcomes.weights[0, i], model.outcomes.points[i]
        for place in (0.5, 0.8, 1.2, 1.6, 2.2):
            assert law[points < place].sum() == pytest.approx((outcomes[:, 0, i] < place).mean(), abs=within)


def test_sides_are_a_property_of_the_problem() -> None:
    """Bids seen when won and bids seen when lost tell the same law, from opposite sides."""
    rng = np.random.default_rng(4)
    competing = rng.lognormal(0.0, 0.4, (30_000, 1, 1)).clip(0, 4)
    bids = []
    for feedback in ("won", "lost"):
        problem = FirstPriceBidding(horizon=1, wins=1, worth=2.0, bid_max=4.0, feedback=feedback)
        policy = Pool(1.0).fit(problem, simulate_log(problem, competing, rng=rng), noise=SeededNoise(1))
        bids.append(policy.act(0, [1.0])[0])
    best = saa(FirstPriceBidding(horizon=1, wins=1, worth=2.0, bid_max=4.0), competing).act(0, [1.0])[0]
    assert bids == pytest.approx([best, best], rel=0.08)


def test_isotonic_regression_by_hand() -> None:
    """100 tries in each of four bins, of whom 20, 60, 40 and 90 did not buy: the middle two are pooled to a half."""
    before = np.array([20.0, 60.0, 40.0, 90.0]) * 1e4
    levels = [np.stack([before, 1e6 - before])[None]]
    flat, totals = np.full((1, 64), 1 / 64), np.array([4e6])
    cells = Cells(levels, 0.0, totals, np.ones(1, dtype=bool))
    laws = isotonic_laws(cells, flat, flat, np.zeros(1, dtype=np.int64))
    below = np.concatenate([[0.0], np.cumsum(laws[0])])
    assert below[[8, 24, 40, 56]] == pytest.approx([0.2, 0.5, 0.5, 0.9], abs=0.01)
    assert (np.diff(below) >= 0).all()
    assert below[-1] == pytest.approx(1.0)


def test_nothing_is_decided_where_a_log_shows_nothing() -> None:
    """A log of sold lots alone, whose winner's bid is unknown: no reserve may lie beyond those that were tried."""
    rng = np.random.default_rng(0)
    n, auction = 600, ReserveAuction(bid_max=4.0, sees_highest=False)
    reserve = rng.uniform(0.1, 0.6, (n, 1, 1))
    price = np.maximum(rng.lognormal(0.0, 0.3, (n, 1, 1)).clip(0, 4), reserve)
    after = np.concatenate([np.zeros((n, 1, 1)), price], axis=-1)
    log = Trajectories(states=np.ones((n, 1, 1)), actions=reserve, next_states=after)
    for rho in (np.inf, 1.0):
        assert Pool(rho).fit(auction, log, noise=SeededNoise(1)).act(0, [1.0])[0] < 0.75


def test_which_side_of_the_tried_range_is_closed() -> None:
    points = np.array([[0.5, 1.5, 2.5, 3.5]])
    laws, tried = np.full((1, 1, 4), 0.25), np.array([[[0.0, 0.5, 0.5, 0.0]]])
    price = DynamicPricing(price_max=4.0)
    known = OutcomeDistribution(points, laws, tried)
    assert tried_range(known, price).ravel() == pytest.approx([1.0, 3.0])
    lost = FirstPriceBidding(horizon=1, wins=1, worth=1.0, bid_max=4.0, feedback="lost")
    assert tried_range(OutcomeDistribution(points, laws, tried, higher=True), lost).ravel() == pytest.approx(
        [1.0, np.inf]
    )
    won = FirstPriceBidding(horizon=1, wins=1, worth=1.0, bid_max=4.0, feedback="won")
    assert tried_range(known, won).ravel() == pytest.approx([-np.inf, 3.75])
    assert tried_range(OutcomeDistribution(points, laws), price).ravel().tolist() == [-np.inf, np.inf]
    # What one round tried tells of all; a round of which there is no row tells nothing.
    two, tried = np.full((2, 1, 4), 0.25), np.array([[[0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0, 0.0]]])
    never = FirstPriceBidding(horizon=2, wins=1, worth=1.0, bid_max=4.0, feedback="never")
    for slots, end in (([[1.0], [1.0]], 3.0), ([[1.0], [0.0]], 2.0)):
        found = tried_range(OutcomeDistribution(points, two, tried, slots=np.array(slots)), never)
        assert found == pytest.approx(np.array([[1.0, 1.0], [end, end]]))


@pytest.mark.parametrize(("problem", "_"), WORLDS)
def test_private_decisions_are_nearly_the_best(problem: OutcomeProblem, _: float) -> None:
    rng = np.random.default_rng(8)

    def draw(n: int) -> Any:
        return problem.arranged(rng.gamma(5.0, 0.25, (n, 1, problem.outcome_dim)).clip(0, 4))

    policy = Pool(1.0).fit(problem, simulate_log(problem, draw(5_000), rng=rng), noise=SeededNoise(2))
    assert relative_gap(problem, policy, draw(20_000), benchmark=saa(problem, draw(40_000))) < 0.03


def test_amounts_of_very_different_size_share_a_policy() -> None:
    """Lots that differ by a factor of a thousand, measured by what an expert expected."""
    rng, auction = np.random.default_rng(2), ReserveAuction(bid_max=4.0, sees_highest=False)
    size = np.exp(rng.uniform(0, np.log(1000), (4_000, 1, 1)))
    bids = auction.arranged(rng.lognormal(0.0, 0.4, (4_000, 1, 2)).clip(0, 4))
    log = simulate_log(auction, bids * size, rng=rng, scale=size)
    policy = Pool(1.0).fit(auction, log, noise=SeededNoise(1))
    unit = policy.act(0, [1.0], scale=1.0)
    np.testing.assert_allclose(policy.act(0, [1.0], scale=250.0), 250.0 * unit)
    earned, best = (
        np.where(bids[:, 0, 0] >= reserve, np.maximum(bids[:, 0, 1], reserve), 0.0).mean()
        for reserve in (unit[0], saa(auction, bids).act(0, [1.0])[0])
    )
    assert earned == pytest.approx(best, rel=0.02)
    with pytest.raises(ValueError, match="learned with a scale"):
        policy.act(0, [1.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReserveAuction(bid_max=0.0), "bid_max must be positive"),
        (lambda: ReserveAuction(bid_max=4.0, keep=4.0), "keep must lie between 0 and bid_max"),
        (lambda: ReserveAuction(bid_max=4.0, lots=0), "lots must be a whole number"),
        (lambda: DynamicPricing(price_max=4.0, keep=-1.0), "keep must lie between 0 and price_max"),
        (lambda: FirstPriceBidding(horizon=1, wins=1, worth=1.0, bid_max=1.0, feedback="x"), "feedback must be"),
        (lambda: FirstPriceBidding(horizon=1, wins=1, worth=0.0, bid_max=1.0), "worth must be positive"),
        (lambda: ByCount(actions=1), "actions must be a whole number"),
        (
            lambda: Pool(1.0, values=ByCount()).prepare(LostSales(horizon=1, holding=1, shortage=1, demand_max=1)),
            "ByCount",
        ),
    ],
)
def test_impossible_problems_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_another_way_to_plan_a_count_agrees() -> None:
    """A grid knows nothing of counts: an independent planner, whose reserves earn as much."""
    rng, auction = np.random.default_rng(6), ReserveAuction(horizon=2, lots=1, bid_max=2.0)
    bids = auction.arranged(rng.gamma(5.0, 0.2, (6_000, 2, 2)).clip(0, 2))
    log = simulate_log(auction, bids, rng=rng)
    by_count, by_grid = (
        Pool(np.inf, values=values).fit(auction, log) for values in (ByCount(), Grid(bins=40, linear=True))
    )
    assert relative_gap(auction, by_count, bids, benchmark=by_grid) < 0.01


@pytest.mark.parametrize(
    "problem",
    [
        ReserveAuction(horizon=3, lots=2, bid_max=4.0, keep=0.3),
        ReserveAuction(horizon=3, lots=2, bid_max=4.0, sees_highest=False),
        DynamicPricing(horizon=3, stock=2, price_max=4.0, keep=0.2),
        FirstPriceBidding(horizon=3, wins=2, worth=2.0, bid_max=4.0, feedback="lost"),
        FirstPriceBidding(horizon=3, wins=2, worth=2.0, bid_max=4.0, feedback="never"),
    ],
)
def test_counts_tell_what_was_earned(problem: OutcomeProblem) -> None:
    """By the rows themselves, and by the trees without noise: the same, but for the width of bins."""
    rng = np.random.default_rng(5)
    outcomes = problem.arranged(rng.gamma(5.0, 0.25, (1_000, 3, problem.outcome_dim)).clip(0, 4))
    log = simulate_log(problem, outcomes, rng=rng)
    parts = (log.states, log.actions, log.next_states)
    earned = sum(problem.reward(step, *(part[:, step] for part in parts)).mean() for step in range(3))
    prepared = Pool(np.inf).prepare(problem)
    released = prepared.release(log, SeededNoise(1))
    counted = counted_today(FadedTrees.of(released), PrivateModel.of(prepared.learn(released)))
    assert counted is not None
    assert counted == (pytest.approx(earned, rel=0.02), 0)


@pytest.mark.usefixtures("short_forecast")
@pytest.mark.parametrize(("reserve", "verdict"), [(None, "switch"), (3.9, "do not switch")])
def test_the_page_says_do_not_switch_where_that_is_the_truth(reserve: float | None, verdict: str) -> None:
    """Reserves anywhere up to the bound are beaten by learned ones; a reserve that nobody meets is beaten by them."""
    rng, auction = np.random.default_rng(4), ReserveAuction(bid_max=4.0)
    bids = auction.arranged(rng.gamma(6.0, 0.15, (1_500, 1, 2)).clip(0, 4))
    prepared = Pool(1.0).prepare(auction)
    released = prepared.release(simulate_log(auction, bids, rng=rng), SeededNoise(1))
    policy = prepared.learn(released)
    policy.report = replace(policy.report, units=1_500)
    if reserve is not None:
        policy.rule = CountTable(np.full((1, 2, 1), reserve), np.zeros((1, 2, 1)))
    assert forecast_rounds(policy, FadedTrees.of(released)).verdict == verdict


def learned(problem: OutcomeProblem, rows: int = 400) -> Policy:
    rng = np.random.default_rng(0)
    outcomes = problem.arranged(
        rng.uniform(problem.outcome_low, problem.outcome_high, (rows, problem.horizon, problem.outcome_dim))
    )
    return Pool(1.0).fit(problem, simulate_log(problem, outcomes, rng=rng), noise=SeededNoise(1))


ROUNDS = {
    "auction": (ReserveAuction, {"horizon": 3, "lots": 2, "bid_max": 4.0, "keep": 0.2}, {"keep": 1.0}, "lots"),
    "pricing": (DynamicPricing, {"horizon": 3, "stock": 2, "price_max": 4.0, "keep": 0.1}, {"keep": 1.0}, "stock"),
    "bidding": (FirstPriceBidding, {"horizon": 3, "wins": 2, "worth": 1.5, "bid_max": 4.0}, {"worth": 3.0}, "wins"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_are_planned_again_with_other_costs(name: str) -> None:
    kind, facts, costs, count = ROUNDS[name]
    model = PrivateModel.of(learned(kind(**facts), 800))
    usual, other = model.plan(), model.plan(kind(**facts | costs))
    assert other.guarantee == usual.guarantee
    # A seller who keeps something of worth asks for more; whoever wins something of more worth bids more.
    assert (other.rule.arrays()["actions"][..., 1:, :] > usual.rule.arrays()["actions"][..., 1:, :]).all()
    # The same decisions as those of a model that was learned for it: laws do not depend on costs.
    fresh = learned(kind(**facts | costs), 800)
    np.testing.assert_array_equal(other.rule.arrays()["actions"], fresh.rule.arrays()["actions"])
    fewer, longer = model.plan(kind(**facts | {count: 1})), model.plan(kind(**facts | {"horizon": 5}))
    assert fewer.rule.arrays()["actions"].shape == (3, 2, 1)
    assert longer.rule.arrays()["actions"].shape == (5, 3, 1)
    np.testing.assert_array_equal(fewer.rule.arrays()["actions"], usual.rule.arrays()["actions"][:, :2])
    # Other laws are refused.
    bound = "price_max" if name == "pricing" else "bid_max"
    with pytest.raises(ValueError, match=f"learned with another {bound}: in a plan only horizon, "):
        model.plan(kind(**facts | {bound: 5.0}))
    with pytest.raises(ValueError, match=r"learned (for|with)"):
        model.plan(ROUNDS["bidding"][0](**ROUNDS["bidding"][1]) if name == "pricing" else DynamicPricing(price_max=4.0))
