"""The reproduction: which runs are wanted, which are still missing, and doing the missing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

from poolrl.checks import whole
from poolrl.paper.backends import Backend
from poolrl.paper.results import Results
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.runs import resolved, tuning
from poolrl.paper.statistics import FEWEST_SEEDS
from poolrl.paper.sweeps import PAPER_RUNS, SWEEPS, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import Run
from poolrl.paper.workers import Task, finished_runs

QUICK_RUNS = FEWEST_SEEDS


@dataclass(frozen=True)
class Plan:
    """What to run: settings, seeds 0 .. runs − 1, and how many tuning seeds."""

    settings: tuple[Setting, ...]
    runs: int
    tuning_seeds: int

    def tuning_tasks(self, done: Iterable[Task]) -> list[Task]:
        """Runs that choose the scale of Γ and are still missing."""
        seeds = TUNING_SEEDS[: self.tuning_seeds]
        return _not_done((task for task in tuning(list(self.settings)) if task[1] in seeds), done)

    def tasks(self, done: dict[Task, Run]) -> list[Task]:
        """Runs that judge and are still missing; seed by seed, so that a stopped reproduction shows complete curves."""
        chosen = [resolved(setting, done) for setting in self.settings]
        return _not_done(((setting, seed) for seed in range(self.runs) for setting in chosen), done)


def plan_for(names: Iterable[str], *, runs: int | None = None, quick: bool = False, real: bool = True) -> Plan:
    """The plan for the named sweeps; unknown names are refused."""
    for name in names:
        if name not in SWEEPS:
            raise ValueError(f"there is no sweep {name!r}; choose from {', '.join(SWEEPS)}")
    count = runs if runs is not None else (QUICK_RUNS if quick else PAPER_RUNS)
    whole(runs=count)
    settings = settings_of(names, quick=quick, real_data=real)
    # Runs of one bench stand together, so that a worker builds it once.
    settings.sort(key=lambda setting: setting.bench)
    return Plan(tuple(settings), count, 1 if quick else len(TUNING_SEEDS))


def carry_out(
    wanted: Plan,
    results: Results,
    *,
    real: Rossmann | None,
    backend: Backend,
    started: Callable[[str, int], None],
    finished: Callable[[Run], None],
) -> None:
    """Do every missing run. `started` hears how many come, `finished` hears of each that is stored."""
    if real is not None:
        results.same_source(real.md5)
    done = {(run.setting, run.seed): run for run in results.runs()}
    for stage in ("choosing the scale of Γ", "runs"):
        tasks = wanted.tasks(done) if stage == "runs" else wanted.tuning_tasks(done)
        started(stage, len(tasks))
        if not tasks:
            continue
        with closing(finished_runs(tasks, results.path, real=real, backend=backend)) as stream:
            for run in stream:
                results.add(run)  # already there if its worker could write it
                done[run.setting, run.seed] = run
                finished(run)


def _not_done(tasks: Iterable[Task], done: Iterable[Task]) -> list[Task]:
    have = set(done)
    return [task for task in dict.fromkeys(tasks) if task not in have]
