"""Predicted against true cost: what the page says before anybody has tried the policy.

    python -m benchmarks.predicted                          # simulated shops, and Rossmann if train.csv is found
    python -m benchmarks.predicted --seeds 5 --write        # the table into docs/benchmarks.md

Each log is fitted with seeded noise of the true distribution (so nothing here is private). The forecast sees what the
page sees. True costs come from demand that only the benchmark knows. "Predicted / true" is the mean over seeds, "off"
the share of predictions more than 10% away, "inside" how often the 90% interval holds the truth, "none" how often no
cost was shown. Worlds whose orders follow demand must show none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain as one_after_another
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress, track

from benchmarks.chain import read_chain
from benchmarks.predicted_worlds import Known, real_worlds, simulated_worlds
from benchmarks.report import Report
from poolrl import Pool, SeededNoise
from poolrl.paper import rossmann
from poolrl.workflow.forecast import CostEstimate
from poolrl.workflow.paying import ON_TOP_SHARE
from poolrl.workflow.trades.shop_forecast import make_forecast

# How to read the table on its page.
READ = (
    "In a cell: predicted / true, a mean over {} seeds (first seed {}), and how many 90% intervals hold the truth. "
    "none: no cost was shown. Demand of Rossmann's later weeks differs from that of the log, which no log tells: a "
    "prediction is for weeks like those in the log."
)
RHOS = (0.1, 1.0)
WITHIN = 0.1


@dataclass(frozen=True)
class Judged:
    """One number of one page."""

    world: str
    rho: float
    what: str
    ratio: float | None  # predicted / true
    inside: bool
    verdict: str
    right: bool  # the verdict is what the true costs say, or "cannot tell"


def judge(known: Known, rho: float, seed: int) -> Iterator[Judged]:
    """Fit, forecast, compare."""
    policy = Pool(rho, left_over=ON_TOP_SHARE).fit(known.problem, known.log, noise=SeededNoise(seed))
    with Progress(disable=True) as progress:
        forecast = make_forecast(policy, None, progress)
    true = known.cost(policy)
    right = {"switch": true < known.today, "do not switch": true > known.today}.get(forecast.verdict, True)
    numbers: list[tuple[str, CostEstimate | None, float]] = [
        ("today", forecast.today, known.today),
        ("policy", forecast.policy, true),
        ("best", forecast.best, known.best),
    ]
    for what, found, truth in numbers:
        ratio = None if found is None or not np.isfinite(truth) else found.mean / truth
        inside = found is not None and found.low <= truth <= found.high
        yield Judged(known.world, rho, what, ratio, inside, forecast.verdict, right)


def show(found: list[Judged], report: Report) -> None:
    """A row for each world and budget."""
    rows, right, hidden = [], 0, []
    for world in dict.fromkeys(each.world for each in found):
        for rho in RHOS:
            cells, of_row = [], [each for each in found if (each.world, each.rho) == (world, rho)]
            if not of_row:
                continue
            for what in ("today", "policy"):
                cells.append(_cell([each for each in of_row if each.what == what]))
            if all(each.ratio is not None and each.inside for each in of_row if each.what != "best"):
                right += 1
                continue
            if all(each.ratio is None for each in of_row):
                hidden.append(f"{world}, rho = {rho:g}")
                continue
            none = np.mean([each.ratio is None for each in of_row if each.what == "policy"])
            verdicts = [each.verdict for each in of_row if each.what == "policy"]
            usual = max(dict.fromkeys(verdicts), key=verdicts.count)
            wrong = sum(not each.right for each in of_row if each.what == "policy")
            rows.append([world, f"{rho:g}", *cells, f"{none:.0%}", usual + (f" ({wrong} wrong)" if wrong else "")])
    report.table(["world", "rho", "today", "policy", "none", "verdict"], rows)
    report.text(f"Left out are the {right} worlds and budgets where every cost was shown and lay inside.")
    report.text(f"No cost was shown in any run: {'; '.join(hidden) or 'nowhere'}.")
    for which, later in (("of weeks like those in the log", False), ("of later weeks", True)):
        for what in ("today", "policy", "best"):
            shown = [each for each in found if each.what == what and each.ratio and ("later" in each.world) == later]
            if shown:
                near = np.mean([abs((each.ratio or 0) - 1) <= WITHIN for each in shown])
                inside = np.mean([each.inside for each in shown])
                figures = f"{len(shown)} predictions, {near:.0%} within 10%, {inside:.0%} inside the 90% interval"
                report.text(f"{what}, {which}: {figures}.")


def _cell(judged: list[Judged]) -> str:
    shown = [each for each in judged if each.ratio is not None]
    if not shown:
        return "none"
    ratios = [each.ratio or 0.0 for each in shown]
    inside = sum(each.inside for each in shown)
    return f"{np.mean(ratios):.2f} ({inside}/{len(shown)})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rossmann", type=Path, help="Kaggle's train.csv or train.csv.gz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--worlds", choices=("simulated", "real", "both"), default="both")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks.md")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found: list[Judged] = []
    chain = None if options.worlds == "simulated" else read_chain(rossmann.find(options.rossmann))
    for seed in track(seeds, description="judging", console=Console(stderr=True)):
        worlds = [simulated_worlds(seed)] * (options.worlds != "real")
        worlds += [] if chain is None else [real_worlds(chain, 2000 + seed)]
        for known in one_after_another(*worlds):
            for rho in RHOS:
                found += judge(known, rho, seed)
    report = Report("predicted", "Predicted against true cost", ("learning", "workflow/trades"))
    show(found, report)
    report.text(READ.format(options.seeds, options.first_seed))
    if options.write:
        report.write()


if __name__ == "__main__":
    main()
