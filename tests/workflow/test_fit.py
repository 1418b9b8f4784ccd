"""`poolrl fit`: what is spent, what is refused, and what is left when it is cut off."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from poolrl import Policy
from poolrl.certificate.certificate import arithmetic_faults
from poolrl.cli.fit import page_of
from poolrl.ledger.ledger import Ledger
from poolrl.pool import OnOutcomes
from poolrl.privacy.noise.secure import _SecureSampler
from poolrl.privacy.zcdp import attack_power
from poolrl.workflow import release_folder
from poolrl.workflow.config.configuration import Config, load_config
from poolrl.workflow.paying import ON_TOP_SHARE, require_payable, shares_on_top
from poolrl.workflow.release_folder import Released, fit_release
from tests.helpers.killed import KILLED_AT, KILLED_BETWEEN, kill_fits
from tests.helpers.ledgers import spent, stages
from tests.helpers.shops import DRAWN, RELEASE, Facts, Run, faults_of, small_shop, write_config


def test_fit_leaves_a_complete_release(one_release: Path) -> None:
    release = one_release / "release"
    assert {path.name for path in release.iterdir()} == RELEASE
    assert release.stat().st_mode & 0o777 == 0o755
    assert {path.name for path in one_release.glob(".*")} <= {".release.lock"}  # no draft is left
    policy = Policy.load(release / "policy.npz")
    assert policy.guarantee.private
    assert policy.guarantee.rho == 0.5
    assert policy.names.products == ["bread", "milk"]
    assert stages(one_release) == ["open", "reserve", "read", "commit"]
    assert spent(one_release) == Fraction(1, 2)


def test_nothing_that_may_be_handed_out_holds_a_logged_number(one_release: Path) -> None:
    """Amounts have sixteen digits: in no text may their first seven turn up, in no array the whole number."""
    table = pq.read_table(one_release / "log.parquet")
    values = np.concatenate([table[name].to_numpy() for name in ("action_0", "next_state_1")])
    values = values[values > 1]
    numbers = {f"{value:.5f}" for value in values}
    assert len(numbers) > 1000
    for path in (one_release / "release").iterdir():
        if path.suffix == ".npz":
            with np.load(path) as file:
                assert not [name for name in file.files if np.isin(values, file[name]).any()]
        else:
            text = path.read_text()
            assert not [number for number in numbers if number in text]


@pytest.mark.usefixtures("no_page")
def test_a_correlation_is_bought_where_it_helps_and_verified(tmp_path: Path, facts: Facts, run: Run) -> None:
    """By public facts: with 1,000 declared units."""
    facts["privacy"] |= {"together": True, "budget": 2.0}
    facts["plan"]["units"] = 1_000
    config = write_config(tmp_path, facts)
    said = " ".join(run("fit", "--new-account", "--config", config).split())
    assert "Products sell together with a correlation of" in said
    assert "meaningful protection" not in said  # as is said where there is none
    release = tmp_path / "release"
    policy = Policy.load(release / "policy.npz")
    assert [each.name for each in policy.guarantee.mechanisms][-1] == "products that sell together"
    assert policy.guarantee.rho == 0.5
    assert faults_of(release, config=config) == []


def test_a_second_fit_pays_again_and_a_third_is_refused(released: Path, run: Run) -> None:
    config = released / "poolrl.toml"
    file, first = load_config(config), released / "release"
    with pytest.raises(ValueError, match="a release is never overwritten"):
        fit_release(file, first, new_account=True)
    assert spent(released) == Fraction(1, 2)
    second = fit_release(file, released / "again")
    assert spent(released) == 1
    ledger = ("--ledger", released / "ledger.sqlite")
    assert "more was spent, 1 in all" in run("verify", first / "policy.npz", first / "certificate.json", *ledger)
    # The second certificate and its leaflet count both.
    assert (second.certificate.rho, second.certificate.in_all.rho) == ("1/2", "1")
    leaflet = " ".join((released / "again" / "leaflet.txt").read_text().split())
    assert "Earlier releases, or attempts at them, have taken budget from this data set too" in leaflet
    found = f"finds out in at most {math.ceil(100 * attack_power(1.0))}%"
    assert f"(rho = 1 together, epsilon = 7.77 at delta 1e-06) {found}" in leaflet
    less = second.certificate.model_copy(update={"in_all": Released.load(first).certificate.in_all})
    assert arithmetic_faults(less, second.policy.guarantee) == ["in_all does not follow from the rest"]
    with pytest.raises(ValueError, match=r"does not allow rho = 0.5: only 0 of 1 is left"):
        fit_release(file, released / "third")
    with pytest.raises(SystemExit):
        run("check", "--config", config)
    assert not (released / "third").exists()
    run("ledger", "budget", "1.5", "--reason", "another season", "--config", config)
    with pytest.raises(ValueError, match=r"was given a budget of 1\.5 in the ledger, not 1\."):
        fit_release(file, released / "third")


def test_a_log_that_cannot_be_read_costs_nothing(tmp_path: Path, config: Path) -> None:
    file, release = load_config(config), tmp_path / "release"
    (tmp_path / "log.parquet").rename(tmp_path / "elsewhere.parquet")
    with pytest.raises(ValueError, match=r"there is no file .*log.parquet. Nothing was spent"):
        fit_release(file, release, new_account=True)
    table = pq.read_table(tmp_path / "elsewhere.parquet")
    broken = table.set_column(4, "action_0", pa.array(["31337.25"] * len(table)))
    pq.write_table(broken, tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"'action_0' must hold numbers.*Nothing was spent") as caught:
        fit_release(file, release)
    assert "31337" not in str(caught.value)
    assert stages(tmp_path) == ["open", "reserve", "void", "reserve", "void"]
    assert spent(tmp_path) == 0
    assert not release.exists()


def test_a_log_that_is_not_observed_is_said_to_be(tmp_path: Path, facts: Facts, run: Run) -> None:
    """Steps outside the declared ones: no row can be refused, but what was released shows it.

    A forecast on the estimate alone would look good.
    """
    facts["log"]["first_step"] = 100
    said = " ".join(run("fit", "--new-account", "--config", write_config(tmp_path, facts)).split())
    assert re.search(r"only [0-9]% of the log was observed", said)  # noise alone looks like a percent or two
    assert "This log is noise-dominated" in said
    assert (tmp_path / "release" / "report.html").read_text().count("This log is noise-dominated") == 2


def stopped_in_the_second_table() -> Callable[..., Any]:
    honest, calls = _SecureSampler.add, itertools.count(1)

    def add(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return honest(*arguments)

    return add


# Whose function does what else instead, and what is said.
FULL = OSError(28, "No space left on device")
FAILURES: list[tuple[Any, str, Callable[..., Any], str]] = [
    (OnOutcomes, "release", Mock(side_effect=KeyboardInterrupt()), "stopped by KeyboardInterrupt"),
    (_SecureSampler, "add", stopped_in_the_second_table(), "stopped by KeyboardInterrupt"),
    (OnOutcomes, "learn", Mock(side_effect=MemoryError("31337.25")), "stopped by MemoryError"),
    (OnOutcomes, "learn", Mock(side_effect=RuntimeError("31337.25")), "stopped by RuntimeError"),
    (release_folder, "registry_record", Mock(side_effect=FULL), "No space left on device"),
    (release_folder, "hashes_of", lambda _: {"certificate.json": "its hash"}, "was changed while it was written"),
]


@pytest.mark.parametrize(("owner", "step", "instead", "words"), FAILURES)
def test_a_failure_after_the_log_was_read_is_paid_for(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, instead: Any, words: str
) -> None:
    """No value of the log is repeated, and no file is left: neither a draft nor one that is half noised."""
    before = {path.name for path in tmp_path.iterdir()}
    monkeypatch.setattr(OnOutcomes, "learn_from_nothing", lambda _: None)  # it learns too, before anything is spent
    monkeypatch.setattr(owner, step, instead)
    with pytest.raises(ValueError, match=f"{words}. The release had begun, so its rho = 0.5 stays spent") as caught:
        fit_release(load_config(config), tmp_path / "release", new_account=True)
    assert "(entry 3 of" in str(caught.value)
    assert "31337" not in str(caught.value)
    assert spent(tmp_path) == Fraction(1, 2)
    assert stages(tmp_path) == ["open", "reserve", "read"]
    books = {"ledger.sqlite", "ledger.sqlite.key", "ledger.sqlite.signing"}
    assert {path.name for path in tmp_path.rglob("*")} == before | books | {".release.lock"}


def test_a_place_that_cannot_be_written_to_costs_nothing(tmp_path: Path, config: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "link", Path("/proc/poolrl-release"), tmp_path / "file" / "x", Path(".."), tmp_path / ".."):
        with pytest.raises((ValueError, OSError)):
            fit_release(load_config(config), out, new_account=True)
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("error", "words"), [(KeyboardInterrupt(), "stopped"), (ImportError("no ink"), "no page: no ink")]
)
def test_a_page_that_cannot_be_drawn_does_not_hide_the_release(
    released: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str
) -> None:
    monkeypatch.setattr("poolrl.workflow.page.draw_page", Mock(side_effect=error))
    with pytest.raises(ValueError, match=rf"{words}. The release in .* is complete and paid for; 'poolrl report"):
        page_of(Released.load(released / "release"), Console(quiet=True))
    (released / "release" / "report.html").unlink()
    with pytest.raises(ValueError, match=r"'poolrl report .*' draws its page"):
        fit_release(load_config(released / "poolrl.toml"), released / "release")


@pytest.mark.usefixtures("short_plan")
def test_degenerate_costs_and_full_feedback(tmp_path: Path, facts: Facts, run: Run) -> None:
    """And a ρ that protects nobody, which the fit says."""
    facts["problem"] |= {"kind": "backlog", "boundary": 1.0, "holding": 0.0}
    facts["privacy"] |= {"rho": 5.0, "budget": 5.0}
    config, release = write_config(tmp_path, facts), tmp_path / "release"
    said = run("fit", "--new-account", "--config", config)
    assert "There is no meaningful protection. Epsilon is" in " ".join(said.split())
    assert faults_of(release, ledger=tmp_path / "ledger.sqlite") == []
    page = (release / "report.html").read_text()
    assert "never seen" not in page  # nothing hides in a backlog
    assert "Kaplan-Meier" not in page
    json.loads(run("plan", "--config", config, "--demand", "normal", "--json"))


def test_names_are_written_as_they_are_and_become_no_markup(tmp_path: Path, facts: Facts, run: Run) -> None:
    """Although they could be taken for markup."""
    facts["publication"]["curator"] = "Bäcker [/bold] 面包"
    facts["problem"] |= {"products": ["bröd [/x]", "</script><img src=x onerror=alert(1)>"]}
    release = tmp_path / "out[/bold]"
    run("fit", "--new-account", "--config", write_config(tmp_path, facts), "--out", release)
    assert "Bäcker [/bold] 面包" in (release / "registry.yaml").read_text(encoding="utf-8")
    page = (release / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert r"\u003c/script\u003e\u003cimg" in page


def assert_nothing_is_gained(folder: Path, *, paid: bool, complete: bool) -> None:
    """A reservation stays spent, and a release is there complete and committed, or not at all."""
    assert spent(folder) == Fraction(int(paid), 2)
    assert (folder / "release").exists() == complete
    if complete:
        assert stages(folder)[-1] == "commit"
        assert {path.name for path in (folder / "release").iterdir()} >= RELEASE - DRAWN
        Policy.load(folder / "release" / "policy.npz")


@pytest.mark.xdist_group("killed fits")  # one worker makes them
@pytest.mark.parametrize("case", KILLED_AT)
def test_kill_9_at_each_step(killed_fits: Path, case: str) -> None:
    paid, complete = KILLED_AT[case]
    assert_nothing_is_gained(killed_fits / case, paid=paid, complete=complete)


@pytest.mark.slow
def test_kill_9_between_the_steps(tmp_path: Path) -> None:
    kill_fits(tmp_path, KILLED_BETWEEN)
    for case, (paid, complete) in KILLED_BETWEEN.items():
        assert_nothing_is_gained(tmp_path / case, paid=paid, complete=complete)


FIT = """
import sys
from pathlib import Path
from poolrl.workflow.config.configuration import Config, load_config
from poolrl.workflow.paying import ON_TOP_SHARE, require_payable, shares_on_top
from poolrl.workflow.release_folder import fit_release
fit_release(load_config(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_fits_at_once_cannot_overspend(tmp_path: Path, config: Path) -> None:
    """Three fits of a half each ask for a budget of one."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("small shop", 1.0)
    command = [sys.executable, "-c", FIT, config]
    running = [subprocess.Popen([*command, tmp_path / f"out{i}"], stderr=subprocess.PIPE) for i in range(3)]
    refused = [error for process in running if (error := process.communicate()[1].decode())]
    assert len(refused) == 1, refused
    assert "only 0 of 1 is left" in refused[0]
    assert len(list(tmp_path.glob("out*/policy.npz"))) == 2
    assert spent(tmp_path) == 1


def test_a_fit_asks_for_sums_where_they_help_and_can_be_drawn(tmp_path: Path) -> None:
    facts = small_shop(tmp_path, units=2)
    assert shares_on_top(Config.model_validate(facts), 0.1)["left_over"] == ON_TOP_SHARE
    backlog = facts | {"problem": facts["problem"] | {"kind": "backlog"}}
    assert shares_on_top(Config.model_validate(backlog), 0.1)["left_over"] == 0.0
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 500}
    assert shares_on_top(Config.model_validate(facts), 0.01)["left_over"] == 0.0  # noise beyond the exact tables


def test_a_policy_that_could_not_be_read_again_is_refused_before_payment(tmp_path: Path) -> None:
    facts = small_shop(tmp_path, units=2)
    facts["problem"] |= {"labels": {"trajectory": "1..60000"}}
    config = Config.model_validate(facts)
    with pytest.raises(ValueError, match=r"60,000 combinations of labels.*too large to be read again: measure amounts"):
        require_payable(config, ON_TOP_SHARE)
    facts["problem"] |= {"labels": {"trajectory": "1..600"}}
    require_payable(Config.model_validate(facts), ON_TOP_SHARE)
