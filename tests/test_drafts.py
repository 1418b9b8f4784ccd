"""What a killed fit leaves: the next one finishes what was paid for, and removes nothing that may have been."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from poolrl import Policy
from poolrl.certificate.files import sha256 as hash_of
from poolrl.ledger.ledger import Ledger
from poolrl.shop.release_folder import Tidied, draft_of, tidy
from tests.helpers.ledgers import spent, stages
from tests.helpers.shops import Run

pytestmark = pytest.mark.xdist_group("killed fits")  # one worker makes them


def draft_in(folder: Path, shop: Path) -> Path:
    """A copy of a shop, and the draft in it."""
    shutil.copytree(shop, folder, dirs_exist_ok=True)
    (draft,) = folder.glob(".release.draft-*")
    return draft


@pytest.fixture
def committed(tmp_path: Path, killed_fits: Path) -> Path:
    """The draft of a fit that was killed after its commit."""
    return draft_in(tmp_path, killed_fits / "commit-after")


@pytest.fixture
def uncommitted(tmp_path: Path, killed_fits: Path) -> Path:
    """The draft of a fit that was killed before its commit."""
    return draft_in(tmp_path, killed_fits / "_write-after")


def tidied(folder: Path) -> Tidied:
    return tidy(folder / "release", folder / "ledger.sqlite", hash_of(folder / "poolrl.toml"))


def test_a_release_that_was_committed_is_finished_by_the_next_fit(tmp_path: Path, committed: Path, run: Run) -> None:
    """Killed between the payment and the last rename: it is there already, and costs nothing more."""
    assert not (tmp_path / "release").exists()
    before = stages(tmp_path)
    said = run("fit", "--config", tmp_path / "poolrl.toml")
    assert "had paid for this release and committed it: it is finished now, for nothing" in " ".join(said.split())
    assert stages(tmp_path) == before
    assert spent(tmp_path) == Fraction(1, 2)
    assert not committed.exists()
    release, ledger = tmp_path / "release", tmp_path / "ledger.sqlite"
    assert Policy.load(release / "policy.npz").guarantee.private
    run("verify", release / "policy.npz", release / "certificate.json", "--ledger", ledger)


def test_a_release_that_was_not_is_removed_and_stays_paid(tmp_path: Path, uncommitted: Path, run: Run) -> None:
    assert (uncommitted / "release/policy.npz").exists()
    said = " ".join(run("fit", "--config", tmp_path / "poolrl.toml").split())
    assert "Removed 1 unfinished draft(s) of fits that were killed; what they cost stays spent" in said
    assert not uncommitted.exists()
    assert spent(tmp_path) == 1
    assert stages(tmp_path) == ["open", "reserve", "read", "reserve", "read", "commit"]


def test_a_draft_that_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    with draft_of(tmp_path / "release") as draft:
        draft.path.mkdir()
        with pytest.raises(ValueError, match="another fit is writing to"):
            tidy(tmp_path / "release", tmp_path / "ledger.sqlite", "")
        assert draft.path.exists()
        assert tidy(tmp_path / "r[e]lease", tmp_path / "ledger.sqlite", "") == Tidied(False, 0)
    assert list(tmp_path.iterdir()) == []


def test_what_is_named_otherwise_is_nobodys_draft(tmp_path: Path) -> None:
    for name in (".release.draft-my-notes", ".release.draft-2.draft-abcd1234", ".release.draft-abcd12345"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    assert tidy(tmp_path / "release", tmp_path / "ledger.sqlite", "") == Tidied(False, 0)
    assert len(list(tmp_path.glob("*/thesis.txt"))) == 3
    (tmp_path / ".release.draft-abcd1234").mkdir()
    (tmp_path / ".release.draft-abcd1234/thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="things that poolrl has not put there"):
        tidy(tmp_path / "release", tmp_path / "ledger.sqlite", "")


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("another configuration", "paid for, by a fit with another configuration"),
        ("another version", "paid for, by a fit with another configuration or version"),
        ("another version and ledger", "may be a release that was paid for, of another version"),
        ("no ledger", "may be a release that was paid for, but its ledger .* is not there"),
        ("another ledger", "may be a release that was paid for, but not in .*other.sqlite"),
        ("a link inside", "things that poolrl has not put there"),
        ("a folder inside", "things that poolrl has not put there"),
        ("a file beside it", "things that poolrl has not put there"),
        ("a file inside", "things that poolrl has not put there"),
        ("a copy", "is a copy of the release that was just finished"),
    ],
)
def test_what_was_paid_for_is_never_removed_and_what_was_planted_never_moved(
    tmp_path: Path, committed: Path, why: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, its_config, draft = tmp_path / "ledger.sqlite", hash_of(tmp_path / "poolrl.toml"), committed
    if why == "another configuration":
        its_config = "another"
    if "another version" in why:
        monkeypatch.setattr("poolrl.shop.release_folder.read_certificate", lambda _: int("none of our versions"))
    if why == "no ledger":
        books = tmp_path / "elsewhere.sqlite"
    if "ledger" in why and why != "no ledger":
        books = tmp_path / "other.sqlite"
        with Ledger(books) as other:
            other.open_account("small shop", Fraction(1))
    if why == "a link inside":
        (tmp_path / "mine").write_text("mine")
        (draft / "release/report.html").symlink_to(tmp_path / "mine")
    if why == "a folder inside":
        (draft / "release/.AppleDouble").mkdir()
    if why == "a file beside it":
        (draft / "release.orig").write_text("")
    if why == "a file inside":
        (draft / "release/thesis.txt").write_text("mine")
    if why == "a copy":
        draft = Path(shutil.copytree(draft, tmp_path / ".release.draft-zzzzzzzz"))
    with pytest.raises(ValueError, match=f"{words}.*: move it to where it belongs, remove .* or name another place"):
        tidy(tmp_path / "release", books, its_config)
    assert (draft / "release/policy.npz").exists()
    assert (tmp_path / "release").exists() == (why == "a copy")


@pytest.mark.parametrize("name", ["policy.npz", "certificate.json"])
@pytest.mark.parametrize("how", ["longer", "another byte", "empty", "gone", "a link"])
def test_a_release_that_was_changed_is_neither_moved_nor_removed(
    tmp_path: Path, committed: Path, name: str, how: str
) -> None:
    file = committed / "release" / name
    content = file.read_bytes()
    match how:
        case "longer":
            file.write_bytes(content + b" ")
        case "another byte":
            file.write_bytes(content[:10] + bytes([content[10] ^ 255]) + content[11:])
        case "empty":
            file.write_bytes(b"")
        case "gone":
            file.unlink()
        case "a link":
            file.rename(tmp_path / name)
            file.symlink_to(tmp_path / name)
    words = "things that poolrl" if how == "a link" else "paid for, but has other files than were committed"
    with pytest.raises(ValueError, match=words):
        tidied(tmp_path)
    assert not (tmp_path / "release").exists()
    assert committed.exists()


@pytest.mark.parametrize("left", [0, 100])
def test_a_draft_that_is_not_whole_is_removed(tmp_path: Path, uncommitted: Path, left: int) -> None:
    """Cut off while its certificate was written, or before."""
    certificate = uncommitted / "release/certificate.json"
    content = certificate.read_bytes()
    certificate.unlink()
    if left:
        certificate.write_bytes(content[:left])
    assert tidied(tmp_path) == Tidied(False, 1)
    assert not uncommitted.exists()
