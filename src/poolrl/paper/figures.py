"""The sweeps as tables and figures: RQ1 to RQ3, what the paper leaves open, and why `Pool.published` fails.

A report is a list of sections of text, tables and pictures. Points of a figure are means over runs. Error bars span the
middle two thirds of the runs (16% to 84%): on a logarithmic axis that says more than a standard deviation larger than
its mean. The tables have standard deviations.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.mlab import detrend_mean
from matplotlib.ticker import FuncFormatter, NullLocator

from poolrl.checks import FloatArray
from poolrl.colours import INK, QUIET
from poolrl.paper import sweeps
from poolrl.paper.results import Runs
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import BASE, GRANULARITIES, JUDGED, NAMES, PAPERS, PLACES, PUBLISHED, RHOS, Range, Setting
from poolrl.privacy.zcdp import epsilon_shown

Rows = tuple[tuple[str, ...], ...]
Cell = Callable[[Runs, Setting], str]
BUDGETS = replace(RHOS, values=(*RHOS.values, math.inf))
IN_RQ1 = (
    *(*JUDGED, sweeps.SOFT_GRID, sweeps.INPUT, sweeps.OUTPUT),
    *(sweeps.DATA_FREE, sweeps.MIDDLE, sweeps.PARTIAL, sweeps.REPLAY),
)


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
    rows: Rows = ()
    picture: Picture | None = field(default=None, compare=False)
    detail: bool = False


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


def _difference(runs: Runs, setting: Setting) -> str:
    """Mean ± standard deviation of c* − c, the appendix's gap. Only luck makes it positive."""
    return _mean(runs.measured(setting, "best_cost") - runs.measured(setting, "cost"), "{:,.0f}".format)


def filled(rows: Iterable[tuple[str, ...]]) -> Rows:
    """Without the rows that have no cell but their name."""
    return tuple(row for row in rows if any(row[1:]))


def rq1_sections(runs: Runs, source: Rossmann | None) -> list[Section]:
    """POOL against IP and OP over ρ. The picture of the paper's data is in the summary."""
    places = [place for place, move in PLACES.items() if runs.of(move(BASE))]
    if not places:
        return []
    others = [place for place in places if place not in PAPERS]
    reading = "The picture is at the top. Points are means over runs; bars span the middle two thirds of them."
    parts = [Section("RQ1: POOL and its baselines over ρ", (reading,))]
    text = {
        sweeps.SYNTHETIC: (
            "D ~ U[0, 100] as in the paper. The plan on the public bounds alone is exact here, because the public "
            "prior is uniform too. On this data set no learner can gain anything from the log. The other families "
            "show what learning gives.",
        ),
        sweeps.STORE_1: (
            "66 training weeks, 67 test weeks. The runs differ in costs, in the logged orders and in noise.",
        ),
    }
    for place in places:
        learners = {NAMES[learner]: PLACES[place](learner) for learner in IN_RQ1}
        table = _over(runs, BUDGETS, learners)
        parts.append(Section(f"RQ1, {place}: gap to SAA in percent", text.get(place, ()), *table, detail=True))
        if place == sweeps.STORE_1:
            title = f"RQ1, {place}: the appendix's gap, cost of SAA − cost, per week"
            parts.append(Section(title, (), *_over(runs, BUDGETS, learners, _difference), detail=True))
    if others:
        alt = "The same on other demand families and on several stores"
        more = Picture("rq1-more", alt, budgets(runs, others))
        parts.append(Section("RQ1 beyond the paper", picture=more, detail=True))
    if source is not None:
        alt = "Autocorrelation of daily sales with peaks every seven days"
        parts.append(Section("Rossmann's weekly cycle", picture=Picture("acf", alt, weekly_cycle(source))))
    return parts


def rq2_sections(runs: Runs) -> list[Section]:
    """One hyperparameter at a time."""
    learners = {NAMES[learner]: learner for learner in JUDGED}
    learners |= {f"Pool, {demand} demand": replace(BASE, data=demand) for demand in sweeps.DEMAND_LAWS[1:]}
    # The paper's second figure: H, |λ|, w + d and M, around the base setting.
    strokes = (POOL, BEST, PRINTED)
    below = replace(POOL, marker=".", style=":", words="Pool, gap to the best below λ", measure="gap_within")
    panels = [
        Panel((*strokes, below) if each is sweeps.BOUNDARIES else strokes, each) for each in sweeps.HYPERPARAMETERS
    ]
    alt = "Relative gap against horizon, boundary, dimensions and granularity"
    beyond = "The paper's gap compares with an optimum that may order beyond λ. No learner can observe that region."
    parts = [Section("RQ2: hyperparameters", (beyond,), picture=Picture("rq2", alt, _draw(runs, panels, 2)))]
    for each in sweeps.HYPERPARAMETERS:
        title = f"RQ2, {each.symbol}: gap to SAA in percent"
        parts.append(Section(title, (), *_over(runs, each, learners), detail=True))
        if each is sweeps.BOUNDARIES:
            within = _over(runs, each, learners, lambda runs, setting: in_percent(runs, setting, "gap_within"))
            title = f"RQ2, {each.symbol}: gap to the best policy below λ in percent"
            parts.append(Section(title, (), *within, detail=True))
    return parts


def rq3_sections(runs: Runs) -> list[Section]:
    """Zones against grids."""
    learners = {NAMES[learner]: learner for learner in (*JUDGED, sweeps.GRID, sweeps.SOFT_GRID, sweeps.OUTCOME_ZONES)}
    text = (
        "The grid has M cells per axis, so M² nodes at w = d = 1. Rows of the transition table that are sure to be "
        "noise-dominated are never drawn, for zones and grid alike. Both are therefore far quicker than a dense table. "
        "Times are processor seconds of one fit; geometry is included, and timed once for fits that share it. With "
        "outcome counts there are no visits to spread over nodes: that row shows the zones by themselves.",
    )
    # The paper's third figure: gap on the left, time on the right; both data sets.
    panels = [
        Panel([replace(stroke, measure=measure) for stroke in DISCRETISATIONS], GRANULARITIES, place)
        for place in PAPERS
        for measure in ("gap", "seconds")
    ]
    alt = "Gap and running time of zones and grids against M"
    parts = [Section("RQ3: zones against a grid", text, picture=Picture("rq3", alt, _draw(runs, panels, 2)))]

    def seconds(runs: Runs, setting: Setting) -> str:
        return _mean(runs.measured(setting, "seconds"), "{:.3f}".format, spread=False)

    cells: dict[str, Cell] = {"gap to SAA in percent": in_percent, "processor seconds of one fit": seconds}
    for place in PAPERS:
        there = {name: PLACES[place](learner) for name, learner in learners.items()}
        if runs.present(GRANULARITIES.over(PLACES[place](sweeps.GRID))):
            for title, cell in cells.items():
                table = _over(runs, GRANULARITIES, there, cell)
                parts.append(Section(f"RQ3, {place}: {title}", (), *table, detail=True))
    return parts


def sensitivity_sections(runs: Runs) -> list[Section]:
    """What the paper leaves open."""
    learners = {NAMES[learner]: learner for learner in (*JUDGED, sweeps.NON_PRIVATE)} | {"no data": sweeps.DATA_FREE}
    rows = (
        (name, *(in_percent(runs, move(learner), spread=False) for learner in learners.values()))
        for name, move in sweeps.OPEN_CHOICES.items()
    )
    text = (
        "The paper does not state the number of trajectories, how they were collected, which δ it uses, or what is "
        "held fixed. Our base setting: n = 10,000, orders uniform between stock and λ, δ = 0.05, H = 5, w + d = 2, "
        "M = 100, λ = 1, ρ = 1. Here each choice varies alone. *low*: orders uniform up to half of λ only; *steady*: "
        "about 60% of λ.",
    )
    strokes = [replace(stroke, measure="gap_optimum") for stroke in (POOL, WITHOUT_PRIVACY, BEST, PRINTED)]
    panels = [Panel(strokes, sweeps.LOG_SIZES, place) for place in sweeps.KNOWN_OPTIMUM]
    alt = "Gap to the true optimum against the number of trajectories"
    why = "Shares of noise-dominated nodes, of values cut at zero and of empty rings"
    return [
        Section("What the paper does not state", text),
        Section("Open choices: gap to SAA in percent", (), ("choice", *learners), filled(rows), detail=True),
        Section("Sample size", picture=Picture("sample-size", alt, _draw(runs, panels, 3))),
        Section("Why Pool.published fails", _why_text(runs), picture=Picture("why", why, fallbacks(runs))),
        _why_table(runs),
    ]


def _why_text(runs: Runs) -> tuple[str, ...]:
    if not runs.of(PUBLISHED):
        return ()
    fell, cut = (100 * runs.measured(PUBLISHED, name).mean() for name in ("fell_back", "clipped"))
    return (
        f"At the base setting {fell:.0f}% of the nodes are noise-dominated. With the printed constants {cut:.0f}% of "
        "the values are cut at zero. Where every value is zero, the policy orders nothing, whatever ρ, M, λ or n: its "
        "gap is that of an empty shelf. Softening Γ brings back the values of visited nodes. But visit counts spread n "
        "trajectories over M(w + d) nodes, so a larger M leaves fewer visits per node, and a larger share of the nodes "
        "is noise-dominated.",
    )


def _why_table(runs: Runs) -> Section:
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
    return Section("Pool.published: shares in percent", (), header, tuple(rows), detail=True)


def q_learning_sections(runs: Runs) -> list[Section]:
    """Gong and Simchi-Levi's example."""

    def per_step(runs: Runs, setting: Setting) -> str:
        return _mean(runs.measured(setting, "cost") / setting.horizon, "{:.4f}".format)

    learners = (sweeps.HQL, sweeps.FQL, sweeps.EXAMPLE, sweeps.PRIVATE_EXAMPLE)
    table = _over(runs, sweeps.EPISODES, {NAMES[learner]: learner for learner in learners}, per_step)
    text = (
        "Backlog, D_h ~ (10 − h)/2 + U[0, 1], holding 2, shortage 10, levels on a grid of 1/20 (Gong and Simchi-Levi, "
        "arXiv 2007.00080). The best grid level is 0.85 above the least demand and costs 0.835 per step; off the grid "
        "it is 0.833.",
    )
    title = "HQL and FQL on their own example: cost per step of the learned policy"
    return [Section(title, text, *table, detail=True)]


def _over(
    runs: Runs, each: Range, learners: dict[str, Setting], cell: Cell = in_percent
) -> tuple[tuple[str, ...], Rows]:
    """Header and rows of a table: learners down, the values that were run across."""
    columns = zip(*(each.over(learner) for learner in learners.values()), strict=True)
    there = [column for column in columns if runs.present(column)]
    header = ("learner", *(_value_in_words(each, column[0]) for column in there))
    rows = zip(learners, zip(*there, strict=True), strict=False)  # no rows if nothing was run
    return header, filled((name, *(cell(runs, setting) for setting in settings)) for name, settings in rows)


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
