"""The house in figures: how much there is, what imports what, and where a kind of problem is asked for.

python -m benchmarks.house                         this checkout
python -m benchmarks.house --source OLD/src        another one, for comparison
python -m benchmarks.house --commands              also the modules that `decide` and `fit` load (half a minute)
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
# A line that asks which kind of problem it has, outside the room of problems. Types below `problems/` that promise
# something (`OutcomeProblem`) are no kinds.
KINDS = "Inventory|LostSales|Backlog|Depot|Rounds|ReserveAuction|DynamicPricing|FirstPriceBidding"
OF_KINDS = "KindFacts|ProblemFacts|ShopFacts|DeclaredFacts|KindForecast|ShopTrade|RoundTrade"
ASKS = re.compile(
    rf"isinstance\([^)]*\b({KINDS}|{OF_KINDS})\b|\bcounts_down\b|\bin (SHOPS|KINDS)\b|words [!=]= |WORDS_OF_SHOPS"
    r"|(?<!dtype)\.kind [!=]= \"(?!(key|open|unit|read|reserve|commit|void|budget)\")"
)
# Counts the package's modules when the release of a fit gets its name, which is before its page is drawn.
COUNTER = """
import os, sys
def loaded():
    return sum(name.split(".")[0] == "poolrl" for name in sys.modules)
def hook(event, args):
    if event == "os.rename" and str(args[1]).endswith("release"):
        print("MODULES", loaded(), file=sys.stderr)
sys.addaudithook(hook)
from poolrl.cli.main import app
app(sys.argv[1:], result_action="return_value")
print("MODULES", loaded(), file=sys.stderr)
"""


@functools.cache
def modules(source: Path) -> dict[str, str]:
    """Every module below `poolrl` by its dotted name, with its text."""
    paths = sorted((source / "poolrl").rglob("*.py"))
    return {".".join(path.relative_to(source).with_suffix("").parts): path.read_text() for path in paths}


@functools.cache
def imports(source: Path, *, when_loaded: bool = False) -> dict[str, frozenset[str]]:
    """The imports of each module: anywhere but for types, or only when it is loaded itself."""
    known = modules(source)
    graph = {}
    for name, text in known.items():
        tree = ast.parse(text)
        nodes: list[ast.AST] = list(tree.body) if when_loaded else list(ast.walk(_without_types(tree)))
        targets = set()
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                parts = [f"{node.module}.{alias.name}" for alias in node.names]
                targets |= {part if part in known else node.module for part in parts}
            elif isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
        graph[name] = frozenset(targets & known.keys() - {name})
    return graph


def _without_types(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    return tree


def files(source: Path) -> dict[str, str]:
    """Modules that are not the front page of a room."""
    return {name: text for name, text in modules(source).items() if not name.endswith("__init__")}


def lines(source: Path) -> int:
    """All lines of the package."""
    return sum(text.count("\n") for text in modules(source).values())


def rooms(source: Path) -> dict[str, tuple[int, int]]:
    """Lines and files of each room; single files stand together."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, text in modules(source).items():
        room = name.split(".")[1] if name.count(".") > 1 else "single files"
        found[room][0] += text.count("\n")
        found[room][1] += name in files(source)
    return {room: (size[0], size[1]) for room, size in sorted(found.items())}


def longest_chain(source: Path) -> list[str]:
    """The longest way from one module to another by imports that loading makes."""
    graph = imports(source, when_loaded=True)

    @functools.cache
    def chain(name: str) -> tuple[str, ...]:
        ways: list[tuple[str, ...]] = [chain(target) for target in graph[name]]
        return (name, *max(ways, key=len)) if ways else (name,)

    longest = max((chain(name) for name in files(source)), key=len)
    return list(longest)


def single_importers(source: Path) -> list[str]:
    """Files that one file imports, but for verbs and for the work of one verb, which only the verb calls."""
    importers = defaultdict(set)
    for name, targets in imports(source).items():
        for target in targets:
            importers[target].add(name)
    return [
        name
        for name in files(source)
        if len(importers[name]) == 1
        and ".cli." not in name
        and ".cli." not in next(iter(importers[name]))
        and not _named_by_path(source, name)
    ]


def _named_by_path(source: Path, name: str) -> bool:
    """Whether a trade's import path names it, so that it is an entry point."""
    return any(f'"{name}:' in text for text in modules(source).values())


def repeated_names(source: Path) -> list[str]:
    """Base names that two files outside the command line share."""
    names = Counter(name.rsplit(".", 1)[1] for name in files(source) if ".cli." not in name)
    return sorted(name for name, count in names.items() if count > 1)


def asking_lines(source: Path) -> list[str]:
    """Lines that ask which kind of problem it is, as `module: line`."""
    return [
        f"{name}: {line.strip()}"
        for name, text in files(source).items()
        if not name.startswith("poolrl.problems.")
        for line in text.splitlines()
        if ASKS.search(line) and not line.startswith(("from ", "import ", "#"))
    ]


def loaded_by_commands(source: Path) -> dict[str, int]:
    """Modules of the package behind `fit` until its release is there, and behind one `decide`, on README's example."""
    said = {}
    asked = "--step Sat --stock bread=10,milk=20,salad=5 --labels promotion=no --scale bread=70,milk=90,salad=30"
    with tempfile.TemporaryDirectory() as folder:
        for arguments in ("init --example", "fit --new-account", f"decide release/policy.npz {asked}"):
            words = arguments.split()
            answer = subprocess.run(
                [sys.executable, "-c", COUNTER, *words],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(source)},
                capture_output=True,
                text=True,
                check=True,
            )
            said[words[0]] = int(re.findall(r"MODULES (\d+)", answer.stderr)[0])
    return said


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--commands", action="store_true")
    options = parser.parse_args()
    source = options.source.resolve()
    for room, (size, count) in rooms(source).items():
        print(f"{room:>14}: {size:>6,} lines in {count:>3} files")
    print(f"in all: {lines(source):,} lines in {len(files(source))} files; {len(repeated_names(source))} names twice")
    chain, single, asking = longest_chain(source), single_importers(source), asking_lines(source)
    print(f"longest import chain: {len(chain)}, from {chain[0]} to {chain[-1]}")
    print(f"files with one importer: {len(single)}")
    in_files = {line.split(":")[0] for line in asking}
    learning = sum(line.startswith("poolrl.learning.") for line in asking)
    print(f"lines that ask for a kind: {len(asking)} in {len(in_files)} files, {learning} of them in learning/")
    if options.commands:
        for verb, count in loaded_by_commands(source).items():
            print(f"modules behind {verb}: {count}")


if __name__ == "__main__":
    main()
