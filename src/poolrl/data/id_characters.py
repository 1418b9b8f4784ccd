"""The characters of ids, sorted by what Unicode says of them, as character classes of regular expressions.

Unicode has several spellings of one text: é is one character or two, ７ is a wide 7. No engine has all of its rules,
and engines differ. So each rule is a class of single characters that stands in the query. Every engine and Python then
read the same characters. The classes come from Python's own tables.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

# Blocks where a character may be special. What is left out is ideographs, Hangul syllables and private use.
_BLOCKS = (
    (0x80, 0x3400),
    (0xA000, 0xAC00),
    (0xD7A4, 0xD800),
    (0xF900, 0x20000),
    (0x2F800, 0x2FA20),
    (0xE0000, 0xE1000),
)
# Korean letters that make up syllables. A syllable is one character, or two or three of these.
_JAMO = (*range(0x1100, 0x1200), *range(0xA960, 0xA980), *range(0xD7B0, 0xD800))
# Wide forms of ! .. ~
_WIDE = range(0xFF01, 0xFF5F)
_TO_ASCII = 0xFF01 - ord("!")
_LAST = 0x10FFFF
_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}
# Invisible too, though they have another category: they change how the character before them looks.
_SELECTORS = (0x34F, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))


@dataclass(frozen=True)
class IdCharacters:
    """Classes without their brackets; a character belongs to one of them at most."""

    visible: str  # all but white space, controls and what is not drawn
    marks: str  # what is drawn onto the character before it, and so may be part of it
    marked: str  # one character that is a letter with such marks
    digits: tuple[str, ...]  # of every script, [d] for the digit d
    several: str  # stands for other characters in a way that no class can say: ﬁ, ½, Ω as ohm


@cache
def id_characters() -> IdCharacters:
    """The classes by this Python's version of Unicode."""
    points = [point for first, end in _BLOCKS for point in range(first, end)]
    invisible = {p for p in points if unicodedata.category(chr(p)) in _INVISIBLE} | {*range(0x21), 0x7F, *_SELECTORS}
    parts = {p: unicodedata.decomposition(chr(p)) for p in points}
    marks = {p for p in points if unicodedata.combining(chr(p))}
    for made_of in parts.values():
        if made_of and not made_of.startswith("<"):
            # Vowel signs that join another one are marks too.
            marks |= {int(part, 16) for part in made_of.split()[1:]}
    marks -= invisible
    marked, several, digits = set(), set(_JAMO), [set[int]() for _ in range(10)]
    for point in points:
        if point in invisible or point in marks or point in several:
            continue
        plain = unicodedata.normalize("NFKD", chr(point))
        base, *rest = map(ord, plain)
        value = None if rest else unicodedata.decimal(plain, None)
        if value is not None:
            digits[int(value)].add(point)
        elif not parts[point] or point in _WIDE:
            continue
        elif rest and marks.issuperset(rest) and base not in marks and base not in invisible:
            marked.add(point)
        else:
            several.add(point)
    return IdCharacters(
        visible=_visible(invisible),
        marks=_class(marks),
        marked=_class(marked),
        digits=tuple(map(_class, digits)),
        several=_class(several),
    )


def wide_and_capital() -> tuple[str, str]:
    """Wide forms of ASCII and capital letters, and what they count as."""
    given = [*map(chr, _WIDE), *map(chr, range(ord("A"), ord("Z") + 1))]
    return "".join(given), "".join(chr(ord(c) - _TO_ASCII if ord(c) in _WIDE else ord(c)).lower() for c in given)


def _class(points: Iterable[int]) -> str:
    """Points as ranges of a class. No escapes are needed: of ASCII, only the range from ! to ~ stands in any class."""
    runs: list[list[int]] = []
    for point in sorted(points):
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(f"{chr(first)}-{chr(last)}" if last > first else chr(first) for first, last in runs)


def _visible(invisible: set[int]) -> str:
    """Everything else."""
    gaps = [-1, *sorted(invisible), _LAST + 1]
    return "".join(f"{chr(a + 1)}-{chr(b - 1)}" for a, b in pairwise(gaps) if b > a + 1)
