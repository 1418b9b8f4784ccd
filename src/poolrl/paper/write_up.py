"""What the results say: every section of the report, the summary first; as an HTML page, as Markdown, as pictures."""

import base64
import io
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from poolrl import __version__
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import CASES
from poolrl.checks import FloatArray
from poolrl.paper import claims, figures, rossmann, sweeps
from poolrl.paper.figures import SECTIONS, Section, in_percent, number, section
from poolrl.paper.results import Runs
from poolrl.paper.sweeps import BASE, DATA_FREE, INPUT, NAMES, OUTPUT, PLACES, PUBLISHED, SOFTENED
from poolrl.privacy.zcdp import epsilon_shown

TITLE, SEEDED_NOTICE = SECTIONS["title"], SECTIONS["notice"]
NEIGHBOURS = "neighbouring logs"
AUDITED_RELEASES = 5_000  # of each learner: they prove three quarters of the claim, in some seconds
AUDIT_VERDICTS = {"not refuted": "holds", "FLAGGED": "does not hold", "too weak": "undecided"}
HEADLINE_DATA = (sweeps.SYNTHETIC, "normal demand", sweeps.STORE_1)
HEADLINE_METHODS = (BASE, SOFTENED, PUBLISHED, INPUT, OUTPUT, DATA_FREE)


@dataclass(frozen=True)
class Origin:
    """Where the rows came from, as the results file remembers it."""

    runs: int  # rows in the file
    seconds: float  # of running, all calls together
    workers: str
    md5: str | None  # of train.csv, where rows used it
    quick: bool = False

    @property
    def effort(self) -> str:
        """How much was run."""
        return f"{self.runs:,} runs in {self.seconds / 60:.1f} minutes, {self.workers} at a time"


def report_sections(runs: Runs, *, origin: Origin, source: rossmann.Rossmann | None) -> dict[str, list[Section]]:
    """Everything, by the name under which it can be asked for; parts that were not run are left out."""
    judged = [*claims.verdicts(runs), *privacy_verdicts()]
    papers = [verdict for verdict in judged if verdict.data in (*sweeps.PAPERS, NEIGHBOURS)]
    others = [verdict for verdict in judged if verdict not in papers]
    groups: dict[str, Iterable[Section]] = {
        "summary": [summary_section(runs, papers, origin)],
        "claims": [
            _verdict_section("claims", papers, brief=True, fewest=sweeps.FEWEST_SEEDS),
            _verdict_section("decided", papers),
            replace(section("others"), text=_tally(others)),
            _verdict_section("others-decided", others),
            _verdict_section("targets", claims.target_verdicts(runs)),
        ],
        "rq1": figures.rq1_sections(runs, source),
        "rq2": figures.rq2_sections(runs),
        "rq3": figures.rq3_sections(runs),
        "sensitivity": figures.sensitivity_sections(runs),
        "settings": [_settings_section(origin)],
    }
    return {name: [part for part in parts if part.rows or part.picture or part.text] for name, parts in groups.items()}


def privacy_verdicts() -> list[claims.Verdict]:
    """ρ-zCDP as `poolrl audit` judges it: two worst neighbours, what they move, and attacks on their releases."""
    # Both scales of Γ share one release: Γ is applied after it.
    learners = {"published": (PUBLISHED, SOFTENED), "default": (BASE,)}
    judged = []
    for learner, settings in learners.items():
        found = attack_case(next(case for case in CASES if case.learner == learner), releases=AUDITED_RELEASES)
        room = 1 - found.moved_share
        about = (
            f"the worst pair; attacks on {found.releases:,} releases prove ρ ≥ {found.rho_bound:.2f} of {found.rho:g} "
            f"claimed; {'; '.join(found.faults) or 'no check of counts, noise or payment fails'}"
        )
        verdict, exactly = AUDIT_VERDICTS[found.verdict], claims.Estimate(room, np.full(2, room), 0, about)
        claim = "POOL satisfies ρ-zCDP", NEIGHBOURS, "1 − ‖Δ counts‖² / Δ₂², not below zero", ""
        judged += [claims.Verdict(*claim, NAMES[setting], verdict, exactly) for setting in settings]
    return judged


def summary_section(runs: Runs, judged: Sequence[claims.Verdict], origin: Origin) -> Section:
    """The summary for a busy reader; `judged` are the verdicts on the paper's own data."""
    counts = {name: Counter(each.verdict for each in judged if each.learner == name) for name in NAMES.values()}
    places = [place for place in HEADLINE_DATA if runs.of(PLACES[place](BASE))]
    rows = []
    for method in HEADLINE_METHODS:
        count, gaps = counts[NAMES[method]], [in_percent(runs, PLACES[place](method), spread=False) for place in places]
        tally = (count["holds"], count["does not hold"], count["undecided"] + count["vacuous"])
        rows.append((NAMES[method], *(str(cell) if count else "" for cell in tally), *gaps))
    header = ("method", "claims hold", "do not hold", "undecided", *(f"gap, {place}" for place in places))
    text = (_what_was_run(runs, origin), *_conclusions(runs, counts, places))
    papers = [place for place in places if place in sweeps.PAPERS]
    figure = figures.budgets(runs, papers) if papers else None
    return replace(section("summary", header, rows, figure=figure), text=text)


def _what_was_run(runs: Runs, origin: Origin) -> str:
    data = "simulated demand" if origin.md5 is None else "simulated demand and daily sales of Rossmann stores"
    quick = " This is a *quick* look: it has fewer values and seeds than the paper, so verdicts are provisional."
    return (
        f"{origin.effort}; {runs.seeds} seeds; {data}. The gap is the cost above SAA in percent. SAA plans on "
        "uncensored demand, without privacy. The table counts the verdicts on the paper's claims (vacuous ones as "
        f"undecided), and has gaps at ρ = 1 (ε = {epsilon_shown(1.0)} at δ = 10⁻⁶).{quick if origin.quick else ''}"
    )


def _conclusions(runs: Runs, counts: dict[str, Counter[str]], places: Sequence[str]) -> list[str]:
    """Plain sentences. The rows choose every number, and every word that could be otherwise."""
    sentences = []
    ours, softened, printed = (counts[NAMES[learner]] for learner in (BASE, SOFTENED, PUBLISHED))
    if ours:
        sentences.append(
            f"{ours['holds']} of the paper's {ours.total()} claims hold for the default Pool, on the paper's data. For "
            f"the algorithm as published, {printed['holds']} of {printed.total()} hold with the printed constants, and "
            f"{softened['holds']} of {softened.total()} with a tuned scale of Γ."
            + (f" {ours['not run']} were not run." if ours["not run"] else "")
        )

    def span(values: Iterable[FloatArray]) -> str:
        """From the least mean over seeds to the largest, in percent; empty where nothing was run."""
        means = [100 * float(measured.mean()) for measured in values if len(measured)]
        return " to ".join(dict.fromkeys(map(number, (min(means), max(means))))) if means else ""

    methods = {
        "the default Pool": (BASE,),
        "Pool.published with a tuned scale of Γ": (SOFTENED,),
        "input and output perturbation": (INPUT, OUTPUT),
    }
    gaps = {
        who: span(runs.measured(PLACES[place](learner), "gap") for place in places for learner in learners)
        for who, learners in methods.items()
    }
    if any(gaps.values()):
        spans = [f"for {who} it is {percent} percent" for who, percent in gaps.items() if percent]
        sentences.append(f"The gap at ρ = 1 depends on the data: {', '.join(spans)}.")
    pairs = [runs.paired([PLACES[place](sweeps.NON_PRIVATE), PLACES[place](BASE)]) for place in places]
    if price := span(pair[:, 1] - pair[:, 0] for pair in pairs):
        sentences.append(f"Privacy at ρ = 1 costs the default Pool {price} percentage points of gap.")
    return [*sentences, *_what_data_give(runs, places)]


def _what_data_give(runs: Runs, places: Sequence[str]) -> list[str]:
    """Where the default beats the plan that sees no data, by the rule of the claims."""
    judged: dict[str, list[str]] = {}
    for place in places:
        pairs = runs.paired([PLACES[place](BASE), PLACES[place](DATA_FREE)], "gap_common")
        if len(pairs):
            judged.setdefault(claims.judge([claims.mean_difference(100 * pairs)])[0], []).append(place)
    words = {
        "holds": "The default Pool beats a plan without data on {}.",
        "does not hold": "A plan without data is at least as good on {}.",
        "undecided": "It is undecided whether the log helps on {}.",
    }
    sentences = [words[verdict].format(" and ".join(judged[verdict])) for verdict in words if verdict in judged]
    return [" ".join(sentences)] if sentences else []


def _tally(judged: Sequence[claims.Verdict]) -> tuple[str, ...]:
    """How many claims hold for each learner, in a sentence."""
    if not (run := [verdict for verdict in judged if verdict.worst is not None]):
        return ()
    learners = Counter(verdict.learner for verdict in run)
    hold = Counter(verdict.learner for verdict in run if verdict.verdict == "holds")
    said = "; ".join(f"{hold[name]} of {count} for {name}" for name, count in learners.items())
    places = "; ".join(dict.fromkeys(verdict.data for verdict in run))
    return (f"Of claims on {places}, these hold: {said}.",)


def _verdict_section(key: str, judged: Sequence[claims.Verdict], *, brief: bool = False, **facts: Any) -> Section:
    """Verdicts in a table, with a column for each learner."""
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for verdict in judged:
        if verdict.worst is not None:
            about = (verdict.claim, verdict.data, verdict.statistic)
            rows.setdefault(about, {})[verdict.learner] = _verdict_cell(verdict, verdict.worst, brief=brief)
    learners = dict.fromkeys(verdict.learner for verdict in judged)
    cells = ((*about, *(cell.get(name, "") for name in learners)) for about, cell in rows.items())
    return section(key, ("claim", "data", "claimed to be positive", *learners), cells, **facts)


def _verdict_cell(verdict: claims.Verdict, worst: claims.Estimate, *, brief: bool) -> str:
    """The verdict and the comparison that decided: estimate, interval, unit, and where it was unless it is `brief`."""
    # Differences within rounding were judged as zero, and are shown as zero.
    ends = (worst.value, worst.low, worst.upper(verdict.comparisons))
    estimate, low, high = (0.0 if abs(x) < claims.EQUAL_WITHIN else x for x in ends)
    unit = f" {verdict.unit}" if verdict.unit else ""
    spread = f" [{low:.3g}, {high:.3g}]" if low != high else ""
    return f"**{verdict.verdict}**: {estimate:.3g}{spread}{unit}" + ("" if brief else f" ({worst.about})")


def _settings_section(origin: Origin) -> Section:
    """How this was made."""
    kaggles = "" if origin.md5 == rossmann.MD5 else f" (Kaggle's has {rossmann.MD5})"
    facts = {
        "notice": SEEDED_NOTICE,
        "scales": sweeps.SCALES,
        "seeds": sweeps.TUNING_SEEDS,
        "file": "not used" if origin.md5 is None else f"train.csv, MD5 {origin.md5}{kaggles}",
        "bounds": f"{rossmann.BOUND:,.0f}, several stores {rossmann.BOUND_OF_SEVERAL:,.0f}",
        "effort": origin.effort,
        "python": platform.python_version(),
        "poolrl": __version__,
        "packages": ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "matplotlib")),
    }
    rows = ((name, how.format(**facts)) for name, how in SECTIONS["settings"]["rows"].items())
    return section("settings", ("what", "how"), rows)


def page(parts: Iterable[Section], kind: str) -> str:
    """One `html` file that asks for nothing from outside, or `md` with pictures in `figures/` and without details."""
    shown = [part for part in parts if kind == "html" or not part.detail]
    loader = PackageLoader("poolrl.paper")
    templates = Environment(loader=loader, autoescape=select_autoescape(), trim_blocks=True, keep_trailing_newline=True)
    templates.filters["anchor"] = lambda title: re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    templates.filters["encoded"] = lambda figure: base64.b64encode(svg(figure)).decode()
    templates.filters["marked"] = _marked
    templates.filters["cells"] = lambda row: " | ".join(cell.replace("|", "\\|") for cell in row)
    template = templates.get_template(f"reproduction.{kind}")
    return template.render(title=TITLE, notice=SEEDED_NOTICE, made_by=made_by(), parts=shown)


def made_by() -> str:
    """The code that makes a table: "poolrl 0.17.0 (c9ef759a12)". A plus marks a package that has changed since.

    `python -m benchmarks.stale` reads it. Outside of a checkout no commit is known.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else ""

    with suppress(FileNotFoundError):
        if git("ls-files", Path(__file__).name):
            changed = "+" if git("status", "--porcelain", "--", "..") else ""
            return f"poolrl {__version__} ({git('rev-parse', '--short=10', 'HEAD')}{changed})"
    return f"poolrl {__version__} (no commit)"


def save_figures(parts: Iterable[Section], folder: Path) -> None:
    """Every picture as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if part.picture:
            (folder / f"{part.picture.name}.svg").write_bytes(svg(part.picture.figure))
            part.picture.figure.savefig(folder / f"{part.picture.name}.png", dpi=150)


def svg(figure: Figure) -> bytes:
    """The picture without a date and without random names, so that the same rows give the same bytes."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "poolrl"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    figure.set_layout_engine("none")  # the layout is found, and finding it takes as long as drawing
    return buffer.getvalue()


def _marked(text: str) -> Markup:
    """Escape, then the two marks of Markdown that sections use; a verdict gets its colour."""
    safe = str(escape(text))
    for verdict in ("holds", "does not hold", "undecided", "vacuous"):
        strong = f'<strong class="{verdict.replace(" ", "-")}">{verdict}</strong>'
        safe = safe.replace(f"**{verdict}**", strong)
    return Markup(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", safe))
