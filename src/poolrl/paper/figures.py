"""The paper's three figures from the results, and four that it leaves out.

Points are means over runs; error bars span the middle two thirds of the runs (16% to 84%), which on a logarithmic axis
says more than a standard deviation larger than its mean. The tables have standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from poolrl.checks import FloatArray
from poolrl.paper import sweeps
from poolrl.paper.claims import PLACES
from poolrl.paper.rossmann import Rossmann, autocorrelation
from poolrl.paper.statistics import Table
from poolrl.paper.sweeps import BASE, GRID, PUBLISHED, SOFT_GRID, SOFTENED, Setting
from poolrl.privacy.zcdp import epsilon

INK, QUIET = "#1f2933", "#7b8794"
# A logarithmic axis ends here: gaps below it, and those that luck made negative, lie on the floor.
FLOOR = 1e-3


@dataclass(frozen=True)
class Line:
    """How a learner is drawn, always the same."""

    name: str
    setting: Setting
    colour: str
    marker: str
    style: str = "-"


POOL = Line("Pool (default)", BASE, "#0072b2", "o")
BEST = Line("Pool.published, tuned scale of Γ", SOFTENED, "#009e73", "s")
PRINTED = Line("Pool.published, printed constants", PUBLISHED, "#cc79a7", "D", "--")
INPUT = Line("input perturbation", replace(BASE, method="input"), "#e69f00", "^")
OUTPUT = Line("output perturbation", replace(BASE, method="output"), "#d55e00", "v")
SOFT_CELLS = Line("grid (DP-APVI), tuned scale of Γ", SOFT_GRID, "#56b4e9", "P")
CELLS = Line("grid (DP-APVI), printed constants", GRID, "#56b4e9", "X", "--")
OUTCOME_ZONES = Line("zones on outcome counts", replace(BASE, method="outcome zones"), "#8c6d1f", "*")


def budgets(table: Table, places: Sequence[str]) -> Figure:
    """The paper's first figure: the gap against ρ, one panel per data set, ε on the upper axis."""
    columns = min(len(places), 3)
    rows = math.ceil(len(places) / columns)
    figure = Figure(figsize=(5.4 * columns, 4.4 * rows + 0.5), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for panel in panels[len(places) :]:
        panel.set_visible(False)
    for panel, place in zip(panels, places, strict=False):
        _budget_panel(panel, table, place)
    _legend(figure, panels[: len(places)])
    return figure


def hyperparameters(table: Table) -> Figure:
    """The paper's second figure: H, |λ|, w + d and M, around the base setting."""
    figure = Figure(figsize=(10.8, 8.4), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    lines = (POOL, BEST, PRINTED)
    views: list[tuple[str, Sequence[float], str, Callable[[float], float]]] = [
        ("horizon", sweeps.HORIZONS, "horizon H", float),
        ("boundary", sweeps.BOUNDARIES, "boundary |λ|", float),
        ("products", sweeps.PRODUCTS, "dimensions w + d", lambda products: 2 * products),
        ("granularity", sweeps.GRANULARITIES, "granularity M", float),
    ]
    for panel, (field, values, label, shown) in zip(panels, views, strict=True):
        for line in lines:
            settings = [replace(line.setting, **{field: value}) for value in values]  # type: ignore[arg-type]
            _curve(panel, table, line, settings, field, shown=shown)
        if field == "boundary":
            within = Line("Pool, gap to the best below λ", BASE, POOL.colour, ".", ":")
            settings = [replace(BASE, boundary=value) for value in values]
            _curve(panel, table, within, settings, field, measure="gap_within")
        _log_gaps(panel)
        if field != "boundary":
            panel.set_xscale("log")
        panel.set_xticks([shown(value) for value in values], [f"{shown(value):g}" for value in values])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlabel(label)
    _legend(figure, panels)
    return figure


def discretisations(table: Table) -> Figure:
    """The paper's third figure: zones against a grid over M, gap on the left, time on the right; both data sets."""
    figure = Figure(figsize=(10.8, 8.4), layout="constrained")
    panels = figure.subplots(2, 2)
    for row, place in zip(panels, ("synthetic", "Rossmann, Store 1"), strict=True):
        for line in (POOL, BEST, PRINTED, SOFT_CELLS, CELLS, OUTCOME_ZONES):
            settings = [PLACES[place](replace(line.setting, granularity=m)) for m in sweeps.GRANULARITIES]
            _curve(row[0], table, line, settings, "granularity")
            _curve(row[1], table, line, settings, "granularity", measure="seconds", times=1.0)
        _log_gaps(row[0])
        row[1].set_yscale("log")
        for panel in row:
            panel.set_xscale("log")
            panel.set_xticks(sweeps.GRANULARITIES, [str(m) for m in sweeps.GRANULARITIES])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_xlabel("granularity M")
            panel.set_title(place, loc="left", color=INK)
        row[1].set_ylabel("processor seconds of one fit")
        _finish(row[1])
    _legend(figure, panels.ravel())
    return figure


def sample_sizes(table: Table) -> Figure:
    """The gap to the true optimum against n, for three demand families."""
    figure = Figure(figsize=(14.4, 4.8), layout="constrained")
    panels = figure.subplots(1, 3)
    without = Line("NonPrivate: Pool(rho=inf)", replace(BASE, rho=math.inf), INK, ".", ":")
    for panel, family in zip(panels, sweeps.FAMILIES, strict=True):
        for line in (POOL, without, BEST, PRINTED):
            settings = [replace(line.setting, data=family, trajectories=n) for n in sweeps.TRAJECTORIES]
            _curve(panel, table, line, settings, "trajectories", measure="gap_optimum")
        _log_gaps(panel, "cost above the true optimum")
        panel.set_xscale("log")
        panel.set_xlabel("trajectories n")
        panel.set_title(f"{family} demand", loc="left", color=INK)
    _legend(figure, panels)
    return figure


def weekly_cycle(real: Rossmann) -> Figure:
    """The autocorrelation of Store 1's daily sales: its peaks are seven days apart."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    panel = figure.subplots()
    series = real.weeks[:, :, 0].ravel()
    found = autocorrelation(series, 28)
    panel.axhline(0, color=QUIET, linewidth=0.8)
    band = 1.96 / math.sqrt(len(series))
    panel.axhspan(-band, band, color=QUIET, alpha=0.2, linewidth=0)
    panel.vlines(range(len(found)), 0, found, color=POOL.colour, linewidth=2)
    panel.plot(range(len(found)), found, "o", color=POOL.colour, markersize=4)
    panel.set_xticks(range(0, 29, 7))
    panel.set_xlabel("lag in days")
    panel.set_ylabel("autocorrelation")
    panel.set_title("Daily sales of Store 1 repeat every week", loc="left", color=INK)
    _finish(panel)
    return figure


def fallbacks(table: Table) -> Figure:
    """Why `Pool.published` fails: nodes lost to noise, values cut at zero, rings without data."""
    figure = Figure(figsize=(10.8, 4.4), layout="constrained")
    panels = figure.subplots(1, 2)
    shares = (
        Line("nodes that drown in noise (ñ ≤ E_ρ)", PUBLISHED, "#d55e00", "o"),
        Line("nodes with Q cut at zero, printed constants", PUBLISHED, "#cc79a7", "D", "--"),
        Line("rings without any data", PUBLISHED, "#0072b2", "s"),
    )
    measures = ("fell_back", "clipped", "empty_rings")
    views: list[tuple[str, Sequence[float], str]] = [
        ("rho", sweeps.RHOS, "privacy budget ρ (zCDP)"),
        ("trajectories", sweeps.TRAJECTORIES, "trajectories n"),
    ]
    for panel, (field, values, label) in zip(panels, views, strict=True):
        for line, measure in zip(shares, measures, strict=True):
            settings = [replace(line.setting, **{field: value}) for value in values]  # type: ignore[arg-type]
            _curve(panel, table, line, settings, field, measure=measure)
        panel.set_xscale("log")
        panel.set_ylim(-4, 106)
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        panel.set_xlabel(label)
        panel.set_ylabel("share, synthetic data, base setting")
        _finish(panel)
    _legend(figure, panels)
    return figure


def _budget_panel(panel: Axes, table: Table, place: str) -> None:
    where = PLACES[place]
    for line in (POOL, BEST, PRINTED, INPUT, OUTPUT):
        _curve(panel, table, line, [where(replace(line.setting, rho=rho)) for rho in sweeps.RHOS], "rho")
    references = (
        ("NonPrivate", replace(BASE, rho=math.inf), INK, ":"),
        ("no data: plan on the public bounds", replace(BASE, method="data-free", rho=math.inf), QUIET, "-."),
        ("no data: order up to the middle", replace(BASE, method="middle", rho=math.inf), QUIET, (0, (1, 3))),
    )
    for name, setting, colour, style in references:
        gaps = table.paired([where(setting)])
        if len(gaps):
            panel.axhline(_floored(100 * gaps.mean()), color=colour, linestyle=style, linewidth=1.2, label=name)
    _log_gaps(panel)
    panel.set_xscale("log")
    shown = [rho for rho in sweeps.RHOS if rho not in (5.0, 20.0)]
    panel.set_xticks(shown, [f"{rho:g}" for rho in shown])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel("privacy budget ρ (zCDP): stronger privacy to the left")
    upper = panel.secondary_xaxis("top")
    upper.set_xticks(shown, [f"{epsilon(rho, 1e-6):.2g}" for rho in shown])
    upper.xaxis.set_minor_locator(NullLocator())
    upper.set_xlabel("ε at δ = 10⁻⁶", color=QUIET)
    panel.set_title(place, loc="left", color=INK, pad=12)


def _curve(
    panel: Axes,
    table: Table,
    line: Line,
    settings: Sequence[Setting],
    field: str,
    *,
    shown: Callable[[float], float] = float,
    measure: str = "gap",
    times: float = 100.0,
) -> None:
    """The mean of a measure over seeds with the middle two thirds of them, against a field of the settings."""
    there = table.present(settings)
    if not there:
        return
    samples = [times * np.array([getattr(run, measure) for run in table.runs(setting).values()]) for setting in there]
    means = np.array([sample.mean() for sample in samples])
    low, high = np.array([np.quantile(sample, (0.16, 0.84)) for sample in samples]).T
    if measure.startswith("gap"):
        means, low, high = _floored(means), _floored(low), _floored(high)
    bars = np.maximum([means - low, high - means], 0.0)  # a mean may lie outside when one run is far off
    panel.errorbar(
        [shown(getattr(setting, field)) for setting in there],
        means,
        yerr=bars,
        color=line.colour,
        marker=line.marker,
        linestyle=line.style,
        linewidth=1.8,
        markersize=5,
        elinewidth=0.8,
        capsize=2,
        label=line.name,
    )


def _floored(values: FloatArray | float) -> Any:
    return np.maximum(values, FLOOR)


def _log_gaps(panel: Axes, label: str = "cost above SAA") -> None:
    panel.set_yscale("log")
    panel.set_ylim(bottom=FLOOR * 0.7)
    panel.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"≤ {value:g}%" if value <= FLOOR * 1.001 else f"{value:g}%")
    )
    panel.set_ylabel(label)
    _finish(panel)


def _finish(panel: Axes) -> None:
    panel.grid(axis="y", color="#d9dee3", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One legend for all panels, below them; a panel without data is not shown."""
    entries: dict[str, Any] = {}
    for panel in panels:
        panel.set_visible(panel.has_data())
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    columns = 3 if len(entries) > 4 and figure.get_figwidth() > 8 else 2
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)
