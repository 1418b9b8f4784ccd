"""Certificate: the claim of one release as canonical JSON, complete enough to be checked by somebody else.

Amounts are exact fractions, written as text. What is derived from them (ε, the power of an attack) is rounded up to
four decimals, so that the same release gives the same bytes on every machine and never claims too little.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from poolrl.ledger.accounts import Account, Entry
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import MOST_MECHANISMS, Guarantee, LabelMode, Mechanism

DELTAS = ("1e-05", "1e-06", "1e-09")
FALSE_POSITIVES = 0.05
DECIMALS = 4
COMPOSITION = (
    "zCDP budgets of all mechanisms add up: rho is their exact sum, and rho = sensitivity_squared / (2 variance)"
)
NOISE_IN_WORDS = "discrete Gaussian, exact, from the operating system's entropy"
PUBLIC_IN_WORDS = "everything in the configuration, and the number of units of the log"


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Publication(_Facts):
    """What the record for the registry of deployments says about the release."""

    name: str = Field(
        default="Ordering policy", description="for the record that tells others of this release (registry.yaml)"
    )
    curator: str = Field(default="not stated", description="who publishes it")
    region: str = Field(default="not stated", description="which region the data describe")
    intended_use: str = Field(default="Order-up-to levels for the coming periods.", description="what it is for")


class AssumedPublic(_Facts):
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
    units: int
    what: str = PUBLIC_IN_WORDS


class AttackPower(_Facts):
    """What an attacker who knows all but one unit gets right, at 5% false alarms."""

    false_positives: float
    true_positives_at_most: float
    true_positives_of_best_known_attack: float

    @classmethod
    def at(cls, rho: Fraction) -> Self:
        """Both powers, rounded up."""
        powers = (power(float(rho), FALSE_POSITIVES) for power in (zcdp.attack_power, zcdp.gaussian_attack_power))
        at_most, best_known = (min(1.0, _certified(power)) for power in powers)
        return cls(
            false_positives=FALSE_POSITIVES,
            true_positives_at_most=at_most,
            true_positives_of_best_known_attack=best_known,
        )


class InAll(_Facts):
    """What all releases of the data set together come to, this one included."""

    rho: str
    epsilon: dict[str, float]
    attack: AttackPower

    @classmethod
    def of(cls, spent: Fraction) -> Self:
        """From the sum of their budgets."""
        return cls(rho=str(spent), epsilon=epsilons(spent), attack=AttackPower.at(spent))


class CertifiedMechanism(_Facts):
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
        return cls(
            name=mechanism.name,
            noise=NOISE_IN_WORDS,
            cells=mechanism.cells,
            sensitivity_squared=str(mechanism.sensitivity_squared),
            variance=str(mechanism.variance),
            rho=str(mechanism.rho),
        )


class LedgerEntry(_Facts):
    """The payment, as it stands in the owner's ledger, and what the account held afterwards."""

    data_set: str
    account: str
    entry: int
    seal: str
    budget: str
    spent: str
    left: str

    @classmethod
    def of(cls, reservation: Entry, account: Account) -> Self:
        """From the reservation that paid."""
        return cls(
            data_set=account.data_set,
            account=account.fingerprint,
            entry=reservation.number,
            seal=reservation.seal,
            budget=str(account.budget),
            spent=str(account.spent),
            left=str(account.left),
        )


class Certificate(_Facts):
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
    # What was declared of a scale and of labels. A certificate of a log without them does not speak of them.
    scaled: bool = False
    scale_memory: int = 0
    labels: LabelMode = "none"
    mechanisms: list[CertifiedMechanism]
    composition: str
    post_processing: list[str]
    assumed_public: AssumedPublic
    versions: dict[str, str]
    policy_sha256: str
    config_sha256: str
    ledger: LedgerEntry

    def canonical(self) -> bytes:
        """Sorted keys, two spaces, UTF-8, a line feed at the end; no NaN and no infinity."""
        silent = {name for name in ("scaled", "scale_memory", "labels") if not self._speaks_of(name)}
        facts = self.model_dump(exclude=silent)
        text = json.dumps(facts, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()

    def _speaks_of(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @classmethod
    def read(cls, content: bytes) -> Self:
        """A certificate from its bytes; refuses anything that is not one."""
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
    versions: dict[str, str],
    ledger: LedgerEntry,
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
        post_processing=post_processing(public.problem),
        assumed_public=public,
        versions=versions,
        policy_sha256=policy_sha256,
        config_sha256=config_sha256,
        ledger=ledger,
    )


def post_processing(problem: dict[str, Any]) -> list[str]:
    """What happens after the release, at no cost; demand that waits in a backlog is never cut off."""
    return [
        "noisy counts made consistent",
        "shrinkage towards laws of a public dictionary, weighted by all steps, products and labels",
        *([] if problem.get("kind") == "Backlog" else ["Kaplan-Meier estimate of demand beyond empty shelves"]),
        "backward induction to order-up-to levels",
        "simulated costs and every picture of the report",
    ]


def epsilons(rho: Fraction) -> dict[str, float]:
    """ε at each δ, rounded up."""
    return {delta: _certified(zcdp.epsilon(float(rho), float(delta))) for delta in DELTAS}


def _certified(value: float) -> float:
    # A little more, because the optimiser behind ε differs between machines in digits that nobody needs.
    return zcdp.ceiling(value + 1e-7, DECIMALS)


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
        if left != max(Fraction(0), budget - spent):
            faults.append("what is left does not follow from the budget and what was spent")
        worded = certificate.composition, certificate.post_processing
        if worded != (COMPOSITION, post_processing(certificate.assumed_public.problem)):
            faults.append("composition or post-processing were reworded")
    except (ValueError, ZeroDivisionError, OverflowError):
        faults.append("a number is missing or cannot be read")
    return faults
