"""Names and texts as SQL has them."""

from __future__ import annotations


def quoted_name(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: str) -> str:
    """A text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"
