"""What the results say: every section of the report, the summary first."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from poolrl import __version__
from poolrl.paper import rossmann, sweeps, tables, theory
from poolrl.paper.claims import NEIGHBOURS, Verdict, privacy_verdicts, verdicts
from poolrl.paper.privacy_check import change_by_replay
from poolrl.paper.runs import Runs
from poolrl.paper.sections import Section, in_percent
from poolrl.paper.statistics import EQUAL_WITHIN, FEWEST_SEEDS
from poolrl.paper.summary import Origin, summary_section
from poolrl.paper.sweeps import BASE, JUDGED, NAMES
from poolrl.paper.targets import target_verdicts

SEEDED_NOTICE = (
    "Every run here uses seeded noise of the true distribution, so that it can be repeated; such runs are NOT "
    "PRIVATE. Demand is simulated or public, so nothing needed protection."
)
LEARNERS_IN_TABLES = tuple(NAMES[learner] for learner in JUDGED)


def report_sections(runs: Runs, *, origin: Origin, source: rossmann.Rossmann | None) -> dict[str, list[Section]]:
    """Everything, by the name under which it can be asked for; parts that were not run are left out."""
    judged = [*verdicts(runs), *privacy_verdicts()]
    papers = [verdict for verdict in judged if verdict.data in (*sweeps.PAPERS, NEIGHBOURS)]
    others = [verdict for verdict in judged if verdict.data not in (*sweeps.PAPERS, NEIGHBOURS)]
    found = {
        "summary": [summary_section(runs, papers, origin)],
        "claims": [*claims_sections(papers, others), targets_section(runs)],
        "rq1": tables.rq1_sections(runs, source),
        "rq2": tables.rq2_sections(runs),
        "rq3": tables.rq3_sections(runs),
        "sensitivity": tables.sensitivity_sections(runs),
        "qlearning": tables.q_learning_sections(runs),
        "theory": theory_sections(runs),
        "settings": [settings_section(origin)],
    }
    return {name: [part for part in parts if part.rows or part.picture or part.text] for name, parts in found.items()}


def claims_sections(papers: Sequence[Verdict], others: Sequence[Verdict]) -> list[Section]:
    """The paper's claims with verdicts, on its own data and on other data."""
    header = ("claim", "data", "claimed to be positive", *LEARNERS_IN_TABLES)
    rule = (
        "Each claim is a set of numbers that it says are positive, paired over seeds on common demand paths, with "
        "bootstrap 95% intervals. A claim *holds* if all intervals lie above zero. It *does not hold* if one lies at "
        "or below zero (upper ends are widened for the number of comparisons). Otherwise it is *undecided*, as is "
        f"everything with fewer than {FEWEST_SEEDS} seeds. A claim is *vacuous* if it holds for a policy that never "
        "changes. The tables show the comparison that decided. pp: percentage points of relative gap."
    )
    reading = (
        "The scale of Γ is tuned on three other seeds. Input and output perturbation run over the default learner, so "
        "for Pool.published they differ in more than the place of the noise. On the paper's synthetic data the public "
        "prior is the truth, so the default needs no learning there. The next table has data where it does."
    )
    other_data = "The same claims on data that the paper does not use"
    return [
        Section("The paper's claims", (rule, reading), header, _verdict_rows(papers)),
        Section(other_data, (), header, _verdict_rows(others)),
    ]


def targets_section(runs: Runs) -> Section:
    """Our own targets, with verdicts."""
    rows = tuple(
        (verdict.claim, verdict.data, verdict.statistic, cell)
        for verdict in target_verdicts(runs)
        if (cell := _verdict_cell(verdict))
    )
    return Section(
        "What this library asks of its default", (), ("target", "data", "asked to be positive", "verdict"), rows
    )


def theory_sections(runs: Runs) -> list[Section]:
    """The bounds beside what they bound."""
    rng = np.random.default_rng(0)
    rows = []
    for products in map(int, sweeps.PRODUCT_COUNTS.values):
        for zones in (50, 200, 800):
            measured, lipschitz = theory.measured_approximation(products, zones, rng=rng)
            sizes = theory.Sizes(1, products, products, zones, 1.0)
            norm = math.sqrt(sizes.dimensions)
            full = theory.approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=norm)
            first = theory.approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=sizes.dimensions)
            rows.append((str(2 * products), str(zones), f"{first:.4f}", f"{full:.3f}", f"{measured:.4f}"))
    text = (
        "One step of lost sales with known transitions, λ = 1: the largest error of reading Q between the nodes "
        "over 20,000 random pairs. The first term of the bound, L√(w + d)/M, vanishes as M grows. The error does not, "
        "because Assumption 1 (the reward is a function of the norm) fails for inventory. The printed bound holds "
        "only by its second term, |w + d − ‖λ‖₂|, which is not zero even at λ = 1.",
    )
    sizes_rows = []
    for rho in (0.1, 1.0, 10.0):
        sizes = theory.Sizes(BASE.horizon, 1, 1, BASE.granularity, rho)
        bound = theory.optimality_bound(sizes, trajectories=10_000, lipschitz=0.5, boundary_norm=math.sqrt(2))
        needed = theory.sample_size(sizes, accuracy=0.1 * sizes.horizon)
        learners = [in_percent(runs, replace(learner, rho=rho)) for learner in JUDGED]
        wanted = theory.zone_count(sizes, accuracy=0.1 * sizes.horizon, lipschitz=0.5)
        asked = f"{needed:,.0f}", f"{wanted:.0f}"
        sizes_rows.append((f"{rho:g}", f"{sizes.noise_bound:.1f}", *asked, f"{bound:,.0f}", *learners))
    sizes_text = (
        "H = 5, w = d = 1, M = 100, n = 10,000, hidden constants taken as one. Values lie in [0, H], so a bound "
        "above 5 is vacuous. It takes the most favourable d̄ (all nodes visited equally often) and L = 0.5.",
    )
    header = ("ρ", "E_ρ", "Theorem 2: n for α = H/10", "its M", "bound on v* − v at n = 10,000")
    learned = tuple(f"{name}: gap %" for name in LEARNERS_IN_TABLES)
    return [
        Section(
            "Theorem 1 beside the measured approximation error",
            text,
            ("w + d", "M", "first term", "complete bound", "measured"),
            tuple(rows),
        ),
        Section("Theorem 2 beside the measured gap", sizes_text, (*header, *learned), tuple(sizes_rows)),
        Section(
            "What the claimed sample complexity would cost in privacy",
            (
                "The claimed sample complexity is free of |S||A|, because one row below λ is an observation of every "
                "node below λ. Counted at all of them, one trajectory moves the counts by "
                f"{change_by_replay():.1f} times the Δ₂² = 2H that is paid for (M = 20, w = d = 1, H = 5, an exact "
                "count). ρ-zCDP would not hold. Both learners here count it once.",
            ),
        ),
    ]


def settings_section(origin: Origin) -> Section:
    """How this was made."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "joblib", "matplotlib"))
    md5 = origin.md5
    file = (
        "not used"
        if md5 is None
        else f"train.csv, MD5 {md5}" + ("" if md5 == rossmann.MD5 else f" (Kaggle's has {rossmann.MD5})")
    )
    rows = (
        ("noise", SEEDED_NOTICE),
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
            f"{file}; sales beyond the public bound ({rossmann.BOUND:,.0f}, several stores "
            f"{rossmann.BOUND_OF_SEVERAL:,.0f}) count as the bound",
        ),
        ("time", origin.effort),
        ("versions", f"Python {platform.python_version()}, poolrl {__version__}, {packages}"),
    )
    return Section("Settings", (), ("what", "how"), rows)


def _verdict_rows(found: Sequence[Verdict]) -> tuple[tuple[str, ...], ...]:
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for verdict in found:
        if cell := _verdict_cell(verdict):
            rows.setdefault((verdict.claim, verdict.data, verdict.statistic), {})[verdict.learner] = cell
    return tuple((*about, *(cells.get(name, "") for name in LEARNERS_IN_TABLES)) for about, cells in rows.items())


def _verdict_cell(verdict: Verdict) -> str:
    """The verdict and the comparison that decided: estimate, interval, unit, and where it was. Empty if not run."""
    worst = verdict.worst
    if worst is None:
        return ""
    # Differences within rounding were judged as zero, and are shown as zero.
    estimate, low, high = (
        0.0 if abs(x) < EQUAL_WITHIN else x for x in (worst.value, worst.low, worst.upper(verdict.comparisons))
    )
    unit = f" {verdict.unit}" if verdict.unit else ""
    spread = f" [{low:.3g}, {high:.3g}]" if low != high else ""
    seeds = f"; {worst.seeds} seeds" if worst.seeds else ""
    return f"**{verdict.verdict}**: {estimate:.3g}{spread}{unit} ({worst.about}{seeds})"
