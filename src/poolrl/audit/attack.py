"""The audit of a fit: many releases of two logs, the best tests between them, and the privacy loss that errors prove.

Releases use the code and the noise of a fit. Each bound holds by itself with the stated confidence, if releases are
independent of each other. A bound close to the claim shows that the attack is strong.

Sources: Clopper and Pearson 1934 (limits of a rate); Kairouz, Oh and Viswanath 2015 (tests and (ε, δ)); Dong, Roth and
Su 2022 (tests and Gaussian DP); Nasr et al. 2023 (auditing by the latter).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from poolrl.colours import ACCENT, INK, QUIET, WARNING
from poolrl.data.log import Log
from poolrl.pool import Prepared
from poolrl.privacy import zcdp
from poolrl.privacy.noise.source import discrete_gaussian

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DELTA = 1e-6
CONFIDENCE = 0.95
# A flag must not be bad luck, so it needs a proof with this confidence.
FLAGGING = 0.999
# How the two attacks share the chance to be wrong. The first is the best one if the noise is as stated.
SHARES = 0.9, 0.1
# An audit that proves less than this share of the claimed ρ is too weak.
POWER = 0.5
# With less noise, or with more, an attack could see nothing.
AUDITED_VARIANCES = 0.01, 2.0**24
# The curve of an attack that is never wrong.
CERTAINTY = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])
# The share of releases from which the second attack learns, and by which thresholds are chosen.
TRAINING = 0.2
# Releases of each log that share one count, at most.
RELEASES_AT_ONCE = 1000
# Releases of each log that are made like a fit, from the engine's count to the last table.
END_TO_END = {"arrays": 100, "table": 20}
# The most numbers that the second attack looks at: those that move, if there are more.
MOST_LEARNED = 400
# The least variance of releases in any direction, as a share of the stated variance.
LEAST_VARIANCE = 1e-9
# Beyond this variance a discrete Gaussian is no easier to attack than a continuous one, to ten digits of μ.
SMOOTH = 2000.0
# An audit of millions of releases cannot distinguish smaller error rates from zero.
RAREST = 1e-7
Score = Callable[[Rows], FloatArray]


@dataclass(frozen=True)
class AuditFinding:
    """What one audit found."""

    case: AuditCase
    noise: str
    releases: int
    rho: float  # claimed
    mu_bound: float  # proved at CONFIDENCE, by the Gaussian-DP bound
    epsilon_bound: float  # the same by Clopper-Pearson, for any mechanism
    curve: tuple[FloatArray, FloatArray] = field(repr=False)
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
        faults = structure_faults(case, logs, exact, rho, noise)
    facts: dict[str, Any] = {"numbers": exact[0].numbers.size}
    if any("self-test" in fault for fault in faults):
        return AuditFinding(case, noise, 0, rho, 0.0, 0.0, CERTAINTY, tuple(faults), **facts)
    if exact[0].public != exact[1].public:
        everything = tuple(dict.fromkeys([*faults, DIFFER]))
        return AuditFinding(case, noise, 0, rho, math.inf, math.inf, CERTAINTY, everything, **facts)
    attack = Attack.on(case, rho, noise, exact, releases)
    seen = attack.run(workers, progress)
    faults += judge_noise(seen["noise"], attack.parts)
    (stated, judged), trained = seen["scores"], attack.trained
    tests = [Errors.of(stated[0], stated[1], 0.0), Errors.of(judged[0], judged[1], 0.0)]
    threshold = best_threshold(stated[0][:trained], stated[1][:trained], delta=DELTA, confidence=CONFIDENCE)
    general = Errors.of(stated[0][trained:], stated[1][trained:], threshold)
    allowance = joint_discreteness(exact[1].numbers - exact[0].numbers, exact[0].variances)
    if exceeds(rho, tests, general, allowance=allowance):
        faults.append("the logs can be distinguished better than the claim allows")
    stronger = stated if tests[0].mu(CONFIDENCE) >= tests[1].mu(CONFIDENCE) else judged
    proved = _mu(tests, CONFIDENCE), general.epsilon(DELTA, CONFIDENCE), roc(stronger[0], stronger[1])
    facts |= {"moved_share": moved_share(*exact), "tables": moved_tables(*exact), "end_to_end": 2 * attack.end_to_end}
    return AuditFinding(case, noise, len(stated[0]) + len(stated[1]), rho, *proved, tuple(faults), **facts)


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


def exceeds(rho: float, tests: list[Errors], general: Errors, *, allowance: float) -> bool:
    """Whether the two tests of μ, or the test of ε, prove more than ρ allows. μ may be larger by `allowance`."""
    of_each = 1 - (1 - FLAGGING) / 2
    too_much = _mu(tests, of_each) > math.sqrt(2 * rho) + max(0.0, allowance)
    return too_much or general.epsilon(DELTA, of_each) > zcdp.epsilon(rho, DELTA)


def _mu(tests: list[Errors], confidence: float) -> float:
    """The larger of the bounds, which together hold with this confidence."""
    return max(test.mu(1 - (1 - confidence) * share) for test, share in zip(tests, SHARES, strict=True))


def draw_audit(path: Path, findings: list[AuditFinding], times: int) -> None:
    """One panel for each case, with the strongest of several audits: its curve, and the best that the claim allows."""
    from matplotlib.figure import Figure

    columns = min(2, len(findings))
    rows = math.ceil(len(findings) / columns)
    figure = Figure(figsize=(4.6 * columns, 5.0 * rows), layout="constrained")
    panels = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for panel, finding in zip(panels, findings, strict=False):
        _panel(panel, finding, times)
    for empty in panels[len(findings) :]:
        empty.set_axis_off()
    if findings[0].noise == "seeded":
        figure.suptitle("NOT PRIVATE: seeded noise", color=WARNING)
    figure.savefig(path)
    figure.savefig(path.with_suffix(".png"), dpi=120)


def _panel(axes: Axes, finding: AuditFinding, times: int) -> None:
    rates = np.linspace(0.002, 0.998, 120)
    limit = np.array([zcdp.attack_power(finding.rho, rate) for rate in rates])
    best = np.array([zcdp.gaussian_attack_power(finding.rho, rate) for rate in rates])
    colour = WARNING if finding.faults else ACCENT
    false, true = finding.curve
    # All measured rates of both logs are this close to the true rates (Dvoretzky, Kiefer and Wolfowitz 1956). That
    # includes the choice of the stronger attack and of the strongest audit. No attack learned from these releases.
    off = math.sqrt(math.log(8 * times / (1 - CONFIDENCE)) / ((1 - TRAINING) * finding.releases or 1))
    low, high = (np.clip(np.interp(rates, false + way * off, true - way * off), 0, 1) for way in (1, -1))
    axes.fill_between(rates, limit, 1, color="#f3d9d4", linewidth=0)
    axes.plot([0, 1], [0, 1], ":", color=QUIET, linewidth=1)
    axes.fill_between(rates, low, high, color=colour, alpha=0.3, linewidth=0, label=f"with {CONFIDENCE:.0%} confidence")
    axes.plot(false, true, "-", color=colour, linewidth=2, label="attack, measured")
    axes.plot(rates, best, "--", color=INK, linewidth=1, label="best attack on a Gaussian of this ρ")
    axes.text(0.03, 0.985, "beyond the claim", va="top", color="#a5402d", fontsize=9)
    axes.text(0.6, 0.57, "guessing", color=QUIET, rotation=45, fontsize=9, ha="center", va="center")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="false positives (releases of the first log)")
    axes.set_ylabel("true positives (releases of the second log)")
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    bound = "" if finding.faults else f": ρ ≥ {finding.rho_bound:.3f} of {finding.rho:g} claimed"
    of = "" if times == 1 else f", the strongest of {times}"
    title = f"{finding.case.name}, {finding.noise} noise{of}\n{finding.verdict}{bound}"
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


@dataclass(frozen=True)
class Attack:
    """An attack on a case: what its releases are compared with, and how many there are of each log."""

    case: AuditCase
    rho: float
    noise: str
    exact: tuple[Revealed, Revealed]
    releases: int  # of each log
    end_to_end: int
    parts: list[Part]
    learned_from: IntArray  # the places of the numbers that the second attack looks at

    @classmethod
    def on(cls, case: AuditCase, rho: float, noise: str, exact: tuple[Revealed, Revealed], releases: int) -> Attack:
        """The attack on the logs that have these exact counts; `releases` are those of both together."""
        of_log = releases // 2
        parts = noise_parts(exact[0].variances)
        moves = exact[0].numbers != exact[1].numbers
        # Some of every part.
        some = [part.places[moves[part.places]][: MOST_LEARNED // len(parts)] for part in parts]
        learned_from = np.arange(moves.size) if moves.size <= MOST_LEARNED else np.concatenate(some)
        # The training releases are the first, so these are among them.
        whole_fits = max(1, min(END_TO_END[case.engine], of_log // 100))
        return cls(case, rho, noise, exact, of_log, whole_fits, parts, learned_from)

    @property
    def trained(self) -> int:
        """Releases of each log for training."""
        return int(TRAINING * self.releases)

    def run(self, workers: int, progress: Callable[[int], None]) -> Sums:
        """The evidence of all releases: first of those from which the second attack learns.

        `scores` are of the first attack and of the second, for each log, in the order of releases. The second attack
        has none for its training. `noise` is what `look_at_noise` saw.
        """
        training = [(0, self.end_to_end), *self._blocks(self.end_to_end, self.trained)]
        seen = self._look(None, training, workers, progress)
        score = learned_score(seen["moments"][0], seen["moments"][1], self.exact[0].variances[self.learned_from])
        seen = added(seen, self._look(score, self._blocks(self.trained, self.releases), workers, progress))
        blocks = sorted(seen["scores"], key=lambda block: block[0])
        scores = [[block[attack] for block in blocks if block[attack]] for attack in (1, 2)]
        return seen | {"scores": [[np.concatenate(of_log) for of_log in zip(*each, strict=True)] for each in scores]}

    def _blocks(self, start: int, end: int) -> list[tuple[int, int]]:
        length = max(2, min(RELEASES_AT_ONCE, NUMBERS_AT_ONCE // self.exact[0].numbers.size))
        return [(at, min(length, end - at)) for at in range(start, end, length)]

    def _look(
        self, score: Score | None, blocks: list[tuple[int, int]], workers: int, progress: Callable[[int], None]
    ) -> Sums:
        import joblib

        def told(evidence: Sums) -> Sums:
            progress(sum(len(scores) for _, stated, _ in evidence["scores"] for scores in stated))
            return evidence

        run = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", backend="loky")
        return reduce(added, map(told, run(joblib.delayed(self._block)(score, *block) for block in blocks)))

    def _block(self, score: Score | None, start: int, count: int) -> Sums:
        prepared = self.case.prepared(self.rho)
        with self.case.logs() as logs:
            released = [self._released(prepared, log, which, start, count) for which, log in enumerate(logs)]
        first, second = (counts.numbers for counts in self.exact)
        noise = [rows - exact.astype(np.int32) for rows, exact in zip(released, (first, second), strict=True)]
        stated = [stated_score(rows, first, second, self.exact[0].variances) for rows in released]
        looked_at = [rows[:, self.learned_from] for rows in released]
        learned = [] if score is None else [score(rows) for rows in looked_at]
        seen = look_at_noise(noise[0], noise[1], self.parts, 2 * self.releases)
        evidence: Sums = {"scores": [(start, stated, learned)], "noise": seen}
        return evidence if score else evidence | {"moments": dict(enumerate(map(release_moments, looked_at)))}

    def _released(self, prepared: Prepared, log: Log, which: int, start: int, count: int) -> Rows:
        """`count` releases of a log, (count, numbers): the first of all from end to end, others from one count."""
        # The two logs get different seeds, because the noise of a common seed would cancel in the difference.
        sources = [NOISE[self.noise](2 * number + which) for number in range(start, start + count)]
        if start >= self.end_to_end:
            repeated = Repeated(sources)
            numbers = revealed(prepared, prepared.release(log, repeated)).numbers
            drawn = repeated.numbers
            if drawn.shape[1] == numbers.size and np.array_equal(drawn[0], numbers):
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
        counted = (self.false_positives, self.negatives), (self.false_negatives, self.positives)
        alpha, beta = (rate_limit(errors, trials, (1 - confidence) / 2) for errors, trials in counted)
        return alpha, beta

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


def release_moments(released: Rows) -> Sums:
    """How many releases there are, their sum, and the sum of their products, (numbers, numbers)."""
    values = released.astype(np.float64)
    return {"releases": len(values), "sum": values.sum(axis=0), "products": values.T @ values}


def learned_score(first: Sums, second: Sums, variance: FloatArray | float) -> Score:
    """The same with the real noise, by Fisher's discriminant Σ⁻¹ (m₂ − m₁), for other releases than these.

    A score above zero is evidence for the second log. Noise that is missing in a cell, or shared between two cells,
    does not change `stated_score`. But it changes this score.
    """
    means = [of_log["sum"] / of_log["releases"] for of_log in (first, second)]
    # Σ (t − mean)(t − mean)ᵀ = Σ ttᵀ − (Σ t) meanᵀ, over both logs
    own = np.outer(first["sum"], means[0]) + np.outer(second["sum"], means[1])
    spread = first["products"] + second["products"] - own
    covariance = spread / max(first["releases"] + second["releases"] - 2, 1)
    covariance[np.diag_indices_from(covariance)] += variance * LEAST_VARIANCE
    weights = np.linalg.solve(covariance, means[1] - means[0])
    middle = float((means[0] + means[1]) @ weights / 2)
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
    parts = [(moved[variances == variance], float(variance)) for variance in np.unique(variances)]
    smooth = [math.sqrt(float((m.astype(np.float64) ** 2).sum()) / v) for m, v in parts]
    more = [max(0.0, discreteness(m, v)) for m, v in parts]
    return math.hypot(*np.add(smooth, more)) - math.hypot(*smooth)


def best_threshold(first: FloatArray, second: FloatArray, *, delta: float, confidence: float) -> float:
    """The threshold at which these releases prove the largest ε. Other releases must be judged by it."""
    tried = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 401)))
    proved = [Errors.of(first, second, threshold).epsilon(delta, confidence) for threshold in tried]
    return float(tried[int(np.argmax(proved))])


def roc(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """False and true positive rates at 400 thresholds."""
    thresholds = np.quantile(np.concatenate([first, second]), np.linspace(1, 0, 400))
    rates = [np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores) for scores in (first, second)]
    return 1 - rates[0], 1 - rates[1]
