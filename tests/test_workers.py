"""Workers: the same rows on every backend, each stored by the worker that made it, clear words when one is lost."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from poolrl.paper import trials, workers
from poolrl.paper.results import Results
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import SCALES, SWEEPS, real
from poolrl.paper.trials import Run, run
from poolrl.paper.workers import AT_ONCE, Plan, finished_runs, plan_for, started, together
from tests.helpers.processes import environment, processes_of, program, wait_until
from tests.helpers.sweeps import SMALL, bits, do, small_plan, stored

pytestmark = pytest.mark.xdist_group("workers")  # which are started once
TASKS = [(replace(SMALL, rho=rho), seed) for seed in range(4) for rho in (0.5, 1.0, 2.0)]


def test_rows_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    alone, together = (do(small_plan(), tmp_path / f"{n}.sqlite", workers=n) for n in (1, 2))
    assert bits(alone) == bits(together)
    assert len(alone) == 4 * 2 + len(SCALES)  # judged, and one tuning seed
    # Nor on where they are made: here, one by one.
    assert bits(alone) == bits([run(each.setting, each.seed) for each in alone])


NEEDS = {"ray": ["ray"], "spark": ["pyspark", "joblibspark"]}


@pytest.mark.slow
@pytest.mark.parametrize("backend", NEEDS)
def test_rows_do_not_depend_on_the_backend(backend: str, tmp_path: Path) -> None:
    """A small cluster of its own, in a process of its own: two workers on this machine."""
    missing = [name for name in NEEDS[backend] if importlib.util.find_spec(name) is None]
    missing += ["Java"] if backend == "spark" and shutil.which("java") is None else []
    if missing:
        if os.environ.get("POOLRL_TEST_EVERYTHING"):
            pytest.fail(f"not installed: {', '.join(missing)}")
        pytest.skip(f"needs {' and '.join(missing)}: pip install 'poolrl[{backend}]'")
    unset = {"RAY_ADDRESS", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"}
    subprocess.run(
        program("small_sweep", tmp_path / "cluster.sqlite", backend, 2),
        check=True,
        capture_output=True,
        timeout=120,
        env={k: v for k, v in environment(SPARK_LOCAL_IP="127.0.0.1").items() if k not in unset},
    )
    with Results(tmp_path / "cluster.sqlite", read_only=True) as results:
        assert bits(results.runs()) == bits(do(small_plan(), tmp_path / "here.sqlite"))


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_stores_its_own_runs(count: int, tmp_path: Path) -> None:
    """Nobody here adds what comes back, and it is in the file; a worker on another machine could not put it there."""
    here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
    with started("loky", count) as backend:
        for path, writes in ((here, True), (there, False)):
            found = list(finished_runs(TASKS, path, real=None, backend=replace(backend, writes=writes)))
            assert sorted((each.setting, each.seed) for each in found) == sorted(TASKS)
    assert stored(here) == len(TASKS)
    assert not there.exists()


@pytest.mark.slow
def test_kill_9_loses_the_runs_in_flight_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    process = subprocess.Popen(program("small_sweep", path, "loky", 40), env=environment(), start_new_session=True)
    wait_until(lambda: stored(path) >= 5)
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
    path, found = tmp_path / "results.sqlite", []
    wrong = [(SMALL, 7), (replace(SMALL, method="magic"), 7), (replace(SMALL, rho=3.0), 7)]
    with started("loky", count) as backend:
        stream = finished_runs(wrong, path, real=None, backend=backend)
        with pytest.raises(RuntimeError, match=r"'magic'.* with seed 7 failed: there is no method 'magic'"):
            found.extend(stream)
    with Results(path, read_only=True) as results:
        assert bits(results.runs()) == bits(found) == bits([run(SMALL, 7)])


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    path.write_text("no database" * 100)
    with started("loky", 2) as backend, pytest.raises(ValueError, match="is not a results file"):
        list(finished_runs(TASKS, path, real=None, backend=backend))


def test_runs_of_one_bench_stay_together() -> None:
    tasks = plan_for(SWEEPS).tasks({})
    parts = list(together(tasks))
    assert [task for part in parts for task in part] == tasks
    assert {len({(setting.bench, seed) for setting, seed in part}) for part in parts} == {1}
    assert max(map(len, parts)) == AT_ONCE
    assert len(parts) < len(tasks) / 5


def test_every_run_has_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def spy(*arguments: object) -> Run:
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return run(*arguments)

    monkeypatch.setattr(workers, "run", spy)
    with started("loky", 1) as backend:
        list(finished_runs(TASKS[:2], tmp_path / "results.sqlite", real=None, backend=backend))
    assert set(threads) == {1}


def test_copies_of_the_weeks_share_a_bench() -> None:
    weeks = np.random.default_rng(0).uniform(0, 9000, (20, 7, 8))
    source = Rossmann(weeks, "a" * 32)
    copy = pickle.loads(pickle.dumps(source))
    bench = real(SMALL).bench
    assert trials._bench(bench, 0, source) is trials._bench(bench, 0, copy)
    assert source != Rossmann(weeks + 1, "a" * 32)


def test_backends_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no backend 'dask'; choose from loky, ray, spark"), started("dask"):
        pass
    for name, module in (("ray", "ray"), ("spark", "joblibspark.backend")):
        monkeypatch.setitem(sys.modules, module, None)
        words = rf"--backend {name} needs more packages: pip install 'poolrl\[{name}\]'"
        with pytest.raises(ValueError, match=words), started(name):
            pass
    with started() as backend:
        assert backend.workers >= 1


@pytest.mark.slow
def test_a_killed_worker_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    many = [(setting, seed) for seed in range(500) for setting, _ in TASKS[:3]]
    with started("loky", 2) as backend:
        stream = finished_runs(many, path, real=None, backend=backend)
        first = next(stream)
        os.kill(_worker(), signal.SIGKILL)
        with pytest.raises(OSError, match="a worker process was killed, probably for want of memory; the runs before"):
            list(stream)
        with Results(path, read_only=True) as results:
            kept = results.runs()
        assert bits([first])[0] in bits(kept)
        assert len(list(finished_runs(TASKS, path, real=None, backend=backend))) == len(TASKS)  # the next call is well


def _worker() -> int:
    """The process of one of our workers."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process may end meanwhile
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"LokyProcess" in (entry.parent / "cmdline").read_bytes():
                return int(entry.parent.name)
    raise AssertionError("there is no worker")
