"""Terms of a release: what its configuration declares, in the form in which the certificate repeats it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from poolrl.ledger.units import Period, ProtectedUnit, When

# What earlier periods count for in each update, unless a configuration says otherwise. Of all values that were tried,
# this one's largest regret is the smallest: 1.4 times the best value's gap, without drift and with four drifts
# (benchmarks/updates.py). It keeps (1 + 0.6) / (1 - 0.6) = 4 periods' worth of counts.
FORGETTING = 0.6
# A scale follows demand itself, so that its multiples hardly drift.
FORGETTING_SCALED = 0.9
PUBLIC_IN_WORDS = "everything in the configuration, and the number of units of the log"


class Facts(BaseModel):
    """Facts as a file has them: nothing is converted, and an unknown key is refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Publication(Facts):
    """What the deployment record says about the release."""

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
        declared = [name for name in ("column", "first", "before") if getattr(self, name) != ""]
        if not declared:
            return None
        if len(declared) < 3:
            raise ValueError("[period] needs column, first and before, or none of them")
        try:
            return Period(self.column, self.first, self.before, scale)
        except ValueError as error:
            raise ValueError(f"[period] {error}") from None


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
    period: Period | None = None
    forgetting: float = 1.0
    # The default, where a configuration says nothing, has changed from version to version.
    forgetting_declared: bool = True
