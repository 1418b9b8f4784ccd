"""The rules of this folder, and the files and names that the recipes of CONTRIBUTING.md mention."""

from __future__ import annotations

import re
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
