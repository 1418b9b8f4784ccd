"""The audit of a fit: two neighbouring logs in the worst case, many releases of each, and attacks that compare them.

Releases use the code and the noise of a fit. Each bound holds by itself with the stated confidence, if releases are
independent of each other. A bound close to the claim shows that the attack is strong.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from poolrl.audit.evidence import Errors, Rows, best_threshold, discreteness, learned_score, roc, stated_score
from poolrl.audit.neighbours import COUNTED, Case, Exact, Frozen, Shop, layouts, policy_file, revealed
from poolrl.audit.noise import noise_faults
from poolrl.checks import FloatArray, positive, whole
from poolrl.data.log import Log
from poolrl.pool import Prepared
from poolrl.privacy import zcdp
from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.noise.source import NoiseSource

# A seeded dry run gets another seed for every release. With one seed all its releases would be equal.
NOISE: dict[str, Callable[[int], NoiseSource]] = {
    "secure": lambda _: SecureNoise(),
    "opendp": lambda _: OpenDPNoise(),
    "seeded": SeededNoise,
}
DELTA = 1e-6
CONFIDENCE = 0.95
# A flag must not be bad luck, so it needs a proof with this confidence.
FLAGGING = 0.999
# How the two attacks share the chance to be wrong. The first is the best one if the noise is as stated.
SHARES = 0.9, 0.1
# An audit that proves less than this share of the claimed ρ is too weak.
POWER = 0.5
# The share of releases from which the second attack learns, and by which thresholds are chosen.
TRAINING = 0.2
RELEASES_AT_ONCE = 1000
# With less noise, or with more, an attack could see nothing.
AUDITED_VARIANCES = 0.01, 2.0**24
# The curve of an attack that is never wrong.
CERTAINTY = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])


@dataclass(frozen=True)
class AuditFinding:
    """What one audit found."""

    case: Case
    noise: str
    releases: int
    rho: float  # claimed
    mu_bound: float  # proved at CONFIDENCE, by the Gaussian-DP bound
    epsilon_bound: float  # the same by Clopper-Pearson, for any mechanism
    curve: tuple[FloatArray, FloatArray] = field(repr=False)
    faults: tuple[str, ...]  # why it is flagged, if it is

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

    @property
    def gaussian_epsilon(self) -> float:
        """ε at DELTA if the release is one Gaussian. It is less than the claim, which holds for any ρ-zCDP release."""
        return zcdp.gaussian_epsilon(self.rho, DELTA)

    @property
    def gaussian_epsilon_bound(self) -> float:
        """The proved μ as an ε at DELTA."""
        return zcdp.gaussian_epsilon(self.rho_bound, DELTA) if self.mu_bound > 0 else 0.0


def attack_case(
    case: Case,
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
    exact = [revealed(prepared, prepared.release(log, Exact())) for log in case.logs()]
    faults = _structure(prepared, case, noise)
    if exact[0].public["guarantee"].rho != rho:
        faults.append("the guarantee states another rho")
    if exact[0].public != exact[1].public:
        faults.append("neighbours differ without noise")
        return AuditFinding(case, noise, 0, rho, math.inf, math.inf, CERTAINTY, tuple(faults))
    first, second = _releases(case, rho, noise, releases // 2, workers, exact[0].numbers.size, progress)
    variance = exact[0].variance
    counts = [each.numbers.astype(np.int32) for each in exact]
    faults += noise_faults(first - counts[0], second - counts[1], variance)
    cut = int(TRAINING * len(first))
    learned = learned_score(first[:cut], second[:cut], variance)
    stated = [stated_score(each, exact[0].numbers, exact[1].numbers, variance) for each in (first, second)]
    judged = [learned(each[cut:]) for each in (first, second)]
    tests = [Errors.of(stated[0], stated[1], 0.0), Errors.of(judged[0], judged[1], 0.0)]
    threshold = best_threshold(stated[0][:cut], stated[1][:cut], delta=DELTA, confidence=CONFIDENCE)
    general = Errors.of(stated[0][cut:], stated[1][cut:], threshold)
    if exceeds(rho, tests, general, allowance=discreteness(exact[1].numbers - exact[0].numbers, variance)):
        faults.append("the logs can be distinguished better than the claim allows")
    stronger = stated if tests[0].mu(CONFIDENCE) >= tests[1].mu(CONFIDENCE) else judged
    proved, curve = (_mu(tests, CONFIDENCE), general.epsilon(DELTA, CONFIDENCE)), roc(stronger[0], stronger[1])
    return AuditFinding(case, noise, len(first) + len(second), rho, *proved, curve, tuple(faults))


def refuse_impossible(case: Case, *, rho: float, releases: int, noise: str) -> None:
    """Refuse what cannot be audited, and a budget at which an audit could find nothing."""
    positive(rho=rho)
    whole(releases=releases, at_least=100)
    if noise not in NOISE:
        raise ValueError(f"noise must be one of {', '.join(NOISE)}, got {noise!r}")
    if math.isinf(rho):
        raise ValueError("rho must be finite: without noise there is nothing to audit")
    prepared = case.prepared(rho)
    variance = prepared.release(case.logs()[0], Exact()).variance
    if variance > AUDITED_VARIANCES[1]:
        raise ValueError(f"rho must be larger for an audit: at {rho:g} the releases are noise-dominated")
    if variance < AUDITED_VARIANCES[0]:
        raise ValueError(f"rho must be smaller for an audit: at {rho:g} there is hardly any noise")


def exceeds(rho: float, tests: list[Errors], general: Errors, *, allowance: float) -> bool:
    """Whether the two tests of μ, or the test of ε, prove more than ρ allows. μ may be larger by `allowance`."""
    each = 1 - (1 - FLAGGING) / 2
    too_much = _mu(tests, each) > math.sqrt(2 * rho) + max(0.0, allowance)
    return too_much or general.epsilon(DELTA, each) > zcdp.epsilon(rho, DELTA)


def _mu(tests: list[Errors], confidence: float) -> float:
    """The larger of the bounds, which together hold with this confidence."""
    return max(test.mu(1 - (1 - confidence) * share) for test, share in zip(tests, SHARES, strict=True))


def _structure(prepared: Prepared, case: Case, noise: str) -> list[str]:
    """The faults that can be found without statistics."""
    faults, logs = [], case.logs()
    # At rho = 1 no two releases are equal by chance.
    if noise != "seeded" and len(set(_digests(case.prepared(1.0), case, noise))) < 4:
        faults.append("two processes, or two releases, draw the same noise")
    files = [policy_file(prepared, log, Frozen()) for log in logs]
    if files[0] != files[1]:
        faults.append("the policy depends on more than the released tables")
    poorer_log, poorer_table = case.poorer()
    three: tuple[list[Log], list[Log]] = ([*logs, poorer_log], [*case.tables(), poorer_table])
    arrays, tables = ([revealed(prepared, prepared.release(log, Exact())) for log in each] for each in three)
    for array, table in zip(arrays[:2], tables, strict=False):
        # A table is never taken to be complete, so it may have unobserved counts in addition.
        if not np.array_equal(array.numbers, table.numbers[: array.numbers.size]):
            faults.append("a table in an engine gives other counts than the same arrays")
            break
    if any(other.public != each[0].public for each in (arrays, tables) for other in each[1:]):
        faults.append("neighbours differ without noise")
    others = COUNTED.values() if case.others_are_counted else ()
    if any(_moves_more_than_was_paid_for(case, shop) for shop in (case.shop, *others)):
        faults.append("one unit moves more than was paid for")
    return faults


def _moves_more_than_was_paid_for(case: Case, shop: Shop) -> bool:
    """Whether the squared difference of neighbours exceeds the squared sensitivity, both in whole numbers."""
    prepared = case.prepared(1.0, shop)
    first, second = (revealed(prepared, prepared.release(log, Exact())) for log in case.logs(shop))
    if first.public != second.public:
        return True
    stated = [(each.name, each.cells, each.sensitivity_squared) for each in first.public["guarantee"].mechanisms]
    by_formula = layouts(prepared, first, per_unit=case.moved)
    if stated != [(each.name, each.cells, each.sensitivity_squared) for each in by_formula]:
        return True
    paid_for = sum(each.sensitivity_squared for each in by_formula)
    return bool(((second.numbers - first.numbers) ** 2).sum() > paid_for)


def _digests(prepared: Prepared, case: Case, noise: str) -> list[bytes]:
    """Two releases in this process, and one in each of two forks, which inherit the state of these releases."""
    log = case.logs()[0]

    def digest() -> bytes:
        return sha256(revealed(prepared, prepared.release(log, NOISE[noise](0))).numbers.tobytes()).digest()

    found = [digest(), digest()]
    for _ in range(2):
        end, start = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(start, digest())
            finally:
                os._exit(0)
        os.close(start)
        with os.fdopen(end, "rb") as pipe:
            found.append(pipe.read())
        os.waitpid(child, 0)
        if not found[-1]:
            raise RuntimeError("a forked process could not release")
    return found


def _releases(
    case: Case, rho: float, noise: str, each: int, workers: int, numbers: int, progress: Callable[[int], None]
) -> tuple[Rows, Rows]:
    """So many releases of each log, (each, numbers)."""
    import joblib

    starts = range(0, each, RELEASES_AT_ONCE)
    jobs = [(which, start, min(RELEASES_AT_ONCE, each - start)) for start in starts for which in (0, 1)]
    found = np.empty((each, numbers), dtype=np.int32), np.empty((each, numbers), dtype=np.int32)
    run = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", backend="loky")
    for which, start, drawn in run(joblib.delayed(_block)(case, rho, noise, *job) for job in jobs):
        found[which][start : start + len(drawn)] = drawn
        progress(len(drawn))
    return found


def _block(case: Case, rho: float, noise: str, which: int, start: int, count: int) -> tuple[int, int, Rows]:
    prepared, log = case.prepared(rho), case.logs()[which]
    # The two logs get different seeds, because the noise of a common seed would cancel in the difference.
    sources = (NOISE[noise](2 * number + which) for number in range(start, start + count))
    drawn = [revealed(prepared, prepared.release(log, source)).numbers for source in sources]
    return which, start, np.stack(drawn).astype(np.int32)
