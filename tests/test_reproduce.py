"""The reproduction as a machine: the same rows on any number of workers, nothing lost, clear words when it stops."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import sqlite3
import numpy as np
import pytest

from poolrl.paper import sweeps, trials
from poolrl.paper.reproduce import Plan, carry_out, plan
from poolrl.paper.results import FORMAT, Results
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import BASE, SCALES, TUNED, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import Run, run
from poolrl.paper.tuning import resolved, tuning

SMALL = replace(BASE, horizon=2, trajectories=60, granularity=10)
NOTHING = lambda *_: None  # noqa: E731


def small_plan() -> Plan:
    settings = (
        SMALL,
        replace(SMALL, method="published", scale=TUNED),
        replace(SMALL, method="input"),
        replace(SMALL, data="normal", boundary=0.6),
    )
    return Plan(settings, runs=2, tuning_seeds=1)


def do(wanted: Plan, path: Path, *, workers: int = 1) -> list[Run]:
    with Results(path) as results:
        carry_out(wanted, results, real=None, workers=workers, started=NOTHING, finished=NOTHING)
        return results.runs()


def comparable(runs: list[Run]) -> list[str]:
    """Everything but the processor time; text, because NaN differs from itself."""
    return [str(replace(each, seconds=0.0)) for each in runs]


def test_rows_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    alone, together = (do(small_plan(), tmp_path / f"{n}.duckdb", workers=n) for n in (1, 3))
    assert comparable(alone) == comparable(together)
    assert len(alone) == 4 * 2 + len(SCALES)  # judged, and one tuning seed
    # Nor on where they are made: here, in this process.
    for each in alone:
        assert comparable([run(each.setting, each.seed)]) == comparable([each])


def test_a_second_call_runs_nothing_and_a_larger_one_only_what_is_missing(tmp_path: Path) -> None:
    path, counted = tmp_path / "results.duckdb", []
    do(small_plan(), path)
    with Results(path) as results:
        carry_out(
            replace(small_plan(), runs=3),
            results,
            real=None,
            workers=1,
            started=lambda stage, total: counted.append(total),
            finished=NOTHING,
        )
    assert counted == [0, 4]  # tuning is complete; one more seed of four settings


PROGRAM = """
import sys
from pathlib import Path
from tests.test_reproduce import do, small_plan
from dataclasses import replace
if __name__ == "__main__":
    do(replace(small_plan(), runs=40), Path(sys.argv[1]), workers=2)
"""


def test_kill_9_loses_the_runs_in_flight_and_no_others(tmp_path: Path) -> None:
    path, script = tmp_path / "results.duckdb", tmp_path / "program.py"
    script.write_text(PROGRAM)
    root = Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, str(script), str(path)], env=os.environ | {"PYTHONPATH": str(root)}, start_new_session=True
    )
    wal = path.with_name(path.name + ".wal")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (wal.exists() and wal.stat().st_size > 4000):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = do(Plan((), 1, 1), path)
    assert len(kept) >= 5
    assert process.returncode == -signal.SIGKILL
    for each in kept[:3]:
        assert comparable([run(each.setting, each.seed)]) == comparable([each])
    finished = do(small_plan(), path)  # goes on, and keeps what was there
    assert set(comparable(kept)) <= set(comparable(finished))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _running(str(script)):
        time.sleep(0.2)
    assert not _running(str(script))  # the workers went with their parent


def _running(name: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name.encode() in entry.read_bytes():
                return True
        except OSError:
            continue
    return False


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from poolrl.paper.results import Results
from poolrl.paper.trials import run
from tests.test_reproduce import SMALL
from dataclasses import replace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
first = run(SMALL, 0)
with Results(path) as results:
    results.add(first)
    size = sum(p.stat().st_size for p in path.parent.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    count = 1
    try:
        for seed in range(1, 100000):
            results.add(replace(first, seed=seed))
            count += 1
    except OSError as error:
        print(count, error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    path, root = tmp_path / "results.duckdb", Path(__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(root)},
        timeout=120,
    )
    count, _, message = answer.stdout.partition(" ")
    assert "could not write to" in message
    assert "every run before this one is kept: make room and run the same command again" in message
    with Results(path, read_only=True) as results:
        assert sorted(each.seed for each in results.runs()) == list(range(int(count)))


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there are no results at .*: run `poolrl reproduce` first"):
        Results(tmp_path / "none.duckdb", read_only=True)
    text = tmp_path / "text.duckdb"
    text.write_text("hello" * 1000)
    with pytest.raises(ValueError, match=r"text\.duckdb is not a results file .* choose another folder with --out"):
        Results(text)
    other = tmp_path / "other.duckdb"
    duckdb.connect(str(other)).execute("CREATE TABLE cheese (name VARCHAR)").close()
    with pytest.raises(ValueError, match="was written by another version \\(no poolrl results; this is"):
        Results(other)
    old = tmp_path / "old.duckdb"
    with Results(old) as results:
        results.note("format", "poolrl 0.0.9, results 1")
    with pytest.raises(
        ValueError, match=rf"another version \(poolrl 0\.0\.9, results 1; this is {re.escape(FORMAT)}\)"
    ):
        Results(old)


@pytest.mark.parametrize("writes", [0, 1, 2, 3, 4])
def test_a_file_killed_while_it_is_made_is_made_again(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, honest = [], Results._write

    def dies(self: Results, statement: str, values: list | None = None) -> None:
        if len(done) == writes:
            raise SystemExit("killed")
        done.append(statement)
        honest(self, statement, values)

    monkeypatch.setattr(Results, "_write", dies)
    with pytest.raises(SystemExit):
        Results(tmp_path / "results.duckdb")
    monkeypatch.setattr(Results, "_write", honest)
    with Results(tmp_path / "results.duckdb") as results:
        assert results.runs() == []


def test_two_writers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    program = (
        "import sys; from pathlib import Path; from poolrl.paper.results import Results; Results(Path(sys.argv[1]))"
    )
    with Results(path):
        answer = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert "is in use: another `poolrl reproduce` writes to it" in answer.stderr


def test_another_train_csv_is_refused(tmp_path: Path) -> None:
    weeks = np.zeros((10, 7, 8))
    with Results(tmp_path / "results.duckdb") as results:
        results.same_source(Rossmann(weeks, "a" * 32).md5)
        results.same_source("a" * 32)
        with pytest.raises(ValueError, match="holds runs on another train"):
            results.same_source("b" * 32)


def test_the_sweeps_are_the_papers() -> None:
    wanted = settings_of(["rq1"])
    for data in ("uniform", "rossmann"):
        for method in ("pool", "published", "input", "output"):
            rhos = {s.rho for s in wanted if (s.data, s.method) == (data, method)}
            assert {0.1, 1, 5, 10, 20, 40} <= rhos
            assert {0.01, 0.03} <= rhos
    rq2 = settings_of(["rq2"])
    for method in ("pool", "published"):
        ours = [s for s in rq2 if s.method == method and s.data == "uniform"]
        assert {s.horizon for s in ours} == {5, 10, 15, 20, 40}
        assert {s.boundary for s in ours} == {0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
        assert {2 * s.products for s in ours} == {2, 4, 6, 8, 16}
        assert {s.granularity for s in ours} == {50, 100, 200, 400, 800}
    rq3 = settings_of(["rq3"])
    for data in ("uniform", "rossmann"):
        for method in ("published", "grid", "pool"):
            found = {s.granularity for s in rq3 if (s.data, s.method) == (data, method)}
            assert found == {50, 100, 200, 400, 800}
    assert {s.trajectories for s in settings_of(["sensitivity"]) if s.data == "normal"} == {100, 1000, 10_000, 100_000}
    assert {s.products for s in wanted if s.data == "rossmann"} == {1, 2, 4, 8}
    assert all(s.horizon == 7 and s.trajectories == 66 for s in wanted if s.data == "rossmann")
    assert sweeps.RUNS == 10


def test_quick_is_part_of_the_whole_and_every_sweep_has_some() -> None:
    whole = set(settings_of(sweeps.SWEEPS))
    for name in sweeps.SWEEPS:
        quick = settings_of([name], quick=True)
        assert quick
        assert set(quick) <= whole
    assert not any(s.data == "rossmann" for s in settings_of(sweeps.SWEEPS, real_data=False))
    with pytest.raises(ValueError, match="there is no sweep 'rq9'; choose from rq1, rq2"):
        plan(["rq9"])
    with pytest.raises(ValueError, match="runs must be a whole number of at least 1, got 0"):
        plan(["rq1"], runs=0)


def test_the_scale_is_chosen_on_seeds_that_judge_nothing() -> None:
    wanted = replace(SMALL, method="published", scale=TUNED)
    assert {seed for _, seed in tuning([SMALL, wanted])} == set(TUNING_SEEDS)
    assert not set(TUNING_SEEDS) & set(range(sweeps.RUNS))
    base = run(replace(wanted, scale=0.0), 1000)
    gaps = dict(zip(SCALES, (0.5, 0.2, 0.1, 0.1, 0.9, 0.9), strict=True))
    runs = {}
    for scale, gap in gaps.items():
        for seed in TUNING_SEEDS:
            runs[replace(wanted, scale=scale), seed] = replace(base, gap=gap)
        for seed in range(3):  # a judged seed that would choose otherwise is not listened to
            runs[replace(wanted, scale=scale), seed] = replace(base, gap=-gap)
    assert resolved(wanted, runs).scale == SCALES[2]  # the smaller of two that tie
    assert resolved(SMALL, runs) == SMALL


def test_the_world_of_a_run() -> None:
    """λ < 1: nobody can beat the best policy below λ by much, and it is worse than the unrestricted one."""
    found = run(replace(BASE, horizon=3, boundary=0.2, trajectories=5000), 3)
    assert found.gap > found.gap_within + 0.01
    assert abs(found.gap_within) < 0.005
    free = run(replace(BASE, horizon=3, boundary=0.2, method="data-free"), 3)
    assert free.gap_within == pytest.approx(0, abs=0.003)  # uniform demand: the prior is the truth
    assert math.isnan(found.fell_back)
    published = run(replace(SMALL, method="published"), 0)
    assert published.clipped == 1  # the printed constants are vacuous
    assert 0 < published.empty_rings < 1
    with pytest.raises(ValueError, match="method must be one of pool, published"):
        run(Setting(method="magic"), 0)
    with pytest.raises(ValueError, match="this run needs Rossmann"):
        run(sweeps.real(BASE), 0)


def test_runs_share_their_costs_across_a_sweep() -> None:
    short, long = (trials._world(replace(SMALL, horizon=h).world, 0, None) for h in (2, 5))
    assert (short.problem.holding == long.problem.holding[:2]).all()
    assert ((long.problem.shortage >= 0) & (long.problem.shortage <= 0.5)).all()
