"""The rules of this folder: test modules stand alone, and what several of them share is in tests/helpers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
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


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_every_program_is_started_by_a_test_and_says_how(program: Path) -> None:
    started = f'program("{program.stem}"'
    assert any(started in path.read_text() for path in TESTS.rglob("*.py"))
    assert ast.get_docstring(ast.parse(program.read_text()))
