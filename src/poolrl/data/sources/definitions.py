"""The views, macros and functions of a database that a query can come through. The certificate tells no others.

Others may hold what is nobody's business. Which ones a query uses is decided by names, so that too many may be told but
never too few: one is in reach if its name stands anywhere in the query, or in what is in reach.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import duckdb

from poolrl.data.sources.engine import quoted_text, refused

# Bytes of all definitions in reach, at most. They stand in every certificate.
MOST_DEFINITIONS = 2**18
SCHEMA_FILE = "schema.sql"
# What runs SQL that a query puts together, in DuckDB and in PostgreSQL. The names in it can then be anything.
_RUN_TEXT = ("query", "query_table", "json_execute_serialized_sql", "query_to_xml", "cursor_to_xml", "execute")
_IDENTIFIER = r'(?:"(?:[^"]|"")*"|[^\s."(]+)'
_CREATED = re.compile(rf"CREATE (?P<kind>VIEW|MACRO|TABLE) (?:{_IDENTIFIER}\.)*(?P<name>{_IDENTIFIER})\s*[\s(]")
# The only tables that compute something.
_COMPUTED = "GENERATED ALWAYS AS"


def write_schema(name: str, database: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Write the SQL of an attached file that has no rows. DuckDB's catalogue does not have the defaults of macros."""
    database.execute(f"EXPORT DATABASE {name} TO {quoted_text(str(folder))}")


def definitions_in_reach(query: str, folder: Path, database: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """What a query can come through of the schema that was written to a folder, as SQL.

    `database` says which functions DuckDB has itself; call it before the names of a file are in reach.
    """
    own, created = _names(folder, database)
    return in_reach(query, created, own)


def refuse_shadows(function: str, folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    """Refuse a file that would change what a function of ours does: it has one of that name, or of a name in it.

    A macro's names are looked up where it is called, so the file's own come first there.
    """
    own, created = _names(folder, database)
    for name, _ in created:
        if name.casefold() in {*own, function}:
            raise ValueError(
                f"the query uses {function}, and the file defines {name!r}, which {function} would then call instead "
                "of DuckDB's own function: give it another name"
            )


def _names(folder: Path, database: duckdb.DuckDBPyConnection) -> tuple[set[str], list[tuple[str, str]]]:
    """The names of DuckDB's own functions; and what the schema in a folder creates, by name."""
    try:
        own = database.execute("SELECT function_name FROM duckdb_functions() WHERE internal").fetchall()
        created = list(_created((folder / SCHEMA_FILE).read_text(encoding="utf-8")))
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None
    return {name.casefold() for (name,) in own}, created


def in_reach(query: str, created: Collection[tuple[str, str]], own: Collection[str] = ()) -> tuple[str, ...]:
    """The SQL of what a query can come through, of all names with their SQL. `own` are names that run unwritten."""
    found = _closure(query, created, own)
    if sum(len(sql.encode()) for sql in found) > MOST_DEFINITIONS:
        raise ValueError(
            f"the views, macros and functions that the query may use have more than {MOST_DEFINITIONS:,} bytes, and "
            "each certificate would repeat them: shorten them, or give those that it does not need another name"
        )
    return tuple(sorted(found))


def _created(schema: str) -> Iterator[tuple[str, str]]:
    """The name and the SQL of each view, macro and table that computes columns."""
    for statement in duckdb.extract_statements(schema):
        sql = statement.query.strip()
        made = _CREATED.match(sql)
        if made and (made["kind"] != "TABLE" or _COMPUTED in sql):
            name = made["name"]
            yield (name[1:-1].replace('""', '"') if name.startswith('"') else name), sql


def _closure(query: str, created: Collection[tuple[str, str]], own: Collection[str]) -> list[str]:
    # Operators, count(*) and lists are functions too, so that a macro with such a name runs where no name is written.
    found = {sql for name, sql in created if name.casefold() in own}
    texts = [query, *found]
    while texts:
        text = texts.pop().casefold()
        everything = any(_stands_in(text, word) for word in _RUN_TEXT)
        others = [(name, sql) for name, sql in created if sql not in found]
        new = {sql for name, sql in others if everything or _stands_in(text, name.casefold())}
        found |= new
        texts += new
    return list(found)


def _stands_in(text: str, name: str) -> bool:
    if re.fullmatch(r"\w+", name):
        # A digit may stand before it: LIMIT 1sales is LIMIT 1 and a name.
        return re.search(rf"(?<![^\W\d]){name}(?!\w)", text) is not None
    return name in text or name.replace('"', '""') in text
