"""From an example to a page: parking places, a new trade in one file; and the export of a chain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.chain_workflow import measure, write_chain

from poolrl import Policy
from poolrl.problems.registry import KINDS
from poolrl.workflow.check import look_at
from poolrl.workflow.config.configuration import load_config
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


@pytest.mark.slow
def test_an_export_goes_from_init_to_a_release(tmp_path: Path) -> None:
    """Rows that are missing, double or misspelt cost themselves and no more; check accounts for every one of them."""
    rows = write_chain(tmp_path / "export.csv", products=3, weeks=200, seed=1)
    steps = measure(tmp_path, products=3, weeks=200, labels=False, rho=1.0)
    assert [step.code for step in steps] == [0, 0, 0, 0]
    assert (tmp_path / "release" / "certificate.json").exists()
    seen = {each.what: each.seen for each in look_at(load_config(tmp_path / "poolrl.toml"))}
    assert seen["rows"] == f"{rows:,} in the export"
    found = seen["weeks of shops"]
    assert found.startswith("200 found: ")
    lost = [int(seen[name].split()[0].replace(",", "")) for name in ("double rows", "missing rows", "no scale")]
    typing = int(seen["unreadable sales"].split()[0])
    used = 3600 - sum(lost) - typing
    assert seen["used by a fit"].startswith(f"{used / 3600:.1%}")
