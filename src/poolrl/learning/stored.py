"""What was learned, for others: the report of how, and the files. A file holds arrays, and a JSON text of facts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from typing import Any, Self
from zipfile import ZipFile

import numpy as np

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


def _limits(low: float = -math.inf, high: float = math.inf, *, whole: bool = False) -> dict[str, Any]:
    """Of a field: between which numbers it lies."""
    return {"low": low, "high": high, "kinds": int | np.integer if whole else int | float | np.integer | np.floating}


@dataclass(frozen=True)
class _Part:
    """A part of a report. Its numbers lie between their limits, unless they are not known."""

    def __post_init__(self) -> None:
        facts = asdict(self)
        for part in (part for part in fields(self) if part.metadata):
            value, limits = facts[part.name], part.metadata
            if value is None and part.default is None:
                continue
            for number in value if isinstance(value, tuple) else (value,):
                known = isinstance(number, limits["kinds"]) and not isinstance(number, bool) and math.isfinite(number)
                if not known or not limits["low"] <= number <= limits["high"]:
                    raise ValueError(f"{part.name} must lie in {limits['low']:g} .. {limits['high']:g}")


@dataclass(frozen=True)
class Names(_Part):
    """What people call products and steps, and the number of the first step in the log."""

    products: list[str]
    steps: list[str]
    first_step: int = field(default=0, metadata=_limits(whole=True))

    def __post_init__(self) -> None:
        lists = all(isinstance(names, list) for names in (self.products, self.steps))
        if not lists or not all(isinstance(name, str) for name in [*self.products, *self.steps]):
            raise ValueError("names of products and steps must be lists of words")
        super().__post_init__()


@dataclass(frozen=True)
class ReleasedTrees(_Part):
    """How many nodes each level of a released tree has, and the variance σ² of a node."""

    sizes: tuple[int, ...] = field(metadata=_limits(1, whole=True))
    variance: float = field(metadata=_limits(0))


@dataclass(frozen=True)
class Dependence(_Part):
    """Do levels follow outcomes? The effect in [−1, 1], its standard error if they do not, and z = effect / error."""

    effect: float = field(metadata=_limits(-1, 1))
    error: float = field(metadata=_limits(0, 1))
    z: float = field(metadata=_limits())

    @property
    def flagged(self) -> bool:
        """Whether higher levels go with higher outcomes, clearly and by more than a trifle."""
        return self.effect > LEAST_EFFECT and self.z > LEAST_Z


@dataclass(frozen=True)
class Together(_Part):
    """The correlation r that plans use, what was measured, and its standard error: noise and sampling."""

    correlation: float = field(metadata=_limits(0, MOST_TOGETHER))
    measured: float = field(metadata=_limits(-1, 1))
    error: float = field(metadata=_limits(0, 1))


@dataclass(frozen=True)
class PeriodRead:
    """A period that a release has read: trajectories from `first` on, before `before`, in multiples of `scale`."""

    column: str
    first: str | int
    before: str | int
    scale: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        texts = all(isinstance(name, str) for name in (self.column, *self.scale))
        if not texts or not all(isinstance(end, str | int) for end in (self.first, self.before)):
            raise ValueError("a period needs a column, its first place and the place behind its last")


@dataclass(frozen=True)
class Planned(_Part):
    """Points of a plan's values, and the shares of nodes that fell back to a uniform kernel or were cut to zero."""

    nodes: int = field(metadata=_limits(0, whole=True))
    fell_back_to_uniform: float = field(default=0.0, metadata=_limits(0, 1))
    clipped_to_zero: float = field(default=0.0, metadata=_limits(0, 1))


@dataclass(frozen=True)
class Report(_Part):
    """How a policy or a model was learned: released numbers and public facts only, as far as they are known."""

    # The share of the log that was observed, by released counts.
    observed: float | None = field(default=None, metadata=_limits(0, 1))
    trees: ReleasedTrees | None = None
    step_labels: tuple[str, ...] = ()  # labels that may change from step to step
    dependence: Dependence | None = None
    together: Together | None = None
    names: Names | None = None
    units: int | None = field(default=None, metadata=_limits(0, whole=True))  # of the log
    scale_in_words: str | None = None
    periods: tuple[PeriodRead, ...] = ()
    planned: Planned | None = None  # of the plan, and not of the model

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(text, str) for text in (*self.step_labels, self.scale_in_words or "")):
            raise ValueError("labels of steps and the scale must be words")

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON, without what is not known."""
        return {name: fact for name, fact in asdict(self).items() if fact not in (None, ())}

    @classmethod
    def from_dict(cls, facts: Any) -> Self:
        """The inverse of `to_dict`; refuses what no report says."""
        parts = {"trees": ReleasedTrees, "dependence": Dependence, "together": Together, "names": Names}
        entries = dict(facts) if isinstance(facts, dict) else {"": facts}
        for name, kind in (parts | {"planned": Planned}).items():
            if name in entries:
                entries[name] = _part(kind, entries[name])
        if isinstance(periods := entries.get("periods"), list):
            entries["periods"] = [_part(PeriodRead, period) for period in periods]
        return _part(cls, entries)


NOTHING_SAID = Report()


def _part(kind: type[Any], facts: Any) -> Any:
    """A dataclass from the entries of a JSON object, which must be its fields."""
    types = {part.name: str(part.type) for part in fields(kind)}
    if not isinstance(facts, dict) or not facts.keys() <= types.keys():
        raise ValueError(f"the report has an entry that {kind.__name__} of this version does not know")
    tuples = [name for name in facts if types[name].startswith("tuple")]
    try:
        if not all(isinstance(facts[name], list) for name in tuples):
            raise TypeError
        return kind(**facts | {name: tuple(facts[name]) for name in tuples})
    except TypeError:
        raise ValueError(f"{kind.__name__} in the report lacks an entry, or has one of another kind") from None


def write_learned(path: str | PathLike[str], facts: dict[str, Any], arrays: Arrays) -> None:
    """Write one npz file. `facts["format"]` says what it holds."""
    text = json.dumps(facts | {"sha256": _checksum(facts, arrays)}, sort_keys=True)
    write_arrays(path, {"facts": np.frombuffer(text.encode(), dtype=np.uint8), **arrays})


def read_learned(path: str | PathLike[str], wanted: str, called: str) -> tuple[dict[str, Any], Arrays]:
    """Facts and arrays of a file in the `wanted` format; refuses one of another format, too large, or changed."""
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
    return facts, arrays


@contextmanager
def complete(path: str | PathLike[str], called: str) -> Iterator[None]:
    """Say which file it is that does not hold what it should."""
    try:
        yield
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
