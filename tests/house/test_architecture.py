"""The import graph is the privacy proof: what learning can reach, it could leak."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import poolrl

SOURCE = Path(poolrl.__file__).parent

# The house as one table: each room, and the rooms that it may import. A room uses rooms above it only, so there is no
# cycle of rooms. Nothing that learns can reach `data`.
ROOMS = {
    # room          may import
    "problems":     "",
    "geometry":     "problems",
    "data":         "problems geometry",
    "privacy":      "problems geometry",
    "ledger":       "privacy",
    "learning":     "problems geometry privacy",
    "certificate":  "problems privacy ledger learning",
    "pool":         "problems geometry data privacy learning",
    "plans":        "problems geometry privacy learning",
    "simulation":   "problems geometry privacy learning",
    "audit":        "problems geometry data privacy learning pool",
    "paper":        "problems geometry data privacy learning pool simulation audit",
    "workflow":     "problems geometry data privacy learning plans pool simulation ledger certificate",
    "cli":          "problems geometry data privacy learning plans pool simulation ledger certificate workflow audit paper",  # noqa: E501
}  # fmt: skip
# Single files that every room may use; they import nothing of the house.
TOOLS = ("checks", "npz", "interrupts")
# Single modules that may do more: the door reads logs, and simulated logs are made.
DOORS = {"privacy.release": "data", "simulation.logs": "data"}
# What must never come near a log, by however many steps.
KEPT_APART = (
    "problems",
    "geometry",
    "learning",
    "plans",
    "ledger",
    "certificate",
    "simulation.evaluation",
    "simulation.families",
)


# The package itself re-exports everything, so importing from it is importing anything.
ROOT = "the package"


@functools.cache
def tree_of(text: str) -> ast.Module:
    """A module's syntax; most are the same in every copy of the package that something is planted into.

    What stands below `if TYPE_CHECKING:` never runs, so nothing can be reached by it.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    return tree


@functools.cache
def imports_in(text: str) -> list[str]:
    """The names that a module imports, wherever in it."""
    names: list[str] = []
    for node in ast.walk(tree_of(text)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative imports hide the graph: {ast.unparse(node)}"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@functools.cache
def peeking_in(text: str) -> list[str]:
    return [what for node in ast.walk(tree_of(text)) for what in _peeking(node)]


def texts_of(source: Path) -> dict[str, str]:
    """Every file of a package by its path in it; a plant is one more, or a longer one."""
    return {str(path.relative_to(source)): path.read_text() for path in source.rglob("*.py")}


def import_graph(texts: dict[str, str]) -> dict[str, set[str]]:
    """What each module below `poolrl` imports of it."""
    inside = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in texts}
    graph: dict[str, set[str]] = {}
    for name, text in texts.items():
        module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        graph[module] = {target for each in imports_in(text) if (target := _module_of(inside, each))}
    return graph


def _module_of(inside: set[str], name: str) -> str | None:
    """`poolrl.data.counts.OutcomeCounts` → `data.counts`."""
    parts = name.split(".")
    if parts[0] != "poolrl" or parts[1:] == ["__version__"]:
        return None
    ends = (".".join(parts[1:end]) for end in range(len(parts), 1, -1))
    return next((module for module in ends if module in inside), ROOT)


def room_of(module: str) -> str:
    return module.split(".")[0]


def violations(texts: dict[str, str]) -> list[str]:
    """Every import that breaks the table, every cycle, and every detour by which learning could reach a log."""
    graph = import_graph(texts)
    found = []
    for module, target in sorted((module, target) for module, targets in graph.items() for target in targets):
        room, other = room_of(module), room_of(target)
        allowed = (*TOOLS, room, *ROOMS.get(room, "").split(), DOORS.get(module))
        if room != "__init__" and (other not in allowed or room in TOOLS):
            found.append(f"{module} imports {target}")
        if f"{target.replace('.', '/')}/__init__.py" in texts:  # its modules could then be had by their names
            found.append(f"{module} imports the whole room {target}")
    for start in KEPT_APART:
        for module in _reachable({m for m in graph if m == start or m.startswith(f"{start}.")}, graph):
            if room_of(module) == "data" or module == "privacy.release":
                found.append(f"{start} reaches {module}")
    found += [f"{module} imports itself by a detour" for module in _in_cycles(graph)]
    for name, text in texts.items():
        room = name.split("/")[0].removesuffix(".py")
        if name.endswith("/__init__.py") and len(tree_of(text).body) > 1:
            found.append(f"{name} holds more than its docstring")  # it runs whenever anything of its room is imported
        # `importlib.metadata` reads versions, and imports nothing more.
        text = re.sub(r"^from importlib\.metadata import [\w, ]+$", "", text, flags=re.MULTILINE)
        dynamic = ("importlib", "__import__", "sys.modules", "exec(", "eval(")
        if room not in ("__init__", "cli", "workflow") and any(word in text for word in dynamic):
            found.append(f"{name} imports dynamically")
        if room in ("learning", "geometry", "problems", "checks", "npz"):
            found += [f"{name} {what}" for what in peeking_in(text)]
    return found


def _peeking(node: ast.AST) -> list[str]:
    """How code could look behind what it is given, or make a log of it."""
    if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
        return [f"looks behind {node.attr}"]
    if isinstance(node, ast.Attribute) and node.attr == "simulate_log":
        return ["makes a log, whose class reads logs"]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        return [] if _is_own(node.args[0]) else ["looks behind names with getattr"]
    if isinstance(node, ast.Name) and node.id in ("vars", "attrgetter", "inspect", "gc"):
        return [f"looks behind names with {node.id}"]
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.name.split(".")[0] for alias in node.names} | {getattr(node, "module", None)}
        return [f"imports {name}" for name in names & {"inspect", "gc", "sys", "attrgetter", "poolrl"}]
    return []


def _in_cycles(graph: dict[str, set[str]]) -> list[str]:
    """Modules that can reach themselves; the package's front page, which everything is reached from, is left out."""
    inner = {module: targets - {ROOT} for module, targets in graph.items() if module != "__init__"}
    return sorted(module for module, targets in inner.items() if module in _reachable(targets, inner))


def _is_private(name: str) -> bool:
    return name.startswith("_") and name not in ("__name__", "__setattr__")


def _is_own(value: ast.expr) -> bool:
    # `super()` is what the class itself declares to build on.
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super":
        return not value.args
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _reachable(start: set[str], graph: dict[str, set[str]]) -> set[str]:
    seen, frontier = set(start), set(start)
    while frontier:
        frontier = set[str]().union(*(graph.get(module, set()) for module in frontier)) - seen
        seen |= frontier
    return seen


PACKAGE = texts_of(SOURCE)


def test_the_barrier_holds() -> None:
    assert "data.counts" in import_graph(PACKAGE)["privacy.release"]  # the parser sees the one allowed arrow
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("learning/backward_induction.py", "from poolrl.data.counts import VisitCounts"),
        ("learning/policy.py", "def peek():\n    import poolrl.data.trajectories"),
        ("learning/trees.py", "from poolrl.privacy.release import release_outcomes"),
        ("learning/trees.py", "from poolrl.privacy import release"),
        ("geometry/partition.py", "import importlib; importlib.import_module('poolrl.data.counts')"),
        ("privacy/zcdp.py", "from poolrl.data.counts import count_outcomes"),
        ("privacy/noise/secure.py", "from poolrl.data import trajectories"),
        ("problems/problem.py", "from poolrl.data.trajectories import Trajectories"),
        ("simulation/evaluation.py", "from poolrl.pool import Pool"),
        ("learning/backward_induction.py", "from poolrl import Trajectories"),
        ("learning/backward_induction.py", "def peek(released):\n    return released.transitions._counts.pairs"),
        ("learning/backward_induction.py", "def peek(released):\n    return getattr(released.transitions, '_counts')"),
        ("learning/backward_induction.py", "def peek(released):\n    return released.transitions.__dict__"),
        ("learning/backward_induction.py", "import poolrl\nlog = poolrl.Trajectories"),
        ("simulation/evaluation.py", "from poolrl import Pool"),
        ("problems/problem.py", "from poolrl import Pool"),
        ("checks.py", "import importlib; importlib.import_module('poolrl.data.counts')"),
        ("geometry/partition.py", "from poolrl.data.log import Log"),
        ("simulation/evaluation.py", "from poolrl.data.trajectories import Trajectories"),
        ("simulation/evaluation.py", "from poolrl.simulation.logs import simulate_log"),
        ("checks.py", "from poolrl.problems.problem import Problem"),
        ("geometry/partition.py", "def peek(released):\n    return released.transitions._counts.pairs"),
        ("geometry/partition.py", "def peek(released):\n    return getattr(released.transitions, '_counts')"),
        ("privacy/__init__.py", "from poolrl.privacy.release import release_outcomes"),
        ("learning/backward_induction.py", "from poolrl import privacy\nrelease = privacy.release"),
        ("learning/backward_induction.py", "import poolrl.privacy.guarantee\nlog = poolrl.Trajectories"),
        ("learning/backward_induction.py", "from operator import attrgetter\npeek = attrgetter('_counts')"),
        ("learning/backward_induction.py", "from sys import modules\nlogs = modules['poolrl.data.table']"),
        (
            "learning/backward_induction.py",
            "def peek(problem):\n    return type(problem.simulate_log([])).from_parquet('log')",
        ),
        ("ledger/ledger.py", "from poolrl.data.periods import sketch_of"),
        ("certificate/leaflet.py", "from poolrl.workflow.config_file import load_config"),
        ("workflow/release_folder.py", "from poolrl.paper.trials import run"),
        ("learning/trees.py", "def late():\n    from poolrl.learning.estimation import estimate_outcomes"),
        ("problems/problem.py", "def f():\n    __import__('poolrl.data.counts')"),
    ],
)
def test_a_planted_leak_is_caught(module: str, line: str) -> None:
    assert violations(PACKAGE | {module: f"{PACKAGE[module]}\n{line}\n"})


def test_every_room_has_its_row() -> None:
    """A new room is put into the table before it can be used."""
    names = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names == {*ROOMS, *TOOLS, "__init__"}


def test_public_names_exist() -> None:
    for name in poolrl.__all__:
        assert getattr(poolrl, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = poolrl.Nonsense
