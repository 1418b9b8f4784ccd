"""Every small change of a module's syntax that could change what it does.

    mutants_of(text)            all of them, in the order of the text
    mutated(text, number)       the module's syntax with one of them made

Left alone: docstrings, types, decorators, imports, what an exception says, `__repr__`, and `strict=` of `zip`. Of a
sentence with values in it, the values are changed, and the sentence is emptied as a whole.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    """Other operators for an operator. Of a whole condition only the boundary: it is made true and false anyway."""
    others = _OPERATORS.get(type(op), ())
    if boundary_only:
        others = others[:1] if len(others) == 2 else ()
    return [other() for other in others]


def neighbours_of(node: ast.expr, *, condition: bool) -> Iterator[tuple[str, ast.expr]]:
    """Expressions that could stand in the place of this one, each with the name of the change."""
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


Put = Callable[[Any], None]


@dataclass(frozen=True)
class Change:
    """One mutant: where it is, what was there, and what is there now."""

    function: str  # its qualified name; empty at the level of the module
    line: int
    first: int  # the lines of the statement, or of its head: tests that run one of them may notice
    last: int
    kind: str
    old: str
    new: str

    @property
    def words(self) -> str:
        """`a < b -> a <= b`, on one line."""
        return f"{' '.join(self.old.split())} -> {' '.join(self.new.split())}"


def mutants_of(text: str) -> list[Change]:
    """Every mutant of a module."""
    return [describe() for describe, _ in _Walk(ast.parse(text)).found]


def mutated(text: str, number: int) -> ast.Module:
    """The module with its mutant of this number; lines stay where they were."""
    tree = ast.parse(text)
    _, make = _Walk(tree).found[number]
    make()
    return ast.fix_missing_locations(tree)


class _Walk:
    """Collects changes: for each a function that describes it, and one that makes it in the tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[Callable[[], Change], Callable[[], None]]] = []
        self._names: list[str] = []  # of the classes and functions around
        self._bound: list[set[str]] = [set()]  # names that have a value already, function by function
        self._lines = (1, 1)
        self._block(tree.body)

    def _add(self, kind: str, node: Any, put: Put, new: ast.AST, *, old: str = "", shown: str = "") -> None:
        """`old` and `shown` replace the texts of the node and of the new one where those are too long."""
        where = ".".join(self._names), node.lineno, *self._lines

        def describe() -> Change:
            becomes = shown or ast.unparse(ast.fix_missing_locations(new))
            return Change(*where, kind, old or ast.unparse(node), becomes)

        self.found.append((describe, lambda: put(ast.copy_location(new, node))))

    def _block(self, body: list[ast.stmt]) -> None:
        for place, node in enumerate(body):
            is_docstring = place == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._definition(node)
            elif not is_docstring and not isinstance(node, ast.Import | ast.ImportFrom) and not is_type(node):
                self._statement(node, _into(body, place))

    def _definition(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        if node.name == "__repr__":
            return
        names: set[str] = set()
        if isinstance(node, ast.FunctionDef):
            # Defaults are computed where the function is defined.
            self._lines = (node.lineno, max(node.lineno, node.body[0].lineno - 1))
            self._parts(node.args, "defaults")
            self._parts(node.args, "kw_defaults")
            names = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        self._names.append(node.name)
        self._bound.append(names)
        self._block(node.body)
        self._bound.pop()
        self._names.pop()

    def _statement(self, node: ast.stmt, put: Put) -> None:
        head = [part.end_lineno or 0 for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        inside = [part.lineno - 1 for part in getattr(node, "body", [])[:1]]
        last = max([node.lineno, *head, *inside]) if inside else node.end_lineno
        self._lines = (node.lineno, last or node.lineno)
        if drops(node, self._bound[-1]):
            self._add("removed", node, put, ast.Pass(), shown="nothing")
        self._rewritten(node, put)
        for name, _ in ast.iter_fields(node):
            # Messages of exceptions are left alone.
            if name != "annotation" and not isinstance(node, ast.Raise):
                self._parts(node, name)
        self._bound[-1] |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def _rewritten(self, node: ast.stmt, put: Put) -> None:
        """Another statement in its place, or another test, loop, or end of it."""
        if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
            self._add("return", node, put, ast.Return(ast.Constant(None)))
        elif isinstance(node, ast.If | ast.While):
            # A loop that never ends says nothing.
            for value in (True, False) if isinstance(node, ast.If) else (False,):
                self._add("condition", node.test, _onto(node, "test"), ast.Constant(value))
        elif isinstance(node, ast.For):
            self._add("loop", node.iter, _onto(node, "iter"), ast.Tuple([], ast.Load()))
        elif isinstance(node, ast.With) and not any(item.optional_vars for item in node.items):
            around = "with " + ", ".join(ast.unparse(item) for item in node.items)
            self._add("with", node, put, ast.If(ast.Constant(True), node.body, []), old=around, shown="nothing")
        elif isinstance(node, ast.AugAssign):
            for op in operators(node.op):
                self._add("arithmetic", node, put, ast.AugAssign(node.target, op, node.value))
        elif isinstance(node, ast.Try):
            # A test that runs the whole may notice.
            self._lines = (node.lineno, node.end_lineno or node.lineno)
            if node.finalbody and node.handlers:
                nothing = lambda _: node.finalbody.clear()  # noqa: E731
                self._add("finally", node.finalbody[0], nothing, ast.Pass(), shown="nothing")
            for handler in node.handlers:
                caught = f"except {ast.unparse(handler.type) if handler.type else ''}".strip()
                self._add("except", handler, _into(handler.body, slice(None), listed=True), ast.Raise(), old=caught)

    def _parts(self, owner: ast.AST, name: str) -> None:
        """Whatever stands in one field of the syntax: statements, expressions, or lists of them."""
        value = getattr(owner, name)
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            self._block(value)
        elif isinstance(value, list):
            for place, each in enumerate(value):
                self._part(each, _into(value, place), condition=name == "ifs")
        else:
            self._part(value, _onto(owner, name), condition=name == "test")

    def _part(self, node: Any, put: Put, *, condition: bool) -> None:
        if isinstance(node, ast.expr):
            self._expression(node, put, condition)
        elif isinstance(node, ast.comprehension | ast.keyword | ast.withitem | ast.ExceptHandler):
            if isinstance(node, ast.ExceptHandler):
                self._lines = (node.lineno, node.lineno)
            tests = node.ifs if isinstance(node, ast.comprehension) else []
            for place, test in enumerate(tests):
                for value in (True, False):
                    self._add("condition", test, _into(tests, place), ast.Constant(value))
            # `strict` finds mistakes of programmers, not of data.
            for name in node._fields if getattr(node, "arg", None) != "strict" else ():
                self._parts(node, name)

    def _expression(self, node: ast.expr, put: Put, condition: bool) -> None:
        for kind, new in neighbours_of(node, condition=condition):
            self._add(kind, node, put, new)
        if isinstance(node, ast.Compare):
            for place, op in enumerate(node.ops):
                for other in operators(op, boundary_only=condition and len(node.ops) == 1):
                    ops = [*node.ops[:place], other, *node.ops[place + 1 :]]
                    self._add("comparison", node, put, ast.Compare(node.left, ops, node.comparators))
        elif isinstance(node, ast.Call):
            self._call(node, put)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in SWAPPED_NAMES:
            self._add("function", node, put, ast.Attribute(node.value, SWAPPED_NAMES[node.attr], ast.Load()))
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            for name in ("lower", "upper", "step"):
                if getattr(node.slice, name) is not None:
                    kept = {n: getattr(node.slice, n) for n in ("lower", "upper", "step") if n != name}
                    self._add("slice", node, put, ast.Subscript(node.value, ast.Slice(**kept), node.ctx))
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    self._parts(part, "value")
            return
        for name, _ in ast.iter_fields(node):
            self._parts(node, name)

    def _call(self, node: ast.Call, put: Put) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in SWAPPED_NAMES:
            other = ast.Name(SWAPPED_NAMES[name], ast.Load())
            self._add("function", node, put, ast.Call(other, node.args, node.keywords))
        elif name in SAME_ARGUMENT and len(node.args) == 1:
            self._add("function", node, put, node.args[0])
        for keyword in node.keywords:
            if keyword.arg not in (None, "strict"):
                kept = [each for each in node.keywords if each is not keyword]
                shown = f"without {ast.unparse(keyword)}"
                self._add("argument", node, put, ast.Call(node.func, node.args, kept), shown=shown)


def _into(values: list[Any], place: int | slice, *, listed: bool = False) -> Put:
    def put(new: Any) -> None:
        values[place] = [new] if listed else new

    return put


def _onto(owner: ast.AST, name: str) -> Put:
    return lambda new: setattr(owner, name, new)
