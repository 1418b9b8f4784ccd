"""Documents: what they name exists, their examples run, their figures are the generated ones."""

from __future__ import annotations

import ast
import doctest
import functools
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
from poolrl.privacy import zcdp
from tests.helpers.commands import CommandLine

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


@functools.cache
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


@pytest.mark.parametrize(
    ("page", "examples"),
    [
        ("README.md", 16),
        ("docs/workflow.md", 12),
        ("docs/architecture.md", 43),
        ("docs/plans.md", 35),
    ],
)
def test_examples_of_pages_run(page: str, examples: int) -> None:
    results = doctest.testfile(str(ROOT / page), module_relative=False)
    assert results.attempted >= examples
    assert results.failed == 0


def test_the_guide_prints_the_attacks_as_they_are() -> None:
    """The table of attacks in docs/workflow.md is computed."""
    from poolrl.privacy.zcdp import attack_power, gaussian_attack_power

    guide = (ROOT / "docs" / "workflow.md").read_text()
    budgets = (0.01, 0.1, 0.3, 1.0, 3.0)
    at_most = [math.ceil(1000 * attack_power(rho)) / 10 for rho in budgets]
    assert " | ".join(f"{share:.1f}%" for share in at_most) in guide
    assert " | ".join(f"{100 * gaussian_attack_power(rho):.1f}%" for rho in budgets) in guide


def cells_of(page: str, heading: str, name: str) -> list[str]:
    """A row of the first table behind a heading: its cells behind the name that it begins with."""
    rows = (ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    (row,) = [row for row in rows if row.startswith(f"| {name} |")]
    return [cell.strip(" *") for cell in row.strip("|").split("|")[1:]]


def assert_quoted(quoted: list[str], measured: list[str], *, plus: float = 0.0) -> None:
    """Each figure of README is the one of the table (its mean, where it has an error), rounded to README's digits."""
    assert len(quoted) == len(measured)
    for said, cell in zip(quoted, measured, strict=True):
        decimals = len(said.partition(".")[2])
        found = plus + float(cell.split()[0].replace(",", ""))
        assert float(said.replace("−", "-").replace(",", "")) == pytest.approx(found, abs=0.5001 * 10**-decimals)


def test_the_readme_quotes_generated_tables() -> None:
    """The chain's costs stand in docs/benchmarks.md, the paper's gaps in docs/results.md."""
    brings, bench = "What it brings, and what privacy costs", "docs/benchmarks.md"
    managers = cells_of("README.md", brings, "managers' orders, closed loop: cost / today's cost")
    rows = ("today's managers", "SAA per store (not private)", "ours")
    assert_quoted(managers, [c for row in rows for c in cells_of(bench, "Real logs, bench e", row) if c])
    today, saa, *private = cells_of("README.md", brings, "independent orders, a policy per store: cost / SAA's")
    assert saa == "1"
    rows = ("today's managers", "ours")
    gaps = [c for row in rows for c in cells_of(bench, "Real logs, bench c", row) if c]
    assert_quoted([today, *private], gaps, plus=1.0)
    readme = (ROOT / "README.md").read_text()
    (new,) = re.findall(r"A new store without rows pays ([\d.]+) times its own SAA at ρ = 1", readme)
    assert_quoted([new], cells_of(bench, "Real logs, bench g", "ours")[1:2], plus=1.0)
    names = {
        "**`Pool`**": "Pool (default)",
        "`Pool.published`, printed": "Pool.published, printed constants",
        "`Pool.published`, tuned": "Pool.published, tuned scale of Γ",
        "input perturbation": "input perturbation",
        "output perturbation": "output perturbation",
        "no data: plan on the public bounds": "no data: plan on the public bounds",
    }
    for ours, theirs in names.items():
        quoted = cells_of("README.md", "The paper, reproduced", ours)
        assert_quoted(quoted, cells_of("docs/results.md", "In short", theirs)[3:])
    holds, _, undecided, *_ = cells_of("docs/results.md", "In short", "Pool (default)")
    ((said, of, open_claims),) = re.findall(r"\((\d+) of (\d+), (\d+)\s+undecided\)", readme)
    assert (said, open_claims) == (holds, undecided)
    assert int(of) == int(holds) + int(undecided)


def shell_lines(document: Path) -> str:
    return "".join(re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL))


def test_the_command_line_understands_every_command_of_the_readme() -> None:
    """Verbs and options exist, and their values can be read; nothing is run."""
    commands = [line for line in shell_lines(ROOT / "README.md").splitlines() if line.startswith("poolrl ")]
    assert len(commands) >= 7
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
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


@pytest.mark.slow  # each of its verbs has quick tests
@pytest.mark.usefixtures("short_plan", "no_page")
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
    for words in ("not for release", "What a budget buys", "How large a log", "WHO IS PROTECTED", "Now open"):
        assert words in answer.out
    policy, certificate = shop / "release" / "policy.npz", shop / "release" / "certificate.json"
    assert "Everything holds" in command_line("verify", policy, certificate, "--ledger", shop / "ledger.sqlite").out
    assert "order up to" in command_line(*commands[-1]).out


def test_the_version_and_a_bad_argument_are_one_line(tmp_path: Path, command_line: CommandLine) -> None:
    assert command_line("--version").out.strip() == __version__
    answer = command_line("demo", tmp_path)
    assert answer.code == 1
    assert answer.err == f"poolrl: {tmp_path} exists: name another folder, or remove it\n"
    (tmp_path / "file").write_text("")
    answer = command_line("demo", tmp_path / "file" / "shop")
    assert answer.code == 1
    assert "Traceback" not in answer.err


# Budgets that documents speak of.
BUDGETS = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 40.0)


@pytest.mark.parametrize(
    "document",
    [page for page in DOCUMENTS if page.name not in ("CHANGELOG.md", "results.md")],
    ids=lambda path: path.name,
)
def test_epsilons_are_those_that_we_would_show(document: Path) -> None:
    """A number that stands behind ε is rounded up; and so is a row of them below a row of ρ."""
    text = document.read_text()
    shown = {zcdp.rounded_up(zcdp.epsilon(rho, delta)) for rho in BUDGETS for delta in (1e-5, 1e-6, 1e-9)}
    shown |= {zcdp.rounded_up(zcdp.gaussian_epsilon(rho, 1e-6)) for rho in BUDGETS}  # said to be a Gaussian's
    assert set(re.findall(r"(?:ε|epsilon)(?: =| is| of|,)? (\d+\.\d+)", text)) <= shown
    for rhos, epsilons in re.findall(r"^\| ρ \|(.*)\|\n\|[-|]+\|\n\| ε at δ = 10⁻⁶[^|]*\|(.*)\|$", text, re.MULTILINE):
        budgets = [float(rho) for rho in rhos.split("|")]
        assert [cell.strip() for cell in epsilons.split("|")] == [zcdp.epsilon_shown(rho) for rho in budgets]
