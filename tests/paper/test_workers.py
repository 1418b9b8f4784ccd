"""Workers: the same rows with any number of them, each stored when it comes, clear words when a worker is lost."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from poolrl.paper import trials, workers
from poolrl.paper.results import Results
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import real
from poolrl.paper.trials import Run, run
from poolrl.paper.workers import Plan, carry_out, finished_runs
from tests.helpers.processes import environment, processes_of, program, wait_until
from tests.helpers.sweeps import NOTHING, SMALL, bits, do, small_plan, stored

TASKS = [(replace(SMALL, rho=rho), seed) for seed in range(4) for rho in (0.5, 1.0, 2.0)]


def test_rows_do_not_depend_on_the_number_of_workers() -> None:
    """Nor on what was made before them: fits on one bench share their parts."""
    settings = [replace(setting, scale=abs(setting.scale)) for setting in small_plan().settings]
    tasks = [(setting, seed) for seed in range(2) for setting in settings]
    backwards = bits([run(*task) for task in reversed(tasks)])
    for count in (1, 2):
        assert sorted(bits([*finished_runs(tasks, real=None, workers=count)])) == sorted(backwards)


@pytest.mark.slow
def test_kill_9_loses_the_runs_in_flight_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    process = subprocess.Popen(program("small_sweep", path, 400), env=environment(), start_new_session=True)
    wait_until(lambda: stored(path) >= 12)  # more than tune a scale, which one worker does
    assert len(processes_of(process.pid)) >= 3  # the command and its workers
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not processes_of(process.pid), seconds=20)  # the workers went with their parent
    kept = do(Plan((), 1, 1), path)
    assert len(kept) >= 5
    assert bits(kept) == bits([run(each.setting, each.seed) for each in kept])
    finished = do(small_plan(), path)  # goes on, and keeps what was there
    assert set(bits(kept)) <= set(bits(finished))


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_fails_is_named_and_those_before_it_are_kept(count: int, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    settings = (*(replace(SMALL, rho=rho) for rho in (1.0, 2.0, 3.0, 4.0, 5.0)), replace(SMALL, method="magic"))
    with pytest.raises(RuntimeError, match=r"'magic'.* with seed 0 failed: there is no method 'magic'"):
        do(Plan((*settings, replace(SMALL, rho=6.0)), runs=1, tuning_seeds=1), path, workers=count)
    with Results(path, read_only=True) as results:
        kept = results.runs()
    # One after another all of them are kept; with two at a time some are lost that were not stored yet.
    assert len(kept) in (range(5, 6) if count == 1 else range(2, 6))
    assert set(bits(kept)) <= set(bits([run(setting, 0) for setting in settings[:5]]))


def test_every_run_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def spy(*arguments: object) -> Run:
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return run(*arguments)

    monkeypatch.setattr(workers, "run", spy)
    list(finished_runs(TASKS[:2], real=None, workers=1))
    assert set(threads) == {1}


def test_copies_of_the_weeks_share_a_bench() -> None:
    weeks = np.random.default_rng(0).uniform(0, 9000, (20, 7, 8))
    source = Rossmann(weeks, "a" * 32)
    copy = pickle.loads(pickle.dumps(source))
    bench = real(SMALL).bench
    assert trials._bench(bench, 0, source) is trials._bench(bench, 0, copy)
    assert source != Rossmann(weeks, "b" * 32)


@pytest.mark.slow
def test_a_killed_worker_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    path, finished = tmp_path / "results.jsonl", []
    many = Plan(tuple(setting for setting, _ in TASKS[:3]), runs=500, tuning_seeds=1)

    def kill_one(done: Run) -> None:
        if not finished:
            multiprocessing.active_children()[0].kill()
        finished.append(done)

    words = "a worker process was killed, probably for want of memory; the runs before"
    with Results(path) as results, pytest.raises(OSError, match=words):
        carry_out(many, results, real=None, workers=2, started=NOTHING, finished=kill_one)
    with Results(path, read_only=True) as results:
        assert sorted(bits(results.runs())) == sorted(bits(finished))
    assert len(list(finished_runs(TASKS, real=None, workers=2))) == len(TASKS)  # the next call is well
