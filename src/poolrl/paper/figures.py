"""The paper's three figures from the results, and four that it leaves out.

Points are means over runs. Error bars span the middle two thirds of the runs (16% to 84%): on a logarithmic axis that
says more than a standard deviation larger than its mean. The tables have standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
from poolrl.paper.sweeps import BASE, GRANULARITIES, NAMES, NON_PRIVATE, PLACES, PUBLISHED, RHOS, Range, Setting
from poolrl.privacy.zcdp import epsilon_shown

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
WITHOUT_PRIVACY = Stroke(NON_PRIVATE, INK, ".", ":")
WITHOUT_DATA = (Stroke(sweeps.DATA_FREE, QUIET, style="-."), Stroke(sweeps.MIDDLE, QUIET, style=(0, (1, 3))))


def budgets(runs: Runs, places: Sequence[str]) -> Figure:
    """The paper's first figure: the gap against ρ, one panel per data set, ε on the upper axis."""
    columns = min(len(places), 3)
    rows = math.ceil(len(places) / columns)
    figure, panels = _panels(5.4 * columns, 4.4 * rows + 0.5, rows, columns)
    for panel, place in zip(panels, places, strict=False):
        _budget_panel(panel, runs, place)
    return _with_legend(figure, panels)


def hyperparameters(runs: Runs) -> Figure:
    """The paper's second figure: H, |λ|, w + d and M, around the base setting."""
    figure, panels = _panels(10.8, 8.4, 2, 2)
    for panel, each in zip(panels, sweeps.HYPERPARAMETERS, strict=True):
        for stroke in (POOL, BEST, PRINTED):
            _curve(panel, runs, stroke, each)
        if each is sweeps.BOUNDARIES:
            within = replace(POOL, marker=".", style=":", words="Pool, gap to the best below λ")
            _curve(panel, runs, within, each, measure="gap_within")
        _log_gaps(panel)
        _ticks(panel, each, log=each is not sweeps.BOUNDARIES)
    return _with_legend(figure, panels)


def discretisations(runs: Runs) -> Figure:
    """The paper's third figure: zones against a grid over M, gap on the left, time on the right; both data sets."""
    figure, panels = _panels(10.8, 8.4, 2, 2)
    for gap, time, place in zip(panels[::2], panels[1::2], sweeps.PAPERS, strict=True):
        for stroke in (POOL, BEST, PRINTED, BEST_GRID, PRINTED_GRID, ZONES_ON_OUTCOMES):
            _curve(gap, runs, stroke, GRANULARITIES, place)
            _curve(time, runs, stroke, GRANULARITIES, place, measure="seconds")
        _log_gaps(gap)
        time.set_yscale("log")
        _finish(time, ylabel="processor seconds of one fit")
        for panel in (gap, time):
            _ticks(panel, GRANULARITIES)
            panel.set_title(place, loc="left", color=INK)
    return _with_legend(figure, panels)


def sample_sizes(runs: Runs) -> Figure:
    """The gap to the true optimum against n, for three demand families."""
    figure, panels = _panels(14.4, 4.8, 1, 3)
    for panel, place, demand in zip(panels, sweeps.KNOWN_OPTIMUM, sweeps.DEMAND_LAWS, strict=True):
        for stroke in (POOL, WITHOUT_PRIVACY, BEST, PRINTED):
            _curve(panel, runs, stroke, sweeps.LOG_SIZES, place, measure="gap_optimum")
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
    shares = {
        "fell_back": Stroke(PUBLISHED, "#d55e00", "o", words="noise-dominated nodes (ñ ≤ E_ρ)"),
        "clipped": replace(PRINTED, words="nodes with Q cut at zero, printed constants"),
        "empty_rings": Stroke(PUBLISHED, BLUE, "s", words="rings without any data"),
    }
    for panel, each in zip(panels, (RHOS, sweeps.LOG_SIZES), strict=True):
        for measure, stroke in shares.items():
            _curve(panel, runs, stroke, each, measure=measure)
        panel.set(xscale="log", ylim=(-4, 106))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        _finish(panel, xlabel=each.label, ylabel="share, synthetic data, base setting")
    return _with_legend(figure, panels)


def _panels(width: float, height: float, rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [*figure.subplots(rows, columns, squeeze=False).ravel()]


def _budget_panel(panel: Axes, runs: Runs, place: str) -> None:
    for stroke in (POOL, BEST, PRINTED, PERTURBED_INPUT, PERTURBED_OUTPUT):
        _curve(panel, runs, stroke, RHOS, place)
    for stroke in (replace(WITHOUT_PRIVACY, words="NonPrivate"), *WITHOUT_DATA):
        gaps = runs.measured(PLACES[place](stroke.setting), "gap")
        if len(gaps):
            height = _floored(100 * gaps.mean())
            panel.axhline(height, color=stroke.colour, linestyle=stroke.style, linewidth=1.2, label=stroke.name)
    _log_gaps(panel)
    panel.set_xscale("log")
    ticks = [rho for rho in RHOS.values if rho not in (5.0, 20.0)]
    upper = panel.secondary_xaxis("top")
    for axis, labels in ((panel, [f"{rho:g}" for rho in ticks]), (upper, [epsilon_shown(rho) for rho in ticks])):
        axis.set_xticks(ticks, labels)
        axis.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel(f"{RHOS.label}: stronger privacy to the left")
    upper.set_xlabel("ε at δ = 10⁻⁶", color=QUIET)
    panel.set_title(place, loc="left", color=INK, pad=12)


def _curve(
    panel: Axes, runs: Runs, stroke: Stroke, each: Range, place: str = sweeps.SYNTHETIC, *, measure: str = "gap"
) -> None:
    """The mean of a measure over seeds with the middle two thirds of them, against one field of the settings."""
    there = runs.present(each.over(PLACES[place](stroke.setting)))
    if not there:
        return
    times = 1.0 if measure == "seconds" else 100.0  # the others are shares, shown in percent
    samples = [times * runs.measured(setting, measure) for setting in there]
    means = np.array([sample.mean() for sample in samples])
    low, high = np.array([np.quantile(sample, (0.16, 0.84)) for sample in samples]).T
    if measure.startswith("gap"):
        means, low, high = _floored(means), _floored(low), _floored(high)
    bars = np.maximum([means - low, high - means], 0.0)  # a mean may lie outside when one run is far off
    look: dict[str, Any] = {
        "color": stroke.colour,
        "marker": stroke.marker,
        "linestyle": stroke.style,
        "label": stroke.name,
    }
    sizes: dict[str, Any] = {"linewidth": 1.8, "markersize": 5, "elinewidth": 0.8, "capsize": 2}
    panel.errorbar([each.shown(setting) for setting in there], means, yerr=bars, **look, **sizes)


def _ticks(panel: Axes, each: Range, *, log: bool = True) -> None:
    """A tick at every value of the range."""
    if log:
        panel.set_xscale("log")
    shown = [each.times * value for value in each.values]
    panel.set_xticks(shown, [f"{value:g}" for value in shown])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel(each.label)


def _floored(values: FloatArray | float) -> Any:
    return np.maximum(values, FLOOR)


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
