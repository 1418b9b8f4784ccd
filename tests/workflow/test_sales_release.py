"""A release of a sales export with a scale and labels: what it says, and that it verifies."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from poolrl import Policy
from poolrl.certificate.certificate import Certificate
from poolrl.cli.audit import configured_case
from poolrl.ledger.accounts import Spend, UnitsError, totals
from poolrl.privacy.release import release_outcomes
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.release_folder import fit_release
from poolrl.workflow.trades.shop_example import write_example
from poolrl.workflow.verified import verify_folder
from tests.helpers.exports import configured
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.shops import Facts, Run


def words_of(path: Path) -> str:
    return " ".join(path.read_text().split())


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, Path]:
    """The example's facts, and its folder with a release; a test that changes something restores it."""
    folder = tmp_path_factory.mktemp("example")
    facts = write_example(folder, seed=1)
    fit_release(configured(folder, facts), folder / "release", new_account=True)
    return facts, folder


def test_the_example_is_released_and_verified(example: tuple[Facts, Path]) -> None:
    """Every paper says which logs are neighbours: ids stay, four other weeks have another scale, labels may change."""
    facts, place = example
    file, folder = configured(place, facts), place / "release"
    policy = Policy.load(folder / "policy.npz")
    broken = [
        check.what
        for check in verify_folder(folder / "policy.npz", folder / "certificate.json", ledger=file.ledger)
        if not check.good
    ]
    assert broken == []
    assert policy.levels.shape == (2, 7, 3)
    promoted = policy.levels[1] / policy.levels[0]
    assert 1.1 < promoted.mean() < 1.9  # nature sells half as much again
    claim = Certificate.read((folder / "certificate.json").read_bytes())
    assert (claim.scaled, claim.scale_memory, claim.labels) == (True, 4, "protected")
    assert claim.adjacency == "replace what happened in one"
    assert "same weekday" not in (claim.assumed_public.query or "")  # it is SQL
    assert "RANGE BETWEEN 4 PRECEDING AND 1 PRECEDING" in (claim.assumed_public.query or "")
    leaflet = words_of(folder / "leaflet.txt")
    assert "covers what happened in each of them, not that it is in the log: their ids are public." in leaflet
    assert "replace what happened in one trajectory; the list of trajectories, by their ids, is public" in leaflet
    assert "changes the scales of at most 4 others; 5 trajectories are paid for" in leaflet
    assert "the list of trajectories" in words_of(folder / "registry.yaml")
    guarantee = str(policy.guarantee)
    assert "neighbouring logs replace what happened in one trajectory; the list of trajectories" in guarantee


def test_one_account_for_one_kind_of_neighbours(example: tuple[Facts, Path], tmp_path: Path) -> None:
    """A second release for weeks that may move cannot be added to one for weeks that stay: refused, nothing spent."""
    known, folder = example
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    facts = known | {"privacy": known["privacy"] | {"weeks_public": False}}
    with pytest.raises(ValueError, match=r"its releases compare other neighbours .*keep to weeks_public as it was"):
        fit_release(configured(tmp_path, facts), tmp_path / "second")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("sales", "date", "booked"), ("sales", "date_format", "%d.%m.%Y"), ("sales", "shop", "region")],
)
def test_weeks_of_other_columns_are_other_trajectories(tmp_path: Path, section: str, key: str, value: str) -> None:
    """Every export has weeks and shops, but not the same ones: cut by another date, two of them share rows."""
    facts = write_example(tmp_path, seed=1)
    usual = configured(tmp_path, facts).config
    facts[section][key] = value
    other = configured(tmp_path, facts).config
    with pytest.raises(UnitsError, match="is not known"):
        totals([Spend(Fraction(1), "committed", each.unit()) for each in (usual, other)])
    facts["period"] = {"column": "monday", "first": "2025-01-06", "before": "2025-02-03"}
    january = configured(tmp_path, facts).config.declared_period()
    facts[section][key] = "elsewhere" if key != "date_format" else "%m/%d/%Y"
    again = configured(tmp_path, facts).config.declared_period()
    assert january is not None
    assert january.overlaps(again) == (january.axis != again.axis or january == again)  # type: ignore[union-attr]
    assert (january.axis != again.axis) == (key != "shop")  # type: ignore[union-attr]


def test_an_audit_attacks_the_configured_scale_and_labels(tmp_path: Path) -> None:
    """Its two logs, opened as long rows, move all that is paid for: five trajectories, by 2 H k L c²."""
    facts = write_example(tmp_path, seed=1)
    facts["plan"]["units"] = 20
    case = configured_case(configured(tmp_path, facts))
    recorders = Recorder(), Recorder()
    with case.logs() as logs:
        for log, recorder in zip(logs, recorders, strict=True):
            released = release_outcomes(log, case.problem, level_sizes=(2, 4), rho=1.0, noise=recorder)
    (mechanism,) = released.guarantee.mechanisms
    assert released.guarantee.scale_memory == 4
    assert sum(squared_change(*recorders)) == mechanism.sensitivity_squared == 2 * 7 * 3 * 2 * 5**2


@pytest.mark.usefixtures("short_plan")
def test_plan_says_what_it_assumes(tmp_path: Path, run: Run) -> None:
    """Five trajectories are paid for at once, and labels are not simulated."""
    configured(tmp_path, write_example(tmp_path, seed=1))
    plan = ["plan", "--config", tmp_path / "poolrl.toml", "--demand", "normal", "--units", "100", "--within", "0.9"]
    said = " ".join(run(*plan).split())
    assert "pays for 5 trajectories at once" in said
    assert "their 2 combinations are learned as one" in said
    (tmp_path / "sensitive" / "sales.csv").unlink()
    assert load_config(tmp_path / "poolrl.toml").config.moved == 5
