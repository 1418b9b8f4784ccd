"""Does a certificate belong to a policy, and does its arithmetic hold? Whatever can be computed again is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from poolrl import __version__
from poolrl.certificate.all_periods import period_faults, unpaid_periods
from poolrl.certificate.certificate import Certificate, arithmetic_faults, certified_unit
from poolrl.certificate.files import CERTIFICATE, CERTIFIED, CONFIG, LABEL, POLICY, RECORD, SIGNATURE, TREES, sha256
from poolrl.certificate.label import label
from poolrl.certificate.paid_tables import tables_hold
from poolrl.certificate.parts import AssumedPublic, CertifiedMechanism, CertifiedWords
from poolrl.certificate.registry import registry_record
from poolrl.certificate.replanned import is_its_model, made_again
from poolrl.learning.model import MODEL_FORMAT
from poolrl.learning.policy import Policy
from poolrl.learning.stored import says_it_is
from poolrl.ledger.accounts import Account, Entry, replay
from poolrl.ledger.ledger import Ledger, normal_name
from poolrl.ledger.periods import Period
from poolrl.ledger.signing import PublicKey, Signature
from poolrl.ledger.units import UNRECORDED, ProtectedUnit, Spend
from poolrl.problems.problem import Problem


@dataclass(frozen=True)
class VerifyCheck:
    """One thing that was checked again."""

    what: str
    good: bool
    why: str = ""


@dataclass(frozen=True)
class Terms:
    """What a configuration declares of a release: who pays how much for what."""

    public: AssumedPublic
    data_set: str
    rho: Fraction
    budget: Fraction
    unit: ProtectedUnit
    period: Period | None = None
    forgetting: float = 1.0
    # What is usual where a configuration says nothing has changed from version to version.
    forgetting_declared: bool = True


# Reads a configuration, given the number of units of the log. The command line's is `shop.config_file.terms_of`.
ReadTerms = Callable[[Path, int], Terms]


def verify_release(
    policy: Path,
    certificate: Path,
    *,
    read_terms: ReadTerms,
    config: Path | None = None,
    ledger: Path | None = None,
    key: Path | None = None,
    problem: Problem | None = None,
) -> list[VerifyCheck]:
    """Hashes, arithmetic, and agreement with policy, configuration, the papers beside it, signature and ledger.

    A policy that was planned again has no certificate of its own, and neither has a model. What is certified is the
    policy that it comes from: the plan is made again, and the model must be the one that this policy carries. A policy
    for a problem of somebody's own can only be read with that `problem`.
    """
    content, folder = certificate.read_bytes(), certificate.parent
    try:
        claim = Certificate.read(content)
        canonical = claim.canonical() == content
    except ValueError as error:
        return [VerifyCheck("the certificate can be read", False, str(error))]
    faults = arithmetic_faults(claim)
    replanned, certified = [], policy.parent / CERTIFIED
    if says_it_is(policy, MODEL_FORMAT):
        source = certified if certified.is_file() else folder / POLICY
        what = "the model is that of the certified policy"
        if not source.is_file():
            return [VerifyCheck(what, False, f"there is no {POLICY} beside the certificate to compare it with")]
        replanned, policy = [VerifyCheck(what, *is_its_model(policy, source))], source
    elif sha256(policy) != claim.policy_sha256 and certified.is_file():
        what = "the policy is a plan on the certified model, made again here"
        replanned, policy = [VerifyCheck(what, *made_again(policy, certified))], certified
    checks = [
        *replanned,
        VerifyCheck("the certificate is in canonical form", canonical),
        VerifyCheck("rho, epsilon and the attack follow from the mechanisms", not faults, "; ".join(faults)),
        VerifyCheck("the policy file has the certified hash", sha256(policy) == claim.policy_sha256),
    ]
    apart = period_faults(claim)
    if claim.period is not None or apart:
        checks.append(VerifyCheck("periods are disjoint and add up", not apart, "; ".join(apart)))
    if claim.trees_sha256 and (folder / TREES).exists():
        same = sha256(folder / TREES) == claim.trees_sha256
        checks.append(VerifyCheck("the released trees have the certified hash", same))
    try:
        checks += _against_policy(claim, Policy.load(policy, problem=problem))
    except ValueError as error:
        checks.append(VerifyCheck("the policy can be read", False, str(error)))
    except ArithmeticError:
        checks.append(VerifyCheck("the policy can be read", False, "it holds a number that is beyond all bounds"))
    # A configuration counts as the release's own where the label or the record lies beside it too.
    released = (folder / LABEL).exists() or (folder / RECORD).exists()
    own = folder / CONFIG if released and (folder / CONFIG).exists() else None
    if found := config or own:
        checks += _against_config(claim, found, read_terms, sound=not faults and not apart)
    if all(check.good for check in checks):
        checks += _papers(claim, folder)
    checks += _signature(claim, content, folder / SIGNATURE, key)
    if ledger is not None:
        hashes = {POLICY: sha256(policy), CERTIFICATE: hashlib.sha256(content).hexdigest()}
        checks += _against_ledger(claim, ledger, hashes)
    return checks


def _against_config(claim: Certificate, path: Path, read_terms: ReadTerms, *, sound: bool) -> list[VerifyCheck]:
    same = VerifyCheck("the configuration has the certified hash", sha256(path) == claim.config_sha256)
    if not (same.good and sound):  # there is nothing to compare
        return [same]
    terms, ledger = read_terms(path, claim.assumed_public.units), claim.ledger
    certified = (claim.assumed_public, normal_name(ledger.data_set), claim.rho, ledger.budget, certified_unit(claim))
    declared = (terms.public, normal_name(terms.data_set), str(terms.rho), str(terms.budget), terms.unit)
    period = None if claim.period is None else claim.period.period()
    fades_alike = terms.period is None or not terms.forgetting_declared or claim.forgetting == terms.forgetting
    agree = declared == certified and period == terms.period and fades_alike
    return [same, VerifyCheck("the certificate repeats what the configuration declares", agree)]


def unchecked_files(certificate: Path) -> list[str]:
    """What `verify_release` says nothing about, each with the reason."""
    folder = certificate.parent
    claim = Certificate.read(certificate.read_bytes())
    issuer = claim.versions.get("poolrl")
    papers = (CONFIG, LABEL, RECORD, *[SIGNATURE] * bool(claim.signed_by), *[TREES] * bool(claim.trees_sha256))
    notes = [f"{name} (not there)" for name in papers if not (folder / name).exists()]
    if (folder / CONFIG).exists() and not ((folder / LABEL).exists() or (folder / RECORD).exists()):
        notes.append(
            f"{CONFIG} (no label or record says that it is the release's; if you trust it: --config {folder / CONFIG})"
        )
    if issuer != __version__:
        there = [name for name in (LABEL, RECORD) if (folder / name).exists()]
        notes += [f"{name} (written by poolrl {issuer}, which may use other words)" for name in there]
    return notes


def _papers(claim: Certificate, folder: Path) -> list[VerifyCheck]:
    """The label and the registry's record, where they lie beside a certificate of this version that holds."""
    if claim.versions.get("poolrl") != __version__:  # another version may use other words
        return []
    texts = {LABEL: label(claim), RECORD: registry_record(claim).yaml()}
    return [
        VerifyCheck(f"{name} says what the certificate says", (folder / name).read_bytes() == text.encode())
        for name, text in texts.items()
        if (folder / name).exists()
    ]


def _against_policy(claim: Certificate, policy: Policy) -> list[VerifyCheck]:
    guarantee, public, names = policy.guarantee, claim.assumed_public, policy.names
    unit = (claim.unit, claim.trajectories_per_unit, claim.steps, claim.adjacency)
    carried = (guarantee.unit, guarantee.trajectories_per_unit, guarantee.steps, guarantee.adjacency)
    declared = (claim.scaled, claim.scale_memory, claim.labels)
    same = public.problem == policy.problem.facts() and public.units == policy.report.units
    same = same and (public.products, public.steps) == (names.products, names.steps)
    same = same and claim.said == CertifiedWords.of(policy.problem.words)
    mechanisms = [CertifiedMechanism.of(each) for each in guarantee.mechanisms]
    return [
        VerifyCheck("the policy says that its noise was secure", guarantee.private),
        VerifyCheck("the policy carries the same mechanisms", claim.mechanisms == mechanisms),
        VerifyCheck("the policy protects the same unit", unit == carried),
        VerifyCheck(
            "the policy carries the same declarations about scale and labels",
            declared == (guarantee.scaled, guarantee.scale_memory, guarantee.labels)
            and bool(policy.problem.labels) == (claim.labels != "none"),
        ),
        VerifyCheck("the policy decides the certified problem, from as many units", same),
        VerifyCheck("counts and sensitivity are those of this problem at this rho", tables_hold(policy, claim)),
        *_periods_of(policy, claim),
    ]


def _periods_of(policy: Policy, claim: Certificate) -> list[VerifyCheck]:
    named = [each.period for each in claim.earlier] + ([] if claim.period is None else [claim.period])
    if not policy.report.periods and not named:
        return []
    same = policy.report.periods == tuple(each.read() for each in named)
    return [VerifyCheck("the policy names the same periods", same)]


def _signature(claim: Certificate, content: bytes, path: Path, key: Path | None) -> list[VerifyCheck]:
    """Whether the certificate's bytes are signed, by the key that they name and by the key that the reader has."""
    wanted = None if key is None else PublicKey.from_pem(key.read_bytes())
    if not path.exists():
        missing = f"there is no {path.name} beside the certificate"
        return [] if wanted is None else [VerifyCheck("the certificate is signed with your key", False, missing)]
    try:
        signature = Signature.read(path.read_bytes())
    except ValueError as error:
        return [VerifyCheck("the signature can be read", False, str(error))]
    named = signature.holds_for(content) and signature.key.fingerprint == claim.signed_by
    checks = [VerifyCheck("the certificate is signed with the key that it names", named)]
    if wanted is not None:
        why = "" if signature.key == wanted else f"it names the key of SHA-256 {signature.key.fingerprint}"
        mine = Signature(wanted, signature.raw).holds_for(content)
        checks.append(VerifyCheck("the certificate is signed with your key", mine, why))
    return checks


def _against_ledger(claim: Certificate, path: Path, hashes: dict[str, str]) -> list[VerifyCheck]:
    with Ledger.existing(path) as ledger:
        faults = ledger.verify()
        unbroken = VerifyCheck("the ledger is unbroken", not faults, "; ".join(faults))
        if faults:
            return [unbroken]
        entries, accounts = ledger.state()
        keys = {key.fingerprint for key in ledger.public_keys()}
    named, unit = claim.ledger, certified_unit(claim)
    paid = [e for e in entries if e.kind == "reserve" and (e.number, e.seal) == (named.entry, named.seal)]
    read = [e for e in entries if e.kind == "read" and e.refers == named.entry]
    done = [e for e in entries if e.kind == "commit" and e.refers == named.entry]
    account = accounts.get(named.account)
    spend = account.spends.get(named.entry) if account else None
    then = _spent_then(entries, read[0].number, named.account, unit) if read else None
    now = _spent_then(entries, len(entries), named.account, unit)
    since = f"since then more was spent, {float(now):g} in all" if now is not None and now != then else ""
    return [
        unbroken,
        VerifyCheck("the ledger has the payment", bool(paid) and str(paid[0].rho) == claim.rho, since),
        VerifyCheck("the ledger paid for the same unit", spend is not None and spend.unit == unit, _unrecorded(spend)),
        VerifyCheck("what was spent in all is what the ledger adds up for this unit", str(then) == named.spent),
        *_paid_periods(claim, entries, account),
        VerifyCheck("the ledger has committed these very files", bool(done) and done[0].note == hashes),
        *([VerifyCheck("the ledger names the key of the signature", claim.signed_by in keys)] * bool(claim.signed_by)),
    ]


def _paid_periods(claim: Certificate, entries: list[Entry], account: Account | None) -> list[VerifyCheck]:
    faults = unpaid_periods(claim, entries, account)
    if claim.period is None and not faults:
        return []
    return [VerifyCheck("the ledger has paid for these periods", not faults, "; ".join(faults))]


def _spent_then(entries: list[Entry], last: int, account: str, unit: ProtectedUnit) -> Fraction | None:
    """What one unit had lost when an entry was written; None where it cannot be known."""
    # Whom an older spend protects may have been added later.
    known = [e for e in entries if e.number <= last or (e.kind == "unit" and (e.refers or 0) <= last)]
    try:
        found = replay(known).get(account)
        return None if found is None else found.spent_by(unit)
    except ValueError:
        return None


def _unrecorded(spend: Spend | None) -> str:
    if spend is None or spend.unit != UNRECORDED:
        return ""
    return "an entry of an earlier version does not say: 'poolrl ledger unit CERTIFICATE' adds it"
