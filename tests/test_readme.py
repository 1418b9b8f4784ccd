"""The README's examples, run word by word, and the demo as a user starts it."""

from __future__ import annotations

import doctest
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from poolrl import Policy

ROOT = Path(__file__).parent.parent


def test_the_readmes_examples() -> None:
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert results.attempted > 15
    assert results.failed == 0


@pytest.mark.parametrize(("guide", "examples"), [("workflow.md", 3), ("scale.md", 7)])
def test_the_guides_examples(guide: str, examples: int) -> None:
    results = doctest.testfile(str(ROOT / "docs" / guide), module_relative=False)
    assert results.attempted == examples
    assert results.failed == 0


def test_the_guide_prints_the_recipe_and_the_attacks_as_they_are() -> None:
    """The query of docs/workflow.md is the one that `init --sales` writes, and its table of attacks is computed."""
    from poolrl.privacy.zcdp import attack_power, gaussian_attack_power
    from poolrl.shop.sales import from_sales

    guide = (ROOT / "docs" / "workflow.md").read_text()
    assert from_sales(["bread", "milk"], days=2)["query"] in guide
    budgets = (0.01, 0.1, 0.3, 1.0, 3.0)
    at_most = [math.ceil(1000 * attack_power(rho)) / 10 for rho in budgets]
    assert " | ".join(f"{share:.1f}%" for share in at_most) in guide
    assert " | ".join(f"{100 * gaussian_attack_power(rho):.1f}%" for rho in budgets) in guide


def test_the_walk_through(tmp_path: Path) -> None:
    """The README's own lines, through a real shell and the real command line."""
    readme = (ROOT / "README.md").read_text()
    (lines,) = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    assert lines.count("poolrl ") >= 7
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
    assert {path.name for path in shop.iterdir()} == {
        "poolrl.toml",
        "sensitive",
        "release",
        "ledger.sqlite",
        "ledger.sqlite.key",
    }
    for words in ("not for release", "no row of the log was read", "Everything holds.", "order up to", "commit"):
        assert words in answer.stdout
    assert Policy.load(shop / "release" / "policy.npz").guarantee.private
    assert "rho-slider" in (shop / "release" / "report.html").read_text()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def poolrl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "poolrl.cli.main", *arguments], capture_output=True, text=True, check=False
    )


def test_the_demo_leaves_everything_it_says(tmp_path: Path) -> None:
    answer = poolrl("demo", str(tmp_path / "shop"), "--trajectories", "150")
    assert answer.returncode == 0, answer.stderr
    written = {path.name for path in (tmp_path / "shop").iterdir()}
    assert written == {"sensitive", "policy.npz", "guarantee.json", "privacy-utility.svg", "privacy-utility.png"}
    guarantee = json.loads((tmp_path / "shop" / "guarantee.json").read_text())
    assert guarantee["private"] is True
    assert guarantee["rho"] == pytest.approx(0.1)
    policy = Policy.load(tmp_path / "shop" / "policy.npz")
    assert policy.guarantee.private
    assert np.isfinite(policy.levels).all()
    assert policy.levels.shape == (7, 3)
    for words in ("What privacy costs", "epsilon", "data-free", "Pool.published", "NonPrivate", "Next"):
        assert words in answer.stdout
    assert (tmp_path / "shop" / "privacy-utility.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "shop" / "privacy-utility.svg").read_text()


def test_the_command_line_explains_itself() -> None:
    answer = poolrl("demo", "--help")
    assert answer.returncode == 0
    for words in ("Simulate a shop", "--trajectories", "poolrl demo /tmp/shop"):
        assert words in answer.stdout
    answer = poolrl("reproduce", "--help")
    for words in ("honest verdict", "--rossmann", "--quick", "poolrl reproduce rq1 --runs 20"):
        assert words in answer.stdout
    assert poolrl("--version").stdout.strip() == "0.5.0"


def test_a_bad_argument_is_one_line(tmp_path: Path) -> None:
    answer = poolrl("demo", str(tmp_path), "--trajectories", "3")
    assert answer.returncode == 1
    assert answer.stderr == "poolrl: trajectories must be a whole number of at least 10, got 3\n"
    (tmp_path / "file").write_text("")
    answer = poolrl("demo", str(tmp_path / "file"))
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
