"""Sizes and sensitivities of every released table, worked out by hand for small problems."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import pytest

from poolrl import Backlog, Depot, LostSales
from poolrl.privacy import sensitivity
from poolrl.privacy.sensitivity import TableLayout, level_count, moved_trajectories, root_is_public
from poolrl.problems.problem import OutcomeProblem, Problem
from tests.helpers.own_problems import OrderQuantity, PostedPrice, Wear

COSTS = {"holding": 1.0, "shortage": 2.0, "demand_max": 10.0}
# H = 3 steps, k = 2 products, 3 · 2 = 6 label cells: numbers that no sum or product confuses.
SHOP = LostSales(horizon=3, products=2, labels={"shop": [1, 2, 7], "promo": ["no", "yes"]}, **COSTS)
PAIR = LostSales(horizon=3, products=2, **COSTS)
DEPOT = Depot(shop=PAIR, express=1.0, reserve_holding=0.1, reserve_max=5.0)
SEEN = Backlog(horizon=3, products=2, labels={"shop": [1, 2, 7], "promo": ["no", "yes"]}, **COSTS)


def test_who_moves_with_a_unit() -> None:
    """Its own c trajectories; or, without units, itself and the m whose scales it served for."""
    assert moved_trajectories(per_unit=5, scale_memory=3, has_units=True) == 5
    assert moved_trajectories(per_unit=5, scale_memory=3, has_units=False) == 4
    assert moved_trajectories(per_unit=5, scale_memory=0, has_units=False) == 1


def test_which_sizes_make_a_tree() -> None:
    """Of all short lists of small numbers, those that ascend in powers of two."""
    powers = (1, 2, 4)
    for length in range(4):
        for sizes in product(range(-2, 7), repeat=length):
            good = length > 0 and all(s in powers for s in sizes) and all(a < b for a, b in pairwise(sizes))
            if good:
                assert level_count(sizes) == length
            else:
                with pytest.raises(ValueError, match="level_sizes must be ascending powers of two"):
                    level_count(sizes)
    assert level_count((1, 64)) == level_count((8, 16384)) == 2  # far apart


def test_a_root_is_public_if_every_slot_is_under_it() -> None:
    """It must exist, nothing may be cut off, and nothing may be unobserved."""
    for problem, sizes, complete in product((SHOP, SEEN), ((1, 2, 4), (2, 4), (4, 1)), (True, False)):
        expected = problem is SEEN and sizes[0] == 1 and complete
        assert root_is_public(problem, level_sizes=sizes, complete=complete) is expected


@pytest.mark.parametrize(
    ("problem", "sizes", "complete", "public", "cells", "moved"),
    [
        # 6 trees. Seen and cut off, 6 cells of 7 nodes each: 2 · 6 · 7 = 84, and the unobserved: in one cell or in 6.
        (SHOP, (1, 2, 4), False, False, 6 * (84 + 1), 2 * 6 * 3),
        (SHOP, (1, 2, 4), False, True, 6 * (84 + 6), 2 * 6 * 3),
        (SHOP, (1, 2, 4), True, True, 6 * 84, 2 * 6 * 3),
        # Never cut off: 6 cells of 7 nodes; if all is observed, the root is no secret.
        (SEEN, (1, 2, 4), False, False, 6 * (42 + 1), 2 * 6 * 3),
        (SEEN, (1, 2, 4), False, True, 6 * (42 + 6), 2 * 6 * 3),
        (SEEN, (1, 2, 4), True, False, 6 * 6 * 6, 2 * 6 * 2),
    ],
)
def test_outcome_trees(
    problem: OutcomeProblem, sizes: tuple[int, ...], complete: bool, public: bool, cells: int, moved: int
) -> None:
    """Δ₂² = 2 H k L c²: 2 · 3 · 2 · L, and 25 times as much for five trajectories of one unit."""
    for per_unit in (1, 5):
        layout = sensitivity.outcome_trees(
            problem, level_sizes=sizes, per_unit=per_unit, complete=complete, labels_public=public
        )
        assert layout == TableLayout("outcome trees", cells, Fraction(moved * per_unit**2))


def test_the_joint_table() -> None:
    """2 H k c²; 3 · 2 tables of 6 label cells, 4 bands of levels, 4 of outcomes, seen or cut off."""
    layout = sensitivity.joint_table(SHOP, bands=4, per_unit=3)
    assert layout == TableLayout("levels and outcomes", 6 * 6 * 4 * 4 * 2, Fraction(2 * 6 * 9))


@pytest.mark.parametrize("problem", [SEEN, PostedPrice(2), Wear(2)])
def test_the_joint_table_needs_cut_off_coordinates(problem: Problem) -> None:
    with pytest.raises(ValueError, match="dependence needs a problem"):
        sensitivity.joint_table(problem, bands=4, per_unit=1)


@pytest.mark.parametrize(
    ("formula", "refused", "why"),
    [
        (sensitivity.left_sums, OrderQuantity(3, 2, 1.0, 1.0, 5.0), "left_over needs a problem of inventory"),
        (sensitivity.left_sums, PostedPrice(2), "left_over needs a problem of inventory"),
        (
            sensitivity.pair_sums,
            DEPOT,
            "together needs a problem with two coordinates",
        ),
        (sensitivity.pair_sums, LostSales(horizon=3, **COSTS), "together needs a problem with two coordinates"),
    ],
)
def test_sums_are_those_of_shops(formula: Any, refused: Problem, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        formula(refused, per_unit=1)


def test_sums_by_hand() -> None:
    """H k c² P², twice that with labels, and 2 H c² P²; bounds may be below one."""
    small = LostSales(horizon=3, **COSTS | {"demand_max": 0.5})
    assert sensitivity.left_sums(small, per_unit=2).sensitivity_squared == 3 * 4 * 32**2
    assert sensitivity.left_sums(SHOP, per_unit=1) == TableLayout("stock left over", 36, Fraction(2 * 6 * 32**2))
    assert sensitivity.pair_sums(SHOP, per_unit=3).sensitivity_squared == 2 * 3 * 9 * 128**2


def test_the_papers_tables() -> None:
    """2 H c² each; 3 · 11 visits and 3 · 11 · 5 transitions."""
    visits, transitions = sensitivity.visit_tables(SHOP, pairs=11, states=5, per_unit=3)
    assert visits == TableLayout("visits of nodes", 33, Fraction(2 * 3 * 9))
    assert transitions == TableLayout("transitions between nodes", 165, Fraction(2 * 3 * 9))


class Uneven(Wear):
    """Two actions, one state: w and d differ."""

    def __init__(self) -> None:
        super().__init__(3)
        self.action_low = self.action_low.repeat(2)
        self.action_high = self.action_high.repeat(2)


def test_the_baselines_on_the_lattice() -> None:
    """H (d + w) = 9 numbers of 40 trajectories each, H d = 6 decisions; each moves by its range, 65,536 steps."""
    assert sensitivity.logged_numbers(Uneven(), trajectories=40) == TableLayout(
        "logged numbers", 360, Fraction(9 * 65536**2)
    )
    assert sensitivity.decision_table(Uneven()) == TableLayout("decision table", 6, Fraction(6 * 65536**2))
