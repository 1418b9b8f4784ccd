"""The mutator itself: hand-worked mutants of a small text, and planted code whose bugs are seen or not."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
import weakref
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from attacks.mutant_code import LiveFunctions
from attacks.mutant_map import Mutant, Reasons, defined_at, mutants_in
from attacks.mutant_syntax import mutants_of, mutated
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
        ("x = a == b", ["a == b -> a != b"]),
        ("x = a + 2", ["a + 2 -> a - 2", "2 -> 3", "2 -> 1"]),
        ("x = 'text'", ["'text' -> ''"]),
        ("x = True", ["True -> False"]),
        ("x = f'of {a - 1}'", ["f'of {a - 1}' -> ''", "a - 1 -> a + 1", "1 -> 2", "1 -> 0"]),
        ("x = not a", ["not a -> a"]),
        ("x = a and b", ["a and b -> a or b", "a and b -> b", "a and b -> a"]),
        ("x = a if b else c", ["a if b else c -> a", "a if b else c -> c"]),
        # The boundary of a whole condition, because its opposite is covered by true and false.
        ("if a > b:\n    pass", ["a > b -> True", "a > b -> False", "a > b -> a >= b"]),
        ("while a:\n    pass", ["a -> False"]),
        ("for a in b:\n    continue", ["b -> ()", f"continue -> {NOTHING}"]),
        ("with lock:\n    pass", [f"with lock -> {NOTHING}"]),
        ("with lock as held:\n    pass", []),
        ("check(a)", [f"check(a) -> {NOTHING}"]),
        ("x = f(a, b=c)", ["f(a, b=c) -> without b=c"]),
        ("x = max(a)", ["max(a) -> min(a)"]),
        ("x = np.floor(a)", ["np.floor -> np.ceil"]),
        ("x = int(a)", ["int(a) -> float(a)"]),
        ("x = a[b:c]", ["a[b:c] -> a[:c]", "a[b:c] -> a[b:]"]),
        ("x = [a, b]", ["[a, b] -> []"]),
        ("x = [a for a in b if c]", ["c -> True", "c -> False"]),
        ("x += a", [f"x += a -> {NOTHING}", "x += a -> x -= a"]),
        ("self.x = a", [f"self.x = a -> {NOTHING}"]),
        # A name is not left without a value, but it can keep the one that it had.
        ("def f(a):\n    a = g(a)", [f"a = g(a) -> {NOTHING}"]),
        ("def f(a):\n    b = g(a)", []),
        ("def f(a=1):\n    return a", ["1 -> 2", "1 -> 0", "return a -> return None"]),
        ("try:\n    pass\nexcept E:\n    pass", ["except E -> raise"]),
        ("x = isinstance(a, int | float)", ["int | float -> int", "int | float -> float"]),
    ],
)
def test_mutants_worked_by_hand(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected


def test_what_is_never_computed_with_is_left_alone() -> None:
    text = '''
"""Three 3."""
from __future__ import annotations
Row = tuple[int, "Other"]
Budget = Fraction | float
__all__ = ["a"]
@decorated(maxsize=3)
def f(a: Literal["x"]) -> Literal["y"]:
    """Four 4."""
    raise ValueError(f"five {5}", 6) from error
class A:
    x: int
    def __repr__(self):
        return "seven" + str(7)
'''
    assert words_of(text) == ["raise ValueError(f'five {5}', 6) from error -> nothing"]
    assert words_of("x = zip(a, b, strict=True)") == []


def test_the_code_of_a_mutant_is_what_its_words_say() -> None:
    text = "def f(a, lock):\n    with lock:\n        if a < 3:\n            return a\n    return -a\n"
    made = {change.words: ast.unparse(mutated(text, n)) for n, change in enumerate(mutants_of(text))}
    assert made["a < 3 -> a <= 3"] == ast.unparse(ast.parse(text)).replace("a < 3", "a <= 3")
    assert made["with lock -> nothing"] == ast.unparse(ast.parse(text)).replace("with lock", "if True")
    assert made["return -a -> return None"] == ast.unparse(ast.parse(text)).replace("return -a", "return None")
    assert made["-a -> a"] == ast.unparse(ast.parse(text)).replace("-a", "a")


@pytest.mark.parametrize("module", ["privacy/zcdp.py", "privacy/noise/secure.py", "data/table.py"])
def test_every_mutant_is_another_program_with_the_same_lines(module: str) -> None:
    text = (ROOT / "src" / "poolrl" / module).read_text()
    original, changes = ast.parse(text), mutants_of(text)
    assert len(changes) > 20
    for change in changes:
        # Tests that run one of these lines are asked.
        assert change.first <= change.line <= change.last, change
    for number in range(0, len(changes), 37):
        tree, change = mutated(text, number), changes[number]
        assert ast.dump(tree) != ast.dump(original), change
        compile(tree, module, "exec")
        # Outside the statement everything is where it was.
        after = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        assert after == [n.lineno for n in ast.walk(original) if isinstance(n, ast.FunctionDef)]


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


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A whole run on planted code. By the name of its module, pytest might take it for tests."""
    root = tmp_path_factory.mktemp("planted")
    (root / "src" / "planted").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "planted" / "__init__.py").write_text("")
    (root / "src" / "planted" / "self_test.py").write_text(PACKAGE)
    (root / "tests" / "test_planted.py").write_text(TESTS)
    arguments = [
        "-m",
        "attacks.mutants",
        "src/planted/self_test.py",
        "--root",
        str(root),
        "--patience",
        "0.3",
        "--json",
    ]
    answer = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.stdout, answer.stderr
    facts: dict[str, Any] = json.loads(answer.stdout)
    return facts | {"code": answer.returncode, "report": answer.stderr}


def ended(results: dict[str, Any], function: str) -> dict[str, str]:
    return {f"{r['old']} -> {r['new']}": r["status"] for r in results["results"] if r["function"] == function}


@pytest.mark.slow
def test_planted_bugs_are_killed_or_survive(results: dict[str, Any]) -> None:
    """A function whose values are checked, one of which only the sign is, and one that no test calls."""
    assert set(ended(results, "tested").values()) == {"killed"}
    half = ended(results, "half_tested")
    # 1 + 1, 1 + 2 and 1 + 0 are positive; 1 − 1 is not.
    assert half == {
        "a + 1 -> a - 1": "killed",
        "1 -> 2": "survived",
        "1 -> 0": "survived",
        "return b -> return None": "killed",
    }
    assert set(ended(results, "untested").values()) == {"uncovered"}
    assert results["code"] == 1
    assert "src/planted/self_test.py:10  1 -> 2" in results["report"]
    assert "src/planted/self_test.py:15  -a -> a" in results["report"]


@pytest.mark.slow
def test_a_constant_of_the_module_is_seen_where_it_was_imported(results: dict[str, Any]) -> None:
    """The module is imported again as the mutant: nobody keeps the old value."""
    assert ended(results, "") == {"3 -> 4": "killed", "3 -> 2": "killed"}


@pytest.mark.slow
def test_a_mutant_that_never_ends_counts_as_seen(results: dict[str, Any]) -> None:
    of_loop = ended(results, "loop")
    assert of_loop["n -= 1 -> n += 1"] == of_loop["n -= 1 -> nothing"] == "timeout"
    assert of_loop["n > 0 -> False"] == "killed"
    # n = 0 goes round once more, and the next test of n ends the loop one lower.
    assert of_loop["n > 0 -> n >= 0"] == "killed"


@pytest.mark.slow
def test_tests_that_fail_without_a_mutant_say_nothing(results: dict[str, Any]) -> None:
    assert "test_that_fails_anyway" in results["report"]
    assert all("test_that_fails_anyway" not in result["by"] for result in results["results"])


@pytest.mark.slow
def test_the_null_mutant_finds_tests_that_fail_by_their_order_alone(results: dict[str, Any]) -> None:
    """As written it passes, but the quickest test comes first: it would kill what survives."""
    assert "test_that_needs_another_before" in results["report"]
    assert all("test_that_needs_another_before" not in result["by"] for result in results["results"])


def mutants_of_planted(folder: Path) -> list[Mutant]:
    (folder / "code.py").write_text(PACKAGE)
    return mutants_in(folder, ["code.py"])


def entry(**changed: str) -> str:
    facts = {"module": "code.py", "function": "half_tested", "line": "b = a + 1", "reason": "The sign is enough."}
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in (facts | changed).items())
    return f'[[accepted]]\n{lines}changes = ["1 -> 2", "1 -> 0"]\n'


def test_names_that_a_statement_defines_worked_by_hand() -> None:
    lines = ["import os", "A: int = 2", "B, (C, D) = f(", "    1,", ")", "@cache", "def g(a=3):", "    E = 4"]
    module = "\n".join(
        [*lines, "os.call(5)", "class K:", "    F = 6", "    def m(self, a=7): ...", "    def __init__(self, a=8): ..."]
    )
    names = [set(), {"A"}, {"B", "C", "D"}, {"B", "C", "D"}, {"B", "C", "D"}, {"g"}, {"g"}, {"g"}, set(), {"K"}, {"F"}]
    assert [defined_at(module, line) for line in range(1, 14)] == [*names, {"m"}, {"K"}]


def test_a_reason_holds_for_its_line_only(tmp_path: Path) -> None:
    mutants, file = mutants_of_planted(tmp_path), tmp_path / "accepted.toml"
    file.write_text(entry())
    reasons = Reasons.read(file, mutants)
    accepted = [mutant.words for mutant in mutants if reasons.reason(mutant)]
    assert accepted == ["code.py:10  1 -> 2", "code.py:10  1 -> 0"]
    assert reasons.unused == []


@pytest.mark.parametrize("changed", [{"line": "b = a + 2"}, {"function": "tested"}])
def test_a_reason_that_fits_nothing_is_reported(tmp_path: Path, changed: dict[str, str]) -> None:
    mutants, file = mutants_of_planted(tmp_path), tmp_path / "accepted.toml"
    file.write_text(entry(**changed))
    reasons = Reasons.read(file, mutants)
    assert len(reasons.unused) == 2
    assert not any(reasons.reason(mutant) for mutant in mutants)


def test_a_reason_may_be_for_one_place_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("x = [1, 1]\n")
    mutants, file = mutants_in(tmp_path, ["code.py"]), tmp_path / "accepted.toml"
    for changes, places in ((["1 -> 2 #2"], [1]), (["1 -> 2"], [0, 1]), (["1 -> 2 #3"], [])):
        facts = {"module": "code.py", "function": "", "line": "x = [1, 1]", "changes": changes, "reason": "So."}
        file.write_text("[[accepted]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in facts.items()))
        reasons = Reasons.read(file, mutants)
        assert [m.nth for m in mutants if reasons.reason(m)] == places
        assert bool(reasons.unused) == (not places)


def test_a_reason_is_written(tmp_path: Path) -> None:
    mutants, file = mutants_of_planted(tmp_path), tmp_path / "accepted.toml"
    file.write_text(entry(reason=" "))
    with pytest.raises(ValueError, match="without a reason"):
        Reasons.read(file, mutants)


def test_modules_and_reasons_are_where_they_are_looked_for() -> None:
    """A file that moves takes its name in the list, and its reasons, with it."""
    files = {pattern: {str(file.relative_to(ROOT)) for file in ROOT.glob(pattern)} for pattern in DOOR}
    assert all(files.values())
    reasons = tomllib.loads((ROOT / "attacks/mutants_accepted.toml").read_text())["accepted"]
    assert {reason["module"] for reason in reasons} <= set().union(*files.values())


def test_a_proxy_whose_object_is_gone_stops_no_search() -> None:
    """`gc` hands out weak proxies too, and such a one fails at every question."""
    proxy = weakref.proxy(set())
    with pytest.raises(ReferenceError):
        isinstance(proxy, FunctionType)
    assert (__file__, "words_of", words_of.__code__.co_firstlineno) in LiveFunctions([__file__])._by_place
