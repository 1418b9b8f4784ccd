"""Demand families: parameters of each step and product are drawn from a seed, amounts are in [0, 100]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from poolrl.checks import FloatArray

TOP = 100.0


@dataclass(frozen=True)
class Family:
    """One member of a family: independent demand per step and product, as a mixture of continuous laws."""

    parts: list[tuple[FloatArray, stats.rv_continuous]]  # weight (H, k), frozen law with parameters (H, k)

    def sample(self, rng: np.random.Generator, episodes: int) -> FloatArray:
        """Demand (episodes, H, k)."""
        shape = (episodes, *self.parts[0][0].shape)
        which = rng.random(shape)
        drawn = self.parts[0][1].rvs(shape, random_state=rng)
        threshold = self.parts[0][0]
        for weight, law in self.parts[1:]:
            other = law.rvs(shape, random_state=rng)
            drawn = np.where(which < threshold, drawn, other)
            threshold = threshold + weight
        return np.clip(drawn, 0.0, TOP)

    def probabilities(self, top: float, bins: int) -> FloatArray:
        """The true probability of each of `bins` equal bins of [0, top], (H, k, bins)."""
        edges = np.linspace(0.0, top, bins + 1)[:, None, None]
        cumulative = sum(weight * law.cdf(edges) for weight, law in self.parts)
        return np.moveaxis(np.diff(cumulative, axis=0), 0, -1)


def _uniform(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    return Family([(np.ones(shape), stats.uniform(np.zeros(shape), TOP))])


def _normal_law(mean: FloatArray, sd: FloatArray) -> stats.rv_continuous:
    return stats.truncnorm((0 - mean) / sd, (TOP - mean) / sd, loc=mean, scale=sd)


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    return Family([(np.ones(shape), _normal_law(rng.uniform(20, 70, shape), rng.uniform(5, 20, shape)))])


def _beta(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    law = stats.beta(rng.uniform(0.7, 5, shape), rng.uniform(0.7, 5, shape), scale=TOP)
    return Family([(np.ones(shape), law)])


def _exponential(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    mean = rng.uniform(10, 40, shape)
    return Family([(np.ones(shape), stats.truncexpon(TOP / mean, scale=mean))])


def _bimodal(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    share = rng.uniform(0.3, 0.7, shape)
    low = _normal_law(rng.uniform(10, 35, shape), rng.uniform(3, 8, shape))
    high = _normal_law(rng.uniform(55, 85, shape), rng.uniform(3, 8, shape))
    return Family([(share, low), (1 - share, high)])


FAMILIES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Family]] = {
    "uniform": _uniform,
    "normal": _normal,
    "beta": _beta,
    "exponential": _exponential,
    "bimodal": _bimodal,
}
