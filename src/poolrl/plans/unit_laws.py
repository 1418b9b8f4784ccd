"""The model's laws of demand on a lattice of stocks, in units: 0, w, 2w, ... for every column and step.

A column is one label cell and product. Where orders are packs, a pack is a whole number of lattice steps, and whole
units stay whole. P(D = j w) is the mass that the law has nearest to j w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, IntArray, public_array
from poolrl.learning.model import PrivateModel
from poolrl.learning.outcomes import CLIMB, share_below
from poolrl.learning.together import drawn_together
from poolrl.problems.operations import Operations, ShopTerms, column_values
from poolrl.problems.problem import LevelProblem

# Lattice steps up to the highest stock, more or less.
FINEST = 400
# How much is ever held, in multiples of the most that a step can sell: once, and more where one orders ahead.
HELD_AT_ONCE, HELD_AHEAD = 1.0, 3.0


@dataclass(frozen=True)
class UnitLaws:
    """P(D = j w), (C, H, N + 1), with the lattice's widths w (C,), and the shop's terms."""

    chance: FloatArray
    width: FloatArray
    terms: ShopTerms
    caps: IntArray  # (C, H) lattice steps: no level lies above
    packs: IntArray  # (C,) lattice steps of a pack, 1 where any amount can be ordered
    together: float = 0.0  # the correlation of the products' demand at a step

    @property
    def left(self) -> FloatArray:
        """E(y − D)⁺ on the lattice y, (C, H, N + 1), in units: w Σ_{j<y} P(D ≤ j w)."""
        below = self._below
        before = np.concatenate([np.zeros_like(below[..., :1]), np.cumsum(below[..., :-1], axis=-1)], axis=-1)
        return before * self.width[:, None, None]

    def drawn(self, step: int, many: int, rng: np.random.Generator) -> FloatArray:
        """Demand of all columns at a step, (many, C) in units; columns move together."""
        share = drawn_together(rng, (many, len(self.width)), self.together)
        laws = self._below[:, step]
        place = [np.searchsorted(law, each * law[-1], side="right") for law, each in zip(laws, share.T, strict=True)]
        return np.minimum(np.stack(place, axis=1), self.chance.shape[-1] - 1) * self.width

    @cached_property
    def _below(self) -> FloatArray:
        return np.cumsum(self.chance, axis=-1)

    @property
    def mean(self) -> FloatArray:
        """E D, (C, H), in units."""
        return (self.chance * np.arange(self.chance.shape[-1])).sum(axis=-1) * self.width[:, None]


def unit_laws(
    model: PrivateModel, operations: Operations, *, scale: ArrayLike | None = None, waits: bool = False
) -> UnitLaws:
    """Laws of a model in units. Multiples of a scale need a usual `scale`, which spreads to (*labels, H, k).

    `waits` says that a planner is for unmet demand that waits, and not for demand that is lost.
    """
    problem, outcomes = model.problem, model.outcomes
    if not isinstance(problem, LevelProblem) or problem.censored == waits:
        kind = "demand that waits (Backlog)" if waits else "lost sales; where unmet demand waits see plan_backlog"
        raise ValueError(f"this plan is for {kind}")
    if model.guarantee.scaled and scale is None:
        raise ValueError("the model's amounts are multiples of a scale: say how large it usually is, scale=...")
    shape = (*problem.labels.shape, problem.horizon, problem.products)
    unit = column_values(public_array("scale", np.asarray(1.0 if scale is None else scale, dtype=np.float64), shape))
    if (unit <= 0).any():
        raise ValueError("scale must be positive")
    terms = operations.of(problem)
    if (np.maximum(terms.pack[:, None], terms.minimum) > terms.cap * unit).any():
        raise ValueError("a pack or a minimum order is larger than the bound: it could never be ordered")
    weights = np.moveaxis(outcomes.weights.reshape(-1, *outcomes.weights.shape[-3:]), 2, 1)
    weights = weights.reshape(-1, problem.horizon, weights.shape[-1])  # (C, H, B)
    points = outcomes.points.reshape(-1, outcomes.points.shape[-1])
    tops = (points[:, -1] + points[:, 0])[:, None] * unit  # (C, H) where each law ends
    ahead = terms.fixed.any(axis=1) | ~terms.deliveries.all(axis=1) | (terms.minimum.max(axis=1) > 0) | (terms.pack > 0)
    ahead |= np.ptp(terms.purchase, axis=1) > 0
    held = np.where(ahead, HELD_AHEAD, HELD_AT_ONCE) * tops.max(axis=1)
    cap = np.minimum(np.minimum(terms.cap, CLIMB * column_values(outcomes.explored)) * unit, held[:, None])
    least = np.maximum(terms.pack[:, None], terms.minimum)
    if ((least > cap) | ~terms.deliveries).all(axis=1).any():
        raise ValueError(
            "a pack or a minimum order is larger than what is ever held: more than one and a half times what past "
            f"orders explored, or {HELD_AHEAD:g} times what a step can sell"
        )
    highest = np.maximum(cap.max(axis=1), tops.max(axis=1))
    # As fine as FINEST steps allow, and a pack is a whole number of steps. Packs of whole units count whole units.
    units = (terms.pack > 0) & (terms.pack == np.floor(terms.pack)) & (highest <= 2 * FINEST)
    finest = np.maximum(1, np.floor(terms.pack * FINEST / highest))
    packs = np.where(units, terms.pack, np.where(terms.pack > 0, finest, 1)).astype(np.int64)
    width = np.where(terms.pack > 0, terms.pack / packs, highest / FINEST)
    size = int(np.ceil(highest / width).max())
    edges = (np.arange(size + 1) + 0.5) * width[:, None]
    reached = share_below(weights, edges[:, None] / tops[..., None] * weights.shape[-1])
    reached[..., -1] = 1.0
    chance = np.diff(reached, axis=-1, prepend=0.0)
    caps = np.floor(cap / width[:, None] + 1e-9).astype(np.int64)
    return UnitLaws(chance, width, terms, caps, packs, model.together)


def one_cell(laws: UnitLaws, cell: int) -> UnitLaws:
    """The products of one label cell."""
    products = laws.terms.products
    if not 0 <= cell < len(laws.width) // products:
        raise ValueError(f"cell must lie in 0 .. {len(laws.width) // products - 1}, got {cell}")
    mine = slice(cell * products, (cell + 1) * products)
    return replace(
        laws,
        chance=laws.chance[mine],
        width=laws.width[mine],
        terms=laws.terms.columns(mine),
        caps=laws.caps[mine],
        packs=laws.packs[mine],
    )
