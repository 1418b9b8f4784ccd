"""The certificate: same input, same bytes; every planted lie is found; the record fits the registry."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from poolrl import Guarantee, LostSales, Policy, Pool, SeededNoise
from poolrl.certificate.certificate import (
    LARGEST_CERTIFICATE,
    Certificate,
    PrivacyLoss,
    arithmetic_faults,
    certify,
)
from poolrl.certificate.leaflet import MEANINGLESS_EPSILON, leaflet, meaningless, percent, registry_record, strength
from poolrl.certificate.release_files import CERTIFICATE, LEAFLET, POLICY, RECORD
from poolrl.privacy import zcdp
from poolrl.privacy.zcdp import rounded_up
from tests.helpers.certificates import release_facts

SCHEMA = Path(__file__).parents[3] / "shared" / "data" / "registry" / "deployments-schema.yaml"


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


def write_epsilon(value: float, facts: dict[str, Any]) -> None:
    facts["epsilon"]["1e-06"] = value


def test_numbers_that_json_does_not_have_are_refused(one_release: Path) -> None:
    certificate = certificate_in(one_release / "release")
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            certificate.model_copy(update={"epsilon": {"1e-06": value}}).canonical()
        with pytest.raises(ValueError, match="not a complete certificate"):
            edited(certificate, partial(write_epsilon, value))


def test_what_stands_behind_a_certificate_is_not_cut_off(one_release: Path) -> None:
    """Blanks up to the longest text that is read, then words that nobody would see."""
    content = certificate_in(one_release / "release").canonical()
    with pytest.raises(ValueError, match="not a complete certificate"):
        Certificate.read(content + b" " * LARGEST_CERTIFICATE + b"words")


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "an unknown key": lambda facts: facts.update(comment="hello"),
    "an unknown key inside": lambda facts: facts["ledger"].update(owner="me"),
    "a missing key": lambda facts: facts.pop("adjacency"),
    "a missing key inside": lambda facts: facts["assumed_public"].pop("clip"),
    "text for a number": lambda facts: facts.update(steps="3"),
    "a number for text": lambda facts: facts.update(rho=0.5),
}


@pytest.mark.parametrize("edit", EDITS)
def test_other_keys_and_other_kinds_are_refused(one_release: Path, edit: str) -> None:
    with pytest.raises(ValueError, match="an entry is missing, unknown or of another type"):
        edited(certificate_in(one_release / "release"), EDITS[edit])


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
    assert "WHAT AN ATTACKER WHO KNOWS EVERYTHING ELSE COULD LEARN ABOUT ONE TRAJECTORY" in text
    power = zcdp.attack_power(0.5)
    assert f"at most {math.ceil(100 * power)}%" in " ".join(text.split())
    for sha256 in (certificate.policy_sha256, certificate.config_sha256):
        assert sha256 in text.replace("\n", "")
    assert "came through a query" not in text
    queried = edited(certificate, lambda facts: facts["assumed_public"].update(query="SELECT * FROM log"))
    assert "The rows came through a query" in " ".join(leaflet(queried).split())
    assert len(text.splitlines()) < 60  # one page
    assert max(map(len, text.splitlines())) <= 80


def test_the_leaflet_of_a_second_release_counts_both(released: Path, run: Callable[..., str]) -> None:
    run("fit", "--config", released / "poolrl.toml", "--out", released / "second")
    certificate = certificate_in(released / "second")
    assert (certificate.rho, certificate.in_all.rho) == ("1/2", "1")
    text = " ".join((released / "second" / LEAFLET).read_text().split())
    assert "Earlier releases, or attempts at them, have taken budget from this data set too" in text
    found = f"finds out in at most {math.ceil(100 * zcdp.attack_power(1.0))}%"
    assert f"(rho = 1 together, epsilon = 7.77 at delta 1e-06) {found}" in text
    less = edited(certificate, lambda facts: facts["in_all"].update(rho="1/2"))
    guarantee = Policy.load(released / "second" / POLICY).guarantee
    assert arithmetic_faults(less, guarantee) == ["in_all does not follow from the rest"]


def test_the_leaflet_says_when_nothing_is_protected(one_release: Path) -> None:
    certificate = certificate_in(one_release / "release")
    at_most = [rho for rho in np.arange(3.0, 6.0, 0.01) if zcdp.epsilon(rho, 1e-6) <= MEANINGLESS_EPSILON][-1]
    for rho, protects in ((0.5, True), (at_most, True), (at_most + 0.02, False), (2000.0, False)):
        in_all = PrivacyLoss.of(zcdp.finite_budget(rho=round(float(rho), 2)))
        text = " ".join(leaflet(certificate.model_copy(update={"in_all": in_all})).split())
        assert ("no meaningful protection" in text) == (not protects), rho
        assert (meaningless(in_all.epsilon["1e-06"]) in text) == (not protects), rho
        assert ("We call that" in text) == protects, rho
    assert strength(PrivacyLoss.of(zcdp.finite_budget(rho=2000))).startswith(
        "This is no meaningful protection. Epsilon is 2"
    )


def test_small_numbers_are_rounded_up_too() -> None:
    assert [rounded_up(value) for value in (2.1401, 0.1, 0.00031, 1.2e-5, 0.0)] == [
        "2.15",
        "0.10",
        "0.00031",
        "0.000012",
        "0.00",
    ]


def test_percentages_never_promise_too_much() -> None:
    assert [percent(share) for share in (0.05, 0.0501, 0.1331, 0.54, 0.99, 0.997, 1.0)] == [
        "5%",
        "5.1%",
        "14%",
        "54%",
        "99%",
        "100%",
        "100%",
    ]


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
    only = edited(certificate, lambda facts: facts["ledger"].update(budget="1/2"))
    assert yaml.safe_load(registry_record(only))["deployment"]["deployment_model"]["release_type"] == "One release"
    last = edited(only, lambda facts: facts["ledger"].update(spent="1"))
    assert yaml.safe_load(registry_record(last))["deployment"]["deployment_model"]["release_type"] == "Many releases"
    assert deployment["administrative"]["registry_authors"] == ["Ann & <Bob>"]


@pytest.mark.skipif(not SCHEMA.exists(), reason="the registry's schema is not part of this project")
def test_the_record_is_valid_for_the_registry(one_release: Path) -> None:
    import jsonschema

    schema = yaml.safe_load(SCHEMA.read_text())
    record = yaml.safe_load((one_release / "release" / RECORD).read_text())
    check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    assert [error.message for error in check.iter_errors(record)] == []
    del record["deployment"]["basic"]["name"]
    assert not check.is_valid(record)  # the schema does check something
