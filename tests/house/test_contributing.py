"""The rules of this folder, and the recipes of CONTRIBUTING.md, which are followed in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
TEXTS = {path: path.read_text() for path in TESTS.rglob("*.py")}
OTHER_TEST = re.compile(r"^\s*(?:from|import) tests\b(?!\.helpers\b).*", re.MULTILINE)


def test_a_test_module_imports_helpers_and_no_other_test() -> None:
    assert [(path.name, line) for path, text in TEXTS.items() for line in OTHER_TEST.findall(text)] == []
    for planted in ("from tests.test_fit import a", "from tests import test_fit", "    import tests.conftest"):
        assert OTHER_TEST.search(f"import pytest\n{planted}\n")


def test_every_test_stands_in_the_room_of_what_it_tests() -> None:
    """Rooms of the package, and `house` for the project itself; helpers and recorded files are no tests."""
    rooms = {path.parent.name for path in (ROOT / "src/poolrl").glob("*/__init__.py")}
    found = {path.parent.relative_to(TESTS).as_posix() for path in TEXTS if path.name.startswith("test_")}
    assert found == rooms | {"house"}


def test_every_program_is_started_by_a_test() -> None:
    programs = {path.stem for path in (TESTS / "helpers" / "programs").glob("[!_]*.py")}
    assert programs == {name for text in TEXTS.values() for name in re.findall(r'\bprogram\("(\w+)"', text)}


RECIPES = (ROOT / "CONTRIBUTING.md").read_text().split("## How to add")[1].split("## How the code reads")[0]
ROWS = [line.strip("|").split("|") for line in RECIPES.splitlines() if line.startswith("| `")]


def places_of(name: str) -> list[Path]:
    """Files of the project that a path of a recipe means; `<verb>` stands for any name."""
    pattern = re.sub(r"<\w+>", "*", name)
    folder = ROOT if pattern.split("/")[0] in ("tests", "docs", "benchmarks", "pyproject.toml") else ROOT / "src/poolrl"
    return list(folder.glob(pattern))


def test_every_file_of_a_recipe_is_there_and_holds_what_its_row_names() -> None:
    """`ValueSettings` in the row of learning/planning.py is a name of that file."""
    named = [name for first, *_ in ROWS for name in re.findall(r"`([^`]+)`", first)]
    named += re.findall(r"`([\w/<>]+/[\w<>]+\.(?:py|md))`", RECIPES)
    assert len(named) > 30
    assert [name for name in named if not places_of(name)] == []
    assert places_of("workflow/config.py") == []  # a file that moved is noticed
    checked = 0
    for first, second in ROWS:
        files = [path for name in re.findall(r"`([^`]+)`", first) for path in places_of(name)]
        text = "".join(path.read_text() for path in files if path.suffix == ".py")
        for name in re.findall(r"`([A-Z]\w+|[a-z]+_\w+)(?:\(\w*\))?`", second):
            checked += 1
            assert not text or re.search(rf"\b{name}\b", text), f"{name} is not in {first}"
    assert checked > 10


VERB = """
from poolrl.cli.verbs import verb

greet_verb = verb("  poolrl greet")


@greet_verb.default
def greet(*, name: str = "you") -> None:
    print(f"Good morning, {name}.")
"""
PROGRAM = """
import pyarrow as pa
from poolrl import Table, Trajectories
from poolrl.cli.main import app
app(["greet", "--name", "Ada"], result_action="return_value")
flags = "products=bread horizon=1 holding=1 shortage=1 demand-max=9 source=log.csv data-set=a rho=1 units=9 weather=wet"
app(["init", "--help"], result_action="return_value")
app(["init", *(f"--{flag}" for flag in flags.split())], result_action="return_value")
print(open("poolrl.toml").read())
names = ["week", "day", "x", "y", "z", "sky"]
rows = pa.table({name: [1.0, 2.0] for name in names[2:]} | {"week": ["a", "b"], "day": [0, 0]})
known = dict(trajectory="week", step="day", states=["x"], actions=["y"], next_states=["z"], weather="sky")
print(Table(rows, **known).columns.weather, len(Trajectories.from_table(rows, **known).states))
"""


def test_the_recipes_for_a_verb_a_key_and_a_column(tmp_path: Path) -> None:
    """In a copy of the package. A key is a comment of the file and a flag; a column is a keyword of both ways in."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "src/poolrl"
    (package / "cli/greet.py").write_text(VERB)
    key = '    weather: str = asked("dry", "dry")\n    """what the sky is like"""\n'
    for name, behind, added in (
        ("cli/verbs.py", r"VERBS = \{\n", '    "greet": "Greet somebody.",\n'),
        ("workflow/config/sections.py", r'    """What `poolrl plan` assumes.*\n', f"\n{key}"),
        ("data/log.py", r"    period: str \| None = None\n", "    weather: str | None = None\n"),
    ):
        text = (package / name).read_text()
        place = re.search(behind, text)
        assert place, f"{name} has changed: the recipe is followed elsewhere"
        (package / name).write_text(text[: place.end()] + added + text[place.end() :])
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "COLUMNS": "300"}
    run = [sys.executable, "-c", PROGRAM]
    answer = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "Good morning, Ada.\n" in answer.stdout
    assert re.search(r"--weather .*what the sky is like.*\(dry if left out\)", answer.stdout)
    assert '# what the sky is like\nweather = "wet"' in answer.stdout
    assert answer.stdout.endswith("sky 2\n")
