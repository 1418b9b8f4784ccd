"""The sweeps as tables and figures: RQ1 to RQ3, what the paper leaves open, and why `Pool.published` fails.

A report is a list of sections of text, tables and pictures. Points of a figure are means over runs. Error bars span the
middle two thirds of the runs (16% to 84%): on a logarithmic axis that says more than a standard deviation larger than
its mean. The tables have standard deviations.
"""

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.mlab import detrend_mean
from matplotlib.ticker import FuncFormatter, NullLocator

from poolrl.checks import FloatArray
from poolrl.paper import sweeps
from poolrl.paper.results import Runs
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import BASE, GRANULARITIES, JUDGED, NAMES, PAPERS, PLACES, PUBLISHED, RHOS, Range, Setting
from poolrl.privacy.zcdp import epsilon_shown

Row = tuple[str, ...]
INK, QUIET = "#1f2933", "#7b8794"  # dark text and quiet helpers, both readable on white
BUDGETS = replace(RHOS, values=(*RHOS.values, math.inf))
WITHOUT_NODES = (sweeps.INPUT, sweeps.OUTPUT, sweeps.DATA_FREE, sweeps.MIDDLE)
IN_RQ1 = (*JUDGED, sweeps.SOFT_GRID, *WITHOUT_NODES, sweeps.PARTIAL)
SECTIONS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "templates" / "sections.toml").read_text())


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files, and its alternative text."""

    name: str
    alt: str
    figure: Figure


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it: a picture first, then text, then a table.

    `detail` stands on the HTML page alone: the Markdown page is for readers who want the answer.
    """

    title: str
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    picture: Picture | None = field(default=None, compare=False)
    detail: bool = False


def section(
    key: str, header: Sequence[str] = (), rows: Iterable[Row] = (), *, figure: Figure | None = None, **facts: Any
) -> Section:
    """A section of `sections.toml`, with its facts filled in, and without the rows that have no cell but their name."""
    written = SECTIONS[key]
    title = written["title"].format(**facts)
    text = tuple(words.format(**facts) for words in written.get("text", ()))
    picture = None if figure is None else Picture(written["picture"], written["alt"], figure)
    filled = tuple(row for row in rows if any(row[1:]))
    return Section(title, text, tuple(header), filled, picture, written.get("detail", False))


def in_percent(runs: Runs, setting: Setting, measure: str = "gap", *, spread: bool = True) -> str:
    """Mean ± standard deviation over seeds; empty where the setting was not run or has no such measure."""
    values = 100 * runs.measured(setting, measure)
    return "" if np.isnan(values).any() else _mean(values, number, spread=spread)


def number(value: float) -> str:
    """Three figures or so, without exponents."""
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3}f}"


def _mean(values: FloatArray, write: Callable[[float], str], *, spread: bool = True) -> str:
    if not len(values):
        return ""
    return write(values.mean()) + (f" ± {write(values.std(ddof=1))}" if spread and len(values) > 1 else "")


# What the cells of a table hold, by the name of its section.
CELLS: dict[str, Callable[[Runs, Setting], str]] = {
    "gap": in_percent,
    "gap-within": lambda runs, s: in_percent(runs, s, "gap_within"),
    # c* − c, the appendix's gap. Only luck makes it positive.
    "difference": lambda runs, s: _mean(runs.measured(s, "best_cost") - runs.measured(s, "cost"), "{:,.0f}".format),
    "seconds": lambda runs, s: _mean(runs.measured(s, "seconds"), "{:.3f}".format, spread=False),
}


def rq1_sections(runs: Runs, source: Rossmann | None) -> Iterator[Section]:
    """POOL against IP and OP over ρ. The picture of the paper's data is in the summary."""
    places = [place for place, move in PLACES.items() if runs.of(move(BASE))]
    if not places:
        return
    yield section("rq1")
    for place in places:
        learners = {NAMES[learner]: PLACES[place](learner) for learner in IN_RQ1}
        for cells in ("gap", "difference") if place == sweeps.STORE_1 else ("gap",):
            yield _table(runs, cells, f"RQ1, {place}", BUDGETS, learners)
    if others := [place for place in places if place not in PAPERS]:
        yield section("rq1-more", figure=budgets(runs, others))
    if source is not None:
        yield section("acf", figure=weekly_cycle(source))


def rq2_sections(runs: Runs) -> Iterator[Section]:
    """One hyperparameter at a time."""
    learners = {NAMES[learner]: learner for learner in JUDGED}
    learners |= {f"Pool, {demand} demand": replace(BASE, data=demand) for demand in sweeps.DEMAND_LAWS[1:]}
    # The paper's second figure: H, |λ|, w + d and M, around the base setting.
    strokes = (POOL, BEST, PRINTED)
    below = replace(POOL, marker=".", style=":", words="Pool, gap to the best below λ", measure="gap_within")
    panels = [
        Panel((*strokes, below) if each is sweeps.BOUNDARIES else strokes, each) for each in sweeps.HYPERPARAMETERS
    ]
    yield section("rq2", figure=_draw(runs, panels, 2))
    for each in sweeps.HYPERPARAMETERS:
        for cells in ("gap", "gap-within") if each is sweeps.BOUNDARIES else ("gap",):
            yield _table(runs, cells, f"RQ2, {each.symbol}", each, learners)


def rq3_sections(runs: Runs) -> Iterator[Section]:
    """Zones against grids."""
    # The paper's third figure: gap on the left, time on the right; both data sets.
    panels = [
        Panel([replace(stroke, measure=measure) for stroke in DISCRETISATIONS], GRANULARITIES, place)
        for place in PAPERS
        for measure in ("gap", "seconds")
    ]
    yield section("rq3", figure=_draw(runs, panels, 2))
    for place in PAPERS:
        learners = {NAMES[learner]: PLACES[place](learner) for learner in sweeps.IN_RQ3}
        if runs.present(GRANULARITIES.over(PLACES[place](sweeps.GRID))):
            for cells in ("gap", "seconds"):
                yield _table(runs, cells, f"RQ3, {place}", GRANULARITIES, learners)


def sensitivity_sections(runs: Runs) -> Iterator[Section]:
    """What the paper leaves open."""
    learners = {NAMES[learner]: learner for learner in (*JUDGED, sweeps.NON_PRIVATE)} | {"no data": sweeps.DATA_FREE}
    rows = (
        (name, *(in_percent(runs, move(learner), spread=False) for learner in learners.values()))
        for name, move in sweeps.OPEN_CHOICES.items()
    )
    strokes = [replace(stroke, measure="gap_optimum") for stroke in (POOL, WITHOUT_PRIVACY, BEST, PRINTED)]
    panels = [Panel(strokes, sweeps.LOG_SIZES, place) for place in sweeps.KNOWN_OPTIMUM]
    yield section("open")
    yield section("open-choices", ("choice", *learners), rows)
    yield section("sample-size", figure=_draw(runs, panels, 3))
    if runs.of(PUBLISHED):
        shares = {name: 100 * runs.measured(PUBLISHED, name).mean() for name in ("fell_back", "clipped")}
        yield section("why", figure=fallbacks(runs), **shares)
    yield _shares(runs)


def _shares(runs: Runs) -> Section:
    """What happens to the nodes of Pool.published."""
    moves = (RHOS, GRANULARITIES, sweeps.PRODUCT_COUNTS)
    settings = {f"synthetic, {each.symbol} = {each.shown(s):g}": s for each in moves for s in each.over(PUBLISHED)}
    settings |= {f"Store 1, ρ = {setting.rho:g}": setting for setting in RHOS.over(sweeps.real(PUBLISHED))}
    rows = []
    for name, setting in settings.items():
        if runs.of(setting):
            best = runs.chosen(replace(setting, scale=sweeps.TUNED))
            measured = [(setting, "fell_back"), (setting, "clipped"), (setting, "empty_rings"), (best, "clipped")]
            shares = [in_percent(runs, where, measure, spread=False) for where, measure in measured]
            rows.append((name, *shares, f"{best.scale:g}"))
    header = ("setting", "noise-dominated", "Q cut, printed", "rings without data", "Q cut, best scale", "best scale")
    return section("shares", header, rows)


def _table(runs: Runs, cells: str, about: str, each: Range, learners: dict[str, Setting]) -> Section:
    """Learners down, the values that were run across."""
    columns = zip(*(each.over(learner) for learner in learners.values()), strict=True)
    there = [column for column in columns if runs.present(column)]
    header = ("learner", *(_value_in_words(each, column[0]) for column in there))
    settings_of = zip(learners, zip(*there, strict=True), strict=False)  # no rows if nothing was run
    rows = ((name, *(CELLS[cells](runs, setting) for setting in settings)) for name, settings in settings_of)
    made, said = section(cells, header, rows, about=about), SECTIONS[cells].get("of", {}).get(about)
    return replace(made, text=(said,)) if said else made


def _value_in_words(each: Range, setting: Setting) -> str:
    """ε stands beside ρ."""
    epsilon = f" (ε = {epsilon_shown(setting.rho)})" if each is BUDGETS and math.isfinite(setting.rho) else ""
    return f"{each.symbol} = {each.shown(setting):,g}{epsilon}".replace("inf", "∞")


# A logarithmic axis ends here: gaps below it, and those that luck made negative, lie on the floor.
FLOOR = 1e-3
BLUE = "#0072b2"  # with the next ones: Okabe and Ito's palette for colour-blind readers


@dataclass(frozen=True)
class Stroke:
    """How a learner is drawn, always the same."""

    setting: Setting
    colour: str
    marker: str = ""
    style: Any = "-"
    words: str = ""
    measure: str = "gap"
    level: bool = False  # whether it does not depend on what varies, and is a horizontal line

    @property
    def name(self) -> str:
        """What the legend says."""
        return self.words or NAMES[self.setting]


POOL = Stroke(BASE, BLUE, "o")
BEST = Stroke(sweeps.SOFTENED, "#009e73", "s")
PRINTED = Stroke(PUBLISHED, "#cc79a7", "D", "--")
WITHOUT_PRIVACY = Stroke(sweeps.NON_PRIVATE, INK, ".", ":")
DISCRETISATIONS = (
    *(POOL, BEST, PRINTED),
    Stroke(sweeps.SOFT_GRID, "#56b4e9", "P"),
    Stroke(sweeps.GRID, "#56b4e9", "X", "--"),
    Stroke(sweeps.OUTCOME_ZONES, "#8c6d1f", "*"),
)
BASELINES = (
    *(POOL, BEST, PRINTED),
    Stroke(sweeps.INPUT, "#e69f00", "^"),
    Stroke(sweeps.OUTPUT, "#d55e00", "v"),
    replace(WITHOUT_PRIVACY, words="NonPrivate", level=True),
    Stroke(sweeps.DATA_FREE, QUIET, style="-.", level=True),
    Stroke(sweeps.MIDDLE, QUIET, style=(0, (1, 3)), level=True),
)
# The measures that can be high, with their words; every other measure is a share.
HEIGHTS = {
    "gap": "cost above SAA",
    "gap_optimum": "cost above the true optimum",
    "seconds": "processor seconds of one fit",
}


class Panel(NamedTuple):
    """One panel of a figure: strokes over a range, on some data."""

    strokes: Sequence[Stroke]
    each: Range
    place: str = sweeps.SYNTHETIC


def budgets(runs: Runs, places: Sequence[str]) -> Figure:
    """The paper's first figure: the gap against ρ, one panel per data set."""
    return _draw(runs, [Panel(BASELINES, RHOS, place) for place in places], min(len(places), 3))


def fallbacks(runs: Runs) -> Figure:
    """Why `Pool.published` fails: noise-dominated nodes, values cut at zero, rings without data."""
    strokes = (
        Stroke(PUBLISHED, "#d55e00", "o", words="noise-dominated nodes (ñ ≤ E_ρ)", measure="fell_back"),
        replace(PRINTED, words="nodes with Q cut at zero, printed constants", measure="clipped"),
        Stroke(PUBLISHED, BLUE, "s", words="rings without any data", measure="empty_rings"),
    )
    return _draw(runs, [Panel(strokes, each) for each in (RHOS, sweeps.LOG_SIZES)], 2)


def weekly_cycle(real: Rossmann) -> Figure:
    """The autocorrelation of Store 1's daily sales: its peaks are seven days apart."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    series = real.weeks[:, :, 0].ravel()
    axes.acorr(series, detrend=detrend_mean, maxlags=28, linewidth=2, color=BLUE)
    axes.set_xlim(-0.5, 28.5)
    band = 1.96 / math.sqrt(len(series))
    axes.axhspan(-band, band, color=QUIET, alpha=0.2, linewidth=0)
    axes.set_xticks(range(0, 29, 7))
    _finish(axes, "Daily sales of Store 1 repeat every week", "lag in days", "autocorrelation")
    return figure


def _draw(runs: Runs, panels: Sequence[Panel], columns: int) -> Figure:
    """The panels, with one legend for all below them; a panel without data is not shown."""
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5.4 * columns, 4.4 * rows + 0.5), layout="constrained")
    entries: dict[str, Any] = {}
    for axes, panel in zip_longest(figure.subplots(rows, columns, squeeze=False).ravel(), panels):
        if panel is not None:
            for stroke in panel.strokes:
                _curve(axes, runs, stroke, panel)
            _scales(axes, panel)
        axes.set_visible(axes.has_data())
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    across = 3 if len(entries) > 4 and figure.get_figwidth() > 8 else 2
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=across, frameon=False)
    return figure


def _curve(axes: Axes, runs: Runs, stroke: Stroke, panel: Panel) -> None:
    """Means over seeds with the middle two thirds of them, against one field of the settings."""
    where, floor = PLACES[panel.place](stroke.setting), FLOOR if stroke.measure.startswith("gap") else -math.inf
    there = runs.present([where] if stroke.level else panel.each.over(where))
    if not there:
        return
    times = 1.0 if stroke.measure == "seconds" else 100.0  # the others are shares, shown in percent
    samples = [times * runs.measured(setting, stroke.measure) for setting in there]
    shown = np.array([[sample.mean(), *np.quantile(sample, (0.16, 0.84))] for sample in samples]).T
    means, low, high = np.maximum(shown, floor)
    look: dict[str, Any] = {"color": stroke.colour, "linestyle": stroke.style, "label": stroke.name}
    if stroke.level:
        axes.axhline(means[0], linewidth=1.2, **look)
        return
    bars = np.maximum([means - low, high - means], 0.0)  # a mean may lie outside when one run is far off
    look |= {"marker": stroke.marker, "linewidth": 1.8, "markersize": 5, "elinewidth": 0.8, "capsize": 2}
    axes.errorbar([panel.each.shown(setting) for setting in there], means, yerr=bars, **look)


def _scales(axes: Axes, panel: Panel) -> None:
    """Both axes of a panel. Every value has a tick, and ε stands above ρ. The measure decides the scale of heights."""
    each, measure = panel.each, panel.strokes[0].measure
    values = [each.times * value for value in each.values]
    if each is not sweeps.BOUNDARIES:
        axes.set_xscale("log")
    if each is RHOS:
        values = [rho for rho in values if rho not in (5.0, 20.0)]  # there is no room for their ε
        upper = axes.secondary_xaxis("top")
        _ticks(upper, values, [epsilon_shown(rho) for rho in values])
        upper.set_xlabel("ε at δ = 10⁻⁶", color=QUIET)
    _ticks(axes, values, [f"{value:,g}" for value in values])
    if measure not in HEIGHTS:
        axes.set_ylim(-4, 106)
    else:
        axes.set_yscale("log")
    if measure.startswith("gap"):
        axes.set_ylim(bottom=FLOOR * 0.7)
    if measure != "seconds":
        floor = FLOOR * 1.001 if measure in HEIGHTS else -math.inf
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{'≤ ' if value <= floor else ''}{value:g}%"))
    _finish(axes, panel.place, each.label, HEIGHTS.get(measure, "share"))


def _ticks(axes: Any, values: Sequence[float], words: Sequence[str]) -> None:
    axes.set_xticks(values, words)
    axes.xaxis.set_minor_locator(NullLocator())


def _finish(axes: Axes, title: str, along: str, up: str) -> None:
    axes.set_title(title, loc="left", color=INK, pad=12)
    axes.set(xlabel=along, ylabel=up)
    axes.grid(axis="y", color="#d9dee3", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
