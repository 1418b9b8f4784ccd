"""`poolrl audit`: attack our own releases, and print what the attacks prove beside what is claimed."""

from __future__ import annotations

import json
import math
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from poolrl.app.figures import ACCENT, INK, QUIET
from poolrl.app.progress import progress_bar
from poolrl.arrays import whole
from poolrl.audit.audit import CONFIDENCE, DELTA, FLAGGING, Finding, audit, check
from poolrl.audit.neighbours import CASES, Case
from poolrl.privacy import zcdp


def run_audit(
    learner: str, out: Path, *, rho: float, releases: int, noise: str, times: int, workers: int | None, as_json: bool
) -> bool:
    """Audit every case of the learner so many times; whether nothing was flagged."""
    cases = _cases(learner)
    check(rho=rho, releases=releases, noise=noise)
    processes = joblib.cpu_count() if workers is None else workers
    whole(times=times, workers=processes)
    out.mkdir(parents=True, exist_ok=True)  # before the long part
    console = Console(quiet=as_json)
    found = _findings(console, cases * times, rho, releases, noise, processes)
    figure = out / "audit.svg"
    _draw(figure, found[-len(cases) :])
    (out / "audit.json").write_text(json.dumps([_facts(finding) for finding in found], indent=2) + "\n")
    if as_json:
        print((out / "audit.json").read_text(), end="")
    _print(console, found, len(cases))
    console.print(f"Open {figure} for the curves of the attacks; figures are in {out / 'audit.json'}.", markup=False)
    return not any(finding.faults for finding in found)


def _cases(learner: str) -> list[Case]:
    names = ["all", *dict.fromkeys(case.learner for case in CASES)]
    if learner not in names:
        near = get_close_matches(learner, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no learner {learner!r}; {hint}choose from {', '.join(names)}")
    return [case for case in CASES if learner in ("all", case.learner)]


def _findings(
    console: Console, cases: list[Case], rho: float, releases: int, noise: str, workers: int
) -> list[Finding]:
    with progress_bar(console) as bars:
        task = bars.add_task("releases", total=len(cases) * releases)
        found = []
        for case in cases:
            bars.update(task, description=case.name)
            if not console.is_terminal:
                console.print(f"{case.name}: {releases:,} releases", highlight=False)

            def more(releases: int) -> None:
                bars.advance(task, releases)

            found.append(audit(case, rho=rho, releases=releases, noise=noise, workers=workers, progress=more))
    return found


def _print(console: Console, found: list[Finding], cases: int) -> None:
    first = found[0]
    most = first.gaussian_epsilon / first.epsilon
    claim = f"rho = {first.rho:g}, epsilon = {first.epsilon:.2f} at delta = {DELTA:g}"
    table = Table(
        title=f"Claimed: {claim}\nProved by attacks on {found[-1].releases:,} releases with {first.noise} noise:",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption=(
            f"Lower bounds, with {CONFIDENCE:.0%} confidence each, and their shares of the claim; flagged is what "
            f"exceeds it with {FLAGGING:.1%}. rho and epsilon: of a Gaussian release, by the Gaussian-DP bound; one "
            f"Gaussian of this rho has epsilon = {first.gaussian_epsilon:.2f}, {most:.1%} of the claim, and there is "
            "hardly more to find. The last: epsilon of any release, by Clopper-Pearson, which rare events limit."
        ),
    )
    for name in ("learner", "rho", "epsilon", "any release", "verdict"):
        table.add_column(name, justify="left" if name in ("learner", "verdict") else "right", no_wrap=True)
    for number, finding in enumerate(found):
        if number and number % cases == 0:
            table.add_section()
        bounds = [
            (finding.rho_bound, finding.rho),
            (finding.gaussian_epsilon_bound, finding.epsilon),
            (finding.epsilon_bound, finding.epsilon),
        ]
        shares = (f"{bound:.3f} ({bound / claimed:.1%})" for bound, claimed in bounds)
        table.add_row(finding.case.name, *shares, "[red]FLAGGED[/]" if finding.faults else "[green]holds[/]")
    console.print(table)
    for finding in found:
        for fault in finding.faults:
            console.print(f"[red]{finding.case.name}[/]: {fault}.", highlight=False)
    console.print(f"{len(found)} audits, {sum(bool(each.faults) for each in found)} flagged.", highlight=False)
    if first.noise == "seeded":
        console.print("[red]NOT PRIVATE[/]: seeded noise has the right distribution, and a seed that gives it away.")


def _facts(finding: Finding) -> dict[str, Any]:
    return {
        "learner": finding.case.learner,
        "trajectories_per_unit": finding.case.per_unit,
        "noise": finding.noise,
        "releases": finding.releases,
        "confidence": CONFIDENCE,
        "delta": DELTA,
        "claimed": {
            "rho": finding.rho,
            "epsilon": finding.epsilon,
            "epsilon_if_one_gaussian": finding.gaussian_epsilon,
        },
        "gaussian_dp_bound": {
            "mu": _number(finding.mu_bound),
            "rho": _number(finding.rho_bound),
            "epsilon": _number(finding.gaussian_epsilon_bound),
            "share_of_claimed_rho": _number(finding.rho_bound / finding.rho),
        },
        "clopper_pearson_bound": {"epsilon": _number(finding.epsilon_bound)},
        "flagged": bool(finding.faults),
        "faults": list(finding.faults),
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _draw(path: Path, found: list[Finding]) -> None:
    """The attack's curve in each case, under the best that the claim allows."""
    rows = math.ceil(len(found) / 2)
    figure = Figure(figsize=(9.2, 5.0 * rows), layout="constrained")
    for panel, finding in zip(np.ravel(figure.subplots(rows, 2)), found, strict=True):
        _panel(panel, finding)
    figure.savefig(path)
    figure.savefig(path.with_suffix(".png"), dpi=120)


def _panel(axes: Axes, finding: Finding) -> None:
    rates = np.linspace(0.002, 0.998, 120)
    limit = np.array([zcdp.attack_power(finding.rho, rate) for rate in rates])
    best = np.array([zcdp.gaussian_attack_power(finding.rho, rate) for rate in rates])
    axes.fill_between(rates, limit, 1, color="#f3d9d4", linewidth=0)
    axes.plot([0, 1], [0, 1], ":", color=QUIET, linewidth=1)
    axes.plot(*finding.curve, "-", color="#c0392b" if finding.faults else ACCENT, linewidth=3, label="attack, measured")
    axes.plot(rates, best, "--", color=INK, linewidth=1, label="best attack on a Gaussian of this ρ")
    axes.text(0.03, 0.985, "breaks the claim", va="top", color="#a5402d", fontsize=9)
    axes.text(0.6, 0.57, "guessing", color=QUIET, rotation=45, fontsize=9, ha="center", va="center")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="said of the first log (false positives)")
    axes.set_ylabel("said of the second log (true positives)")
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    verdict = "FLAGGED" if finding.faults else f"ρ ≥ {finding.rho_bound:.3f} of {finding.rho:g} claimed"
    axes.set_title(f"{finding.case.name}, {finding.noise} noise\n{verdict}", loc="left", color=INK, fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
