"""Terms of a release: what its configuration declares, in the form in which the certificate repeats it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict

from poolrl.ledger.accounts import Period, ProtectedUnit

PUBLIC_IN_WORDS = "everything in the configuration, and the number of units of the log"


class Facts(BaseModel):
    """Facts as a file has them: nothing is converted, and an unknown key is refused. A docstring describes its fact."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """A description is one line, however many its docstring has."""
        for field in cls.model_fields.values():
            field.description = field.description and " ".join(field.description.split())


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
    period: Period | None = None
    forgetting: float = 1.0
    # The default, where a configuration says nothing, has changed from version to version.
    forgetting_declared: bool = True
