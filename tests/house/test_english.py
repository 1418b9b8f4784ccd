"""Plain English: no "so many" for "this many", no "is none", no "hears" for a callback."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = {
    "so many": r"\b[Ss]o (?:many|few|much)\b(?! (?:as|that)\b)(?![^.;:,]*?\b(?:as|that)\b)",
    "is none": r"\b(?:[Ii]s|are|was|were|be) none\b",
    "hears": r"\b[Hh]ears?\b",
}
PLACES = (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("attacks/*.py"), *ROOT.glob("benchmarks/*.py"))
SUFFIXES = (".py", ".html", ".js", ".sql", ".toml")
PLACES += tuple(path for path in ROOT.glob("src/poolrl/**/*") if path.suffix in SUFFIXES)


def faults_of(text: str) -> list[str]:
    """The rules that a text breaks, with what breaks them. Lines of a comment or of a paragraph are read as one."""
    plain = re.sub(r"\s*\n[\s#>*]*", " ", text)
    return [f"{rule}: {match[0]}" for rule, pattern in RULES.items() for match in re.finditer(pattern, plain)]


def test_prose_is_plain() -> None:
    assert {path.name: found for path in PLACES if (found := faults_of(path.read_text()))} == {}
