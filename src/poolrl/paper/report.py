"""What the results say: every section of the report, claims first."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

import numpy as np

from poolrl import __version__
from poolrl.paper import sweeps, tables, theory
from poolrl.paper.claims import LEARNERS, NEIGHBOURS, PAPERS, Verdict, privacy_verdicts, verdicts
from poolrl.paper.privacy_check import change_by_replay
from poolrl.paper.rossmann import BOUND, BOUND_OF_SEVERAL, MD5, Rossmann
from poolrl.paper.sections import Section, percent
from poolrl.paper.statistics import FEWEST_SEEDS, ROUNDING, Table
from poolrl.paper.sweeps import BASE
from poolrl.paper.targets import target_verdicts

NOT_PRIVATE = (
    "Every run here uses seeded noise of the true distribution, so that it can be repeated; such runs are NOT "
    "PRIVATE. Demand is simulated or public, so nothing needed protection."
)


@dataclass(frozen=True)
class Origin:
    """Where the rows came from, as the results file remembers it."""

    runs: int  # rows in the file
    seconds: float  # of running, all calls together
    workers: str
    md5: str | None  # of train.csv, where rows used it
    quick: bool = False


def sections(table: Table, *, origin: Origin, source: Rossmann | None) -> dict[str, list[Section]]:
    """Everything, by the name under which it can be asked for; parts that were not run are left out."""
    found = {
        "claims": claims_sections(table, origin),
        "rq1": tables.rq1_sections(table, source),
        "rq2": tables.rq2_sections(table),
        "rq3": tables.rq3_sections(table),
        "sensitivity": tables.sensitivity_sections(table),
        "qlearning": tables.q_learning_sections(table),
        "theory": theory_sections(table),
        "settings": [settings_section(origin)],
    }
    return {name: [part for part in parts if part.rows or part.figure or part.text] for name, parts in found.items()}


def claims_sections(table: Table, origin: Origin) -> list[Section]:
    """The paper's claims and our own targets, with verdicts."""
    quick = ("A *quick* look: fewer values and seeds than the paper's, so verdicts are provisional.",) * origin.quick
    found = [verdict for verdict in [*verdicts(table), *privacy_verdicts()] if verdict.verdict != "not run"]
    papers = [verdict for verdict in found if verdict.data in (*PAPERS, NEIGHBOURS)]
    others = [verdict for verdict in found if verdict not in papers]
    header = ("claim", "data", "claimed to be positive", *LEARNERS)
    rule = (
        "Each claim is a set of numbers that it says are positive, paired over seeds on common demand paths, with "
        "bootstrap 95% intervals. It *holds* if all intervals lie above zero, *does not hold* if one lies at or "
        "below zero (upper ends are widened for the number of comparisons), else it is *undecided*, as is "
        f"everything with fewer than {FEWEST_SEEDS} seeds; *vacuous* is a claim that holds of a policy that never "
        "changes. Shown is the comparison that decided. pp: percentage points of relative gap."
    )
    reading = (
        "The scale of Γ is tuned on three other seeds. Input and output perturbation run over the default learner, "
        "so for Pool.published they differ in more than the place of the noise. On the paper's synthetic data the "
        "public prior is the truth, so what the default shows there needs no learning: the next table has data "
        "where it does."
    )
    targets = tuple(
        (verdict.claim, verdict.data, verdict.statistic, f"**{verdict.verdict}**: {_measured(verdict)}")
        for verdict in target_verdicts(table)
        if verdict.verdict != "not run"
    )
    return [
        Section("The paper's claims", (*quick, rule, _counted(papers), reading), header, _claim_rows(papers)),
        Section("The same claims on data that the paper does not use", (), header, _claim_rows(others)),
        Section(
            "What this library asks of its default", (), ("target", "data", "asked to be positive", "verdict"), targets
        ),
    ]


def _counted(found: Sequence[Verdict]) -> str:
    """How often each learner's claims hold, in a sentence."""
    parts = []
    for name in LEARNERS:
        given = Counter(verdict.verdict for verdict in found if verdict.learner == name)
        kinds = [kind for kind in ("holds", "does not hold", "undecided", "vacuous") if given[kind]]
        said = ", ".join(f"{given[kind]} {kind}" for kind in kinds)
        parts.append(f"{name}: {said}".replace(" holds", " hold").replace("does not hold", "do not hold"))
    return f"In short. {'; '.join(parts)}."


def theory_sections(table: Table) -> list[Section]:
    """The bounds beside what they bound."""
    rng = np.random.default_rng(0)
    rows = []
    for products in sweeps.PRODUCTS:
        for zones in (50, 200, 800):
            measured, lipschitz = theory.measured_approximation(products, zones, rng=rng)
            sizes = theory.Sizes(1, products, products, zones, 1.0)
            norm = math.sqrt(sizes.dimensions)
            full = theory.approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=norm)
            first = theory.approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=sizes.dimensions)
            rows.append((str(2 * products), str(zones), f"{first:.4f}", f"{full:.3f}", f"{measured:.4f}"))
    text = (
        "One step of lost sales with known transitions, λ = 1: the largest error of reading Q between the nodes "
        "over 20,000 random pairs. The first term alone, L√(w + d)/M, is what would vanish with M; the error does "
        "not follow it, because Assumption 1 (the reward is a function of the norm) fails for inventory. The "
        "printed bound is kept by its second term, |w + d − ‖λ‖₂|, which is not zero even at λ = 1.",
    )
    sizes_rows = []
    for rho in (0.1, 1.0, 10.0):
        sizes = theory.Sizes(BASE.horizon, 1, 1, BASE.granularity, rho)
        bound = theory.optimality_bound(sizes, trajectories=10_000, lipschitz=0.5, boundary_norm=math.sqrt(2))
        needed = theory.sample_size(sizes, accuracy=0.1 * sizes.horizon)
        learners = [percent(table, replace(setting, rho=rho), "gap") for setting in LEARNERS.values()]
        wanted = theory.zone_count(sizes, accuracy=0.1 * sizes.horizon, lipschitz=0.5)
        asked = f"{needed:,.0f}", f"{wanted:.0f}"
        sizes_rows.append((f"{rho:g}", f"{sizes.noise_bound:.1f}", *asked, f"{bound:,.0f}", *learners))
    sizes_text = (
        "H = 5, w = d = 1, M = 100, n = 10,000, hidden constants taken as one. Values lie in [0, H], so a bound "
        "above 5 says nothing; it takes the most favourable d̄ (all nodes visited equally often) and L = 0.5.",
    )
    header = ("ρ", "E_ρ", "Theorem 2: n for α = H/10", "its M", "bound on v* − v at n = 10,000")
    learned = tuple(f"{name}: gap %" for name in LEARNERS)
    return [
        Section(
            "Theorem 1 beside the measured approximation error",
            text,
            ("w + d", "M", "first term", "whole bound", "measured"),
            tuple(rows),
        ),
        Section("Theorem 2 beside the measured gap", sizes_text, (*header, *learned), tuple(sizes_rows)),
        Section(
            "What the claimed sample complexity would cost in privacy",
            (
                "It is free of |S||A| because one row below λ tells about every node below λ. Counted at all of "
                f"them, one trajectory moves the counts by {change_by_replay():.1f} times the Δ₂² = 2H that is "
                "paid for (M = 20, w = d = 1, H = 5, an exact count): ρ-zCDP would not hold. Both learners here "
                "count it once.",
            ),
        ),
    ]


def settings_section(origin: Origin) -> Section:
    """How this was made."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "joblib", "opendp", "matplotlib"))
    md5 = origin.md5
    file = "not used" if md5 is None else f"train.csv, MD5 {md5}" + ("" if md5 == MD5 else f" (Kaggle's has {MD5})")
    rows = (
        ("noise", NOT_PRIVATE),
        ("synthetic data", "D̄ = 100; h, b ~ U[0, 0.5] per step and product; demand as named; zero initial stock"),
        (
            "benchmark",
            "SAA on 10,000 samples (Rossmann: on the 66 training weeks), judged on 10,000 common paths (67 weeks)",
        ),
        (
            "policies on zones or grids",
            "search their action per path, so they are judged on the first 2,000 of those paths",
        ),
        ("base setting", "H = 5, w + d = 2, λ = 1, M = 100, n = 10,000, ρ = 1, failure δ = 0.05, uniform behaviour"),
        ("ε", "beside ρ always at δ = 10⁻⁶, the δ of privacy; failure δ is the one in E_ρ and ι"),
        ("M", "zones; cells per axis of a grid; points per coordinate of the default Pool"),
        ("scale of Γ", f"printed: 1; best: the least mean gap of {sweeps.SCALES} on seeds {sweeps.TUNING_SEEDS}"),
        (
            "Rossmann",
            f"{file}; sales beyond the public bound ({BOUND:,.0f}, several stores {BOUND_OF_SEVERAL:,.0f}) count as it",
        ),
        ("time", f"{origin.runs:,} runs in {origin.seconds / 60:.1f} minutes, {origin.workers} at a time"),
        (
            "versions",
            f"Python {platform.python_version()}, poolrl {__version__}, " + packages,
        ),
    )
    return Section("Settings", (), ("what", "how"), rows)


def _claim_rows(found: Sequence[Verdict]) -> tuple[tuple[str, ...], ...]:
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for verdict in found:
        row = rows.setdefault((verdict.claim, verdict.data, verdict.statistic), {})
        row[verdict.learner] = f"**{verdict.verdict}**: {_measured(verdict)}"
    return tuple((*about, *(cells.get(name, "") for name in LEARNERS)) for about, cells in rows.items())


def _measured(verdict: Verdict) -> str:
    """The comparison that decided: estimate, interval, unit, and where it was."""
    worst = verdict.worst
    if worst is None:
        return ""
    # Numbers below rounding were judged as zero, and are shown as zero.
    estimate, low, high = (
        0.0 if abs(x) < ROUNDING else x for x in (worst.estimate, worst.low, worst.upper(verdict.comparisons))
    )
    unit = f" {verdict.unit}" if verdict.unit else ""
    spread = f" [{low:.3g}, {high:.3g}]" if low != high else ""
    seeds = f"; {worst.seeds} seeds" if worst.seeds else ""
    return f"{estimate:.3g}{spread}{unit} ({worst.about}{seeds})"
