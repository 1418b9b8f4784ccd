"""Which tests can notice a mutant, and why some mutants may survive.

A map from tests to the lines that they run is kept between runs. A survivor needs one written reason, kept beside the
text that it is about:

    [[accepted]]
    module = "src/poolrl/privacy/zcdp.py"
    function = "epsilon"
    line = "return max(0.0, float(best.fun))"
    changes = ["0.0 -> 1.0"]
    reason = "..."

A reason holds for this line in this function only. Where a line has the same change in several places, "0.0 -> 1.0 #2"
is the second of them. A reason whose line has changed fits no mutant any more, and is reported.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from attacks.mutant_code import imports_of
from attacks.mutant_session import Traced
from attacks.mutant_syntax import Change, mutants_of


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str  # relative to the root
    number: int
    change: Change
    text: str  # the line that it changes
    nth: int  # of those with the same words on this line

    @property
    def name(self) -> tuple[str, int, str, int]:
        """Its name in stored results."""
        return self.file, self.change.line, self.change.words, self.nth

    @property
    def words(self) -> str:
        """Where and what, for a reader."""
        return f"{self.file}:{self.change.line}  {self.change.words}"


def mutants_in(root: Path, files: Iterable[str]) -> list[Mutant]:
    """Every mutant of some files."""
    found = []
    for file in files:
        text = (root / file).read_text()
        lines = text.splitlines()
        seen: Counter[tuple[int, str]] = Counter()
        for number, change in enumerate(mutants_of(text)):
            place = change.line, change.words
            found.append(Mutant(file, number, change, lines[change.line - 1].strip(), seen[place]))
            seen[place] += 1
    return found


def digest(path: Path) -> str:
    """What a file holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class TestMap:
    """The code that each test runs. It is kept for a file of tests until this file or a mutated module changes."""

    __test__ = False  # for pytest, which looks at names

    def __init__(self, root: Path, stored: Path, modules: Sequence[str]) -> None:
        self._root, self._stored = root, stored
        facts = json.loads(stored.read_text()) if stored.exists() else {"files": {}, "imported": {}}
        self._modules = {module: digest(root / module) for module in modules}
        self.files: dict[str, Traced] = {}
        self._facts = facts["files"]
        self.imported: dict[str, list[int]] = facts["imported"]
        for file, known in self._facts.items():
            same = all(known["modules"].get(module) == now for module, now in self._modules.items())
            if same and (root / file).exists() and known["digest"] == digest(root / file):
                self.files[file] = Traced.from_facts(known["traced"])

    def stale(self, files: Sequence[str]) -> list[str]:
        """Files of tests that are to be traced again."""
        return [file for file in files if file not in self.files]

    def add(self, file: str, traced: str) -> None:
        """The answer of one trace."""
        facts = json.loads(traced)
        self.files[file] = Traced.from_facts(facts)
        self._facts[file] = {"digest": digest(self._root / file), "modules": self._modules, "traced": facts}

    def set_aside(self, name: str) -> None:
        """A test that passed when it was traced, but fails among others."""
        file = name.split("::")[0]
        traced = self.files[file]
        kept = {each: ran for each, ran in traced.tests.items() if each != name}
        self.add(file, Traced(kept, sorted({*traced.failed, name})).to_json())

    def save(self) -> None:
        """Keep it for the next run."""
        self._stored.parent.mkdir(exist_ok=True)
        self._stored.write_text(json.dumps({"files": self._facts, "imported": self.imported}))

    def failed(self, files: Sequence[str]) -> list[str]:
        """Tests that fail without any mutant, which say nothing."""
        return [name for file in files for name in self.files[file].failed]


class Chooser:
    """Chooses the tests of a mutant, the cheapest first."""

    def __init__(self, root: Path, package: Path, known: TestMap, files: Sequence[str], seconds: float) -> None:
        self._root, self._known, self._seconds = root, known, seconds
        self._graph = imports_of(package)
        self._cheapest = [(name, ran) for file in files for name, ran in known.files[file].tests.items()]
        self._cheapest.sort(key=lambda named: named[1].cost)
        self._of_line: dict[tuple[str, int], set[int]] = {}
        self._of_file: dict[str, set[int]] = {}
        for place, (_, ran) in enumerate(self._cheapest):
            for file, lines in ran.hits.items():
                for line in lines:
                    self._of_line.setdefault((file, line), set()).add(place)
            for file in (*ran.hits, *ran.files):
                self._of_file.setdefault(file, set()).add(place)

    def at_import(self, mutant: Mutant) -> bool:
        """Whether it runs while modules are imported, too or only then, which is over when tests run."""
        return not set(_span(mutant)).isdisjoint(self._known.imported.get(mutant.file, ()))

    def chosen(self, mutant: Mutant, *, at_import: bool = False) -> tuple[dict[str, float], int]:
        """Tests that run the mutated line with their seconds, as many as there is time for; and how many do in all.

        Those that use what it defines, if it is to be run while modules are imported.
        """
        using, spent = self._using(mutant) if at_import else set(), 0.0
        covering = sorted(self._covering(mutant, at_import), key=lambda place: (place not in using, place))
        kept: dict[str, float] = {}
        for place in covering:
            name, ran = self._cheapest[place]
            spent += ran.cost
            # Tests that import what they do not use hardly ever notice.
            if kept and spent > (self._seconds if place in using or not using else self._seconds / 10):
                break
            kept[name] = ran.cost
        return kept, len(covering)

    def _using(self, mutant: Mutant) -> set[int]:
        """Tests that run a line with a name which the mutated statement defines.

        Far more tests import a constant than use it, and there is no time for all of them.
        """
        names = defined_at((self._root / mutant.file).read_text(), mutant.change.line)
        return set[int]().union(*(self._of_name.get(name, set()) for name in names))

    @cached_property
    def _of_name(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for file in {file for file, _ in self._of_line}:
            for number, line in enumerate((self._root / file).read_text().splitlines(), 1):
                for name in set(re.findall(r"[^\W\d]\w*", line)):
                    found.setdefault(name, set()).update(self._of_line.get((file, number), ()))
        return found

    def _covering(self, mutant: Mutant, at_import: bool) -> set[int]:
        whole = self._of_file.get(mutant.file, set())
        if at_import:
            # Its value may be used wherever the module is imported.
            users = [file for file, used in self._graph.items() if self._root / mutant.file in used]
            return whole.union(*(self._of_file.get(str(file.relative_to(self._root)), set()) for file in users))
        found = set().union(*(self._of_line.get((mutant.file, line), set()) for line in _span(mutant)))
        # Compiled code has no lines that could be traced.
        return found or (whole if "njit" in (self._root / mutant.file).read_text() else found)


def defined_at(text: str, line: int) -> set[str]:
    """The names that the statement at a line of a module defines: of a function, a class, or what is assigned."""
    return _defined_in(ast.parse(text).body, line)


def _defined_in(body: Sequence[ast.stmt], line: int) -> set[str]:
    for node in body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        if first <= line <= (node.end_lineno or node.lineno):
            if isinstance(node, ast.ClassDef):
                # A class is used far more often than one of its methods.
                inside = _defined_in(node.body, line)
                return {node.name} if inside <= {"__init__"} else inside
            if isinstance(node, ast.FunctionDef):
                return {node.name}
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            return {each.id for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name)}
    return set()


def _span(mutant: Mutant) -> range:
    return range(mutant.change.first, mutant.change.last + 1)


Key = tuple[str, str, str, str]  # module, function, line, change


class Reasons:
    """Reasons by mutant."""

    def __init__(self, by_key: dict[Key, str], mutants: Sequence[Mutant]) -> None:
        self._by_key = by_key
        there = {key for mutant in mutants for key in _keys(mutant)}
        modules = {mutant.file for mutant in mutants}
        # Of modules that were not asked for, nothing is known.
        self.unused = [" | ".join(key) for key in by_key if key[0] in modules and key not in there]

    @classmethod
    def read(cls, path: Path, mutants: Sequence[Mutant]) -> Reasons:
        """The reasons of a file; a file that does not exist has no reasons."""
        entries = tomllib.loads(path.read_text())["accepted"] if path.exists() else []
        by_key = {}
        for entry in entries:
            if not entry["reason"].strip():
                raise ValueError(f"a mutant of {entry['module']} is accepted without a reason: {entry['line']}")
            for change in entry["changes"]:
                by_key[entry["module"], entry["function"], entry["line"], change] = entry["reason"]
        return cls(by_key, mutants)

    def reason(self, mutant: Mutant) -> str:
        """Why it may survive; empty if it may not."""
        return next((self._by_key[key] for key in _keys(mutant) if key in self._by_key), "")


def _keys(mutant: Mutant) -> tuple[Key, Key]:
    """For every place of this change on its line, and for this place alone."""
    where = mutant.file, mutant.change.function, mutant.text
    return (*where, mutant.change.words), (*where, f"{mutant.change.words} #{mutant.nth + 1}")
