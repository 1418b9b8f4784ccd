"""Ids as people and machines write them: several spellings of one, and texts at random."""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

# What is read, and how one unit may be spelt.
ONE_UNIT: dict[str, tuple[str, ...]] = {
    "7": (
        *(
            "7",
            "7.0",
            "07",
            " 7",
            "7 ",
            "\t7\n",
            "７",
            "０７．０",
            "+7",
            "7.",
            "٧",
            "\u200b7",
            "7\ufeff",
            "\u00a007",
            "7.000",
        ),
        *("007.00", "7\n"),
    ),
    "0": ("0", "00", "-0", "-00", "0.0", "-0.0", "+0", "０"),
    "-3": ("-3", "-03", "-3.0", "－３"),
    "2.5": ("2.5", "02.5", "+2.5", "２.５"),
    ".5": ("0.5", ".5"),
    "caf?1": ("café 1", "cafe\u0301 1", "CAFÉ 1", "Cafe\u0301  1", "ｃａｆé1", "caf\u00e9\u20091"),
    "vi?t": ("Việt", "Vie\u0323\u0302t", "Vi\u1eb9\u0302t", "VIỆT", "Vi\u00ea\u0323t"),
    "store(1)": ("store（１）", "store(1)", "store (1)"),
    "shopa": ("shop A", "shop a", "Shop\u00a0A", "SHOP\u3000Ａ"),
    "각": ("각", "각 "),
    "2025-03-01": ("2025-03-01", "2025-03-01 00:00:00", "2025-03-01T00:00Z", "2025-03-01 00:00:00.000+00"),
}
# No unit: blank, several spellings of which no rule finds all, or one character for several.
NO_UNIT = ("", "  ", "\u200b", "1e3", "1E+3", "7.50", ".5e1", "ﬁ", "½", "\u2126", "\u1100\u1161\u11a8", "㎏")

_ODD = (
    "0123456789.+-eE aAzZ_:/\n\r\t\0'\"\\[]^$?éÉe\u0301\u0323u\u0308üк\u0306й７Ａ（\u200b\u00a0ﬁΩ\u2126"
    "가\u1100\u1161かが\u3099東ক\u09c7\u09be\u09cb"
)


def texts() -> st.SearchStrategy[str]:
    """Texts of odd characters, of any characters, and of numbers."""
    any_character = st.characters(codec="utf-8", max_codepoint=sys.maxunicode)
    numbers = st.from_regex(r"[ +-]?0{0,2}[0-9]{0,3}[.]?[0-9]{0,2}(e[+-]?[0-9])?", fullmatch=True)
    return st.one_of(st.text(st.sampled_from(_ODD), max_size=6), st.text(any_character, max_size=6), numbers)


def forms(text: str) -> set[str]:
    """The same text in every normal form of Unicode."""
    return {text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD"))}


def some_texts(number: int) -> list[str]:
    """This many of these texts, always the same ones."""
    found: list[str] = []

    @settings(max_examples=number, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(texts())
    def collect(text: str) -> None:
        found.append(text)

    collect()
    return found
