"""The other verbs, as somebody uses them: what is read, what is refused, what is said."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import Policy
from poolrl.workflow.check import LogFinding, look_at
from poolrl.workflow.config.configuration import load_config
from tests.helpers.commands import CommandLine
from tests.helpers.shops import Facts, Run, write_config


def test_check_is_for_the_data_holder(tmp_path: Path, config: Path, run: Run, command_line: CommandLine) -> None:
    said = " ".join(run("check", "--config", config).split())
    assert "For the data holder's eyes; not for release" in said
    assert "the first fit needs --new-account" in said
    table = pq.read_table(tmp_path / "log.parquet")
    values = table["action_1"].to_pylist()
    values[3], values[10] = 31337.25, 31337.25
    pq.write_table(table.set_column(5, "action_1", pa.array(values)), tmp_path / "log.parquet")
    answer = command_line("check", "--config", config, "--json")
    assert answer.code == 1
    found = json.loads(answer.out)
    assert (found["good"], "not for release" in found["notice"]) == (False, True)
    seen = [each["seen"] for each in found["findings"] if each["what"] == "column action_1"]
    assert [each for each in seen if each.startswith("2 rows") and "outside 0 .. 60 (are unobserved)" in each]
    assert "31337" not in answer.out + answer.err
    assert not (tmp_path / "ledger.sqlite").exists()


def test_check_counts_units_and_what_they_drop(tmp_path: Path, facts: Facts) -> None:
    def found(table: pa.Table) -> list[LogFinding]:
        pq.write_table(table, tmp_path / "log.parquet")
        return look_at(load_config(write_config(tmp_path, facts)))

    def faults(table: pa.Table) -> list[str]:
        return [each.seen for each in found(table) if each.stands == "bad"]

    table = pq.read_table(tmp_path / "log.parquet")
    shop = pa.array([i // 30 for i in table["trajectory"].to_pylist()])  # 10 shops of 30 trajectories
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 20}
    seen = {each.what: (each.stands, each.seen) for each in found(table.append_column("shop", shop))}
    assert seen["units"] == ("good", "10, each a shop")
    assert seen["max_per_unit"] == ("note", "100 of 300 trajectories lie beyond max_per_unit and are not used")
    assert seen["plan"] == ("note", "'poolrl plan' assumes 300 units, the log holds 10")
    del facts["privacy"]["unit"], facts["privacy"]["max_per_unit"]
    assert faults(table.slice(2)) == ["1 of 300 trajectories do not have 3 rows"]  # the first lacks two days
    twice = pa.concat_tables([table, table.slice(4, 1)])
    assert faults(twice) == ["1 of 300 trajectories name a step twice and are unobserved"]
    facts["problem"] |= {"horizon": 4, "steps": []}
    assert faults(table) == ["300 of 300 trajectories do not have 4 rows"]


@pytest.mark.usefixtures("short_plan")
def test_plan_reads_no_row(tmp_path: Path, config: Path, run: Run) -> None:
    """Public facts say what a budget buys: the log is gone, and no ledger is made."""
    (tmp_path / "log.parquet").unlink()
    plan = ["plan", "--config", config, "--demand", "normal", "--units", "100", "--within", "0.9", "--json"]
    assert json.loads(run(*plan))["budgets"]
    assert {path.name for path in tmp_path.iterdir()} == {"poolrl.toml"}


def test_plan_predicts_what_a_fit_then_costs(config: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """More budget and more units never predict a much higher cost, and the units needed are where the gap says."""
    monkeypatch.setattr("poolrl.workflow.budget.BUDGETS", (0.01, 10.0))
    found = json.loads(run("plan", "--config", config, "--demand", "exponential", "--within", "0.05", "--json"))
    gaps = [line["gap"] for line in found["budgets"]]
    assert gaps[0] > gaps[-1] > -0.01
    assert found["gap_without_data"] > gaps[-1]
    sizes = [(line["units"], line["worst"]) for line in found["sizes"]]
    assert sizes[-1][1] <= 0.05 < sizes[-2][1]
    assert found["units_needed"] == sizes[-1][0]
    assert 0.5 in [line["rho"] for line in found["budgets"]]  # the file's own
    for wrong, message in (
        (["--demand", "norml"], "did you mean normal"),
        (["--rho", "-1"], "rho must be positive"),
        (["--units", "1000000000"], "units must be at most 3,333,333 to be simulated"),
    ):
        with pytest.raises(ValueError, match=message):
            run("plan", "--config", config, *wrong)


def test_an_error_is_one_line_and_a_bad_exit(
    config: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unexpected comes without its message: a library's may quote the log."""
    with monkeypatch.context() as patch:
        patch.setattr("poolrl.cli.check.look_at", Mock(side_effect=RuntimeError("31337.25")))
        answer = command_line("check", "--config", config)
    expected = "poolrl: stopped by an unexpected RuntimeError: a defect of poolrl\n"
    assert (answer.code, answer.err) == (1, expected)
    config.write_text(config.read_text().replace("rho =", "roh ="))
    answer = command_line("fit", "--config", config)
    assert answer.code == 1
    assert answer.err.startswith("poolrl: ")
    assert "did you mean rho?" in answer.err
    assert "Traceback" not in answer.err


def test_the_ledger_is_shown_and_checked(released: Path, run: Run) -> None:
    where = ("--ledger", released / "ledger.sqlite")
    assert "small shop" in run("ledger", "show", *where)
    shown = json.loads(run("ledger", "show", *where, "--json"))
    facts = [shown["accounts"][0][name] for name in ("data_set", "units", "budget", "spent", "left")]
    assert facts == ["small shop", ["trajectory"], "1", "1/2", "1/2"]
    assert [entry["kind"] for entry in shown["entries"]] == ["key", "open", "reserve", "read", "commit"]
    assert "every seal fits" in run("ledger", "verify", *where)
    with sqlite3.connect(released / "ledger.sqlite") as file:
        file.executescript("DROP TRIGGER entries_stay; UPDATE entries SET rho = '1/1000' WHERE number = 3")
    file.close()
    with pytest.raises(SystemExit):
        run("ledger", "verify", *where)
    fit = ("fit", "--config", released / "poolrl.toml", "--out", released / "x")
    for command in (("ledger", "show", *where), fit):
        with pytest.raises(ValueError, match="tampered with or damaged"):
            run(*command)


# Asking a policy one question at a time.


@pytest.fixture
def policy(one_release: Path) -> Path:
    return one_release / "release" / "policy.npz"


def test_the_command_line(policy: Path, run: Run) -> None:
    expected = Policy.load(policy).act(1, [50.0, 2.0])
    for step in ("Sat", "sat", "1"):
        answer = json.loads(run("decide", policy, "--step", step, "--stock", "50, 2", "--json"))
        assert answer["step"] == "Sat"
        assert list(answer["order_up_to"].values()) == pytest.approx(expected, abs=1e-6)
    by_name = json.loads(run("decide", policy, "--step", "Sat", "--stock", "milk=2,bread=50", "--json"))
    assert by_name == answer
    whole = json.loads(run("decide", policy, "--step", "Sat", "--stock", "50,59.7", "--whole", "--json"))
    assert whole["order_up_to"]["bread"] == round(answer["order_up_to"]["bread"])
    assert whole["order_up_to"]["milk"] == 59.7  # more than enough is there, and nothing goes back


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--step", "0", "--stock=-1,2"], "the stock of bread must not be negative"),
        (["--step", "3", "--stock", "1,2"], "there is no step '3'; choose from Fri, Sat, Sun, 0 to 2"),
        (["--step", "0", "--stock", "1"], "stock must give a number for each of bread, milk"),
        (["--step", "0", "--stock", "bread=1"], "stock lacks milk"),
        (["--step", "0", "--stock", "1,nan"], "the stock of milk must be a finite number"),
        (["--step", "0", "--stock", "bread=1,bread=2"], "must name each product once"),
        (["--step", "0", "--scale", "7"], "learned without a scale: leave out --scale"),
        ([], "answers one of --step NAME or --table FILE"),
        (["--table", "x", "--stock", "1,2"], "go with"),
    ],
)
def test_questions_that_have_no_answer(policy: Path, run: Run, flags: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("decide", policy, *flags)
