"""Faults: killed at a bad moment, asked to end, no room, a clock that jumps. `make soak` tries them at random."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from attacks.faults import CLOCK
from attacks.shop import POOLRL, LostError, Shop

from poolrl import Policy
from poolrl.app.drafts import Tidied, draft_of, tidy
from poolrl.app.files import sha256 as hash_of
from poolrl.privacy.ledger import Ledger
from tests.test_fit import VICTIM, spent, stages

Run = Callable[..., str]


def victim(step: str, when: str, config: Path) -> None:
    answer = subprocess.run([sys.executable, "-c", VICTIM, step, when, config], capture_output=True, check=False)
    assert answer.returncode == -signal.SIGKILL, answer.stderr


def test_a_release_that_was_committed_is_finished_by_the_next_fit(tmp_path: Path, config: Path, run: Run) -> None:
    """Killed between the payment and the last rename: it is there already, and costs nothing more."""
    victim("commit", "after", config)
    assert not (tmp_path / "release").exists()
    assert len(list(tmp_path.glob(".release.draft-*"))) == 1
    before = stages(tmp_path)
    said = run("fit", "--config", config)
    assert "had paid for this release and committed it: it is finished now, for nothing" in " ".join(said.split())
    assert stages(tmp_path) == before
    assert spent(tmp_path) == Fraction(1, 2)
    assert not list(tmp_path.glob(".release.draft-*"))
    assert Policy.load(tmp_path / "release/policy.npz").guarantee.private
    run(
        "verify",
        tmp_path / "release/policy.npz",
        tmp_path / "release/certificate.json",
        "--ledger",
        tmp_path / "ledger.sqlite",
    )


def test_a_release_that_was_not_is_removed_and_stays_paid(tmp_path: Path, config: Path, run: Run) -> None:
    victim("_write", "after", config)
    (draft,) = tmp_path.glob(".release.draft-*")
    assert (draft / "release/policy.npz").exists()
    said = run("fit", "--config", config)
    assert "Removed 1 unfinished draft(s) of fits that were killed; what they cost stays spent" in " ".join(
        said.split()
    )
    assert not draft.exists()
    assert spent(tmp_path) == 1
    assert stages(tmp_path) == ["open", "reserve", "read", "reserve", "read", "commit"]


def test_a_draft_that_was_tampered_with_is_not_moved(tmp_path: Path, config: Path) -> None:
    victim("commit", "after", config)
    (draft,) = tmp_path.glob(".release.draft-*")
    certificate = draft / "release/certificate.json"
    certificate.write_bytes(certificate.read_bytes() + b" ")
    with pytest.raises(ValueError, match=r"paid for, but has other files than were committed: move it .* --out"):
        tidy(tmp_path / "release", tmp_path / "ledger.sqlite", hash_of(config))
    assert not (tmp_path / "release").exists()
    assert certificate.exists()


def test_a_draft_that_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    with draft_of(tmp_path / "release") as draft:
        draft.path.mkdir()
        with pytest.raises(ValueError, match="another fit is writing to"):
            tidy(tmp_path / "release", tmp_path / "ledger.sqlite", "")
        assert draft.path.exists()
        assert tidy(tmp_path / "r[e]lease", tmp_path / "ledger.sqlite", "") == Tidied(False, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("another configuration", "paid for, by a fit with another configuration"),
        ("another version", "paid for, by a fit with another configuration or version"),
        ("no ledger", "may be a release that was paid for, but its ledger .* is not there"),
        ("another ledger", "may be a release that was paid for, but not in .*other.sqlite"),
        ("a link inside", "paid for, but holds links or folders"),
        ("a folder inside", "paid for, but holds links or folders"),
        ("a copy", "is a copy of the release that was just finished"),
    ],
)
def test_what_was_paid_for_is_never_removed_and_what_was_planted_never_moved(
    tmp_path: Path, config: Path, why: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim("commit", "after", config)
    (draft,) = tmp_path.glob(".release.draft-*")
    books, its_config = tmp_path / "ledger.sqlite", hash_of(config)
    if why == "another configuration":
        its_config = "another"
    elif why == "another version":
        monkeypatch.setattr("poolrl.app.drafts.read_certificate", lambda _: int("none of our versions"))
    elif why == "no ledger":
        books = tmp_path / "elsewhere.sqlite"
    elif why == "another ledger":
        books = tmp_path / "other.sqlite"
        with Ledger(books) as other:
            other.open_account("small shop", Fraction(1))
    elif why == "a link inside":
        (tmp_path / "mine").write_text("mine")
        (draft / "release/report.html").symlink_to(tmp_path / "mine")
    elif why == "a folder inside":
        (draft / "release/.AppleDouble").mkdir()
    else:
        draft = Path(shutil.copytree(draft, tmp_path / ".release.draft-zzz"))
    with pytest.raises(ValueError, match=f"{words}.*: move it to where it belongs, remove .* or name another place"):
        tidy(tmp_path / "release", books, its_config)
    assert (draft / "release/policy.npz").exists()
    assert (tmp_path / "release").exists() == (why == "a copy")


def test_a_draft_that_is_not_whole_is_removed(tmp_path: Path, config: Path) -> None:
    victim("_write", "after", config)
    (draft,) = tmp_path.glob(".release.draft-*")
    (draft / "release/certificate.json").write_bytes((draft / "release/certificate.json").read_bytes()[:100])
    assert tidy(tmp_path / "release", tmp_path / "ledger.sqlite", hash_of(config)) == Tidied(False, 1)
    assert not draft.exists()


def test_a_release_that_cannot_be_moved_stays(
    tmp_path: Path, config: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else made the folder meanwhile: what was paid for is kept, and named."""
    honest = Ledger.commit

    def slow(*args: object) -> object:
        (tmp_path / "release").mkdir()
        (tmp_path / "release/other").write_text("")
        return honest(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "commit", slow)
    with pytest.raises(
        ValueError, match=r"is whole and paid for, but cannot be moved to .*: it lies in .*draft"
    ) as said:
        run("fit", "--config", config)
    place = Path(str(said.value).rsplit("it lies in ", 1)[1])
    assert Policy.load(place / "policy.npz").guarantee.private
    for bad in ("..", str(tmp_path / "new" / "..")):
        with pytest.raises(ValueError, match="--out must name a new folder"):
            run("fit", "--config", config, "--out", bad)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_nobody_interrupts_between_payment_and_release(tmp_path: Path, config: Path, by: signal.Signals) -> None:
    """A signal that comes with the commit waits until the release is where it belongs."""
    program = """
import os, signal, sys
from poolrl.privacy.ledger import Ledger
signal.signal(signal.SIGINT, signal.default_int_handler)
honest = Ledger.commit
def interrupted(*args):
    entry = honest(*args)
    os.kill(os.getpid(), int(sys.argv[2]))
    return entry
Ledger.commit = interrupted
config = sys.argv[1]
sys.argv[1:] = sys.argv[2:]
from poolrl.app.cli import main
sys.argv = ["poolrl", "fit", "--config", config]
main()
""".replace("int(sys.argv[2])", str(int(by)))
    subprocess.run([sys.executable, "-c", program, config], capture_output=True, check=False, timeout=120)
    assert stages(tmp_path)[-1] == "commit"
    assert {"policy.npz", "certificate.json", "label.txt"} <= {path.name for path in (tmp_path / "release").iterdir()}


def test_an_interrupted_release_leaves_no_half_noised_file(
    tmp_path: Path, config: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the second table gets its noise."""
    from poolrl.privacy import noise

    honest, calls = noise._SecureSampler.add, []

    def interrupted(self: object, counts: object, variance: object) -> object:
        calls.append(variance)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return honest(self, counts, variance)  # type: ignore[arg-type]

    monkeypatch.setattr(noise._SecureSampler, "add", interrupted)
    with pytest.raises(ValueError, match=r"The release had begun, so its rho = 0.5 stays spent"):
        run("fit", "--config", config)
    names = {path.name for path in tmp_path.rglob("*")}
    assert names == {"ledger.sqlite", "ledger.sqlite.key", "log.parquet", "poolrl.toml"}


@pytest.mark.parametrize("becomes", ["KeyboardInterrupt", "ImportError"])
def test_a_request_to_end_is_answered(tmp_path: Path, config: Path, becomes: str) -> None:
    """SIGTERM while the log is read, in a library that may have its own word for it: all comes back, nothing stays."""
    program = f"""
import sys, time
import poolrl.app.fit as fit
def slow(log):
    print("reading", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise {becomes} from None
fit.digests = slow
sys.argv = ["poolrl", "fit", "--config", sys.argv[1]]
from poolrl.app.cli import main
main()
"""
    command = [sys.executable, "-c", program, config]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    process.terminate()
    assert process.communicate(timeout=30)[1] == "poolrl: stopped\n"
    assert process.returncode == 130
    assert stages(tmp_path) == ["open", "reserve", "void"]
    assert not list(tmp_path.glob(".release*"))


@pytest.mark.parametrize("most", [2_000, 40_000])
def test_where_files_cannot_grow_nothing_is_gained(tmp_path: Path, config: Path, run: Run, most: int) -> None:
    answer = subprocess.run(
        [*POOLRL, "fit", "--config", config],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("poolrl: ")
    assert "defect" not in answer.stderr
    if (tmp_path / "ledger.sqlite").exists() and (tmp_path / "ledger.sqlite").stat().st_size:
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.verify() == []
            account = ledger.account("small shop")
            if (tmp_path / "release").exists():
                assert account is not None
                assert account.spent == Fraction(1, 2)
    for path in tmp_path.glob("release/*.npz"):
        Policy.load(path)
    if not (tmp_path / "release").exists():
        run("fit", "--config", config)
        assert stages(tmp_path)[-1] == "commit"


def test_a_clock_that_jumps_stops_nothing(tmp_path: Path, config: Path) -> None:
    command = [sys.executable, "-c", CLOCK, "fit", "--config", config, "--json"]
    subprocess.run(command, capture_output=True, check=True)
    assert stages(tmp_path) == ["open", "reserve", "read", "commit"]
    assert spent(tmp_path) == Fraction(1, 2)
    with Ledger.existing(tmp_path / "ledger.sqlite") as ledger:
        years = [int(entry.time[:4]) for entry in ledger.entries()]
    assert max(years) - min(years) > 1  # it did jump, by up to fifty years either way


def test_the_soak_would_notice(tmp_path: Path) -> None:
    """Its checks on a shop with a release, from which something is taken."""
    shop = Shop(tmp_path, random.Random(0))
    assert shop.again(shop.out()) == "done again"
    shop.check()

    def lost(what: str) -> None:
        with pytest.raises(LostError, match=what):
            shop.check()

    label = tmp_path / "out-1/label.txt"
    text = label.read_bytes()
    label.unlink()
    lost("a release is not whole")
    label.write_bytes(text + b" ")
    lost("does not verify")
    label.write_bytes(text)
    extra = tmp_path / "out-3"
    os.symlink(tmp_path / "out-1", extra)
    lost("more releases than were paid for")
    extra.unlink()
    (tmp_path / "out-1").rename(tmp_path / "hidden")
    lost("a release that was paid for is gone")
    (tmp_path / "hidden").rename(tmp_path / "out-1")
    shop.check()
    seen = shop.seen
    shop.seen = [*seen[:-1], seen[-1].sealed("another")]
    lost("an entry of the ledger is gone")
    shop.seen = seen
    (tmp_path / "ledger.sqlite").rename(tmp_path / "elsewhere")
    lost("the ledger is gone")
