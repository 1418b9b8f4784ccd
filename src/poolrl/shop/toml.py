"""Reading `poolrl.toml` from people one does not know, and writing it, with the reason for every key beside it."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

HEADER = """\
# What is public about this log. Everything here is declared by a person who knows the shop; nothing may be read off the
# log itself, because a bound, a cost or a column that depends on the log would tell about it without being paid for.
#
#   poolrl check    is the table as this file says?        (for the data holder's eyes)
#   poolrl plan     what does each budget buy?             (reads no row of the log)
#   poolrl fit      spend rho, write the policy, the certificate and the page
"""

# section → key → why it is asked for; the order is that of the file.
KEYS: dict[str, dict[str, str]] = {
    "problem": {
        "kind": '"lost sales": unmet demand is gone and unseen; "backlog": it waits, and is seen',
        "products": "a name for each product, in the order of all lists below",
        "horizon": "steps of one trajectory: 7 days of a week",
        "steps": "names for the steps, for reports",
        "holding": "cost of a unit left after a step: a number, one per product, or a list per step of such lists",
        "shortage": "cost of one unit of demand that was not met: the same forms",
        "demand_max": "demand never exceeds this, by shelf size or common sense; too large costs accuracy, not privacy",
        "boundary": "lambda: feedback exists up to this share of demand_max, and orders stay below it",
    },
    "log": {
        "source": ".csv or .parquet file, folder or glob; a .duckdb file; or postgresql://user@host/database",
        "query": "SQL that gives the log's rows; files are the table log in it",
        "trajectory": "column: which trajectory (week, say) a row belongs to",
        "step": "column: which step of it",
        "first_step": "the number of the first step in that column",
        "opening": "columns: stock at the beginning of the step, before the delivery",
        "order_up_to": "columns: stock after the delivery, opening + delivery",
        "left": "columns: stock at the end of the step; 0 means that the shelf ran empty",
        "clip": "move values outside the bounds to the bounds, row by row, instead of letting such rows tell nothing",
    },
    "privacy": {
        "rho": "the privacy budget of one fit (zCDP): 0.1 is epsilon 2.2 at delta 1e-6, 1 is 7.8; see poolrl plan",
        "budget": "what may be spent on this data set in all, over all fits, by the ledger; rho: one fit and no more",
        "data_set": "the name of its account in the ledger; a corrected or longer log keeps its name",
        "unit": "column: who is protected with all their trajectories; left out, each trajectory by itself",
        "max_per_unit": "goes with unit: how many trajectories of one unit are used; noise grows in proportion",
        "protects": "what one of those is, in words, for the label: one week of one shop",
        "ledger": "the ledger's file; beside it lies its key, which must stay secret",
    },
    "plan": {
        "units": "about how many units (trajectories, if each is its own) the log holds; their number counts as public",
        "trajectories_per_unit": "goes with unit: how many a unit owns, about; max_per_unit if left out",
        "demand": "the demand to plan with: any, prior, uniform, normal, beta, exponential or bimodal",
    },
    "publication": {
        "name": "for the record that tells others of this release (registry.yaml)",
        "curator": "who publishes it",
        "region": "which region the data describe",
        "intended_use": "what it is for",
    },
}


# A key of many parts takes a parser memory and time that grow with their square.
MOST_BYTES, DEEP_KEY = 2**20, re.compile(r"""(?:["']?[\w-]+["']?[ \t]*\.[ \t]*){100}""")


def read_toml(content: bytes) -> dict[str, Any]:
    """Facts from the bytes of a file; refuses, in words, what is no TOML or would take for ever to read."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
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
    """The text of a configuration; keys that are None or left out stand there as comments, to be found when needed."""
    parts = [HEADER]
    for section, keys in KEYS.items():
        parts.append(f"\n[{section}]")
        for key, why in keys.items():
            value = facts.get(section, {}).get(key)
            line = (
                f"# {key} = ..." if value is None else f"{key} = {_sql(value) if key == 'query' else _literal(value)}"
            )
            parts += [f"# {why}", line]
    return "\n".join(parts) + "\n"


def _sql(query: str) -> str:
    """A query over several lines stays readable where it has nothing to escape."""
    plain = all(character.isprintable() or character == "\n" for character in query)
    if "\n" in query and plain and '"""' not in query and "\\" not in query and not query.endswith('"'):
        return f'"""\n{query.strip()}\n"""'
    return _literal(query)


def _literal(value: Any) -> str:
    """A value in TOML, whose strings, numbers, booleans and lists of them are written as JSON's."""
    # JSON may escape a character as two surrogates, which TOML does not know.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
