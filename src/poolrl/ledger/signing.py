"""Signatures: a release is signed by the ledger's owner (Ed25519), so that anybody can check whose it is.

    ledger.sqlite               the chain; an entry of kind "key" names each public key, with a reason
    ledger.sqlite.signing       the private key, for its owner alone
    certificate.sig             in a release: public key and signature of certificate.json

The certificate names the key, so a signature cannot be exchanged for another one. A new key replaces one that is lost
or was seen by others (`poolrl ledger rotate-key`). Signatures by earlier keys stay as good as these keys are.
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from poolrl.ledger.chain import write_secret

# Every signed text begins with this, so that it can be nothing but a certificate.
PURPOSE = b"poolrl certificate signature 1\0"
FIRST_LINE = "poolrl signature 1"


@dataclass(frozen=True)
class PublicKey:
    """The key that anybody may have."""

    raw: bytes

    @property
    def fingerprint(self) -> str:
        """Its SHA-256, by which certificate, leaflet and deployment record name it."""
        return hashlib.sha256(self.raw).hexdigest()

    def pem(self) -> str:
        """As a file to hand out."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        kinds = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        return key.public_bytes(*kinds).decode()

    @classmethod
    def from_pem(cls, content: bytes) -> Self:
        """From such a file; refuses anything else."""
        try:
            key = serialization.load_pem_public_key(content)
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("not a public key: 'poolrl ledger key' prints one")
        return cls(key.public_bytes_raw())

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From an entry of the ledger, or a line of a signature."""
        try:
            raw = base64.b64decode(text, validate=True)
        except ValueError:
            raw = b""
        if len(raw) != 32:
            raise ValueError("not a public key")
        return cls(raw)

    def text(self) -> str:
        """The inverse of `from_text`."""
        return base64.b64encode(self.raw).decode()


@dataclass(frozen=True)
class Signature:
    """A signature of a certificate, with the public key that checks it."""

    key: PublicKey
    raw: bytes

    def holds_for(self, certificate: bytes) -> bool:
        """Whether the owner of the key has signed these bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key.raw).verify(self.raw, PURPOSE + certificate)
        except InvalidSignature:
            return False
        return True

    def file(self) -> bytes:
        """Three lines: what it is, the public key, the signature."""
        return "\n".join([FIRST_LINE, self.key.text(), base64.b64encode(self.raw).decode(), ""]).encode()

    @classmethod
    def read(cls, content: bytes) -> Self:
        """The inverse of `file`."""
        try:
            first, key, raw, rest = content.decode("ascii").split("\n")
            if (first, rest) != (FIRST_LINE, ""):
                raise ValueError
            return cls(PublicKey.from_text(key), base64.b64decode(raw, validate=True))
        except ValueError:  # the errors of decoding are kinds of it
            raise ValueError("not a signature of poolrl") from None


class SigningKey:
    """The private key, in a file that only its owner can read."""

    def __init__(self, path: Path, key: Ed25519PrivateKey) -> None:
        self.path, self._key = path, key

    @property
    def public(self) -> PublicKey:
        """Its public half."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, certificate: bytes) -> Signature:
        """Sign a certificate's bytes."""
        return Signature(self.public, self._key.sign(PURPOSE + certificate))

    @classmethod
    def make(cls, path: Path) -> Self:
        """A new key, on the disk before anything names it."""
        key, form = Ed25519PrivateKey.generate(), (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        write_secret(path, key.private_bytes(*form, serialization.NoEncryption()))
        return cls(path, key)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """The key of a file; None without a file."""
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{path} is not a signing key: restore it from a backup, or 'poolrl ledger rotate-key'")
        return cls(path, key)
