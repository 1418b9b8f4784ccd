"""docs/own-problem.md: its code is a module, its examples run, and its command line works up to the audit."""

from __future__ import annotations

import csv
import doctest
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import Policy, Pool, PrivateModel, SeededNoise, simulate_log
from poolrl.problems.registry import KINDS
from tests.helpers.commands import run_poolrl

PAGE = Path(__file__).parents[2] / "docs" / "own-problem.md"
MODULE = re.search(r"```python\n(import numpy.*?)```", PAGE.read_text(), re.DOTALL)
assert MODULE is not None


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's module."""
    assert MODULE is not None
    (tmp_path / "ward.py").write_text(MODULE[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("ward", None)
    yield tmp_path
    sys.modules.pop("ward", None)


def test_the_examples_of_the_page_run(ward: Path) -> None:
    assert len([line for line in (ward / "ward.py").read_text().splitlines() if line.strip()]) <= 40
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 20
    assert found.failed == 0


def test_the_documented_ward_is_saved_loaded_and_asked(
    ward: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the registry; its facts are the constructor's arguments."""
    from ward import Ward  # type: ignore[import-not-found]

    class Registered(Ward):  # type: ignore[misc]
        def facts(self) -> dict[str, Any]:
            return {"kind": "Registered", "beds": 20, "come_max": 15, "horizon": self.horizon, "care": self.care}

    monkeypatch.setitem(KINDS, "ward", Registered)
    problem, rng = Registered(horizon=3, beds=20, come_max=15), np.random.default_rng(0)
    log = simulate_log(problem, rng.uniform(0, 15, (400, 3, 1)), rng=rng)
    policy = Pool(1.0).fit(problem, log, noise=SeededNoise(1))
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    for step in range(3):
        np.testing.assert_array_equal(again.act(step, [[0.0], [6.0]]), policy.act(step, [[0.0], [6.0]]))
    PrivateModel.of(policy).save(tmp_path / "model.npz")
    model = PrivateModel.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(model.plan().act(0, [3.0]), policy.act(0, [3.0]))


def _table(folder: Path) -> None:
    from ward import Ward

    problem, rng = Ward(horizon=3, beds=40, come_max=30), np.random.default_rng(1)
    log = simulate_log(problem, rng.poisson(12, (300, 3, 1)).clip(0, 30).astype(float), rng=rng)
    with (folder / "ward.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["week", "day", "occupied", "beds_on_duty", "next occupied"])
        for week, day in np.ndindex(300, 3):
            parts = (log.states, log.actions, log.next_states)
            writer.writerow([week, day, *(part[week, day, 0] for part in parts)])


@pytest.mark.slow
def test_the_command_line_of_the_page(ward: Path) -> None:
    _table(ward)
    facts = ["--facts", "horizon=3; beds=40; come_max=30", "--columns", "staffed=beds_on_duty", "--source", "ward.csv"]
    facts += ["--first-step", "0"]
    run_poolrl(
        *("init", "--problem", "ward:Ward", *facts, "--units", "300", "--data-set", "ward", "--rho", "1"), cwd=ward
    )
    path = ward / "poolrl.toml"
    path.write_text(path.read_text().replace("# ledger = ...", 'ledger = "ledger.sqlite"'))
    assert "every row is possible" in run_poolrl("check", cwd=ward)
    said = run_poolrl("fit", "--new-account", cwd=ward)
    assert "A table of staffed beds" in said
    # Cut-off levels do not tell here what people do today, and the page does not pretend.
    assert "Cannot tell." in said
    policy = ("release/policy.npz", "--config", "poolrl.toml")
    assert "staffed: " in run_poolrl("decide", *policy, "--step", "0", "--stock", "occupied=12", cwd=ward)
    verify = ("verify", "release/policy.npz", "release/certificate.json", "--ledger", "ledger.sqlite")
    assert "Everything holds." in run_poolrl(*verify, "--config", "poolrl.toml", cwd=ward)
    assert "code of somebody's own" in run_poolrl(*verify, cwd=ward, exits=1)
    assert "learned for your own problem" in run_poolrl(
        "decide", "release/policy.npz", "--step", "0", cwd=ward, exits=1
    )
    audited = run_poolrl("audit", "--config", "poolrl.toml", "--releases", "4000", cwd=ward)
    assert "No attack did better than the claim allows." in audited
