"""From answers in words, given as flags or typed at a prompt, to the facts of a configuration.

The header of a sales export proposes what its columns mean, by their names alone. Nothing behind it is read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from poolrl.workflow.column_names import DELIMITERS, LABEL_MEANINGS, meanings_of, weekday_named
from poolrl.workflow.config.configuration import LOST_SALES, keys_of
from poolrl.workflow.config.keys import Key
from poolrl.workflow.config.sections import DATABASE_FILE, SAME_WEEKDAY
from poolrl.workflow.trades.shop_section import AMOUNTS
from poolrl.workflow.trades.trade import Trade, trade_named

Answers = dict[str, str]
# A sales export says itself how many days a week has, and where it lies.
BY_SALES = ("kind", "horizon", "steps", "source", "period_column")
# Amounts that follow from each other, so that exports have some of them.
STOCKS = ("opening", "delivery", "sales")
# One number with a decimal comma, or two numbers.
ONE_COMMA = re.compile(r"\d,\d+")
# Signs that a shell or a list swallows.
SIGNS = {"tab": "\t", "space": " ", "comma": ",", "none": "", '""': "", "''": ""}


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
    # Here, because `init --help` must not wait for what reads files.
    import pyarrow.parquet as pq

    from poolrl.data.sources.log_files import CsvFormat, files_of, header_of

    files, is_csv = files_of(source)
    if not is_csv:
        return Proposal(",", meanings_of(pq.read_schema(files[0]).names))
    proposals = []
    for mark in DELIMITERS if delimiter is None else (delimiter,):
        names = header_of(files[0], CsvFormat(mark, encoding))
        columns = meanings_of(names)
        proposals.append((sum(map(bool, columns.values())), len(names), Proposal(mark, columns)))
    return max(proposals, key=lambda each: each[:2])[2]


def asked_keys(trade: Trade | None = None, *, sales: bool) -> list[Key]:
    """The keys that `init` asks for: those of a sales export, of a wide table of shops, or of another trade."""
    keys = [key for key in keys_of(trade or trade_named(LOST_SALES), sales=sales) if key.asked]
    if sales:
        return [key for key in keys if key.flag not in BY_SALES]
    return [key for key in keys if key.name != "weeks_public"]


def all_flags() -> list[Key]:
    """Every key of shops that has a flag, each flag once. The keys of another trade go into --facts."""
    keys = [key for sales in (False, True) for key in keys_of(trade_named(LOST_SALES), sales=sales) if key.asked]
    return list({key.flag: key for key in keys}.values())


def is_needless(key: Key, answers: Answers) -> bool:
    """Whether earlier answers leave nothing to ask: a question that goes with something that is not there."""
    scale, unit = answers.get("scale", "").strip(), answers.get("unit", "").strip()
    by_weekday = SAME_WEEKDAY.fullmatch(scale) is not None
    needless = {
        "max_per_unit": not unit,
        "step_labels": not answers.get("labels", "").strip(),
        "label_columns": not answers.get("labels", "").strip(),
        "table": not answers.get("source", "").endswith(DATABASE_FILE),
        "scale_memory": not scale or by_weekday,
        "weeks_public": not by_weekday or bool(unit),
        "period_first": answers.get("period_column", "?").strip() == "",
        "period_before": not answers.get("period_first", "").strip(),
    }
    return needless.get(key.flag, False)


def answer_for(trade: Trade, key: Key) -> str | None:
    """The text that stands for no answer, as the trade has it or as the key has it."""
    return trade.section.usual(trade).get(key.flag, key.answer)


def missing_keys(trade: Trade, answers: Answers, *, sales: bool) -> list[Key]:
    """Those that still need an answer."""
    keys = asked_keys(trade, sales=sales)
    return [key for key in keys if key.answer is None and key.name != "kind" and not answers.get(key.flag, "").strip()]


def facts_from(
    trade: Trade, answers: Answers, *, sales: bool = False, header: Proposal | None = None
) -> dict[str, dict[str, Any]]:
    """The facts of a configuration; says all that is missing at once."""
    _refuse_missing(trade, answers, sales=sales, header=header)
    keys = keys_of(trade, sales=sales)
    taken = {key.flag for key in keys if not (sales and key.flag in BY_SALES)} | {"source"}
    if extra := sorted(set(answers) - taken):
        what = "a sales export" if sales else "a wide table; it goes with --sales"
        raise ValueError(f"{flag_of(extra[0])} is not for {what if trade.section.has_flags else trade.kind}")
    products = split_names(answers.get("products", ""))
    for name in AMOUNTS:
        _refuse_decimal_comma(name, answers)
    facts: dict[str, dict[str, Any]] = {}
    for key in keys:
        section, text = facts.setdefault(key.section, {}), answers.get(key.flag, "").strip()
        text = text or (answer_for(trade, key) if key.asked else None) or ""
        if text:
            section[key.name] = value_of(key, text, products)
        elif not key.asked and key.field.default not in (None, [], {}):
            section[key.name] = key.field.default
        else:
            section[key.name] = None
    facts["problem"]["kind"] = facts["problem"]["kind"] or trade.kind
    facts["privacy"]["budget"] = facts["privacy"]["budget"] or facts["privacy"]["rho"]
    if sales:
        facts["sales"]["labels"] = _label_columns(facts, header)
    trade.section.complete(trade, facts)
    return facts


def _refuse_missing(trade: Trade, answers: Answers, *, sales: bool, header: Proposal | None) -> None:
    missing = missing_keys(trade, answers, sales=sales)
    if not missing:
        return
    stocks = any(key.section == "sales" and key.name in STOCKS for key in missing)
    other = " A table with other stocks (after the delivery, at closing time) needs this one computed first: "
    other += "docs/workflow.md shows how."
    flags = trade.section.has_flags
    wanted = [
        _wanted(key, header) if flags or key.section != "problem" else f"--facts '{key.name}=...'" for key in missing
    ]
    raise ValueError(
        f"init needs {', '.join(wanted)} as well; on a terminal it asks, and 'poolrl init --example' writes a table "
        f"to try.{other if stocks else ''}"
    )


def pairs(text: str, flag: str) -> dict[str, str]:
    """`lots=3; bid_max=4`."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, sign, value = (word.strip() for word in part.partition("="))
        if not (name and sign and value):
            raise ValueError(f"{flag} must be written like 'lots=3; bid_max=4', got {part!r}")
        found[name] = value
    return found


def _refuse_decimal_comma(name: str, answers: Answers) -> None:
    """A comma separates products here. Whoever writes decimal commas in the export may mean one number."""
    if answers.get("decimal", "").strip() in (",", "comma") and ONE_COMMA.fullmatch(answers.get(name, "").strip()):
        text = answers[name].strip()
        point, two = text.replace(",", "."), ",".join(f"{part}.0" for part in text.split(","))
        raise ValueError(
            f"{flag_of(name)} {text}: is that one number, or one for each of two products? Write {point} for one "
            f"number, or {two} for two"
        )


def _wanted(key: Key, header: Proposal | None) -> str:
    """A flag that is missing, and why the header did not answer."""
    if header is None or key.section != "sales":
        return flag_of(key.flag)
    several = header.columns.get(key.name, [])
    return f"{flag_of(key.flag)} ({' or '.join(several) if several else 'no name in the header tells'})"


def _label_columns(facts: dict[str, dict[str, Any]], header: Proposal | None) -> dict[str, str]:
    """Which column holds which label, as far as it was said or the header proposes it."""
    declared = facts["problem"].get("labels") or {}
    found = {name: header.only(name) for name in LABEL_MEANINGS if header is not None and name in declared}
    return {name: column for name, column in found.items() if column is not None} | (facts["sales"]["labels"] or {})


def check_answer(trade: Trade, key: Key, text: str, products: list[str]) -> None:
    """Refuse an answer that the file would refuse, as far as it can be judged alone."""
    value = value_of(key, text, products)
    if trade.section.refuse(key, value, len(products)):
        return
    try:
        TypeAdapter(key.field.rebuild_annotation()).validate_python(value, strict=True)
    except ValidationError as error:
        message = str(error.errors()[0]["msg"])
        raise ValueError(f"{key.name}: {message[0].lower()}{message[1:]}, got {text!r}") from None


def value_of(key: Key, text: str, products: list[str]) -> Any:
    """An answer as a value of the key's type."""
    if key.field.annotation is object:
        return _json_value(text)
    if key.section == "period":
        return int(text) if text.strip().isdecimal() else text.strip()
    kinds = [key.field.annotation, *get_args(key.field.annotation)]
    if list[float] in kinds:
        numbers = [
            _number_of(key, part, "a number, or one per product with commas between") for part in split_names(text)
        ]
        return numbers[0] if len(numbers) == 1 else numbers
    if dict in [get_origin(kind) for kind in kinds]:
        return _labels_of(key, text)
    if key.name == "closed":
        return [weekday_named(part) or part for part in split_names(text)]
    if list in [get_origin(kind) for kind in kinds]:
        parts = [SIGNS.get(part, part) if key.name in ("yes", "no") else part for part in split_names(text)]
        pattern = len(parts) == 1 and "{product}" in parts[0]
        return [parts[0].replace("{product}", product) for product in products] if pattern else parts
    if bool in kinds:
        words = {"true": True, "yes": True, "false": False, "no": False}
        if text.strip().lower() not in words:
            raise ValueError(f"{key.name} must be true or false, got {text!r}")
        return words[text.strip().lower()]
    if int in kinds:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{key.name} must be a whole number, got {text!r}") from None
    if key.name in ("delimiter", "thousands", "decimal"):
        return SIGNS.get(text.strip().lower(), text.strip())
    return _number_of(key, text, "a number") if float in kinds else text.strip()


def split_names(text: str) -> list[str]:
    """Names with commas between, or the lines of a file that is named behind @."""
    if text.strip().startswith("@"):
        return [line.strip() for line in Path(text.strip()[1:]).read_text("utf-8-sig").splitlines() if line.strip()]
    return [part for part in re.split(r"\s*,\s*", text.strip()) if part]


def flag_of(name: str) -> str:
    """A key as a flag of the command line."""
    return f"--{name.replace('_', '-')}"


def _labels_of(key: Key, text: str) -> dict[str, Any]:
    """`shop=1..40; promotion=no,yes`, or for columns `promotion=Aktion; holiday=Feiertag`."""
    columns = key.section != "problem"
    try:
        named = pairs(text, key.name)
    except ValueError:
        raise ValueError(f"{key.name} must be written like 'shop=1..40; promotion=no,yes', got {text!r}") from None
    return {name: values if columns else _label_values(split_names(values)) for name, values in named.items()}


def _json_value(text: str) -> Any:
    """A number, a truth value or a list, as JSON has them; otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _label_values(parts: list[str]) -> list[int | float | str] | str:
    """Numbers if all of them are, otherwise text. A range alone stays one text."""
    if len(parts) == 1 and ".." in parts[0]:
        return parts[0]
    try:
        return [float(part) if "." in part and ".." not in part else int(part) for part in parts]
    except ValueError:
        return list(parts)


def _number_of(key: Key, text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{key.name} must be {what}, got {text!r}") from None
