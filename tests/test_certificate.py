"""The certificate: same input, same bytes; every planted lie is found; the record fits the registry."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from poolrl import Guarantee, LostSales, Policy, Pool, SeededNoise
from poolrl.certificate.certificate import Release, arithmetic_faults, canonical, certificate, read_certificate
from poolrl.certificate.files import CERTIFICATE, LABEL, POLICY, RECORD
from poolrl.certificate.label import label, percent
from poolrl.certificate.registry import registry_record, registry_yaml
from poolrl.privacy import zcdp
from poolrl.privacy.zcdp import rounded_up

SCHEMA = Path(__file__).parents[2] / "shared" / "data" / "registry" / "deployments-schema.yaml"


def test_same_input_same_bytes(one_release: Path) -> None:
    content = (one_release / "release" / CERTIFICATE).read_bytes()
    facts = read_certificate(content)
    assert canonical(facts) == content
    assert canonical(dict(reversed(list(facts.items())))) == content
    policy = Policy.load(one_release / "release" / POLICY)
    names = ("issued", "policy_sha256", "config_sha256", "versions", "ledger")
    again = certificate(policy.guarantee, Release(public=facts["assumed_public"], **{n: facts[n] for n in names}))
    assert canonical(again) == content
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"rho": math.nan})


def test_only_private_releases_are_certified() -> None:
    problem = LostSales(horizon=2, holding=0.1, shortage=0.4, demand_max=10.0)
    log = problem.simulate_log(np.full((20, 2, 1), 5.0), rng=np.random.default_rng(0))
    release = Release("", "", "", {"problem": {"kind": "LostSales"}}, {}, {"spent": "1"})
    for guarantee in (
        Pool(1.0).fit(problem, log, noise=SeededNoise(1)).guarantee,
        Pool(math.inf).fit(problem, log).guarantee,
        Guarantee.of_nothing(2),
    ):
        with pytest.raises(ValueError, match="only a private release can be certified"):
            certificate(guarantee, release)


def test_the_label_is_for_people(one_release: Path) -> None:
    facts = read_certificate((one_release / "release" / CERTIFICATE).read_bytes())
    text = (one_release / "release" / LABEL).read_text()
    assert text == label(facts)
    assert "WHAT AN ATTACKER WHO KNOWS EVERYTHING ELSE COULD LEARN ABOUT ONE TRAJECTORY" in text
    power = zcdp.attack_power(0.5)
    assert f"at most {math.ceil(100 * power)}%" in " ".join(text.split())
    for name in ("policy_sha256", "config_sha256"):
        assert facts[name] in text.replace("\n", "")
    assert "came through a query" not in text
    facts["assumed_public"]["query"] = "SELECT * FROM log"
    assert "The rows came through a query" in " ".join(label(facts).split())
    assert len(text.splitlines()) < 60  # one page
    assert max(map(len, text.splitlines())) <= 80


def test_the_label_of_a_second_release_counts_both(released: Path, run: Callable[..., str]) -> None:
    run("fit", "--config", released / "poolrl.toml", "--out", released / "second")
    facts = read_certificate((released / "second" / CERTIFICATE).read_bytes())
    assert (facts["rho"], facts["in_all"]["rho"]) == ("1/2", "1")
    text = " ".join((released / "second" / LABEL).read_text().split())
    assert "Earlier releases, or attempts at them, have taken budget from this data set too" in text
    found = f"will find out in at most {math.ceil(100 * zcdp.attack_power(1.0))}%"
    assert f"rho = 1 together (epsilon = 7.77 at delta 1e-06), {found}" in text
    facts["in_all"] = facts["in_all"] | {"rho": "1/2"}
    assert arithmetic_faults(facts) == ["what was spent in all does not follow from the ledger's entry"]


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
    facts = read_certificate((one_release / "release" / CERTIFICATE).read_bytes())
    record = registry_record(facts)
    assert yaml.safe_load(registry_yaml(record)) == record
    assert yaml.safe_load((one_release / "release" / RECORD).read_text()) == record
    assert record["status"] == "Draft"
    deployment = record["deployment"]
    basic = {"name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region"}
    assert set(deployment["basic"]) == basic | {"publication_date"}
    assert deployment["basic"]["data_product_type"] == "Machine learning model"
    assert deployment["dp_variant"]["variant_name"] == "Zero-concentrated DP"
    assert deployment["privacy_loss"]["privacy_parameters"]["rho"] == 0.5
    assert deployment["deployment_model"]["release_type"] == "Many releases"  # half of the budget is left
    only = facts | {"ledger": facts["ledger"] | {"left": "0"}}
    assert registry_record(only)["deployment"]["deployment_model"]["release_type"] == "One release"
    last = only | {"ledger": only["ledger"] | {"spent": "1"}}
    assert registry_record(last)["deployment"]["deployment_model"]["release_type"] == "Many releases"
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
