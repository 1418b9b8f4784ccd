"""`poolrl update`: what it adds, what it costs, what it refuses, and what its papers say of all periods."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales, Outcomes, Policy, Pool, SeededNoise, Trajectories
from poolrl.certificate.certificate import Certificate, seen_in
from poolrl.certificate.leaflet import percent
from poolrl.learning.faded_trees import FadedTrees
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.open_log import open_log
from poolrl.workflow.release_folder import Released, fit_release
from poolrl.workflow.update import cost_in_words, load_earlier
from tests.helpers.exports import configured, export_facts, write_export
from tests.helpers.ledgers import spent, stages
from tests.helpers.shops import Facts, Run, faults_of, small_shop

MONTHS = [("2025-01-06", "2025-02-03"), ("2025-02-03", "2025-03-03"), ("2025-03-03", "2025-03-31")]
SHOPS = 40


# Trees that are added.


@pytest.fixture
def problem() -> LostSales:
    return LostSales(horizon=2, products=2, holding=0.2, shortage=0.5, demand_max=20.0)


def months_of(problem: LostSales, sizes: list[int]) -> list[Trajectories]:
    rng = np.random.default_rng(3)
    return [problem.simulate_log(rng.gamma(4, 2, (size, 2, 2)).clip(0, 20), rng=rng) for size in sizes]


def test_month_by_month_is_one_fit_without_noise(problem: LostSales) -> None:
    """With rho = inf and nothing forgotten, the sums of trees are the trees of all months."""
    logs = months_of(problem, [30, 50, 20])
    prepared = Pool(np.inf).prepare(problem)
    made = [prepared.release(log, SeededNoise(1)) for log in logs]
    first, second, third = map(FadedTrees.of, made)
    trees = third.after(second.after(first, 1.0), 1.0)
    parts = {n: np.concatenate([getattr(log, n) for log in logs]) for n in ("states", "actions", "next_states")}
    whole = prepared.release(Trajectories(**parts), SeededNoise(1))
    for mine, theirs in zip(trees.levels, whole.levels, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (trees.slots, trees.squares, trees.variance) == (100, 100, 0)
    found, expected = prepared.learn(trees.to_learn_from(made[-1])), prepared.learn(whole)
    np.testing.assert_array_equal(found.levels, expected.levels)


def test_faded_sums_worked_by_hand(problem: LostSales, tmp_path: Path) -> None:
    """Months of 30 and 60 weeks, γ = 1/2: n = 75 and q = 67.5, so 83.3 weeks' worth of counts."""
    prepared = Pool(0.5, Outcomes(bins=8)).prepare(problem)
    one, two = (prepared.release(log, SeededNoise(seed)) for seed, log in enumerate(months_of(problem, [30, 60]), 1))
    first, second = FadedTrees.of(one), FadedTrees.of(two)
    both = second.after(first, 0.5)
    np.testing.assert_array_equal(both.levels[-1], two.levels[-1] + one.levels[-1] / 2)
    assert (both.slots, both.squares) == (75, 67.5)
    assert both.variance == pytest.approx(1.25 * two.variance)
    given = both.to_learn_from(two)
    factor = 75 / 67.5
    assert given.total == pytest.approx(75**2 / 67.5)
    assert given.variance == pytest.approx(1.25 * two.variance * factor**2)
    np.testing.assert_allclose(given.levels[0], both.levels[0] * factor)
    # A bin that holds a share p of each month has the variance of a count of these weeks.
    share, weights = 0.3, np.array([0.5, 1.0])
    sampled = factor**2 * (weights**2 * np.array([30, 60]) * share * (1 - share)).sum()
    assert sampled == pytest.approx(given.total * share * (1 - share))
    # A period that was added can be taken away again, and comes back from a file.
    both.save(tmp_path / "trees.npz")
    again = FadedTrees.load(tmp_path / "trees.npz").alone(first, 0.5)
    np.testing.assert_allclose(again.levels[0], second.levels[0], atol=1e-9)
    assert (again.slots, again.squares, again.variance) == (60, 60, pytest.approx(two.variance))
    # Noise weighs as before after as many weeks as are missing: √(9/16 + 1) − 3/4 = 1/2 of 60, with γ = 3/4.
    assert second.slots_to_match(first.variance, 0.75) == pytest.approx(30)
    assert first.after(second, 0.75).noise == pytest.approx(second.noise)


# The command.


def dated(folder: Path, facts: Facts) -> Path:
    """Give the small shop's 480 weekends a date: 40 shops, twelve Mondays."""
    table = pq.read_table(folder / "log.parquet")
    number = np.asarray(table["trajectory"]).astype(int)
    monday = np.datetime64("2025-01-06") + (7 * (number // SHOPS)).astype("timedelta64[D]")
    table = table.append_column("monday", pa.array(monday)).append_column("shop", pa.array(number % SHOPS))
    pq.write_table(table, folder / "log.parquet")
    facts["privacy"] |= {"rho": 0.5, "budget": 0.5}
    return month(folder, facts, 0)


def month(folder: Path, facts: Facts, number: int) -> Path:
    """Write the configuration of a month."""
    first, before = MONTHS[number]
    facts["period"] = {"column": "monday", "first": first, "before": before, "forgetting": 0.7}
    path = folder / "poolrl.toml"
    path.write_text(write_toml(facts))
    return path


@pytest.fixture(scope="module")
def first_months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit of January and an update for February; do not write into it."""
    folder = tmp_path_factory.mktemp("months")
    facts = small_shop(folder, units=480)
    fit_release(load_config(dated(folder, facts)), folder / "release", new_account=True)
    file = load_config(month(folder, facts, 1))
    fit_release(file, folder / "february", earlier=load_earlier(file, folder / "release"))
    (folder / "facts.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture
def months(first_months: Path, tmp_path: Path) -> Path:
    shutil.copytree(first_months, tmp_path, dirs_exist_ok=True)
    return tmp_path


def facts_in(folder: Path) -> Facts:
    return json.loads((folder / "facts.json").read_text())


def test_an_update_pays_for_its_own_weeks_alone(first_months: Path) -> None:
    assert stages(first_months) == ["open", *["reserve", "read", "commit"] * 2]
    assert spent(first_months) == Fraction(1, 2)  # and not one
    february = first_months / "february"
    assert faults_of(february, ledger=first_months / "ledger.sqlite") == []
    claim = Released.load(february).certificate
    assert (claim.rho, claim.in_all.rho, claim.ledger.spent) == ("1/2", "1/2", "1/2")
    assert claim.assumed_public.units == 4 * SHOPS
    assert [each.period.first for each in claim.earlier] == ["2025-01-06"]
    leaflet = " ".join((february / "leaflet.txt").read_text().split())
    assert "only this period was read: monday from 2025-02-03 to before 2025-03-03" in leaflet
    assert "release of earlier periods: 2025-01-06 to before 2025-02-03 (rho = 0.5)" in leaflet
    assert "the promise does not hide when one begins" in leaflet
    policy = Policy.load(february / "policy.npz")
    assert [each.first for each in policy.report.periods] == ["2025-01-06", "2025-02-03"]
    assert "1 earlier period" in str(policy.guarantee)
    # Its trees are the faded sum. Noise cannot be repeated, but public numbers can.
    one, two = (FadedTrees.load(first_months / name / "trees.npz") for name in ("release", "february"))
    assert (one.slots, two.slots, two.bins) == (160, 160 + 0.7 * 160, one.bins)
    assert two.squares == pytest.approx(160 + 0.49 * 160)
    assert two.variance == pytest.approx(1.49 * one.variance)


def test_a_third_month_says_what_it_costs_and_what_changed(months: Path, run: Run) -> None:
    config = month(months, facts_in(months), 2)
    arguments = ("update", "--config", config, "--release", months / "february", "--out", months / "march")
    said = " ".join(run(*arguments, "--dry-run").split())
    assert "will then have lost 0.5 at most, of a budget of 0.5" in said
    # n = 160 (1 + 0.7), V = v (1 + 0.49): 272 (√(0.49 + 1/1.49) − 0.7) = 102.7.
    assert "count as 272 weeks, and 0.7 times as much after this one" in said
    assert "no more than before if this period has 103 weeks or more" in said
    assert not (months / "march").exists()
    said = " ".join(run(*arguments).split())
    assert "What changed: Of 6 order-up-to levels" in said
    assert "bread, all steps: mean demand" in said
    assert faults_of(months / "march", ledger=months / "ledger.sqlite") == []
    assert len(Released.load(months / "march").certificate.earlier) == 2
    assert spent(months) == Fraction(1, 2)


def test_weeks_that_a_release_has_read_are_refused(months: Path, run: Run) -> None:
    facts = facts_in(months)
    config = months / "poolrl.toml"
    for first, before in (MONTHS[1], MONTHS[0], ("2025-02-24", "2025-03-31"), ("2024-01-01", "2026-01-01")):
        facts["period"] |= {"first": first, "before": before}
        config.write_text(write_toml(facts))
        with pytest.raises(ValueError, match=r"already, which overlaps with \[period\]"):
            load_earlier(load_config(config), months / "february")
    # January's release knows nothing of February, but the ledger does.
    config = month(months, facts, 1)
    with pytest.raises(ValueError, match=r"a release has read monday from 2025-02-03"):
        run("update", "--config", config, "--release", months / "release", "--out", months / "again")
    assert stages(months) == ["open", *["reserve", "read", "commit"] * 2]


def test_the_same_weeks_with_new_dates_are_refused(months: Path) -> None:
    """Planted: February's rows come again as March's, some of them dropped."""
    table = pq.read_table(months / "log.parquet")
    monday = np.asarray(table["monday"]).astype("datetime64[D]")
    number = np.asarray(table["trajectory"]).astype(int)
    kept = (monday >= np.datetime64(MONTHS[1][0])) & (monday < np.datetime64(MONTHS[1][1]))
    kept &= number >= number[kept].min() + 60
    later = pa.array(monday[kept] + np.timedelta64(28, "D"))
    moved = table.filter(pa.array(kept))
    pq.write_table(moved.set_column(moved.column_names.index("monday"), "monday", later), months / "log.parquet")
    file = load_config(month(months, facts_in(months), 2))
    with pytest.raises(ValueError, match=r"released before, in the period monday from 2025-02-03.*stays spent"):
        fit_release(file, months / "march", earlier=load_earlier(file, months / "february"))
    assert not (months / "march").exists()


def test_an_update_that_was_killed_is_finished_at_no_cost(months: Path) -> None:
    """It had committed February, and was killed before the folder got its name."""
    (months / "february").rename(months / ".february.draft")
    file = load_config(months / "poolrl.toml")
    made = fit_release(file, months / "february", earlier=load_earlier(file, months / "release"))
    assert made.earlier_fit == "finished"
    assert stages(months) == ["open", *["reserve", "read", "commit"] * 2]
    assert faults_of(months / "february", ledger=months / "ledger.sqlite") == []


def test_a_period_without_weeks_costs_nothing_and_a_later_one_can_be_paid(months: Path, run: Run) -> None:
    facts = facts_in(months)
    config = month(months, facts, 2)
    assert "good budget 0 left of 0.5, a fit takes 0.5" in " ".join(run("check", "--config", config).split())
    facts["period"] |= {"first": "2026-03-02", "before": "2026-04-06"}
    config.write_text(write_toml(facts))
    file = load_config(config)
    with pytest.raises(ValueError, match=r"no trajectory begins in monday from 2026-03-02.*Nothing was spent"):
        fit_release(file, months / "march", earlier=load_earlier(file, months / "february"))
    del facts["period"]
    config.write_text(write_toml(facts))
    with pytest.raises(ValueError, match=r"the configuration has no \[period\]"):
        load_earlier(load_config(config), months / "february")
    assert spent(months) == Fraction(1, 2)


def test_a_failure_costs_its_own_period_only(months: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_in(months)
    file = load_config(month(months, facts, 2))
    earlier = load_earlier(file, months / "february")
    with monkeypatch.context() as patch:
        patch.setattr("poolrl.workflow.release_folder.registry_record", Mock(side_effect=OSError(28, "disk full")))
        with pytest.raises(ValueError, match=r"disk full.*stays spent"):
            fit_release(file, months / "march", earlier=earlier)
    with pytest.raises(ValueError, match=r"does not allow rho = 0\.5: only 0 of 0\.5 is left"):
        fit_release(file, months / "march", earlier=earlier)
    assert not list(months.glob(".march.draft"))
    facts["period"] |= {"first": "2025-03-31", "before": "2025-05-05"}
    (months / "poolrl.toml").write_text(write_toml(facts))
    said = " ".join(cost_in_words(load_config(months / "poolrl.toml")))  # no weeks were lost there
    assert "more than the budget allows" not in said


@pytest.mark.slow
def test_units_add_up_and_the_command_says_how_long_the_budget_lasts(tmp_path: Path) -> None:
    facts = small_shop(tmp_path, units=480)
    dated(tmp_path, facts)
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 4, "rho": 0.5, "budget": 1.2}
    first = fit_release(load_config(month(tmp_path, facts, 0)), tmp_path / "release", new_account=True)
    file, folder = load_config(month(tmp_path, facts, 1)), tmp_path / "february"
    said = " ".join(cost_in_words(file))
    assert "add up: from 0.5 to 1, of a budget of 1.2. After it the budget lasts for no further update" in said
    assert spent(tmp_path) == Fraction(1, 2)
    second = fit_release(file, folder, earlier=load_earlier(file, first.folder))
    assert spent(tmp_path) == 1
    claim = second.certificate
    assert (claim.rho, claim.in_all.rho) == ("1/2", "1")
    # A shop is in both months, and the policy holds both: whoever sees February's folder alone sees the sum.
    assert seen_in(claim).rho == "1"
    leaflet = " ".join((folder / "leaflet.txt").read_text().split())
    assert "rho = 1 (zero-concentrated differential privacy)" in leaflet
    assert f"at most {percent(claim.in_all.attack.true_positives_at_most)} of the cases where it is" in leaflet
    assert "rho: 1.0" in (folder / "registry.yaml").read_text()
    assert faults_of(folder, ledger=tmp_path / "ledger.sqlite") == []
    file = load_config(month(tmp_path, facts, 2))
    with pytest.raises(ValueError, match=r"does not allow rho = 0\.5: only 0\.2 of 1\.2 is left"):
        fit_release(file, tmp_path / "march", earlier=load_earlier(file, folder))


# A sales export, whose scale reaches into the period before.


def test_periods_of_an_export_are_its_parts(tmp_path: Path) -> None:
    """Their counts add up to those of the log: the first weeks of a period have the scales of the weeks before it."""
    rng = np.random.default_rng(2)
    rows = []
    for shop, week, day in itertools.product(range(1, 5), range(8), range(2)):
        date = np.datetime64("2025-01-06") + np.timedelta64(7 * week + day, "D")
        order = int(rng.integers(5, 30))
        sold = int(min(order, rng.integers(0, 30)))
        rows.append((str(shop), str(date), "bread", "0", str(order), str(sold), str(sold == order).lower()))
    write_export(tmp_path, rows)
    facts = export_facts(["bread"], scale="same weekday, last 2 weeks")

    def counted(first: str = "", before: str = "") -> Any:
        if first:
            facts["period"] = {"column": "monday", "first": first, "before": before}
        file = configured(tmp_path, facts)
        with open_log(file) as log:
            return log.units, log.outcome_leaves(file.config.problem.posed, bins=8)

    units, leaves = counted()
    parts = [counted("2025-01-06", "2025-01-27"), counted("2025-01-27", "2025-03-03")]
    assert [units, *(part[0] for part in parts)] == [32, 4 * 3, 4 * 5]
    np.testing.assert_array_equal(parts[0][1] + parts[1][1], leaves)
    # Every day of the second period has a scale, from its first week on.
    assert parts[1][1].sum() == 4 * 5 * 2


# Forged papers.

ADD_UP = "periods are disjoint and add up"
FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an earlier period left out": (lambda f: f["earlier"].clear(), ADD_UP),
    "periods that overlap": (lambda f: f["earlier"][0]["period"].update(before="2025-02-10"), ADD_UP),
    "a cheaper earlier period": (lambda f: f["earlier"][0].update(rho="1/4"), "the ledger has paid for"),
    "a dearer earlier period": (lambda f: f["earlier"][0].update(rho="2"), ADD_UP),
    "an earlier date": (lambda f: f["earlier"][0]["period"].update(first="2025-01-01"), "the policy names"),
    "another period of its own": (lambda f: f["period"].update(before="2025-06-02"), "the certificate repeats"),
    "no period at all": (lambda f: [f.pop(n) for n in ("period", "forgetting", "bins", "earlier")], "periods"),
    "another forgetting": (lambda f: f.update(forgetting=1.0), "the certificate repeats"),
    "other bins": (lambda f: f.update(bins=2 * f["bins"]), "counts and sensitivity"),
    "other trees": (lambda f: f.update(trees_sha256="0" * 64), "the released trees"),
    "another certificate": (lambda f: f["earlier"][0].update(certificate_sha256="0" * 64), "the ledger has paid for"),
}
UNREADABLE = ({"first": 7}, {"first": "2030-01-01"}, {"before": "soon"}, {"after": "2030-01-01"})


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_lie_about_periods_is_found(months: Path, forgery: str) -> None:
    edit, check = FORGERIES[forgery]
    path = months / "february" / "certificate.json"
    facts = json.loads(path.read_text())
    for period in UNREADABLE:
        with pytest.raises(ValueError, match="not a complete certificate"):
            Certificate.read(json.dumps(facts | {"period": facts["period"] | period}).encode())
    edit(facts)
    path.write_bytes(Certificate.read(json.dumps(facts).encode()).canonical())
    (months / "february" / "certificate.sig").unlink()
    assert any(check in what for what in faults_of(months / "february", ledger=months / "ledger.sqlite"))


def test_an_earlier_release_that_was_changed_is_not_continued(months: Path) -> None:
    facts = facts_in(months)
    trees = FadedTrees.load(months / "february" / "trees.npz")
    trees.after(trees, 1.0).save(months / "february" / "trees.npz")
    with pytest.raises(ValueError, match=r"does not hold .the released trees have the certified hash"):
        load_earlier(load_config(month(months, facts, 2)), months / "february")
    facts["problem"]["demand_max"] = [50.0, 60.0]
    with pytest.raises(ValueError, match=r"another configuration: the problem .costs may change. differs"):
        load_earlier(load_config(month(months, facts, 2)), months / "release")
