"""TOML: reading it from untrusted people, and writing a configuration with the reason for every key."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import groupby
from typing import Any

from poolrl.problems.registry import KINDS
from poolrl.workflow.config_keys import config_keys
from poolrl.workflow.config_log import WIDE_ONLY
from poolrl.workflow.config_problem import SHOPS
from poolrl.workflow.trades.trade import trade_named

HEADER = """\
# What is public about this log. Everything here is declared by a person who knows the shop; nothing may be read off the
# log itself, because a bound, a cost or a column that depends on the log would reveal something that was not paid for.
#
#   poolrl check    is the table as this file says?        (for the data holder's eyes)
#   poolrl plan     what does each budget buy?             (reads no row of the log)
#   poolrl fit      spend rho, write the policy, the certificate and the page
"""

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# A key of many parts takes a parser memory and time that grow with their square.
LARGEST_CONFIG, DEEP_KEY = 2**20, re.compile(r"""(?:["']?[\w-]+["']?[ \t]*\.[ \t]*){100}""")


def read_toml(content: bytes) -> dict[str, Any]:
    """Facts from the bytes of a file; refuses, in words, what is no TOML or would take too long to read."""
    if len(content) > LARGEST_CONFIG:
        raise ValueError(f"it is larger than {LARGEST_CONFIG:,} bytes")
    try:
        text = content.decode()
        if DEEP_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError("it has a number that is too long") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_toml(facts: dict[str, dict[str, Any]]) -> str:
    """The text of a configuration: every key with its reason; one that has no value is a comment, to be found there.

    A sales export has its own section, and a wide table has its own keys. The other kind's are left out.
    """
    kind = str(facts.get("problem", {}).get("kind", ""))
    if kind not in SHOPS and (kind in KINDS or ":" in kind):
        return _kind_toml(facts)
    parts = [HEADER]
    for section, keys in groupby(config_keys(), key=lambda key: key.section):
        if section == "sales" and "sales" not in facts:
            continue
        parts.append(f"\n[{section}]")
        for key in keys:
            if section == "log" and "sales" in facts and key.name in WIDE_ONLY:
                continue
            parts += _key_lines(key.name, key.why, facts.get(section, {}).get(key.name))
    return "\n".join(parts) + "\n"


def _kind_toml(facts: dict[str, dict[str, Any]]) -> str:
    """The same for another problem than shops: its own keys first, then those that it shares with shops."""
    # Here, because it imports what simulates.
    from poolrl.workflow.kind_init import kind_keys, own_keys

    problem = facts["problem"]
    parts = [HEADER.replace("knows the shop", "knows the trade"), "\n[problem]"]
    parts += _key_lines("kind", "which problem: one of the registry, or module:Class of your own", problem["kind"])
    for name, why in own_keys(trade_named(problem["kind"]).problem).items():
        parts += _key_lines(name, why, problem.get(name))
    for section, keys in groupby(kind_keys(), key=lambda key: key.section):
        parts += [] if section == "problem" else [f"\n[{section}]"]
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
