"""The README's examples, run word by word, and the demo as a user starts it."""

from __future__ import annotations

import doctest
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from poolrl import Policy, __version__
from poolrl.cli.main import app
from tests.helpers.commands import CommandLine

ROOT = Path(__file__).parent.parent


def test_the_readmes_examples() -> None:
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert results.attempted > 15
    assert results.failed == 0


@pytest.mark.parametrize(
    ("guide", "examples"), [("workflow.md", 6), ("large-logs.md", 7), ("architecture.md", 43), ("plans.md", 42)]
)
def test_the_guides_examples(guide: str, examples: int) -> None:
    results = doctest.testfile(str(ROOT / "docs" / guide), module_relative=False)
    assert results.attempted == examples
    assert results.failed == 0


def test_the_guide_prints_the_recipe_and_the_attacks_as_they_are() -> None:
    """The query of docs/workflow.md is the one that [sales] stands for, and its table of attacks is computed."""
    from poolrl.data.sources.sales import sales_query
    from poolrl.privacy.zcdp import attack_power, gaussian_attack_power
    from poolrl.workflow.config.sections import SALES_ROLES, SalesTable

    guide = (ROOT / "docs" / "workflow.md").read_text()
    plain = SalesTable(**{role: role for role in SALES_ROLES if role != "open"})
    assert sales_query(plain, labels={}) in guide
    budgets = (0.01, 0.1, 0.3, 1.0, 3.0)
    at_most = [math.ceil(1000 * attack_power(rho)) / 10 for rho in budgets]
    assert " | ".join(f"{share:.1f}%" for share in at_most) in guide
    assert " | ".join(f"{100 * gaussian_attack_power(rho):.1f}%" for rho in budgets) in guide


def shell_lines(document: Path) -> str:
    return "".join(re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL))


def test_the_command_line_understands_every_command_of_the_readme() -> None:
    """Verbs and options exist, and their values can be read; nothing is run."""
    commands = [line for line in shell_lines(ROOT / "README.md").splitlines() if line.startswith("poolrl ")]
    assert len(commands) >= 7
    for command in commands:
        app.parse_args(shlex.split(command, comments=True)[1:], exit_on_error=False, print_error=False)
    with pytest.raises(CycloptsError):
        app.parse_args(["plan", "--unitz", "100"], exit_on_error=False, print_error=False)


@pytest.mark.slow
def test_the_walk_through(tmp_path: Path) -> None:
    """The README's own lines, through a real shell and the real command line."""
    lines = shell_lines(ROOT / "README.md")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    answer = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    shop = tmp_path / "shop"
    assert {path.name for path in shop.iterdir()} - {".release.lock"} == {
        "poolrl.toml",
        "sensitive",
        "release",
        "ledger.sqlite",
        "ledger.sqlite.key",
        "ledger.sqlite.signing",
    }
    for words in ("not for release", "no row of the log was read", "Everything holds.", "order up to", "commit"):
        assert words in answer.stdout
    assert Policy.load(shop / "release" / "policy.npz").guarantee.private
    page = (shop / "release" / "report.html").read_text()
    assert 'id="levels-data"' in page
    assert "What if costs change?" in page


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_the_demo_is_the_walk_through(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its headings are commands that exist, its release holds, and its last line is a question with an answer."""
    monkeypatch.setattr("poolrl.workflow.budget.BUDGETS", (0.1,))
    monkeypatch.setattr("poolrl.workflow.budget.SIZES", (30,))
    shop = tmp_path / "shop"
    answer = command_line("demo", shop)
    assert answer.code == 0, answer.err
    commands = [shlex.split(line)[2:] for line in answer.out.splitlines() if line.startswith("$ poolrl ")]
    assert [command[0] for command in commands] == ["init", "check", "plan", "fit", "decide"]
    for command in commands:
        app.parse_args(command, exit_on_error=False, print_error=False)
    for words in ("not for release", "What a budget buys", "How large a log", "WHO IS PROTECTED", "Now open"):
        assert words in answer.out
    assert 'id="levels-data"' in (shop / "release" / "report.html").read_text()
    policy, certificate = shop / "release" / "policy.npz", shop / "release" / "certificate.json"
    assert "Everything holds" in command_line("verify", policy, certificate, "--ledger", shop / "ledger.sqlite").out
    assert "order up to" in command_line(*commands[-1]).out


def test_the_command_line_explains_itself(command_line: CommandLine) -> None:
    answer = command_line("demo", "--help")
    assert answer.code == 0
    for words in ("Write the example", "--out", "poolrl demo /tmp/shop"):
        assert words in answer.out
    answer = command_line("reproduce", "--help")
    for words in ("honest verdict", "--rossmann", "--quick", "poolrl reproduce rq1 --runs 20"):
        assert words in answer.out
    assert command_line("--version").out.strip() == __version__


def test_a_bad_argument_is_one_line(tmp_path: Path, command_line: CommandLine) -> None:
    answer = command_line("demo", tmp_path)
    assert answer.code == 1
    assert answer.err == f"poolrl: {tmp_path} exists: name another folder, or remove it\n"
    (tmp_path / "file").write_text("")
    answer = command_line("demo", tmp_path / "file" / "shop")
    assert answer.code == 1
    assert "Traceback" not in answer.err
