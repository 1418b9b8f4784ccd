"""The results file, a line of JSON for each finished run, on disk before the command goes on; and runs by setting."""

import json
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from poolrl import __version__
from poolrl.checks import FloatArray
from poolrl.paper.sweeps import SCALES, TUNED, TUNING_SEEDS, Setting
from poolrl.paper.trials import Run

# A new version may learn better or worse: its rows must not mix with old ones.
RESULTS_FORMAT = f"poolrl {__version__}, results 4"
ELSEWHERE = "move it away, or choose another folder with --out"


class Results:
    """A file of runs and of facts about them; a context manager. One command writes to it, and others read meanwhile.

    A line is on disk when `add` returns, so a killed command loses only the runs in flight. The file is read once.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lines: list[dict[str, Any]] = []
        if read_only and not path.exists():
            raise ValueError(f"there are no results at {path}: run `poolrl reproduce` first")
        with ExitStack() as opened:
            if not read_only:
                self._open(opened)
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]  # a killed command has half written its last line
            try:
                self._lines = [dict(json.loads(line)) for line in whole.splitlines()]
            except (ValueError, TypeError, RecursionError) as error:
                raise self._unreadable(error) from None
            held = self.fact("format") or "no poolrl results"
            if held != RESULTS_FORMAT:
                raise ValueError(
                    f"{path} was written by another version ({held}; this is {RESULTS_FORMAT}): {ELSEWHERE}"
                )
            if not read_only:
                self._file.truncate(len(whole))
            self._opened = opened.pop_all()

    def _open(self, opened: ExitStack) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:  # a killed command frees the lock
            opened.enter_context(FileLock(self.path.with_suffix(".lock")).acquire(blocking=False))
        except Timeout:
            raise ValueError(f"{self.path} is in use: another `poolrl reproduce` writes to it") from None
        self._file = opened.enter_context(self.path.open("ab", buffering=0))
        if not self._file.tell():
            self.note("format", RESULTS_FORMAT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, run: Run) -> None:
        """Store one finished run, durably."""
        self._append(asdict(run))

    def runs(self) -> list[Run]:
        """Every run, in the order of its setting and seed: the same however many processes made them."""
        try:
            runs = [Run(**line | {"setting": Setting(**line["setting"])}) for line in self._lines if "setting" in line]
            return sorted(runs, key=lambda run: (run.setting, run.seed))
        except TypeError as error:
            raise self._unreadable(error) from None

    def fact(self, name: str) -> str | None:
        """A fact about the file, as it was last noted."""
        noted = [line[name] for line in self._lines if name in line and "setting" not in line]
        return str(noted[-1]) if noted else None

    def note(self, name: str, value: str) -> None:
        """Store a fact about the file."""
        self._append({name: value})

    def same_source(self, md5: str) -> None:
        """Refuse to add runs on another train.csv to those already there."""
        before = self.fact("rossmann md5")
        if before not in (None, md5):
            raise ValueError(f"{self.path} holds runs on another train.csv (MD5 {before}); {ELSEWHERE}")
        self.note("rossmann md5", md5)

    def _append(self, content: dict[str, Any]) -> None:
        line = (json.dumps(content) + "\n").encode()
        try:
            if self._file.write(line) < len(line):
                raise OSError("the disk is full")
            os.fsync(self._file.fileno())
        except OSError as error:
            kept = "every run before this one is kept: make room and run the same command again"
            raise OSError(f"could not write to {self.path} ({error}); {kept}") from None
        self._lines.append(content)

    def _unreadable(self, error: object) -> ValueError:
        return ValueError(f"{self.path} is not a results file, or is damaged ({error}); {ELSEWHERE}")


class Runs:
    """Finished runs by setting and seed. Seeds that tuned a scale judge nothing."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {(run.setting, run.seed): run for run in runs}
        self._judging: dict[Setting, dict[int, Run]] = {}
        for run in runs:
            if run.seed not in TUNING_SEEDS:
                self._judging.setdefault(run.setting, {})[run.seed] = run
        self.seeds = len({seed for _, seed in self._runs if seed not in TUNING_SEEDS})  # how many judge

    def chosen(self, setting: Setting) -> Setting:
        """A TUNED setting with the scale that the tuning seeds chose."""
        return resolved(setting, self._runs)

    def of(self, setting: Setting) -> dict[int, Run]:
        """Its runs by seed, none if it was not run."""
        return self._judging.get(self.chosen(setting), {})

    def measured(self, setting: Setting, measure: str) -> FloatArray:
        """One measure of its runs, a number per seed."""
        return np.array([getattr(run, measure) for run in self.of(setting).values()])

    def paired(self, settings: Sequence[Setting], measure: str = "gap") -> FloatArray:
        """One row per seed that all settings share, one column per setting."""
        by_seed = [self.of(setting) for setting in settings]
        seeds = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
        values = [[getattr(runs[seed], measure) for runs in by_seed] for seed in seeds]
        return np.array(values, dtype=np.float64).reshape(len(seeds), len(settings))

    def present(self, settings: Sequence[Setting]) -> list[Setting]:
        """Those that were run."""
        return [setting for setting in settings if self.of(setting)]


def resolved(setting: Setting, runs: dict[tuple[Setting, int], Run]) -> Setting:
    """A TUNED setting with its scale filled in: the least mean gap over the tuning seeds; ties go to the smallest."""
    if setting.scale != TUNED:
        return setting

    def mean_gap(scale: float) -> float:
        gaps = [runs[key].gap for seed in TUNING_SEEDS if (key := (replace(setting, scale=scale), seed)) in runs]
        return sum(gaps) / len(gaps) if gaps else math.inf

    return replace(setting, scale=min(SCALES, key=mean_gap))
