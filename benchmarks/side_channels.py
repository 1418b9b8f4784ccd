"""Side channels of a fit: what time, memory and sizes of files tell of one shop that was replaced.

    python -m benchmarks.side_channels

Every log of a pair is fitted many times, in turn with its neighbour. The AUC says what an attacker learns from one
look: how often a measurement of the second log exceeds one of the first. 0.5 is a guess; 0 and 1 tell the logs apart.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.progress import track
from scipy.stats import rankdata

from benchmarks.measured_fits import (
    FitPlace,
    Measured,
    files_that_differ,
    memory_and_sizes,
    places_of,
    python_memory,
    times,
)
from benchmarks.neighbour_logs import PAIRS, LogPair
from benchmarks.report import Report, run
from poolrl.checks import FloatArray

PERMUTATIONS = 9_999
FALSE_ALARMS = 0.05  # of the whole table


@dataclass(frozen=True)
class Finding:
    """What was measured of both logs of a pair."""

    measured: str
    pair: str
    first: FloatArray
    second: FloatArray

    @property
    def difference(self) -> float:
        """Of the medians, as a share of the first."""
        low, high = float(np.median(self.first)), float(np.median(self.second))
        return 0.0 if low == high else (high - low) / low if low else math.inf

    @cached_property
    def auc(self) -> float:
        """P(second > first) + P(second = first) / 2."""
        n, m = len(self.first), len(self.second)
        return float(self._ranks[n:].sum() - m * (m + 1) / 2) / (n * m)

    @cached_property
    def p_value(self) -> float:
        """How often a random exchange of the two logs moves the AUC as far from 0.5."""
        n, ranks = len(self.first), self._ranks
        usual = ranks.mean() * n
        exchanged = np.random.default_rng(0).permuted(np.tile(ranks, (PERMUTATIONS, 1)), axis=1)
        # Ranks are multiples of a half, so these sums are exact.
        as_far = np.abs(exchanged[:, :n].sum(axis=1) - usual) >= abs(ranks[:n].sum() - usual)
        return float(1 + as_far.sum()) / (1 + PERMUTATIONS)

    @property
    def equal(self) -> bool:
        """Whether every run of both logs gave the same number."""
        return len({*self.first.tolist(), *self.second.tolist()}) == 1

    def is_open(self, tests: int) -> bool:
        """Whether chance would hardly do that in any of the tests."""
        return not self.equal and self.p_value <= FALSE_ALARMS / tests

    @property
    def _ranks(self) -> FloatArray:
        return np.asarray(rankdata(np.concatenate([self.first, self.second])))


def in_turn(
    pair: LogPair, places: Sequence[FitPlace], measure: Callable[[FitPlace], Measured], repetitions: int
) -> list[Finding]:
    """Measure both logs this often, side by side. A lot decides which one is first."""
    found: tuple[list[Measured], list[Measured]] = [], []
    rng = np.random.default_rng(0)
    for _ in range(repetitions):
        for which in rng.permutation(2):
            found[which].append(measure(places[which]))
    series = [[np.array([each[name] for each in one]) for one in found] for name in found[0][0]]
    return [Finding(name, pair.name, *both) for name, both in zip(found[0][0], series, strict=True)]


def findings_of(pair: LogPair, places: Sequence[FitPlace], arguments: argparse.Namespace) -> list[Finding]:
    """All measurements of one pair."""
    for place in places:
        times(place)  # the first fit of a process compiles and imports
    found = in_turn(pair, places, times, arguments.repetitions)
    found += in_turn(pair, places, python_memory, arguments.processes)
    context = get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.measured_fits"])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        found += in_turn(pair, places, lambda place: pool.submit(memory_and_sizes, place).result(), arguments.processes)
    return found


def rows_of(findings: Sequence[Finding]) -> list[list[str]]:
    """The table: a row for every pair that can be told apart, and one row for all others of a measurement."""
    rows, equal = [], []
    for measured in dict.fromkeys(each.measured for each in findings):
        here = [each for each in findings if each.measured == measured]
        told = [each for each in here if each.is_open(len(findings))]
        rows += [_row(measured, each.pair, [each], "**open**") for each in told]
        if others := [each for each in here if each not in told]:
            if all(each.equal for each in others):
                equal.append(measured)
                continue
            who = others[0].pair if len(others) == 1 else f"{len(others)} {'others' if told else 'pairs'}"
            seen = "hint" if min(each.p_value for each in others) <= FALSE_ALARMS else "nothing seen"
            rows.append(_row(measured, who, others, seen))
    return [*rows, [", ".join(equal), "all", "+0.0%", "0.50", "", "equal in every run"]] if equal else rows


def _row(measured: str, who: str, findings: Sequence[Finding], state: str) -> list[str]:
    """Of several findings, those are shown that are farthest out."""
    difference = max((each.difference for each in findings), key=abs)
    farthest = max(findings, key=lambda each: abs(each.auc - 0.5))
    p_value = min(each.p_value for each in findings)
    return [measured, who, f"{difference:+.1%}", f"{farthest.auc:.2f}", f"{p_value:.4f}", state]


def work(report: Report, arguments: argparse.Namespace) -> None:
    """Every pair, one after the other."""
    pairs = [pair for pair in PAIRS if re.search(arguments.only, pair.name)]
    findings, differing = [], {}
    for pair in track(pairs, "pairs"):
        with tempfile.TemporaryDirectory() as folder:
            places = places_of(pair, Path(folder))
            differing[pair.name] = files_that_differ(places)
            findings += findings_of(pair, places, arguments)
    report.text(
        "A typical shop of a small chain is replaced by an odd one. Times are of "
        f"{arguments.repetitions} fits of each log, in turn with its neighbour. Memory and sizes are of "
        f"{arguments.processes} fits of each, in processes of their own. The difference is that of the medians. The "
        "AUC says what one look tells: 0.5 is a guess, and 0 and 1 tell the logs apart. p is a permutation test's. "
        f"*Open* means: chance does that in at most {FALSE_ALARMS:.0%} of such tables. *Hint* means: p is at "
        f"most {FALSE_ALARMS:.0%}, which chance may do among several pairs. A row for several pairs shows the largest "
        "difference, the AUC farthest from 0.5, and the least p."
    )
    header = ("measured", "a typical shop against", "difference", "AUC", "p", "state")
    report.table(header, rows_of(findings))
    odd = [f"{name} ({', '.join(files)})" for name, files in differing.items() if files]
    report.text(
        "With noise that does not depend on the log, all files of a release, its page included, are "
        + (
            f"the same to the byte except: {'; '.join(odd)}."
            if odd
            else f"the same to the byte in all {len(pairs)} pairs."
        )
    )


if __name__ == "__main__":
    run(
        Report("side_channels", "Side channels, measured", ("data", "learning", "privacy", "workflow")),
        work,
        repetitions=(40, "timed fits of each log"),
        processes=(20, "fits of each log in processes of their own"),
        only=("", "only pairs whose name matches this pattern"),
    )
