"""Does a certificate belong to a policy, and does its arithmetic hold? All that can be is computed again."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from poolrl import __version__
from poolrl.certificate.certificate import (
    Certificate,
    CertifiedMechanism,
    Terms,
    arithmetic_faults,
    certified_unit,
    lost_to_periods,
)
from poolrl.certificate.leaflet import leaflet, registry_record
from poolrl.certificate.release_files import (
    CERTIFICATE,
    CERTIFIED,
    CONFIG,
    LEAFLET,
    POLICY,
    RECORD,
    SIGNATURE,
    TREES,
    sha256,
)
from poolrl.checks import FloatArray
from poolrl.learning.model import MODEL_FORMAT, PrivateModel
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import POLICY_FORMAT, Policy
from poolrl.learning.stored import PeriodRead, read_learned, says_it_is
from poolrl.ledger.accounts import Entry, Period, ProtectedUnit, Spend, normal_name, replay
from poolrl.ledger.ledger import Ledger
from poolrl.ledger.signing import PublicKey, Signature
from poolrl.privacy import sensitivity, zcdp
from poolrl.privacy.sensitivity import TableLayout
from poolrl.problems.problem import OutcomeProblem, Problem

# Another machine's Fourier transform may differ in the last bits.
SAME_PLAN = 1e-9
# More bins than any released tree has.
MOST_CERTIFIED_BINS = 1024


@dataclass(frozen=True)
class VerifyCheck:
    """One thing that was checked again."""

    what: str
    good: bool
    why: str = ""


# Reads a configuration, given the number of units of the log.
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

    A policy that was planned again has no certificate of its own, and neither has a model. The certificate covers the
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
    # A configuration counts as the release's own where the leaflet or the record lies beside it too.
    released = (folder / LEAFLET).exists() or (folder / RECORD).exists()
    own = folder / CONFIG if released and (folder / CONFIG).exists() else None
    if made_with := config or own:
        checks += _against_config(claim, made_with, read_terms, sound=not faults and not apart)
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
    fades_alike = terms.period is None or not terms.forgetting_declared or claim.forgetting == terms.forgetting
    agree = declared == certified and claim.period == terms.period and fades_alike
    return [same, VerifyCheck("the certificate repeats what the configuration declares", agree)]


def unchecked_files(certificate: Path) -> list[str]:
    """What `verify_release` says nothing about, each with the reason."""
    folder = certificate.parent
    claim = Certificate.read(certificate.read_bytes())
    issuer = claim.versions.get("poolrl")
    papers = (CONFIG, LEAFLET, RECORD, *[SIGNATURE] * bool(claim.signed_by), *[TREES] * bool(claim.trees_sha256))
    notes = [f"{name} (not there)" for name in papers if not (folder / name).exists()]
    if (folder / CONFIG).exists() and not ((folder / LEAFLET).exists() or (folder / RECORD).exists()):
        trusted = f"if you trust it: --config {folder / CONFIG}"
        notes.append(f"{CONFIG} (no leaflet or record says that it is the release's; {trusted})")
    if issuer != __version__:
        there = [name for name in (LEAFLET, RECORD) if (folder / name).exists()]
        notes += [f"{name} (written by poolrl {issuer}, which may use other words)" for name in there]
    return notes


def _papers(claim: Certificate, folder: Path) -> list[VerifyCheck]:
    """The leaflet and the deployment record, where they lie beside a certificate of this version that holds."""
    if claim.versions.get("poolrl") != __version__:  # another version may use other words
        return []
    texts = {LEAFLET: leaflet(claim), RECORD: registry_record(claim)}
    return [
        VerifyCheck(f"{name} says what the certificate says", (folder / name).read_bytes() == text.encode())
        for name, text in texts.items()
        if (folder / name).exists()
    ]


def _against_policy(claim: Certificate, policy: Policy) -> list[VerifyCheck]:
    guarantee, public, names = policy.guarantee, claim.assumed_public, policy.names

    def repeats(*promised: str) -> bool:
        return all(getattr(claim, name) == getattr(guarantee, name) for name in promised)

    decided = policy.problem.facts(), policy.report.units, names.products, names.steps
    labelled = bool(policy.problem.labels) == (claim.labels != "none")
    periods = [each.period for each in claim.earlier] + ([] if claim.period is None else [claim.period])
    named = tuple(PeriodRead(*astuple(period)) for period in periods)
    mechanisms = [CertifiedMechanism.of(each) for each in guarantee.mechanisms]
    checks = {
        "the policy says that its noise was secure": guarantee.private,
        "the policy carries the same mechanisms": claim.mechanisms == mechanisms,
        "the policy protects the same unit": repeats("unit", "trajectories_per_unit", "steps", "adjacency"),
        "the policy carries the same declarations about scale and labels": labelled
        and repeats("scaled", "scale_memory", "labels"),
        "the policy decides the certified problem, from as many units": decided
        == (public.problem, public.units, public.products, public.steps),
        "counts and sensitivity are those of this problem at this rho": tables_hold(policy, claim),
    }
    if policy.report.periods or named:
        checks["the policy names the same periods"] = policy.report.periods == named
    return [VerifyCheck(what, good) for what, good in checks.items()]


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
        yours = Signature(wanted, signature.raw).holds_for(content)
        checks.append(VerifyCheck("the certificate is signed with your key", yours, why))
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
        VerifyCheck("the ledger paid for the same unit", spend is not None and spend.unit == unit),
        VerifyCheck("certificate and ledger agree on what one unit has lost in all", str(then) == named.spent),
        *_paid_periods(claim, entries, {} if account is None else account.spends),
        VerifyCheck("the ledger has committed these very files", bool(done) and done[0].note == hashes),
        *([VerifyCheck("the ledger names the key of the signature", claim.signed_by in keys)] * bool(claim.signed_by)),
    ]


def _paid_periods(claim: Certificate, entries: list[Entry], spends: dict[int, Spend]) -> list[VerifyCheck]:
    """Whether the ledger has paid for the periods of a certificate, each as the certificate says."""
    what = "the ledger has paid for these periods"
    if period_faults(claim):
        return [VerifyCheck(what, False, "they do not add up")]
    named: list[tuple[int, Period | None, str, str | None]] = [
        (claim.ledger.entry, claim.period, claim.rho, None),
        *((each.entry, each.period, each.rho, each.certificate_sha256) for each in claim.earlier),
    ]
    committed = {entry.refers: {None, *entry.note.values()} for entry in entries if entry.kind == "commit"}
    faults = [
        f"entry {entry} is not the release of {period}"
        for entry, period, rho, sha in named
        if (spend := spends.get(entry)) is None
        or (spend.period, str(spend.rho)) != (period, rho)
        or sha not in committed.get(entry, {None})
    ]
    return [VerifyCheck(what, not faults, "; ".join(faults))] if claim.period is not None or faults else []


def _spent_then(entries: list[Entry], last: int, account: str, unit: ProtectedUnit) -> Fraction | None:
    """What one unit had lost when an entry was written; None where it cannot be known."""
    try:
        books = replay(entries[:last]).get(account)
        return None if books is None else books.spent_by(unit)
    except ValueError:
        return None


def tables_hold(policy: Policy, claim: Certificate) -> bool:
    """Whether the mechanisms are outcome trees, and sums on top of them, computed again from public facts alone."""
    problem, guarantee, units = policy.problem, policy.guarantee, claim.assumed_public.units
    if not guarantee.mechanisms or not isinstance(problem, OutcomeProblem) or units < 1:
        return False
    per_unit, public = guarantee.trajectories_per_unit, guarantee.labels == "public"
    moved = sensitivity.moved_trajectories(
        per_unit=per_unit, scale_memory=guarantee.scale_memory, has_units=guarantee.unit != "trajectory"
    )
    carried = [(each.name, each.cells, each.sensitivity_squared) for each in guarantee.mechanisms]
    on_top: dict[str, tuple[Callable[..., TableLayout], object]] = {
        "levels and outcomes": (sensitivity.joint_table, policy.report.dependence),
        "stock left over": (sensitivity.left_sums, policy.outcomes and policy.outcomes.left),
        "products that sell together": (sensitivity.pair_sums, policy.report.together),
    }
    named = [each.name for each in guarantee.mechanisms]
    # A policy may tell paid numbers only. It need not tell all of them.
    formulas = [formula for name, (formula, told) in on_top.items() if told is not None or name in named]
    slots, rho = units * per_unit, float(guarantee.mechanisms[0].rho)
    try:
        trees = Outcomes(bins=claim.bins)
        layouts = [release_layout(problem, slots=slots, moved=moved, rho=rho, labels_public=public, trees=trees)]
        layouts += [formula(problem, per_unit=moved) for formula in formulas]
    except ValueError:  # there are no such trees, or the problem has no such sums
        return False
    return carried == [(each.name, each.cells, each.sensitivity_squared) for each in layouts]


def release_layout(
    problem: OutcomeProblem,
    *,
    slots: int,
    moved: int,
    rho: float,
    labels_public: bool = False,
    trees: Outcomes | None = None,
) -> TableLayout:
    """The tables that a fit with default settings, or with such `trees`, releases of a table in an engine."""
    sizes = (trees or Outcomes()).level_sizes(problem, slots=slots, per_unit=moved, rho=rho)
    # A table may lack rows, so it is never complete.
    return sensitivity.outcome_trees(
        problem, level_sizes=sizes, per_unit=moved, complete=False, labels_public=labels_public
    )


def made_again(policy: Path, certified: Path) -> tuple[bool, str]:
    """Whether a policy is a plan on the model of a certified one, by its own public facts; and why not."""
    try:
        plan, model = Policy.load(policy), PrivateModel.of(Policy.load(certified))
        if not isinstance(plan.problem, OutcomeProblem) or plan.outcomes is None:
            return False, "it has no model"
        again = model.plan(plan.problem)
        assert again.outcomes is not None
        told = (plan.guarantee, plan.report, type(plan.rule)) == (again.guarantee, again.report, type(again.rule))
        # Pages are drawn from the estimate that a policy carries.
        same = _same(plan.outcomes.arrays(), again.outcomes.arrays())
        same = same and _same(again.rule.arrays(), plan.rule.arrays(), SAME_PLAN)
        return told and same and _holds_nothing_more(policy, again), ""
    except ValueError as error:
        return False, str(error)


def _holds_nothing_more(path: Path, again: Policy) -> bool:
    """Whether a file has the arrays and facts that a policy is saved with, and no others: no hash is certified."""
    with tempfile.TemporaryDirectory() as folder:
        again.save(Path(folder) / path.name)
        files = [read_learned(each, POLICY_FORMAT, "policy") for each in (path, Path(folder) / path.name)]
    names = [(facts.keys(), facts["guarantee"].keys(), arrays.keys()) for facts, arrays in files]
    return names[0] == names[1]


def is_its_model(model: Path, certified: Path) -> tuple[bool, str]:
    """Whether a file holds the model that a certified policy was planned on, to the last bit; and why not."""
    try:
        stored, own = PrivateModel.load(model), PrivateModel.of(Policy.load(certified))
    except ValueError as error:
        return False, str(error)
    told = [(each.problem.facts(), each.guarantee, each.report) for each in (stored, own)]
    return told[0] == told[1] and _same(stored.outcomes.arrays(), own.outcomes.arrays()), ""


def _same(one: Mapping[str, FloatArray], other: Mapping[str, FloatArray], tolerance: float = 0.0) -> bool:
    """Whether tables of the same names and shapes have the same numbers, up to a share of each."""
    shapes = [{name: array.shape for name, array in tables.items()} for tables in (one, other)]
    return shapes[0] == shapes[1] and all(np.allclose(one[name], other[name], tolerance, 0.0) for name in one)


def period_faults(claim: Certificate) -> list[str]:
    """What does not hold of the periods of a certificate."""
    if claim.period is None:
        unsaid = claim.earlier == [] and claim.forgetting is None and claim.bins is None
        return [] if unsaid else ["it speaks of earlier periods, but names none of its own"]
    try:
        costs = [zcdp.written(each.rho) for each in claim.earlier]
        lost, spent = lost_to_periods(claim), zcdp.written(claim.ledger.spent)
    except (ValueError, ZeroDivisionError, OverflowError):
        return ["the rho of a period cannot be read"]
    faults, periods = [], [*(each.period for each in claim.earlier), claim.period]
    if any(one.overlaps(other) for i, one in enumerate(periods) for other in periods[:i]):
        faults.append("two of its periods overlap")
    if any(cost <= 0 for cost in costs) or any(each.units < 1 or each.scale_memory < 0 for each in claim.earlier):
        faults.append("an earlier period has no cost or no units")
    if spent < lost:
        faults.append("its periods cost more than it says was spent in all")
    trees = claim.bins is None or 2 <= claim.bins <= MOST_CERTIFIED_BINS
    fades = claim.forgetting is not None and 0 < claim.forgetting <= 1
    if not (trees and fades and (claim.bins is None) == (not claim.earlier)):
        faults.append("it does not say how earlier periods count")
    return faults
