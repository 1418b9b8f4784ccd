"""Demand nobody owns: families of laws on [0, 100], worlds that have them, and trees that their logs would show.

Parameters of each step and product are drawn from a seed. Trees are drawn from laws instead of counted in a log: a
leaf's count follows from its chance, and a node's noise from its variance. No row is made.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import BENCHMARK_BINS
from poolrl.learning.law import Law
from poolrl.learning.shapes import expected_shares
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem

TOP = 100.0


@dataclass(frozen=True)
class Smooth:
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

    parts: list[tuple[FloatArray, Smooth]]  # weight (H, k), law with parameters (H, k)

    def sample(self, rng: np.random.Generator, episodes: int) -> FloatArray:
        """Demand (episodes, H, k)."""
        (threshold, first), *others = self.parts
        shape = (episodes, *threshold.shape)
        which, drawn = rng.random(shape), first.sample(rng, shape)
        for weight, law in others:
            drawn = np.where(which < threshold, drawn, law.sample(rng, shape))
            threshold = threshold + weight
        return np.clip(drawn, 0.0, TOP)

    def probabilities(self, top: float, bins: int) -> FloatArray:
        """The true probability of each of `bins` equal bins of [0, top], (H, k, bins)."""
        edges = np.linspace(0.0, top, bins + 1)[:, None, None]
        cumulative = sum(weight * law.below(edges) for weight, law in self.parts)
        return np.moveaxis(np.diff(cumulative, axis=0), 0, -1)


def _uniform(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    law = Smooth(
        lambda t: np.broadcast_to(t / TOP, (len(t), *shape)), "uniform", {"loc": np.zeros(shape), "scale": TOP}
    )
    return Family([(np.ones(shape), law)])


def _normal_law(mean: FloatArray, sd: FloatArray) -> Smooth:
    """Normal, given that it lies in [0, TOP]."""
    low, high = (0 - mean) / sd, (TOP - mean) / sd
    inside = special.ndtr(high) - special.ndtr(low)
    return Smooth(
        lambda t: (special.ndtr((t - mean) / sd) - special.ndtr(low)) / inside,
        "truncnorm",
        {"a": low, "b": high, "loc": mean, "scale": sd},
    )


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    return Family([(np.ones(shape), _normal_law(rng.uniform(20, 70, shape), rng.uniform(5, 20, shape)))])


def _beta(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    a, b = rng.uniform(0.7, 5, shape), rng.uniform(0.7, 5, shape)
    law = Smooth(lambda t: special.betainc(a, b, t / TOP), "beta", {"a": a, "b": b, "scale": TOP})
    return Family([(np.ones(shape), law)])


def _exponential(rng: np.random.Generator, shape: tuple[int, int]) -> Family:
    """Exponential, given that it is at most TOP."""
    mean = rng.uniform(10, 40, shape)
    law = Smooth(lambda t: np.expm1(-t / mean) / np.expm1(-TOP / mean), "truncexpon", {"b": TOP / mean, "scale": mean})
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


@dataclass(frozen=True, eq=False)
class World:
    """Demand as probabilities (H, k, bins) of equal bins between zero and the public bound."""

    name: str
    probabilities: FloatArray

    def sample(self, problem: OutcomeProblem, count: int, rng: np.random.Generator) -> FloatArray:
        """Demand, or other outcomes, (count, H, k)."""
        drawn = np.empty((count, *self.probabilities.shape[:2]))
        for step, laws in enumerate(self.probabilities):
            chosen = np.stack([Law(law).bins_at(rng.random(count)) for law in laws], axis=-1)
            # Anywhere in the bin.
            drawn[:, step] = (chosen + rng.random(chosen.shape)) * problem.outcome_high / laws.shape[-1]
        return problem.arranged(drawn)


def worlds_of(problem: OutcomeProblem, demand: str, *, runs: int) -> list[World]:
    """Members of a family of demand, or of all five (`any`); `prior` is uniform between the bounds."""
    names = list(FAMILIES) if demand == "any" else ["uniform" if demand == "prior" else demand]
    shape = (problem.horizon, problem.outcome_dim)
    return [
        World(name, FAMILIES[name](np.random.default_rng([number, run]), shape).probabilities(TOP, BENCHMARK_BINS))
        for run in range(runs)
        for number, name in enumerate(names)
    ]


# Chances of a leaf are sums over finer bins, in which "half of the bin" says which of two amounts is the larger.
FINER = 8


@dataclass(frozen=True)
class TreeLaws:
    """Laws of outcomes and cut-off levels on equal bins up to `tops` (k,), in shares of the bound, (H, k, B)."""

    outcomes: FloatArray
    cutoffs: FloatArray | None
    tops: FloatArray

    def chances(self, bins: int) -> FloatArray:
        """Of every leaf, (H, k, kinds, bins)."""
        cutoffs = None if self.cutoffs is None else self._on_leaves(self.cutoffs, bins)
        shares = expected_shares(self._on_leaves(self.outcomes, bins), cutoffs)
        merged = np.maximum(shares.reshape(*shares.shape[:-1], bins, FINER).sum(axis=-1), 0.0)
        return np.asarray(merged / merged.sum(axis=(-2, -1), keepdims=True))

    def _on_leaves(self, law: FloatArray, bins: int) -> FloatArray:
        places = np.minimum(bin_edges(bins * FINER) / self.tops[:, None], 1.0) * law.shape[-1]
        return Law(law).between(places)


def draw_trees(
    laws: TreeLaws, slots: FloatArray, *, level_sizes: tuple[int, ...], variance: float, rng: np.random.Generator
) -> PrivateOutcomes:
    """Trees of as many slots (H, k) as a log had, with noise of the variance that its release had."""
    chances = laws.chances(level_sizes[-1])
    flat = chances.reshape(*chances.shape[:-2], -1)
    leaves = rng.multinomial(np.rint(slots).astype(np.int64), flat).reshape(chances.shape)
    levels = []
    for size in level_sizes:
        counts = leaves.reshape(*leaves.shape[:-1], size, -1).sum(axis=-1)
        levels.append(counts + np.rint(rng.normal(0.0, variance**0.5, counts.shape)).astype(np.int64))
    total = int(np.rint(slots.max()))
    unobserved = np.rint(total - slots + rng.normal(0.0, variance**0.5, slots.shape)).astype(np.int64)
    return PrivateOutcomes(tuple(levels), unobserved, total, variance, Guarantee.of_nothing(len(slots)))
