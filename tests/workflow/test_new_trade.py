"""A new trade is one file and its registration: parking places, from an example to a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poolrl import Policy
from poolrl.problems.registry import KINDS
from poolrl.workflow.trades.trade import TRADES, trade_of
from tests.helpers.commands import run_poolrl
from tests.helpers.parking import PARKING, Parking


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What CONTRIBUTING says: a line for the problem, and a line for the trade."""
    monkeypatch.setitem(KINDS, "parking", Parking)
    monkeypatch.setitem(TRADES, "parking", "tests.helpers.parking:PARKING")


@pytest.mark.usefixtures("registered")
def test_a_new_trade_from_its_example_to_its_page(tmp_path: Path) -> None:
    assert trade_of(Parking(**Parking.example)) is PARKING
    said = run_poolrl("init", "--problem", "parking", "--example", cwd=tmp_path)
    assert "garage.csv" in said
    assert "what a neighbour would pay for an open place" in (tmp_path / "poolrl.toml").read_text()
    said = run_poolrl("check", cwd=tmp_path)
    assert "numbers of open places for each number of parked, 3 days" in said
    assert "400 trajectories of 3 steps" in said
    assert "bad " not in said
    said = run_poolrl("fit", "--new-account", cwd=tmp_path)
    assert "one week" in said
    release = tmp_path / "release"
    files = ("release/policy.npz", "release/certificate.json")
    assert "holds" in run_poolrl("verify", *files, "--ledger", "ledger.sqlite", cwd=tmp_path)
    asked = ("decide", files[0], "--step", "1", "--stock", "parked=2", "--json")
    answer = json.loads(run_poolrl(*asked, cwd=tmp_path))
    policy = Policy.load(release / "policy.npz")
    assert type(policy.problem) is Parking
    assert answer["open places"] == pytest.approx(float(policy.act(0, [2.0])[0]), rel=1e-5)
    assert 2 <= answer["open places"] <= 20
    page = (release / "report.html").read_text()
    assert "Keep this many places open." in page
    assert "fees less rent" in page.lower()
    for word in ("shelf", "order-up-to", "reserve", "demand"):
        assert word not in page
