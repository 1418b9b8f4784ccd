"""The audit of a fit: many releases of two logs, the best test between them, and the privacy loss that errors prove.

Releases use the code and the noise of a fit. Each bound holds by itself with the stated confidence, if releases are
independent of each other. A bound close to the claim shows that the attack is strong.

Sources: Clopper and Pearson 1934 (limits of a rate); Kairouz, Oh and Viswanath 2015 (tests and (ε, δ)); Dong, Roth and
Su 2022 (tests and Gaussian DP); Nasr et al. 2023 (auditing by the latter).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import betainccinv, ndtr, ndtri

from poolrl.audit.cases import AuditCase
from poolrl.audit.faults import (
    DIFFER,
    NOISE,
    Exact,
    MovedTable,
    Repeated,
    Revealed,
    exact_counts,
    moved_share,
    moved_tables,
    revealed,
    structure_faults,
)
from poolrl.audit.noise import NUMBERS_AT_ONCE, Part, Rows, Sums, added, judge_noise, look_at_noise, noise_parts
from poolrl.checks import FloatArray, IntArray, one_of, positive, whole
from poolrl.data.log import Log
from poolrl.pool import Prepared
from poolrl.privacy import zcdp
from poolrl.privacy.noise.source import discrete_gaussian

DELTA = 1e-6
CONFIDENCE = 0.95
# A flag must not be bad luck, so it needs a proof with this confidence.
FLAGGING = 0.999
# An audit that proves less than this share of the claimed ρ is too weak.
POWER = 0.5
# With less noise, or with more, an attack could see nothing.
AUDITED_VARIANCES = 0.01, 2.0**24
# The share of releases by which the threshold of the test for any release is chosen.
TRAINING = 0.2
# Releases of each log that share one count, at most.
RELEASES_AT_ONCE = 1000
# Releases of each log that are made like a fit, from the engine's count to the last table.
END_TO_END = {"arrays": 100, "table": 20}
# Beyond this variance a discrete Gaussian is no easier to attack than a continuous one, to ten digits of μ.
SMOOTH = 2000.0
# An audit of millions of releases cannot distinguish smaller error rates from zero.
RAREST = 1e-7


@dataclass(frozen=True)
class AuditFinding:
    """What one audit found."""

    case: AuditCase
    noise: str
    releases: int
    rho: float  # claimed
    mu_bound: float  # proved at CONFIDENCE, by the Gaussian-DP bound
    epsilon_bound: float  # the same by Clopper-Pearson, for any mechanism
    faults: tuple[str, ...]  # why it is flagged, if it is
    moved_share: float = 1.0  # how much of ρ the two logs use: what they move, as a share of what is paid for
    numbers: int = 0  # that a release consists of
    tables: tuple[MovedTable, ...] = ()  # each mechanism: its noise, exactly, and what the logs move of it
    end_to_end: int = 0  # releases for which an engine counted anew

    @property
    def verdict(self) -> str:
        """Whether it is flagged, and if not, whether the audit was strong enough."""
        if self.faults:
            return "FLAGGED"
        return "not refuted" if self.rho_bound >= POWER * self.rho else "too weak"

    @property
    def rho_bound(self) -> float:
        """The least ρ of a Gaussian release on which such an attack is possible."""
        return self.mu_bound**2 / 2

    @property
    def epsilon(self) -> float:
        """The claimed ε at DELTA."""
        return zcdp.epsilon(self.rho, DELTA)


def attack_case(
    case: AuditCase,
    *,
    rho: float = 1.0,
    releases: int = 200_000,
    noise: str = "secure",
    workers: int = 1,
    progress: Callable[[int], None] = lambda more: None,
) -> AuditFinding:
    """Attack a case; `progress` is called with the number of further releases."""
    refuse_impossible(case, rho=rho, releases=releases, noise=noise)
    prepared = case.prepared(rho)
    with case.logs() as logs:
        exact = exact_counts(prepared, logs[0]), exact_counts(prepared, logs[1])
        facts: dict[str, Any] = {"numbers": exact[0].numbers.size}
        if exact[0].public != exact[1].public:
            return AuditFinding(case, noise, 0, rho, math.inf, math.inf, (DIFFER,), **facts)
        faults = structure_faults(case, logs, exact, rho, noise)
    if any("self-test" in fault for fault in faults):
        return AuditFinding(case, noise, 0, rho, 0.0, 0.0, tuple(faults), **facts)
    attack = Attack(case, rho, noise, exact, releases // 2)
    seen = attack.run(workers, progress)
    faults += judge_noise(seen["noise"], attack.parts)
    first, second = (np.concatenate(scores) for scores in seen["scores"].values())
    trained = int(TRAINING * len(first))
    test = Errors.of(first, second, 0.0)
    threshold = best_threshold(first[:trained], second[:trained], delta=DELTA, confidence=CONFIDENCE)
    general = Errors.of(first[trained:], second[trained:], threshold)
    allowance = joint_discreteness(exact[1].numbers - exact[0].numbers, exact[0].variances)
    if exceeds(rho, test, general, allowance=allowance):
        faults.append("the logs can be distinguished better than the claim allows")
    proved = test.mu(CONFIDENCE), general.epsilon(DELTA, CONFIDENCE)
    facts |= {"moved_share": moved_share(*exact), "tables": moved_tables(*exact), "end_to_end": 2 * attack.end_to_end}
    return AuditFinding(case, noise, len(first) + len(second), rho, *proved, tuple(faults), **facts)


def refuse_impossible(case: AuditCase, *, rho: float, releases: int, noise: str) -> None:
    """Refuse what cannot be audited, and a budget at which an audit could find nothing."""
    positive(rho=rho)
    whole(releases=releases, at_least=100)
    one_of(NOISE, noise=noise)
    if math.isinf(rho):
        raise ValueError("rho must be finite: without noise there is nothing to audit")
    with case.logs("arrays") as (log, _):
        variance = case.prepared(rho).release(log, Exact()).variance
    if not AUDITED_VARIANCES[0] <= variance <= AUDITED_VARIANCES[1]:
        change = "larger" if variance > 1 else "smaller"
        raise ValueError(f"rho must be {change} for an audit: at {rho:g} noise has the variance {variance:.1e}")


def exceeds(rho: float, test: Errors, general: Errors, *, allowance: float) -> bool:
    """Whether the test of μ, or that of ε, proves more than ρ allows. μ may be larger by `allowance`."""
    of_each = 1 - (1 - FLAGGING) / 2
    too_much = test.mu(of_each) > math.sqrt(2 * rho) + max(0.0, allowance)
    return too_much or general.epsilon(DELTA, of_each) > zcdp.epsilon(rho, DELTA)


@dataclass(frozen=True)
class Attack:
    """An attack on a case: what its releases are compared with, and how many there are of each log."""

    case: AuditCase
    rho: float
    noise: str
    exact: tuple[Revealed, Revealed]
    releases: int  # of each log

    @cached_property
    def parts(self) -> list[Part]:
        """The noise of a release as it should be."""
        return noise_parts(self.exact[0].variances)

    @property
    def end_to_end(self) -> int:
        """Releases of each log that are made from end to end: the first ones."""
        return max(1, min(END_TO_END[self.case.engine], self.releases // 100))

    def run(self, workers: int, progress: Callable[[int], None]) -> Sums:
        """The evidence of all releases: `scores` of each log, in their order, and what `look_at_noise` saw."""
        import joblib

        def told(evidence: Sums) -> Sums:
            progress(evidence["noise"]["first"]["releases"] + evidence["noise"]["second"]["releases"])
            return evidence

        length = max(2, min(RELEASES_AT_ONCE, NUMBERS_AT_ONCE // self.exact[0].numbers.size))
        starts = [0, *range(self.end_to_end, self.releases, length), self.releases]
        run = joblib.Parallel(n_jobs=workers, return_as="generator", backend="loky")
        return reduce(added, map(told, run(joblib.delayed(self._block)(*block) for block in pairwise(starts))))

    def _block(self, start: int, end: int) -> Sums:
        prepared = self.case.prepared(self.rho)
        with self.case.logs() as logs:
            released = [self._released(prepared, log, which, range(start, end)) for which, log in enumerate(logs)]
        first, second = (counts.numbers for counts in self.exact)
        noise = [rows - exact.astype(np.int32) for rows, exact in zip(released, (first, second), strict=True)]
        scores = [stated_score(rows, first, second, self.exact[0].variances) for rows in released]
        seen = look_at_noise(noise[0], noise[1], self.parts, 2 * self.releases)
        return {"scores": {"first": [scores[0]], "second": [scores[1]]}, "noise": seen}

    def _released(self, prepared: Prepared, log: Log, which: int, numbers: range) -> Rows:
        """The releases of a log with these numbers: the first of all from end to end, others from one count."""
        # The two logs get different seeds, because the noise of a common seed would cancel in the difference.
        sources = [NOISE[self.noise](2 * number + which) for number in numbers]
        if numbers.start >= self.end_to_end:
            repeated = Repeated(sources)
            released = revealed(prepared, prepared.release(log, repeated)).numbers
            drawn = repeated.numbers
            if drawn.shape[1] == released.size and np.array_equal(drawn[0], released):
                return drawn
        # Also where the door releases anything else than what its sampler drew.
        rows = [revealed(prepared, prepared.release(log, source)).numbers for source in sources]
        return np.stack(rows).astype(np.int32)


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
        alpha = rate_limit(self.false_positives, self.negatives, failure)
        return alpha, rate_limit(self.false_negatives, self.positives, failure)

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
    parts = [(moved[variances == variance], float(variance)) for variance in np.unique(variances)]
    smooth = [math.sqrt(float((m.astype(np.float64) ** 2).sum()) / v) for m, v in parts]
    more = [max(0.0, discreteness(m, v)) for m, v in parts]
    return math.hypot(*np.add(smooth, more)) - math.hypot(*smooth)


def best_threshold(first: FloatArray, second: FloatArray, *, delta: float, confidence: float) -> float:
    """The threshold at which these releases prove the largest ε. Other releases must be judged by it."""
    tried = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 401)))
    proved = [Errors.of(first, second, threshold).epsilon(delta, confidence) for threshold in tried]
    return float(tried[int(np.argmax(proved))])
