"""The reproduction as a plan and a file: only what is missing is run, nothing is lost, what is not ours is refused."""

from __future__ import annotations

import math
import re
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poolrl.paper import sweeps, trials, workers
from poolrl.paper.results import RESULTS_FORMAT, Results, resolved
from poolrl.paper.sweeps import BASE, SCALES, TUNED, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import MEASURES, Run, run
from poolrl.paper.workers import Plan, carry_out, plan_for
from tests.helpers.sweeps import NOTHING, SMALL, bits, do, small_plan


def test_a_second_call_runs_nothing_and_a_larger_one_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counted = tmp_path / "results.jsonl", []
    monkeypatch.setattr(workers, "run", lambda setting, seed, _: Run(setting, seed, *[0.5] * len(MEASURES)))
    do(small_plan(), path)
    more: dict[str, Any] = {"started": lambda stage, total: counted.append(total), "finished": NOTHING}
    with Results(path) as results:
        carry_out(replace(small_plan(), runs=3), results, real=None, workers=1, **more)
    assert counted == [0, 4]  # tuning is complete; one more seed of four settings


def test_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    odd = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1, 1.0, 2.0**53, math.nan, 1 / 3)
    free = replace(SMALL, rho=math.inf)
    rows = [Run(free, 0, *odd), Run(free, 1, *reversed(odd)), Run(replace(SMALL, rho=0.1), 0, *odd)]
    with Results(path) as results:
        results.note("seconds", "12.5")
        for row in rows:
            results.add(row)
            with Results(path, read_only=True) as reader:  # on disk, and others can read it
                assert reader.runs()
    with Results(path, read_only=True) as results:
        found = results.runs()
        assert results.fact("seconds") == "12.5"  # of running, not those of the last fit
    assert bits(found) == bits([rows[2], rows[0], rows[1]])  # in the order of their settings
    assert all(type(getattr(each, name)) is float for each in found for name in MEASURES)


def test_a_row_that_was_half_written_is_taken_back(tmp_path: Path) -> None:
    """As kill -9 would leave it, wherever in the row it comes."""
    path = tmp_path / "results.jsonl"
    rows = [Run(SMALL, seed, *[0.5] * len(MEASURES)) for seed in range(3)]
    with Results(path) as results:
        results.add(rows[0])
        before = path.read_bytes()
        results.add(rows[1])
        row = path.read_bytes()[len(before) :]
    for end in range(0, len(row), 20):
        path.write_bytes(before + row[:end])
        with Results(path, read_only=True) as results:
            assert results.runs() == rows[:1]
        with Results(path) as results:
            results.add(rows[2])
            assert results.runs() == [rows[0], rows[2]]


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    path, limits = tmp_path / "results.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    words = "could not write to .*every run before this one is kept: make room and run the same command again"
    with Results(path) as results:
        results.add(Run(SMALL, 0, *[0.5] * len(MEASURES)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
        try:
            with pytest.raises(OSError, match=words):  # a part of the row is written
                results.add(Run(SMALL, 1, *[0.5] * len(MEASURES)))
            with pytest.raises(OSError, match=words):  # nothing is
                results.add(Run(SMALL, 1, *[0.5] * len(MEASURES)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Results(path, read_only=True) as results:
        assert [each.seed for each in results.runs()] == [0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there are no results at .*: run `poolrl reproduce` first"),
        (b"hello\n" * 9, r"results\.jsonl is not a results file, .* choose another folder with --out"),
        (b"\xff\n", "is not a results file"),
        (b"hello", r"was written by another version \(no poolrl results; this is"),
        (b'{"cheese": 1}\n', r"was written by another version \(no poolrl results; this is"),
        (
            b'{"format": "poolrl 0.0.9, results 1"}\n',
            rf"another version \(poolrl 0\.0\.9, results 1; this is {re.escape(RESULTS_FORMAT)}\)",
        ),
    ],
)
def test_files_that_are_not_ours(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    if content is not None:
        path.write_bytes(content)
    for read_only in {True, content is None}:
        with pytest.raises(ValueError, match=message):
            Results(path, read_only=read_only)
    assert content is None or path.read_bytes() == content


def test_a_second_command_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with Results(path), pytest.raises(ValueError, match="is in use: another `poolrl reproduce` writes to it"):
        Results(path)


def test_another_train_csv_is_refused(tmp_path: Path) -> None:
    with Results(tmp_path / "results.jsonl") as results:
        results.same_source("a" * 32)
        results.same_source("a" * 32)
        with pytest.raises(ValueError, match="holds runs on another train"):
            results.same_source("b" * 32)


def varied(sweep: str, field: str, **fixed: str) -> set[float]:
    """The values of a field in a sweep, among the settings with these facts."""
    wanted = (s for s in settings_of([sweep]) if all(getattr(s, name) == value for name, value in fixed.items()))
    return {getattr(setting, field) for setting in wanted}


def test_the_sweeps_are_the_papers() -> None:
    for data in ("uniform", "rossmann"):
        for method in ("pool", "published", "input", "output"):
            assert varied("rq1", "rho", data=data, method=method) >= {0.01, 0.03, 0.1, 1, 5, 10, 20, 40}
        for method in ("published", "grid", "pool"):
            assert varied("rq3", "granularity", data=data, method=method) == {50, 100, 200, 400, 800}
    for method in ("pool", "published"):
        for field, values in (
            ("horizon", {5, 10, 15, 20, 40}),
            ("boundary", {0.5, 0.6, 0.7, 0.8, 0.9, 1.0}),
            ("products", {1, 2, 3, 4, 8}),
            ("granularity", {50, 100, 200, 400, 800}),
        ):
            assert varied("rq2", field, data="uniform", method=method) == values
    assert varied("sensitivity", "trajectories", data="normal") == {100, 1000, 10_000, 100_000}
    for field, values in (("products", {1, 2, 4, 8}), ("horizon", {7}), ("trajectories", {66})):
        assert varied("rq1", field, data="rossmann") == values
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
    base, runs = Run(wanted, 0, *[0.0] * len(MEASURES)), {}
    for scale, gap in zip(SCALES, (0.5, 0.2, 0.1, 0.1, 0.9, 0.9), strict=True):
        tuned = replace(wanted, scale=scale)
        runs |= {(tuned, seed): replace(base, gap=gap) for seed in TUNING_SEEDS}
        runs |= {(tuned, seed): replace(base, gap=-gap) for seed in range(3)}  # judged seeds are not listened to
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
