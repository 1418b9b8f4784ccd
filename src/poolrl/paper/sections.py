"""A report is a list of sections of text, tables and pictures: their types, and the sections of the sweeps.

RQ1 to RQ3, what the paper leaves open, and why `Pool.published` fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from matplotlib.figure import Figure

from poolrl.checks import FloatArray
from poolrl.paper import figures, sweeps
from poolrl.paper.results import Runs
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import BASE, GRANULARITIES, JUDGED, NAMES, PAPERS, PLACES, PUBLISHED, Range, Setting
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


def _seconds(runs: Runs, setting: Setting) -> str:
    """Mean processor seconds."""
    return _mean(runs.measured(setting, "seconds"), "{:.3f}".format, spread=False)


def _per_step(runs: Runs, setting: Setting) -> str:
    """Cost per step, mean ± standard deviation."""
    return _mean(runs.measured(setting, "cost") / setting.horizon, "{:.4f}".format)


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
        parts.append(Section("RQ1 beyond the paper", picture=Picture("rq1-more", alt, figures.budgets(runs, others))))
    if source is not None:
        alt = "Autocorrelation of daily sales with peaks every seven days"
        parts.append(Section("Rossmann's weekly cycle", picture=Picture("acf", alt, figures.weekly_cycle(source))))
    return parts


def _rq1_table(runs: Runs, place: str, cell: Cell = in_percent) -> tuple[tuple[str, ...], Rows]:
    where = PLACES[place]
    rhos = [setting.rho for setting in runs.present(sweeps.RHOS.over(where(BASE)))]
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
    parts = [Section("RQ2: hyperparameters", picture=Picture("rq2", alt, figures.hyperparameters(runs)))]
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
    parts = [Section("RQ3: zones against a grid", text, picture=Picture("rq3", alt, figures.discretisations(runs)))]
    cells: dict[str, Cell] = {"gap to SAA in percent": in_percent, "processor seconds of one fit": _seconds}
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
        Section("Sample size", picture=Picture("sample-size", alt, figures.sample_sizes(runs))),
        Section("Why Pool.published fails", _why_text(runs), picture=Picture("why", why, figures.fallbacks(runs))),
        _why_table(runs),
    ]


def _why_text(runs: Runs) -> tuple[str, ...]:
    if not runs.of(PUBLISHED):
        return ()
    fell, cut = (100 * runs.measured(PUBLISHED, name).mean() for name in ("fell_back", "clipped"))
    return (
        f"At the base setting {fell:.0f}% of the nodes are noise-dominated. With the printed constants {cut:.0f}% of "
        "the values are cut at zero. Where every value is zero the policy orders nothing, whatever ρ, M, λ or n: its "
        "gap is that of an empty shelf. Softening Γ brings back the values of visited nodes. But visit counts spread n "
        "trajectories over M(w + d) nodes, so a larger M leaves fewer visits per node, and a larger share of the nodes "
        "is noise-dominated.",
    )


def _why_table(runs: Runs) -> Section:
    settings = {f"Store 1, ρ = {setting.rho:g}": setting for setting in sweeps.RHOS.over(sweeps.real(PUBLISHED))}
    for each in (sweeps.PRODUCT_COUNTS, GRANULARITIES, sweeps.RHOS):
        settings = {f"synthetic, {each.symbol} = {each.shown(s):g}": s for s in each.over(PUBLISHED)} | settings
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
    learners = (sweeps.HQL, sweeps.FQL, sweeps.EXAMPLE, sweeps.PRIVATE_EXAMPLE)
    table = _over(runs, sweeps.EPISODES, {NAMES[learner]: learner for learner in learners}, _per_step)
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
