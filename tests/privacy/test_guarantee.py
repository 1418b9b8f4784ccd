"""What a guarantee says, and what it reads from a file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import LostSales, Pool, SeededNoise, Trajectories
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import KEEP_IDS, Guarantee, Mechanism, declared_in_words, neighbours_in_words

# Δ₂² = 36 and σ² = 4: sensitivity 6, sd 2, ρ = 36 / 8 = 4.5; and the same again.
TREES = Mechanism("outcome trees", 1234, Fraction(36), Fraction(4))
OTHER = Mechanism("levels and outcomes", 5, Fraction(36), Fraction(4))
PAID = "outcome trees: 1,234 counts, sensitivity 6, noise sd 2"


def guarantee(**changed: Any) -> Guarantee:
    return Guarantee(**({"mechanisms": (TREES,), "secure": True, "steps": 7} | changed))


def test_the_cost_of_mechanisms_adds_up() -> None:
    assert TREES.rho == Fraction(9, 2)
    assert (guarantee().rho, guarantee().trajectories_per_unit) == (4.5, 1)
    assert guarantee(mechanisms=(TREES, OTHER)).rho == 9.0
    assert guarantee().epsilon() == zcdp.epsilon(4.5, 1e-6)
    assert guarantee().epsilon(1e-9) == zcdp.epsilon(4.5, 1e-9) > guarantee().epsilon()


@pytest.mark.parametrize(
    ("cells", "moved", "variance"), [(0, 1, 1), (-1, 1, 1), (1, 0, 1), (1, -1, 1), (1, 1, Fraction(-1, 9))]
)
def test_no_mechanism_without_cells_or_sensitivity(cells: int, moved: int, variance: Fraction) -> None:
    with pytest.raises(ValueError, match="a mechanism has cells"):
        Mechanism("x", cells, Fraction(moved), Fraction(variance))
    # The smallest: one cell, and no noise at all. It costs everything.
    least = Mechanism("x", 1, Fraction(1, 9), Fraction(0))
    assert least.rho == math.inf
    assert Mechanism.from_dict(least.to_dict()) == least


@pytest.mark.parametrize("wrong", [{"labels": "secret"}, {"scale_memory": 1}, {"scale_memory": -1, "scaled": True}])
def test_no_guarantee_of_other_kinds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a guarantee knows three modes of labels"):
        guarantee(**wrong)


NOT_PRIVATE = {
    "nothing": Guarantee.of_nothing(7),
    "no noise": guarantee(mechanisms=(Mechanism("outcome trees", 1234, Fraction(36), Fraction(0)),)),
    "seeded": guarantee(secure=False),
}


def test_what_is_not_private_says_so_and_why() -> None:
    """Each by its own reason, and epsilon is infinite."""
    assert [g.private for g in NOT_PRIVATE.values()] == [False, False, False]
    assert guarantee(mechanisms=()).private is False
    assert NOT_PRIVATE["nothing"].to_dict()["secure_noise"] is False
    assert all(g.epsilon() == math.inf for g in NOT_PRIVATE.values())
    assert NOT_PRIVATE["nothing"].rho == NOT_PRIVATE["no noise"].rho == math.inf
    whys = "no private log was released here", "rho = inf", "a dry run with seeded noise"
    for g, why in zip(NOT_PRIVATE.values(), whys, strict=True):
        facts = g.to_dict()
        assert facts["notice"] == str(g).splitlines()[0]
        assert facts["notice"].startswith(f"NOT PRIVATE: {why}")
        assert facts["epsilon"] is facts["epsilon_if_one_gaussian"] is None
        paid = "; ".join(f"{m.name}: 1,234 counts, sensitivity 6, noise sd {m.variance**0.5:.4g}" for m in g.mechanisms)
        assert str(g).splitlines()[2] == f"Mechanisms: {paid or 'none'}."


def test_the_three_lines_of_a_private_release() -> None:
    small, smaller = (zcdp.rounded_up(zcdp.epsilon(9.0, delta)) for delta in (1e-6, 1e-9))
    other = "levels and outcomes: 5 counts, sensitivity 6, noise sd 2"
    of_shop = guarantee(mechanisms=(TREES, OTHER), unit="shop", trajectories_per_unit=5)
    assert str(of_shop) == repr(of_shop)
    assert str(of_shop).splitlines() == [
        f"Private: rho = 9 (zCDP), that is epsilon = {small} at delta = 1e-6, {smaller} at 1e-9.",
        "Protects one shop: up to 5 trajectories of 7 steps; neighbouring logs replace one shop by any other.",
        f"Exact discrete Gaussian noise from a secure source. {PAID}; {other}.",
    ]
    alone = "Protects one trajectory: all its 7 steps; neighbouring logs replace one trajectory by any other."
    assert str(guarantee()).splitlines()[1] == alone


SCALE = "Declared by the data holder: "
MANY = "replacing one trajectory changes the scales of at most"


@pytest.mark.parametrize(
    ("declared", "sentences"),
    [
        ({}, []),
        ({"scaled": True, "scale_memory": 1}, [f"{SCALE}{MANY} 1 other; 2 trajectories are paid for."]),
        ({"scaled": True, "scale_memory": 2}, [f"{SCALE}{MANY} 2 others; 3 trajectories are paid for."]),
        (
            {"scaled": True, "unit": "shop", "scale_memory": 2},
            [f"{SCALE}the scale of every trajectory comes from rows of its own shop, or from outside the log."],
        ),
        ({"labels": "protected", "unit": "shop"}, ["Labels are protected: the other shop may have other labels."]),
        (
            {"labels": "public", "scaled": True},
            [
                f"{SCALE}the scale comes from outside the log.",
                "Labels are public: the other trajectory has the same rows (trajectories, steps and products) with the "
                "same labels, and how many rows have which labels is released exactly.",
            ],
        ),
    ],
)
def test_what_was_declared_is_said(declared: dict[str, Any], sentences: list[str]) -> None:
    assert declared_in_words(guarantee(**declared)) == sentences
    second = str(guarantee(**declared)).splitlines()[1]
    assert second.endswith("".join(f" {sentence}" for sentence in sentences))


def test_a_guarantee_in_a_file() -> None:
    facts = guarantee(scaled=True, scale_memory=2, labels="public", unit="trajectory").to_dict()
    assert facts == {
        "private": True,
        "notice": None,
        "rho": 4.5,
        "epsilon": {"1e-06": zcdp.epsilon(4.5, 1e-6), "1e-09": zcdp.epsilon(4.5, 1e-9)},
        "epsilon_if_one_gaussian": zcdp.gaussian_epsilon(4.5, 1e-6),
        "unit": "trajectory",
        "trajectories_per_unit": 1,
        "steps": 7,
        "adjacency": "replace one",
        "scaled": True,
        "scale_memory": 2,
        "labels": "public",
        "secure_noise": True,
        "mechanisms": [{"name": "outcome trees", "cells": 1234, "sensitivity_squared": "36", "variance": "4"}],
    }
    assert NOT_PRIVATE["no noise"].to_dict()["rho"] == "inf"
    assert guarantee(secure=False).to_dict()["rho"] == 4.5


NUMBERS = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)


@settings(max_examples=30)
@given(
    mechanisms=st.lists(st.builds(Mechanism, st.text(), st.integers(1, 10**9), NUMBERS, NUMBERS), max_size=3),
    secure=st.booleans(),
    steps=st.integers(1, 400),
    per_unit=st.integers(1, 99),
    unit=st.text(min_size=1),
    memory=st.integers(0, 9),
    labels=st.sampled_from(["none", "protected", "public"]),
    periods=st.text(),
)
def test_a_file_gives_the_same_guarantee_back(
    mechanisms: list[Mechanism],
    secure: bool,
    steps: int,
    per_unit: int,
    unit: str,
    memory: int,
    labels: Any,
    periods: str,
) -> None:
    declared = {"scale_memory": memory, "labels": labels, "periods": periods}
    written = Guarantee(tuple(mechanisms), secure, steps, per_unit, unit, "add one", memory > 0, **declared)
    read = Guarantee.from_dict(json.loads(json.dumps(written.to_dict())))
    assert read == written
    whole = read.steps, read.trajectories_per_unit, read.scale_memory, *(each.cells for each in read.mechanisms)
    assert {type(number) for number in whole} == {int}
    # Older files had no scale and no labels.
    old = {name: fact for name, fact in written.to_dict().items() if name not in ("scaled", "scale_memory", "labels")}
    assert Guarantee.from_dict(old) == replace(written, scaled=False, scale_memory=0, labels="none")


@pytest.mark.parametrize("name", ["secure_noise", "scaled"])
@pytest.mark.parametrize("value", [1, "true", [True]])
def test_only_true_is_true(name: str, value: Any) -> None:
    """A file cannot make noise secure by a value that merely counts as true."""
    read = Guarantee.from_dict(guarantee(scaled=True).to_dict() | {name: value})
    assert (read.secure, read.scaled) == (name != "secure_noise", name != "scaled")


@pytest.mark.parametrize("name", ["sensitivity_squared", "variance"])
def test_numbers_that_floats_cannot_hold_are_refused(name: str) -> None:
    for text in (str(10**100), f"1/{10**100}"):
        assert getattr(Mechanism.from_dict(TREES.to_dict() | {name: text}), name) == Fraction(text)
    for text in (str(10**100 + 1), f"1/{10**100 + 1}", "1e3", "-4"):
        with pytest.raises(ValueError, match=r"poolrl writes no guarantee|not a number"):
            Mechanism.from_dict(TREES.to_dict() | {name: text})


def test_a_hundred_mechanisms_at_most() -> None:
    assert len(Guarantee.from_dict(guarantee(mechanisms=(TREES,) * 100).to_dict()).mechanisms) == 100
    with pytest.raises(ValueError, match="no guarantee of more than 100 mechanisms"):
        Guarantee.from_dict(guarantee(mechanisms=(TREES,) * 101).to_dict())


@pytest.mark.parametrize(("unit", "several"), [("trajectory", "trajectories"), ("shop", "shops")])
def test_what_neighbours_do(unit: str, several: str) -> None:
    keeps = guarantee(unit=unit, adjacency=KEEP_IDS)
    kept = f"replace what happened in one {unit}; the list of {several}, by their ids, is public and stays"
    assert neighbours_in_words(keeps) == kept
    assert f"neighbouring logs {kept}." in str(keeps)
    assert neighbours_in_words(guarantee(unit=unit)) == f"replace one {unit} by any other"


@pytest.mark.parametrize(("unit", "protects"), [(None, "trajectory"), (["a", "a", "b"], "unit")])
def test_a_release_says_whom_it_protects(unit: list[str] | None, protects: str) -> None:
    ones = np.ones((3, 1, 1))
    log = Trajectories(states=0 * ones, actions=ones, next_states=0 * ones, unit=unit, max_per_unit=2 if unit else 1)
    problem = LostSales(horizon=1, holding=0.1, shortage=0.4, demand_max=2.0)
    released = Pool(1.0).fit(problem, log, noise=SeededNoise(0)).guarantee
    assert (released.unit, released.trajectories_per_unit) == (protects, 2 if unit else 1)
    assert f"one {protects}" in str(released)
