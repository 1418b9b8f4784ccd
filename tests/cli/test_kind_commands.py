"""The command line of problems other than shops, from a table to a signed page, in the words of each."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from poolrl import Policy
from poolrl.certificate.leaflet import leaflet
from poolrl.problems.registry import KINDS
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import load_config, parse_config, read_toml
from poolrl.workflow.open_log import open_log
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import TRADES, trade_named, trade_of
from poolrl.workflow.verified import verify_folder
from tests.helpers.commands import run_poolrl
from tests.helpers.parking import PARKING, Parking
from tests.helpers.shops import faults_of

OTHERS = [name for name in KINDS if name not in ("lost sales", "backlog")]


# One in the quick run, all of them in the whole one: each takes ten seconds.
EACH = [OTHERS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS[1:])]


@pytest.fixture(scope="module", params=EACH)
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An example of each kind, checked and released."""
    folder = tmp_path_factory.mktemp("kind")
    run_poolrl("init", "--problem", request.param, "--example", cwd=folder)
    checked = run_poolrl("check", cwd=folder)
    assert all(said in checked for said in ("The table is as the file says.", "they vary", "every row is possible"))
    run_poolrl("fit", "--new-account", cwd=folder)
    return request.param, folder


def test_papers_speak_of_the_trade(released: tuple[str, Path]) -> None:
    name, folder = released
    words = trade_named(name).words
    assert faults_of(folder / "release", ledger=folder / "ledger.sqlite") == []
    text = leaflet(Released.load(folder / "release").certificate)
    assert f"A table of {words.decisions}, learned" in text
    assert "order-up-to" not in text
    record = " ".join((folder / "release" / "registry.yaml").read_text().split())
    assert f"learned from a log of {words.logged}." in record
    page = (folder / "release" / "report.html").read_text()
    assert not re.search("order-up-to|shelf", page)
    assert all(said in page for said in (words.advice, "<svg", "What you do today"))
    decisions = (folder / "release" / "decisions.csv").read_text("utf-8-sig").splitlines()
    assert decisions[0] == f"{words.states[0]},step,{words.decision}"
    # Nobody knows what other decisions would have done.
    said = " ".join(run_poolrl("backtest", cwd=folder, exits=1).split())
    assert f"what other {words.decisions} would have met" in said


def test_other_costs_are_planned_at_no_cost(released: tuple[str, Path], tmp_path: Path) -> None:
    """The same model with another worth of what is kept, or of a win: verified, and in the words of the trade."""
    name, folder = released
    words, (cost,) = trade_named(name).words, KINDS[name].costs
    facts = read_toml((folder / "poolrl.toml").read_bytes())
    facts["problem"][cost] = facts["problem"].get(cost, 0.0) + 0.3
    config, out = tmp_path / "poolrl.toml", tmp_path / "again"
    config.write_text(write_toml(facts))
    command = ("replan", "release", "--config", str(config), "--out")
    said = " ".join(run_poolrl(*command, str(out), cwd=folder).split())
    assert f"By the model, keeping the old {words.decisions}, as far as they are allowed, would earn" in said
    assert re.search(rf"Of \d+ {words.decisions} \d+ moved by more than 5%", said)
    checks = verify_folder(out / "policy.npz", out / "certificate.json", ledger=folder / "ledger.sqlite")
    assert all(check.good for check in checks)
    assert "the policy is a plan on the certified model, made again here" in {check.what for check in checks}
    facts["problem"][next(name for name in facts["problem"] if name.endswith("_max"))] *= 2
    config.write_text(write_toml(facts))
    assert "may differ" in run_poolrl(*command, f"{out} 2", cwd=folder, exits=1)


def test_a_question_and_a_table_have_one_answer(released: tuple[str, Path]) -> None:
    name, folder = released
    words = trade_named(name).words
    state, ask = words.states[0], ("decide", "release/policy.npz")
    once = json.loads(run_poolrl(*ask, "--step", "2", "--stock", f"{state}=1", "--scale", "20", "--json", cwd=folder))
    (folder / "asked.csv").write_text(f"who;step;{state};scale\nAnn;2;1;20,0\nBob;1;1;10\n")
    table = run_poolrl(*ask, "--table", "asked.csv", "--delimiter", ";", "--decimal", ",", cwd=folder)
    rows = list(csv.DictReader(table.splitlines(), delimiter=";"))
    assert [row["who"] for row in rows] == ["Ann", "Bob"]
    assert float(rows[0][words.decision].replace(",", ".")) == pytest.approx(once[words.decision], rel=1e-4)
    # A table may call the step as the trade does. Zero is an answer, and not a missing one.
    (folder / "asked.csv").write_text(f"{words.step};{state};scale\n2;0;20\n")
    refused = run_poolrl(*ask, "--table", "asked.csv", "--delimiter", ";", cwd=folder, exits=1)
    assert re.search("line 2: .*nothing is left", refused)
    for flags, message in (
        (["--step", "1"], "scale is missing"),
        (["--step", "1", "--scale", "1", "--stock", "99"], "must lie in 0 .."),
    ):
        assert message in run_poolrl(*ask, *flags, cwd=folder, exits=1)


def test_flags_in_other_words_and_what_is_missing(tmp_path: Path) -> None:
    """Yes in German; semicolons and decimal commas, as spreadsheets write them there; a price that is not there.

    A lot that nobody declared; a point beside a comma, which may mean thousands and is no number.
    """
    header = "los;zuschlag;limit;preis;art;est"
    lots = ["1;JA;21;24,5;uhr;2,0", "2;nein;30;;uhr;1", "3;vielleicht;10;12;uhr;1", "4;ja;10;;uhr;1"]
    lots += ["5;ja;10;11;boot;1", "6;nein;20;;uhr;1", "7;ja;1.000,5;1;uhr;1"]
    (tmp_path / "sales.csv").write_text("\n".join([header, *lots, ""]))
    command = [
        *("init", "--problem", "reserve-auction", "--facts", "bid_max=50; sees_highest=false", "--source", "sales.csv"),
        *("--columns", "reserve=limit; sold=zuschlag; price=preis", "--trajectory", "los", "--labels", "art=uhr,auto"),
        *("--units", "7", "--data-set", "lots", "--rho", "1", "--delimiter", ";", "--decimal", ","),
    ]
    run_poolrl(*command, cwd=tmp_path)
    path = tmp_path / "poolrl.toml"
    text = path.read_text().replace('"1", "1.0", "true"', '"ja"').replace('"0", "0.0", "false"', '"nein"')
    text = text.replace("# scale_memory = ...", "scale_memory = 0").replace("scale = []", 'scale = ["est"]')
    path.write_text(text.replace("# scale = ...", 'scale = ["est"]'))
    file = load_config(path)
    with open_log(file) as log:
        leaves = log.outcome_leaves(file.config.problem.posed, bins=64)
    # Lots 1, 2 and 6 can be used: one bid is seen, and sides of both bids.
    assert int(leaves.sum()) == 2 * 3
    assert leaves[0, 0, 1, 63 - int(np.sqrt(12.25 / 50) * 64)] == 1
    assert "neither yes nor no" in run_poolrl("check", cwd=tmp_path, exits=1)


def test_a_strangers_configuration_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted attack: a release beside which a module lies that leaves a mark when it is imported."""
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('mark').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = write_toml(trade_named("reserve-auction").example(tmp_path)).replace("reserve-auction", "evil:Evil", 1)
    path = tmp_path / "poolrl.toml"
    path.write_text(text.replace('kind = "reserve-auction"', 'kind = "evil:Evil"'))
    with pytest.raises(ValueError, match="code of somebody's own"):
        parse_config(path, path.read_bytes())
    assert not (tmp_path / "mark").exists()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run_poolrl("ledger", "show", cwd=tmp_path, exits=1)  # no ledger; the folder's configuration is not trusted
    (tmp_path / "certificate.json").write_text("{}")
    shutil.copy(path, tmp_path / "policy.npz")
    run_poolrl("verify", "policy.npz", "certificate.json", "--config", "poolrl.toml", cwd=tmp_path, exits=1)
    assert not (tmp_path / "mark").exists()
    with pytest.raises(ValueError, match="cannot be imported"):
        load_config(path)
    assert (tmp_path / "mark").exists()


# A new trade is one file and its registration.


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What CONTRIBUTING says: a line for the problem, and a line for the trade."""
    monkeypatch.setitem(KINDS, "parking", Parking)
    monkeypatch.setitem(TRADES, "parking", "tests.helpers.parking:PARKING")


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_a_new_trade_from_its_example_to_its_page(tmp_path: Path) -> None:
    assert trade_of(Parking(**Parking.example)) is PARKING
    assert "garage.csv" in run_poolrl("init", "--problem", "parking", "--example", cwd=tmp_path)
    assert "what a neighbour would pay for an open place" in (tmp_path / "poolrl.toml").read_text()
    said = run_poolrl("check", cwd=tmp_path)
    assert "numbers of open places for each number of parked, 3 days" in said
    assert "400 trajectories of 3 steps" in said
    assert "bad " not in said
    assert "one week" in run_poolrl("fit", "--new-account", cwd=tmp_path)
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
    assert not re.search("shelf|order-up-to|reserve|demand", page)
