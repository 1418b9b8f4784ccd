"""Overlap: were rows of a log released before, under another name? A sealed sketch of each log that was read tells.

A mark stands for one trajectory of one product, by its numbers alone. It begins with a number by which all marks are
ordered, as if at random. A sketch holds the SKETCH_SIZE smallest marks. Below the smaller of two sketches' largest
marks, both are complete, so there they show which share of the smaller log is in the other one.

Trajectories may be equal by chance: a week in which nothing was sold looks the same everywhere. The share of a log's
trajectories that it has more than once says how likely that is (Good 1953). Only a larger share is an overlap. Where
all trajectories are equal by chance, a hash of the whole log still recognises the very same rows.

A sketch is encrypted under the ledger's key, and always has the same size. Without the key the ledger reveals nothing
of the rows. With the key, a person who guesses all numbers of a trajectory can confirm the guess.
"""

from __future__ import annotations

import base64
import math
import secrets
from bisect import bisect_right
from dataclasses import dataclass

SKETCH_SIZE = 512
MARK_BYTES = 16
_NOTHING = b"\xff" * MARK_BYTES  # fills a sketch of a smaller log
_NONCE = 12
# Fewer common marks are no evidence. A log of fewer trajectories is recognised by nothing.
LEAST_COMMON = 3
# The share of trajectories that must be in both logs, of those that are not expected there by chance.
OVERLAPPING = 0.1


@dataclass(frozen=True)
class Sketch:
    """A hash of a whole log, its smallest marks, and the chance that another such log has one of them."""

    whole: bytes
    marks: tuple[bytes, ...]
    by_chance: float = 0.0  # used when the log is read, and not kept

    def __post_init__(self) -> None:
        smallest = tuple(sorted(set(self.marks))[:SKETCH_SIZE])
        if any(len(mark) != MARK_BYTES for mark in (self.whole, *smallest)) or not 0 <= self.by_chance <= 1:
            raise ValueError(f"a sketch has marks of {MARK_BYTES} bytes, and a chance")
        object.__setattr__(self, "marks", smallest)

    def overlaps(self, other: Sketch) -> bool:
        """Whether more of these rows than chance explains are among the other ones, or the reverse."""
        ends = [each.marks[-1] for each in (self, other) if len(each.marks) == SKETCH_SIZE]
        own, theirs = (each.marks[: bisect_right(each.marks, min(ends, default=_NOTHING))] for each in (self, other))
        common = len(set(own).intersection(theirs))
        fewer, share = min(len(own), len(theirs)), self.by_chance + OVERLAPPING * (1 - self.by_chance)
        # Three standard deviations more, because both the chance and the marks of a small log are estimates.
        least = share * fewer + 3 * math.sqrt(fewer * share * (1 - share))
        # Logs without a trajectory, because a name was misspelt, have nothing in common.
        return (common >= LEAST_COMMON and common > least) or (bool(self.marks) and self.whole == other.whole)


def seal_sketch(sketch: Sketch, key: bytes) -> str:
    """The marks, encrypted, in a text whose length is always the same."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    filled = [*sketch.marks, *[_NOTHING] * (SKETCH_SIZE - len(sketch.marks))]
    nonce = secrets.token_bytes(_NONCE)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, b"".join([sketch.whole, *filled]), b"sketch")).decode()


def open_sketch(sealed: str, key: bytes) -> Sketch:
    """The sketch, without its chance."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        content = base64.b64decode(sealed, validate=True)
        opened = AESGCM(key).decrypt(content[:_NONCE], content[_NONCE:], b"sketch")
    except (InvalidTag, ValueError):
        raise ValueError("the ledger holds a sketch that its key does not open") from None
    whole, *marks = (opened[i : i + MARK_BYTES] for i in range(0, len(opened), MARK_BYTES))
    return Sketch(whole, tuple(mark for mark in marks if mark != _NOTHING))
