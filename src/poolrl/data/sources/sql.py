"""Words of SQL: names and texts in quotes."""

from __future__ import annotations

from collections.abc import Sequence

# A function for queries that put ids together from several columns: it brings one of them into one spelling.
ID_FUNCTION = "poolrl_id"


def quoted_name(name: str) -> str:
    """A name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: str) -> str:
    """A text, quoted for SQL."""
    return "'" + value.replace("'", "''") + "'"


def sql_list(values: Sequence[str]) -> str:
    """Texts as a list of SQL."""
    return "[" + ", ".join(quoted_text(value) for value in values) + "]"
