"""Guarantee: what was paid, for whom, and by which mechanisms."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Self, get_args

from poolrl.privacy import zcdp

NOT_PRIVATE = "NOT PRIVATE"
# Whether a log has labels, and whether a unit may change them in a neighbouring log.
LabelMode = Literal["none", "protected", "public"]
# Which logs are neighbours: one unit is another one, or its ids stay and all else may differ.
REPLACE_ANY, KEEP_IDS = "replace one", "replace what happened in one"
# Limits for guarantees in files. A release has one or two mechanisms.
LARGEST_FRACTION, MOST_MECHANISMS = 10**100, 100

# The parts of a guarantee that a policy's file and a certificate repeat as they are.
STORED: dict[str, Any] = {"unit": str, "trajectories_per_unit": int, "steps": int, "adjacency": str, "scaled": bool}
STORED |= {"scale_memory": int, "labels": str}
# Older files lack these.
OLDER: dict[str, Any] = {"scaled": False, "scale_memory": 0, "labels": "none", "periods": ""}


@dataclass(frozen=True)
class Mechanism:
    """One release: discrete Gaussian noise of `variance` on `cells` counts of squared sensitivity Δ₂²."""

    name: str
    cells: int
    sensitivity_squared: Fraction
    variance: Fraction

    def __post_init__(self) -> None:
        if self.cells < 1 or self.sensitivity_squared <= 0 or self.variance < 0:
            raise ValueError("a mechanism has cells, a positive sensitivity and a variance that is not negative")

    @property
    def rho(self) -> zcdp.Budget:
        """What this release costs."""
        return zcdp.spent(sensitivity_squared=self.sensitivity_squared, variance=self.variance)

    def to_dict(self) -> dict[str, Any]:
        """The mechanism for JSON."""
        exact = {"sensitivity_squared": str(self.sensitivity_squared), "variance": str(self.variance)}
        return {"name": self.name, "cells": self.cells} | exact

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        exact = _in_range(facts["sensitivity_squared"]), _in_range(facts["variance"])
        return cls(str(facts["name"]), int(facts["cells"]), *exact)


@dataclass(frozen=True, repr=False)
class Guarantee:
    """ρ-zCDP when one unit of the log is replaced by another; `str()` gives three lines for a privacy officer.

    `secure` says whether the noise came from the exact, unseeded sampler. A release is private only if it did, and if
    ρ is finite. `scaled` and `labels` say what the data holder declared of the log; `declared_in_words` says it.
    """

    mechanisms: tuple[Mechanism, ...]
    secure: bool
    steps: int  # H: all steps of a trajectory are protected
    trajectories_per_unit: int = 1
    unit: str = "trajectory"
    adjacency: str = REPLACE_ANY
    scaled: bool = False  # amounts were divided by a scale
    scale_memory: int = 0  # m: the scales of m other trajectories may change with one trajectory
    labels: LabelMode = "none"
    periods: str = ""  # which period was read, and what earlier ones cost, in words; "" if everything was read

    def __post_init__(self) -> None:
        if self.labels not in get_args(LabelMode) or self.scale_memory < 0 or (self.scale_memory and not self.scaled):
            raise ValueError("a guarantee knows three modes of labels, and memory of a scale only")

    @classmethod
    def of_nothing(cls, steps: int) -> Self:
        """The guarantee of a policy for which no private log was released."""
        return cls(mechanisms=(), secure=False, steps=steps)

    @property
    def rho(self) -> float:
        """The sum of what the mechanisms cost; `private` says whether anything is protected."""
        return float(zcdp.compose(m.rho for m in self.mechanisms)) if self.mechanisms else math.inf

    @property
    def private(self) -> bool:
        """Whether anything is protected."""
        return self.secure and bool(self.mechanisms) and math.isfinite(self.rho)

    def epsilon(self, delta: float = 1e-6) -> float:
        """ε at δ by the tight zCDP conversion; infinite if nothing is protected."""
        return zcdp.epsilon(self.rho, delta) if self.private else math.inf

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        whose = f"one {self.unit}: all its {self.steps} steps"
        if self.unit != "trajectory":
            whose = f"one {self.unit}: up to {self.trajectories_per_unit} trajectories of {self.steps} steps"
        protects = f"Protects {whose}; neighbouring logs {neighbours_in_words(self)}."
        declared = "".join(f" {sentence}" for sentence in (*declared_in_words(self), self.periods) if sentence)
        paid = "; ".join(
            f"{m.name}: {m.cells:,} counts, sensitivity {math.sqrt(m.sensitivity_squared):.4g}, "
            f"noise sd {math.sqrt(m.variance):.4g}"
            for m in self.mechanisms
        )
        if not self.private:
            return f"{self._why_not()}\nWould protect {whose}.{declared}\nMechanisms: {paid or 'none'}."
        small, smaller = (zcdp.rounded_up(self.epsilon(delta)) for delta in (1e-6, 1e-9))
        curve = f"epsilon = {small} at delta = 1e-6, {smaller} at 1e-9"
        return (
            f"Private: rho = {self.rho:.6g} (zCDP), that is {curve}.\n{protects}{declared}\n"
            f"Exact discrete Gaussian noise from a secure source. {paid}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The guarantee for JSON; fractions stay exact, as text."""
        return {
            "private": self.private,
            "notice": None if self.private else self._why_not(),
            "rho": self.rho if math.isfinite(self.rho) else "inf",
            "epsilon": {f"{d:g}": self.epsilon(d) for d in (1e-6, 1e-9)} if self.private else None,
            "epsilon_if_one_gaussian": zcdp.gaussian_epsilon(self.rho, 1e-6) if self.private else None,
            **{name: getattr(self, name) for name in STORED},
            **({"periods": self.periods} if self.periods else {}),
            "secure_noise": self.secure,
            "mechanisms": [m.to_dict() for m in self.mechanisms],
        }

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Self:
        """The inverse of `to_dict`. Derived entries of the file are not trusted, but computed again."""
        if len(facts["mechanisms"]) > MOST_MECHANISMS:
            raise ValueError(f"poolrl writes no guarantee of more than {MOST_MECHANISMS} mechanisms")
        facts = OLDER | facts
        return cls(
            mechanisms=tuple(Mechanism.from_dict(m) for m in facts["mechanisms"]),
            secure=facts["secure_noise"] is True,
            scaled=facts["scaled"] is True,
            periods=str(facts["periods"]),
            **{name: kind(facts[name]) for name, kind in STORED.items() if kind is not bool},
        )

    def _why_not(self) -> str:
        if not self.mechanisms:
            return f"{NOT_PRIVATE}: no private log was released here, so nothing is protected."
        if not math.isfinite(self.rho):
            return f"{NOT_PRIVATE}: rho = inf, the counts were released without noise."
        return f"{NOT_PRIVATE}: a dry run with seeded noise (or your own sampler), which can be subtracted again."


def neighbours_in_words(of: Guarantee) -> str:
    """Which logs the promise compares: what neighbours do."""
    if of.adjacency == KEEP_IDS:
        several = "trajectories" if of.unit == "trajectory" else f"{of.unit}s"
        return f"{of.adjacency} {of.unit}; the list of {several}, by their ids, is public and stays"
    return f"{of.adjacency} {of.unit} by any other"


def declared_in_words(of: Guarantee) -> list[str]:
    """Sentences that say what a scale and labels mean for the protection; no sentence without them."""
    sentences = []
    if of.scaled and of.unit != "trajectory":
        own = f"rows of its own {of.unit}, or from outside the log"
        sentences.append(f"Declared by the data holder: the scale of every trajectory comes from {own}.")
    elif of.scaled and of.scale_memory:
        many = f"{of.scale_memory} other{'s' if of.scale_memory > 1 else ''}"
        sentences.append(
            f"Declared by the data holder: replacing one trajectory changes the scales of at most {many}; "
            f"{of.scale_memory + 1} trajectories are paid for."
        )
    elif of.scaled:
        sentences.append("Declared by the data holder: the scale comes from outside the log.")
    if of.labels == "public":
        sentences.append(
            f"Labels are public: the other {of.unit} has the same rows (trajectories, steps and products) with the "
            "same labels, and how many rows have which labels is released exactly."
        )
    elif of.labels == "protected":
        sentences.append(f"Labels are protected: the other {of.unit} may have other labels.")
    return sentences


def _in_range(text: str) -> Fraction:
    """A number of a file. Floating point must be able to hold its root, and its ratio to another such number."""
    number = zcdp.written(text)
    if number and not Fraction(1, LARGEST_FRACTION) <= number <= LARGEST_FRACTION:
        raise ValueError("poolrl writes no guarantee with numbers as large or as small as these")
    return number
