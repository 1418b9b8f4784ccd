"""One account mixed privacy units: a release for single weeks was added, as it was, to what a whole shop had lost."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales, Pool, Trajectories
from poolrl.audit.faults import Exact
from poolrl.ledger.accounts import ProtectedUnit, UnitsError, replay
from poolrl.ledger.ledger import Ledger
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.release_folder import fit_release
from tests.helpers.commands import CommandLine
from tests.helpers.ledgers import WEEK, rows
from tests.helpers.shops import Facts, faults_of, write_config

SHOP = ProtectedUnit("week", "shop", max_per_unit=5)
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
    fit_release(load_config(config), release)
    leaflet = " ".join((release / "leaflet.txt").read_text().split())
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
        (
            ProtectedUnit("week", "shop", 5, owns_at_most=50, labels_kept=True),
            ProtectedUnit("week", labels_kept=True),
            "is not known",
        ),
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
        forged = entries[1].__class__(**vars(entries[1]) | {"number": 4, "note": {"unit": asdict(second)}})
        with pytest.raises(ValueError, match="cannot pay for this release"):
            replay([*entries, forged])


@pytest.mark.parametrize(
    ("first", "second", "weeks", "shops"),
    [
        (WEEK, WEEK, Fraction(3, 10), None),
        (SHOP, ProtectedUnit("week", "shop", 9, scale_memory=2), None, Fraction(3, 10)),  # c and m are paid in noise
        (WEEK, ProtectedUnit("week", "shop", 5, owns_at_most=4), Fraction(9, 10), Fraction(18, 10)),
        (ProtectedUnit("week", "shop", 5, owns_at_most=4), WEEK, Fraction(6, 10), Fraction(33, 10)),
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
        assert account is not None
        if weeks is not None:
            assert account.spent_by(WEEK) == weeks
        if shops is not None:
            assert account.spent_by(ProtectedUnit("week", "shop", owns_at_most=4)) == shops
        assert account.spent == max(total for total in (weeks, shops) if total is not None)


def test_an_entry_that_does_not_say_whom_it_protects_is_refused(released: Path) -> None:
    """Entries of poolrl 0.7 and before do not. Nothing can be added to them."""
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        entries, _ = ledger.state()
    old = [entry if entry.kind != "reserve" else type(entry)(**vars(entry) | {"note": {}}) for entry in entries]
    assert old != entries
    with pytest.raises(ValueError, match="does not say whom it protects"):
        replay(old)
