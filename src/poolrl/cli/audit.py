"""`poolrl audit`: attack our own releases, and print what the attacks prove beside what is claimed."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from poolrl import __version__
from poolrl.audit.audit import CONFIDENCE, DELTA, FLAGGING, TRAINING, Finding, audit, check
from poolrl.audit.evidence import releases_needed
from poolrl.audit.neighbours import CASES, Case
from poolrl.checks import whole
from poolrl.cli.progress import progress_bar
from poolrl.privacy import zcdp
from poolrl.shop.privacy_curve import ACCENT, INK, QUIET

MANY = 10**8
RED = "#c0392b"
COLOURS = {"FLAGGED": "red", "not refuted": "green", "too weak": "yellow"}
ATTACKED_IN_WORDS = (
    "two simulated logs of a shop that loses sales (one product, two steps, three units), which differ in one unit as "
    "much as they can; no log of yours"
)


def run_audit(
    learner: str,
    out: Path | None,
    *,
    rho: float,
    releases: int,
    noise: str,
    times: int,
    workers: int | None,
    as_json: bool,
) -> bool:
    """Audit every case of the learner so many times; whether nothing was flagged."""
    cases = _cases(learner)
    for case in cases:
        check(case, rho=rho, releases=releases, noise=noise)
    processes = joblib.cpu_count() if workers is None else workers
    whole(times=times, workers=processes)
    began = datetime.now(UTC)
    folder = _new_folder(out or Path("audit") / f"{began:%Y-%m-%d-%H%M%S}")  # before the long part
    console = Console(quiet=as_json)
    try:
        found = _findings(console, cases * times, rho, releases, noise, processes)
    except BaseException:
        with suppress(OSError):  # poolrl has put nothing into it, and the next audit may have the name
            folder.rmdir()
        raise
    figure = folder / "audit.svg"
    _draw(figure, [_strongest(found[number :: len(cases)]) for number in range(len(cases))], times)
    facts = {
        "poolrl": __version__,
        "began": began.isoformat(timespec="seconds"),
        "private": noise != "seeded",
        "attacked": ATTACKED_IN_WORDS,
        "audits": [_facts(finding, 1 + number // len(cases)) for number, finding in enumerate(found)],
    }
    text = json.dumps(facts, indent=2) + "\n"
    (folder / "audit.json").write_text(text)
    if as_json:
        print(text, end="")
    _print(console, found, len(cases))
    console.print(f"Open {figure} for the curves of the attacks; figures are in {folder / 'audit.json'}.", markup=False)
    return not any(finding.faults for finding in found)


def _new_folder(folder: Path) -> Path:
    """An audit is evidence: none is written over another."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ValueError(f"{folder} exists, and no audit is written over another: name a new one with --out") from None
    except OSError as error:
        raise ValueError(f"the folder {folder} cannot be made: {error.strerror}") from None
    return folder


def _strongest(found: list[Finding]) -> Finding:
    return max(found, key=lambda finding: (bool(finding.faults), finding.mu_bound))


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
    claim = f"rho = {first.rho:g}, epsilon = {zcdp.rounded_up(first.epsilon)} at delta = {DELTA:g}"
    table = Table(
        title=f"Claimed: {claim}\nAt least, by attacks on {found[-1].releases:,} releases with {first.noise} noise:",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption=(
            f"Lower bounds, with {CONFIDENCE:.0%} confidence each, and their shares of the claim; flagged is what "
            f"exceeds it with {FLAGGING:.1%}. For a Gaussian release by the Gaussian-DP bound; one Gaussian of this "
            f"rho has epsilon = {first.gaussian_epsilon:.2f}, so no attack on it can prove more than {most:.1%} of "
            "that claim. For any release by Clopper-Pearson, which rare events limit."
        ),
    )
    for name in ("learner", "rho,\nGaussian", "epsilon,\nGaussian", "epsilon,\nany release", "verdict"):
        table.add_column(name, justify="left" if name in ("learner", "verdict") else "right", no_wrap=True)
    for number, finding in enumerate(found):
        if number and number % cases == 0:
            table.add_section()
        shares = [f"{finding.rho_bound:.3f} ({finding.rho_bound / finding.rho:.1%})"]
        for bound in (finding.gaussian_epsilon_bound, finding.epsilon_bound):
            shares.append(f"{bound:.2f} ({bound / finding.epsilon:.1%})")
        table.add_row(finding.case.name, *shares, f"[{COLOURS[finding.verdict]}]{finding.verdict}[/]")
    console.print(table)
    for finding in found:
        for fault in finding.faults:
            console.print(f"[red]{finding.case.name}[/]: {fault}.", highlight=False)
    flagged = sum(bool(each.faults) for each in found)
    console.print(f"{len(found)} audits, {flagged} flagged.", highlight=False)
    if any(finding.verdict == "too weak" for finding in found):
        needed = releases_needed(math.sqrt(2 * first.rho), 0.9, CONFIDENCE)
        enough = "at this rho it would take more than a hundred million releases; try 1"
        if needed < MANY:
            enough = f"at this rho take about {float(f'{needed:.1e}'):,.0f} releases"
        console.print(f"An audit that proves little would have seen little: {enough}.", highlight=False)
    elif not flagged:
        console.print("No attack did better than the claim allows.", highlight=False)
    console.print(f"This is no proof of privacy. Attacked were {ATTACKED_IN_WORDS}.", highlight=False)
    if first.noise == "seeded":
        console.print("[red]NOT PRIVATE[/]: seeded noise has the right distribution, and a seed that gives it away.")


def _facts(finding: Finding, round_: int) -> dict[str, Any]:
    return {
        "round": round_,
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
        "verdict": finding.verdict,
        "flagged": bool(finding.faults),
        "faults": list(finding.faults),
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _draw(path: Path, found: list[Finding], times: int) -> None:
    """The attack's curve in each case, under the best that the claim allows; of several audits the strongest."""
    rows = math.ceil(len(found) / 2)
    figure = Figure(figsize=(9.2, 5.0 * rows), layout="constrained")
    for panel, finding in zip(np.ravel(figure.subplots(rows, 2)), found, strict=True):
        _panel(panel, finding, times)
    if found[0].noise == "seeded":
        figure.suptitle("NOT PRIVATE: seeded noise", color=RED)
    figure.savefig(path)
    figure.savefig(path.with_suffix(".png"), dpi=120)


def _panel(axes: Axes, finding: Finding, times: int) -> None:
    rates = np.linspace(0.002, 0.998, 120)
    limit = np.array([zcdp.attack_power(finding.rho, rate) for rate in rates])
    best = np.array([zcdp.gaussian_attack_power(finding.rho, rate) for rate in rates])
    colour = RED if finding.faults else ACCENT
    false, true = finding.curve
    # Both logs' rates are as close to the truth as this, all at once, also of the stronger of two attacks and of the
    # strongest of several audits (Dvoretzky, Kiefer and Wolfowitz 1956), judged by the releases that no attack was
    # learned from.
    off = math.sqrt(math.log(8 * times / (1 - CONFIDENCE)) / ((1 - TRAINING) * finding.releases or 1))
    low, high = (np.clip(np.interp(rates, false + way * off, true - way * off), 0, 1) for way in (1, -1))
    axes.fill_between(rates, limit, 1, color="#f3d9d4", linewidth=0)
    axes.plot([0, 1], [0, 1], ":", color=QUIET, linewidth=1)
    axes.fill_between(rates, low, high, color=colour, alpha=0.3, linewidth=0, label=f"with {CONFIDENCE:.0%} confidence")
    axes.plot(false, true, "-", color=colour, linewidth=2, label="attack, measured")
    axes.plot(rates, best, "--", color=INK, linewidth=1, label="best attack on a Gaussian of this ρ")
    axes.text(0.03, 0.985, "beyond the claim", va="top", color="#a5402d", fontsize=9)
    axes.text(0.6, 0.57, "guessing", color=QUIET, rotation=45, fontsize=9, ha="center", va="center")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="said of the first log (false positives)")
    axes.set_ylabel("said of the second log (true positives)")
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    bound = "" if finding.faults else f": ρ ≥ {finding.rho_bound:.3f} of {finding.rho:g} claimed"
    of = "" if times == 1 else f", the strongest of {times}"
    title = f"{finding.case.name}, {finding.noise} noise{of}\n{finding.verdict}{bound}"
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
