"""The mutator itself: hand-worked mutants of a small text, and the files that it looks for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from attacks.mutant_syntax import mutants_of
from attacks.mutants import DOOR

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("x = a + 2", ["a + 2 -> a - 2", "2 -> 3", "2 -> 1"]),
        # The boundary of a whole condition, because its opposite is covered by true and false.
        ("if a > b:\n    pass", ["a > b -> True", "a > b -> False", "a > b -> a >= b"]),
    ],
)
def test_mutants_worked_by_hand(text: str, expected: list[str]) -> None:
    assert [change.words for change in mutants_of(text)] == expected


def test_modules_and_reasons_are_where_they_are_looked_for() -> None:
    """A file that moves takes its name in the list, and its reasons, with it."""
    files = {pattern: {str(file.relative_to(ROOT)) for file in ROOT.glob(pattern)} for pattern in DOOR}
    assert all(files.values())
    reasons = tomllib.loads((ROOT / "attacks/mutants_accepted.toml").read_text())["accepted"]
    assert {reason["module"] for reason in reasons} <= set().union(*files.values())
