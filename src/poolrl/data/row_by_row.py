"""Formulas of your own, recorded once and then computed for each row by itself.

A formula is called with a symbol in the place of a row, and what it does is written down (`row_symbol`). The formula
itself never sees a log. So what a row shows cannot depend on other rows, on how many there are, or on their order.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from poolrl.data.row_symbol import NotRowByRowError, RowSymbol
from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.labels import Labels
from poolrl.problems.problem import Boundary, Problem

AnyProblem = TypeVar("AnyProblem", bound=Problem)
# What counting asks of a problem, and so what must be known of each row before anything is released.
FORMULAS = ("feasible", "observe", "seen_coordinates", "next_state", "within", "unit_pair", "unit_state")
# The classes that `row_by_row` made.
_MADE: WeakSet[type] = WeakSet()
ADVICE = "use NumPy's elementwise functions, np.where, and axis=-1 for sums over coordinates"


class Recording:
    """The operations of one formula, in the order in which it made them."""

    def __init__(self, formula: Callable[..., Any], shapes: Iterable[tuple[int, ...]]) -> None:
        self.inputs = [RowSymbol(np.ones(shape)) for shape in shapes]
        with np.errstate(all="ignore"):  # ones may be no possible row
            found = formula(*self.inputs)
        self.single = not isinstance(found, tuple)
        self.outputs: list[Any] = [found] if self.single else list(found)
        self.order: list[RowSymbol] = []
        known = {id(symbol) for symbol in self.inputs}
        waiting = [part for part in reversed(self.outputs) if isinstance(part, RowSymbol)]
        while waiting:  # not by recursion: a sum over a thousand products is a thousand deep
            symbol = waiting[-1]
            needed = [part for part in symbol.parts if isinstance(part, RowSymbol) and id(part) not in known]
            if id(symbol) in known or not needed:
                waiting.pop()
                if id(symbol) not in known:
                    if symbol.rule is None:
                        raise NotRowByRowError("it uses a row that it was given before")
                    known.add(id(symbol))
                    self.order.append(symbol)
            waiting += needed

    def __call__(self, *arrays: NDArray[Any]) -> Any:
        """What the formula gives for each row of a batch; leading axes broadcast."""
        batch = np.broadcast_shapes(*(array.shape[:-1] for array in arrays))
        values = {
            id(symbol): np.broadcast_to(array, (*batch, array.shape[-1]))
            for symbol, array in zip(self.inputs, arrays, strict=True)
        }
        for symbol in self.order:
            parts = (values[id(part)] if isinstance(part, RowSymbol) else part for part in symbol.parts)
            values[id(symbol)] = symbol.rule(*parts)  # type: ignore[misc]
        found = [
            values[id(part)] if isinstance(part, RowSymbol) else np.broadcast_to(part, (*batch, *np.shape(part)))
            for part in self.outputs
        ]
        return found[0] if self.single else tuple(found)


def row_by_row(problem: AnyProblem) -> AnyProblem:
    """The same problem, whose formulas are recorded and computed for each row by itself; our own shops as they are."""
    refuse_hidden(problem)
    kind = type(problem)
    if is_our_own(problem) or kind in _MADE:
        return problem
    formulas = {name: _computed(name, kind) for name in FORMULAS if hasattr(kind, name)}
    found = copy(problem)
    # A subclass, so that the problem stays of the kind that it declares.
    made = ABCMeta(kind.__name__, (kind,), {**formulas, "__module__": kind.__module__})
    _MADE.add(made)
    found.__class__ = cast(Any, made)
    vars(found)["_recordings"] = {}
    return found


def is_our_own(problem: Problem) -> bool:
    """Whether the formulas are this package's. By `is`: a subclass may change any of them."""
    return type(problem) is LostSales or type(problem) is Backlog


def refuse_hidden(problem: Problem) -> None:
    """Refuse a problem whose formulas or bounds are not what its class says, before it meets a log."""
    kind = type(problem)
    for name in vars(problem):
        if callable(getattr(kind, name, None)):
            raise ValueError(f"{name} of {kind.__name__} was replaced on the object: write it in a class of your own")
    # Numbers of another type than NumPy's could look at the batch that they are combined with.
    sides = [f"{part}_{side}" for part in ("state", "action", "outcome", "shown") for side in ("low", "high")]
    for name in sides:
        if type(getattr(problem, name, np.zeros(1))) is not np.ndarray:
            raise ValueError(f"{name} of {kind.__name__} must be a NumPy array of numbers")
    if type(problem.boundary) is not Boundary or type(problem.boundary.share) is not np.ndarray:
        raise ValueError(f"boundary of {kind.__name__} must be a poolrl.Boundary")
    if type(problem.labels) is not Labels:
        raise ValueError(f"labels of {kind.__name__} must be the Labels of poolrl")


def _computed(name: str, kind: type[Problem]) -> Callable[..., Any]:
    plain = getattr(kind, name)

    def formula(self: Any, *given: Any) -> Any:
        if any(isinstance(part, RowSymbol) for part in given):  # asked by another formula that is being recorded
            return plain(self, *given)
        arrays = [part for part in given if isinstance(part, np.ndarray)]
        first = given[: len(given) - len(arrays)]  # the step, or nothing
        wanted = (name, *first, *(array.shape[-1] for array in arrays))
        if wanted not in self._recordings:
            shapes = [array.shape[-1:] for array in arrays]
            try:
                self._recordings[wanted] = Recording(partial(plain, self, *first), shapes)
            except (TypeError, AttributeError, IndexError) as error:
                # In NumPy it may work, but then on a batch: a symbol has no numbers, so nothing is quoted here.
                raise ValueError(
                    f"{name}() of {kind.__name__} must treat each row by itself, but {error}: {ADVICE}"
                ) from None
        return self._recordings[wanted](*arrays)

    return formula
