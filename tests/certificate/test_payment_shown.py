"""`verify` without the ledger said that everything agreed, and exited as if it had seen the payment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.release_files import CERTIFICATE, POLICY
from tests.helpers.commands import CommandLine


def files(folder: Path) -> tuple[Path, Path]:
    return folder / "release" / POLICY, folder / "release" / CERTIFICATE


def test_without_the_ledger_the_first_line_says_so(one_release: Path, command_line: CommandLine) -> None:
    answer = command_line("verify", *files(one_release))
    assert answer.out.startswith("Payment was not shown")
    assert "Everything holds" not in answer.out
    assert answer.code == 3
    answer = command_line("verify", *files(one_release), "--json")
    assert (answer.code, json.loads(answer.out)["payment_shown"]) == (3, False)


def test_with_the_ledger_it_is_shown(one_release: Path, command_line: CommandLine) -> None:
    answer = command_line("verify", *files(one_release), "--ledger", one_release / "ledger.sqlite")
    assert "Payment was not shown" not in answer.out
    assert (answer.code, "Everything holds" in answer.out) == (0, True)


def test_a_failure_is_a_failure_with_or_without_it(released: Path, command_line: CommandLine) -> None:
    policy, certificate = files(released)
    policy.write_bytes(policy.read_bytes() + b" ")
    assert command_line("verify", policy, certificate).code == 1
    assert command_line("verify", policy, certificate, "--ledger", released / "ledger.sqlite").code == 1


def places(facts: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every place of a certificate where a key could be added."""
    if not isinstance(facts, dict):
        return []
    return [path, *(place for name, inside in facts.items() for place in places(inside, (*path, name)))]


def test_an_unknown_key_fails_wherever_it_stands(released: Path, command_line: CommandLine) -> None:
    policy, path = files(released)
    facts = json.loads(path.read_bytes())
    tried = places(facts)
    assert {(), ("versions",), ("assumed_public", "problem"), ("ledger",), ("epsilon",)} <= set(tried)
    for place in tried:
        forged = json.loads(path.read_bytes())
        inside = forged
        for name in place:
            inside = inside[name]
        inside["promise"] = "none"
        text = json.dumps(forged, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
        other = path.with_name("forged.json")
        other.write_text(text)
        assert command_line("verify", policy, other).code == 1, place


def test_versions_of_unknown_software_are_refused(released: Path) -> None:
    facts = json.loads(files(released)[1].read_bytes())
    facts["versions"]["approved by"] = "everyone"
    with pytest.raises(ValueError, match="not a complete certificate"):
        Certificate.read(json.dumps(facts).encode())
