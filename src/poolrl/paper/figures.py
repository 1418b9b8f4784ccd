"""The sweeps as tables and figures: RQ1 to RQ3, what the paper leaves open, and why `Pool.published` fails.

A report is a list of sections of text, tables and pictures. Points of a figure are means over runs. Error bars span the
middle two thirds of the runs (16% to 84%): on a logarithmic axis that says more than a standard deviation larger than
its mean. The tables have standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from poolrl.checks import FloatArray
from poolrl.colours import INK, QUIET
from poolrl.paper import sweeps
from poolrl.paper.results import Runs
from poolrl.paper.rossmann import Rossmann, autocorrelation
from poolrl.paper.sweeps import BASE, GRANULARITIES, JUDGED, NAMES, PAPERS, PLACES, PUBLISHED, RHOS, Range, Setting
from poolrl.privacy.zcdp import epsilon_shown

Rows = tuple[tuple[str, ...], ...]
Cell = Callable[[Runs, Setting], str]


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files, and its alternative text."""

    name: str
    alt: str
    figure: Figure


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it: a picture first, then text, then a table."""

    title: str
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: Rows = ()
    picture: Picture | None = field(default=None, compare=False)


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
    parts = [Section("RQ1: POOL and its baselines over ρ", (reading, "Tables: mean ± standard deviation."))]
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
        parts.append(Section(f"RQ1, {place}: gap to SAA in percent", text.get(place, ()), *_rq1_table(runs, place)))
        if place == sweeps.STORE_1:
            title = f"RQ1, {place}: the appendix's gap, cost of SAA − cost, per week"
            parts.append(Section(title, (), *_rq1_table(runs, place, _difference)))
    if others:
        alt = "The same on other demand families and on several stores"
        parts.append(Section("RQ1 beyond the paper", picture=Picture("rq1-more", alt, budgets(runs, others))))
    if source is not None:
        alt = "Autocorrelation of daily sales with peaks every seven days"
        parts.append(Section("Rossmann's weekly cycle", picture=Picture("acf", alt, weekly_cycle(source))))
    return parts


def _rq1_table(runs: Runs, place: str, cell: Cell = in_percent) -> tuple[tuple[str, ...], Rows]:
    where = PLACES[place]
    rhos = [setting.rho for setting in runs.present(RHOS.over(where(BASE)))]
    header = ("method", *(f"ρ = {rho:g} (ε = {epsilon_shown(rho)})" for rho in rhos), "ρ = ∞")
    rows = [
        (NAMES[learner], *(cell(runs, where(replace(learner, rho=rho))) for rho in (*rhos, math.inf)))
        for learner in (*JUDGED, sweeps.SOFT_GRID, sweeps.INPUT, sweeps.OUTPUT)
    ]
    for learner in (sweeps.DATA_FREE, sweeps.MIDDLE, sweeps.PARTIAL, sweeps.REPLAY):
        rows.append((NAMES[learner], *([""] * len(rhos)), cell(runs, where(learner))))
    return header, filled(rows)


def rq2_sections(runs: Runs) -> list[Section]:
    """One hyperparameter at a time."""
    learners = {NAMES[learner]: learner for learner in JUDGED}
    learners |= {f"Pool, {demand} demand": replace(BASE, data=demand) for demand in sweeps.DEMAND_LAWS[1:]}
    alt = "Relative gap against horizon, boundary, dimensions and granularity"
    parts = [Section("RQ2: hyperparameters", picture=Picture("rq2", alt, hyperparameters(runs)))]
    beyond = "The paper's gap compares with an optimum that may order beyond λ. No learner can observe that region."
    for each in sweeps.HYPERPARAMETERS:
        text = (beyond,) if each is sweeps.BOUNDARIES else ()
        parts.append(Section(f"RQ2, {each.symbol}: gap to SAA in percent", text, *_over(runs, each, learners)))
        if each is sweeps.BOUNDARIES:
            within = _over(runs, each, learners, lambda runs, setting: in_percent(runs, setting, "gap_within"))
            parts.append(Section(f"RQ2, {each.symbol}: gap to the best policy below λ in percent", (), *within))
    return parts


def rq3_sections(runs: Runs) -> list[Section]:
    """Zones against grids."""
    learners = {NAMES[learner]: learner for learner in (*JUDGED, sweeps.GRID, sweeps.SOFT_GRID, sweeps.OUTCOME_ZONES)}
    text = (
        "The grid has M cells per axis, so M² nodes at w = d = 1. Rows of the transition table that are sure to be "
        "noise-dominated are never drawn, for zones and grid alike. Both are therefore far quicker than a dense table. "
        "Times are processor seconds of one fit, geometry included. With outcome counts there are no visits to spread "
        "over nodes: that row shows the zones by themselves.",
    )
    alt = "Gap and running time of zones and grids against M"
    parts = [Section("RQ3: zones against a grid", text, picture=Picture("rq3", alt, discretisations(runs)))]

    def seconds(runs: Runs, setting: Setting) -> str:
        return _mean(runs.measured(setting, "seconds"), "{:.3f}".format, spread=False)

    cells: dict[str, Cell] = {"gap to SAA in percent": in_percent, "processor seconds of one fit": seconds}
    for place in PAPERS:
        there = {name: PLACES[place](learner) for name, learner in learners.items()}
        if runs.present(GRANULARITIES.over(PLACES[place](sweeps.GRID))):
            for title, cell in cells.items():
                parts.append(Section(f"RQ3, {place}: {title}", (), *_over(runs, GRANULARITIES, there, cell)))
    return parts


def sensitivity_sections(runs: Runs) -> list[Section]:
    """What the paper leaves open."""
    learners = {NAMES[learner]: learner for learner in (*JUDGED, sweeps.NON_PRIVATE)} | {"no data": sweeps.DATA_FREE}
    rows = (
        (name, *(in_percent(runs, move(learner)) for learner in learners.values()))
        for name, move in sweeps.OPEN_CHOICES.items()
    )
    text = (
        "The paper does not state the number of trajectories, how they were collected, which δ it uses, or what is "
        "held fixed. Our base setting: n = 10,000, orders uniform between stock and λ, δ = 0.05, H = 5, w + d = 2, "
        "M = 100, λ = 1, ρ = 1. Here each choice varies alone. *low*: orders uniform up to half of λ only; *steady*: "
        "about 60% of λ.",
    )
    alt = "Gap to the true optimum against the number of trajectories"
    why = "Shares of noise-dominated nodes, of values cut at zero and of empty rings"
    return [
        Section("What the paper does not state: gap to SAA in percent", text, ("choice", *learners), filled(rows)),
        Section("Sample size", picture=Picture("sample-size", alt, sample_sizes(runs))),
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
    return Section("Pool.published: shares in percent", (), header, tuple(rows))


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
    return [Section("HQL and FQL on their own example: cost per step of the learned policy", text, *table)]


def _over(
    runs: Runs, each: Range, learners: dict[str, Setting], cell: Cell = in_percent
) -> tuple[tuple[str, ...], Rows]:
    """Header and rows of a table: learners down, the values that were run across."""
    columns = [*zip(*(each.over(learner) for learner in learners.values()), strict=True)]
    there = [column for column in columns if runs.present(column)]
    header = ("learner", *(f"{each.symbol} = {each.shown(column[0]):,g}" for column in there))
    cells = zip(*([cell(runs, setting) for setting in column] for column in there), strict=True)
    return header, tuple((name, *row) for name, row in zip(learners, cells, strict=True)) if there else ()


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

    @property
    def name(self) -> str:
        """What the legend says."""
        return self.words or NAMES[self.setting]


POOL = Stroke(BASE, BLUE, "o")
BEST = Stroke(sweeps.SOFTENED, "#009e73", "s")
PRINTED = Stroke(PUBLISHED, "#cc79a7", "D", "--")
PERTURBED_INPUT = Stroke(sweeps.INPUT, "#e69f00", "^")
PERTURBED_OUTPUT = Stroke(sweeps.OUTPUT, "#d55e00", "v")
BEST_GRID = Stroke(sweeps.SOFT_GRID, "#56b4e9", "P")
PRINTED_GRID = Stroke(sweeps.GRID, "#56b4e9", "X", "--")
ZONES_ON_OUTCOMES = Stroke(sweeps.OUTCOME_ZONES, "#8c6d1f", "*")
WITHOUT_PRIVACY = Stroke(sweeps.NON_PRIVATE, INK, ".", ":")
WITHOUT_DATA = (Stroke(sweeps.DATA_FREE, QUIET, style="-."), Stroke(sweeps.MIDDLE, QUIET, style=(0, (1, 3))))


def budgets(runs: Runs, places: Sequence[str]) -> Figure:
    """The paper's first figure: the gap against ρ, one panel per data set, ε on the upper axis."""
    columns = min(len(places), 3)
    rows = math.ceil(len(places) / columns)
    figure, panels = _panels(5.4 * columns, 4.4 * rows + 0.5, rows, columns)
    ticks = [rho for rho in RHOS.values if rho not in (5.0, 20.0)]
    for panel, place in zip(panels, places, strict=False):
        _curves(panel, runs, (POOL, BEST, PRINTED, PERTURBED_INPUT, PERTURBED_OUTPUT), RHOS, place)
        for stroke in (replace(WITHOUT_PRIVACY, words="NonPrivate"), *WITHOUT_DATA):
            gaps = runs.measured(PLACES[place](stroke.setting), "gap")
            if len(gaps):
                height = np.maximum(100 * gaps.mean(), FLOOR)
                panel.axhline(height, color=stroke.colour, linestyle=stroke.style, linewidth=1.2, label=stroke.name)
        _log_gaps(panel)
        panel.set_xscale("log")
        upper = panel.secondary_xaxis("top")
        _ticks(panel, ticks, [f"{rho:g}" for rho in ticks])
        _ticks(upper, ticks, [epsilon_shown(rho) for rho in ticks])
        panel.set_xlabel(f"{RHOS.label}: stronger privacy to the left")
        upper.set_xlabel("ε at δ = 10⁻⁶", color=QUIET)
        panel.set_title(place, loc="left", color=INK, pad=12)
    return _with_legend(figure, panels)


def hyperparameters(runs: Runs) -> Figure:
    """The paper's second figure: H, |λ|, w + d and M, around the base setting."""
    figure, panels = _panels(10.8, 8.4, 2, 2)
    for panel, each in zip(panels, sweeps.HYPERPARAMETERS, strict=True):
        _curves(panel, runs, (POOL, BEST, PRINTED), each)
        if each is sweeps.BOUNDARIES:
            words = "Pool, gap to the best below λ"
            _curves(panel, runs, [replace(POOL, marker=".", style=":", words=words, measure="gap_within")], each)
        _log_gaps(panel)
        _values(panel, each, log=each is not sweeps.BOUNDARIES)
    return _with_legend(figure, panels)


def discretisations(runs: Runs) -> Figure:
    """The paper's third figure: zones against a grid over M, gap on the left, time on the right; both data sets."""
    figure, panels = _panels(10.8, 8.4, 2, 2)
    strokes = (POOL, BEST, PRINTED, BEST_GRID, PRINTED_GRID, ZONES_ON_OUTCOMES)
    for gap, time, place in zip(panels[::2], panels[1::2], PAPERS, strict=True):
        _curves(gap, runs, strokes, GRANULARITIES, place)
        _log_gaps(gap)
        _curves(time, runs, [replace(stroke, measure="seconds") for stroke in strokes], GRANULARITIES, place)
        time.set_yscale("log")
        _finish(time, ylabel="processor seconds of one fit")
        for panel in (gap, time):
            _values(panel, GRANULARITIES)
            panel.set_title(place, loc="left", color=INK)
    return _with_legend(figure, panels)


def sample_sizes(runs: Runs) -> Figure:
    """The gap to the true optimum against n, for three demand families."""
    figure, panels = _panels(14.4, 4.8, 1, 3)
    strokes = [replace(stroke, measure="gap_optimum") for stroke in (POOL, WITHOUT_PRIVACY, BEST, PRINTED)]
    for panel, place, demand in zip(panels, sweeps.KNOWN_OPTIMUM, sweeps.DEMAND_LAWS, strict=True):
        _curves(panel, runs, strokes, sweeps.LOG_SIZES, place)
        _log_gaps(panel, "cost above the true optimum")
        panel.set(xscale="log", xlabel=sweeps.LOG_SIZES.label)
        panel.set_title(f"{demand} demand", loc="left", color=INK)
    return _with_legend(figure, panels)


def weekly_cycle(real: Rossmann) -> Figure:
    """The autocorrelation of Store 1's daily sales: its peaks are seven days apart."""
    figure, (panel,) = _panels(7.2, 3.6, 1, 1)
    series = real.weeks[:, :, 0].ravel()
    heights = autocorrelation(series, 28)
    panel.axhline(0, color=QUIET, linewidth=0.8)
    band = 1.96 / math.sqrt(len(series))
    panel.axhspan(-band, band, color=QUIET, alpha=0.2, linewidth=0)
    panel.vlines(range(len(heights)), 0, heights, color=BLUE, linewidth=2)
    panel.plot(range(len(heights)), heights, "o", color=BLUE, markersize=4)
    panel.set_xticks(range(0, 29, 7))
    panel.set_title("Daily sales of Store 1 repeat every week", loc="left", color=INK)
    _finish(panel, xlabel="lag in days", ylabel="autocorrelation")
    return figure


def fallbacks(runs: Runs) -> Figure:
    """Why `Pool.published` fails: noise-dominated nodes, values cut at zero, rings without data."""
    figure, panels = _panels(10.8, 4.4, 1, 2)
    strokes = (
        Stroke(PUBLISHED, "#d55e00", "o", words="noise-dominated nodes (ñ ≤ E_ρ)", measure="fell_back"),
        replace(PRINTED, words="nodes with Q cut at zero, printed constants", measure="clipped"),
        Stroke(PUBLISHED, BLUE, "s", words="rings without any data", measure="empty_rings"),
    )
    for panel, each in zip(panels, (RHOS, sweeps.LOG_SIZES), strict=True):
        _curves(panel, runs, strokes, each)
        panel.set(xscale="log", ylim=(-4, 106))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        _finish(panel, xlabel=each.label, ylabel="share, synthetic data, base setting")
    return _with_legend(figure, panels)


def _panels(width: float, height: float, rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [*figure.subplots(rows, columns, squeeze=False).ravel()]


def _curves(panel: Axes, runs: Runs, strokes: Iterable[Stroke], each: Range, place: str = sweeps.SYNTHETIC) -> None:
    """Means over seeds with the middle two thirds of them, against one field of the settings."""
    sizes: dict[str, Any] = {"linewidth": 1.8, "markersize": 5, "elinewidth": 0.8, "capsize": 2}
    for stroke in strokes:
        there = runs.present(each.over(PLACES[place](stroke.setting)))
        if not there:
            continue
        times = 1.0 if stroke.measure == "seconds" else 100.0  # the others are shares, shown in percent
        samples = [times * runs.measured(setting, stroke.measure) for setting in there]
        shown = np.array([[sample.mean(), *np.quantile(sample, (0.16, 0.84))] for sample in samples]).T
        means, low, high = np.maximum(shown, FLOOR) if stroke.measure.startswith("gap") else shown
        bars = np.maximum([means - low, high - means], 0.0)  # a mean may lie outside when one run is far off
        look: dict[str, Any] = {"color": stroke.colour, "marker": stroke.marker, "linestyle": stroke.style}
        values = [each.shown(setting) for setting in there]
        panel.errorbar(values, means, yerr=bars, label=stroke.name, **look, **sizes)


def _values(panel: Axes, each: Range, *, log: bool = True) -> None:
    """A tick at every value of the range."""
    if log:
        panel.set_xscale("log")
    shown = [each.times * value for value in each.values]
    _ticks(panel, shown, [f"{value:g}" for value in shown])
    panel.set_xlabel(each.label)


def _ticks(axis: Any, values: Sequence[float], words: Sequence[str]) -> None:
    axis.set_xticks(values, words)
    axis.xaxis.set_minor_locator(NullLocator())


def _log_gaps(panel: Axes, label: str = "cost above SAA") -> None:
    panel.set_yscale("log")
    panel.set_ylim(bottom=FLOOR * 0.7)
    panel.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"≤ {value:g}%" if value <= FLOOR * 1.001 else f"{value:g}%")
    )
    _finish(panel, ylabel=label)


def _finish(panel: Axes, **words: str) -> None:
    panel.set(**words)
    panel.grid(axis="y", color="#d9dee3", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _with_legend(figure: Figure, panels: Iterable[Axes]) -> Figure:
    """One legend for all panels, below them; a panel without data is not shown."""
    entries: dict[str, Any] = {}
    for panel in panels:
        panel.set_visible(panel.has_data())
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    columns = 3 if len(entries) > 4 and figure.get_figwidth() > 8 else 2
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)
    return figure
