"""The rules of this folder, and the recipes of CONTRIBUTING.md, which are followed in a copy of the package."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PROGRAMS = sorted((TESTS / "helpers" / "programs").glob("[!_]*.py"))


def imported_by(path: Path) -> set[str]:
    """Every module below `tests` that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide what is imported"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "tests"}


def wrong_imports(folder: Path) -> list[str]:
    """Imports from below `tests` that are not helpers."""
    return [
        f"{path.name} imports {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in sorted(imported_by(path))
        if not name.startswith("tests.helpers.")
    ]


def test_no_test_module_imports_another() -> None:
    assert wrong_imports(TESTS) == []


@pytest.mark.parametrize(
    "line",
    [
        "from tests.test_fit import spent",
        "from tests import test_fit",
        "import tests.conftest",
        "def late():\n    from tests.test_fit import spent",
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "test_planted.py").write_text(f"{line}\n")
    assert len(wrong_imports(tmp_path)) == 1


def test_every_test_stands_in_the_room_of_what_it_tests() -> None:
    """Rooms of the package, and `house` for the project itself; helpers and recorded files are no tests."""
    rooms = {path.parent.name for path in (ROOT / "src/poolrl").glob("*/__init__.py")}
    found = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert found == rooms | {"house"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_every_program_is_started_by_a_test_and_says_how(program: Path) -> None:
    started = f'program("{program.stem}"'
    assert any(started in path.read_text() for path in TESTS.rglob("*.py"))
    assert ast.get_docstring(ast.parse(program.read_text()))


RECIPES = (ROOT / "CONTRIBUTING.md").read_text().split("## How to add")[1].split("## How the code reads")[0]
ROWS = [line.strip("|").split("|") for line in RECIPES.splitlines() if line.startswith("| `")]


def places_of(name: str) -> list[Path]:
    """Files of the project that a path of a recipe means; `<verb>` stands for any name."""
    pattern = re.sub(r"<\w+>", "*", name)
    folder = ROOT if pattern.split("/")[0] in ("tests", "docs", "benchmarks", "pyproject.toml") else ROOT / "src/poolrl"
    return list(folder.glob(pattern))


def test_every_file_of_a_recipe_is_there() -> None:
    named = [name for first, *_ in ROWS for name in re.findall(r"`([^`]+)`", first)]
    named += re.findall(r"`([\w/<>]+/[\w<>]+\.(?:py|md))`", RECIPES)
    assert len(named) > 30
    assert [name for name in named if not places_of(name)] == []
    assert places_of("workflow/config.py") == []  # a file that moved is noticed


def test_every_name_of_a_recipe_stands_in_its_file() -> None:
    """`ValueSettings` in the row of learning/planning.py is a name of that file."""
    checked = 0
    for first, second in ROWS:
        files = [path for name in re.findall(r"`([^`]+)`", first) for path in places_of(name)]
        text = "".join(path.read_text() for path in files if path.suffix == ".py")
        for name in re.findall(r"`([A-Z]\w+|[a-z]+_\w+)(?:\(\w*\))?`", second):
            checked += 1
            assert not text or re.search(rf"\b{name}\b", text), f"{name} is not in {first}"
    assert checked > 10


def in_a_copy(tmp_path: Path, changes: dict[str, tuple[str, str]], new: dict[str, str], *command: str) -> str:
    """What a command prints in a copy of the package with texts replaced and files added."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, after) in changes.items():
        path = tmp_path / "src/poolrl" / name
        assert before in path.read_text(), f"{name} has changed: the recipe is followed elsewhere"
        path.write_text(path.read_text().replace(before, after, 1))
    for name, text in new.items():
        (tmp_path / "src/poolrl" / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "COLUMNS": "300"}
    answer = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_the_recipe_for_a_verb(tmp_path: Path) -> None:
    verb = """
from poolrl.cli.verbs import verb

greet_verb = verb("greet", examples="  poolrl greet")


@greet_verb.default
def greet(*, name: str = "you") -> None:
    print(f"Good morning, {name}.")
"""
    line = {"cli/verbs.py": ("VERBS = {\n", 'VERBS = {\n    "greet": "Greet somebody.",\n')}
    command = ("-m", "poolrl.cli.main", "greet", "--name", "Ada")
    assert in_a_copy(tmp_path, line, {"cli/greet.py": verb}, *command) == "Good morning, Ada.\n"


def test_the_recipe_for_a_key(tmp_path: Path) -> None:
    """One field becomes a comment of the file, a question, and a flag."""
    field = '    weather: str = asked("dry", "dry")\n    """what the sky is like"""\n'
    place = '    """What `poolrl plan` assumes'
    before = next(
        line for line in (ROOT / "src/poolrl/workflow/config/sections.py").read_text().splitlines() if place in line
    )
    changes = {"workflow/config/sections.py": (f"{before}\n", f"{before}\n\n{field}")}
    program = """
from poolrl.cli.main import app
flags = "products=bread horizon=1 holding=1 shortage=1 demand-max=9 source=log.csv data-set=a rho=1 units=9 weather=wet"
app(["init", "--help"], result_action="return_value")
app(["init", *(f"--{flag}" for flag in flags.split())], result_action="return_value")
print(open("poolrl.toml").read())
"""
    printed = in_a_copy(tmp_path, changes, {}, "-c", program)
    assert re.search(r"--weather .*what the sky is like.*\(dry if left out\)", printed)
    assert '# what the sky is like\nweather = "wet"' in printed


def test_the_recipe_for_a_column(tmp_path: Path) -> None:
    """One field of `Columns` becomes a keyword of both ways in."""
    field = ("    period: str | None = None\n", "    period: str | None = None\n    weather: str | None = None\n")
    program = """
import pyarrow as pa
from poolrl import Table, Trajectories
names = ["week", "day", "x", "y", "z", "sky"]
rows = pa.table({name: [1.0, 2.0] for name in names[2:]} | {"week": ["a", "b"], "day": [0, 0]})
known = dict(trajectory="week", step="day", states=["x"], actions=["y"], next_states=["z"], weather="sky")
print(Table(rows, **known).columns.weather, len(Trajectories.from_table(rows, **known).states))
"""
    assert in_a_copy(tmp_path, {"data/log.py": field}, {}, "-c", program) == "sky 2\n"
