"""A copied file, a trailing space or a row less made a new budget."""

from __future__ import annotations

import shutil
import sqlite3
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrl.ledger.accounts import OverspendError, normal_name
from poolrl.ledger.ledger import Ledger
from poolrl.workflow.config.configuration import load_config, user_ledger
from tests.helpers.ledgers import spent
from tests.helpers.shops import Facts, Run, write_config

pytestmark = pytest.mark.usefixtures("no_page")


def test_a_copied_configuration_opens_no_ledger_by_itself(released: Path, tmp_path: Path, run: Run) -> None:
    other = tmp_path / "copy"
    other.mkdir()
    for name in ("poolrl.toml", "log.parquet"):
        shutil.copy(released / name, other / name)
    with pytest.raises(ValueError, match=r"there is no ledger .*say so with --new-account"):
        run("fit", "--config", other / "poolrl.toml")
    assert {path.name for path in other.iterdir()} == {"poolrl.toml", "log.parquet", ".release.lock"}


def test_without_a_named_ledger_a_copy_pays_from_the_same_account(tmp_path: Path, facts: Facts, run: Run) -> None:
    del facts["privacy"]["ledger"]
    facts["privacy"]["data_set"] = f"shop of {tmp_path.name}"
    config = write_config(tmp_path, facts)
    assert load_config(config).ledger == user_ledger()
    said = " ".join(run("fit", "--new-account", "--config", config).split())
    assert f"New account {facts['privacy']['data_set']!r} with a budget of 1" in said
    other = tmp_path / "copy"
    other.mkdir()
    shutil.copy(tmp_path / "log.parquet", other / "log.parquet")
    said = run("fit", "--config", write_config(other, facts))
    assert "New account" not in said
    with Ledger.existing(user_ledger()) as ledger:
        account = ledger.account(facts["privacy"]["data_set"])
    assert account is not None
    assert account.left == 0
    assert user_ledger().parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "name", ["small shop ", "Small Shop", "small  shop", "small-shop", "small_shop", "ｓmall shop"]
)
def test_other_spellings_are_the_same_account(released: Path, facts: Facts, name: str, run: Run) -> None:
    facts["privacy"]["data_set"] = name
    run("fit", "--config", write_config(released, facts), "--out", released / "again")
    assert spent(released) == 1
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        assert len(ledger.accounts()) == 1


def test_an_apostrophe_makes_no_account() -> None:
    assert normal_name("Müller's shop") == normal_name("Mu\u0308llers SHOP ") == normal_name("müller’s  shop")
    assert normal_name("a\u00adb\u200b") == normal_name("ab")
    assert normal_name("north") != normal_name("south")


@given(st.text(max_size=20))
def test_a_normal_name_is_its_own(name: str) -> None:
    assert normal_name(normal_name(name)) == normal_name(name)
    assert normal_name(f" {name.upper()}\t") == normal_name(normal_name(name.upper()))


def test_a_misspelt_name_is_not_a_new_account(released: Path, facts: Facts, run: Run) -> None:
    facts["privacy"]["data_set"] = "smal shop"
    with pytest.raises(ValueError, match=r"has no account 'smal shop' \(did you mean 'small shop'\?\)"):
        run("fit", "--config", write_config(released, facts), "--out", released / "again")
    assert spent(released) == Fraction(1, 2)


def changed(table: pa.Table, how: str) -> pa.Table:
    """A log that shares most or a part of its rows with another."""
    trajectory, rng = table["trajectory"], np.random.default_rng(1)
    if how == "a row less":
        return table.slice(1)
    if how == "a third of the weeks":
        return table.filter(pc.less(trajectory, 100))
    if how == "other ids and order":
        renamed = table.set_column(0, "trajectory", pa.array([f"week {7 * i}" for i in trajectory.to_pylist()]))
        return renamed.take(pa.array(rng.permutation(len(table))))
    if how == "another second product":
        for name in ("state_1", "action_1", "next_state_1"):
            other = pc.multiply(table[name], 0.9)
            table = table.set_column(table.column_names.index(name), name, other)
        return table
    if how == "other step numbers":
        return table.set_column(1, "step", pc.add(table["step"], 1))
    assert how == "half of the weeks corrected"
    factor = pa.array(np.where(np.asarray(trajectory) < 150, 0.5, 1.0))
    for number, name in enumerate(table.column_names):
        if name not in ("trajectory", "step"):
            table = table.set_column(number, name, pc.multiply(table[name], factor))
    return table


@pytest.mark.parametrize(
    "how",
    [
        "a row less",
        "a third of the weeks",
        "other ids and order",
        "another second product",
        "half of the weeks corrected",
        "other step numbers",
    ],
)
def test_overlapping_rows_are_recognised_under_another_name(released: Path, facts: Facts, how: str, run: Run) -> None:
    pq.write_table(changed(pq.read_table(released / "log.parquet"), how), released / "log.parquet")
    facts["privacy"]["data_set"] = "renamed"
    with pytest.raises(ValueError, match="already have an account, as 'small shop': a new name gives no new budget"):
        run("fit", "--new-account", "--config", write_config(released, facts), "--out", released / "again")


def test_another_horizon_is_no_new_log(released: Path, facts: Facts, run: Run) -> None:
    facts["privacy"]["data_set"] = "renamed"
    facts["problem"] |= {"horizon": 2, "steps": ["Fri", "Sat"]}
    with pytest.raises(ValueError, match="a new name gives no new budget"):
        run("fit", "--new-account", "--config", write_config(released, facts), "--out", released / "again")


def test_the_flag_is_for_the_first_fit_alone(released: Path, run: Run) -> None:
    """A script that always had it would open an account for every misspelt name."""
    with pytest.raises(ValueError, match="has an account 'small shop' already: leave out --new-account"):
        run("fit", "--new-account", "--config", released / "poolrl.toml", "--out", released / "again")
    assert spent(released) == Fraction(1, 2)


def test_the_planted_sum_over_all_rows_would_not_have_seen_it() -> None:
    """The planted bug of 0.5: one sum for the whole log. One row less is then another log."""
    from poolrl.ledger.ledger import Sketch
    from tests.helpers.ledgers import rows

    first = rows("rows")
    less = Sketch(rows("another sum").whole, first.marks[1:])
    assert less.overlaps(first)
    assert less.whole != first.whole


def test_what_was_read_is_refused_by_the_ledger_itself(tmp_path: Path) -> None:
    from tests.helpers.ledgers import WEEK, rows

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for name in ("north", "south"):
            ledger.open_account(name, 1)
        ledger.read(ledger.reserve("north", 0.1, WEEK), rows("rows"))
        with pytest.raises(OverspendError, match="a new name gives no new budget"):
            ledger.read(ledger.reserve("south", 0.1, WEEK), rows("rows"))


@pytest.mark.parametrize("left", ["nothing", "no tables"])
def test_a_ledger_whose_making_was_cut_off_is_made_by_the_next_first_fit(
    tmp_path: Path, facts: Facts, left: str, run: Run
) -> None:
    """As a full disk leaves it: a file without bytes, or without tables, and no key."""
    path = tmp_path / "ledger.sqlite"
    path.touch()
    if left == "no tables":
        with sqlite3.connect(path) as file:
            file.executescript("CREATE TABLE gone (x); DROP TABLE gone; VACUUM")
        file.close()
        assert path.stat().st_size > 0
    config = write_config(tmp_path, facts)
    if left == "nothing":
        assert "the first fit needs --new-account" in run("check", "--config", config, "--json")
    with pytest.raises(ValueError, match=r"there is no ledger|is not a ledger"):
        run("fit", "--config", config)
    run("fit", "--new-account", "--config", config)
    assert spent(tmp_path) == Fraction(1, 2)
