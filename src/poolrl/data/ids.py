"""Ids in one spelling, so that one unit is never counted as two. The rule is the same on every engine.

Whole numbers, truth values, dates, times and UUIDs are ids as they are. A float is the whole number that it holds. Text
is read like this:

  1. white space and characters that are not drawn are dropped, and capital letters of every script are small ones;
  2. wide forms are plain ones, digits of every script are 0 .. 9, ß is ss, and i is i with and without its dot;
  3. a letter with marks (é, in one character or in two) counts as ?, whichever letter it is;
  4. midnight at the end is dropped, because a date may be stored as a time: 2025-03-01 and 2025-03-01 00:00:00;
  5. zeros in front are dropped, and so is .0 at the end: 7, 07, +7 and 7.0 are one id.

A row has no id, and is left out, if its text is blank, is a number like 1e3 or 7.50, or holds a character that stands
for several (ﬁ, ½, ᾳ, single letters of Korean syllables). The same holds for a float that is not whole or beyond 2⁵³.

Two units that differ in marks, case or zeros alone are merged. That costs data. One unit in two spellings, counted as
two units, would cost privacy.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from itertools import chain, pairwise, starmap
from numbers import Integral, Real
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import BoolArray
from poolrl.data.expressions import finite
from poolrl.data.sources.engine import read_texts

LARGEST_WHOLE_FLOAT = 2.0**53  # every whole number up to here is a double
# Most ids look like this, and are then ids as they are. Two patterns, because $ may also stand before a line's end.
_PLAIN_CHARACTER = "!-,/-9;-@^-~-"
_PLAIN = f"^([a-z]|[1-9][0-9]*[/_-])[{_PLAIN_CHARACTER}]*$|^[1-9][0-9]*$"
# With or without its seconds, their fraction and an offset of nothing.
_MIDNIGHT = "(t?00:00(:00)?([.]0*)?(z|[+-]00(:?00)?)?)+$"
_NUMBER = "([0-9]+[.]?[0-9]*|[.][0-9]+)"
# Numbers that have other spellings, which no pattern can find: they become blank.
_NO_ID = (f"^[+-]?{_NUMBER}e[+-]?[0-9]+$", "^[+-]?[0-9]*[.][0-9]*[1-9]0+$")
# Zero is written as 0 in the end, because blank text is no id.
_SHORTER = (("^-0+$", "0"), ("^[+]?0*", ""), ("^-0+", "-"), ("^$", "0"))


def canonical_texts(texts: Sequence[str | None]) -> list[str | None]:
    """The id that each text spells, by an engine in memory; None for those that spell none."""
    ids: list[str | None] = read_texts(texts, canonical).to_pylist()
    return ids


def canonical(column: ir.Column) -> ir.Column:
    """The ids that a column spells; NULL for none."""
    kind = column.type()
    if kind.is_floating():
        small = finite(column) & column.between(-LARGEST_WHOLE_FLOAT, LARGEST_WHOLE_FLOAT)
        # Engines may compute a floor as a whole number, so it must not see what no whole number can hold.
        near = ibis.ifelse(small, column, 0.0).cast("float64")
        return ibis.ifelse(small & (near == near.floor()), near.cast("int64"), ibis.null("int64"))
    return _as_read(column) if kind.is_string() else column


def can_be_ids(kind: dt.DataType) -> bool:
    """Whether a column of this type can hold ids. Bytes cannot: no rule says which of them are one text."""
    exact = kind.is_integer() or kind.is_decimal() or kind.is_boolean() or kind.is_uuid() or kind.is_null()
    when = kind.is_date() or kind.is_timestamp() or kind.is_time()
    return exact or when or kind.is_string() or (kind.is_floating() and not kind.is_float16())


def _as_read(text: ir.StringColumn) -> ir.StringValue:
    """The rule. Each step uses its text once, because a query repeats what is used twice."""
    special = id_characters()
    of_ascii = _shortened(text.re_replace("[^!-~]+", "").lower())
    seen = text.re_replace(f"[^{special.visible}]+", "")
    for fold in foldings():
        # A large table is slow, so it is there for those ids alone that need it.
        needed = text.re_search(f"[{fold.among}]")
        seen = seen.translate(ibis.ifelse(needed, fold.given, ""), ibis.ifelse(needed, fold.counts_as, ""))
    seen = seen.re_replace(f"[{SHARP_S}]", "ss").re_replace("i\u0307+", "i")
    for digit, same in enumerate(special.digits):
        seen = seen.re_replace(f"[{same}]", str(digit))
    seen = seen.re_replace(f"[{special.marked}]", "?").re_replace(f"[^{special.marks}]?[{special.marks}]+", "?")
    of_any_script = ibis.ifelse(text.re_search(f"[{special.several}]"), ibis.null("string"), _shortened(seen))
    plain = ~text.re_search(f"[^{_PLAIN_CHARACTER}]") & text.re_search(_PLAIN)
    return ibis.ifelse(plain, text, ibis.ifelse(text.re_search("[^ -~]"), of_any_script, of_ascii))


def _shortened(text: ir.StringValue) -> ir.StringValue:
    """Dates without midnight, numbers without needless zeros. Text may begin or end with them too."""
    text = text.re_replace(_MIDNIGHT, "")
    for pattern in _NO_ID:
        text = text.re_replace(pattern, "")
    text = text.re_replace("[.]0*$", "").nullif("")
    for pattern, new in _SHORTER:
        text = text.re_replace(pattern, new)
    return text


# Blocks where a character may be special. Ideographs, Hangul syllables and private use are left out.
_BLOCKS = (
    *((0x80, 0x3400), (0xA000, 0xAC00), (0xD7A4, 0xD800)),
    *((0xF900, 0x20000), (0x2F800, 0x2FA20), (0xE0000, 0xE1000)),
)
# Korean letters that make up syllables. A syllable is one character, or two or three of these.
_JAMO = (*range(0x1100, 0x1200), *range(0xA960, 0xA980), *range(0xD7B0, 0xD800))
_WIDE = range(0xFF01, 0xFF5F)  # wide forms of ! .. ~
_TO_ASCII = 0xFF01 - ord("!")
_LAST = 0x10FFFF
_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}
# Invisible too, though they have another category: what Unicode lets every font ignore, and three blanks.
_IGNORED = (
    *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x2060, 0x2070), 0x3164),
    *(*range(0xFE00, 0xFE10), 0xFFA0, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)),
    *(0x2800, 0x16FE4, 0x1D159),
)
_IOTA_BELOW = 0x345  # a mark below a Greek letter. In capitals it is a letter of its own
# Capital and small i, with and without a dot. Languages differ about which of them are one letter. Here all are.
_TURKISH = {"\u0130": "i", "\u0131": "i"}
SHARP_S = "\u00df\u1e9e"  # written as two letters in capitals
# First points of groups of scripts. A table of all capital letters would cost too much for each id, so that only the
# tables of those groups are used that an id has a letter of.
_SCRIPTS = (0, 0x80, 0x370, 0x400, 0x530, 0x2C00, 0xFF00, 0x10000, _LAST + 1)


@dataclass(frozen=True)
class IdCharacters:
    """Classes of a regular expression, without their brackets; a character belongs to one of them at most.

    Engines differ in their rules of Unicode, so each rule is a class of characters that stands in the query.
    """

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
    category = {p: unicodedata.category(chr(p)) for p in chain(*starmap(range, _BLOCKS))}
    points = [p for p, kind in category.items() if kind != "Cn"]  # assigned
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
    classes = {"marks": _class(marks), "marked": _class(marked), "several": _class(several)}
    gaps = pairwise([-1, *sorted(invisible), _LAST + 1])
    visible = "".join(f"{chr(a + 1)}-{chr(b - 1)}" for a, b in gaps if b > a + 1)
    return IdCharacters(visible=visible, digits=tuple(map(_class, digits)), **classes)


@cache
def foldings() -> tuple[Folding, ...]:
    """Capital letters and wide forms, and what Unicode's case folding makes of them, by groups of scripts."""
    counts_as = {chr(point): chr(point - _TO_ASCII).lower() for point in _WIDE} | _TURKISH
    for character in map(chr, chain(range(ord("A"), ord("Z") + 1), *starmap(range, _BLOCKS))):
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


def owners(unit: ArrayLike, trajectories: int) -> NDArray[np.int64]:
    """The units numbered 0, 1, ...; ids that spell one unit, like 7, 7.0 and " 07", are one (`data/ids.py`)."""
    try:
        # A list is read entry by entry: one unit's name must not decide how others are read.
        ids = np.array(unit, dtype=object) if isinstance(unit, list | tuple) else np.asarray(unit)
    except ValueError:
        ids = np.empty(0)  # of lists of different lengths
    if ids.shape != (trajectories,):
        raise ValueError("unit must hold one id per trajectory")
    if ids.dtype.kind in "biu":
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    distinct, place = (ids, slice(None)) if ids.dtype.kind == "O" else np.unique(ids, return_inverse=True)
    read, numbers = canonical_texts([_spelling(each) for each in distinct]), dict[str | None, int]()
    if None in read:
        raise ValueError("unit has missing ids, or values that are not ids (whole numbers, text, dates)")
    return np.array([numbers.setdefault(each, len(numbers)) for each in read], dtype=np.int64)[place]


def _spelling(given: Any) -> str | None:
    """The text of an entry; None where it holds no id. Numbers are read like their text."""
    if isinstance(given, str):
        return None if re.search("[\ud800-\udfff]", given) else given  # half of a character is no text
    if isinstance(given, Integral | np.bool_):
        return str(int(given))
    if isinstance(given, Decimal):
        every_digit = Context(prec=max(1, len(given.as_tuple().digits)))  # by default all after the 28th are lost
        return f"{given.normalize(every_digit):f}" if given.is_finite() else None
    if isinstance(given, Real):
        number = float(given)  # NaN is missing too
        return str(int(number)) if abs(number) <= LARGEST_WHOLE_FLOAT and number == int(number) else None
    if isinstance(given, datetime.date | uuid.UUID | np.datetime64) and given == given:  # which no missing date is
        # A date is its own midnight.
        return re.sub(r" 00:00:00(\.0+)?$", "", str(given).replace("T", " "))
    return None


def first_of_each(owner: NDArray[np.int64], most: int) -> BoolArray:
    """Which trajectories are among the first of their unit, in the order of the log."""
    order, sizes = np.argsort(owner, kind="stable"), np.bincount(owner)
    rank = np.empty_like(owner)  # 0 for the first trajectory of each unit, 1 for the second, ...
    rank[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank < most
