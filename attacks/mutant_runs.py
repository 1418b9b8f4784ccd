"""Runs mutants: those of functions in copies of one process with all tests collected, the others from the start."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attacks.mutant_code import AsMutant, LiveFunctions, importers_of, imports_of
from attacks.mutant_map import Chooser, Mutant, TestMap
from attacks.mutant_session import (
    KILLED,
    NOT_HERE,
    SURVIVED,
    Ended,
    Traced,
    Tracer,
    collect,
    first_failure,
    in_children,
    limit_cpu,
    trace,
)

# Files of tests that are collected together when a mutant starts from nothing.
AT_ONCE = 4
# A test may take this many times what it takes without a mutant, and some seconds.
TIMES = 6.0


@dataclass(frozen=True)
class Plan:
    """What is run, and how."""

    root: Path
    package: Path
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    stored: Path  # the folder of the map and the results
    workers: int
    seconds: float  # of tests for each mutant
    patience: float  # seconds that a test may take longer

    def known(self) -> TestMap:
        """The map of tests as it was last stored."""
        return TestMap(self.root, self.stored / "map.json", self.modules)

    def chooser(self, known: TestMap) -> Chooser:
        """Which tests run which mutant."""
        return Chooser(self.root, self.package, known, self.tests, self.seconds)

    @property
    def limit(self) -> float:
        """After this many seconds a child does not wait for itself, but for something else."""
        return 120 + 20 * self.seconds


@dataclass(frozen=True)
class Answer:
    """How one mutant ended, and by which test."""

    place: int  # among all mutants of the run
    ended: Ended
    tests: int  # that were chosen
    covering: int  # that run the mutated line


def prepare(plan: Plan) -> None:
    """Import everything that is not mutated, once; and make tests the same in every child."""
    paths = [str(plan.package.parent), str(plan.root)]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.chdir(plan.root)
    named = set()
    for file in (*plan.package.rglob("*.py"), *(plan.root / test for test in plan.tests)):
        for line in file.read_text().splitlines():
            words = line.split()
            if line.startswith(("import ", "from ")) and words[1].split(".")[0] not in ("__future__", *_own(plan)):
                named.add(words[1].rstrip(","))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(named):
            # Extras that are not installed are not needed by any test that runs.
            with suppress(ImportError):
                importlib.import_module(name)
    _same_examples()
    _numba_cache(plan.stored / "numba")


def _own(plan: Plan) -> tuple[str, ...]:
    return plan.package.name, "tests", "attacks", "benchmarks"


def _same_examples() -> None:
    """Hypothesis tries the same examples in every child, and does not shrink what fails."""
    from hypothesis import HealthCheck, Phase, settings

    phases = (Phase.explicit, Phase.generate)
    checks = (HealthCheck.too_slow, HealthCheck.data_too_large)
    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, phases=phases, suppress_health_check=checks
    )
    settings.load_profile("mutants")


def _numba_cache(folder: Path) -> None:
    """Never the package's own: there a mutant would stay."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)


# In copies of one process


def swapped(plan: Plan, mutants: Sequence[Mutant], places: Sequence[int]) -> Iterator[Answer | str]:
    """Mutants of functions, as they end; before them the files of tests that were traced, by name."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        try:
            with os.fdopen(writes, "w", buffering=1) as pipe:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 1)
                _Collected(plan, mutants, places, pipe).run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        for line in pipe:
            facts = json.loads(line)
            if "error" in facts:
                raise RuntimeError(facts["error"])
            if "traced" in facts:
                yield str(facts["traced"])
            else:
                yield Answer(facts["place"], Ended(**facts["ended"]), facts["tests"], facts["covering"])
    os.waitpid(child, 0)


class _Collected:
    """The process that has collected all tests."""

    def __init__(self, plan: Plan, mutants: Sequence[Mutant], places: Sequence[int], pipe: Any) -> None:
        self._plan, self._mutants, self._places, self._pipe = plan, mutants, places, pipe
        self._tracer = Tracer(plan.root, plan.modules, plan.package)
        self._items: dict[str, pytest.Item] = {}

    def run(self) -> None:
        """Collect, trace what is not known, and run. Failures are told, because pytest would swallow them."""
        with self._tracer.running():
            started = collect(self._plan.root, self._plan.tests, self._told)
        if not started:
            self._say(error="no test could be collected")

    def _say(self, **facts: Any) -> None:
        self._pipe.write(json.dumps(facts) + "\n")

    def _told(self, session: pytest.Session) -> None:
        try:
            self._with_tests(session)
        except Exception:
            self._say(error=traceback.format_exc())

    def _with_tests(self, session: pytest.Session) -> None:
        sys.settrace(None)
        plan, known = self._plan, self._plan.known()
        known.imported |= self._tracer.taken().by_file()
        self._items = {item.nodeid: item for item in session.items}
        self._live = LiveFunctions([str(plan.root / module) for module in plan.modules])
        gc.collect()
        # Children would copy every page whose objects are counted. Frozen objects cannot be found any more.
        gc.freeze()
        stale = known.stale(plan.tests)
        for file, ended in in_children(stale, self._trace, workers=plan.workers, limit=1200):
            if ended.status != "survived":
                raise RuntimeError(f"{file} could not be traced: {ended}")
            known.add(file, ended.said)
            self._say(traced=file)
        self._without_mutant(known)
        known.save()
        self._texts = {module: (plan.root / module).read_text() for module in plan.modules}
        self._chooser = plan.chooser(known)
        for place, ended in in_children(self._places, self._mutant, workers=plan.workers, limit=plan.limit):
            tests, covering = self._chooser.chosen(self._mutants[place])
            self._say(place=place, ended=vars(ended), tests=len(tests), covering=covering)

    def _trace(self, file: str, folder: Path) -> int:
        items = [item for name, item in self._items.items() if name.split("::")[0] == file]
        # A file without quick tests, or one that cannot be collected.
        traced = trace(items, self._tracer, self._live.forget) if items else Traced({}, [])
        (folder / "said").write_text(traced.to_json())
        return SURVIVED

    def _without_mutant(self, known: TestMap) -> None:
        """The null mutant: nothing is changed, so it must survive. A test that fails here would kill all others too."""
        while True:
            chooser, tests = self._plan.chooser(known), dict[str, float]()
            for place in self._places:
                tests |= chooser.chosen(self._mutants[place])[0]
            # The order in which every mutant gets them: the quickest first.
            jobs = [sorted(tests, key=lambda name: tests[name])] if tests else []
            unchanged = partial(self._verdict, tests)
            ended = [ended for _, ended in in_children(jobs, unchanged, workers=1, limit=1200)]
            if all(each.status == "survived" for each in ended):
                return
            known.set_aside(ended[0].said)

    def _mutant(self, place: int, folder: Path) -> int:
        mutant = self._mutants[place]
        tests, _ = self._chooser.chosen(mutant)
        file, also_at_import = str(self._plan.root / mutant.file), self._chooser.at_import(mutant)
        if not tests:
            return NOT_HERE if also_at_import else SURVIVED
        if not self._live.swap(file, self._texts[mutant.file], mutant.number):
            return NOT_HERE
        self._live.forget()
        ended = self._verdict(tests, list(tests), folder)
        return NOT_HERE if ended == SURVIVED and also_at_import else ended

    def _verdict(self, tests: dict[str, float], names: list[str], folder: Path) -> int:
        return _verdict(self._plan, [self._items[name] for name in names], tests, folder)


def _verdict(plan: Plan, items: list[pytest.Item], tests: dict[str, float], folder: Path) -> int:
    limits = {name: plan.patience + TIMES * cost for name, cost in tests.items()}
    failed = first_failure(items, limits, folder / "said")
    return KILLED if failed else SURVIVED


# From the start


def imported(plan: Plan, mutants: Sequence[Mutant], places: Sequence[int]) -> Iterator[Answer]:
    """Mutants that run while modules are imported, as they end."""
    chooser, graph = plan.chooser(plan.known()), imports_of(plan.package)
    compiled = {file for file in graph if "njit" in file.read_text()}

    def work(place: int, folder: Path) -> int:
        mutant = mutants[place]
        tests, _ = chooser.chosen(mutant, at_import=True)
        file = plan.root / mutant.file
        if compiled & {file, *importers_of(file, graph)}:
            _numba_cache(folder / "numba")
        name = ".".join(file.relative_to(plan.package.parent).with_suffix("").parts).removesuffix(".__init__")
        sys.meta_path.insert(0, AsMutant(name, str(file), mutant.number))
        limit_cpu(plan.patience + 30.0)
        return _staged(plan, tests, folder)

    for place, ended in in_children(places, work, workers=plan.workers, limit=plan.limit):
        tests, covering = chooser.chosen(mutants[place], at_import=True)
        yield Answer(place, ended, len(tests), covering)


def _staged(plan: Plan, tests: dict[str, float], folder: Path) -> int:
    """A few files at a time, because most mutants die in the first ones."""
    files = list(dict.fromkeys(name.split("::")[0] for name in tests))
    for start in range(0, len(files), AT_ONCE):
        now = files[start : start + AT_ONCE]
        codes: list[int] = []

        def run(session: pytest.Session, now: list[str] = now, codes: list[int] = codes) -> None:
            items = {item.nodeid: item for item in session.items}
            mine = {name: cost for name, cost in tests.items() if name.split("::")[0] in now}
            if session.testsfailed or any(name not in items for name in mine):
                (folder / "said").write_text("tests could not be collected")
                codes.append(KILLED)
            else:
                codes.append(_verdict(plan, [items[name] for name in mine], mine, folder))

        if not collect(plan.root, now, run):
            (folder / "said").write_text("the package could not be imported")
            return KILLED
        if codes[0] == KILLED:
            return KILLED
    return SURVIVED
