"""What a stopped fit leaves: the next one finishes what was paid for, and removes nothing that may have been."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from poolrl import Policy
from poolrl.certificate.release_files import sha256 as hash_of
from poolrl.ledger.accounts import Entry
from poolrl.ledger.ledger import Ledger
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.release_folder import fit_release, locked, settle
from tests.helpers.commands import CommandLine
from tests.helpers.ledgers import spent, stages
from tests.helpers.processes import environment, program
from tests.helpers.shops import Run, faults_of

pytestmark = pytest.mark.xdist_group("killed fits")  # one worker makes them


def draft_in(folder: Path, shop: Path) -> Path:
    """A copy of a shop, and the draft in it."""
    shutil.copytree(shop, folder, dirs_exist_ok=True)
    draft = folder / ".release.draft"
    assert draft.is_dir()
    return draft


@pytest.fixture
def committed(tmp_path: Path, killed_fits: Path) -> Path:
    """The draft of a fit that was killed after its commit."""
    return draft_in(tmp_path, killed_fits / "commit-after")


@pytest.fixture
def uncommitted(tmp_path: Path, killed_fits: Path) -> Path:
    """The draft of a fit that was killed before its commit."""
    return draft_in(tmp_path, killed_fits / "_write_draft-after")


def settled(folder: Path) -> str | None:
    """What became of the draft."""
    place = folder / ".release.draft", folder / "release"
    return settle(*place, folder / "ledger.sqlite", hash_of(folder / "poolrl.toml"))


@pytest.mark.usefixtures("no_page")
def test_a_release_that_was_committed_is_finished_by_the_next_fit(tmp_path: Path, committed: Path, run: Run) -> None:
    """Killed between the payment and the last rename: it is there already, and costs nothing more."""
    release, before = tmp_path / "release", stages(tmp_path)
    assert not release.exists()
    said = run("fit", "--new-account", "--config", tmp_path / "poolrl.toml")
    assert "had paid for this release: it is finished now, at no further cost" in " ".join(said.split())
    assert stages(tmp_path) == before
    assert spent(tmp_path) == Fraction(1, 2)
    assert not committed.exists()
    assert Policy.load(release / "policy.npz").guarantee.private
    assert faults_of(release, ledger=tmp_path / "ledger.sqlite") == []


def test_a_second_fit_to_the_same_place_is_refused_while_the_first_runs(tmp_path: Path, config: Path) -> None:
    with locked(tmp_path / "release") as draft:
        draft.mkdir()
        (draft / "policy.npz").write_bytes(b"half")
        with pytest.raises(ValueError, match=r"another fit is writing to .*: wait for it, or name another place"):
            fit_release(load_config(config), tmp_path / "release", new_account=True)
        assert not (tmp_path / "ledger.sqlite").exists()
        with locked(tmp_path / "r[e]lease") as other:  # another place is free
            assert settle(other, tmp_path / "r[e]lease", tmp_path / "ledger.sqlite", "") is None
        assert (draft / "policy.npz").read_bytes() == b"half"


@pytest.mark.parametrize("name", [".release.draft2", "release.draft"])
def test_what_is_named_otherwise_is_not_a_draft(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("mine")
    with locked(tmp_path / "release") as draft:
        assert settle(draft, tmp_path / "release", tmp_path / "ledger.sqlite", "") is None
    assert (tmp_path / name / "thesis.txt").read_text() == "mine"


MINE: dict[str, Callable[[Path], object]] = {
    "a folder": lambda draft: shutil.copytree(draft.parent, draft),
    "a file": lambda draft: draft.write_text("mine"),
    "a link": lambda draft: draft.symlink_to(draft.parent),
    "a link to nowhere": lambda draft: draft.symlink_to(draft.parent / "nowhere"),
}


@pytest.mark.parametrize("what", MINE)
def test_what_poolrl_did_not_put_there_is_left_alone(tmp_path: Path, config: Path, what: str) -> None:
    MINE[what](tmp_path / ".release.draft")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"\.release\.draft holds things that poolrl has not put there"):
        fit_release(load_config(config), tmp_path / "release", new_account=True)
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != ".release.lock"] == before


def spoil(how: Callable[[bytes], bytes], name: str = "certificate.json") -> Callable[[Path], object]:
    """Change the bytes of a file of the draft."""
    return lambda draft: (draft / name).write_bytes(how((draft / name).read_bytes()))


def into_a_link(name: str) -> Callable[[Path], object]:
    """Move a file of the draft elsewhere, and leave a link."""
    return lambda draft: (draft / name).symlink_to((draft / name).rename(draft.parent / "mine"))


def remove_certificate(draft: Path) -> None:
    (draft / "certificate.json").unlink()


def nothing(draft: Path) -> None:
    """What is wrong lies elsewhere."""


PAID = "may be a release that was paid for"
UNKNOWN = rf"{PAID}, but .*{{}} knows no such release"
UNKNOWN_HERE = UNKNOWN.format("ledger.sqlite")
PLANTED = "things that poolrl has not put there"
# What happens to a draft that was committed, and what is said.
LEFT_ALONE: dict[str, tuple[Callable[[Path], object], str]] = {
    "another configuration": (nothing, PAID),
    "another version": (nothing, f"{PAID}, of another version"),
    "no ledger": (nothing, f"{PAID}, but its ledger .*elsewhere.sqlite is not there"),
    "no ledger, and no certificate": (remove_certificate, f"{PAID}, but its ledger .* is not there"),
    "a new ledger": (lambda draft: begun_anew(draft.parent, void=False), UNKNOWN_HERE),
    "a new ledger, with a void": (lambda draft: begun_anew(draft.parent, void=True), UNKNOWN_HERE),
    "another ledger": (nothing, UNKNOWN.format("other.sqlite")),
    "another byte": (spoil(lambda content: content[:10] + bytes([content[10] ^ 255]) + content[11:]), UNKNOWN_HERE),
    "gone": (remove_certificate, UNKNOWN_HERE),
    "another policy": (spoil(lambda _: b"PK", "policy.npz"), UNKNOWN_HERE),
    "a certificate that is a link": (into_a_link("certificate.json"), PLANTED),
    "a link inside": (into_a_link("leaflet.txt"), PLANTED),
    "a folder inside": (lambda draft: (draft / ".AppleDouble").mkdir(), PLANTED),
    "a file beside its own": (lambda draft: (draft / "policy.npz.orig").touch(), PLANTED),
    "a draft of another user": (nothing, PLANTED),  # who could plant a copy of a release with another label
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_what_was_paid_for_is_never_removed_and_what_was_planted_never_moved(
    tmp_path: Path, committed: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, words = LEFT_ALONE[why]
    change(committed)
    books, its_config = tmp_path / "ledger.sqlite", hash_of(tmp_path / "poolrl.toml")
    if why == "another configuration":
        its_config = "another"
    if why == "another version":
        monkeypatch.setattr("poolrl.workflow.release_folder.Certificate.read", lambda _: int("not our version"))
    if why == "a draft of another user":
        monkeypatch.setattr("os.geteuid", lambda: committed.stat().st_uid + 1)
    if why.startswith("no ledger"):
        books = tmp_path / "elsewhere.sqlite"
    if why == "another ledger":
        books = tmp_path / "other.sqlite"
        with Ledger(books) as other:
            other.open_account("small shop", Fraction(1))
    before = {path: path.read_bytes() for path in committed.rglob("*") if path.is_file()}
    how_to_go_on = "move it to where it belongs, remove .* or name another place"
    with pytest.raises(ValueError, match=f"{words}.*: {how_to_go_on}"):
        settle(committed, tmp_path / "release", books, its_config)
    assert {path: path.read_bytes() for path in committed.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "release").exists()


def begun_anew(folder: Path, *, void: bool) -> None:
    """Begin a ledger anew in the same place: another fit there takes the number of the one that was paid for."""
    ledger = folder / "ledger.sqlite"
    with Ledger(ledger) as books:
        [account] = books.accounts().values()
        [(number, spend)] = account.spends.items()
    for file in ledger.parent.glob(f"{ledger.name}*"):
        file.unlink()
    with Ledger(ledger) as books:
        books.open_account("another shop", Fraction(1))
        books.open_account("small shop", Fraction(1))
        paid = books.reserve("small shop", Fraction(1, 4), spend.unit)
        assert paid.number == number
        if void:
            books.void(paid)


def test_a_copy_of_a_draft_is_left_alone_and_overwrites_nothing(tmp_path: Path, committed: Path) -> None:
    copy = Path(shutil.copytree(committed, tmp_path / ".release.draft-copy"))
    assert settled(tmp_path) == "finished"
    assert (copy / "policy.npz").exists()
    copy.rename(committed)
    with pytest.raises(ValueError, match="exists, and a release is never overwritten"):
        fit_release(load_config(tmp_path / "poolrl.toml"), tmp_path / "release")
    assert (committed / "policy.npz").exists()


@pytest.mark.parametrize("left", [None, 100, 0])
def test_a_draft_that_was_not_committed_is_removed_and_stays_paid(
    tmp_path: Path, uncommitted: Path, left: int | None
) -> None:
    """Complete, or cut off while its certificate was written, or before."""
    certificate = uncommitted / "certificate.json"
    if left is not None:
        certificate.write_bytes(certificate.read_bytes()[:left])
    if left == 0:
        certificate.unlink()
    assert settled(tmp_path) == "removed"
    assert not uncommitted.exists()
    assert spent(tmp_path) == Fraction(1, 2)
    assert stages(tmp_path) == ["open", "reserve", "read"]


# Stopped at a bad moment, or no room. `make soak` tries them at random.


def test_a_release_that_cannot_be_moved_stays(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else made the folder meanwhile: what was paid for is kept, and named.

    Until then the draft is for its owner's eyes.
    """
    honest = Ledger.commit

    def slow(*args: object) -> object:
        assert (tmp_path / ".release.draft").stat().st_mode & 0o777 == 0o700
        (tmp_path / "release").mkdir()
        (tmp_path / "release/other").write_text("")
        return honest(*args)

    monkeypatch.setattr(Ledger, "commit", slow)
    words = r"is complete and paid for, and lies in .*\.release\.draft, but could not be moved safely to"
    with pytest.raises(ValueError, match=words):
        fit_release(load_config(config), tmp_path / "release", new_account=True)
    assert Policy.load(tmp_path / ".release.draft" / "policy.npz").guarantee.private


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
        entry = honest(*args)
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
    release, ledger = tmp_path / "release", tmp_path / "ledger.sqlite"
    fit = program("quick_poolrl", "fit", "--new-account", "--config", config)
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most, most))
    answer = subprocess.run(fit, capture_output=True, text=True, check=False, env=environment(), preexec_fn=small)
    assert answer.returncode == 1
    assert answer.stderr.startswith("poolrl: ")
    assert "defect" not in answer.stderr
    if release.exists():
        assert spent(tmp_path) == Fraction(1, 2)
        Policy.load(release / "policy.npz")
    else:  # the fit that failed may have opened the account already
        opened = ledger.exists() and ledger.stat().st_size > 0 and stages(tmp_path) != []
        fit_release(load_config(config), release, new_account=not opened)
        assert stages(tmp_path)[-1] == "commit"
    assert faults_of(release, ledger=ledger) == []
