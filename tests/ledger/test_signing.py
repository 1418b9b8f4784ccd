"""Signatures: whose release it is, for anybody with the public key, also after keys were lost or replaced."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.release_files import CERTIFICATE, POLICY, SIGNATURE
from poolrl.ledger.ledger import Ledger
from poolrl.ledger.signing import PURPOSE, PublicKey, Signature, SigningKey
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.release_folder import fit_release
from tests.helpers.commands import CommandLine
from tests.helpers.shops import Run


def owner_key(folder: Path, run: Run) -> Path:
    """The public key, as its owner hands it out."""
    path = folder / "owner.pem"
    path.write_text(run("ledger", "key", "--ledger", folder / "ledger.sqlite"))
    return path


def check(folder: Path, command_line: CommandLine, *more: str | Path) -> dict[str, bool]:
    """What `verify` finds, by its words."""
    release = folder / "release"
    answer = command_line("verify", release / POLICY, release / CERTIFICATE, "--json", *more)
    found = {each["what"]: each["good"] for each in json.loads(answer.out)["checks"]}
    assert answer.code == (1 if not all(found.values()) else 0 if "--ledger" in more else 3)
    return found


NAMED, MINE = "the certificate is signed with the key that it names", "the certificate is signed with your key"


def test_anybody_with_the_public_key_can_check_who_made_it(released: Path, run: Run, command_line: CommandLine) -> None:
    path, release = owner_key(released, run), released / "release"
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        (key,) = ledger.public_keys()
    assert key.fingerprint == hashlib.sha256(key.raw).hexdigest()
    assert Certificate.read((release / CERTIFICATE).read_bytes()).signed_by == key.fingerprint
    for name in ("leaflet.txt", "registry.yaml"):
        assert key.fingerprint in "".join((release / name).read_text().split()), name
    for private in released.glob("ledger.sqlite*"):
        private.unlink()
    found = check(released, command_line, "--key", path)
    assert (found[NAMED], found[MINE]) == (True, True)


def test_openssl_agrees(released: Path, run: Run, tmp_path: Path) -> None:
    """An independent program checks the signature, on the bytes that the documentation names."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, release = owner_key(released, run), released / "release"
    _, _, raw, _ = (release / SIGNATURE).read_text().split("\n")
    (tmp_path / "signed").write_bytes(PURPOSE + (release / CERTIFICATE).read_bytes())
    (tmp_path / "signature").write_bytes(base64.b64decode(raw))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin", "-in", tmp_path / "signed"]
    done = subprocess.run([*command, "-sigfile", tmp_path / "signature"], capture_output=True, text=True)
    assert "Verified Successfully" in done.stdout, done


def forge(released: Path, key: SigningKey) -> None:
    """Replace everything that a reader without the ledger gets, as somebody else would."""
    release = released / "release"
    facts = json.loads((release / CERTIFICATE).read_bytes()) | {"signed_by": key.public.fingerprint}
    content = Certificate.model_validate(facts).canonical()
    (release / CERTIFICATE).write_bytes(content)
    (release / SIGNATURE).write_bytes(key.sign(content).file())


def test_a_release_by_somebody_else_is_found(
    released: Path, tmp_path: Path, run: Run, command_line: CommandLine
) -> None:
    key = owner_key(released, run)
    forge(released, SigningKey(tmp_path / "forger", Ed25519PrivateKey.generate()))
    (released / "release" / "leaflet.txt").unlink()
    (released / "release" / "registry.yaml").unlink()
    assert all(check(released, command_line).values())  # by itself it is consistent
    found = check(released, command_line, "--key", key)
    assert (found[NAMED], found[MINE]) == (True, False)
    found = check(released, command_line, "--ledger", released / "ledger.sqlite")
    assert not found["the ledger names the key of the signature"]


def test_a_spoilt_signature_is_found(released: Path, run: Run, command_line: CommandLine) -> None:
    key, path = owner_key(released, run), released / "release" / SIGNATURE
    content = (released / "release" / CERTIFICATE).read_bytes()
    good = Signature.read(path.read_bytes())
    signing = SigningKey.load(released / "ledger.sqlite.signing")
    spoilt = {
        "a bit": Signature(good.key, bytes([good.raw[0] ^ 1]) + good.raw[1:]).file(),
        "another certificate": signing.sign(content + b" ").file(),
        "another purpose": Signature(good.key, signing._key.sign(content)).file(),
        "no lines": b"\xff\n",
    }
    for what, file in spoilt.items():
        path.write_bytes(file)
        assert not all(check(released, command_line, "--key", key).values()), what
    path.unlink()
    assert not all(check(released, command_line, "--key", key).values())


def test_a_new_key_leaves_old_signatures_as_they_are(released: Path, run: Run, command_line: CommandLine) -> None:
    """The old one was lost, and may be in the wrong hands."""
    old = owner_key(released, run)
    (released / "ledger.sqlite.signing").unlink()
    said = run("ledger", "rotate-key", "--reason", "the laptop was stolen", "--ledger", released / "ledger.sqlite")
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        first, second = ledger.public_keys()
        assert ledger.entries()[-1].note["reason"] == "the laptop was stolen"
        assert ledger.signing_key().public == second
    assert second.fingerprint in said
    assert first != second
    assert check(released, command_line, "--key", old)[MINE]
    assert all(check(released, command_line, "--ledger", released / "ledger.sqlite").values())
    (new := released / "new.pem").write_text(second.pem())
    assert not check(released, command_line, "--key", new)[MINE]

    with pytest.raises(ValueError, match="reason must say why"):
        run("ledger", "rotate-key", "--reason", " ", "--ledger", released / "ledger.sqlite")


def test_a_lost_key_is_said_to_be_lost_before_anything_is_spent(released: Path, run: Run) -> None:
    private, file = released / "ledger.sqlite.signing", load_config(released / "poolrl.toml")
    assert private.stat().st_mode & 0o077 == 0
    private.unlink()
    before = (released / "ledger.sqlite").read_bytes()
    with pytest.raises(ValueError, match=r"signing is missing, or is not the key.*rotate-key"):
        fit_release(file, released / "again")
    private.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="is not a signing key"):
        fit_release(file, released / "again")
    assert (released / "ledger.sqlite").read_bytes() == before


def test_a_crash_while_a_key_is_made_leaves_one_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the entry, before the file has its name; and killed before the entry."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger, monkeypatch.context() as patch:
        patch.setattr(Ledger, "_present_key", lambda self: os.abort)
        ledger.signing_key()
        assert not ledger.signing_path.exists()
    with Ledger(path) as ledger:
        first = ledger.signing_key().public
        SigningKey.make(ledger._new_signing_path)  # a key that no entry names
        assert ledger.signing_key().public == first
        assert ledger.public_keys() == [first]
        assert ledger.rotate_key("again") != first
        assert ledger.verify() == []


def test_what_is_no_key_is_refused(released: Path, command_line: CommandLine) -> None:
    release = released / "release"
    for content in (b"", b"nonsense", (released / "ledger.sqlite.signing").read_bytes()):
        (released / "bad.pem").write_bytes(content)
        answer = command_line("verify", release / POLICY, release / CERTIFICATE, "--key", released / "bad.pem")
        assert (answer.code, "not a public key" in answer.err) == (1, True)
    for text in ("", "AAAA", "é", "*" * 44):
        with pytest.raises(ValueError, match="not a public key"):
            PublicKey.from_text(text)
