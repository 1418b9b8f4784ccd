"""`poolrl verify`: an honest release holds, every planted lie is found, and a payment that was not shown is said."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from poolrl import Guarantee, Policy, PrivateModel
from poolrl.certificate.certificate import Certificate, arithmetic_faults, certify
from poolrl.certificate.leaflet import leaflet, registry_record
from poolrl.certificate.release_files import CERTIFICATE, CONFIG, LEAFLET, POLICY, RECORD, SIGNATURE
from poolrl.learning.model import MODEL_FORMAT
from poolrl.learning.stored import Together, read_learned, write_learned
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import Mechanism
from poolrl.workflow.paying import release_layout
from poolrl.workflow.verified import verify_folder
from tests.helpers.commands import CommandLine
from tests.helpers.shops import Run, faults_of


def bad(folder: Path, **others: Path) -> list[str]:
    """What `verify` does not accept, beside the signature: a forger may sign, as tests/ledger/test_signing.py does."""
    return [what for what in faults_of(folder / "release", **others) if "is signed with the key" not in what]


def test_a_fresh_release_holds(one_release: Path) -> None:
    others = {"config": one_release / "poolrl.toml", "ledger": one_release / "ledger.sqlite"}
    assert bad(one_release, **others) == []
    certificate = Certificate.read((one_release / "release" / CERTIFICATE).read_bytes())
    assert Fraction(certificate.rho) == Fraction(1, 2)
    # H = 3, k = 2, λ < 1: seen and cut off over L levels of 4, 8, ... nodes, and a count of what λ hides.
    mechanism, sums = certificate.mechanisms
    levels = Fraction(mechanism.sensitivity_squared) / (2 * 3 * 2)
    assert mechanism.cells == 3 * 2 * (2 * (2 ** (levels.numerator + 2) - 4) + 1)
    assert Fraction(mechanism.variance) == Fraction(mechanism.sensitivity_squared) / (2 * Fraction(9, 20))
    # A tenth of ρ for six sums of what was left, in 32 parts of the bound.
    assert (sums.name, sums.cells, sums.sensitivity_squared) == ("stock left over", 6, str(6 * 32**2))
    assert Fraction(sums.variance) == Fraction(6 * 32**2) / (2 * Fraction(1, 20))
    for delta, eps in certificate.epsilon.items():
        assert 0 <= eps - zcdp.epsilon(0.5, float(delta)) <= 2e-4  # rounded up, never down


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """A certificate in canonical form, whatever it says."""
    path.write_text(json.dumps(facts, sort_keys=True, indent=2, ensure_ascii=False) + "\n")


LIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "a smaller rho": lambda f: f.update(rho="1/4"),
    "a smaller epsilon": lambda f: f["epsilon"].update({"1e-06": 0.1}),
    "a weaker attack": lambda f: f["attack"].update(true_positives_at_most=0.06),
    "less noise": lambda f: f["mechanisms"][0].update(variance="1"),
    "less sensitivity": lambda f: f["mechanisms"][0].update(sensitivity_squared="1"),
    "both, so that rho stays": lambda f: f["mechanisms"][0].update(sensitivity_squared="1", variance="1"),
    "no mechanism": lambda f: f.update(mechanisms=[], rho="0"),
    "another unit": lambda f: f.update(unit="person"),
    "more per unit": lambda f: f.update(trajectories_per_unit=7),
    "another adjacency": lambda f: f.update(adjacency="add or remove one"),
    "a scale that never was": lambda f: f.update(scaled=True),
    "a memory that was not paid for": lambda f: f.update(scaled=True, scale_memory=4),
    "labels that never were": lambda f: f.update(labels="protected"),
    "another policy": lambda f: f.update(policy_sha256="0" * 64),
    "another bound": lambda f: f["assumed_public"]["problem"].update(demand_max=[1.0, 1.0]),
    "another composition": lambda f: f.update(composition="parallel"),
    "no query": lambda f: f["assumed_public"].pop("query"),
    "a budget of nothing": lambda f: f["ledger"].update(budget="1/0"),
    "another name": lambda f: f["assumed_public"].update(protects="everybody"),
    "a rho that is no number": lambda f: f.update(rho="lots"),
    "a variance of nothing": lambda f: f["mechanisms"][0].update(variance="1/0"),
    "mechanisms of another kind": lambda f: f.update(mechanisms=3),
    "text for a number": lambda f: f.update(steps="3"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_the_certificate_is_found(released: Path, lie: str) -> None:
    path = released / "release" / CERTIFICATE
    content = path.read_bytes()
    facts = json.loads(content)
    write_facts(path, facts)
    assert path.read_bytes() == content
    LIES[lie](facts)
    write_facts(path, facts)
    found = bad(released)
    assert found, lie
    assert "the certificate is in canonical form" not in found


def test_other_files_are_found_out(released: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    release = released / "release"
    content = (release / CERTIFICATE).read_bytes()
    (release / CERTIFICATE).write_bytes(content.replace(b"  ", b" "))
    assert bad(released) == ["the certificate is in canonical form"]
    (release / CERTIFICATE).write_bytes(content)
    (released / "poolrl.toml").write_text("# another\n" + (released / "poolrl.toml").read_text())
    assert bad(released, config=released / "poolrl.toml") == ["the configuration has the certified hash"]
    shutil.copy(release / POLICY, released)  # beside a configuration that is not the release's own
    shutil.copy(release / CERTIFICATE, released)
    assert all(check.good for check in verify_folder(released / POLICY, released / CERTIFICATE))
    policy = Policy.load(release / POLICY)
    policy.report = replace(policy.report, scale_in_words="another")
    policy.save(release / POLICY)
    assert bad(released, ledger=released / "ledger.sqlite") == [
        "the policy file has the certified hash",
        "the ledger has committed these very files",
    ]
    (release / POLICY).write_bytes(b"PK")
    assert "the policy can be read" in bad(released)
    for content in (b"", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"format": "poolrl certificate 3"}'):
        (release / CERTIFICATE).write_bytes(content)
        assert bad(released)


def test_what_people_read_is_checked_too(released: Path) -> None:
    """The leaflet, the record and the configuration that lie beside the certificate."""
    changes = {LEAFLET: ("at most", "hardly"), RECORD: ("rho: 0.5", "rho: 0.05"), CONFIG: ("rho = 0.5", "rho = 0.05")}
    for name, (old, new) in changes.items():
        path = released / "release" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        assert len(bad(released)) == 1, name
        path.write_text(text)
    assert bad(released) == []


def test_words_are_compared_without_a_configuration_too(released: Path) -> None:
    """A certificate that travels alone with its policy speaks of the problem as its trade does."""
    for name in (CONFIG, LEAFLET, RECORD, SIGNATURE):
        (released / "release" / name).unlink()
    assert bad(released) == []
    path = released / "release" / CERTIFICATE
    facts = json.loads(path.read_bytes())
    facts["assumed_public"]["words"]["outcome"] = "demand that nobody can guess"
    write_facts(path, facts)
    assert bad(released) == ["the certificate speaks in the words of its trade"]


def forge(
    folder: Path, mechanisms: tuple[Mechanism, ...], declared: dict[str, Any] | None = None, **public: Any
) -> list[str]:
    """A policy and a certificate that agree with each other on something that was never released."""
    release = folder / "release"
    policy = Policy.load(release / POLICY)
    true = policy.guarantee
    policy.guarantee = Guarantee(mechanisms, secure=True, steps=true.steps, **declared or {})
    policy.report = replace(policy.report, scale_in_words="forged", units=public.get("units", policy.report.units))
    policy.save(release / POLICY)
    certificate = Certificate.read((release / CERTIFICATE).read_bytes())
    spent = sum((each.rho for each in mechanisms), Fraction(0))
    forged = certify(
        policy.guarantee,
        issued=certificate.issued,
        policy_sha256=hashlib.sha256((release / POLICY).read_bytes()).hexdigest(),
        config_sha256=certificate.config_sha256,
        public=certificate.assumed_public.model_copy(update=public),
        versions=certificate.versions,
        ledger=certificate.ledger.model_copy(update={"spent": str(spent)}),
    )
    (release / CERTIFICATE).write_bytes(forged.canonical())
    (release / LEAFLET).write_text(leaflet(forged))
    (release / RECORD).write_text(registry_record(forged))
    assert arithmetic_faults(forged, policy.guarantee) == []
    return bad(folder)


def test_a_model_is_verified_like_its_policy(released: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    release = released / "release"
    certificate, path = release / CERTIFICATE, release / "model.npz"
    same = "the model is that of the certified policy"
    model = PrivateModel.of(Policy.load(release / POLICY))
    model.save(path)
    checks = verify_folder(path, certificate, ledger=released / "ledger.sqlite")
    assert all(check.good for check in checks)
    assert checks[0].what == same
    weights = model.outcomes.weights[..., ::-1].copy()
    for forged in (
        replace(model, outcomes=replace(model.outcomes, weights=weights)),
        replace(model, report=replace(model.report, units=10**6)),
        replace(model, guarantee=replace(model.guarantee, trajectories_per_unit=2)),
    ):
        forged.save(path)
        assert [check.what for check in verify_folder(path, certificate) if not check.good] == [same]
    model.save(path)
    facts, arrays = read_learned(path, MODEL_FORMAT, "model")
    for change in ({"guarantee": []}, {"guarantee": {**facts["guarantee"], "mechanisms": 3}}, {"report": None}):
        write_learned(path, {**facts, **change}, arrays)
        assert not verify_folder(path, certificate)[0].good
    write_learned(path, {name: facts[name] for name in facts if name != "guarantee"}, arrays)
    assert verify_folder(path, certificate)[0].why.endswith("an entry is missing or of another kind")
    alone = tmp_path_factory.mktemp("alone")
    model.save(alone / "model.npz")
    shutil.copy(certificate, alone)
    (found,) = verify_folder(alone / "model.npz", alone / CERTIFICATE)
    assert "to compare it with" in found.why


def test_a_correlation_that_was_not_paid_for_is_found(released: Path) -> None:
    path = released / "release" / POLICY
    policy = Policy.load(path)
    assert forge(released, policy.guarantee.mechanisms) == []
    policy.report = replace(policy.report, together=Together(0.5, 0.5, 0.02))
    policy.save(path)
    found = forge(released, policy.guarantee.mechanisms)
    assert found == ["counts and sensitivity are those of this problem at this rho"]


def test_pairs_that_agree_on_a_forgery(released: Path) -> None:
    """Nothing but the ledger can know what was paid, but tables must be those that such a fit releases."""
    true, sums = Policy.load(released / "release" / POLICY).guarantee.mechanisms
    shape = ["counts and sensitivity are those of this problem at this rho"]
    half = true.sensitivity_squared / 2
    forgeries = {
        "far less rho, by far more noise": replace(true, variance=true.variance * 1000),
        "half the sensitivity": replace(true, sensitivity_squared=half),
        "another mechanism's sensitivity": replace(true, name="visits of nodes", sensitivity_squared=Fraction(6)),
        "trees of one level": replace(true, cells=12, sensitivity_squared=Fraction(12)),
    }
    of_sums = {
        "sums that one unit moves less": replace(sums, sensitivity_squared=sums.sensitivity_squared / 2),
        "more sums": replace(sums, cells=7),
        "trees again": true,
    }
    declared = "the certificate repeats what the configuration declares"
    for what, mechanism in forgeries.items():
        assert forge(released, (mechanism, sums)) == [*shape, declared], what
    for what, mechanism in of_sums.items():
        assert forge(released, (true, mechanism))[0] == shape[0], what
    # Consistent arithmetic with half the noise: ρ = Δ²/2σ² holds, but the trees need a larger Δ².
    assert forge(released, (replace(true, sensitivity_squared=half, variance=true.variance / 2), sums)) == shape
    # Cheaper than what the configuration says, and the policy tells what the sums told it.
    assert forge(released, (true,)) == [*shape, declared]
    assert forge(released, (true, sums, sums)) == [*shape, declared]
    assert forge(released, (true, sums), units=30_000) == shape
    assert forge(released, (true, sums), units=300, protects="one customer with all they ever bought") == [declared]
    assert forge(released, (true, sums), protects="", query="SELECT nothing") == [declared]
    assert forge(released, (true, sums), query=None, products=["gold", "silver"])[-1] == declared
    assert forge(released, (true, sums), products=["bread", "milk"], clip=True) == [declared]
    # Only a release that never was is left to forge; the ledger says so.
    assert forge(released, (true, sums), clip=False) == []
    assert bad(released, ledger=released / "ledger.sqlite") == ["the ledger has committed these very files"]


def test_a_forged_memory_is_found(released: Path) -> None:
    """The sensitivity is computed again with it: 2 H k L (1 + m)², with as many levels as c = 1 + m suggests."""
    policy = Policy.load(released / "release" / POLICY)
    true, sums = policy.guarantee.mechanisms
    shape = ["counts and sensitivity are those of this problem at this rho"]
    memory = {"scaled": True, "scale_memory": 4}
    declared = "the certificate repeats what the configuration declares"  # which knows of no scale
    assert forge(released, (true, sums), memory) == [*shape, declared]
    certificate = Certificate.read((released / "release" / CERTIFICATE).read_bytes())
    assert (certificate.scaled, certificate.scale_memory) == (True, 4)
    text = " ".join(leaflet(certificate).split())
    assert "replacing one trajectory changes the scales of at most 4 others; 5 trajectories are paid for" in text
    layout = release_layout(policy.problem, slots=policy.report.units, moved=5, rho=float(true.rho))
    honest, left = layout.mechanism(true.rho), replace(sums, sensitivity_squared=25 * sums.sensitivity_squared)
    left = replace(left, variance=25 * sums.variance)
    assert honest.sensitivity_squared > true.sensitivity_squared
    assert forge(released, (honest, left), memory) == [declared]
    assert forge(released, (honest, left)) == shape
    assert (
        forge(released, (honest, left), memory | {"labels": "public"})[0]
        == "labels are promised as the problem has them"
    )


def test_what_another_version_wrote_is_named_and_not_called_checked(
    released: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version may use other words, so its leaflet cannot be compared: "Everything holds" would be too much."""
    release = released / "release"
    arguments = ("verify", release / POLICY, release / CERTIFICATE, "--ledger", released / "ledger.sqlite")
    assert "Everything holds." in run(*arguments)
    monkeypatch.setattr("poolrl.workflow.verified.__version__", "99.0")
    (release / LEAFLET).write_text("rho = 0.000001")
    said = " ".join(run(*arguments).split())
    assert f"Not checked: {LEAFLET} (written by poolrl" in said
    assert "Everything holds." not in said
    assert "Policy and certificate agree." in said


def test_a_payment_that_was_not_shown_is_said(released: Path, command_line: CommandLine) -> None:
    policy = released / "release" / POLICY
    alone = ("verify", policy, released / "release" / CERTIFICATE)
    shown = (*alone, "--ledger", released / "ledger.sqlite")
    answer = command_line(*alone)
    assert answer.out.startswith("Payment was not shown")
    assert (answer.code, "Everything holds" in answer.out) == (3, False)
    answer = command_line(*alone, "--json")
    assert (answer.code, json.loads(answer.out)["payment_shown"]) == (3, False)
    answer = command_line(*shown)
    assert (answer.code, "Everything holds" in answer.out, "not shown" in answer.out) == (0, True, False)
    policy.write_bytes(policy.read_bytes() + b" ")
    assert [command_line(*asked).code for asked in (alone, shown)] == [1, 1]


def places(facts: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every place of a certificate where a key could be added."""
    if not isinstance(facts, dict):
        return []
    return [path, *(place for name, inside in facts.items() for place in places(inside, (*path, name)))]


def test_an_unknown_key_fails_wherever_it_stands(released: Path) -> None:
    path = released / "release" / CERTIFICATE
    content = path.read_bytes()
    tried = places(json.loads(content))
    assert {(), ("versions",), ("assumed_public", "problem"), ("ledger",), ("epsilon",)} <= set(tried)
    for place in tried:
        forged = inside = json.loads(content)
        for name in place:
            inside = inside[name]
        inside["promise"] = "none"
        write_facts(path, forged)
        assert bad(released), place
