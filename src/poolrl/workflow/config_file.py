"""A configuration as a file: reading it, and reporting every mistake with its key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from platformdirs import user_data_path
from pydantic import ValidationError

from poolrl.certificate.terms import Terms
from poolrl.workflow.config import Config
from poolrl.workflow.config_keys import section_models
from poolrl.workflow.config_problem import AMOUNTS
from poolrl.workflow.toml import read_toml
from poolrl.workflow.trades.trade import code_beside


@dataclass(frozen=True)
class ConfigFile:
    """A configuration, where it lies, and its bytes."""

    path: Path
    config: Config
    content: bytes

    @property
    def sha256(self) -> str:
        """The hash that a certificate names."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def folder(self) -> Path:
        """What relative paths in the file are relative to."""
        return self.path.parent

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        named = self.config.privacy.ledger
        return user_ledger() if named is None else self.folder / Path(named).expanduser()


def user_ledger() -> Path:
    """The ledger of all data sets of this user, wherever their configurations lie."""
    return user_data_path("poolrl") / "ledger.sqlite"


def load_config(path: Path) -> ConfigFile:
    """Read and check a configuration that the user names; every mistake is reported with its key.

    It may name a problem of the user's own, whose code then runs.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; 'poolrl init' writes one, 'poolrl init --example' one to try")
    with code_beside(path):
        return parse_config(path, path.read_bytes())


def ledger_named_in(path: Path) -> Path:
    """The ledger that a configuration names. Nothing else of it is read: it may be a stranger's, and name code."""
    section = read_toml(path.read_bytes()).get("privacy", {})
    named = section.get("ledger") if isinstance(section, dict) else None
    return path.parent / Path(named).expanduser() if isinstance(named, str) else user_ledger()


def terms_of(path: Path, units: int) -> Terms:
    """What the configuration at a path declares of a release from so many units. It may be a stranger's."""
    return parse_config(path, path.read_bytes()).config.terms(units)


def parse_config(path: Path, content: bytes) -> ConfigFile:
    """Check the bytes of a configuration that lies, or is about to lie, at a path."""
    try:
        facts = read_toml(content)
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    try:
        return ConfigFile(path, Config.model_validate(facts), content)
    except ValidationError as error:
        faults = list(dict.fromkeys(_fault(each) for each in error.errors()))
        raise ValueError(
            "\n  ".join([f"{path} has {len(faults)} mistake{'s' * (len(faults) > 1)}:", *faults])
        ) from None


def _fault(error: Any) -> str:
    """One mistake as `[section] key: what is wrong`, with the key that was probably meant."""
    where: tuple[Any, ...] = error["loc"] or ("",)
    if where[:1] == ("problem",) and where[1:2] in (("shop",), ("kind",)):
        where = ("problem", *where[2:])  # which of both sections it is
    kind = error["type"]
    section = f"[{where[0]}]"
    key = section if len(where) == 1 else f"{section} {'.'.join(map(str, where[1:]))}"
    if kind == "extra_forbidden":
        owner = section_models().get(str(where[0])) if len(where) > 1 else Config
        known = [] if owner is None else list(owner.model_fields)
        near = get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        return f"{key} is not known; {hint}"
    if kind == "missing":
        return f"{key} is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    if kind == "value_error":
        return message if message.startswith("[") else f"{section} {message}"
    if len(where) > 1 and where[1] in AMOUNTS:
        return f"{section} {where[1]} must be a number, a list (one per product), or a list per step of such lists"
    given = error["input"]
    shown = f", got {given!r}" if isinstance(given, str | int | float) and len(repr(given)) < 80 else ""
    return f"{key}: {message[0].lower()}{message[1:]}{shown}"
