"""The curves of the attacks, and the best curve that the claim allows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poolrl.audit.attack import TRAINING
from poolrl.audit.audit import CONFIDENCE, AuditFinding
from poolrl.colours import ACCENT, INK, QUIET, WARNING
from poolrl.privacy import zcdp


def draw_audit(path: Path, found: list[AuditFinding], times: int) -> None:
    """One panel for each case, with the strongest of several audits."""
    columns = min(2, len(found))
    rows = math.ceil(len(found) / columns)
    figure = Figure(figsize=(4.6 * columns, 5.0 * rows), layout="constrained")
    panels = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for panel, finding in zip(panels, found, strict=False):
        _panel(panel, finding, times)
    for empty in panels[len(found) :]:
        empty.set_axis_off()
    if found[0].noise == "seeded":
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
