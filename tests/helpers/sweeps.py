"""A small sweep of the reproduction, and the rows that it leaves."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

from poolrl.paper.results import Results
from poolrl.paper.sweeps import BASE, TUNED, Setting
from poolrl.paper.trials import MEASURES, Run
from poolrl.paper.workers import Plan, carry_out

SMALL = replace(BASE, horizon=2, trajectories=60, granularity=10)
NOTHING = lambda *_: None  # noqa: E731


def small_plan() -> Plan:
    """Four settings, two seeds each, and one seed to tune the published algorithm."""
    settings = (
        SMALL,
        replace(SMALL, method="published", scale=TUNED),
        replace(SMALL, method="input"),
        replace(SMALL, data="normal", boundary=0.6),
    )
    return Plan(settings, runs=2, tuning_seeds=1)


def do(wanted: Plan, path: Path, *, workers: int = 1) -> list[Run]:
    """Carry out a plan; every run in its file."""
    with Results(path) as results:
        carry_out(wanted, results, real=None, workers=workers, started=NOTHING, finished=NOTHING)
        return results.runs()


def bits(runs: list[Run]) -> list[tuple[Setting, int, bytes]]:
    """Everything but the processor time, bit for bit."""
    measures = [name for name in MEASURES if name != "seconds"]
    return [
        (each.setting, each.seed, struct.pack(f"{len(measures)}d", *(getattr(each, name) for name in measures)))
        for each in runs
    ]


def stored(path: Path) -> int:
    """How many runs the file of another process holds so far."""
    return path.read_bytes().count(b'"setting"') if path.exists() else 0
