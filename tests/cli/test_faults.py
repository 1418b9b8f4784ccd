"""Faults: stopped at a bad moment, no room, a clock that jumps. `make soak` tries them at random."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import sqlite3
import subprocess
import time
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from attacks.shop import LostError, Shop

from poolrl import Policy
from poolrl.ledger.accounts import Entry
from poolrl.ledger.ledger import Ledger
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.release_folder import fit_release
from tests.helpers.commands import CommandLine
from tests.helpers.ledgers import spent, stages
from tests.helpers.processes import environment, program


def test_a_release_that_cannot_be_moved_stays(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else made the folder meanwhile: what was paid for is kept, and named.

    Until then the draft is for its owner's eyes.
    """
    honest = Ledger.commit

    def slow(*args: object) -> object:
        assert (tmp_path / ".release.draft").stat().st_mode & 0o777 == 0o700
        (tmp_path / "release").mkdir()
        (tmp_path / "release/other").write_text("")
        return honest(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "commit", slow)
    words = r"is complete and paid for, and lies in (.*draft), but could not be moved safely to"
    with pytest.raises(ValueError, match=words) as said:
        fit_release(load_config(config), tmp_path / "release", new_account=True)
    place = re.search(words, str(said.value))
    assert place is not None
    assert Policy.load(Path(place[1]) / "policy.npz").guarantee.private


def test_a_ledger_that_fails_at_the_end_does_not_hide_what_was_spent(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody holds the ledger when the release is about to be committed: neither commit nor a look at it works."""
    monkeypatch.setattr("poolrl.ledger.chain.LOCK_PATIENCE", 0.05)
    holders, honest = [], Ledger.commit

    def held(*args: Any) -> Entry:
        holders.append(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None))
        holders[0].execute("BEGIN EXCLUSIVE")
        return honest(*args)

    monkeypatch.setattr(Ledger, "commit", held)
    with pytest.raises(ValueError, match=r"database is locked\. The release had begun, so its rho = 0\.5 stays spent"):
        fit_release(load_config(config), tmp_path / "release", new_account=True)
    holders[0].close()
    assert stages(tmp_path) == ["open", "reserve", "read"]
    assert not (tmp_path / "release").exists()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("no_page")
def test_a_signal_between_payment_and_release_waits(
    tmp_path: Path, config: Path, by: signal.Signals, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that comes with the commit waits until the release is where it belongs."""
    honest = Ledger.commit

    def interrupted(*args: object) -> object:
        entry = honest(*args)  # type: ignore[arg-type]
        os.kill(os.getpid(), by)
        return entry

    monkeypatch.setattr(Ledger, "commit", interrupted)
    answer = command_line("fit", "--new-account", "--config", config)
    assert answer.code == 130
    assert "is complete and paid for" in answer.err
    assert stages(tmp_path)[-1] == "commit"
    assert {"policy.npz", "certificate.json", "leaflet.txt"} <= {path.name for path in (tmp_path / "release").iterdir()}


@pytest.mark.parametrize("becomes", [KeyboardInterrupt, ImportError, ValueError])
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_the_log_is_read_costs_nothing(
    tmp_path: Path,
    config: Path,
    by: signal.Signals,
    becomes: type[BaseException],
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in a library that raises another exception for it: rho is given back, and no draft stays."""

    def interrupted(*_: object) -> None:
        try:
            os.kill(os.getpid(), by)
            time.sleep(30)
        except KeyboardInterrupt:
            raise becomes from None

    monkeypatch.setattr("poolrl.workflow.release_folder.sketch_of", interrupted)
    answer = command_line("fit", "--new-account", "--config", config)
    assert answer.err == ("poolrl: . Nothing was spent\n" if becomes is ValueError else "poolrl: stopped\n")
    assert answer.code == 130
    assert stages(tmp_path) == ["open", "reserve", "void"]
    assert {path.name for path in tmp_path.glob(".release*")} <= {".release.lock"}


@pytest.mark.parametrize("when", ["callback", "end"])
def test_no_interrupt_signal_is_lost(when: str) -> None:
    """An exception that a compiled library cannot pass on is raised again; at its end, a signal just ends Python."""
    command = program("waiting_command", when)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.terminate()
    _, said = process.communicate(timeout=30)
    if when == "end":
        assert (process.returncode, said) == (-signal.SIGTERM, "")
    else:
        assert (process.returncode, said) == (130, "poolrl: stopped\n")


@pytest.mark.slow
@pytest.mark.parametrize("most", [2_000, 40_000])
def test_where_files_cannot_grow_nothing_is_gained(tmp_path: Path, config: Path, most: int) -> None:
    release = tmp_path / "release"
    answer = subprocess.run(
        program("quick_poolrl", "fit", "--new-account", "--config", config),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("poolrl: ")
    assert "defect" not in answer.stderr
    account = None
    if (tmp_path / "ledger.sqlite").exists() and (tmp_path / "ledger.sqlite").stat().st_size:
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.verify() == []
            account = ledger.account("small shop")
    if release.exists():
        assert spent(tmp_path) == Fraction(1, 2)
        Policy.load(release / "policy.npz")
    else:  # the fit that failed may have opened the account already
        fit_release(load_config(config), release, new_account=account is None)
        assert stages(tmp_path)[-1] == "commit"


class JumpingClock(datetime):
    """Jumps by up to fifty years, either way, each time somebody looks at it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return super().now(tz) + timedelta(days=random.uniform(-18_000, 18_000))


def test_a_clock_that_jumps_stops_nothing(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolrl.ledger.chain.datetime", JumpingClock)
    fit_release(load_config(config), tmp_path / "release", new_account=True)
    assert stages(tmp_path) == ["open", "reserve", "read", "commit"]
    assert spent(tmp_path) == Fraction(1, 2)
    with Ledger.existing(tmp_path / "ledger.sqlite") as ledger:
        years = [int(entry.time[:4]) for entry in ledger.entries()]
    assert max(years) - min(years) > 1  # it did jump


def test_the_soak_would_notice_what_is_lost(tmp_path: Path) -> None:
    """Its checks of a shop with a release, from which something is taken."""
    shop = Shop(tmp_path, random.Random(0))
    fit_release(load_config(shop.write()), shop.out(), new_account=True)
    shop.check()
    leaflet, ledger, made = tmp_path / "out-1/leaflet.txt", tmp_path / "ledger.sqlite", tmp_path / "out-1"
    hidden, extra = tmp_path / "hidden", tmp_path / "out-3"
    text, seen = leaflet.read_bytes(), shop.seen
    forged = [*seen[:-1], replace(seen[-1], seal="another")]
    for what, lose, restore in (
        ("a release is not complete", leaflet.unlink, lambda: leaflet.write_bytes(text)),
        ("does not verify", lambda: leaflet.write_bytes(text + b" "), lambda: leaflet.write_bytes(text)),
        ("more releases than were paid for", lambda: extra.symlink_to(made), extra.unlink),
        ("a release that was paid for is gone", lambda: made.rename(hidden), lambda: hidden.rename(made)),
        ("an entry of the ledger is gone", lambda: setattr(shop, "seen", forged), lambda: setattr(shop, "seen", seen)),
        ("the ledger is gone", lambda: ledger.rename(hidden), lambda: hidden.rename(ledger)),
    ):
        lose()
        with pytest.raises(LostError, match=what):
            shop.check()
        restore()
        shop.check()
