"""What an attack proves: lower bounds on the privacy loss, from the errors of a test between two logs.

Sources: Clopper and Pearson 1934 (limits of a rate); Kairouz, Oh and Viswanath 2015 (tests and (ε, δ)); Dong, Roth and
Su 2022 (tests and Gaussian DP); Nasr et al. 2023 (auditing by the latter).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, ndtr, ndtri

from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise.seeded import discrete_gaussian

# Rows of released numbers, (releases, numbers).
Rows = NDArray[np.int32]

# The least variance of releases in any direction, as a share of the stated variance.
LEAST_VARIANCE = 1e-9
# Beyond this variance a discrete Gaussian is no easier to attack than a continuous one, to ten digits of μ.
SMOOTH = 2000.0
# An audit of millions of releases cannot distinguish smaller error rates from zero.
RAREST = 1e-7


@dataclass(frozen=True)
class Errors:
    """How many releases of each log a test has seen, and how many it assigned to the wrong log."""

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray, threshold: float) -> Errors:
        """The errors of the test that assigns scores above the threshold to the second log."""
        return cls(int((first > threshold).sum()), len(first), int((second <= threshold).sum()), len(second))

    def limits(self, confidence: float) -> tuple[float, float]:
        """Upper limits of both error rates, α and β, that hold together."""
        failure = (1 - confidence) / 2
        return (
            rate_limit(self.false_positives, self.negatives, failure),
            rate_limit(self.false_negatives, self.positives, failure),
        )

    def mu(self, confidence: float) -> float:
        """μ ≥ Φ⁻¹(1 − α) − Φ⁻¹(β): no test on a μ-GDP release has smaller errors."""
        alpha, beta = self.limits(confidence)
        return max(0.0, float(-ndtri(alpha) - ndtri(beta)))

    def epsilon(self, delta: float, confidence: float) -> float:
        """ε ≥ log((1 − δ − α) / β) and the same with α and β exchanged, for any (ε, δ)-DP release."""
        alpha, beta = self.limits(confidence)
        best = max((1 - delta - alpha) / beta, (1 - delta - beta) / alpha)
        return math.log(best) if best > 1 else 0.0


def releases_needed(mu: float, share: float, confidence: float) -> int:
    """About how many releases, of both logs together, prove this share of ρ = μ²/2."""
    error, failure = float(ndtr(-mu / 2)), (1 - confidence) / 2
    slack = mu * (1 - math.sqrt(share)) / 2  # for each of the two quantiles
    density = math.exp(-(mu**2) / 8) / math.sqrt(2 * math.pi)
    return math.ceil(2 * error * (1 - error) * (-float(ndtri(failure)) / (density * slack)) ** 2)


def rate_limit(errors: int, trials: int, failure: float) -> float:
    """An upper limit of a rate, wrong with at most this probability (Clopper-Pearson)."""
    return 1.0 if errors >= trials else float(betainccinv(errors + 1, trials - errors, failure))


def stated_score(released: Rows, first: IntArray, second: IntArray, variance: FloatArray | float) -> FloatArray:
    """The log-likelihood ratio of each row, which is linear if the noise is as stated:

    log p₂(t) − log p₁(t) = ⟨t − (c₁ + c₂)/2, (c₂ − c₁) / σ²⟩, where each number may have a σ² of its own
    """
    return (released - (first + second) / 2) @ ((second - first) / variance)


@dataclass(frozen=True)
class ReleaseMoments:
    """How many releases there were, their sum, and the sum of their products, (numbers, numbers)."""

    releases: int
    sum: FloatArray
    products: FloatArray

    @classmethod
    def of(cls, released: Rows) -> ReleaseMoments:
        """Those of some releases."""
        values = released.astype(np.float64)
        return cls(len(values), values.sum(axis=0), values.T @ values)

    def __add__(self, other: ReleaseMoments) -> ReleaseMoments:
        return ReleaseMoments(self.releases + other.releases, self.sum + other.sum, self.products + other.products)

    @property
    def mean(self) -> FloatArray:
        """The mean release."""
        return self.sum / self.releases

    @property
    def spread(self) -> FloatArray:
        """Σ (t − mean)(t − mean)ᵀ."""
        return self.products - np.outer(self.sum, self.mean)


def learned_score(
    first: ReleaseMoments, second: ReleaseMoments, variance: FloatArray | float
) -> Callable[[Rows], FloatArray]:
    """The same with the real noise, by Fisher's discriminant Σ⁻¹ (m₂ − m₁), for other releases than these.

    A score above zero is evidence for the second log. Noise that is missing in a cell, or shared between two cells,
    does not change `stated_score`. But it changes this score.
    """
    covariance = (first.spread + second.spread) / max(first.releases + second.releases - 2, 1)
    covariance[np.diag_indices_from(covariance)] += variance * LEAST_VARIANCE
    weights = np.linalg.solve(covariance, second.mean - first.mean)
    middle = float((first.mean + second.mean) @ weights / 2)
    return lambda released: np.asarray(released @ weights - middle)


def discreteness(moved: IntArray, variance: float) -> float:
    """How much better the best test on discrete noise is than that on a Gaussian, as a μ. It matters for small σ only.

    The stated score is a sum of discrete Gaussians, each multiplied by how far its count moved. Its distribution is
    their convolution, and a threshold has errors α and β in it.
    """
    if variance > SMOOTH or not moved.any():
        return 0.0
    _, weights = discrete_gaussian(math.sqrt(variance))
    steps, times = np.unique(np.abs(moved[moved != 0]), return_counts=True)
    # The score in its own unit, because numbers that move by 32 have no others in between.
    unit = int(np.gcd.reduce(steps))
    steps = steps // unit
    length = 1 + int((steps * times).sum()) * (len(weights) - 1)
    transform = np.ones(length // 2 + 1, dtype=np.complex128)
    for step, often in zip(steps, times, strict=True):
        stretched = np.zeros((len(weights) - 1) * int(step) + 1)
        stretched[:: int(step)] = weights
        transform *= np.fft.rfft(stretched, length) ** int(often)
    pmf = np.fft.irfft(transform, length)
    below, shift = np.cumsum(pmf), int((moved.astype(np.int64) ** 2).sum()) // unit
    # Under the second log the sum is higher by Σ moved², in the same unit.
    alpha, beta = 1 - below[shift:], below[: len(below) - shift]
    kept = (alpha > RAREST) & (beta > RAREST)
    return float((-ndtri(alpha[kept]) - ndtri(beta[kept])).max(initial=0.0) - math.sqrt(shift * unit / variance))


def joint_discreteness(moved: IntArray, variances: FloatArray) -> float:
    """The same where numbers have different variances.

    Those of one variance are (μᵢ + aᵢ)-GDP by `discreteness`, and all together √Σ (μᵢ + aᵢ)²-GDP (Dong, Roth and Su).
    """
    laws = np.unique(variances)
    each = [moved[variances == variance] for variance in laws]
    smooth = [math.sqrt(float((m.astype(np.float64) ** 2).sum()) / v) for m, v in zip(each, laws, strict=True)]
    more = [max(0.0, discreteness(m, float(v))) for m, v in zip(each, laws, strict=True)]
    return math.hypot(*np.add(smooth, more)) - math.hypot(*smooth)


def best_threshold(first: FloatArray, second: FloatArray, *, delta: float, confidence: float) -> float:
    """The threshold at which these releases prove the largest ε. Other releases must be judged by it."""
    tried = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 401)))
    proved = [Errors.of(first, second, each).epsilon(delta, confidence) for each in tried]
    return float(tried[int(np.argmax(proved))])


def roc(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """False and true positive rates at 400 thresholds."""
    thresholds = np.quantile(np.concatenate([first, second]), np.linspace(1, 0, 400))
    rates = [np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores) for scores in (first, second)]
    return 1 - rates[0], 1 - rates[1]
