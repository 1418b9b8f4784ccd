"""What was learned, for others: the report of how, and the files. A file holds arrays, and a JSON text of facts."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from typing import Annotated, Any, Self, TypeVar
from zipfile import ZipFile

import numpy as np
from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from poolrl.checks import FloatArray
from poolrl.npz import Arrays, read_arrays, write_arrays

# What a file of a plan calls itself.
PLAN_FORMAT = "poolrl plan 1"
# Bytes of all arrays of a file, several times what the largest partitions need, and of its text.
LARGEST_POLICY, MOST_TEXT = 2**29, 2**22
# Flagged beyond both. In managers' logs without a scale the effect was 0.10 to 0.49. It was at most 0.02 in their logs
# with a scale, and in logs of independent orders (docs/workflow.md, section 2).
LEAST_EFFECT, LEAST_Z = 0.05, 3.0
# Correlations that can be found. Beyond the last, products would be copies of each other.
MOST_TOGETHER = 0.95


# Numbers of a report lie between their limits, and nothing is taken for something of another kind.
SOUND = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Share = Annotated[float, Field(ge=0, le=1)]
Signed = Annotated[float, Field(ge=-1, le=1)]


@dataclass(frozen=True, config=SOUND)
class Names:
    """What people call products, steps and columns of their tables, and the number of the first step in the log."""

    products: list[str]
    steps: list[str]
    first_step: int = 0
    columns: dict[str, str] = Field(default_factory=dict)  # by what they hold: a product, a stock, a label by its name


@dataclass(frozen=True, config=SOUND)
class ReleasedTrees:
    """How many nodes each level of a released tree has, and the variance σ² of a node."""

    sizes: tuple[PositiveInt, ...]
    variance: NonNegativeFloat


@dataclass(frozen=True, config=SOUND)
class Dependence:
    """Do levels follow outcomes? The effect in [−1, 1], its standard error if they do not, and z = effect / error."""

    effect: Signed
    error: Share
    z: float

    @property
    def flagged(self) -> bool:
        """Whether higher levels go with higher outcomes, clearly and by more than a trifle."""
        return self.effect > LEAST_EFFECT and self.z > LEAST_Z


@dataclass(frozen=True, config=SOUND)
class Together:
    """The correlation r that plans use, what was measured, and its standard error: noise and sampling."""

    correlation: Annotated[float, Field(ge=0, le=MOST_TOGETHER)]
    measured: Signed
    error: Share


@dataclass(frozen=True, config=SOUND)
class PeriodRead:
    """A period that a release has read: trajectories from `first` on, before `before`, in multiples of `scale`."""

    column: str
    first: str | int
    before: str | int
    scale: tuple[str, ...] = ()


@dataclass(frozen=True, config=SOUND)
class Planned:
    """Points of a plan's values, and the shares of nodes that fell back to a uniform kernel or were cut to zero."""

    nodes: NonNegativeInt
    fell_back_to_uniform: Share = 0.0
    clipped_to_zero: Share = 0.0


@dataclass(frozen=True, config=SOUND)
class Report:
    """How a policy or a model was learned: released numbers and public facts only, as far as they are known."""

    observed: Share | None = None  # the share of the log that was observed, by released counts
    trees: ReleasedTrees | None = None
    step_labels: tuple[str, ...] = ()  # labels that may change from step to step
    dependence: Dependence | None = None
    together: Together | None = None
    names: Names | None = None
    units: NonNegativeInt | None = None  # of the log
    scale_in_words: str | None = None
    periods: tuple[PeriodRead, ...] = ()
    planned: Planned | None = None  # of the plan, and not of the model

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON, without what is not known."""
        return {name: fact for name, fact in asdict(self).items() if fact not in (None, ())}

    @classmethod
    def from_dict(cls, facts: Any) -> Self:
        """The inverse of `to_dict`; refuses what no report says."""
        return as_stated(cls, facts)


NOTHING_SAID = Report()
Stated = TypeVar("Stated")


def as_stated(kind: type[Stated], facts: Any) -> Stated:
    """A report, or a part of it, from the entries of a JSON object."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(facts))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in (kind.__name__, *fault["loc"]))
        raise ValueError(f"{place} is not what this version knows: {fault['msg']}") from None


def write_learned(path: str | PathLike[str], facts: dict[str, Any], arrays: Arrays) -> None:
    """Write one npz file. `facts["format"]` says what it holds; numbers are in double precision."""
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    text = json.dumps(facts | {"sha256": _checksum(facts, arrays)}, sort_keys=True)
    write_arrays(path, {"facts": np.frombuffer(text.encode(), dtype=np.uint8), **arrays})


def read_learned(path: str | PathLike[str], wanted: str, called: str) -> tuple[dict[str, Any], Arrays]:
    """Facts and arrays of a file in the `wanted` format; refuses one of another format, too large, or changed.

    Every array has entries, which are finite numbers in double precision.
    """
    try:
        arrays = read_arrays(path, most_bytes=LARGEST_POLICY)
        text = arrays.pop("facts").tobytes()
        if len(text) > MOST_TEXT:
            raise ValueError(f"more text than any {called} has")
        facts = json.loads(text)
        del text
        if facts["format"] != wanted:
            raise ValueError("another format")
        intact = facts.pop("sha256") == _checksum(facts, arrays)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a poolrl {called}, or is truncated") from error
    if not intact:
        raise ValueError(f"{path} was changed after it was saved: its checksum does not fit its content")
    if not all(array.size and array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values()):
        raise ValueError(f"{path}: its arrays must hold finite numbers in double precision")
    return facts, arrays


class OwnProblemError(ValueError):
    """A file is about somebody's own problem, whose code must be given."""


@contextmanager
def complete(path: str | PathLike[str], called: str) -> Iterator[None]:
    """Say which file it is that does not hold what it should."""
    try:
        yield
    except OwnProblemError as error:
        raise OwnProblemError(f"{path}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is not a complete {called}: an entry is missing or of another kind") from error


def says_it_is(path: str | PathLike[str], wanted: str) -> bool:
    """Whether a file says that it has the `wanted` format; its content is checked when it is read."""
    # Only the text of its facts is read: a file may be large, and is read afterwards.
    try:
        with ZipFile(path) as file, file.open("facts.npy") as text:
            return f'"format": "{wanted}"'.encode() in text.read(MOST_TEXT)
    except Exception:  # of whatever is no file of ours: who reads it says so in words
        return False


def _checksum(facts: dict[str, Any], arrays: dict[str, FloatArray]) -> str:
    """SHA-256 of everything in the file. It finds accidents, but a forger can compute it too."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)  # without a copy
    return digest.hexdigest()
