"""Which logs share a budget: no slip makes a new one, two regions that look alike keep a budget each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales, Pool, Trajectories
from poolrl.audit.faults import Exact
from poolrl.data.periods import sketch_of
from poolrl.data.table import Table
from poolrl.ledger.accounts import ProtectedUnit, UnitsError, normal_name, replay
from poolrl.ledger.ledger import Ledger, Sketch
from poolrl.workflow.config.configuration import load_config, user_ledger
from poolrl.workflow.release_folder import fit_release, require_account
from tests.helpers.commands import CommandLine
from tests.helpers.ledgers import WEEK, rows, spent
from tests.helpers.shops import Facts, Run, faults_of, write_config
from tests.helpers.tables import columns


def test_a_copied_configuration_opens_no_ledger_by_itself(tmp_path: Path, config: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no ledger .*say so with --new-account"):
        fit_release(load_config(config), tmp_path / "release")
    assert {path.name for path in tmp_path.iterdir()} == {"poolrl.toml", "log.parquet", ".release.lock"}


@pytest.mark.usefixtures("no_page")
def test_without_a_named_ledger_a_copy_pays_from_the_same_account(tmp_path: Path, facts: Facts, run: Run) -> None:
    del facts["privacy"]["ledger"]
    facts["privacy"]["data_set"] = f"shop of {tmp_path.name}"
    config = write_config(tmp_path, facts)
    assert load_config(config).ledger == user_ledger()
    said = " ".join(run("fit", "--new-account", "--config", config).split())
    assert f"New account {facts['privacy']['data_set']!r} with a budget of 1" in said
    other = tmp_path / "copy"
    other.mkdir()
    copied = load_config(write_config(other, facts))
    with pytest.raises(ValueError, match="already: leave out --new-account"):
        require_account(copied, new_account=True)
    require_account(copied, new_account=False)
    assert user_ledger().parent.stat().st_mode & 0o077 == 0


def test_other_spellings_are_the_same_account(released: Path, facts: Facts) -> None:
    names = ("small shop", "small shop ", "Small Shop", "small  shop", "small-shop", "small_shop", "ｓmall shop")
    assert len({normal_name(name) for name in names}) == 1
    assert normal_name("Müller's shop") == normal_name("Mu\u0308llers SHOP ") == normal_name("müller’s  shop")
    assert normal_name("a\u00adb\u200b") == normal_name("ab")
    assert normal_name("north") != normal_name("south")
    facts["privacy"]["data_set"] = "ｓmall  SHOP "
    require_account(load_config(write_config(released, facts)), new_account=False)
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        ledger.reserve("ｓmall  SHOP ", 0.5, ProtectedUnit("trajectory"))
        assert len(ledger.accounts()) == 1
    assert spent(released) == 1


def test_a_misspelt_name_is_not_a_new_account(released: Path, facts: Facts) -> None:
    """Nor does a script that always has the flag open an account for every misspelt name."""
    known = load_config(released / "poolrl.toml")
    with pytest.raises(ValueError, match="has an account 'small shop' already: leave out --new-account"):
        fit_release(known, released / "again", new_account=True)
    facts["privacy"]["data_set"] = "smal shop"
    with pytest.raises(ValueError, match=r"has no account 'smal shop' \(did you mean 'small shop'\?\)"):
        fit_release(load_config(write_config(released, facts)), released / "again")
    assert spent(released) == Fraction(1, 2)


def times(table: pa.Table, factor: Any, names: str) -> pa.Table:
    for name in names.split():
        table = table.set_column(table.column_names.index(name), name, pc.multiply(table[name], factor))
    return table


def corrected(table: pa.Table) -> pa.Table:
    factor = pa.array(np.where(np.asarray(table["trajectory"]) < 150, 0.5, 1.0))
    return times(table, factor, "state_0 action_0 next_state_0 state_1 action_1 next_state_1")


def renamed(table: pa.Table) -> pa.Table:
    ids = pa.array([f"week {7 * i}" for i in table["trajectory"].to_pylist()])
    return table.set_column(0, "trajectory", ids).take(pa.array(np.random.default_rng(1).permutation(len(table))))


# Logs that share most or a part of their rows with another.
CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a row less": lambda table: table.slice(1),
    "a third of the weeks": lambda table: table.filter(pc.less(table["trajectory"], 100)),
    "other ids and order": renamed,
    "another second product": lambda table: times(table, 0.9, "state_1 action_1 next_state_1"),
    "half of the weeks corrected": corrected,
    "other step numbers": lambda table: table.set_column(1, "step", pc.add(table["step"], 1)),
}


@pytest.mark.parametrize("how", [*CHANGES, "another horizon"])
def test_overlapping_rows_are_recognised_under_another_name(released: Path, facts: Facts, how: str) -> None:
    facts["privacy"]["data_set"] = "renamed"
    if how == "another horizon":
        facts["problem"] |= {"horizon": 2, "steps": ["Fri", "Sat"]}
    else:
        pq.write_table(CHANGES[how](pq.read_table(released / "log.parquet")), released / "log.parquet")
    with pytest.raises(ValueError, match="already have an account, as 'small shop': a new name gives no new budget"):
        fit_release(load_config(write_config(released, facts)), released / "again", new_account=True)
    assert spent(released, "renamed") == Fraction(1, 2)  # an answer to whether they are the same rows


@pytest.mark.parametrize("left", ["nothing", "no tables"])
def test_a_ledger_whose_making_was_cut_off_is_made_by_the_next_first_fit(
    tmp_path: Path, config: Path, left: str
) -> None:
    """As a full disk leaves it: a file without bytes, or without tables, and no key."""
    path, file = tmp_path / "ledger.sqlite", load_config(config)
    path.touch()
    if left == "no tables":
        with closing(sqlite3.connect(path)) as database:
            database.executescript("CREATE TABLE gone (x); DROP TABLE gone; VACUUM")
        assert path.stat().st_size > 0
    with pytest.raises(ValueError, match=r"there is no ledger|is not a ledger"):
        require_account(file, new_account=False)
    require_account(file, new_account=True)
    with Ledger(path) as ledger:
        assert ledger.open_account("small shop", 1).left == 1
        assert ledger.verify() == []


def whole_numbers(seed: int, *, weeks: int, steps: int, mean: float) -> Table:
    """Orders and sales in whole units, of a shop where few different weeks are possible."""
    rng = np.random.default_rng(seed)
    level = np.floor(mean + rng.uniform(0, 2 * mean, weeks * steps))
    left = np.maximum(0.0, level - rng.poisson(mean, weeks * steps))
    where = {"trajectory": np.repeat(np.arange(weeks), steps), "step": np.tile(np.arange(steps), weeks)}
    amounts = {"state_0": np.zeros(weeks * steps), "action_0": level, "next_state_0": left}
    return Table(pa.table(where | amounts), **columns(1))


@pytest.mark.parametrize(("steps", "mean"), [(1, 3.0), (7, 1.0)])
def test_regions_that_are_alike_by_chance_are_not_taken_for_one(steps: int, mean: float) -> None:
    sketches = [Sketch(*sketch_of(whole_numbers(seed, weeks=300, steps=steps, mean=mean))) for seed in range(4)]
    assert not any(one.overlaps(other) for one in sketches for other in sketches if one is not other)
    again = Sketch(*sketch_of(whole_numbers(0, weeks=300, steps=steps, mean=mean)))
    assert again.overlaps(sketches[0])


def test_logs_without_a_row_of_any_product_are_not_taken_for_one() -> None:
    """The name of a product was misspelt in both configurations. Each of them has lost its rho, and no more."""
    empty = [Sketch(b"nothing was read", ()) for _ in range(2)]
    assert not empty[0].overlaps(empty[1])
    # All weeks are equal by chance, so that nothing but the whole log can be recognised.
    alike = [Sketch(b"these very rows.", (b"the only mark...",), by_chance=1.0) for _ in range(2)]
    assert alike[0].overlaps(alike[1])
    # The planted bug of 0.5: one sum for the whole log. One row less was then another log.
    first = rows("rows")
    less = Sketch(rows("another sum").whole, first.marks[1:])
    assert less.overlaps(first)
    assert less.whole != first.whole


def test_the_chance_of_equal_weeks_is_that_of_good_and_turing() -> None:
    """Four kinds of weeks: once, once, twice, three times. Of two that came once, 2 x 1 / 2 are expected again."""
    level = np.array([1.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0])
    rows = pa.table(
        {"trajectory": range(7), "step": [0] * 7, "state_0": [0.0] * 7, "action_0": level, "next_state_0": [0.0] * 7}
    )
    _, marks, by_chance = sketch_of(Table(rows, **columns(1)))
    assert len(marks) == 4
    assert by_chance == (2 + 2) / 4


# Privacy units: a release for single weeks was added, as it was, to what a whole shop had lost.


SHOP = ProtectedUnit("week", "shop", max_per_unit=5)
SHOP_OF_FOUR = ProtectedUnit("week", "shop", max_per_unit=5, owns_at_most=4)
WEEKS = 50


@pytest.fixture
def chain_of_shops(tmp_path: Path, facts: Facts) -> Facts:
    """300 weeks of 6 shops."""
    table = pq.read_table(tmp_path / "log.parquet")
    shop = pa.array(np.asarray(table["trajectory"]) // WEEKS)
    pq.write_table(table.append_column("shop", shop), tmp_path / "log.parquet")
    facts["privacy"] |= {"rho": 0.1, "budget": 1000.0}
    return facts


def with_shops(facts: Facts, **more: object) -> Facts:
    return facts | {"privacy": facts["privacy"] | {"unit": "shop", "max_per_unit": 5} | more}


def test_the_second_fit_is_refused_and_spends_nothing(
    tmp_path: Path, chain_of_shops: Facts, command_line: CommandLine
) -> None:
    """Unless a number of weeks is declared: 0.1 for a week is 50 x 50 x 0.1 = 250 for a shop of 50 weeks."""
    fit_release(load_config(write_config(tmp_path, chain_of_shops)), tmp_path / "weeks", new_account=True)
    config = write_config(tmp_path, with_shops(chain_of_shops))
    with pytest.raises(UnitsError, match=r"it is not known what releases .*: declare owns_at_most"):
        fit_release(load_config(config), tmp_path / "shops")
    assert "cost one trajectory: declare owns_at_most" in command_line("check", "--config", config, "--json").out
    with Ledger.existing(tmp_path / "ledger.sqlite") as ledger:
        assert [entry.kind for entry in ledger.entries()].count("reserve") == 1
    config = write_config(tmp_path, with_shops(chain_of_shops, owns_at_most=WEEKS))
    release = tmp_path / "release"
    claim = fit_release(load_config(config), release).certificate
    assert (claim.unit, claim.trajectories_per_unit, claim.assumed_public.units) == ("unit", 5, 6)
    levels = Fraction(claim.mechanisms[0].sensitivity_squared) / (2 * 3 * 2 * 5**2)  # 2 H k L c²
    assert levels.denominator == 1
    leaflet = " ".join((release / "leaflet.txt").read_text().split())
    assert "each unit of column shop with up to 5 trajectories" in leaflet.lower()
    assert "cost one unit: 250.1 of a budget of 1000" in leaflet
    assert "Releases that protect one trajectory are counted by what they cost one unit at most" in leaflet
    assert "This is no meaningful protection" in leaflet
    assert faults_of(release, ledger=tmp_path / "ledger.sqlite") == []
    # A smaller budget refuses it, and says whose loss is meant.
    facts = with_shops(chain_of_shops, owns_at_most=WEEKS, budget=251.0)
    with Ledger.existing(tmp_path / "ledger.sqlite") as ledger:
        ledger.change_budget("small shop", 251.0, reason="the board")
        for _ in range(9):
            ledger.reserve("small shop", 0.1, ProtectedUnit("trajectory", "shop", 5, WEEKS))
    with pytest.raises(ValueError, match="only 0 of 251 is left"):
        fit_release(load_config(write_config(tmp_path, facts)), tmp_path / "third")


def test_what_a_shop_loses_to_releases_for_weeks_is_at_most_the_square(tmp_path: Path) -> None:
    """The lemma, by counts: replace all k weeks of a shop, and see how far the tables for single weeks move."""
    problem = LostSales(horizon=2, products=2, holding=1.0, shortage=1.0, demand_max=8.0)
    prepared = Pool(0.1).prepare(problem)
    rng = np.random.default_rng(0)
    for weeks in (1, 3, 10):
        shop, others = np.zeros((weeks, 2, 2)), rng.uniform(0, 8, (20, 2, 2))
        moved = []
        for level, left in ((8.0, 8.0), (2.0, 0.0)):  # sold nothing of a full shelf, or sold out a small one
            actions = np.concatenate([np.full_like(shop, level), np.full_like(others, 5.0)])
            nexts = np.concatenate([np.full_like(shop, left), np.full_like(others, 3.0)])
            log = Trajectories(states=np.zeros_like(actions), actions=actions, next_states=nexts)
            released = prepared.release(log, Exact())
            moved.append(np.concatenate([each.ravel() for each in released.levels]))
        (mechanism,) = released.guarantee.mechanisms
        loss = Fraction(int(((moved[1] - moved[0]) ** 2).sum())) / (2 * mechanism.variance)
        assert loss == weeks**2 * Fraction(1, 10)  # the worst case is reached


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (WEEK, SHOP, "is not known"),
        (SHOP, WEEK, "is not known"),
        (SHOP, ProtectedUnit("week", "customer", 5), "is not known"),
        (WEEK, ProtectedUnit("month"), "is not known"),
        (WEEK, ProtectedUnit("day", "shop", 5, owns_at_most=3), "is not known"),
        (WEEK, ProtectedUnit("week", adjacency="add or remove one"), "compare other neighbours"),
        (ProtectedUnit("week", labels_kept=True), WEEK, "is not known"),
        # A shop that owns at most 12 months may own any number of weeks.
        (ProtectedUnit("month", "shop", 12, owns_at_most=12), WEEK, "is not known"),
        # Where labels stay, those of a unit's rows are public, and a week that moves to another shop changes them.
        (replace(SHOP, owns_at_most=50, labels_kept=True), replace(WEEK, labels_kept=True), "is not known"),
    ],
)
def test_what_cannot_be_converted_is_refused(
    tmp_path: Path, first: ProtectedUnit, second: ProtectedUnit, why: str
) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("chain", 100)
        ledger.read(ledger.reserve("chain", 0.1, first), rows("rows"))
        with pytest.raises(UnitsError, match=why):
            ledger.reserve("chain", 0.1, second)
        # Nor can such an entry be smuggled in: the rule is part of adding up.
        entries, _ = ledger.state()
        forged = replace(entries[1], number=4, note={"unit": asdict(second)})
        with pytest.raises(ValueError, match="cannot pay for this release"):
            replay([*entries, forged])


@pytest.mark.parametrize(
    ("first", "second", "weeks", "shops"),
    [
        (WEEK, WEEK, Fraction(3, 10), None),
        (SHOP, ProtectedUnit("week", "shop", 9, scale_memory=2), None, Fraction(3, 10)),  # c and m are paid in noise
        (WEEK, SHOP_OF_FOUR, Fraction(9, 10), Fraction(18, 10)),
        (SHOP_OF_FOUR, WEEK, Fraction(6, 10), Fraction(33, 10)),
    ],
)
def test_what_can_be_converted_is_added_up_by_hand(
    tmp_path: Path, first: ProtectedUnit, second: ProtectedUnit, weeks: Fraction | None, shops: Fraction | None
) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("chain", 100)
        ledger.reserve("chain", 0.1, first)
        ledger.reserve("chain", 0.2, second)
        account = ledger.account("chain")
    known = {unit: total for unit, total in ((WEEK, weeks), (SHOP_OF_FOUR, shops)) if total is not None}
    assert {unit: account.spent_by(unit) for unit in known} == known
    assert account.spent == max(known.values())


def test_an_entry_that_does_not_say_whom_it_protects_is_refused(released: Path) -> None:
    """Entries of poolrl 0.7 and before do not. Nothing can be added to them."""
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        entries, _ = ledger.state()
    old = [replace(entry, note={}) if entry.kind == "reserve" else entry for entry in entries]
    assert old != entries
    with pytest.raises(ValueError, match="does not say whom it protects"):
        replay(old)
