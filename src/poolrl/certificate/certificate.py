"""Certificate: the claim of one release as canonical JSON, complete enough to be checked by somebody else.

Amounts are exact fractions, written as text. Numbers derived from them (ε, the power of an attack) are rounded up to
four decimals, so that the same release gives the same bytes on every machine and never claims too little.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from poolrl import __version__
from poolrl.ledger.accounts import Account, Entry, Period, ProtectedUnit, Spend, lost_by_one
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import MOST_MECHANISMS, STORED, Guarantee, LabelMode, Mechanism

COMPOSITION = (
    "zCDP budgets of all mechanisms add up: rho is their exact sum, and rho = sensitivity_squared / (2 variance)"
)
DELTAS = ("1e-05", "1e-06", "1e-09")
FALSE_POSITIVES = 0.05
DECIMALS = 4
NOISE_IN_WORDS = "discrete Gaussian, exact, from the operating system's entropy"
# A query may be a megabyte, as a configuration may, and stands in it once.
LARGEST_CERTIFICATE = 2**22
# The software whose versions a certificate names.
Software = Literal["cryptography", "numpy", "opendp", "poolrl", "python", "scipy"]
PUBLIC_IN_WORDS = "everything in the configuration, and the number of units of the log"


class Facts(BaseModel):
    """Facts as a file has them: nothing is converted, and an unknown key is refused. A docstring describes its fact."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class Publication(Facts):
    """What the deployment record says about the release."""

    name: str = "Ordering policy"
    """for the record that tells others of this release (registry.yaml)"""
    curator: str = "not stated"
    """who publishes it"""
    region: str = "not stated"
    """which region the data describe"""
    intended_use: str = "Order-up-to levels for the coming periods."
    """what it is for"""


class CertifiedWords(Facts):
    """The words of a problem, as its papers use them."""

    decisions: str
    past: str
    outcome: str
    trajectory: str
    logged: str
    scope: str  # what decisions are for: 3 products
    estimate: str  # what replaces a plain count of outcomes; empty where none is ever cut off


class AssumedPublic(Facts):
    """What was declared before the log was read, and the number of its units."""

    problem: dict[str, Any]  # `Problem.facts()`: its keys depend on the kind of problem
    products: list[str]
    steps: list[str]
    columns: list[str]
    unit_column: str | None
    clip: bool
    query: str | None
    protects: str
    publication: Publication
    words: CertifiedWords
    units: int
    what: str = PUBLIC_IN_WORDS


@dataclass(frozen=True)
class Terms:
    """What a configuration declares of a release: who pays how much for what."""

    public: AssumedPublic
    data_set: str
    rho: Fraction
    budget: Fraction
    unit: ProtectedUnit
    period: Period | None
    forgetting: float | None  # of earlier periods; None without a period

    @classmethod
    def certified(cls, claim: Certificate) -> Self:
        """What a certificate says that a configuration has declared; refuses numbers that cannot be read."""
        rho, budget = zcdp.written(claim.rho), zcdp.written(claim.ledger.budget)
        named = claim.assumed_public, claim.ledger.data_set
        return cls(*named, rho, budget, claim.protects, claim.period, claim.forgetting)


class EarlierRelease(Facts):
    """A release of an earlier period whose trees the policy rests on."""

    period: Period
    rho: str
    scale_memory: int = Field(ge=0)
    entry: int
    certificate_sha256: str


class AttackPower(Facts):
    """The success of an attacker who knows all but one unit, at 5% false alarms."""

    false_positives: float
    true_positives_at_most: float
    true_positives_of_best_known_attack: float


class PrivacyLoss(Facts):
    """What one release, or several together, tell an attacker at most."""

    rho: str
    epsilon: dict[str, float]
    attack: AttackPower

    @classmethod
    def of(cls, spent: Fraction) -> PrivacyLoss:
        """From the sum of their budgets; what is derived from it is rounded up."""
        rho = float(spent)
        epsilon = {delta: _certified(zcdp.epsilon(rho, float(delta))) for delta in DELTAS}
        attack = AttackPower(
            false_positives=FALSE_POSITIVES,
            true_positives_at_most=min(1.0, _certified(zcdp.attack_power(rho, FALSE_POSITIVES))),
            true_positives_of_best_known_attack=min(1.0, _certified(zcdp.gaussian_attack_power(rho, FALSE_POSITIVES))),
        )
        return PrivacyLoss(rho=str(spent), epsilon=epsilon, attack=attack)


class CertifiedMechanism(Facts):
    """One released table with its sensitivity, its noise and its cost."""

    name: str
    noise: str
    cells: int
    sensitivity_squared: str
    variance: str
    rho: str

    @classmethod
    def of(cls, mechanism: Mechanism) -> Self:
        """In the words of the certificate."""
        return cls(**mechanism.to_dict(), noise=NOISE_IN_WORDS, rho=str(mechanism.rho))


class LedgerEntry(Facts):
    """The payment, as it stands in the owner's ledger, and what the account held afterwards."""

    data_set: str
    account: str
    entry: int
    seal: str
    budget: str
    spent: str

    @property
    def left(self) -> str:
        """The rest of the budget."""
        return str(max(Fraction(0), zcdp.written(self.budget) - zcdp.written(self.spent)))

    @classmethod
    def of(cls, reservation: Entry, account: Account, unit: ProtectedUnit) -> Self:
        """From the reservation that paid, with what all releases cost one such unit."""
        return cls(
            data_set=account.data_set,
            account=account.fingerprint,
            entry=reservation.number,
            seal=reservation.seal,
            budget=str(account.budget),
            spent=str(account.spent_by(unit)),
        )


class AuditSummary(Facts):
    """What `poolrl audit` found about the fit that this configuration describes."""

    poolrl: str
    began: str
    config_sha256: str
    releases: int = Field(gt=0)
    claimed_rho: float = Field(gt=0)
    proved_rho: float = Field(ge=0)
    moved_share: float = Field(ge=0, le=1)
    confidence: float = Field(gt=0, lt=1)
    verdict: Literal["not refuted", "too weak"]  # a release that was flagged is not certified


def read_audit(path: Path, config_sha256: str) -> AuditSummary:
    """The summary of an audit of this very configuration, for the certificate."""
    try:
        facts = json.loads(path.read_bytes())["summary"]
        flagged = facts["verdict"] == "FLAGGED"
        summary = None if flagged else AuditSummary.model_validate(facts)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is not audit.json of 'poolrl audit --config'") from None
    if summary is None:
        raise ValueError(f"{path} says that releases of this configuration exceed their claim: do not fit")
    if (summary.config_sha256, summary.poolrl) != (config_sha256, __version__):
        raise ValueError(f"{path} audits another configuration or version: run 'poolrl audit --config' again")
    return summary


class Certificate(PrivacyLoss):
    """The whole file."""

    format: Literal["poolrl certificate 3"] = "poolrl certificate 3"
    issued: str
    private: bool
    in_all: PrivacyLoss  # all releases of the data set together, this one included
    unit: str
    trajectories_per_unit: int
    steps: int
    adjacency: str
    # What was declared of a scale, of labels, and of how many trajectories a unit owns.
    scaled: bool = False
    scale_memory: int = 0
    labels: LabelMode = "none"
    owns_at_most: int | None = None
    other_units: list[str] = Field([])  # whom other releases of the account protect; counted by what they cost here
    definitions: list[str] = Field([])  # views and functions of the source that the query could use
    signed_by: str = ""  # SHA-256 of the public key
    audit: AuditSummary | None = None
    # Which trajectories were read, where not all of them were, and the earlier periods that the policy rests on.
    period: Period | None = None
    forgetting: float | None = Field(None, gt=0, le=1)
    bins: int | None = Field(None, ge=2, le=1024)  # of the trees: those of the first period; no tree has more
    earlier: list[EarlierRelease] = Field([])
    trees_sha256: str = ""
    mechanisms: list[CertifiedMechanism] = Field(min_length=1, max_length=MOST_MECHANISMS)
    composition: str
    post_processing: list[str]
    assumed_public: AssumedPublic
    versions: dict[Software, str]
    policy_sha256: str
    config_sha256: str
    ledger: LedgerEntry

    @property
    def promise(self) -> Guarantee:
        """The guarantee without its mechanisms."""
        return Guarantee((), secure=True, **{name: getattr(self, name) for name in STORED})

    @property
    def protects(self) -> ProtectedUnit:
        """Whom the release protects, as the ledger records it."""
        public = self.assumed_public
        return ProtectedUnit(
            trajectory=public.columns[0] if public.columns else "",
            column=public.unit_column,
            max_per_unit=self.trajectories_per_unit,
            owns_at_most=self.owns_at_most,
            scale_memory=self.scale_memory,
            labels_kept=self.labels == "public",
            adjacency=self.adjacency,
        )

    def canonical(self) -> bytes:
        """Sorted keys, two spaces, UTF-8, a line feed at the end; no NaN and no infinity."""
        text = json.dumps(self.model_dump(), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()

    @classmethod
    def read(cls, content: bytes) -> Self:
        """A certificate from its bytes; refuses anything that is not one."""
        try:
            # A longer text is not read, as if it were empty.
            return cls.model_validate_json(content if len(content) <= LARGEST_CERTIFICATE else b"")
        except ValidationError:
            version = f"not a complete certificate of this version ({cls.model_fields['format'].default!r})"
            raise ValueError(f"{version}: an entry is missing, unknown or of another type") from None


def certify(guarantee: Guarantee, *, public: AssumedPublic, ledger: LedgerEntry, **facts: Any) -> Certificate:
    """The certificate, from what was paid and what was released; `facts` are its other fields."""
    entries = derived(guarantee, zcdp.written(ledger.spent), public.words)
    return Certificate(assumed_public=public, ledger=ledger, **entries, **facts)


def derived(guarantee: Guarantee, spent: Fraction, words: CertifiedWords) -> dict[str, Any]:
    """The entries that follow from what was released, from the sum of all spends, and from words."""
    rho = zcdp.compose(each.rho for each in guarantee.mechanisms)
    if not guarantee.private or isinstance(rho, float):
        raise ValueError("only a private release can be certified: secure noise and a finite rho")
    return {
        "private": True,
        **{name: getattr(guarantee, name) for name in STORED},
        "mechanisms": [CertifiedMechanism.of(each) for each in guarantee.mechanisms],
        **dict(PrivacyLoss.of(rho)),
        "in_all": PrivacyLoss.of(spent),
        "composition": COMPOSITION,
        "post_processing": post_processing(words),
    }


def seen_in(claim: Certificate) -> PrivacyLoss:
    """What an attacker who sees this release alone can use: its own ρ, or that of all releases.

    A policy of several periods holds the trees of all of them. A trajectory is in one, so the others tell nothing of it
    and only add noise. But a unit may be in each, and its shifts add up where the noise adds up in squares.
    """
    return claim.in_all if claim.earlier and claim.unit != "trajectory" else claim


def lost_to_periods(claim: Certificate) -> Fraction:
    """What one unit loses to the periods that a certificate names, its own included."""
    releases: list[EarlierRelease | Certificate] = [*claim.earlier, claim]
    column = None if claim.unit == "trajectory" else claim.unit
    spends = []
    for each in releases:
        unit = ProtectedUnit("", column, scale_memory=each.scale_memory)
        spends += [Spend(zcdp.written(each.rho), "committed", unit, each.period)] if each.period else []
    return lost_by_one(spends)


def post_processing(words: CertifiedWords) -> list[str]:
    """What happens after the release, at no cost."""
    return [
        "noisy counts made consistent",
        "shrinkage towards laws of a public dictionary, weighted by all steps, products and labels",
        *([words.estimate] if words.estimate else []),
        f"backward induction to {words.decisions}",
        "simulated costs and every picture of the report",
    ]


def arithmetic_faults(claim: Certificate, guarantee: Guarantee) -> list[str]:
    """Which entries of a certificate do not follow from a policy's guarantee and from each other."""
    try:
        spent, _ = zcdp.written(claim.ledger.spent), zcdp.written(claim.ledger.budget)
        again = derived(guarantee, spent, claim.assumed_public.words)
    except (ValueError, ZeroDivisionError, OverflowError):
        return ["the noise is not secure, or a number is missing or cannot be read"]
    faults = [f"{name} does not follow from the rest" for name in again if getattr(claim, name) != again[name]]
    if spent < Fraction(again["rho"]):
        faults.append("less was spent than it cost")
    audit, issuer = claim.audit, claim.versions.get("poolrl")
    audited = claim.config_sha256, float(Fraction(again["rho"])), issuer
    if audit is not None and (audit.config_sha256, audit.claimed_rho, audit.poolrl) != audited:
        faults.append("the audit is one of another configuration, budget or version")
    return faults


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
    if any(cost <= 0 for cost in costs):
        faults.append("an earlier period has no cost")
    if spent < lost:
        faults.append("its periods cost more than it says was spent in all")
    if claim.forgetting is None or (claim.bins is None) != (not claim.earlier):
        faults.append("it does not say how earlier periods count")
    return faults


def _certified(value: float) -> float:
    # A little more, because the optimiser behind ε differs between machines in digits that nobody needs.
    return zcdp.ceiling(value + 1e-7, DECIMALS)
