"""From noisy trees to consistent, non-negative masses, and from masses to distributions by Kaplan-Meier on bins.

Upwards, a node's own count and the sum of its children are combined by inverse variance. Downwards, each parent's mass
is split between its children, and a noise-dominated split is moved towards that of the cell's law (`shapes`), as far as
the released numbers themselves say (empirical Bayes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.geometry.resolution import LEFT_PARTS, SHAPE_BINS
from poolrl.learning import priors
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True)
class Cells:
    """Trees of cells: levels (cells, kinds, size) with noise of `variance`, and slots `totals` (cells,).

    `status` (cells,) says where only the side of an outcome is seen; `shape` is (*labels, H, k) for a whole release.
    Bins count from the top where the world's feedback is on the `higher` side.
    """

    levels: list[FloatArray]
    variance: float
    totals: FloatArray
    status: BoolArray
    shape: tuple[int, ...] = ()
    higher: bool = False

    @classmethod
    def of(cls, released: PrivateOutcomes, problem: OutcomeProblem, totals: FloatArray) -> Self:
        """As they were released."""
        levels = [level.reshape(-1, *level.shape[-2:]).astype(np.float64) for level in released.levels]
        status = np.isin(np.indices(totals.shape)[-1].ravel(), problem.current_status)
        higher = problem.boundary.side == "higher"
        return cls(levels, released.variance, totals.ravel(), status, totals.shape, higher)

    @property
    def resolved(self) -> int:
        """On how many bins shapes are compared with the trees."""
        return min(self.levels[-1].shape[-1], SHAPE_BINS)

    def some(self, chosen: BoolArray) -> Cells:
        """Those that are chosen."""
        return Cells([level[chosen] for level in self.levels], self.variance, self.totals[chosen], self.status[chosen])

    @property
    def steps(self) -> IntArray:
        """The step of each, (cells,)."""
        return np.indices(self.shape)[-2].ravel()

    @property
    def factors(self) -> list[IntArray]:
        """For each label, step and coordinate, and for each pair of them, the number of its value, (cells,).

        A factor with one value, or with a value for every cell, would only repeat what is known without it.
        """
        numbers = np.indices(self.shape).reshape(len(self.shape), -1)
        singles = [(number, size) for number, size in zip(numbers, self.shape, strict=True) if size > 1]
        pairs = [(one * size + two, many * size) for (one, many), (two, size) in combinations(singles, 2)]
        return [number for number, size in [*singles, *pairs] if size < math.prod(self.shape)]

    @property
    def same_season(self) -> IntArray:
        """One number for all steps of a label cell and coordinate, (cells,)."""
        places = np.indices(self.shape).reshape(len(self.shape), -1)
        return np.asarray(np.ravel_multi_index((*places[:-2], places[-1]), (*self.shape[:-2], self.shape[-1])))

    def whole_season(self) -> Cells:
        """All steps of a label cell and coordinate as one: counts add up, and so do the variances of their noise."""
        steps = self.shape[-2]
        levels = [
            level.reshape(*self.shape, *level.shape[-2:]).sum(axis=-4).reshape(-1, *level.shape[-2:])
            for level in self.levels
        ]
        totals = self.totals.reshape(self.shape).sum(axis=-2).ravel()
        status = self.status.reshape(self.shape)[..., 0, :].ravel()
        return Cells(levels, self.variance * steps, totals, status, (*self.shape[:-2], 1, self.shape[-1]), self.higher)

    def of_each_step(self, season: FloatArray) -> FloatArray:
        """Laws of a season, given to each of its steps, (cells, F)."""
        laws = season.reshape(*self.shape[:-2], 1, self.shape[-1], -1)
        return np.array(np.broadcast_to(laws, (*self.shape, laws.shape[-1]))).reshape(len(self.totals), -1)


def consistent_masses(cells: Cells, centre: FloatArray, *, a_sample: bool = False) -> FloatArray:
    """Masses of every leaf, (cells, kinds, B), around the shares `centre` of each cell's law.

    `a_sample` says that slots are a sample of a law that others share.
    """
    totals, (estimates, variances) = cells.totals, upward(cells.levels, cells.variance)

    def split(parent: FloatArray, nodes: FloatArray, variance: float, law: FloatArray) -> FloatArray:
        """The masses of both children (..., 2n) of each parent (..., n), between 0 and the parent's.

        Given the parent m, the children's estimates z of variance v leave x = z_l + (m − z_l − z_r) / 2, with v / 2.
        """
        left, right, expected = nodes[..., 0::2], nodes[..., 1::2], law[..., 0::2]
        both = expected + law[..., 1::2]
        share = np.where(both > 0, expected / np.where(both > 0, both, 1.0), 0.5)
        x = left + (parent - left - right) * 0.5
        mass = parent * borrowed_share(parent, x, variance * 0.5, share, a_sample=a_sample)
        return np.stack([mass, parent - mass], axis=-1).reshape(nodes.shape)

    # The law's shares of all nodes, root first.
    expected = [centre]
    while expected[0].shape[-1] > 1:
        expected.insert(0, expected[0][..., 0::2] + expected[0][..., 1::2])
    mass = totals[:, None]
    if centre.shape[1] == 2:
        mass = split(mass, estimates[0][..., 0], variances[0], expected[0][..., 0])
    mass = mass[..., None]
    for estimate, own, shares in zip(estimates[1:], variances[1:], expected[1:], strict=True):
        mass = split(mass, estimate, own, shares)
    return np.asarray(np.broadcast_to(mass, centre.shape))


def upward(levels: Sequence[FloatArray | IntArray], variance: float) -> tuple[list[FloatArray], list[float]]:
    """Best linear estimate of every node from its own subtree, root first, with its variance.

        v_s = 2 v_child,   w = v_s / (v_s + σ²),   z = w n′ + (1 − w)(z_left + z_right),   v = σ² w

    Where a level was not released, its nodes are the sums of their children: w = 0 and v = v_s.
    """
    own = {level.shape[-1]: level for level in levels}
    size = levels[-1].shape[-1]
    estimates, variances = [np.asarray(levels[-1], dtype=np.float64)], [variance]
    while size > 1:
        size //= 2
        children, sum_variance = estimates[0], 2 * variances[0]
        from_children = children[..., 0::2] + children[..., 1::2]
        if size in own:
            weight = sum_variance / (sum_variance + variance) if variance > 0 else 1.0
            from_children = weight * own[size] + (1 - weight) * from_children
            sum_variance = variance * weight
        estimates.insert(0, from_children)
        variances.insert(0, sum_variance)
    return estimates, variances


def borrowed_share(
    parent: FloatArray, x: FloatArray, variance: float, centre: FloatArray, *, a_sample: bool = False
) -> FloatArray:
    """The posterior mean of shares x/m around their centres θ, clipped to [0, 1].

        share ~ N(θ, τ²),   x | share ~ N(m · share, v + vs / (v + s)):   E = θ + g (x/m − θ),   g = m²τ² / (m²τ² + ...)

    with τ unknown but common to all, weighted by its likelihood and by e^{−τ / USUAL_SPLIT_SPREAD}. The variance of
    sampling s = m θ (1 − θ) counts as far as noise exceeds it, so that without noise the share is exactly x/m. As
    `a_sample` of a law that many share it counts in full: v + s.
    """
    deviation = x - centre * parent
    safe = np.where(parent > 0, parent, 1.0)
    if variance == 0 and not a_sample:
        gain = np.ones_like(deviation)
    else:
        squares = np.broadcast_to(parent**2, deviation.shape)
        sampled = parent * centre * (1 - centre)
        if a_sample:
            noise = variance + np.maximum(sampled, priors.LEAST_VARIANCE)
        else:
            noise = variance * (1 + sampled / (variance + sampled))
        joint = np.empty(len(priors.SPLIT_SPREADS))
        for i, tau in enumerate(priors.SPLIT_SPREADS):
            expected = squares * tau**2 + noise
            joint[i] = -0.5 * np.sum(np.log(expected) + deviation**2 / expected) - tau / priors.USUAL_SPLIT_SPREAD
        chance = np.exp(joint - joint.max())
        gain = np.zeros_like(deviation)
        for weight, tau in zip(chance / chance.sum(), priors.SPLIT_SPREADS, strict=True):
            if weight > 1e-6:
                gain += weight * squares * tau**2 / (squares * tau**2 + noise)
    share = np.clip(centre + gain * deviation / safe, 0.0, 1.0)
    return np.where(parent > 0, share, centre)


def kaplan_meier(masses: FloatArray, law: FloatArray) -> FloatArray:
    """Probabilities (..., bins) from masses (..., kinds, bins) of seen and cut-off outcomes.

    Outcome and cut-off level are independent, and each is spread evenly inside a bin. With hazards a and b, the share
    s = a − ab/2 of those at risk is seen in the bin, and c = b − ab/2 is cut off. Solved for a,

        a = u − √(u² − 2s) = 2s / (u + √(u² − 2s)),   u = 1 + (s − c)/2

    Unlike the actuarial rule s / (1 − c/2) it is exact in the last bins too. Where nothing is at risk any more, the
    hazards of `law` (..., bins) continue.
    """
    total = masses.sum(axis=(-2, -1))[..., None]
    whisper = law * np.maximum(total, 1.0) * priors.WHISPER
    seen = masses[..., 0, :] + whisper
    if masses.shape[-2] == 1:
        return np.asarray(seen / seen.sum(axis=-1, keepdims=True))
    cut = masses[..., 1, :]
    at_risk = np.cumsum((seen + cut)[..., ::-1], axis=-1)[..., ::-1]
    safe = np.where(at_risk > 0, at_risk, 1.0)
    s, c = seen / safe, cut / safe
    u = 1 + (s - c) / 2
    hazard = np.clip(2 * s / (u + np.sqrt(np.maximum(u * u - 2 * s, 0.0))), 0.0, 1.0)
    survival = np.cumprod(1 - hazard, axis=-1)
    before = np.concatenate([np.ones_like(survival[..., :1]), survival[..., :-1]], axis=-1)
    weights = before * hazard
    # Outcomes beyond the last bin exceed every level that was tried. Only "at least that" is known of them.
    weights[..., -1] += survival[..., -1]
    return np.asarray(weights)


def refined(weights: FloatArray, law: FloatArray) -> FloatArray:
    """Share every bin's weight (..., B) between the finer bins of `law` (..., B · parts), in its proportions.

    No bin gains or loses weight. Where the law has nothing, the parts are equal.
    """
    parts = law.shape[-1] // weights.shape[-1]
    inside = law.reshape(*weights.shape, parts)
    total = inside.sum(axis=-1, keepdims=True)
    # A share of almost nothing would be rounding, not shape.
    shares = np.where(total > 1e-12, inside / np.where(total > 1e-12, total, 1.0), 1 / parts)
    return np.asarray((weights[..., None] * shares).reshape(law.shape))


def observed_slots(released: PrivateOutcomes) -> FloatArray:
    """Observed slots of every cell, (*labels, H, k).

    Without labels a (step, coordinate) has `total` slots, of which some are unobserved. With public labels a cell has
    its public total. With protected labels that is learned: the trees' roots, shrunk towards the average of all cells.
    """
    kinds = released.levels[0].shape[-2]
    estimates, variances = upward(released.levels, released.variance)
    roots, noise = estimates[0][..., 0].sum(axis=-1), kinds * variances[0]  # (*labels, H, k)
    slots = np.asarray(released.total, dtype=np.float64)
    if released.totals is not None:
        slots = released.totals[..., None].astype(np.float64)
    if released.unobserved is None:
        return np.array(np.broadcast_to(slots, roots.shape))
    # Either count alone tells the observed slots, and both together tell them better.
    weight = released.variance / (released.variance + noise) if noise > 0 else 1.0
    if released.totals is not None or roots.ndim == 2:
        both = weight * roots + (1 - weight) * (slots - released.unobserved)
        every = float(slots.mean())  # zero where no row has declared labels
        observed = float(np.clip(both.mean() / every, 0.0, 1.0)) if every > 0 else 0.0
        return np.clip(_shrunk(both, observed * slots, noise * weight), 0.0, slots)
    pooled = roots.reshape(-1, *roots.shape[-2:]).sum(axis=0)  # (H, k): labels of all cells together
    cells = roots[..., 0, 0].size
    both = weight / cells * pooled + (1 - weight / cells) * (slots - released.unobserved) if noise > 0 else pooled
    by_step = np.clip(both, 0.0, slots)
    average = by_step / cells
    # A trajectory has all its coordinates in one label cell, and all its steps unless a label changes on the way. So
    # their roots tell the cell's size together.
    together = (-1,) if released.step_labels else (-2, -1)
    usual = average.mean(axis=together, keepdims=True)
    sizes = _shrunk(roots.mean(axis=together, keepdims=True), usual, noise * usual.size / average.size)
    expected = sizes * average / np.maximum(usual, 1.0)
    return np.clip(_shrunk(roots, expected, noise), 0.0, slots)


def mean_left(released: PrivateOutcomes, problem: OutcomeProblem, slots: FloatArray) -> FloatArray | None:
    """The mean amount left by a row, and its standard error by noise, (2, *labels, H, k), in the user's units."""
    left = released.on_top.get("left_over")
    if left is None:
        return None
    part = problem.outcome_high * problem.bound_share[..., None, :] / LEFT_PARTS
    many = np.maximum(slots, 1.0)
    error = np.broadcast_to(left.variance**0.5 / many, slots.shape)
    return np.stack([left.counts / many, error]) * part


def _shrunk(values: FloatArray, centre: FloatArray, noise: float) -> FloatArray:
    """Values moved towards their centres, as far as noise explains their distance."""
    if noise == 0:
        return values
    real = max(float(((values - centre) ** 2).mean()) - noise, 0.0)
    return centre + real / (real + noise) * (values - centre)
