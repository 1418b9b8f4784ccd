"""The mutator itself: hand-worked mutants of a small text, and planted code whose bugs are seen or not."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from attacks.mutant_map import Reasons, mutants_in
from attacks.mutant_syntax import mutants_of
from attacks.mutants import DOOR

ROOT = Path(__file__).parents[2]
# Words that stand for "the statement is gone".
NOTHING = "nothing"


def words_of(text: str) -> list[str]:
    return [change.words for change in mutants_of(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("x = a + 2", ["a + 2 -> a - 2", "2 -> 3", "2 -> 1"]),
        ("x = 'text'", ["'text' -> ''"]),
        ("x = f'of {a - 1}'", ["f'of {a - 1}' -> ''", "a - 1 -> a + 1", "1 -> 2", "1 -> 0"]),
        ("x = a and b", ["a and b -> a or b", "a and b -> b", "a and b -> a"]),
        ("x = a if b else c", ["a if b else c -> a", "a if b else c -> c"]),
        # The boundary of a whole condition, because its opposite is covered by true and false.
        ("if a > b:\n    pass", ["a > b -> True", "a > b -> False", "a > b -> a >= b"]),
        ("for a in b:\n    continue", ["b -> ()", f"continue -> {NOTHING}"]),
        ("with lock:\n    pass", [f"with lock -> {NOTHING}"]),
        ("with lock as held:\n    pass", []),
        ("check(a)", [f"check(a) -> {NOTHING}"]),
        ("x = f(a, b=c)", ["f(a, b=c) -> without b=c"]),
        ("x = int(a)", ["int(a) -> float(a)"]),
        ("x = a[b:c]", ["a[b:c] -> a[:c]", "a[b:c] -> a[b:]"]),
        ("x = [a for a in b if c]", ["c -> True", "c -> False"]),
        ("x += a", [f"x += a -> {NOTHING}", "x += a -> x -= a"]),
        # A name is not left without a value, but it can keep the one that it had.
        ("def f(a):\n    a = g(a)", [f"a = g(a) -> {NOTHING}"]),
        ("def f(a):\n    b = g(a)", []),
        ("def f(a=1):\n    return a", ["1 -> 2", "1 -> 0", "return a -> return None"]),
        ("try:\n    pass\nexcept E:\n    pass", ["except E -> raise"]),
    ],
)
def test_mutants_worked_by_hand(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected


PACKAGE = '''"""Planted code."""
LIMIT = 3


def tested(a: int) -> bool:
    return a < LIMIT


def half_tested(a: int) -> int:
    b = a + 1
    return b


def untested(a: int) -> int:
    return -a


def loop(n: int) -> int:
    while n > 0:
        n -= 1
    return n
'''
TESTS = """import time

from planted.self_test import half_tested, loop, tested

SEEN = []


def test_the_boundary() -> None:
    assert [tested(a) for a in (2, 3, 4)] == [True, False, False]


def test_half() -> None:
    assert half_tested(1) > 0


def test_the_loop_ends() -> None:
    assert loop(3) == 0


def test_that_fails_anyway() -> None:
    assert tested(5)


def test_slow() -> None:
    time.sleep(0.3)
    SEEN.append(loop(1))


def test_that_needs_another_before() -> None:
    assert SEEN and half_tested(1) > 0
"""


@pytest.mark.slow
def test_planted_bugs_are_killed_or_survive(tmp_path: Path) -> None:
    """A whole run on planted code. By the name of its module, pytest might take it for tests."""
    for name, text in {
        "src/planted/__init__.py": "",
        "src/planted/self_test.py": PACKAGE,
        "tests/test_planted.py": TESTS,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "attacks.mutants", "src/planted/self_test.py", "--root", str(tmp_path)]
    command += ["--patience", "0.3", "--json"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 1, answer.stderr
    results: list[dict[str, Any]] = json.loads(answer.stdout)["results"]

    def ended(function: str) -> dict[str, str]:
        return {f"{r['old']} -> {r['new']}": r["status"] for r in results if r["function"] == function}

    assert set(ended("tested").values()) == {"killed"}
    # Of this one tests see the sign only: 1 + 1, 1 + 2 and 1 + 0 are positive; 1 − 1 is not.
    assert ended("half_tested") == {
        "a + 1 -> a - 1": "killed",
        "1 -> 2": "survived",
        "1 -> 0": "survived",
        "return b -> return None": "killed",
    }
    assert set(ended("untested").values()) == {"uncovered"}
    assert "src/planted/self_test.py:10  1 -> 2" in answer.stderr
    assert "src/planted/self_test.py:15  -a -> a" in answer.stderr
    # The module is imported again as the mutant: nobody keeps the old value of a constant.
    assert ended("") == {"3 -> 4": "killed", "3 -> 2": "killed"}
    # A mutant that never ends counts as seen. With n >= 0 the loop goes round once more and ends one lower.
    of_loop = ended("loop")
    assert of_loop["n -= 1 -> n += 1"] == of_loop["n -= 1 -> nothing"] == "timeout"
    assert of_loop["n > 0 -> False"] == of_loop["n > 0 -> n >= 0"] == "killed"
    # Tests that fail without a mutant, or by their order alone (the quickest comes first), say nothing.
    for name in ("test_that_fails_anyway", "test_that_needs_another_before"):
        assert name in answer.stderr
        assert all(name not in result["by"] for result in results)


CODE = "def f(a):\n    b = a + 1\n    return b\nx = [1, 1]\n"


@pytest.mark.parametrize(
    ("facts", "accepted", "unused"),
    [
        ({}, ["code.py:2  1 -> 2", "code.py:2  1 -> 0"], 0),
        ({"line": "b = a + 2"}, [], 2),
        ({"function": ""}, [], 2),
        # For one place of a line, or for all of them.
        ({"function": "", "line": "x = [1, 1]", "changes": ["1 -> 2 #2"]}, ["code.py:4  1 -> 2"], 0),
        ({"function": "", "line": "x = [1, 1]", "changes": ["1 -> 2"]}, ["code.py:4  1 -> 2"] * 2, 0),
        ({"function": "", "line": "x = [1, 1]", "changes": ["1 -> 2 #3"]}, [], 1),
        ({"reason": " "}, None, 0),
    ],
)
def test_a_reason_is_written_and_holds_for_its_line_only(
    tmp_path: Path, facts: dict[str, Any], accepted: list[str] | None, unused: int
) -> None:
    (tmp_path / "code.py").write_text(CODE)
    mutants, file = mutants_in(tmp_path, ["code.py"]), tmp_path / "accepted.toml"
    usual = {
        "module": "code.py",
        "function": "f",
        "line": "b = a + 1",
        "changes": ["1 -> 2", "1 -> 0"],
        "reason": "So.",
    }
    entry = "".join(f"{name} = {json.dumps(value)}\n" for name, value in (usual | facts).items())
    file.write_text(f"[[accepted]]\n{entry}")
    if accepted is None:
        with pytest.raises(ValueError, match="without a reason"):
            Reasons.read(file, mutants)
        return
    reasons = Reasons.read(file, mutants)
    found = [mutant for mutant in mutants if reasons.reason(mutant)]
    assert [mutant.words for mutant in found] == accepted
    assert len(reasons.unused) == unused
    if "#2" in str(facts):
        assert [mutant.nth for mutant in found] == [1]


def test_modules_and_reasons_are_where_they_are_looked_for() -> None:
    """A file that moves takes its name in the list, and its reasons, with it."""
    files = {pattern: {str(file.relative_to(ROOT)) for file in ROOT.glob(pattern)} for pattern in DOOR}
    assert all(files.values())
    reasons = tomllib.loads((ROOT / "attacks/mutants_accepted.toml").read_text())["accepted"]
    assert {reason["module"] for reason in reasons} <= set().union(*files.values())
