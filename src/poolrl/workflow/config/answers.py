"""From answers in words, given as flags or typed at a prompt, to the facts of a configuration, and to its text."""

import json
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from poolrl.data.sources.log_files import CsvFormat, files_of, header_of
from poolrl.workflow.column_names import LABEL_MEANINGS, meanings_of, weekday_named
from poolrl.workflow.config.configuration import LOST_SALES, fault_in_words, keys_of
from poolrl.workflow.config.sales import SAME_WEEKDAY
from poolrl.workflow.config.sections import DATABASE_FILE, Key
from poolrl.workflow.trades.problem_section import AMOUNTS
from poolrl.workflow.trades.trade import TRADES, Trade, trade_named

Answers = dict[str, str]
# A sales export says itself how many days a week has, and where it lies.
BY_SALES = ("kind", "horizon", "steps", "source", "period_column")
# Signs that may stand between the fields of an export.
DELIMITERS = (";", "\t", "|", ",")
# One number with a decimal comma, or two numbers.
ONE_COMMA = re.compile(r"\d,\d+")
# Signs that a shell or a list swallows.
SIGNS = {"tab": "\t", "space": " ", "comma": ",", "none": "", '""': "", "''": ""}

HEADER = """\
# The public facts about this log. A person who knows the trade declares everything here. Nothing may be read off the
# log itself, because a bound, a cost or a column that depends on the log would reveal something that was not paid for.
#
#   poolrl check    is the table as this file says?        (for the data holder's eyes)
#   poolrl plan     what does each budget buy?             (reads no row of the log)
#   poolrl fit      spend rho, write the policy, the certificate and the page
"""
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Proposal:
    """Possible meanings of the names in a header: for each meaning the columns that have such a name, in their
    order."""

    delimiter: str
    columns: dict[str, list[str]]

    def only(self, meaning: str) -> str | None:
        """The column that has this meaning, if there is exactly one."""
        names = self.columns.get(meaning, [])
        return names[0] if len(names) == 1 else None


def propose_columns(source: Path, *, delimiter: str | None, encoding: str) -> Proposal:
    """From the header of the first file, or a Parquet schema. With no delimiter, that which explains most."""
    import pyarrow.parquet as pq  # here, because `init --help` must not wait for it

    files, is_csv = files_of(source)
    if not is_csv:
        return Proposal(",", meanings_of(pq.read_schema(files[0]).names))
    marks = DELIMITERS if delimiter is None else (delimiter,)
    headers = {mark: header_of(files[0], CsvFormat(mark, encoding)) for mark in marks}
    found = {mark: meanings_of(names) for mark, names in headers.items()}
    best = max(headers, key=lambda mark: (sum(map(bool, found[mark].values())), len(headers[mark])))
    return Proposal(best, found[best])


def asked_keys(trade: Trade | None = None, *, sales: bool) -> list[Key]:
    """The keys that `init` asks for: those of a sales export, of a wide table of shops, or of another trade."""
    keys = keys_of(trade or trade_named(LOST_SALES), sales=sales)
    return [key for key in keys if key.asked and not (sales and key.flag in BY_SALES)]


@dataclass
class Interview:
    """What a file needs to know, of a sales export where there is a header, and the answers by their flags."""

    trade: Trade
    answers: Answers
    header: Proposal | None = None

    def __post_init__(self) -> None:
        """Refuse an answer to what is not asked."""
        sales, section = self.header is not None, self.trade.section
        taken = {key.flag for key in keys_of(self.trade, sales=sales) if not (sales and key.flag in BY_SALES)}
        if not (extra := sorted(set(self.answers) - taken - {"source"})):
            return
        if not section.has_flags:
            known = ", ".join(key.name for key in section.keys(self.trade))
            raise ValueError(f"{self.trade.kind} has no key {extra[0]!r}: its keys are {known}")
        what = "a sales export" if sales else "a wide table; it goes with --sales"
        raise ValueError(f"{flag_of(extra[0])} is not for {what}")

    @property
    def keys(self) -> list[Key]:
        """Those that are asked for."""
        return asked_keys(self.trade, sales=self.header is not None)

    @property
    def missing(self) -> list[Key]:
        """Those that still need an answer."""
        return [key for key in self.keys if key.answer is None and key.name != "kind" and not self._text(key.flag)]

    def is_needless(self, key: Key) -> bool:
        """Whether earlier answers leave nothing to ask: a question that goes with something that is not there."""
        by_weekday = SAME_WEEKDAY.fullmatch(self._text("scale")) is not None
        needless = {
            "max_per_unit": not self._text("unit"),
            "step_labels": not self._text("labels"),
            "label_columns": not self._text("labels"),
            "table": not self._text("source").endswith(DATABASE_FILE),
            "scale_memory": not self._text("scale") or by_weekday,
            "weeks_public": not by_weekday or bool(self._text("unit")),
            "period_first": "period_column" in self.answers and not self._text("period_column"),
            "period_before": not self._text("period_first"),
        }
        return needless.get(key.flag, False)

    def add(self, key: Key, text: str) -> None:
        """Take an answer; refuse one that the file would refuse, as far as it can be judged alone."""
        if text.strip():
            products = split_names(self.answers.get("products", "?"))
            self.trade.section.refuse(key, value_of(key, text, products), len(products))
        self.answers[key.flag] = text

    def facts(self) -> dict[str, dict[str, Any]]:
        """The facts of a configuration; says all that is missing at once."""
        wanted = []
        for key in self.missing:
            flag = flag_of(key.flag)
            if key.section == "problem" and not self.trade.section.has_flags:
                flag = f"--facts '{key.name}=...'"
            elif key.section == "sales" and self.header is not None:  # why the header did not answer
                flag += f" ({' or '.join(self.header.columns.get(key.name, [])) or 'no name in the header tells'})"
            wanted.append(flag)
        if wanted:
            needs = f"init needs {', '.join(wanted)} as well"
            raise ValueError(f"{needs}; on a terminal it asks, and 'poolrl init --example' writes a table to try.")
        # A comma separates products here. But people whose export has decimal commas may mean one number.
        for name in AMOUNTS if self._text("decimal") in (",", "comma") else ():
            if ONE_COMMA.fullmatch(given := self._text(name)):
                point, two = given.replace(",", "."), given.replace(",", ".0,") + ".0"
                raise ValueError(
                    f"{flag_of(name)} {given}: is that one number, or one for each of two products? Write {point} for "
                    f"one number, or {two} for two"
                )
        facts: dict[str, dict[str, Any]] = {}
        for key in keys_of(self.trade, sales=self.header is not None):
            value = None if key.asked or key.field.default in ([], {}) else key.field.default
            if text := self._text(key.flag) or key.answer:
                value = value_of(key, text, split_names(self._text("products")))
            facts.setdefault(key.section, {})[key.name] = value
        facts["problem"]["kind"] = facts["problem"]["kind"] or self.trade.kind
        facts["privacy"]["budget"] = facts["privacy"]["budget"] or facts["privacy"]["rho"]
        if self.header is not None:
            # Columns of labels, as the header proposes them or as they were named.
            likely = set(LABEL_MEANINGS) & set(facts["problem"]["labels"] or {})
            proposed = {name: column for name in sorted(likely) if (column := self.header.only(name))}
            facts["sales"]["labels"] = proposed | (facts["sales"]["labels"] or {})
        self.trade.section.complete(self.trade, facts)
        return facts

    def _text(self, flag: str) -> str:
        return self.answers.get(flag, "").strip()


def pairs(text: str, flag: str) -> dict[str, str]:
    """`lots=3; bid_max=4`."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, sign, value = (word.strip() for word in part.partition("="))
        if not (name and sign and value):
            raise ValueError(f"{flag} must be written like 'lots=3; bid_max=4', got {part!r}")
        found[name] = value
    return found


def value_of(key: Key, text: str, products: list[str]) -> Any:
    """An answer as a value of the key's type, within its bounds."""
    text = text.strip()
    value: Any = SIGNS.get(text.lower(), text) if key.name in ("delimiter", "thousands", "decimal") else text
    kinds = [key.field.annotation, *get_args(key.field.annotation)]
    origins = [get_origin(kind) for kind in kinds]
    if object in kinds or key.section == "period":
        try:
            return json.loads(text)  # a number, a truth value or a list
        except ValueError:
            return text
    if key.place == "problem.labels":  # [sales] labels names columns
        return {name: _label_values(split_names(part)) for name, part in pairs(text, key.name).items()}
    if dict in origins:
        value = pairs(text, key.name)
    elif list in origins:
        value = split_names(text)
        if float in kinds:
            value = value[0] if len(value) == 1 else value
        elif key.name == "closed":
            value = [weekday_named(part) or part for part in value]
        elif key.name in ("yes", "no"):
            value = [SIGNS.get(part, part) for part in value]
        elif len(value) == 1 and "{product}" in value[0]:
            value = [value[0].replace("{product}", product) for product in products]
    try:
        # Numbers and truth values are read from text.
        return TypeAdapter(key.field.rebuild_annotation()).validate_python(value, strict=False)
    except ValidationError as error:
        raise ValueError(fault_in_words(error.errors()[0] | {"loc": (key.section, key.name)})) from None


def split_names(text: str) -> list[str]:
    """Names with commas between, or the lines of a file that is named behind @."""
    if text.strip().startswith("@"):
        return [line.strip() for line in Path(text.strip()[1:]).read_text("utf-8-sig").splitlines() if line.strip()]
    return [part for part in re.split(r"\s*,\s*", text.strip()) if part]


def flag_of(name: str) -> str:
    """A key as a flag of the command line."""
    return f"--{name.replace('_', '-')}"


def _label_values(parts: list[str]) -> list[int | float | str] | str:
    """Numbers if all of them are, otherwise text. A range alone stays one text."""
    if len(parts) == 1 and ".." in parts[0]:
        return parts[0]
    try:
        return [float(part) if "." in part and ".." not in part else int(part) for part in parts]
    except ValueError:
        return list(parts)


def write_toml(facts: dict[str, dict[str, Any]]) -> str:
    """The text of a configuration. A key that has no value is a comment, to be found there."""
    kind = str(facts.get("problem", {}).get("kind", ""))
    trade = trade_named(kind if kind in TRADES or ":" in kind else LOST_SALES)
    parts = [HEADER]
    for section, keys in groupby(keys_of(trade, sales="sales" in facts), key=lambda key: key.section):
        parts.append(f"\n[{section}]")
        for key in keys:
            value = facts.get(section, {}).get(key.name)
            said = f"# {key.name} = ..." if value in (None, {}) else f"{key.name} = {_literal(value)}"
            parts += [f"# {key.why}", said]
    return "\n".join(parts) + "\n"


def _literal(value: Any) -> str:
    """A value in TOML, whose strings, numbers, booleans and lists of them are written as JSON's."""
    if isinstance(value, dict):
        pairs = (f"{name if BARE_KEY.fullmatch(name) else _literal(name)} = {_literal(v)}" for name, v in value.items())
        return "{ " + ", ".join(pairs) + " }"
    # JSON may escape a character as two surrogates, which TOML does not know.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
