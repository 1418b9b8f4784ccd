"""What has passed the door: noisy tables, all that learning may see of a log."""

from __future__ import annotations

from dataclasses import dataclass

from poolrl.arrays import IntArray
from poolrl.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class PrivateOutcomes:
    """Noisy dyadic trees of censored outcomes.

    `levels[l]` has shape (H, k, kinds, 2ˡ), kinds = (seen, cut off) or (seen,) where nothing is ever cut off.
    `unobserved` (H, k) is None where public facts rule it out. `total` slots fall into each (step, coordinate).
    """

    levels: tuple[IntArray, ...]
    unobserved: IntArray | None
    total: int
    variance: float  # of every noisy count
    guarantee: Guarantee


@dataclass(frozen=True)
class PrivateVisits:
    """The paper's noisy counts n′(b) as `pairs` (H, N) and n′(b, s′) as `transitions` (H, N, S)."""

    pairs: IntArray
    transitions: IntArray
    variance: float
    guarantee: Guarantee
