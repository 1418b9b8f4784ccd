"""Names of a table's columns, in English and German."""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

NAMES = tomllib.loads((Path(__file__).parent / "assets" / "names.toml").read_text("utf-8"))
MEANINGS: dict[str, str] = NAMES["sales"]
# Of these the labels, whose values a person must declare.
LABEL_MEANINGS = ("promotion", "holiday")


def weekday_named(word: str) -> str | None:
    """The day that a word means; None if it means none.

    >>> weekday_named("samstag"), weekday_named("Bread")
    ('Sat', None)
    """
    days = meanings_of([word], NAMES["weekdays"])
    return next((day for day, names in days.items() if names), None)


def meanings_of(names: Iterable[str], meanings: Mapping[str, str] = MEANINGS) -> dict[str, list[str]]:
    """For each meaning the names that have it."""
    given = list(names)
    found: dict[str, list[str]] = {}
    for meaning, words in meanings.items():
        known = {_comparable_name(word) for word in words.split(",")} - {""}
        found[meaning] = [name for name in given if _comparable_name(name) in known]
    return found


def _comparable_name(name: str) -> str:
    """Without case, marks of letters, blanks and signs; ä is a, and so is ae."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(letter for letter in letters if letter.isalnum())
    return re.sub("(?<=[aou])e", "", plain)
