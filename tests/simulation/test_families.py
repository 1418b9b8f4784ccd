"""Families of simulated demand, against SciPy's own distribution functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolrl.simulation.families import FAMILIES, TOP

SHAPE = (3, 2)


@pytest.mark.parametrize("name", FAMILIES)
def test_probabilities_are_those_of_scipy(name: str) -> None:
    """Each part is a law of SciPy, which has a distribution function of its own."""
    family = FAMILIES[name](np.random.default_rng(0), SHAPE)
    edges = np.linspace(0.0, TOP, 65)[:, None, None]
    known = sum(weight * getattr(stats, law.name)(**law.parameters).cdf(edges) for weight, law in family.parts)
    found = family.probabilities(TOP, 64)
    assert found == pytest.approx(np.moveaxis(np.diff(known, axis=0), 0, -1), abs=1e-12)
    assert found.sum(axis=-1) == pytest.approx(np.ones(SHAPE))


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_follow_the_probabilities(name: str) -> None:
    """20,000 draws of each step and product: no distribution function is further off than chance allows."""
    family = FAMILIES[name](np.random.default_rng(1), SHAPE)
    drawn = family.sample(np.random.default_rng(2), 20_000)
    below = np.moveaxis([(drawn <= edge).mean(axis=0) for edge in np.linspace(0.0, TOP, 65)[1:]], 0, -1)
    off = np.abs(below - np.cumsum(family.probabilities(TOP, 64), axis=-1)).max(axis=-1)
    assert (off < stats.kstwobign.isf(1e-4) / np.sqrt(20_000)).all()
