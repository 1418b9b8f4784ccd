"""Does a certificate belong to a policy, and does its arithmetic hold? All that can be is computed again."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, astuple, dataclass, replace
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from typing import cast

import numpy as np

from poolrl import __version__
from poolrl.certificate import release_files as files
from poolrl.certificate.certificate import Certificate, LedgerEntry, Terms, arithmetic_faults, period_faults
from poolrl.certificate.leaflet import leaflet, registry_record
from poolrl.learning.model import MODEL_FORMAT, PrivateModel
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import POLICY_FORMAT, Policy
from poolrl.learning.stored import OwnProblemError, PeriodRead, read_learned, says_it_is
from poolrl.ledger.accounts import Entry, normal_name, replay
from poolrl.ledger.ledger import Ledger
from poolrl.ledger.signing import PublicKey, Signature
from poolrl.privacy import sensitivity
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.problem import OutcomeProblem
from poolrl.workflow.config.configuration import ConfigFile, load_config, parse_config
from poolrl.workflow.paying import release_layout
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import code_beside, own_problem, trade_of

# Another machine's Fourier transform may differ in the last bits.
SAME_PLAN = 1e-9


@dataclass(frozen=True)
class VerifyCheck:
    """One thing that was checked again."""

    what: str
    good: bool
    why: str = ""

    @classmethod
    def without(cls, faults: list[str], what: str) -> VerifyCheck:
        """It is good where nothing speaks against it."""
        return cls(what, not faults, "; ".join(faults))


def load_verified(folder: Path, trusted: ConfigFile | None = None, *, ledger: Path | None = None) -> Released:
    """A release whose certificate holds. A configuration of the user's names the problem, where it is their own."""
    problem = None if trusted is None else own_problem(trusted.config.problem.posed)
    release = Released.load(folder, problem=problem)
    checks = verify_folder(folder / files.POLICY, folder / files.CERTIFICATE, ledger=ledger, trusted=trusted)
    if broken := [check for check in checks if not check.good]:
        raise ValueError(f"{folder / files.CERTIFICATE} does not hold ({broken[0].what}); see 'poolrl verify'")
    return release


def verify_folder(
    policy: Path,
    certificate: Path,
    config: Path | None = None,
    ledger: Path | None = None,
    key: Path | None = None,
    *,
    trusted: ConfigFile | None = None,
) -> list[VerifyCheck]:
    """Hashes, arithmetic, and agreement with policy, configuration, the papers beside it, signature and ledger.

    A policy that was planned again has no certificate of its own, and neither has a model. The certificate covers the
    policy that it comes from: the plan is made again, and the model must be the one that this policy carries.

    A configuration that the user names may name a problem of their own. One that lies beside a certificate may not.
    """
    content, folder = certificate.read_bytes(), certificate.parent
    try:
        claim = Certificate.read(content)
        canonical = claim.canonical() == content
    except ValueError as error:
        return [VerifyCheck("the certificate can be read", False, str(error))]
    if config is not None and files.sha256(config) == claim.config_sha256:  # else there is no reason to run its code
        trusted = load_config(config)
    problem = None if trusted is None else own_problem(trusted.config.problem.posed)
    checks, certified, is_model = [], policy.parent / files.CERTIFIED, says_it_is(policy, MODEL_FORMAT)
    if is_model or (files.sha256(policy) != claim.policy_sha256 and certified.is_file()):
        what = "the policy is a plan on the certified model, made again here"
        if is_model:
            what = "the model is that of the certified policy"
        source = certified if certified.is_file() else folder / files.POLICY
        if not source.is_file():
            return [VerifyCheck(what, False, f"there is no {files.POLICY} beside the certificate to compare it with")]
        checks.append(VerifyCheck(what, *made_again(policy, source)))
        policy = source
    apart = period_faults(claim)
    checks += [
        VerifyCheck("the certificate is in canonical form", canonical),
        VerifyCheck("the policy file has the certified hash", files.sha256(policy) == claim.policy_sha256),
    ]
    if claim.period is not None or apart:
        checks.append(VerifyCheck.without(apart, "periods are disjoint and add up"))
    if claim.trees_sha256 and (folder / files.TREES).exists():
        same = files.sha256(folder / files.TREES) == claim.trees_sha256
        checks.append(VerifyCheck("the released trees have the certified hash", same))
    try:
        released = Policy.load(policy, problem=problem)
        faults = arithmetic_faults(claim, released.guarantee)
        what = "rho, epsilon, the attack and the promise follow from what the policy says was released"
        checks += [VerifyCheck.without(faults, what), *_against_policy(claim, released)]
    except (ValueError, ArithmeticError) as error:
        faults = [str(error)]
        if isinstance(error, OwnProblemError):
            faults = [f"{policy} needs code of somebody's own: give the configuration, with --config, if you trust it"]
        checks.append(VerifyCheck.without(faults, "the policy can be read"))
    papers = [name for name in (files.LEAFLET, files.RECORD) if (folder / name).exists()]
    # A configuration counts as the release's own where the leaflet or the record lies beside it too.
    own = folder / files.CONFIG if papers and (folder / files.CONFIG).exists() else None
    if made_with := config or own:
        same = files.sha256(made_with) == claim.config_sha256
        checks.append(VerifyCheck("the configuration has the certified hash", same))
        if same and not faults and not apart:  # else there is nothing to compare
            # The release's own configuration may name the same code as the one that the user has given, and no other.
            with nullcontext() if trusted is None or problem is None else code_beside(trusted.path):
                declared = parse_config(made_with, made_with.read_bytes()).config.terms(claim.assumed_public.units)
            terms = Terms.certified(claim)
            agree = normal_name(terms.data_set) == normal_name(declared.data_set)
            agree &= terms == replace(declared, data_set=terms.data_set)
            checks.append(VerifyCheck("the certificate repeats what the configuration declares", agree))
    # Another version may use other words.
    if all(check.good for check in checks) and claim.versions.get("poolrl") == __version__:
        texts = {files.LEAFLET: leaflet(claim), files.RECORD: registry_record(claim)}
        for name in papers:
            same = (folder / name).read_bytes() == texts[name].encode()
            checks.append(VerifyCheck(f"{name} says what the certificate says", same))
    checks += _signature(claim, content, folder / files.SIGNATURE, key)
    if ledger is not None:
        hashes = {files.POLICY: files.sha256(policy), files.CERTIFICATE: hashlib.sha256(content).hexdigest()}
        checks += _against_ledger(claim, ledger, hashes)
    return checks


def unchecked_files(certificate: Path) -> list[str]:
    """What `verify_folder` says nothing about, each with the reason."""
    folder, claim = certificate.parent, Certificate.read(certificate.read_bytes())
    issuer, papers = claim.versions.get("poolrl"), [files.CONFIG, files.LEAFLET, files.RECORD]
    papers += [files.SIGNATURE] * bool(claim.signed_by) + [files.TREES] * bool(claim.trees_sha256)
    notes = [f"{name} (not there)" for name in papers if not (folder / name).exists()]
    there = [name for name in (files.LEAFLET, files.RECORD) if (folder / name).exists()]
    if (folder / files.CONFIG).exists() and not there:
        trusted = f"if you trust it: --config {folder / files.CONFIG}"
        notes.append(f"{files.CONFIG} (no leaflet or record says that it is the release's; {trusted})")
    if issuer != __version__:
        notes += [f"{name} (written by poolrl {issuer}, which may use other words)" for name in there]
    return notes


def _against_policy(claim: Certificate, policy: Policy) -> list[VerifyCheck]:
    problem, public, names = policy.problem, claim.assumed_public, policy.names
    decided = problem.facts(), policy.report.units, names.products, names.steps
    periods = [each.period for each in claim.earlier] + ([] if claim.period is None else [claim.period])
    named = tuple(PeriodRead(*astuple(period)) for period in periods)
    words = trade_of(problem).words.certified(public.products, censored=getattr(problem, "censored", True))
    checks = {
        "labels are promised as the problem has them": bool(problem.labels) == (claim.labels != "none"),
        "the policy decides the certified problem, from as many units": decided
        == (public.problem, public.units, public.products, public.steps),
        "counts and sensitivity are those of this problem at this rho": tables_hold(policy, claim),
        "the certificate speaks in the words of its trade": public.words == words,
    }
    if policy.report.periods or named:
        checks["the policy names the same periods"] = policy.report.periods == named
    return [VerifyCheck(what, good) for what, good in checks.items()]


def _signature(claim: Certificate, content: bytes, path: Path, key: Path | None) -> list[VerifyCheck]:
    """Whether the certificate's bytes are signed, by the key that they name and by the key that the reader has."""
    wanted = None if key is None else PublicKey.from_pem(key.read_bytes())
    if wanted is None and not path.exists():
        return []
    try:
        signature = Signature.read(path.read_bytes() if path.exists() else b"")
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
        if faults := ledger.verify():
            return [VerifyCheck.without(faults, "the ledger is unbroken")]
        entries, accounts = ledger.state()
        keys = {key.fingerprint for key in ledger.public_keys()}
    named = claim.ledger
    spends = accounts[named.account].spends if named.account in accounts else {}
    spend = spends.get(named.entry)
    paid = spend is not None and (str(spend.rho), spend.period, spend.unit) == (claim.rho, claim.period, claim.protects)
    read = next((each.number for each in entries if each.kind == "read" and each.refers == named.entry), 0)
    then, now = (_payment(claim, entries, last) for last in (read, len(entries)))
    since = ""
    if now and then and now.spent != then.spent:
        since = f"since then more was spent, {float(Fraction(now.spent)):g} in all"
    committed = {entry.refers: entry.note for entry in entries if entry.kind == "commit"}
    checks = [
        VerifyCheck("the ledger is unbroken", True),
        VerifyCheck("the ledger has the payment", paid, since),
        VerifyCheck("certificate and ledger agree on the account, and on what one unit has lost", then == named),
        VerifyCheck("the ledger has committed these very files", committed.get(named.entry) == hashes),
    ]
    if claim.earlier:
        unpaid = [
            f"entry {each.entry} is not the release of {each.period}"
            for each in claim.earlier
            if (spend := spends.get(each.entry)) is None
            or (spend.period, str(spend.rho)) != (each.period, each.rho)
            or each.certificate_sha256 not in committed.get(each.entry, {}).values()
        ]
        checks.append(VerifyCheck.without(unpaid, "the ledger has paid for these periods"))
    if claim.signed_by:
        checks.append(VerifyCheck("the ledger names the key of the signature", claim.signed_by in keys))
    return checks


def _payment(claim: Certificate, entries: list[Entry], last: int) -> LedgerEntry | None:
    """What the ledger said of a certificate's payment when the last entry was written; None where that is not known."""
    try:
        account = replay(entries[:last])[claim.ledger.account]
        return LedgerEntry.of(entries[claim.ledger.entry - 1], account, claim.protects)
    except (ValueError, LookupError):
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
    # A policy may tell paid numbers only. It need not tell all of them.
    told = asdict(policy.report) | {"left_over": policy.outcomes and policy.outcomes.left}
    named = [each.name for each in guarantee.mechanisms]
    slots, rho = units * per_unit, float(guarantee.mechanisms[0].rho)
    try:
        trees = Outcomes(bins=claim.bins)
        layouts = [release_layout(problem, slots=slots, moved=moved, rho=rho, labels_public=public, trees=trees)]
    except ValueError:  # there are no such trees
        return False
    for name, table in sensitivity.ON_TOP.items():
        try:
            layout = table.layout(problem, per_unit=moved)
        except ValueError:  # the problem has no such table
            if told.get(name) is not None:
                return False
            continue
        if told.get(name) is not None or layout.name in named:
            layouts.append(layout)
    facts = attrgetter("name", "cells", "sensitivity_squared")
    return [*map(facts, guarantee.mechanisms)] == [*map(facts, layouts)]


def made_again(file: Path, certified: Path) -> tuple[bool, str]:
    """Whether a file holds the model of a certified policy, or a plan on it by its own public facts; and why not."""
    try:
        model = PrivateModel.of(Policy.load(certified))
        if says_it_is(file, MODEL_FORMAT):
            return _holds(file, MODEL_FORMAT, model), ""
        # A problem without outcomes is refused by `plan`.
        problem = cast(OutcomeProblem, Policy.load(file).problem)
        return _holds(file, POLICY_FORMAT, model.plan(problem), SAME_PLAN), ""
    except ValueError as error:
        return False, str(error)
    except (LookupError, TypeError, AttributeError, ArithmeticError):
        return False, f"{file.name} is not complete: an entry is missing or of another kind"


def _holds(path: Path, wanted: str, again: Policy | PrivateModel, tolerance: float = 0.0) -> bool:
    """Whether a file holds what was made again, and nothing more, because no hash of it is certified.

    Decisions may differ by a share of them. Pages are drawn from the estimate, which must be the same.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / path.name
        again.save(own)
        (facts, arrays), (own_facts, own_arrays) = (read_learned(each, wanted, "file") for each in (path, own))
    # Numbers that a guarantee derives are computed, and may differ between machines.
    promised, own_promised = facts.pop("guarantee"), own_facts.pop("guarantee")
    shapes, own_shapes = ({name: array.shape for name, array in each.items()} for each in (arrays, own_arrays))
    return (
        facts == own_facts
        and promised.keys() == own_promised.keys()
        and Guarantee.from_dict(promised) == again.guarantee
        and shapes == own_shapes
        and all(
            np.allclose(array, own_arrays[name], 0.0 if name.startswith("outcomes.") else tolerance, 0.0)
            for name, array in arrays.items()
        )
    )
