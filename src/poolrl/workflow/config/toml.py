"""The one writer of `poolrl.toml`: every key with its reason, in the order of the trade's file."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

from poolrl.workflow.config.configuration import LOST_SALES, keys_of
from poolrl.workflow.trades.trade import TRADES, trade_named

HEADER = """\
# The public facts about this log. A person who knows the trade declares everything here. Nothing may be read off the
# log itself, because a bound, a cost or a column that depends on the log would reveal something that was not paid for.
#
#   poolrl check    is the table as this file says?        (for the data holder's eyes)
#   poolrl plan     what does each budget buy?             (reads no row of the log)
#   poolrl fit      spend rho, write the policy, the certificate and the page
"""
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(facts: dict[str, dict[str, Any]]) -> str:
    """The text of a configuration. A key that has no value is a comment, to be found there."""
    kind = str(facts.get("problem", {}).get("kind", ""))
    trade = trade_named(kind if kind in TRADES or ":" in kind else LOST_SALES)
    parts = [HEADER]
    for section, keys in groupby(keys_of(trade, sales="sales" in facts), key=lambda key: key.section):
        parts.append(f"\n[{section}]")
        for key in keys:
            parts += _key_lines(key.name, key.why, facts.get(section, {}).get(key.name))
    return "\n".join(parts) + "\n"


def _key_lines(name: str, why: str, value: Any) -> list[str]:
    text = _sql(value) if name == "query" and isinstance(value, str) else _literal(value)
    unset = value is None or value == {}
    return [f"# {why}", f"# {name} = ..." if unset else f"{name} = {text}"]


def _sql(query: str) -> str:
    """A query over several lines stays readable where it has nothing to escape."""
    plain = all(character.isprintable() or character == "\n" for character in query)
    if "\n" in query and plain and '"""' not in query and "\\" not in query and not query.endswith('"'):
        return f'"""\n{query.strip()}\n"""'
    return _literal(query)


def _literal(value: Any) -> str:
    """A value in TOML, whose strings, numbers, booleans and lists of them are written as JSON's."""
    if isinstance(value, dict):
        pairs = (f"{name if BARE_KEY.fullmatch(name) else _literal(name)} = {_literal(v)}" for name, v in value.items())
        return "{ " + ", ".join(pairs) + " }"
    # JSON may escape a character as two surrogates, which TOML does not know.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
