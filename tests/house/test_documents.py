"""Documents that point at code: every test they name exists, every link leads somewhere, every lemma has a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from attacks.targets import SHARES

from poolrl import __version__

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def anchors_of(document: Path) -> set[str]:
    """Headings as links name them: in small letters, without signs, with hyphens for blanks."""
    headings = re.findall(r"^#+ (.*)", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_is_named_exists(document: Path) -> None:
    text = document.read_text()
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text):
        assert name in functions_of(ROOT / path), f"{document.name} names {path}::{name}"
    for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", text):
        target = document.parent / link if link else document
        assert target.exists(), f"{document.name} links to {link}"
        assert not anchor or anchor in anchors_of(target), f"{document.name} links to {link}#{anchor}"


def test_every_lemma_has_a_test() -> None:
    _, *lemmas = re.split(r"^## Lemma (?=\d)", (ROOT / "docs/privacy.md").read_text(), flags=re.MULTILINE)
    assert len(lemmas) == 23
    for number, lemma in enumerate(lemmas, start=1):
        assert lemma.startswith(f"{number}:")
        assert re.search(r"tests/[\w/]+\.py::test_\w+", lemma.split("\n## ")[0]), f"lemma {number} names no test"


def test_as_many_files_are_tried_as_is_said() -> None:
    said = [
        number
        for name in ("SECURITY.md", "Makefile", "attacks/fuzz.py", "docs/threat-model.md")
        for number in re.findall(r"([\d,]{5,}) (?:hostile files|files|cases)", (ROOT / name).read_text())
    ]
    assert said == [f"{sum(SHARES.values()):,}"] * 4


def test_the_version_stands_once_and_is_repeated_where_a_file_must_have_it() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == __version__
    assert "version = " not in (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[0]


def test_the_documents_name_every_room() -> None:
    rooms = {path.name for path in (ROOT / "src/poolrl").iterdir() if (path / "__init__.py").exists()}
    table = (ROOT / "docs/architecture.md").read_text()
    assert set(re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)) == rooms
    readme = (ROOT / "README.md").read_text()
    assert all(f"{room}/" in readme for room in rooms)
