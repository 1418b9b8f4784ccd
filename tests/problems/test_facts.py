"""A problem's facts: enough to build it again, and no larger than what differs in them."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from poolrl import LostSales, Policy, Pool, SeededNoise

AXES = st.tuples(*(st.sampled_from([1, n]) for n in (3, 2, 4, 2)))  # shop, promotion, step, product


def rebuilt(problem: LostSales) -> LostSales:
    declared = json.loads(json.dumps(problem.facts()))
    return LostSales(**{name: value for name, value in declared.items() if name != "kind"})


@settings(max_examples=60, deadline=None)
@given(AXES, AXES, AXES, st.integers(0, 2**32 - 1))
def test_a_problem_is_built_again_from_its_facts(
    holding: tuple[int, ...], profile: tuple[int, ...], bound: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    problem = LostSales(
        horizon=4,
        products=2,
        holding=rng.integers(1, 3, holding),
        shortage=2.0,
        demand_max=rng.integers(1, 3, (*bound[:2], bound[3])),
        scale_profile=rng.integers(1, 3, profile),
        labels={"shop": [1, 2, 3], "promo": ["no", "yes"]},
    )
    again = rebuilt(problem)
    for name in ("holding", "shortage", "label_bounds", "scale_profile", "share"):
        np.testing.assert_array_equal(getattr(again, name), getattr(problem, name))
    assert again.facts() == problem.facts()
    declared = {name: value for name, value in problem.facts().items() if name != "kind"}
    assert LostSales.from_facts(declared, (3, 2, 4)).facts() == problem.facts()


def test_facts_do_not_grow_with_label_cells() -> None:
    sizes = []
    for shops in (10, 1000):
        problem = LostSales(
            horizon=7, products=5, holding=0.1, shortage=0.4, demand_max=4.0, labels={"shop": range(shops)}
        )
        sizes.append(len(json.dumps({n: v for n, v in problem.facts().items() if n != "labels"})))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("holding", (4,)),  # a step or a product is missing
        ("holding", (1, 2)),
        ("holding", (2, 1, 4, 2)),
        ("holding", (1, 3, 2, 4, 2)),
        ("demand_max", (1,)),
        ("boundary", (1, 2)),
    ],
)
def test_facts_of_another_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    labels = [["shop", [1, 2, 3]], ["promo", ["no", "yes"]]]
    declared = {"horizon": 4, "products": 2, "labels": labels, name: np.ones(shape).tolist()}
    with pytest.raises(ValueError, match=f"the file declares {name} for"):
        LostSales.from_facts(declared, (3, 2, 4))


def test_the_policy_of_a_large_chain_can_be_read(tmp_path: Path) -> None:
    """400 shops, 2 kinds of weeks, 7 days, 40 products: as many costs as once made a file unreadable."""
    labels = {"shop": range(400), "promo": [0, 1]}
    problem = LostSales(horizon=7, products=40, holding=0.1, shortage=0.4, demand_max=4.0, labels=labels)
    small = LostSales(horizon=7, products=40, holding=0.1, shortage=0.4, demand_max=4.0)
    rng = np.random.default_rng(0)
    fitted = Pool(1.0).fit(
        small, small.simulate_log(rng.gamma(4.0, 0.25, (20, 7, 40)).clip(0, 4), rng=rng), noise=SeededNoise(1)
    )
    levels = np.broadcast_to(fitted.levels, (400, 2, 7, 40)).copy()
    policy = Policy(problem, type(fitted.rule)(levels), fitted.guarantee)
    policy.save(tmp_path / "policy.npz")
    np.testing.assert_array_equal(Policy.load(tmp_path / "policy.npz").levels, levels)
