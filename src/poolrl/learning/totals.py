"""How many slots each cell observed: public, or estimated from the roots of its trees."""

from __future__ import annotations

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.resolution import LEFT_PARTS
from poolrl.learning.trees import upward
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem


def observed_slots(released: PrivateOutcomes) -> FloatArray:
    """Observed slots of every cell, (*labels, H, k).

    Without labels a (step, coordinate) has `total` slots, of which some are unobserved. With public labels a cell has
    its public total. With protected labels the total of a cell is one of the things that were learned: the trees'
    roots, shrunk towards the average of all cells.
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
        return np.clip(_shrunk(both, _observed_share(both, slots) * slots, noise * weight), 0.0, slots)
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
    """What a row has left on average, and its standard error by noise, (2, *labels, H, k), in the user's units."""
    if released.left is None:
        return None
    part = problem.outcome_high * problem.bound_share[..., None, :] / LEFT_PARTS
    many = np.maximum(slots, 1.0)
    error = np.broadcast_to(released.left.variance**0.5 / many, slots.shape)
    return np.stack([released.left.sums / many, error]) * part


def _observed_share(observed: FloatArray, slots: FloatArray) -> float:
    """The share of all slots that was observed; zero where no row has declared labels."""
    every = float(slots.mean())
    return float(np.clip(observed.mean() / every, 0.0, 1.0)) if every > 0 else 0.0


def _shrunk(values: FloatArray, centre: FloatArray, noise: float) -> FloatArray:
    """Values moved towards their centres, as far as noise explains their distance."""
    if noise == 0:
        return values
    real = max(float(((values - centre) ** 2).mean()) - noise, 0.0)
    return centre + real / (real + noise) * (values - centre)
