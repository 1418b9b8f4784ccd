"""`poolrl verify`: does a certificate belong to a policy, and does its arithmetic hold? What can be computed is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from poolrl.certificate import certificate as certificates
from poolrl.certificate.files import CERTIFICATE, CONFIG, LABEL, PAGE, POLICY, RECORD, sha256
from poolrl.certificate.label import label
from poolrl.certificate.registry import registry_record, registry_yaml
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import Policy
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import zcdp
from poolrl.problems.problem import OutcomeProblem
from poolrl.shop.config import load_config


@dataclass(frozen=True)
class Check:
    """One thing that was re-checked."""

    what: str
    good: bool
    why: str = ""


def run_verify(policy: Path, certificate: Path, config: Path | None, ledger: Path | None, *, as_json: bool) -> bool:
    """Print every check; whether all of them hold."""
    checks = verify(policy, certificate, config, ledger)
    good = all(check.good for check in checks)
    if as_json:
        print(json.dumps({"good": good, "checks": [vars(check) for check in checks]}, indent=2))
        return good
    console = Console()
    for check in checks:
        mark = "[green]holds[/]" if check.good else "[red]FAILS[/]"
        console.print(f"{mark}  {escape(check.what)}{escape(f': {check.why}') if check.why else ''}", highlight=False)
    folder = certificate.parent
    absent = [name for name in (CONFIG, LABEL, RECORD) if not (folder / name).exists()]
    if absent:
        console.print(f"Not checked, because not there: {', '.join(absent)}", highlight=False)
    if (folder / PAGE).exists():
        console.print(
            escape(f"Not checked: {folder / PAGE}; 'poolrl report {folder}' draws it again from the policy."),
            highlight=False,
        )
    if good and ledger is None:
        console.print("Policy and certificate agree. Whether it was paid for, only the ledger can tell: --ledger FILE")
    else:
        console.print("Everything holds." if good else "[red]Do not rely on this certificate.[/]")
    return good


def verify(policy: Path, certificate: Path, config: Path | None = None, ledger: Path | None = None) -> list[Check]:
    """Hashes, arithmetic, and agreement with the policy, the configuration and the ledger."""
    content = certificate.read_bytes()
    try:
        facts = certificates.read_certificate(content)
        same = certificates.canonical(facts) == content
    except ValueError as error:
        return [Check("the certificate can be read", False, str(error))]
    checks = [Check("the certificate is in canonical form", same)]
    arithmetic = certificates.arithmetic_faults(facts)
    checks.append(
        Check("rho, epsilon and the attack follow from the mechanisms", not arithmetic, "; ".join(arithmetic))
    )
    checks.append(Check("the policy file has the certified hash", sha256(policy) == facts["policy_sha256"]))
    try:
        checks += _against_policy(facts, Policy.load(policy))
    except ValueError as error:
        checks.append(Check("the policy can be read", False, str(error)))
    except ArithmeticError:
        checks.append(Check("the policy can be read", False, "it holds a number that is beyond all bounds"))
    # A configuration counts as the release's own where the label or the record lies beside it too.
    beside = certificate.parent
    released = (beside / LABEL).exists() or (beside / RECORD).exists()
    own = beside / CONFIG if (beside / CONFIG).exists() and released else None
    if config or own:
        checks += _against_config(facts, config or own or Path(), sound=not arithmetic)
    if all(check.good for check in checks):
        checks += _derived(facts, beside)
    if ledger is not None:
        checks += _against_ledger(facts, ledger, {POLICY: sha256(policy), CERTIFICATE: _hash(content)})
    return checks


def _against_config(facts: dict[str, Any], path: Path, *, sound: bool) -> list[Check]:
    same = Check("the configuration has the certified hash", sha256(path) == facts["config_sha256"])
    if not (same.good and sound):  # there is nothing to compare
        return [same]
    declared = load_config(path).config
    public, account = facts["assumed_public"], facts["ledger"]
    agree = all(public[name] == value for name, value in declared.declared().items())
    agree &= declared.privacy.data_set == account["data_set"]
    agree &= str(zcdp.budget(declared.privacy.rho)) == facts["rho"]
    agree &= str(zcdp.budget(declared.privacy.budget)) == account["budget"]
    return [same, Check("the certificate repeats what the configuration declares", agree)]


def _derived(facts: dict[str, Any], folder: Path) -> list[Check]:
    """The label and the registry's record, where they lie beside a certificate that holds, say what it says."""
    texts = {LABEL: label(facts), RECORD: registry_yaml(registry_record(facts))}
    return [
        Check(f"{name} says what the certificate says", (folder / name).read_bytes() == text.encode())
        for name, text in texts.items()
        if (folder / name).exists()
    ]


def _against_policy(facts: dict[str, Any], policy: Policy) -> list[Check]:
    guarantee, public = policy.guarantee, facts["assumed_public"]
    named = ("unit", "trajectories_per_unit", "steps", "adjacency")
    agree = all(facts[name] == getattr(guarantee, name) for name in named)
    labels = policy.report.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    same = public["problem"] == policy.problem.facts() and public["units"] == policy.report.get("units")
    same = same and all(public[name] == labels.get(name) for name in ("products", "steps"))
    return [
        Check("the policy says that its noise was secure", guarantee.private),
        Check("the policy carries the same mechanisms", facts["mechanisms"] == certificates.mechanisms(guarantee)),
        Check("the policy protects the same unit", agree),
        Check("the policy decides the certified problem, from as many units", same),
        Check("counts and sensitivity are those of this problem at this rho", _tables_hold(policy, public["units"])),
    ]


def _tables_hold(policy: Policy, units: int) -> bool:
    """Whether the one mechanism is that of `release_outcomes`, from public facts alone.

    Bins follow from H, k, c, units and ρ; B of them make trees of L levels, and Δ₂² = 2HkLc².
    """
    problem, guarantee = policy.problem, policy.guarantee
    if len(guarantee.mechanisms) != 1 or not isinstance(problem, OutcomeProblem) or units < 1:
        return False
    (mechanism,) = guarantee.mechanisms
    steps, coordinates, per_unit = problem.horizon, problem.outcome_dim, guarantee.trajectories_per_unit
    bins = Outcomes().bins_for(
        steps=steps, coordinates=coordinates, slots=units * per_unit, per_unit=per_unit, rho=guarantee.rho
    )
    kinds = 2 if problem.censored else 1

    def holds(*, full: bool) -> bool:
        root_is_public = full and not problem.censored
        nodes = (2 * bins - 1 - root_is_public) * kinds
        levels = bins.bit_length() - root_is_public
        return (
            mechanism.name == "outcome trees"
            and mechanism.cells == steps * coordinates * (nodes + (not full))
            and mechanism.sensitivity_squared == 2 * steps * coordinates * levels * per_unit**2
        )

    # A table may lack rows. Before 0.4 a log was read whole, and nothing was unobserved where public facts said so.
    return holds(full=False) or (problem.boundary.everywhere and per_unit == 1 and holds(full=True))


def _against_ledger(facts: dict[str, Any], path: Path, hashes: dict[str, str]) -> list[Check]:
    with Ledger.existing(path) as ledger:
        faults = ledger.verify()
        checks = [Check("the ledger is unbroken", not faults, "; ".join(faults))]
        if faults:
            return checks
        named = facts["ledger"]
        entries, account = ledger.entries(), ledger.accounts().get(named["account"])
    paid = [e for e in entries if e.kind == "reserve" and e.seal == named["seal"] and e.number == named["entry"]]
    enough = bool(paid) and str(paid[0].rho) == facts["rho"]
    spent = account.spent if account else Fraction(0)
    since = f"since then more was spent, {float(spent):g} in all" if str(spent) != named["spent"] else ""
    done = [e for e in entries if e.kind == "commit" and e.refers == named["entry"]]
    return [
        *checks,
        Check("the ledger has the payment", enough, since),
        Check("the ledger has committed these very files", bool(done) and done[0].note == hashes),
    ]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
