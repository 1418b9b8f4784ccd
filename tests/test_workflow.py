"""The verbs, as somebody uses them: what is read, what is spent, what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import Policy
from poolrl.app.toml import write_toml
from poolrl.privacy.ledger import Ledger

Run = Callable[..., str]
Facts = dict[str, dict[str, Any]]
RELEASE = {"policy.npz", "certificate.json", "label.txt", "registry.yaml", "report.html"}


def spent(folder: Path, data_set: str = "small shop") -> Fraction:
    with Ledger.existing(folder / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        account = ledger.account(data_set)
        assert account is not None
        return account.spent


def stages(folder: Path) -> list[str]:
    with Ledger.existing(folder / "ledger.sqlite") as ledger:
        return [entry.kind for entry in ledger.entries()]


def test_fit_leaves_a_whole_release(one_release: Path) -> None:
    release = one_release / "release"
    assert {path.name for path in release.iterdir()} == RELEASE
    assert not [path for path in one_release.iterdir() if path.name.startswith(".")]  # no draft is left
    policy = Policy.load(release / "policy.npz")
    assert policy.guarantee.private
    assert policy.guarantee.rho == 0.5
    assert policy.report["labels"]["products"] == ["bread", "milk"]
    assert stages(one_release) == ["open", "reserve", "read", "commit"]
    assert spent(one_release) == Fraction(1, 2)


def test_nothing_that_may_be_handed_out_holds_a_logged_number(one_release: Path) -> None:
    """Amounts of the log have sixteen digits; none of their first ten may turn up."""
    table = pq.read_table(one_release / "log.parquet")
    numbers = {f"{value:.8f}" for name in ("action_0", "next_state_1") for value in table[name].to_pylist() if value}
    assert len(numbers) > 800
    for path in (one_release / "release").iterdir():
        if path.suffix != ".npz":
            text = path.read_text()
            assert not [number for number in numbers if number in text]


def test_a_second_fit_pays_again_and_a_third_is_refused(released: Path, run: Run) -> None:
    config = released / "poolrl.toml"
    with pytest.raises(ValueError, match="a release is never overwritten"):
        run("fit", "--config", config)
    assert spent(released) == Fraction(1, 2)
    run("fit", "--config", config, "--out", released / "again")
    assert spent(released) == 1
    with pytest.raises(ValueError, match=r"asked for rho = 0.5, left are 0 of 1"):
        run("fit", "--config", config, "--out", released / "third")
    assert not (released / "third").exists()
    run("ledger", "budget", "1.5", "--config", config)
    with pytest.raises(ValueError, match=r"gives 'small shop' a budget of 1, but in the ledger it has 1\.5"):
        run("fit", "--config", config, "--out", released / "third")
    config.write_text(config.read_text().replace("budget = 1.0", "budget = 1.5"))
    run("fit", "--config", config, "--out", released / "third")
    assert spent(released) == Fraction(3, 2)


def test_a_new_name_is_no_new_budget(released: Path, run: Run) -> None:
    config = released / "poolrl.toml"
    config.write_text(config.read_text().replace('"small shop"', '"another shop"'))
    with pytest.raises(ValueError, match="these very rows have an account already, as 'small shop'"):
        run("fit", "--config", config, "--out", released / "again")
    assert spent(released, "another shop") == 0
    assert stages(released)[-2:] == ["reserve", "void"]


def test_a_log_that_cannot_be_read_costs_nothing(tmp_path: Path, config: Path, facts: Facts, run: Run) -> None:
    (tmp_path / "log.parquet").rename(tmp_path / "elsewhere.parquet")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        run("fit", "--config", config)
    table = pq.read_table(tmp_path / "elsewhere.parquet")
    broken = table.set_column(4, "action_0", pa.array(np.full(len(table), 31337.25)))
    pq.write_table(broken, tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="public bounds") as caught:
        run("fit", "--config", config)
    assert "31337" not in str(caught.value)
    assert stages(tmp_path) == ["open", "reserve", "void", "reserve", "void"]
    assert spent(tmp_path) == 0
    assert not (tmp_path / "release").exists()


def test_a_failure_after_the_log_was_read_is_paid_for(
    tmp_path: Path, config: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("poolrl.app.fit.registry_yaml", full_disk)
    with pytest.raises(ValueError, match=r"No space left on device. The release had begun, so its rho = 0.5 stays"):
        run("fit", "--config", config)
    assert spent(tmp_path) == Fraction(1, 2)
    assert stages(tmp_path) == ["open", "reserve", "read"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ledger.sqlite",
        "ledger.sqlite.key",
        "log.parquet",
        "poolrl.toml",
    ]


# Kills itself as kill -9 would when the release reaches one of its steps.
VICTIM = """
import os, signal, sys
import poolrl.app.fit as fit
from poolrl.privacy.ledger import Ledger
from poolrl.pool import Pool
name, when = sys.argv[1], sys.argv[2]
owner = {"reserve": Ledger, "read": Ledger, "commit": Ledger, "fit": Pool}.get(name, fit)
original = getattr(owner, name)
def doomed(*args, **kwargs):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    original(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, doomed)
from poolrl.app.cli import app
app(["fit", "--config", sys.argv[3]], result_action="return_value")
"""


@pytest.mark.parametrize(
    ("step", "when", "paid", "whole"),
    [
        ("reserve", "before", 0, False),
        ("reserve", "after", 1, False),
        ("read_log", "before", 1, False),
        ("read_log", "after", 1, False),
        ("read", "before", 1, False),
        ("read", "after", 1, False),
        ("fit", "after", 1, False),
        ("_write", "after", 1, False),
        ("commit", "before", 1, True),
        ("commit", "after", 1, True),
        ("draw_page", "before", 1, True),
    ],
)
def test_kill_9_at_each_step(tmp_path: Path, config: Path, step: str, when: str, paid: int, whole: bool) -> None:
    """Whatever was set aside stays spent, and a release is there whole or not at all."""
    answer = subprocess.run([sys.executable, "-c", VICTIM, step, when, config], capture_output=True, check=False)
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    assert spent(tmp_path) == Fraction(paid, 2)
    assert (tmp_path / "release").exists() == whole
    if whole:
        assert RELEASE - {"report.html"} <= {path.name for path in (tmp_path / "release").iterdir()}
        Policy.load(tmp_path / "release" / "policy.npz")


def test_fits_at_once_cannot_overspend(tmp_path: Path, config: Path) -> None:
    """Five fits of a half each ask for a budget of one."""
    command = [sys.executable, "-m", "poolrl.app.cli", "fit", "--config", config, "--json", "--out"]
    running = [
        subprocess.Popen([*command, tmp_path / f"out{i}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for i in range(5)
    ]
    errors = [process.communicate()[1].decode() for process in running]
    refused = [error for error in errors if error]
    assert len(refused) == 3, errors
    assert all("left are 0 of 1" in error for error in refused)
    assert len(list(tmp_path.glob("out*/policy.npz"))) == 2
    assert spent(tmp_path) == 1


def test_check_is_for_the_data_holder(tmp_path: Path, config: Path, facts: Facts, run: Run) -> None:
    answer = run("check", "--config", config)
    assert "For the data holder's eyes; not for release" in answer
    found = json.loads(run("check", "--config", config, "--json"))
    assert found["good"] is True
    assert "not for release" in found["notice"]
    table = pq.read_table(tmp_path / "log.parquet")
    values = table["action_1"].to_pylist()
    values[3], values[10] = 31337.25, 31337.25
    pq.write_table(table.set_column(5, "action_1", pa.array(values)), tmp_path / "log.parquet")
    with pytest.raises(SystemExit):
        run("check", "--config", config)
    answer = subprocess.run(
        [sys.executable, "-m", "poolrl.app.cli", "check", "--config", config, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    found = json.loads(answer.stdout)
    (bound,) = [
        f for f in found["findings"] if f["what"] == "column action_1" and "outside 0 .. demand_max" in f["seen"]
    ]
    assert bound["seen"].startswith("2 rows")
    assert "31337" not in answer.stdout + answer.stderr
    assert not (tmp_path / "ledger.sqlite").exists()


def test_check_counts_units_and_what_they_drop(tmp_path: Path, facts: Facts, run: Run) -> None:
    table = pq.read_table(tmp_path / "log.parquet")
    shop = pa.array([i // 30 for i in table["trajectory"].to_pylist()])  # 10 shops of 30 trajectories
    pq.write_table(table.append_column("shop", shop), tmp_path / "log.parquet")
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 20}
    (tmp_path / "poolrl.toml").write_text(write_toml(facts))
    found = json.loads(run("check", "--config", tmp_path / "poolrl.toml", "--json"))
    (units,) = [each["seen"] for each in found["findings"] if each["what"] == "units"]
    assert units == "10, each a shop; 100 trajectories beyond max_per_unit are not used"
    facts["problem"] |= {"horizon": 4, "steps": []}
    (tmp_path / "poolrl.toml").write_text(write_toml(facts))
    with pytest.raises(SystemExit):
        run("check", "--config", tmp_path / "poolrl.toml")


def test_a_unit_is_certified_with_all_its_trajectories(tmp_path: Path, facts: Facts, run: Run) -> None:
    table = pq.read_table(tmp_path / "log.parquet")
    shop = pa.array([f"shop {i // 3}" for i in table["trajectory"].to_pylist()])
    pq.write_table(table.append_column("shop", shop), tmp_path / "log.parquet")
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 3}
    (tmp_path / "poolrl.toml").write_text(write_toml(facts))
    made = json.loads(run("fit", "--config", tmp_path / "poolrl.toml", "--json"))["certificate"]
    assert (made["unit"], made["trajectories_per_unit"], made["assumed_public"]["units"]) == ("unit", 3, 100)
    levels = Fraction(made["mechanisms"][0]["sensitivity_squared"]) / (2 * 3 * 2 * 9)
    assert levels.denominator == 1
    run("verify", tmp_path / "release/policy.npz", tmp_path / "release/certificate.json")
    assert "each unit (column 'shop') with up to 3 trajectories" in " ".join(
        (tmp_path / "release/label.txt").read_text().lower().split()
    )


# Says which files below a folder the interpreter, or anything it calls through Python, opens.
WATCHED = """
import os, sys
watched, opened = os.path.realpath(sys.argv[1]), []
def hook(event, args):
    if event in ("open", "os.listdir", "os.scandir", "sqlite3.connect") and args and isinstance(args[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(args[0]))
        if path.startswith(watched):
            opened.append(os.path.basename(path))
sys.addaudithook(hook)
from poolrl.app.cli import app
app(sys.argv[2:], result_action="return_value")
print("OPENED", sorted(set(opened)), "duckdb" in sys.modules, "pyarrow.parquet" in sys.modules)
"""


def test_plan_reads_no_row(tmp_path: Path, config: Path) -> None:
    plan = ["plan", "--config", config, "--demand", "normal", "--units", "100", "--json"]
    answer = subprocess.run(
        [sys.executable, "-c", WATCHED, tmp_path, *plan], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines()[-1] == "OPENED ['poolrl.toml'] False False"
    (tmp_path / "log.parquet").unlink()  # nor does it miss it
    again = subprocess.run([sys.executable, "-c", WATCHED, tmp_path, *plan], capture_output=True, text=True, check=True)
    assert again.stdout == answer.stdout
    assert not (tmp_path / "ledger.sqlite").exists()


def test_plan_predicts_what_a_fit_then_costs(config: Path, run: Run) -> None:
    """More budget and more units never predict a much higher cost, and the units needed are where the gap says."""
    found = json.loads(run("plan", "--config", config, "--demand", "exponential", "--within", "0.05", "--json"))
    gaps = [line["gap"] for line in found["budgets"]]
    assert gaps[0] > gaps[-1] > -0.01
    assert found["gap_without_data"] > gaps[-1]
    sizes = [(line["units"], line["worst"]) for line in found["sizes"]]
    assert sizes[-1][1] <= 0.05 < sizes[-2][1]
    assert sizes[-2][0] <= found["units_needed"] <= 1.1 * sizes[-1][0]
    assert 0.5 in [line["rho"] for line in found["budgets"]]  # the file's own
    for wrong, message in (
        (["--demand", "norml"], "did you mean normal"),
        (["--units", "0"], "units must be"),
        (["--rho", "-1"], "rho must be positive"),
        (["--within", "nan"], "within must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            run("plan", "--config", config, *wrong)


def test_a_mistake_is_one_line_and_a_bad_exit(tmp_path: Path, config: Path) -> None:
    config.write_text(config.read_text().replace("rho =", "roh ="))
    for verb in ("check", "plan", "fit"):
        answer = subprocess.run(
            [sys.executable, "-m", "poolrl.app.cli", verb, "--config", config],
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 1
        assert answer.stderr.startswith("poolrl: ")
        assert "did you mean rho?" in answer.stderr
        assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("verb", ["init", "check", "plan", "fit", "decide", "report", "verify", "ledger"])
def test_every_help_has_examples(verb: str) -> None:
    environment = os.environ | {"COLUMNS": "120", "NO_COLOR": "1"}
    answer = subprocess.run(
        [sys.executable, "-m", "poolrl.app.cli", verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert re.search(rf"Examples:\n\s+poolrl {verb}", answer.stdout)


def test_the_ledger_is_shown_and_checked(released: Path, run: Run) -> None:
    where = ("--ledger", released / "ledger.sqlite")
    assert "small shop" in run("ledger", "show", *where)
    shown = json.loads(run("ledger", "show", *where, "--json"))
    assert shown["accounts"][0] | {"fingerprint": ""} == {
        "data_set": "small shop",
        "fingerprint": "",
        "budget": "1",
        "spent": "1/2",
        "left": "1/2",
    }
    assert [entry["kind"] for entry in shown["entries"]] == ["open", "reserve", "read", "commit"]
    assert "every seal fits" in run("ledger", "verify", *where)
    import sqlite3

    with sqlite3.connect(released / "ledger.sqlite") as file:
        file.executescript("DROP TRIGGER entries_stay; UPDATE entries SET rho = '1/1000' WHERE number = 2")
    file.close()
    with pytest.raises(SystemExit):
        run("ledger", "verify", *where)
    for command in (("ledger", "show", *where), ("fit", "--config", released / "poolrl.toml", "--out", released / "x")):
        with pytest.raises(ValueError, match="tampered with or damaged"):
            run(*command)
