"""The sweeps as tables and figures: RQ1 to RQ3, what the paper leaves open, and why `Pool.published` fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from poolrl.paper import figures, sweeps
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.runs import Runs
from poolrl.paper.sections import Picture, Section, difference, in_percent, per_step, seconds
from poolrl.paper.sweeps import BASE, GRANULARITIES, JUDGED, NAMES, PAPERS, PLACES, PUBLISHED, Range, Setting
from poolrl.privacy.zcdp import epsilon_shown

Cell = Callable[[Runs, Setting], str]


def rq1_sections(runs: Runs, source: Rossmann | None) -> list[Section]:
    """POOL against IP and OP over ρ. The picture of the paper's data is in the summary."""
    places = [place for place, move in PLACES.items() if runs.of(move(BASE))]
    if not places:
        return []
    others = [place for place in places if place not in PAPERS]
    reading = "The picture is at the top. Points are means over runs; bars span the middle two thirds of them."
    found = [Section("RQ1: POOL and its baselines over ρ", (reading, "Tables: mean ± standard deviation."))]
    for place in places:
        found.append(Section(f"RQ1, {place}: gap to SAA in percent", _rq1_text(place), *_rq1_table(runs, place)))
        if place == sweeps.STORE_1:
            title = f"RQ1, {place}: the appendix's gap, cost of SAA − cost, per week"
            found.append(Section(title, (), *_rq1_table(runs, place, difference)))
    if others:
        alt = "The same on other demand families and on several stores"
        found.append(Section("RQ1 beyond the paper", picture=Picture("rq1-more", alt, figures.budgets(runs, others))))
    if source is not None:
        alt = "Autocorrelation of daily sales with peaks every seven days"
        found.append(Section("Rossmann's weekly cycle", picture=Picture("acf", alt, figures.weekly_cycle(source))))
    return found


def rq2_sections(runs: Runs) -> list[Section]:
    """One hyperparameter at a time."""
    learners = {NAMES[learner]: learner for learner in JUDGED}
    learners |= {f"Pool, {demand} demand": replace(BASE, data=demand) for demand in sweeps.DEMAND_LAWS[1:]}
    alt = "Relative gap against horizon, boundary, dimensions and granularity"
    found = [Section("RQ2: hyperparameters", picture=Picture("rq2", alt, figures.hyperparameters(runs)))]
    for each in sweeps.HYPERPARAMETERS:
        title, table = f"RQ2, {each.symbol}: gap to SAA in percent", _over(runs, each, learners)
        if each is not sweeps.BOUNDARIES:
            found.append(Section(title, (), *table))
            continue
        text = (
            "The paper's gap compares with an optimum that may order beyond λ. No learner can observe that region.",
        )
        within = _over(runs, each, learners, lambda runs, setting: in_percent(runs, setting, "gap_within"))
        found.append(Section(title, text, *table))
        found.append(Section(f"RQ2, {each.symbol}: gap to the best policy below λ in percent", (), *within))
    return found


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
    found = [Section("RQ3: zones against a grid", text, picture=Picture("rq3", alt, figures.discretisations(runs)))]
    cells: dict[str, Cell] = {"gap to SAA in percent": in_percent, "processor seconds of one fit": seconds}
    for place in PAPERS:
        there = {name: PLACES[place](learner) for name, learner in learners.items()}
        if runs.present(GRANULARITIES.over(PLACES[place](sweeps.GRID))):
            for title, cell in cells.items():
                found.append(Section(f"RQ3, {place}: {title}", (), *_over(runs, GRANULARITIES, there, cell)))
    return found


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
        Section("What the paper does not state: gap to SAA in percent", text, ("choice", *learners), _filled(rows)),
        Section("Sample size", picture=Picture("sample-size", alt, figures.sample_sizes(runs))),
        Section("Why Pool.published fails", _why_text(runs), picture=Picture("why", why, figures.fallbacks(runs))),
        _why_table(runs),
    ]


def q_learning_sections(runs: Runs) -> list[Section]:
    """Gong and Simchi-Levi's example."""
    learners = (sweeps.HQL, sweeps.FQL, sweeps.EXAMPLE, sweeps.PRIVATE_EXAMPLE)
    table = _over(runs, sweeps.EPISODES, {NAMES[learner]: learner for learner in learners}, per_step, grouped=True)
    text = (
        "Backlog, D_h ~ (10 − h)/2 + U[0, 1], holding 2, shortage 10, levels on a grid of 1/20 (Gong and Simchi-Levi, "
        "arXiv 2007.00080). The best grid level is 0.85 above the least demand and costs 0.835 per step; off the grid "
        "it is 0.833.",
    )
    return [Section("HQL and FQL on their own example: cost per step of the learned policy", text, *table)]


def _over(
    runs: Runs, each: Range, learners: dict[str, Setting], cell: Cell = in_percent, *, grouped: bool = False
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows of a table: learners down, the values that were run across."""
    there = [
        column
        for column in zip(*(each.over(learner) for learner in learners.values()), strict=True)
        if runs.present(column)
    ]
    header = ("learner", *(f"{each.symbol} = {each.shown(column[0]):{',.0f' if grouped else 'g'}}" for column in there))
    cells = zip(*([cell(runs, setting) for setting in column] for column in there), strict=True)
    return header, tuple((name, *row) for name, row in zip(learners, cells, strict=True)) if there else ()


def _rq1_table(runs: Runs, place: str, cell: Cell = in_percent) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    where = PLACES[place]
    rhos = [setting.rho for setting in runs.present(sweeps.RHOS.over(where(BASE)))]
    header = ("method", *(f"ρ = {rho:g} (ε = {epsilon_shown(rho)})" for rho in rhos), "ρ = ∞")
    rows = [
        (NAMES[learner], *(cell(runs, where(replace(learner, rho=rho))) for rho in (*rhos, math.inf)))
        for learner in (*JUDGED, sweeps.SOFT_GRID, sweeps.INPUT, sweeps.OUTPUT)
    ]
    for learner in (sweeps.DATA_FREE, sweeps.MIDDLE, sweeps.PARTIAL, sweeps.REPLAY):
        rows.append((NAMES[learner], *([""] * len(rhos)), cell(runs, where(learner))))
    return header, _filled(rows)


def _filled(rows: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Without the rows that have no cell but their name."""
    return tuple(row for row in rows if any(row[1:]))


def _rq1_text(place: str) -> tuple[str, ...]:
    if place == sweeps.SYNTHETIC:
        return (
            "D ~ U[0, 100] as in the paper. The plan on the public bounds alone is exact here, because the public "
            "prior is uniform too. On this data set no learner can gain anything from the log. The other families "
            "show what learning gives.",
        )
    if place == sweeps.STORE_1:
        return ("66 training weeks, 67 test weeks. The runs differ in costs, in the logged orders and in noise.",)
    return ()


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
    settings: list[tuple[str, Setting]] = []
    for each in (sweeps.RHOS, GRANULARITIES, sweeps.PRODUCT_COUNTS):
        settings += [(f"synthetic, {each.symbol} = {each.shown(s):g}", s) for s in each.over(PUBLISHED)]
    settings += [(f"Store 1, ρ = {setting.rho:g}", setting) for setting in sweeps.RHOS.over(sweeps.real(PUBLISHED))]
    rows = []
    for name, setting in settings:
        if runs.of(setting):
            best = runs.chosen(replace(setting, scale=sweeps.TUNED))
            measured = [(setting, "fell_back"), (setting, "clipped"), (setting, "empty_rings"), (best, "clipped")]
            shares = [in_percent(runs, where, measure, spread=False) for where, measure in measured]
            rows.append((name, *shares, f"{best.scale:g}"))
    header = ("setting", "noise-dominated", "Q cut, printed", "rings without data", "Q cut, best scale", "best scale")
    return Section("Pool.published: shares in percent", (), header, tuple(rows))
