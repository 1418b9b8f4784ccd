"""Ids in one spelling, so that one unit is never counted as two. The rule is the same in Python and on every engine.

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

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from poolrl.data.expressions import finite
from poolrl.data.id_characters import SHARP_S, foldings, id_characters

# Every whole number up to here is a double.
LARGEST_WHOLE_FLOAT = 2.0**53
# What most ids look like, and what is then an id as it is. Two patterns, because $ may also stand before a line's end.
_PLAIN_CHARACTER = "!-,/-9;-@^-~-"
_PLAIN = f"^([a-z]|[1-9][0-9]*[/_-])[{_PLAIN_CHARACTER}]*$|^[1-9][0-9]*$"
# With or without its seconds, their fraction and an offset of nothing.
_MIDNIGHT = "(t?00:00(:00)?([.]0*)?(z|[+-]00(:?00)?)?)+$"
_NUMBER = "([0-9]+[.]?[0-9]*|[.][0-9]+)"
# Numbers that have other spellings, which no pattern can find: they become blank.
_NO_ID = (f"^[+-]?{_NUMBER}e[+-]?[0-9]+$", "^[+-]?[0-9]*[.][0-9]*[1-9]0+$")
# Zero is written as 0 in the end, because blank text is no id.
_SHORTER = (("^-0+$", "0"), ("^[+]?0*", ""), ("^-0+", "-"), ("^$", "0"))


@dataclass(frozen=True)
class _Text:
    """A text in Python with those methods of a text column that the rule uses."""

    value: str | None

    def re_search(self, pattern: str) -> bool:
        return self.value is not None and _compiled(pattern).search(self.value) is not None

    def re_replace(self, pattern: str, new: str) -> _Text:
        return self if self.value is None else _Text(_compiled(pattern).sub(new, self.value))

    def translate(self, old: str, new: str) -> _Text:
        return self if self.value is None else _Text(self.value.translate(_translation(old, new)))

    def lower(self) -> _Text:
        return self if self.value is None else _Text(self.value.lower())

    def nullif(self, blank: str) -> _Text:
        return _Text(None) if self.value == blank else self


# (condition, its value, otherwise) → value.
Choice = Callable[[Any, Callable[[], Any], Callable[[], Any]], Any]
_compiled = cache(re.compile)
_translation = cache(str.maketrans)


def canonical_text(text: str) -> str | None:
    """The id that a text spells; None if it spells none."""
    chosen = _as_read(_Text(text), lambda held, yes, no: yes() if held else no(), lambda held: not held, _Text(None))
    return chosen.value


def canonical(column: ir.Column) -> ir.Column:
    """The ids that a column spells; NULL for none."""
    kind = column.type()
    if kind.is_floating():
        small = finite(column) & column.between(-LARGEST_WHOLE_FLOAT, LARGEST_WHOLE_FLOAT)
        # Engines may compute a floor as a whole number, so it must not see what no whole number can hold.
        near = ibis.ifelse(small, column, 0.0).cast("float64")
        return ibis.ifelse(small & (near == near.floor()), near.cast("int64"), ibis.null("int64"))
    if not kind.is_string():
        return column
    nothing = ibis.null("string")
    return _as_read(column, lambda held, yes, no: ibis.ifelse(held, yes(), no()), lambda held: ~held, nothing)


def can_be_ids(kind: dt.DataType) -> bool:
    """Whether a column of this type can hold ids. Bytes cannot: no rule says which of them are one text."""
    exact = kind.is_integer() or kind.is_decimal() or kind.is_boolean() or kind.is_uuid() or kind.is_null()
    when = kind.is_date() or kind.is_timestamp() or kind.is_time()
    return exact or when or kind.is_string() or (kind.is_floating() and not kind.is_float16())


def _as_read(text: Any, choose: Choice, fails: Callable[[Any], Any], nothing: Any) -> Any:
    """The rule. Each step uses its text once, because a query repeats what is used twice."""
    special = id_characters()

    def of_ascii() -> Any:
        return _shortened(text.re_replace("[^!-~]+", "").lower())

    def if_any(characters: str, table: str) -> Any:
        # A large table is slow, so it is there for those ids alone that need it.
        return choose(text.re_search(f"[{characters}]"), lambda: table, lambda: "")

    def of_any_script() -> Any:
        seen = text.re_replace(f"[^{special.visible}]+", "")
        for fold in foldings():
            seen = seen.translate(if_any(fold.among, fold.given), if_any(fold.among, fold.counts_as))
        seen = seen.re_replace(f"[{SHARP_S}]", "ss").re_replace("i\u0307+", "i")
        for digit, same in enumerate(special.digits):
            seen = seen.re_replace(f"[{same}]", str(digit))
        seen = seen.re_replace(f"[{special.marked}]", "?").re_replace(f"[^{special.marks}]?[{special.marks}]+", "?")
        return _shortened(seen)

    def of_all() -> Any:
        beyond = choose(text.re_search(f"[{special.several}]"), lambda: nothing, of_any_script)
        return choose(text.re_search("[^ -~]"), lambda: beyond, of_ascii)

    plain = fails(text.re_search(f"[^{_PLAIN_CHARACTER}]")) & text.re_search(_PLAIN)
    return choose(plain, lambda: text, of_all)


def _shortened(text: Any) -> Any:
    """Dates without midnight, numbers without needless zeros. Text may begin or end with them too."""
    text = text.re_replace(_MIDNIGHT, "")
    for pattern in _NO_ID:
        text = text.re_replace(pattern, "")
    text = text.re_replace("[.]0*$", "").nullif("")
    for pattern, new in _SHORTER:
        text = text.re_replace(pattern, new)
    return text
