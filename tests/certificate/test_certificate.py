"""The certificate: same input, same bytes; the record fits the registry; an audit is repeated, and nothing else."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from poolrl import Guarantee, LostSales, Policy, Pool, SeededNoise, __version__
from poolrl.certificate.certificate import LARGEST_CERTIFICATE, Certificate, PrivacyLoss, certify
from poolrl.certificate.leaflet import MEANINGLESS_EPSILON, leaflet, meaningless, percent, registry_record
from poolrl.certificate.release_files import CERTIFICATE, LEAFLET, POLICY, RECORD
from poolrl.privacy import zcdp
from poolrl.privacy.zcdp import rounded_up
from tests.helpers.certificates import release_facts
from tests.helpers.commands import CommandLine
from tests.helpers.shops import Run


def certificate_in(release: Path) -> Certificate:
    return Certificate.read((release / CERTIFICATE).read_bytes())


def edited(certificate: Certificate, edit: Callable[[dict[str, Any]], object]) -> Certificate:
    """The certificate with its JSON changed."""
    facts = certificate.model_dump()
    edit(facts)
    return Certificate.read(json.dumps(facts).encode())


def test_same_input_same_bytes(one_release: Path) -> None:
    content = (one_release / "release" / CERTIFICATE).read_bytes()
    certificate = Certificate.read(content)
    assert certificate.canonical() == content
    backwards = json.dumps(dict(reversed(list(json.loads(content).items())))).encode()
    assert backwards != content
    assert Certificate.read(backwards).canonical() == content
    policy = Policy.load(one_release / "release" / POLICY)
    names = ("issued", "policy_sha256", "trees_sha256", "config_sha256", "versions", "ledger", "signed_by")
    release = {name: getattr(certificate, name) for name in names}
    assert certify(policy.guarantee, public=certificate.assumed_public, **release).canonical() == content


def test_what_json_does_not_have_and_what_stands_behind_it_are_refused(one_release: Path) -> None:
    certificate = certificate_in(one_release / "release")
    content = certificate.canonical()
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            certificate.model_copy(update={"epsilon": {"1e-06": value}}).canonical()
        with pytest.raises(ValueError, match="not a complete certificate"):
            edited(certificate, lambda facts, value=value: facts["epsilon"].update({"1e-06": value}))
    with pytest.raises(ValueError, match="an entry is missing, unknown or of another type"):
        edited(certificate, lambda facts: facts.pop("adjacency"))
    # Blanks up to the longest text that is read, then words that nobody would see.
    with pytest.raises(ValueError, match="not a complete certificate"):
        Certificate.read(content + b" " * LARGEST_CERTIFICATE + b"words")


def test_only_private_releases_are_certified() -> None:
    problem = LostSales(horizon=2, holding=0.1, shortage=0.4, demand_max=10.0)
    log = problem.simulate_log(np.full((20, 2, 1), 5.0), rng=np.random.default_rng(0))
    release = release_facts(problem, spent=Fraction(1), units=20)
    assert certify(Pool(1.0).fit(problem, log).guarantee, **release).private
    for guarantee in (
        Pool(1.0).fit(problem, log, noise=SeededNoise(1)).guarantee,
        Pool(math.inf).fit(problem, log).guarantee,
        Guarantee.of_nothing(2),
    ):
        with pytest.raises(ValueError, match="only a private release can be certified"):
            certify(guarantee, **release)


def test_the_leaflet_is_for_people(one_release: Path) -> None:
    certificate = certificate_in(one_release / "release")
    text = (one_release / "release" / LEAFLET).read_text()
    assert text == leaflet(certificate)
    power = zcdp.attack_power(0.5)
    assert f"at most {math.ceil(100 * power)}%" in " ".join(text.split())
    for sha256 in (certificate.policy_sha256, certificate.config_sha256):
        assert sha256 in text.replace("\n", "")
    assert "came through a query" not in text
    queried = edited(certificate, lambda facts: facts["assumed_public"].update(query="SELECT * FROM log"))
    assert "The rows came through a query" in " ".join(leaflet(queried).split())


def test_the_leaflet_says_when_nothing_is_protected(one_release: Path) -> None:
    certificate = certificate_in(one_release / "release")
    at_most = [rho for rho in np.arange(3.0, 6.0, 0.01) if zcdp.epsilon(rho, 1e-6) <= MEANINGLESS_EPSILON][-1]
    for rho, protects in ((at_most, True), (at_most + 0.02, False)):
        in_all = PrivacyLoss.of(zcdp.finite_budget(rho=round(float(rho), 2)))
        text = " ".join(leaflet(certificate.model_copy(update={"in_all": in_all})).split())
        assert ("no meaningful protection" in text) == (not protects), rho
        assert (meaningless(in_all.epsilon["1e-06"]) in text) == (not protects), rho


def test_small_numbers_are_rounded_up_too() -> None:
    numbers = {2.1401: "2.15", 0.1: "0.10", 0.00031: "0.00031", 1.2e-5: "0.000012", 0.0: "0.00"}
    assert {value: rounded_up(value) for value in numbers} == numbers
    shares = {0.05: "5%", 0.0501: "5.1%", 0.1331: "14%", 0.54: "54%", 0.99: "99%", 0.997: "100%", 1.0: "100%"}
    assert {share: percent(share) for share in shares} == shares  # which never promise too much


def test_the_record_says_what_the_registry_asks_for(one_release: Path) -> None:
    certificate = certificate_in(one_release / "release")
    record = yaml.safe_load(registry_record(certificate))
    assert yaml.safe_load((one_release / "release" / RECORD).read_text()) == record
    assert record["status"] == "Draft"
    deployment = record["deployment"]
    basic = {"name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region"}
    assert set(deployment["basic"]) == basic | {"publication_date"}
    assert deployment["basic"]["data_product_type"] == "Machine learning model"
    assert deployment["dp_variant"]["variant_name"] == "Zero-concentrated DP"
    assert deployment["privacy_loss"]["privacy_parameters"]["rho"] == 0.5
    assert deployment["deployment_model"]["release_type"] == "Many releases"  # half of the budget is left


# What an audit of the configuration found.


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


@pytest.mark.usefixtures("no_page")
def test_certificate_and_leaflet_repeat_an_audit(
    tmp_path: Path, config: Path, summary: dict[str, Any], run: Run, command_line: CommandLine
) -> None:
    run("fit", "--new-account", "--config", config, "--audit", written(tmp_path, summary))
    release = tmp_path / "release"
    claim = certificate_in(release)
    assert claim.audit.model_dump() == summary
    said = " ".join((release / LEAFLET).read_text().split())
    assert "As the data holder reports, an audit of this configuration attacked 20,000 simulated releases" in said
    assert "at least rho = 0.47 of 0.5 claimed: not refuted" in said
    for change in ({}, {"claimed_rho": 123.0}, {"config_sha256": "0" * 64}, {"poolrl": "99"}):
        forged = release / "forged.json"
        forged.write_bytes(edited(claim, lambda facts, change=change: facts["audit"].update(change)).canonical())
        answer = command_line("verify", release / POLICY, forged, "--ledger", tmp_path / "ledger.sqlite")
        found = answer.code, "the audit is one of another" in " ".join(answer.out.split())
        assert found == ((1, True) if change else (0, False)), change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "FLAGGED"}, "exceed their claim: do not fit"),
        ({"verdict": "proved private"}, "is not audit.json"),
        ({"config_sha256": "0" * 64}, "another configuration or version"),
        ({"moved_share": 7.0}, "is not audit.json"),
    ],
)
def test_any_other_audit_is_refused_before_anything_is_spent(
    tmp_path: Path, config: Path, summary: dict[str, Any], change: dict[str, Any], message: str, run: Run
) -> None:
    with pytest.raises(ValueError, match=message):
        run("fit", "--new-account", "--config", config, "--audit", written(tmp_path, summary | change))
    assert not (tmp_path / "ledger.sqlite").exists()
