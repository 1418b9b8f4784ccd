"""Formulas of your own, recorded once and then computed for each row by itself.

A formula is called with a symbol in the place of a row, and its work is written down (`RowSymbol`). The formula itself
never sees a log. So the observation of a row cannot depend on other rows, on how many there are, or on their order.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial, reduce
from typing import Any, NoReturn, TypeVar, cast
from weakref import WeakSet

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.labels import Labels
from poolrl.problems.problem import Boundary, Problem

AnyProblem = TypeVar("AnyProblem", bound=Problem)
# The questions that counting asks of a problem: their answers must be known for each row before anything is released.
FORMULAS = ("feasible", "observe", "seen_coordinates", "next_state", "within", "unit_pair", "unit_state")
# The classes that `row_by_row` made.
_MADE: WeakSet[type] = WeakSet()
# From the values of the parts, with the axes of a batch in front, to the value of the symbol.
RowOperation = Callable[..., NDArray[Any]]
# Truth values and numbers. Operations on objects of another kind are code of a user's own, which could remember rows.
_NUMBERS = "biuf"
_TRIED = 3
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


class NotRowByRowError(TypeError):
    """A formula does something that needs more than its own row."""


def _refused(why: str) -> Callable[..., Any]:
    """A method that needs more than one row."""

    def method(*_: Any, **__: Any) -> NoReturn:
        raise NotRowByRowError(why)

    return method


def _over_coordinates(rule: np.ufunc) -> Callable[..., RowSymbol]:
    """A method that reduces a vector to a number, from left to right, because NumPy's order depends on the batch."""

    def reduced(values: RowSymbol, axis: Any = None, keepdims: bool = False) -> RowSymbol:
        if axis != -1 or values.ndim == 0:
            raise NotRowByRowError("a sum, mean, maximum or the like goes over rows; say axis=-1 for coordinates")
        found = reduce(partial(_each, rule), [values[..., i] for i in range(values.shape[-1])])
        return found[..., None] if keepdims else found

    return reduced


class RowSymbol(NDArrayOperatorsMixin):
    """A vector (k,), or a number (), of any one row; the axes of a batch are hidden.

    It has no numbers, and remembers what a formula does with it. Every operation that it allows works on one row at a
    time. It refuses, in words, every operation that would look at several rows.
    """

    def __init__(
        self,
        sample: NDArray[Any],
        rule: RowOperation | None = None,
        parts: tuple[Any, ...] = (),
        tried: NDArray[Any] | None = None,
    ) -> None:
        # The sample is made of ones. It carries shape and kind through NumPy's own rules.
        self.sample, self.rule, self.parts = sample, rule, parts
        self.shape, self.ndim, self.dtype = sample.shape, sample.ndim, sample.dtype
        # Public rows, on which every operation is tried together and one at a time.
        self.tried = _public_rows(sample.shape) if tried is None else tried

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        # `x += y` names x as the place of the result; Python then rebinds x, so a new symbol does as well.
        if options.get("out") == (self,):
            del options["out"]
        if method != "__call__" or options or ufunc.signature is not None or ufunc.nout != 1:
            raise NotRowByRowError(f"np.{ufunc.__name__} is used as more than an elementwise function")
        return _each(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Iterable[type], args: Any, options: Any) -> Any:
        if function not in _ROW_FUNCTIONS:
            raise NotRowByRowError(f"np.{function.__name__} is not known to work on one row at a time")
        return _ROW_FUNCTIONS[function](*args, **options)

    __array__ = _refused("the numbers of a batch are asked for")
    __bool__ = _refused("`if`, `and`, `or` or `not` decides for a whole batch")
    __len__ = _refused("the length of a batch is asked for")
    __iter__ = _refused("a batch is gone through by hand")

    def __getitem__(self, place: Any) -> RowSymbol:
        if not isinstance(place, tuple) or not place or place[0] is not Ellipsis:
            raise NotRowByRowError("an index may choose rows; write x[..., i] for a coordinate")
        if any(isinstance(part, RowSymbol) for part in place):
            raise NotRowByRowError("coordinates are chosen by a row's own numbers")
        return _recorded(lambda values: values[place], self)

    def astype(self, kind: Any) -> RowSymbol:
        """A cast to other numbers."""
        if np.dtype(kind).kind not in _NUMBERS:
            raise NotRowByRowError("numbers are turned into something else")
        return _recorded(lambda values: values.astype(kind), self)

    def copy(self) -> RowSymbol:
        """The same numbers."""
        return self

    def clip(self, low: Any, high: Any) -> RowSymbol:
        """Between two limits."""
        return _clip(self, low, high)

    sum, prod = _over_coordinates(np.add), _over_coordinates(np.multiply)
    max, min = _over_coordinates(np.maximum), _over_coordinates(np.minimum)
    all, any = _over_coordinates(np.logical_and), _over_coordinates(np.logical_or)

    def mean(self, axis: Any = None, keepdims: bool = False) -> RowSymbol:
        """The mean of the coordinates."""
        return self.sum(axis, keepdims) / self.shape[-1]


def _public_rows(shape: tuple[int, ...]) -> NDArray[Any]:
    size = int(np.prod(shape))
    return (np.arange(_TRIED * size) * 0.618 % 1.0 * 4.0 - 1.0).reshape(_TRIED, *shape)


def _recorded(rule: RowOperation, *parts: Any) -> RowSymbol:
    """The rule's symbol. A rule whose rows depend on each other is refused, whatever it is called."""

    def of(choose: Callable[[RowSymbol], Any]) -> NDArray[Any]:
        return np.asarray(rule(*(choose(part) if isinstance(part, RowSymbol) else part for part in parts)))

    with np.errstate(all="ignore"):
        sample, tried = of(lambda part: part.sample), of(lambda part: part.tried)
        alone = [of(lambda part, i=i: part.tried[i : i + 1]) for i in range(_TRIED)]  # type: ignore[misc]
        if tried.shape != (_TRIED, *sample.shape) or not np.allclose(tried, np.concatenate(alone), equal_nan=True):
            raise NotRowByRowError("an operation looks at several rows")
    return RowSymbol(sample, rule, parts, tried)


def _each(rule: Callable[..., Any], *inputs: Any) -> RowSymbol:
    """An elementwise rule. Numbers get the axes of vectors beside them, so that batches line up with batches."""
    parts = [part if isinstance(part, RowSymbol) else np.array(part) for part in inputs]
    if any(part.dtype.kind not in _NUMBERS for part in parts):
        raise NotRowByRowError("a row is combined with something that is not a number")
    depth = max(part.ndim for part in parts)

    def plain(*values: Any) -> NDArray[Any]:
        found = np.asarray(rule(*values))
        return found.astype(np.float64) if found.dtype == object else found  # of np.frompyfunc

    return _recorded(plain, *(_lifted(part, depth) if isinstance(part, RowSymbol) else part for part in parts))


def _lifted(part: RowSymbol, depth: int) -> RowSymbol:
    own, new = part.ndim, (1,) * (depth - part.ndim)
    if not new:
        return part
    return _recorded(lambda v: v.reshape(v.shape[: v.ndim - own] + new + v.shape[v.ndim - own :]), part)


def _clip(values: Any, low: Any, high: Any) -> RowSymbol:
    return _each(np.minimum, _each(np.maximum, values, low), high)


def _where(condition: Any, *sides: Any) -> RowSymbol:
    if len(sides) != 2:
        raise NotRowByRowError("np.where without two sides tells which rows hold")
    return _each(np.where, condition, *sides)


def _joined(parts: Sequence[Any], axis: int = 0) -> RowSymbol:
    if axis != -1 or not all(isinstance(part, RowSymbol) for part in parts):
        raise NotRowByRowError("np.concatenate or np.stack joins rows; say axis=-1 for coordinates")
    return _recorded(lambda *values: np.concatenate(values, axis=-1), *parts)


_ROW_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.clip: _clip,
    np.where: _where,
    np.isclose: lambda one, two, rtol=1e-5, atol=1e-8: abs(one - two) <= atol + rtol * abs(two),
    np.interp: lambda x, xp, fp: _each(partial(np.interp, xp=np.array(xp), fp=np.array(fp)), x),
    np.concatenate: _joined,
    np.stack: lambda parts, axis=0: _joined([part[..., None] for part in parts], axis),
    np.broadcast_to: lambda values, shape: _each(
        lambda given, like: np.broadcast_arrays(given, like)[0], values, np.broadcast_to(True, shape)
    ),
    np.zeros_like: lambda values, dtype=None: np.zeros(values.shape, dtype or values.dtype),
    np.ones_like: lambda values, dtype=None: np.ones(values.shape, dtype or values.dtype),
    np.full_like: lambda values, fill, dtype=None: np.full(values.shape, fill, dtype or values.dtype),
    **{getattr(np, name): getattr(RowSymbol, name) for name in ("sum", "prod", "max", "min", "mean", "all", "any")},
}
