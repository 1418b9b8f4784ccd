"""Demand families: parameters of each step and product are drawn from a seed, amounts are in [0, 100]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from poolrl.checks import FloatArray

TOP = 100.0


@dataclass(frozen=True)
class Law:
    """A continuous law of [0, TOP] for every step and product: its distribution function, and its name in SciPy."""

    below: Callable[[FloatArray], FloatArray]
    name: str
    parameters: dict[str, FloatArray | float]

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Draws of the given shape."""
        # It takes a third of a second to import, and only simulations draw.
        from scipy import stats

        return np.asarray(getattr(stats, self.name)(**self.parameters).rvs(shape, random_state=rng))


@dataclass(frozen=True)
class Family:
    """One member of a family: independent demand per step and product, as a mixture of continuous laws."""

    parts: list[tuple[FloatArray, Law]]  # weight (H, k), law with parameters (H, k)

    def sample(self, rng: np.random.Generator, episodes: int) -> FloatArray:
        """Demand (episodes, H, k)."""
        shape = (episodes, *self.parts[0][0].shape)
        which = rng.random(shape)
        drawn = self.parts[0][1].sample(rng, shape)
        threshold = self.parts[0][0]
        for weight, law in self.parts[1:]:
            other = law.sample(rng, shape)
            drawn = np.where(which < threshold, drawn, other)
            threshold = threshold + weight
        return np.clip(drawn, 0.0, TOP)

    def probabilities(self, top: float, bins: int) -> FloatArray:
        """The true probability of each of `bins` equal bins of [0, top], (H, k, bins)."""
        edges = np.linspace(0.0, top, bins + 1)[:, None, None]
        cumulative = sum(weight * law.below(edges) for weight, law in self.parts)
        return np.moveaxis(np.diff(cumulative, axis=0), 0, -1)


def _uniform(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    law = Law(lambda t: np.broadcast_to(t / TOP, (len(t), *shape)), "uniform", {"loc": np.zeros(shape), "scale": TOP})
    return Family([(np.ones(shape), law)])


def _normal_law(mean: FloatArray, sd: FloatArray) -> Law:
    """Normal, given that it lies in [0, TOP]."""
    low, high = (0 - mean) / sd, (TOP - mean) / sd
    inside = special.ndtr(high) - special.ndtr(low)
    return Law(
        lambda t: (special.ndtr((t - mean) / sd) - special.ndtr(low)) / inside,
        "truncnorm",
        {"a": low, "b": high, "loc": mean, "scale": sd},
    )


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    return Family([(np.ones(shape), _normal_law(rng.uniform(20, 70, shape), rng.uniform(5, 20, shape)))])


def _beta(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    a, b = rng.uniform(0.7, 5, shape), rng.uniform(0.7, 5, shape)
    law = Law(lambda t: special.betainc(a, b, t / TOP), "beta", {"a": a, "b": b, "scale": TOP})
    return Family([(np.ones(shape), law)])


def _exponential(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    """Exponential, given that it is at most TOP."""
    mean = rng.uniform(10, 40, shape)
    law = Law(lambda t: np.expm1(-t / mean) / np.expm1(-TOP / mean), "truncexpon", {"b": TOP / mean, "scale": mean})
    return Family([(np.ones(shape), law)])


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
