"""Parts of a certificate: what is public, what was paid, what an attack can do, what an audit found."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from poolrl.learning.stored import PeriodRead
from poolrl.ledger.accounts import Account, Entry
from poolrl.ledger.periods import Period, When
from poolrl.ledger.units import ProtectedUnit
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import Mechanism
from poolrl.problems.words import Words

# What earlier periods count for in each update, unless a configuration says otherwise. Of the factors that were tried
# its largest regret is the smallest: 1.4 times the best factor's gap, without drift and with four kinds of it
# (benchmarks/updates.py). It keeps (1 + 0.6) / (1 - 0.6) = 4 periods' worth of counts.
FORGETTING = 0.6
# A scale follows demand itself, so that its multiples hardly drift.
FORGETTING_SCALED = 0.9
DELTAS = ("1e-05", "1e-06", "1e-09")
FALSE_POSITIVES = 0.05
DECIMALS = 4
NOISE_IN_WORDS = "discrete Gaussian, exact, from the operating system's entropy"
PUBLIC_IN_WORDS = "everything in the configuration, and the number of units of the log"
# The software whose versions a certificate names.
Software = Literal["cryptography", "numpy", "opendp", "poolrl", "python", "scipy"]


class Facts(BaseModel):
    """Facts as a file has them: nothing is converted, and an unknown key is refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Publication(Facts):
    """What the record for the registry of deployments says about the release."""

    name: str = Field(
        default="Ordering policy", description="for the record that tells others of this release (registry.yaml)"
    )
    curator: str = Field(default="not stated", description="who publishes it")
    region: str = Field(default="not stated", description="which region the data describe")
    intended_use: str = Field(default="Order-up-to levels for the coming periods.", description="what it is for")


def _asked_as(flag: str) -> dict[str, JsonValue]:
    """That `poolrl init` asks for a key, and may get no answer."""
    return {"answer": "", "asked": True, "flag": flag}


class PeriodFacts(Facts):
    """Which trajectories a release reads, where it reads the weeks of one period only."""

    column: str = Field(
        default="",
        description="column: the date (2025-01-31) or number by which a trajectory belongs to a period; of several in "
        "its rows the smallest counts. With it, 'poolrl update' adds later periods",
        json_schema_extra=_asked_as("period_column"),
    )
    first: When = Field(
        default="",
        description="the first date (2025-01-31) or number of the period that a release reads. Without a period it "
        "reads everything, and no update can continue it",
        json_schema_extra=_asked_as("period_first"),
    )
    before: When = Field(
        default="",
        description="the first one after it: begin the next period there",
        json_schema_extra=_asked_as("period_before"),
    )
    forgetting: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="what earlier periods count for, in each update: 1 keeps them, 0.5 halves them. If left out, "
        f"{FORGETTING}, or {FORGETTING_SCALED} with a scale, which follows demand itself",
    )

    def of(self, scale: tuple[str, ...]) -> Period | None:
        """The period of a log with such a scale; None if none is declared. Refuses half a period."""
        said = [name for name in ("column", "first", "before") if getattr(self, name) != ""]
        if not said:
            return None
        if len(said) < 3:
            raise ValueError("[period] needs column, first and before, or none of them")
        try:
            return Period(self.column, self.first, self.before, scale)
        except ValueError as error:
            raise ValueError(f"[period] {error}") from None


class CertifiedPeriod(Facts):
    """The period of a release, and which columns amounts are multiples of."""

    column: str
    first: When
    before: When
    scale: list[str]

    @classmethod
    def named(cls, period: Period) -> Self:
        """For a certificate."""
        return cls.model_validate(period.to_note())

    def period(self) -> Period:
        """For the ledger's arithmetic."""
        return Period.from_note(self.model_dump())

    def read(self) -> PeriodRead:
        """For the report of a policy."""
        return PeriodRead(self.column, self.first, self.before, tuple(self.scale))


class EarlierRelease(Facts):
    """A release of an earlier period whose trees the policy rests on."""

    period: CertifiedPeriod
    rho: str
    units: int
    scale_memory: int
    entry: int
    certificate_sha256: str


class CertifiedWords(Facts):
    """The words of the problem, as its papers use them."""

    decisions: str
    past: str
    outcome: str
    trajectory: str
    logged: str
    estimate: str

    @classmethod
    def of(cls, words: Words) -> Self:
        """From what the problem says of itself."""
        return cls(**{name: getattr(words, name) for name in cls.model_fields})


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
    units: int
    what: str = PUBLIC_IN_WORDS


class AttackPower(Facts):
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


class InAll(Facts):
    """What all releases of the data set together come to, this one included."""

    rho: str
    epsilon: dict[str, float]
    attack: AttackPower

    @classmethod
    def of(cls, spent: Fraction) -> Self:
        """From the sum of their budgets."""
        return cls(rho=str(spent), epsilon=epsilons(spent), attack=AttackPower.at(spent))


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
        return cls(
            name=mechanism.name,
            noise=NOISE_IN_WORDS,
            cells=mechanism.cells,
            sensitivity_squared=str(mechanism.sensitivity_squared),
            variance=str(mechanism.variance),
            rho=str(mechanism.rho),
        )


class LedgerEntry(Facts):
    """The payment, as it stands in the owner's ledger, and what the account held afterwards."""

    data_set: str
    account: str
    entry: int
    seal: str
    budget: str
    spent: str
    left: str

    @classmethod
    def of(cls, reservation: Entry, account: Account, unit: ProtectedUnit) -> Self:
        """From the reservation that paid, with what all releases cost one such unit."""
        spent = account.spent_by(unit)
        return cls(
            data_set=account.data_set,
            account=account.fingerprint,
            entry=reservation.number,
            seal=reservation.seal,
            budget=str(account.budget),
            spent=str(spent),
            left=str(max(Fraction(0), account.budget - spent)),
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


def epsilons(rho: Fraction) -> dict[str, float]:
    """ε at each δ, rounded up."""
    return {delta: _certified(zcdp.epsilon(float(rho), float(delta))) for delta in DELTAS}


def _certified(value: float) -> float:
    # A little more, because the optimiser behind ε differs between machines in digits that nobody needs.
    return zcdp.ceiling(value + 1e-7, DECIMALS)
