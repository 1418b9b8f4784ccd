"""One recorded formula: what a problem computes of a row, written down once and then evaluated on rows of any kind.

Each formula, in NumPy, is called with a symbol in the place of a row, and its work is written down. It never sees a
log. So the observation of a row cannot depend on other rows, on how many there are, or on their order. Recordings are
evaluated on arrays here, and on a table's columns in `data/expressions.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

# From the values of the parts, with the axes of a batch in front, to the value of the symbol.
RowOperation = Callable[..., Any]
# Truth values and numbers. Operations on objects of another kind are code of a user's own, which could remember rows.
_NUMBERS = "biuf"
ADVICE = "use NumPy's elementwise functions, np.where, and axis=-1 for sums over coordinates"


class NotRowByRowError(TypeError):
    """A formula does something that needs more than its own row."""


def _kept(part: Any) -> Any:
    """A copy of an array: the formula may write something else into it at the next step."""
    return part.copy() if isinstance(part, np.ndarray) else part


class Recording:
    """The operations of a formula on vectors of these shapes (or an array's), in order, as far as answers need them."""

    def __init__(self, formula: Callable[..., Any], shapes: Iterable[tuple[int, ...] | NDArray[Any]]) -> None:
        trace: list[Symbol] = []
        self.inputs = [Symbol(np.ones(shape) if isinstance(shape, tuple) else shape, trace) for shape in shapes]
        with np.errstate(all="ignore"):  # ones may be no possible row
            found = formula(*self.inputs)
        self.single = not isinstance(found, tuple)
        self.outputs: list[Any] = [*map(_kept, [found] if self.single else found)]
        _same_trace(trace, self.outputs)
        # Each operation beside the parts that no later one needs: they are forgotten, because caches are small.
        self.order: list[tuple[Symbol, list[int]]] = []
        needed = {id(part) for part in self.outputs}
        for symbol in reversed(trace):
            if id(symbol) in needed:
                parts = {id(part) for part in symbol.parts if isinstance(part, Symbol)}
                self.order.append((symbol, [*(parts - needed)]))
                needed |= parts
        self.order.reverse()

    def __call__(self, *arrays: NDArray[Any]) -> Any:
        """What the formula gives for each row of a batch; leading axes broadcast."""
        given = list(zip(self.inputs, arrays, strict=True))
        batch = np.broadcast_shapes(*(array.shape[: array.ndim - symbol.ndim] for symbol, array in given))
        rows = [np.broadcast_to(array, (*batch, *symbol.shape)) for symbol, array in given]
        with np.errstate(all="ignore"):  # what is missing is no fault
            found = self.evaluated(rows, lambda rule, parts: rule(*parts))
        for i, part in enumerate(self.outputs):
            if not isinstance(part, Symbol):
                found[i] = np.broadcast_to(part, (*batch, *np.shape(part)))
        return found[0] if self.single else tuple(found)

    def evaluated(self, values: Sequence[Any], apply: Callable[[RowOperation, list[Any]], Any]) -> list[Any]:
        """The answers, where `apply` computes an operation of the values of its parts."""
        known = {id(symbol): value for symbol, value in zip(self.inputs, values, strict=True)}
        for symbol, last_used in self.order:
            parts = [known[id(part)] if isinstance(part, Symbol) else part for part in symbol.parts]
            known[id(symbol)] = apply(symbol.rule, parts)
            for part in last_used:
                del known[part]
        return [known[id(part)] if isinstance(part, Symbol) else part for part in self.outputs]


def record(whose: str, formula: Callable[..., Any], shapes: Iterable[tuple[int, ...] | NDArray[Any]]) -> Recording:
    """A recording, or the reason against one in words. A symbol has no numbers, so nothing is quoted here."""
    try:
        return Recording(formula, shapes)
    except (TypeError, AttributeError, IndexError, ValueError) as error:
        # In NumPy it may work, but then on a batch.
        raise ValueError(f"{whose} must treat each row by itself, but {error}: {ADVICE}") from None


class AnyStep:
    """Stands for all steps at once: a formula that looks at it is different from step to step, and must not go on."""

    def _looked_at(self, *_: Any) -> NoReturn:
        raise TypeError("the step is looked at")

    __eq__ = __ne__ = __hash__ = __bool__ = __str__ = __repr__ = __format__ = __reduce_ex__ = _looked_at


def record_steps(
    whose: str,
    formula: Callable[..., Any],
    shapes: Iterable[tuple[int, ...] | NDArray[Any]],
    steps: int,
    *,
    any_step: bool = False,
) -> list[Recording]:
    """A recording for each step, the first argument of a formula.

    With `any_step` the formula is first recorded for all of them at once. It must fail if it looks at the step, as ours
    do. Somebody else's might catch that, and would then be another formula than at its steps.
    """
    shapes = list(shapes)
    if any_step:
        with suppress(Exception):  # of a formula that looks at the step
            return [Recording(partial(formula, AnyStep()), shapes)] * steps
    return [record(whose, partial(formula, step), shapes) for step in range(steps)]


def _refused(why: str) -> Callable[..., Any]:
    """A method that needs more than one row."""

    def method(*_: Any, **__: Any) -> NoReturn:
        raise NotRowByRowError(why)

    return method


def _over_coordinates(rule: np.ufunc) -> Callable[..., Symbol]:
    """A method that reduces a vector to a number, from left to right, because NumPy's order depends on the batch."""

    def reduced(values: Symbol, axis: Any = None, keepdims: bool = False) -> Symbol:
        if axis != -1 or values.ndim == 0:
            raise NotRowByRowError("a sum, mean, maximum or the like goes over rows; say axis=-1 for coordinates")
        found = reduce(partial(_each, rule), [values[..., i] for i in range(values.shape[-1])])
        return found[..., None] if keepdims else found

    return reduced


class Symbol(NDArrayOperatorsMixin):
    """A vector (k,), or a number (), of any one row; the axes of a batch are hidden.

    It has no numbers, and remembers what a formula does with it. It refuses, in words, every operation that would look
    at several rows.
    """

    def __init__(
        self, sample: NDArray[Any], trace: list[Symbol], rule: Any = None, parts: tuple[Any, ...] = ()
    ) -> None:
        # The sample is made of ones. It carries shape and kind through NumPy's own rules.
        self.sample, self.trace, self.rule, self.parts = sample, trace, rule, tuple(map(_kept, parts))
        self.shape, self.ndim, self.dtype = sample.shape, sample.ndim, sample.dtype

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        # `x += y` names x as the place of the result; Python then rebinds x, so a new symbol does as well.
        if options.get("out") == (self,):
            del options["out"]
        if method != "__call__" or options or ufunc.signature is not None or ufunc.nout != 1:
            raise NotRowByRowError(f"np.{ufunc.__name__} is used as more than an elementwise function")
        return _each(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Iterable[type], args: Any, options: Any) -> Any:
        if function not in ROW_FUNCTIONS:
            raise NotRowByRowError(f"np.{function.__name__} is not known to work on one row at a time")
        return ROW_FUNCTIONS[function](*args, **options)

    __array__ = _refused("the numbers of a batch are asked for")
    __bool__ = _refused("`if`, `and`, `or` or `not` decides for a whole batch")
    __len__ = _refused("the length of a batch is asked for")
    __iter__ = _refused("a batch is gone through by hand")

    def __getitem__(self, place: Any) -> Symbol:
        if not isinstance(place, tuple) or not place or place[0] is not Ellipsis:
            raise NotRowByRowError("an index may choose rows; write x[..., i] for a coordinate")
        if any(isinstance(part, Symbol | bool | np.bool_) for part in place):
            # True and False are axes of their own to NumPy, which may put them before that of the batch.
            raise NotRowByRowError("coordinates are chosen by a row's own numbers, or by True or False")
        chosen = [part for part in place[1:] if not (part is None or isinstance(part, slice))]
        if len(chosen) > 1 and not all(isinstance(part, int) for part in chosen):
            # With a slice between them, NumPy would put their axis before that of the batch.
            raise NotRowByRowError("coordinates are chosen by two lists")
        return recorded(Take(tuple(map(_kept, place))), self)

    def astype(self, kind: Any) -> Symbol:
        """A cast to other numbers."""
        if np.dtype(kind).kind not in _NUMBERS:
            raise NotRowByRowError("numbers are turned into something else")
        return recorded(cast_to(np.dtype(kind)), self)

    def copy(self) -> Symbol:
        """The same numbers."""
        return self

    def clip(self, low: Any, high: Any) -> Symbol:
        """Between two limits."""
        return ROW_FUNCTIONS[np.clip](self, low, high)

    sum, prod = _over_coordinates(np.add), _over_coordinates(np.multiply)
    max, min = _over_coordinates(np.maximum), _over_coordinates(np.minimum)
    all, any = _over_coordinates(np.logical_and), _over_coordinates(np.logical_or)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        """The mean of the coordinates."""
        return self.sum(axis, keepdims) / self.shape[-1]


@dataclass(frozen=True)
class Take:
    """The operation of an index, which begins with all axes of the batch."""

    place: tuple[Any, ...]

    def __call__(self, values: NDArray[Any]) -> Any:
        """The chosen coordinates."""
        return values[self.place]


@cache
def cast_to(kind: np.dtype[Any]) -> RowOperation:
    """The operation of a cast."""
    return operator.methodcaller("astype", kind)


def joined(*parts: NDArray[Any]) -> NDArray[Any]:
    """The operation that puts the coordinates of several vectors one after the other."""
    return np.concatenate(parts, axis=-1)


def recorded(rule: RowOperation, *parts: Any) -> Symbol:
    """The symbol of an operation."""
    trace = next(part.trace for part in parts if isinstance(part, Symbol))
    _same_trace(trace, parts)
    sample = np.asarray(rule(*(part.sample if isinstance(part, Symbol) else part for part in parts)))
    symbol = Symbol(sample, trace, rule, parts)
    trace.append(symbol)
    return symbol


def _same_trace(trace: list[Symbol], parts: Iterable[Any]) -> None:
    if any(isinstance(part, Symbol) and part.trace is not trace for part in parts):
        raise NotRowByRowError("it uses a row that it was given before")


def _each(rule: RowOperation, *inputs: Any) -> Symbol:
    """An elementwise rule. Numbers get the axes of vectors beside them, so that batches line up with batches."""
    parts = [part if isinstance(part, Symbol) else np.array(part) for part in inputs]
    if any(part.dtype.kind not in _NUMBERS for part in parts):
        raise NotRowByRowError("a row is combined with something that is not a number")
    depth = max(part.ndim for part in parts)
    symbol = recorded(rule, *(_lifted(part, depth) if isinstance(part, Symbol) else part for part in parts))
    # Functions made by np.frompyfunc give objects.
    return symbol.astype(np.float64) if symbol.dtype == object else symbol


def _lifted(part: Symbol, depth: int) -> Symbol:
    new = depth - part.ndim
    return part[(..., *[None] * new, *[slice(None)] * part.ndim)] if new else part


def _where(condition: Any, *sides: Any) -> Symbol:
    if len(sides) != 2:
        raise NotRowByRowError("np.where without two sides tells which rows hold")
    return _each(np.where, condition, *sides)


def _concatenate(parts: Sequence[Any], axis: int = 0) -> Symbol:
    if axis != -1 or not all(isinstance(part, Symbol) for part in parts):
        raise NotRowByRowError("np.concatenate or np.stack joins rows; say axis=-1 for coordinates")
    return recorded(joined, *parts)


# The only functions that a formula may use besides NumPy's elementwise ones.
ROW_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.clip: lambda values, low, high: np.minimum(np.maximum(values, low), high),
    np.where: _where,
    np.isclose: lambda one, two, rtol=1e-5, atol=1e-8: abs(one - two) <= atol + rtol * abs(two),
    np.interp: lambda x, xp, fp: _each(partial(np.interp, xp=np.array(xp), fp=np.array(fp)), x),
    np.concatenate: _concatenate,
    np.stack: lambda parts, axis=0: _concatenate([part[..., None] for part in parts], axis),
    np.broadcast_to: lambda values, shape: _where(np.broadcast_to(True, shape), values, values),
    np.zeros_like: lambda values, dtype=None: np.zeros(values.shape, dtype or values.dtype),
    np.ones_like: lambda values, dtype=None: np.ones(values.shape, dtype or values.dtype),
    np.full_like: lambda values, fill, dtype=None: np.full(values.shape, fill, dtype or values.dtype),
    **{getattr(np, name): getattr(Symbol, name) for name in ("sum", "prod", "max", "min", "mean", "all", "any")},
}
