"""Real logs: shops that differ, orders that follow demand, and few weeks. Ours beside what shops do today.

    python -m benchmarks.real --rossmann train.csv.gz     # Kaggle's file, or POOLRL_ROSSMANN; without it, made-up data
    python -m benchmarks.real --only e --seeds 5          # one bench; --write puts c, e and g into docs/

Demand is daily sales of 935 stores in 133 weeks; policies learn from the first 66. Costs h, b ~ U[0, 0.5] for each
weekday (and store in c and d), seeded noise of the true distribution (so nothing here is private).

  c  a policy for each store (labels), independent orders gap to SAA per store, all stores together
  d  stores x promotion week (labels)                     cost / cost of SAA per store without promotion
  e  managers' orders: 1.15 x the average sales of the    cost / today's cost, in closed loop: stock carries over, and
     last four same weekdays                              the averages are made from the sales under each policy

  f  what was chosen for e, one choice at a time undone   cost / today's cost
  g  one store in ten is declared but has no rows         gap of the new stores to SAA on their own demand

Public quantities choose the parts of e: store labels where a store's own trees rise above the noise, else the scale.
Beside ours: today's managers, the best constant factor, SAA per store (not private), the data-free plan.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks.chain import Chain, read_chain
from benchmarks.real_benches import OURS, RHOS, Figure, labelled_bench, new_shops_bench
from benchmarks.real_managers import SAA_NAME, choices_bench, managers_bench
from benchmarks.report import Report
from poolrl.paper import rossmann
from poolrl.privacy.zcdp import epsilon, epsilon_shown

DELTA = 1e-6
# (bench, rho) → the largest allowed mean.
LIMITS = {
    ("c", 1.0): 0.07, ("c", 0.1): 0.12, ("c", 0.01): 0.45,
    ("d", 1.0): 0.76, ("d", 0.1): 0.86,
    ("e", 1.0): 0.60, ("e", 0.1): 0.76, ("e", 0.01): 0.95,
}  # fmt: skip

SHOWN = "ceg"  # in docs/benchmarks.md; the others are printed
BENCHES: dict[str, tuple[str, Callable[[Chain, int], Iterator[Figure]]]] = {
    "c": ("each store, gap to SAA", lambda c, s: labelled_bench("c", c, s, 25_000.0, promo=False)),
    "d": ("stores x promotion, cost / SAA without", lambda c, s: labelled_bench("d", c, s, 30_000.0, promo=True)),
    "e": ("managers, cost / today's", lambda c, s: managers_bench("e", c, s)),
    "f": ("choices of e, cost / today's", lambda c, s: choices_bench("f", c, s)),
    "g": ("new shops, gap to their own SAA", lambda c, s: new_shops_bench("g", c, s, 25_000.0)),
}


def show(bench: str, found: list[Figure], report: Report) -> int:
    """Print the table of one bench; the number of limits that were missed."""
    missed = 0
    rows = []
    for contender in dict.fromkeys(each.contender for each in found):
        cells = []
        for rho in (None, *RHOS):
            values = [each.value for each in found if (each.contender, each.rho) == (contender, rho)]
            if not values:
                cells.append("")
                continue
            mean = float(np.mean(values))
            spread = f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}" if len(values) > 1 else ""
            limit = LIMITS.get((bench, rho or 0.0)) if contender == OURS else None
            verdict = "" if limit is None else f" (≤ {limit:g}{'' if mean <= limit else ' MISSED'})"
            missed += limit is not None and mean > limit
            cells.append(f"{mean:.3f}{spread}{verdict}")
        rows.append([contender, *cells])
    report.table([BENCHES[bench][0], "no release", *(f"rho = {rho:g}" for rho in RHOS)], rows)
    return missed


def draw(found: list[Figure], path: Path) -> None:
    """Cost against epsilon in bench e, with today's practice as a line."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    epsilons = [epsilon(rho, DELTA) for rho in RHOS]
    for contender, style in (("scale, promotion", "s--"), (OURS, "o-")):
        runs = [f for f in found if (f.bench, f.contender) == ("e", contender)]
        means = [np.mean([run.value for run in runs if run.rho == rho]) for rho in RHOS]
        axes.plot(epsilons, means, style, label=contender)
    between = math.sqrt(epsilons[1] * epsilons[0])
    for contender, below in (("today's managers", False), ("best constant factor", True), (SAA_NAME, True)):
        level = float(np.mean([f.value for f in found if (f.bench, f.contender) == ("e", contender)]))
        axes.axhline(level, linewidth=1, color="grey" if below else "black")
        side = "top" if below else "bottom"
        axes.text(between, level + (-0.01 if below else 0.01), contender, ha="center", va=side, fontsize=8)
    axes.set(xscale="log", xlabel=f"epsilon at delta = {DELTA:g}", ylabel="cost / today's cost", ylim=(0, 1.25))
    axes.set_xticks(epsilons, [f"{epsilon_shown(rho)}\n(rho = {rho:g})" for rho in RHOS])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and exit with 1 if a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rossmann", type=Path, help="Kaggle's train.csv or train.csv.gz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=2000, help="for costs, orders and noise not used before")
    parser.add_argument("--only", default="cdefg", help="which benches, for example ce")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks.md, and the picture")
    options = parser.parse_args()
    chain = read_chain(rossmann.find(options.rossmann))
    Console(stderr=True).print(f"{chain.source}: {chain.stores} stores, {chain.demand.shape[1]} weeks")
    jobs = [(bench, options.first_seed + run) for bench in options.only for run in range(options.seeds)]
    found: list[Figure] = []
    for bench, seed in track(jobs, description="learning", console=Console(stderr=True)):
        found += BENCHES[bench][1](chain, seed)
    missed = 0
    for bench in options.only:
        report = Report("real", f"Real logs, bench {bench}", ("geometry", "learning"), part=bench)
        missed += show(bench, [each for each in found if each.bench == bench], report)
        weeks = chain.demand.shape[1]
        report.text(f"{chain.source}: {chain.stores} stores, {weeks} weeks. Means over {options.seeds} seeds.")
        if options.write and bench in SHOWN:
            report.parts += ["![Cost against epsilon](figures/real.svg)"] * (bench == "e")
            report.write()
    if "e" in options.only:
        draw(found, Path("docs/figures/real.svg") if options.write else Path("real.svg"))
    print(f"limits missed: {missed}")
    raise SystemExit(missed > 0 and chain.source != "made up")


if __name__ == "__main__":
    main()
