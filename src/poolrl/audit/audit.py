"""The audit of a fit: two neighbouring logs in the worst case, many releases of each, and attacks that compare them.

Releases use the code and the noise of a fit. Each bound holds by itself with the stated confidence, if releases are
independent of each other. A bound close to the claim shows that the attack is strong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrl import __version__
from poolrl.audit.attack import TRAINING, Attack, Errors, best_threshold, joint_discreteness, roc
from poolrl.audit.cases import AuditCase
from poolrl.audit.faults import (
    DIFFER,
    NOISE,
    Exact,
    MovedTable,
    exact_counts,
    moved_share,
    moved_tables,
    structure_faults,
)
from poolrl.audit.noise import judge_noise
from poolrl.checks import FloatArray, one_of, positive, whole
from poolrl.colours import ACCENT, INK, QUIET, WARNING
from poolrl.privacy import zcdp

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

    @property
    def gaussian_epsilon(self) -> float:
        """ε at DELTA if the release is one Gaussian. It is less than the claim, which holds for any ρ-zCDP release."""
        return zcdp.gaussian_epsilon(self.rho, DELTA)

    @property
    def gaussian_epsilon_bound(self) -> float:
        """The proved μ as an ε at DELTA."""
        return zcdp.gaussian_epsilon(self.rho_bound, DELTA) if self.mu_bound > 0 else 0.0

    def summary(self, *, began: str, config_sha256: str) -> dict[str, Any]:
        """What a certificate can carry of an audit of its configuration; plain JSON values."""
        return {
            "poolrl": __version__,
            "began": began,
            "config_sha256": config_sha256,
            "releases": self.releases,
            "claimed_rho": self.rho,
            # Where neighbours differ without noise there is no bound.
            "proved_rho": self.rho_bound if math.isfinite(self.rho_bound) else 1e300,
            "moved_share": self.moved_share,
            "confidence": CONFIDENCE,
            "verdict": self.verdict,
        }


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
