"""Certificate: the claim of one release as canonical JSON, complete enough to be checked by somebody else.

Amounts are exact fractions, written as text. What is derived from them (ε, the power of an attack) is rounded up to
four decimals, so that the same release gives the same bytes on every machine and never claims too little.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from poolrl.certificate.parts import (
    AssumedPublic,
    AttackPower,
    AuditSummary,
    CertifiedMechanism,
    CertifiedPeriod,
    CertifiedWords,
    EarlierRelease,
    Facts,
    InAll,
    LedgerEntry,
    Software,
    epsilons,
)
from poolrl.ledger.units import ProtectedUnit
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import MOST_MECHANISMS, Guarantee, LabelMode
from poolrl.problems.inventory import Inventory

COMPOSITION = (
    "zCDP budgets of all mechanisms add up: rho is their exact sum, and rho = sensitivity_squared / (2 variance)"
)
# A query may be a megabyte, as a configuration may (`workflow/toml.py`), and stands in it once.
LARGEST_CERTIFICATE = 2**22
# A certificate speaks of these only where they differ from what most releases have.
SILENT = (
    *("scaled", "scale_memory", "labels", "owns_at_most", "other_units", "definitions", "signed_by", "audit"),
    *("period", "forgetting", "bins", "earlier", "trees_sha256", "words"),
)
# A certificate of a shop says nothing about words, as those before there were others.
WORDS_OF_SHOPS = CertifiedWords.of(Inventory.words)


class Certificate(Facts):
    """The whole file."""

    format: Literal["poolrl certificate 1"] = "poolrl certificate 1"
    issued: str
    private: bool
    rho: str
    epsilon: dict[str, float]
    attack: AttackPower
    in_all: InAll
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
    period: CertifiedPeriod | None = None
    forgetting: float | None = None
    bins: int | None = None  # of the trees: those of the first period
    earlier: list[EarlierRelease] = Field([])
    trees_sha256: str = ""
    words: CertifiedWords | None = None
    mechanisms: list[CertifiedMechanism]
    composition: str
    post_processing: list[str]
    assumed_public: AssumedPublic
    versions: dict[Software, str]
    policy_sha256: str
    config_sha256: str
    ledger: LedgerEntry

    def canonical(self) -> bytes:
        """Sorted keys, two spaces, UTF-8, a line feed at the end; no NaN and no infinity."""
        silent = {name for name in SILENT if not self._speaks_of(name)}
        facts = self.model_dump(exclude=silent)
        text = json.dumps(facts, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()

    @property
    def said(self) -> CertifiedWords:
        """The words of its problem."""
        return self.words or WORDS_OF_SHOPS

    def _speaks_of(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @classmethod
    def read(cls, content: bytes) -> Self:
        """A certificate from its bytes; refuses anything that is not one."""
        if len(content) > LARGEST_CERTIFICATE:
            raise ValueError("not a certificate: it is larger than any that poolrl writes")
        try:
            facts = json.loads(content)
        except (ValueError, RecursionError):
            raise ValueError("not a certificate: it is not JSON") from None
        wanted = cls.model_fields["format"].default
        if not isinstance(facts, dict) or facts.get("format") != wanted:
            raise ValueError(f"not a certificate of this version ({wanted!r})")
        try:
            return cls.model_validate(facts)
        except (ValidationError, RecursionError):
            raise ValueError("not a complete certificate: an entry is missing, unknown or of another kind") from None


def certify(
    guarantee: Guarantee,
    *,
    issued: str,
    policy_sha256: str,
    config_sha256: str,
    public: AssumedPublic,
    versions: dict[Software, str],
    ledger: LedgerEntry,
    **declared: Any,  # owns_at_most, other_units, definitions, signed_by, audit, and what is said of periods
) -> Certificate:
    """The certificate, from what was paid and what was released."""
    rho = zcdp.compose(each.rho for each in guarantee.mechanisms)
    if not guarantee.private or isinstance(rho, float):
        raise ValueError("only a private release can be certified: secure noise and a finite rho")
    return Certificate(
        issued=issued,
        private=True,
        rho=str(rho),
        epsilon=epsilons(rho),
        attack=AttackPower.at(rho),
        in_all=InAll.of(Fraction(ledger.spent)),
        unit=guarantee.unit,
        trajectories_per_unit=guarantee.trajectories_per_unit,
        steps=guarantee.steps,
        adjacency=guarantee.adjacency,
        scaled=guarantee.scaled,
        scale_memory=guarantee.scale_memory,
        labels=guarantee.labels,
        mechanisms=[CertifiedMechanism.of(each) for each in guarantee.mechanisms],
        composition=COMPOSITION,
        post_processing=post_processing(public.problem, declared.get("words") or WORDS_OF_SHOPS),
        assumed_public=public,
        versions=versions,
        policy_sha256=policy_sha256,
        config_sha256=config_sha256,
        ledger=ledger,
        **declared,
    )


def certified_unit(certificate: Certificate) -> ProtectedUnit:
    """Whom a certificate's release protects, as the ledger records it."""
    public = certificate.assumed_public
    return ProtectedUnit(
        trajectory=public.columns[0] if public.columns else "",
        column=public.unit_column,
        max_per_unit=certificate.trajectories_per_unit,
        owns_at_most=certificate.owns_at_most,
        scale_memory=certificate.scale_memory,
        labels_kept=certificate.labels == "public",
        adjacency=certificate.adjacency,
    )


def post_processing(problem: dict[str, Any], words: CertifiedWords) -> list[str]:
    """What happens after the release, at no cost; demand that waits in a backlog is never cut off."""
    return [
        "noisy counts made consistent",
        "shrinkage towards laws of a public dictionary, weighted by all steps, products and labels",
        *([] if problem.get("kind") == "Backlog" else [words.estimate]),
        f"backward induction to {words.decisions}",
        "simulated costs and every picture of the report",
    ]


def arithmetic_faults(certificate: Certificate) -> list[str]:
    """Which numbers of a certificate do not follow from its mechanisms."""
    faults = []
    if len(certificate.mechanisms) > MOST_MECHANISMS:
        return ["more mechanisms than any release has"]
    try:
        costs = []
        for each in certificate.mechanisms:
            variance, sensitivity = zcdp.written(each.variance), zcdp.written(each.sensitivity_squared)
            if variance <= 0 or sensitivity <= 0:
                return ["a mechanism has no noise or no sensitivity"]
            costs.append(Fraction(zcdp.spent(sensitivity_squared=sensitivity, variance=variance)))
            if costs[-1] != zcdp.written(each.rho):
                faults.append(f"the rho of {each.name!r} is not sensitivity_squared / (2 variance)")
        rho = sum(costs, Fraction(0))
        if not costs or rho != zcdp.written(certificate.rho):
            return [*faults, "rho is not the sum over the mechanisms"]
        if certificate.epsilon != epsilons(rho):
            faults.append("epsilon does not follow from rho")
        if certificate.attack != AttackPower.at(rho):
            faults.append("the power of an attack does not follow from rho")
        ledger = certificate.ledger
        spent, budget, left = (zcdp.written(text) for text in (ledger.spent, ledger.budget, ledger.left))
        if spent < rho or certificate.in_all != InAll.of(spent):
            faults.append("what was spent in all does not follow from the ledger's entry")
        if not certificate.private:
            faults.append("it does not say that anything is private")
        if (audit := certificate.audit) is not None:
            same = audit.config_sha256 == certificate.config_sha256 and audit.claimed_rho == float(rho)
            if not same or audit.poolrl != certificate.versions.get("poolrl"):
                faults.append("the audit is one of another configuration, budget or version")
        if left != max(Fraction(0), budget - spent):
            faults.append("what is left does not follow from the budget and what was spent")
        worded = certificate.composition, certificate.post_processing
        if worded != (COMPOSITION, post_processing(certificate.assumed_public.problem, certificate.said)):
            faults.append("composition or post-processing were reworded")
    except (ValueError, ZeroDivisionError, OverflowError):
        faults.append("a number is missing or cannot be read")
    return faults
