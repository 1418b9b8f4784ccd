"""How a mutant gets into a process: functions get other code, or the module is imported as the mutant.

Other code in the same function is quick, and everybody who has imported the function sees it. Code that runs while
modules are imported cannot be changed so, nor can code that numba compiles. There the whole package is imported again.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from attacks.mutant_syntax import mutated

_Cached = type(cache(int))  # what `functools.cache` makes of a function
Place = tuple[str, str, int]  # file, qualified name, first line


class LiveFunctions:
    """The functions of some files that exist in this process, by where they are defined."""

    def __init__(self, files: Sequence[str]) -> None:
        self._by_place: dict[Place, list[FunctionType]] = {}
        compiled = {id(function) for module in _modules(files) for function in _compiled_in(module)}
        self._caches = []
        for each in gc.get_objects():
            if type(each) is _Cached:
                code = getattr(each.__wrapped__, "__code__", None)  # builtins have none
                self._caches += [each] if code is not None and code.co_filename in files else []
            # By `type`: `isinstance` asks a weak proxy for its class, and what it stood for may be gone.
            if type(each) is FunctionType and each.__code__.co_filename in files and id(each) not in compiled:
                self._by_place.setdefault(_place(each.__code__), []).append(each)

    def forget(self) -> None:
        """Empty the caches of these functions: what is known from before a mutant would hide it."""
        for each in self._caches:
            each.cache_clear()

    def swap(self, file: str, text: str, number: int) -> bool:
        """Give the mutant's code to its functions; false if it changes more than functions."""
        before = compile(text, file, "exec", dont_inherit=True)
        after = compile(mutated(text, number), file, "exec", dont_inherit=True)
        if _shell(before) != _shell(after):
            return False
        old, new = dict(_functions(before)), dict(_functions(after))
        changed = [place for place in new if new[place] != old.get(place)]
        if old.keys() != new.keys() or not all(place in self._by_place for place in changed):
            return False
        # Functions inside that were made before, such as methods made by another function, live on by themselves.
        inside = {place: code for outer in changed for place, code in _inside(new[outer]) if place in self._by_place}
        for place, code in [(place, new[place]) for place in changed] + [*inside.items()]:
            for function in self._by_place[place]:
                if len(function.__code__.co_freevars) != len(code.co_freevars):
                    return False
                function.__code__ = code
        return bool(changed)


def _modules(files: Sequence[str]) -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if getattr(module, "__file__", None) in files]


def _compiled_in(module: ModuleType) -> list[object]:
    """What numba compiles: its dispatchers keep the function as `py_func`."""
    return [value.py_func for value in vars(module).values() if hasattr(value, "py_func")]


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(code: CodeType) -> Iterator[tuple[Place, CodeType]]:
    """The outermost functions below a module or class."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if part.co_flags & inspect.CO_OPTIMIZED:
                yield _place(part), part
            else:
                yield from _functions(part)


def _inside(code: CodeType) -> Iterator[tuple[Place, CodeType]]:
    """All functions inside a function."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield _place(part), part
            yield from _inside(part)


def _shell(code: CodeType) -> tuple[object, ...]:
    """A module or class without the functions inside."""
    inner = [_shell(c) for c in code.co_consts if isinstance(c, CodeType) and not c.co_flags & inspect.CO_OPTIMIZED]
    plain = [(type(c), repr(c)) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, code.co_names, plain, inner


class AsMutant(importlib.abc.MetaPathFinder):
    """Imports one module as its mutant, and leaves all others to Python."""

    def __init__(self, name: str, file: str, number: int) -> None:
        self._name, self._file, self._number = name, file, number

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Python asks every finder for every module."""
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._file, loader=_Loader(self, fullname, self._file))

    def code(self) -> CodeType:
        """The mutant."""
        return compile(mutated(Path(self._file).read_text(), self._number), self._file, "exec", dont_inherit=True)


class _Loader(importlib.machinery.SourceFileLoader):
    """The usual loader with other code, which is never cached."""

    def __init__(self, finder: AsMutant, name: str, file: str) -> None:
        super().__init__(name, file)
        self._finder = finder

    def get_code(self, fullname: str) -> CodeType:
        return self._finder.code()


def imports_of(package: Path) -> dict[Path, set[Path]]:
    """Which files of a package each of its files imports directly."""
    graph = {}
    for file in package.rglob("*.py"):
        named = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        candidates = {package.parent.joinpath(*name.split(".")).with_suffix(".py") for name in named}
        graph[file] = {each for each in candidates if each.exists() and each != file}
    return graph


def importers_of(file: Path, graph: dict[Path, set[Path]]) -> set[Path]:
    """Every file that imports it, by however many steps."""
    found: set[Path] = set()
    while new := {each for each, used in graph.items() if used & (found | {file})} - found:
        found |= new
    return found
