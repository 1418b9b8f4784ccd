"""A certificate repeats what an audit of its configuration found, and nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from poolrl import __version__
from poolrl.certificate.certificate import Certificate
from tests.helpers.commands import CommandLine
from tests.helpers.shops import Run


@pytest.fixture
def summary(config: Path) -> dict[str, Any]:
    """What `poolrl audit --config` writes, of this configuration."""
    return {
        "poolrl": __version__,
        "began": "2026-01-02T03:04:05+00:00",
        "config_sha256": hashlib.sha256(config.read_bytes()).hexdigest(),
        "releases": 20_000,
        "claimed_rho": 0.5,
        "proved_rho": 0.47,
        "moved_share": 1.0,
        "confidence": 0.95,
        "verdict": "not refuted",
    }


def written(folder: Path, summary: dict[str, Any]) -> Path:
    path = folder / "audit.json"
    path.write_text(json.dumps({"summary": summary}))
    return path


def test_certificate_and_leaflet_repeat_it(
    tmp_path: Path, config: Path, summary: dict[str, Any], run: Run, command_line: CommandLine
) -> None:
    run("fit", "--new-account", "--config", config, "--audit", written(tmp_path, summary))
    release = tmp_path / "release"
    claim = Certificate.read((release / "certificate.json").read_bytes())
    assert claim.audit is not None
    assert claim.audit.model_dump() == summary
    said = " ".join((release / "leaflet.txt").read_text().split())
    assert "As the data holder reports, an audit of this configuration attacked 20,000 simulated releases" in said
    assert "at least rho = 0.47 of 0.5 claimed: not refuted" in said
    files = (release / "policy.npz", release / "certificate.json")
    assert command_line("verify", *files, "--ledger", tmp_path / "ledger.sqlite").code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "FLAGGED"}, "exceed their claim: do not fit"),
        ({"verdict": "flagged"}, "is not audit.json"),
        ({"verdict": "proved private"}, "is not audit.json"),
        ({"config_sha256": "0" * 64}, "another configuration or version"),
        ({"poolrl": "99"}, "another configuration or version"),
        ({"releases": -5}, "is not audit.json"),
        ({"moved_share": 7.0}, "is not audit.json"),
        ({"more": 1}, "is not audit.json"),
    ],
)
def test_any_other_is_refused_before_anything_is_spent(
    tmp_path: Path, config: Path, summary: dict[str, Any], change: dict[str, Any], message: str, run: Run
) -> None:
    with pytest.raises(ValueError, match=message):
        run("fit", "--new-account", "--config", config, "--audit", written(tmp_path, summary | change))
    assert not (tmp_path / "ledger.sqlite").exists()


def test_an_audit_of_another_budget_does_not_verify(
    tmp_path: Path, config: Path, summary: dict[str, Any], run: Run, command_line: CommandLine
) -> None:
    run("fit", "--new-account", "--config", config, "--audit", written(tmp_path, summary))
    release = tmp_path / "release"
    for change in ({"claimed_rho": 123.0}, {"config_sha256": "0" * 64}, {"poolrl": "99"}):
        facts = json.loads((release / "certificate.json").read_bytes())
        facts["audit"] |= change
        forged = release / "forged.json"
        forged.write_bytes(Certificate.model_validate(facts).canonical())
        answer = command_line("verify", release / "policy.npz", forged)
        assert (answer.code, "the audit is one of another" in " ".join(answer.out.split())) == (1, True), change
