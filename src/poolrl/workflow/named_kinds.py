"""The kind that a configuration names: one of the registry, or yours by its import path.

[problem]
kind = "reserve-auction"          # one of KINDS
kind = "hospital:Beds"            # class Beds of the module hospital, beside the configuration or installed
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from poolrl.problems.problem import Problem
from poolrl.problems.registry import KINDS

# The folder whose modules a configuration may name; None where it is not trusted to name code at all.
_TRUSTED: ContextVar[Path | None] = ContextVar("trusted", default=None)


@contextmanager
def code_beside(configuration: Path) -> Iterator[None]:
    """Let a configuration name a problem of one's own. Never for one that a stranger sent: a name is code that runs."""
    folder = configuration.resolve().parent
    before = _TRUSTED.set(folder)
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def problem_kind(name: str) -> type[Problem]:
    """The class that a configuration names."""
    if name in KINDS:
        return KINDS[name]
    module, sign, attribute = name.partition(":")
    if not (module and sign and attribute):
        near = get_close_matches(name, KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(KINDS)}"
        raise ValueError(f"kind {name!r} is not known; {hint} Your own problem is named module:Class")
    folder = _TRUSTED.get()
    if folder is None:
        raise ValueError(
            f"kind {name!r} is code of somebody's own, which runs when it is named: give the configuration yourself, "
            "with --config, if you trust it"
        )
    sys.path.insert(0, str(folder))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"kind {name!r} cannot be imported: {error}") from None
    finally:
        sys.path.remove(str(folder))
    if not (isinstance(found, type) and issubclass(found, Problem)) or inspect.isabstract(found):
        raise ValueError(f"kind {name!r} must be a complete subclass of poolrl.Problem")
    return found


def arguments_of(kind: type[Problem]) -> dict[str, Any]:
    """The constructor's keywords but labels, with their defaults; `inspect.Parameter.empty` where one is needed."""
    found = inspect.signature(kind).parameters
    return {name: each.default for name, each in found.items() if name not in ("self", "labels")}


def own_problem(problem: Problem) -> Problem | None:
    """A problem of the user's own, without which a file of it cannot be read."""
    return None if type(problem) in KINDS.values() else problem
