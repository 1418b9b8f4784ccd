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
_UNASSIGNED = "Cn"
_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}
# Invisible too, though they have another category: what Unicode lets every font ignore, and three blanks.
_IGNORED = (
    *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x2060, 0x2070), 0x3164),
    *(*range(0xFE00, 0xFE10), 0xFFA0, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)),
    *(0x2800, 0x16FE4, 0x1D159),
)
# A mark below a Greek letter. In capitals it is a letter of its own.
_IOTA_BELOW = 0x345
# Capital and small i, with and without a dot. Which of them are one letter depends on the language, so all are.
_TURKISH = {"\u0130": "i", "\u0131": "i"}
# Written as two letters in capitals.
SHARP_S = "\u00df\u1e9e"
# First points of groups of scripts. A table of all capital letters would cost too much for each id, so that only the
# tables of those groups are used that an id has a letter of.
_SCRIPTS = (0, 0x80, 0x370, 0x400, 0x530, 0x2C00, 0xFF00, 0x10000, _LAST + 1)


@dataclass(frozen=True)
class IdCharacters:
    """Classes without their brackets; a character belongs to one of them at most."""

    visible: str  # all but white space, controls and what is not drawn
    marks: str  # what is drawn onto the character before it, and so may be part of it
    marked: str  # one character that is a letter with such marks
    digits: tuple[str, ...]  # of every script, [d] for the digit d
    several: str  # stands for other characters in a way that no class can say: ﬁ, ½, Ω as ohm


@dataclass(frozen=True)
class Folding:
    """Characters of one group of scripts that count as others, in their order, and their class."""

    given: str
    counts_as: str
    among: str


@cache
def id_characters() -> IdCharacters:
    """The classes by this Python's version of Unicode."""
    category = {p: unicodedata.category(chr(p)) for first, end in _BLOCKS for p in range(first, end)}
    points = [p for p, kind in category.items() if kind != _UNASSIGNED]
    invisible = {p for p in points if category[p] in _INVISIBLE} | {*range(0x21), 0x7F, *_IGNORED}
    parts = {p: unicodedata.decomposition(chr(p)) for p in points}
    marks = {p for p in points if unicodedata.combining(chr(p))}
    for made_of in parts.values():
        if made_of and not made_of.startswith("<"):
            # Vowel signs that join another one are marks too.
            marks |= {int(part, 16) for part in made_of.split()[1:]}
    marks -= {*invisible, _IOTA_BELOW}
    marked, several, digits = set(), {*_JAMO, _IOTA_BELOW} - invisible, [set[int]() for _ in range(10)]
    for point in points:
        if point in invisible or point in marks or point in several or chr(point) in _TURKISH or chr(point) in SHARP_S:
            continue
        plain = unicodedata.normalize("NFKD", chr(point))
        base, *rest = map(ord, plain)
        value = None if rest else unicodedata.decimal(plain, None)
        if value is not None:
            digits[int(value)].add(point)
        elif point in _WIDE or (not parts[point] and len(chr(point).casefold()) == 1):
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


@cache
def foldings() -> tuple[Folding, ...]:
    """Capital letters and wide forms, and what they count as, by groups of scripts.

    Small letters are those of Unicode's case folding, so that ς is σ. None of them is folded again.
    """
    counts_as = {chr(point): chr(point - _TO_ASCII).lower() for point in _WIDE} | _TURKISH
    for character in map(
        chr, (*range(ord("A"), ord("Z") + 1), *(p for first, end in _BLOCKS for p in range(first, end)))
    ):
        small = character.casefold()
        # A letter that has parts is read by its parts.
        if len(small) == 1 and small != character and not unicodedata.decomposition(character):
            counts_as[character] = small
    groups = [[c for c in sorted(counts_as) if first <= ord(c) < end] for first, end in pairwise(_SCRIPTS)]
    return tuple(
        Folding("".join(group), "".join(counts_as[c] for c in group), _class(map(ord, group))) for group in groups
    )


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
