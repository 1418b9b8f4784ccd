"""What an attack proves: lower bounds on the privacy loss, from how often a test between two logs is wrong.

Sources: Clopper and Pearson 1934 (limits of a rate); Kairouz, Oh and Viswanath 2015 (tests and (ε, δ)); Dong, Roth and
Su 2022 (tests and Gaussian DP); Nasr et al. 2023 (auditing by the latter).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, ndtr, ndtri

from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise.seeded import discrete_gaussian

# Rows of released numbers, (releases, numbers).
Rows = NDArray[np.int32]

# Directions in which releases hardly vary count as varying by this share of the stated variance.
LEAST_VARIANCE = 1e-9
# Error rates that no audit of millions of releases could tell from zero.
RAREST = 1e-7


@dataclass(frozen=True)
class Errors:
    """A test's record: of so many releases from each log, how many it took for the other's."""

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray, threshold: float) -> Errors:
        """Whoever scores above the threshold is said to come from the second log."""
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
    slack = mu * (1 - math.sqrt(share)) / 2  # of each of the two quantiles
    density = math.exp(-(mu**2) / 8) / math.sqrt(2 * math.pi)
    return math.ceil(2 * error * (1 - error) * (-float(ndtri(failure)) / (density * slack)) ** 2)


def rate_limit(errors: int, trials: int, failure: float) -> float:
    """The upper limit of a rate that fails with at most this probability (Clopper-Pearson)."""
    return 1.0 if errors >= trials else float(betainccinv(errors + 1, trials - errors, failure))


def stated_score(released: Rows, first: IntArray, second: IntArray, variance: float) -> FloatArray:
    """The log-likelihood ratio of each row if the noise is as stated, which is linear:

    log p₂(t) − log p₁(t) = ⟨t − (c₁ + c₂)/2, c₂ − c₁⟩ / σ²
    """
    return (released - (first + second) / 2) @ ((second - first) / variance)


@dataclass(frozen=True)
class LearnedScore:
    """The same with the noise as it is: means and covariance come from releases that are not judged by it.

    Noise that is missing in a cell, or shared between two, makes no difference to `stated_score` but all to this one.
    """

    weights: FloatArray
    middle: float

    @classmethod
    def from_releases(cls, first: Rows, second: Rows, variance: float) -> LearnedScore:
        """Fisher's discriminant Σ⁻¹ (m₂ − m₁)."""
        means = first.mean(axis=0), second.mean(axis=0)
        spread = np.concatenate([first - means[0], second - means[1]])
        covariance = spread.T @ spread / max(len(spread) - 2, 1)
        covariance[np.diag_indices_from(covariance)] += variance * LEAST_VARIANCE
        weights = np.linalg.solve(covariance, means[1] - means[0])
        return cls(weights, float((means[0] + means[1]) @ weights / 2))

    def __call__(self, released: Rows) -> FloatArray:
        """The score of each row; above zero speaks for the second log."""
        return np.asarray(released @ self.weights - self.middle)


def discreteness(moved: IntArray, variance: float) -> float:
    """By how much the best test on discrete noise beats that on a Gaussian, as a μ: next to nothing unless σ is small.

    The stated score is a sum of discrete Gaussians, each times how far its count moved; its distribution is their
    convolution, in which a threshold leaves errors α and β.
    """
    _, weights = discrete_gaussian(math.sqrt(variance))
    steps, times = np.unique(np.abs(moved[moved != 0]), return_counts=True)
    length = 1 + int((steps * times).sum()) * (len(weights) - 1)
    transform = np.ones(length // 2 + 1, dtype=np.complex128)
    for step, often in zip(steps, times, strict=True):
        stretched = np.zeros((len(weights) - 1) * int(step) + 1)
        stretched[:: int(step)] = weights
        transform *= np.fft.rfft(stretched, length) ** int(often)
    pmf = np.fft.irfft(transform, length)
    below, shift = np.cumsum(pmf), int((moved.astype(np.int64) ** 2).sum())
    # Under the second log the sum is higher by Σ moved².
    alpha, beta = 1 - below[shift:], below[: len(below) - shift]
    told = (alpha > RAREST) & (beta > RAREST)
    return float((-ndtri(alpha[told]) - ndtri(beta[told])).max(initial=0.0) - math.sqrt(shift / variance))


def best_threshold(first: FloatArray, second: FloatArray, *, delta: float, confidence: float) -> float:
    """The threshold at which these releases, not to be judged by it, prove the largest ε."""
    tried = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 401)))
    proved = [Errors.of(first, second, each).epsilon(delta, confidence) for each in tried]
    return float(tried[int(np.argmax(proved))])


def roc(first: FloatArray, second: FloatArray, points: int = 400) -> tuple[FloatArray, FloatArray]:
    """False and true positive rates over all thresholds."""
    thresholds = np.quantile(np.concatenate([first, second]), np.linspace(1, 0, points))
    rates = [np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores) for scores in (first, second)]
    return 1 - rates[0], 1 - rates[1]
