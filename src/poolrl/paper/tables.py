"""The sweeps as tables and figures: RQ1 to RQ3, what the paper leaves open, and why `Pool.published` fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from poolrl.paper import figures, sweeps
from poolrl.paper.claims import LEARNERS, PLACES
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sections import Section, difference, per_step, percent, seconds
from poolrl.paper.statistics import Table
from poolrl.paper.sweeps import BASE, GRID, PUBLISHED, SOFT_GRID, Setting, real
from poolrl.privacy.zcdp import epsilon

Cell = Callable[[Table, Setting, str], str]


def rq1_sections(table: Table, source: Rossmann | None) -> list[Section]:
    """POOL against IP and OP over ρ."""
    places = [place for place in PLACES if table.runs(PLACES[place](BASE))]
    papers = [place for place in places if place in ("synthetic", "Rossmann, Store 1")]
    others = [place for place in places if place not in papers]
    found = []
    if papers:
        picture = figures.budgets(table, papers)
        alt = "Relative gap of POOL, input and output perturbation against the privacy budget"
        text = (
            "Points are means over runs; bars span the middle two thirds of them. Tables: mean ± standard deviation.",
        )
        found.append(Section("RQ1: POOL and its baselines over ρ", text, figure=("rq1", alt, picture)))
    for place in places:
        found.append(Section(f"RQ1, {place}: gap to SAA in percent", _rq1_text(place), *_rq1_table(table, place)))
        if place == "Rossmann, Store 1":
            title = f"RQ1, {place}: the appendix's gap, cost of SAA − cost, per week"
            found.append(Section(title, (), *_rq1_table(table, place, difference)))
    if others:
        alt = "The same on other demand families and on several stores"
        found.append(Section("RQ1 beyond the paper", figure=("rq1-more", alt, figures.budgets(table, others))))
    if source is not None:
        alt = "Autocorrelation of daily sales with peaks every seven days"
        found.append(Section("Rossmann's weekly cycle", figure=("acf", alt, figures.weekly_cycle(source))))
    return found


def rq2_sections(table: Table) -> list[Section]:
    """One hyperparameter at a time."""
    learners = [*LEARNERS.items(), *((f"Pool, {f} demand", replace(BASE, data=f)) for f in sweeps.FAMILIES[1:])]
    views: list[tuple[str, Sequence[float], str, Callable[[float], float]]] = [
        ("horizon", sweeps.HORIZONS, "H", float),
        ("products", sweeps.PRODUCTS, "w + d", lambda products: 2 * products),
        ("granularity", sweeps.GRANULARITIES, "M", float),
        ("boundary", sweeps.BOUNDARIES, "|λ|", float),
    ]
    alt = "Relative gap against horizon, boundary, dimensions and granularity"
    found = [Section("RQ2: hyperparameters", figure=("rq2", alt, figures.hyperparameters(table)))]
    for name, values, symbol, shown in views:
        there = [value for value in values if table.runs(replace(BASE, **{name: value}))]  # type: ignore[arg-type]
        header = ("learner", *(f"{symbol} = {shown(value):g}" for value in there))
        for measure, what in (("gap", "SAA"), ("gap_within", "the best policy below λ")):
            if measure == "gap_within" and name != "boundary":
                continue
            rows = tuple(
                (learner, *(percent(table, replace(setting, **{name: value}), measure) for value in there))  # type: ignore[arg-type]
                for learner, setting in learners
            )
            text: tuple[str, ...] = ()
            if name == "boundary" and measure == "gap":
                text = ("The paper's gap compares with an optimum that may order beyond λ, which no learner can see.",)
            found.append(Section(f"RQ2, {symbol}: gap to {what} in percent", text, header, rows))
    return found


def rq3_sections(table: Table) -> list[Section]:
    """Zones against grids."""
    outcome_zones = replace(BASE, method="outcome zones")
    learners = {
        **LEARNERS,
        "grid (DP-APVI), printed constants": GRID,
        "grid (DP-APVI), tuned scale of Γ": SOFT_GRID,
        "zones on outcome counts": outcome_zones,
    }
    alt = "Gap and running time of zones and grids against M"
    text = (
        "The grid has M cells per axis, M² nodes at w = d = 1. Rows of the transition table that are sure to drown "
        "in noise are never drawn, for zones and grid alike, so both are far quicker than a dense table; times are "
        "processor seconds of one fit, geometry included. With outcome counts there are no visits to spread over "
        "nodes: that row shows the zones by themselves.",
    )
    found = [Section("RQ3: zones against a grid", text, figure=("rq3", alt, figures.discretisations(table)))]
    for place in ("synthetic", "Rossmann, Store 1"):
        where = PLACES[place]
        there = [m for m in sweeps.GRANULARITIES if table.runs(where(replace(GRID, granularity=m)))]
        header = ("learner", *(f"M = {m}" for m in there))
        for measure, title in (("gap", "gap to SAA in percent"), ("seconds", "processor seconds of one fit")):
            cell = percent if measure == "gap" else seconds
            rows = tuple(
                (name, *(cell(table, where(replace(setting, granularity=m)), measure) for m in there))
                for name, setting in learners.items()
            )
            if there:
                found.append(Section(f"RQ3, {place}: {title}", (), header, rows))
    return found


def sensitivity_sections(table: Table) -> list[Section]:
    """What the paper leaves open."""
    without = replace(BASE, rho=math.inf)
    free = replace(without, method="data-free")
    learners = {**LEARNERS, "NonPrivate: Pool(rho=inf)": without, "no data": free}
    choices: list[tuple[str, Callable[[Setting], Setting]]] = []
    for family in sweeps.FAMILIES:
        for n in sweeps.TRAJECTORIES:
            choices.append((f"n = {n:,}, {family} demand", _moved(data=family, trajectories=n)))
    choices += [(f"behaviour {name}", _moved(behaviour=name)) for name in ("uniform", "low", "steady")]
    choices += [
        (f"behaviour {name}, normal demand", _moved(data="normal", behaviour=name)) for name in ("low", "steady")
    ]
    choices += [(f"δ = {delta:g}", _moved(failure=delta)) for delta in (0.01, 0.05, 0.2)]
    choices += [("H = 10, M = 200", _moved(horizon=10, granularity=200))]
    choices += [("H = 10, w + d = 4", _moved(horizon=10, products=2))]
    bounds = (10_000.0, 15_000.0, 20_000.0, 30_000.0)
    choices += [(f"Store 1, public bound {bound:,.0f}", _on_store_1(bound)) for bound in bounds]
    rows = [(name, *(percent(table, move(s), "gap") for s in learners.values())) for name, move in choices]
    text = (
        "The paper does not say how many trajectories it learns from, how they were collected, which δ it uses, or "
        "what is held fixed. Our base setting: n = 10,000, orders uniform between stock and λ, δ = 0.05, H = 5, w "
        "+ d = 2, M = 100, λ = 1, ρ = 1. Here each choice varies alone. *low*: orders uniform up to half of λ "
        "only; *steady*: about 60% of λ.",
    )
    alt = "Gap to the true optimum against the number of trajectories"
    why = "Shares of nodes lost to noise, of values cut at zero and of empty rings"
    return [
        Section(
            "What the paper does not state: gap to SAA in percent",
            text,
            ("choice", *learners),
            tuple(row for row in rows if any(cell for cell in row[1:])),
        ),
        Section("Sample size", figure=("sample-size", alt, figures.sample_sizes(table))),
        Section("Why Pool.published fails", _why_text(table), figure=("why", why, figures.fallbacks(table))),
        _why_table(table),
    ]


def q_learning_sections(table: Table) -> list[Section]:
    """Gong and Simchi-Levi's example."""
    episodes = (100, 500, 2_000, 10_000)
    world = replace(BASE, data="backlog example", horizon=10, demand_max=10.0, granularity=201, rho=math.inf)
    learners = {
        "HQL": replace(world, method="hql"),
        "FQL": replace(world, method="fql"),
        "Pool(rho=inf)": world,
        "Pool(rho=1)": replace(world, rho=1.0),
    }
    there = [k for k in episodes if table.runs(replace(world, trajectories=k))]
    rows = tuple(
        (name, *(per_step(table, replace(setting, trajectories=k)) for k in there))
        for name, setting in learners.items()
    )
    text = (
        "Backlog, D_h ~ (10 − h)/2 + U[0, 1], holding 2, shortage 10, levels on a grid of 1/20 (Gong and "
        "Simchi-Levi, arXiv 2007.00080). The best grid level is 0.85 above the least demand and costs 0.835 per "
        "step; off the grid it is 0.833.",
    )
    title = "HQL and FQL on their published example: cost per step of the learned policy"
    return [Section(title, text, ("learner", *(f"K = {k:,}" for k in there)), rows if there else ())]


def _rq1_table(table: Table, place: str, cell: Cell = percent) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    where = PLACES[place]
    rhos = [rho for rho in sweeps.RHOS if table.runs(where(replace(BASE, rho=rho)))]
    header = ("method", *(f"ρ = {rho:g} (ε = {epsilon(rho, 1e-6):.3g})" for rho in rhos), "ρ = ∞")
    methods = {
        **LEARNERS,
        "grid (DP-APVI), tuned scale of Γ": SOFT_GRID,
        "input perturbation": replace(BASE, method="input"),
        "output perturbation": replace(BASE, method="output"),
    }
    rows = [
        (name, *(cell(table, where(replace(setting, rho=rho)), "gap") for rho in (*rhos, math.inf)))
        for name, setting in methods.items()
    ]
    for name, method in (
        ("no data: plan on the public bounds", "data-free"),
        ("no data: order up to the middle", "middle"),
        ("partial discretisation of Qin et al. (not private)", "partial"),
        ("Q-learning on the same log (HQL, not private)", "replay"),
    ):
        found = cell(table, where(replace(BASE, method=method, rho=math.inf)), "gap")
        rows.append((name, *([""] * len(rhos)), found))
    return header, tuple(row for row in rows if any(row[1:]))


def _rq1_text(place: str) -> tuple[str, ...]:
    if place == "synthetic":
        return (
            "D ~ U[0, 100] as in the paper. The plan on the public bounds alone is exact here, because the public "
            "prior is uniform too: on this data set a learner can win nothing by looking. The other families show "
            "what learning gives.",
        )
    if place == "Rossmann, Store 1":
        return (
            "66 training weeks, 67 test weeks; the runs differ in costs, in the behaviour policy's orders and in "
            "noise.",
        )
    return ()


def _why_text(table: Table) -> tuple[str, ...]:
    runs = table.runs(PUBLISHED).values()
    if not runs:
        return ()
    fell, cut = (100 * np.mean([getattr(run, name) for run in runs]) for name in ("fell_back", "clipped"))
    return (
        f"At the base setting {fell:.0f}% of the nodes drown in noise and {cut:.0f}% of the values are cut at zero "
        "with the printed constants. Where every value is zero the policy orders nothing, whatever ρ, M, λ or n: "
        "its gap is that of an empty shelf. Softening Γ brings back the values of visited nodes, but visit counts "
        "spread n trajectories over M(w + d) nodes, so a larger M leaves fewer visits per node and a larger share "
        "of them drowns.",
    )


def _why_table(table: Table) -> Section:
    settings: list[tuple[str, Setting]] = [
        (f"synthetic, ρ = {rho:g}", replace(PUBLISHED, rho=rho)) for rho in sweeps.RHOS
    ]
    settings += [(f"synthetic, M = {m}", replace(PUBLISHED, granularity=m)) for m in sweeps.GRANULARITIES]
    settings += [(f"synthetic, w + d = {2 * k}", replace(PUBLISHED, products=k)) for k in sweeps.PRODUCTS]
    settings += [(f"Store 1, ρ = {rho:g}", real(replace(PUBLISHED, rho=rho))) for rho in sweeps.RHOS]
    rows = []
    for name, setting in settings:
        if table.runs(setting):
            shares = [
                percent(table, setting, measure, spread=False) for measure in ("fell_back", "clipped", "empty_rings")
            ]
            best = table.chosen(replace(setting, scale=sweeps.TUNED))
            softened = percent(table, best, "clipped", spread=False)
            rows.append((name, *shares, softened, f"{best.scale:g}"))
    header = ("setting", "nodes that drown", "Q cut, printed", "rings without data", "Q cut, best scale", "best scale")
    return Section("Pool.published: shares in percent", (), header, tuple(rows))


def _moved(**fields: float | str) -> Callable[[Setting], Setting]:
    return lambda setting: replace(setting, **fields)  # type: ignore[arg-type]


def _on_store_1(bound: float) -> Callable[[Setting], Setting]:
    return lambda setting: replace(real(setting), demand_max=bound)
