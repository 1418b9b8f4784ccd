"""The reproduction as a plan and a file: only what is missing is run, nothing is lost, what is not ours is refused."""

from __future__ import annotations

import math
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poolrl.paper import sweeps, trials
from poolrl.paper.results import RESULTS_FORMAT, Results, resolved
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import BASE, SCALES, TUNED, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import MEASURES, Run, run
from poolrl.paper.workers import Plan, carry_out, plan_for
from tests.helpers.processes import environment, program
from tests.helpers.sweeps import NOTHING, SMALL, bits, do, small_plan


def test_a_second_call_runs_nothing_and_a_larger_one_only_what_is_missing(tmp_path: Path) -> None:
    path, counted = tmp_path / "results.sqlite", []
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


def test_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    odd = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1, 1.0, 2.0**53, math.nan, 1 / 3)
    rows = [
        Run(replace(SMALL, rho=math.inf), 0, *odd),
        Run(replace(SMALL, rho=math.inf), 1, *reversed(odd)),
        Run(replace(SMALL, rho=0.1), 0, *odd),
    ]
    with Results(path) as results:
        for row in rows:
            results.add(row)
    with Results(path, read_only=True) as results:
        found = results.runs()
    assert bits(found) == bits([rows[2], rows[0], rows[1]])  # in the order of their settings
    assert all(type(getattr(each, name)) is float for each in found for name in MEASURES)


def test_a_row_is_refused_that_is_there_already_or_is_none(tmp_path: Path) -> None:
    first = Run(replace(SMALL, rho=math.inf), 0, *[0.25] * len(MEASURES))
    with Results(tmp_path / "results.sqlite") as results:
        results.add(first)
        for wrong, words in ((replace(first, seconds=9.0), "UNIQUE"), (replace(first, seed=None), "NOT NULL")):
            with pytest.raises(OSError, match=rf"could not write to .*{words}"):
                results.add(wrong)
        assert results.runs() == [first]


def test_a_row_is_on_disk_and_can_be_read_when_it_is_added(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    with Results(path) as results, Results(path, read_only=True) as reader:
        assert results._db.execute("PRAGMA synchronous").fetchone() == (3,)  # also the folder, where the journal lay
        assert reader.runs() == []
        results.add(Run(SMALL, 0, *[0.5] * len(MEASURES)))
        assert {each.name for each in tmp_path.iterdir()} == {"results.sqlite", "results.lock"}  # nothing is left to do
        assert len(reader.runs()) == 1


def test_a_row_that_was_half_written_is_taken_back(tmp_path: Path) -> None:
    """A copy of the folder as kill -9 would leave it: the file is being changed, and its journal knows how it was."""
    path, left = tmp_path / "results.sqlite", tmp_path / "left"
    rows = [Run(SMALL, seed, *[0.5] * len(MEASURES)) for seed in range(200)]
    with Results(path) as results:
        results.add(rows[0])
        results._write("PRAGMA cache_size = 1")  # so that changes reach the file before they are complete
        results._write("BEGIN")
        for row in rows[1:]:
            results.add(row)
        shutil.copytree(tmp_path, left)
        results._write("COMMIT")
        assert len(results.runs()) == 200
    assert (left / "results.sqlite-journal").stat().st_size
    with Results(left / "results.sqlite", read_only=True) as results:
        assert results.runs() == rows[:1]


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    answer = subprocess.run(
        program("full_disk", path), capture_output=True, text=True, check=True, env=environment(), timeout=120
    )
    count, _, message = answer.stdout.partition(" ")
    assert int(count) > 1
    assert "could not write to" in message
    assert "every run before this one is kept: make room and run the same command again" in message
    with Results(path, read_only=True) as results:
        assert sorted(each.seed for each in results.runs()) == list(range(int(count)))


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there are no results at .*: run `poolrl reproduce` first"):
        Results(tmp_path / "none.sqlite", read_only=True)
    text = tmp_path / "text.sqlite"
    text.write_text("hello" * 1000)
    with pytest.raises(ValueError, match=r"text\.sqlite is not a results file, .* choose another folder with --out"):
        Results(text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE cheese (name TEXT)")
    database.close()
    before = other.read_bytes()
    with pytest.raises(ValueError, match="was written by another version \\(no poolrl results; this is"):
        Results(other)
    assert other.read_bytes() == before
    old = tmp_path / "old.sqlite"
    with Results(old) as results:
        results.note("format", "poolrl 0.0.9, results 1")
    with pytest.raises(
        ValueError, match=rf"another version \(poolrl 0\.0\.9, results 1; this is {re.escape(RESULTS_FORMAT)}\)"
    ):
        Results(old)


@pytest.mark.parametrize("writes", range(6))
def test_a_file_killed_while_it_is_made_is_made_again(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, honest = [], Results._write

    def dies(self: Results, statement: str, values: Sequence = ()) -> None:
        if len(done) == writes:
            raise SystemExit("killed")
        done.append(statement)
        honest(self, statement, values)

    monkeypatch.setattr(Results, "_write", dies)
    with pytest.raises(SystemExit):
        Results(tmp_path / "results.sqlite")
    monkeypatch.setattr(Results, "_write", honest)
    with Results(tmp_path / "results.sqlite") as results:
        assert results.runs() == []


def test_a_second_command_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    with Results(path), pytest.raises(ValueError, match="is in use: another `poolrl reproduce` writes to it"):
        Results(path)
    with Results(path), Results(path, read_only=True) as reader:
        assert reader.runs() == []


def test_another_train_csv_is_refused(tmp_path: Path) -> None:
    weeks = np.zeros((10, 7, 8))
    with Results(tmp_path / "results.sqlite") as results:
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
    assert sweeps.PAPER_RUNS == 10


def test_quick_is_part_of_the_whole_and_every_sweep_has_some() -> None:
    whole = set(settings_of(sweeps.SWEEPS))
    for name in sweeps.SWEEPS:
        quick = settings_of([name], quick=True)
        assert quick
        assert set(quick) <= whole
    assert not any(s.data == "rossmann" for s in settings_of(sweeps.SWEEPS, real_data=False))
    with pytest.raises(ValueError, match="there is no sweep 'rq9'; did you mean rq"):
        plan_for(["rq9"])
    with pytest.raises(ValueError, match="runs must be a whole number of at least 1, got 0"):
        plan_for(["rq1"], runs=0)


def test_the_scale_is_chosen_on_seeds_that_judge_nothing() -> None:
    wanted = replace(SMALL, method="published", scale=TUNED)
    _, tuning = next(Plan((SMALL, wanted), runs=1, tuning_seeds=3).stages({}))
    assert set(tuning) == {(replace(wanted, scale=scale), seed) for scale in SCALES for seed in TUNING_SEEDS}
    assert not set(TUNING_SEEDS) & set(range(sweeps.PAPER_RUNS))
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


def test_the_bench_of_a_run() -> None:
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
    with pytest.raises(ValueError, match="there is no method 'magic'; choose from pool, outcome zones"):
        run(Setting(method="magic"), 0)
    with pytest.raises(ValueError, match="this run needs Rossmann"):
        run(sweeps.real(BASE), 0)


def test_runs_share_their_costs_across_a_sweep() -> None:
    short, long = (trials._bench(replace(SMALL, horizon=h).bench, 0, None) for h in (2, 5))
    assert (short.problem.holding == long.problem.holding[:2]).all()
    assert ((long.problem.shortage >= 0) & (long.problem.shortage <= 0.5)).all()
