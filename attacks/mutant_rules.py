"""What each piece of syntax is changed into, and which statements can be left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

# Never values: names of arguments, operators, and the like.
NOT_A_VALUE = (ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.expr_context, ast.arguments, ast.alias)

# Each pair both ways.
_PAIRS = {
    "min": "max",
    "minimum": "maximum",
    "least": "greatest",
    "any": "all",
    "floor": "ceil",
    "and_": "or_",
    "logical_and": "logical_or",
    "bitwise_and": "bitwise_or",
    "int": "float",
    "startswith": "endswith",
    "add": "sub",
    "eq": "ne",
    "lt": "le",
    "gt": "ge",
    "argmin": "argmax",
    "log": "log1p",
    "exp": "expm1",
}
SWAPPED_NAMES = {
    **_PAIRS,
    **{new: old for old, new in _PAIRS.items()},
    "sum": "max",
    "rint": "floor",
    "round": "int",
    "sorted": "list",
    "reversed": "list",
    "fullmatch": "match",
    "int64": "int32",
    "float64": "float32",
    "uint64": "int64",
    "cumsum": "asarray",
    "mul": "truediv",
    "truediv": "mul",
    "searchsorted": "digitize",
}
# A call that is replaced by what it was called with.
SAME_ARGUMENT = ("abs", "bool", "set", "frozenset")

_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
    # The boundary first, then the opposite.
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


def operators(op: ast.AST, *, boundary_only: bool = False) -> list[Any]:
    """What an operator becomes. Of a whole condition only the boundary: it is made true and false anyway."""
    others = _OPERATORS.get(type(op), ())
    if boundary_only:
        others = others[:1] if len(others) == 2 else ()
    return [other() for other in others]


def neighbours_of(node: ast.expr, *, condition: bool) -> Iterator[tuple[str, ast.expr]]:
    """Expressions that could stand in the place of this one, each with its kind."""
    if isinstance(node, ast.Constant):
        yield from (("constant", ast.Constant(value)) for value in _constants(node.value))
    elif isinstance(node, ast.JoinedStr):
        yield "text", ast.Constant("")
    elif isinstance(node, ast.List | ast.Set) and node.elts and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        yield "emptied", ast.List([], ast.Load())
    elif isinstance(node, ast.Dict) and node.values:
        yield "emptied", ast.Dict([], [])
    elif isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.BitOr) and _is_union(node):
            yield from (("kind", side) for side in (node.left, node.right))
        else:
            yield from (("arithmetic", ast.BinOp(node.left, op, node.right)) for op in operators(node.op))
    elif isinstance(node, ast.BoolOp):
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "boolean", ast.BoolOp(other, node.values)
        for place in range(len(node.values)):
            kept = [value for i, value in enumerate(node.values) if i != place]
            yield "boolean", kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
    elif isinstance(node, ast.UnaryOp) and not (condition and isinstance(node.op, ast.Not)):
        yield "sign", node.operand
    elif isinstance(node, ast.IfExp):
        yield from (("condition", side) for side in (node.body, node.orelse))


def _constants(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        # An infinite or huge number has no neighbours.
        return [other for other in (value + 1, value - 1) if other != value]
    if isinstance(value, str | bytes):
        return [type(value)()] if value else ["x"] if isinstance(value, str) else [b"x"]
    return []


_KINDS = ("int", "float", "str", "bytes", "bool", "list", "tuple", "dict")


def _is_union(node: ast.expr) -> bool:
    """Whether it is a type such as int | np.integer | None, made of capitalised or built-in names."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and _is_union(node.left) and _is_union(node.right)
    if isinstance(node, ast.Attribute):
        return node.attr[0].isupper() or node.attr in ("integer", "floating", "ndarray", "generic", "bool_")
    if isinstance(node, ast.Name):
        return (node.id[0].isupper() and not node.id.isupper()) or node.id in _KINDS
    return isinstance(node, ast.Constant) and node.value is None


def is_type(node: ast.stmt) -> bool:
    """An alias for types, or a list of names for importers: neither is ever computed with."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return isinstance(node, ast.AnnAssign) and node.value is None
    value, name = node.value, node.targets[0].id
    if name in ("__all__", "__slots__"):
        return True
    if isinstance(value, ast.Subscript):
        # tuple[Numbers, ...], Literal["none", "public"], Callable[..., Any]
        of = value.value
        return isinstance(of, ast.Name) and (of.id[0].isupper() or of.id in _KINDS) and not of.id.isupper()
    return isinstance(value, ast.BinOp) and _is_union(value)


def drops(node: ast.stmt, bound: set[str]) -> bool:
    """Whether the program still makes sense without this statement, so that a test has to notice."""
    if isinstance(node, ast.Raise | ast.Assert | ast.AugAssign | ast.Delete | ast.Continue | ast.Break):
        return True
    if isinstance(node, ast.Return):
        return node.value is None
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom)
    if not isinstance(node, ast.Assign):
        return False
    # A name without a value fails at once. A name that has one keeps the old value.
    targets = [part for target in node.targets for part in getattr(target, "elts", [target])]
    return all(
        isinstance(t, ast.Attribute | ast.Subscript) or (isinstance(t, ast.Name) and t.id in bound) for t in targets
    )
