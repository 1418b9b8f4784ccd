"""From answers in words, given as flags or typed at a prompt, to the facts of a configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from poolrl.problems.inventory import LostSales
from poolrl.workflow.column_names import LABEL_MEANINGS, weekday_named
from poolrl.workflow.config import MONDAY
from poolrl.workflow.config_keys import Key, config_keys
from poolrl.workflow.config_log import DATABASE_FILE, SAME_WEEKDAY, WEEKDAYS, WIDE_ONLY
from poolrl.workflow.config_problem import AMOUNTS
from poolrl.workflow.header import Proposal

Answers = dict[str, str]
# A sales export says itself how many days a week has, and where it lies.
BY_SALES = ("horizon", "steps", "source", "period_column")
# Amounts that follow from each other, so that exports have some of them.
STOCKS = ("opening", "delivery", "sales")
# One number with a decimal comma, or two numbers.
ONE_COMMA = re.compile(r"\d,\d+")
# Signs that a shell or a list swallows.
SIGNS = {"tab": "\t", "space": " ", "comma": ",", "none": "", '""': "", "''": ""}


def asked_keys(*, sales: bool) -> list[Key]:
    """The keys that `init` asks for: those of a sales export, or those of a wide table."""
    asked = [key for key in config_keys() if key.asked]
    if sales:
        return [
            key
            for key in asked
            if not (key.section == "log" and key.name in WIDE_ONLY) and key.flag not in (*BY_SALES, "kind")
        ]
    return [key for key in asked if key.section != "sales" and key.name != "weeks_public"]


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


def all_flags() -> list[Key]:
    """Every key that has a flag, each flag once."""
    return [key for key in config_keys() if key.asked]


def missing_keys(answers: Answers, *, sales: bool) -> list[Key]:
    """Those that still need an answer."""
    return [key for key in asked_keys(sales=sales) if key.answer is None and not answers.get(key.flag, "").strip()]


def facts_from(answers: Answers, *, sales: bool, header: Proposal | None = None) -> dict[str, dict[str, Any]]:
    """The facts of a configuration; says all that is missing at once."""
    missing = missing_keys(answers, sales=sales)
    if missing:
        stocks = [key.flag for key in missing if key.section == "sales" and key.name in STOCKS]
        other = " A table with other stocks (after the delivery, at closing time) needs this one computed first: "
        other += "docs/workflow.md shows how."
        raise ValueError(
            f"init needs {', '.join(_wanted(key, header) for key in missing)} as well; on a terminal it asks, and "
            f"'poolrl init --example' writes a shop to try.{other if stocks else ''}"
        )
    used = {key.flag for key in asked_keys(sales=sales)} | ({"source"} if sales else set())
    if extra := sorted(set(answers) - used):
        kind = "a sales export" if sales else "a wide table; it goes with --sales"
        raise ValueError(f"{flag_of(extra[0])} is not for {kind}")
    products = split_names(answers["products"])
    for name in AMOUNTS:
        _refuse_decimal_comma(name, answers)
    facts: dict[str, dict[str, Any]] = {}
    for key in config_keys():
        if key.section == "sales" and not sales:
            continue
        text = answers.get(key.flag, "").strip() or key.answer or ""
        section = facts.setdefault(key.section, {})
        if key.flag in used or (key.asked and sales and key.name == "kind"):
            section[key.name] = value_of(key, text, products) if text else None
        elif not key.asked and key.field.default is not None and key.field.default != []:
            section[key.name] = key.field.default
    facts["privacy"]["budget"] = facts["privacy"]["budget"] or facts["privacy"]["rho"]
    if sales:
        closed = facts["sales"]["closed"] or []
        days = [day for day in WEEKDAYS if day not in closed]
        facts["problem"] |= {"horizon": len(days), "steps": days}
        facts["privacy"]["protects"] = facts["privacy"]["protects"] or "one week of one shop"
        facts["sales"]["labels"] = _label_columns(facts, header)
        facts["period"]["column"] = MONDAY if facts["period"]["first"] else None
    return facts


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


def check_answer(key: Key, text: str, products: list[str]) -> None:
    """Refuse an answer that the file would refuse, as far as it can be judged alone."""
    value = value_of(key, text, products)
    per_product = (*AMOUNTS, "opening", "order_up_to", "left")
    if isinstance(value, list) and key.name in per_product and len(value) != len(products):
        raise ValueError(f"{key.name} must be one, or {len(products)} with commas between: one per product")
    if key.name in AMOUNTS:  # the shop itself knows which amounts are possible
        LostSales(horizon=1, products=len(products), **(dict.fromkeys(AMOUNTS, 1.0) | {key.name: value}))
        return
    try:
        TypeAdapter(key.field.rebuild_annotation()).validate_python(value, strict=True)
    except ValidationError as error:
        message = str(error.errors()[0]["msg"])
        raise ValueError(f"{key.name}: {message[0].lower()}{message[1:]}, got {text!r}") from None


def value_of(key: Key, text: str, products: list[str]) -> Any:
    """An answer as a value of the key's type."""
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
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, sign, values = (each.strip() for each in part.partition("="))
        if not (name and sign and values):
            raise ValueError(f"{key.name} must be written like 'shop=1..40; promotion=no,yes', got {part!r}")
        found[name] = values if key.section == "sales" else _label_values(split_names(values))
    return found


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
