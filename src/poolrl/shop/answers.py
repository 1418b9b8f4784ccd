"""From answers in words, given as flags or typed at a prompt, to the facts of a configuration."""

from __future__ import annotations

import re
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from poolrl.problems.inventory import LostSales
from poolrl.shop.config import AMOUNTS
from poolrl.shop.config_keys import Key, config_keys
from poolrl.shop.sales import from_sales

Answers = dict[str, str]


def asked_keys(*, sales: bool) -> list[Key]:
    """The keys that `init` asks for; a sales export brings its own columns and query."""
    given = from_sales(["product"]) if sales else {}
    return [key for key in config_keys() if key.asked and key.name not in given]


def missing_keys(answers: Answers, *, sales: bool) -> list[Key]:
    """Those that still need an answer."""
    return [key for key in asked_keys(sales=sales) if key.answer is None and not answers.get(key.name, "").strip()]


def facts_from(answers: Answers, *, sales: bool) -> dict[str, dict[str, Any]]:
    """The facts of a configuration; says all that is missing at once."""
    missing = missing_keys(answers, sales=sales)
    if missing:
        raise ValueError(
            f"init needs {', '.join(flag_of(key.name) for key in missing)} as well; on a terminal it asks, and "
            "'poolrl init --example' writes a shop to try"
        )
    products = split_names(answers["products"])
    facts: dict[str, dict[str, Any]] = {}
    for key in config_keys():
        text = answers.get(key.name, "").strip() or key.answer or ""
        section = facts.setdefault(key.section, {})
        if key.asked:
            section[key.name] = value_of(key, text, products) if text else None
        elif key.field.default is not None:
            section[key.name] = key.field.default
    facts["privacy"]["budget"] = facts["privacy"]["budget"] or facts["privacy"]["rho"]
    if sales:
        facts["log"] |= from_sales(products, days=facts["problem"]["horizon"])
        facts["privacy"]["protects"] = facts["privacy"]["protects"] or "one week of one shop"
    return facts


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
    kinds = {key.field.annotation, *get_args(key.field.annotation)}
    if list[float] in kinds:
        numbers = [
            _number_of(key, part, "a number, or one per product with commas between") for part in split_names(text)
        ]
        return numbers[0] if len(numbers) == 1 else numbers
    if list[str] in kinds:
        parts = split_names(text)
        pattern = len(parts) == 1 and "{product}" in parts[0]
        return [parts[0].replace("{product}", product) for product in products] if pattern else parts
    if int in kinds:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{key.name} must be a whole number, got {text!r}") from None
    return _number_of(key, text, "a number") if float in kinds else text.strip()


def split_names(text: str) -> list[str]:
    """Names with commas between."""
    return [part for part in re.split(r"\s*,\s*", text.strip()) if part]


def flag_of(name: str) -> str:
    """A key as a flag of the command line."""
    return f"--{name.replace('_', '-')}"


def _number_of(key: Key, text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{key.name} must be {what}, got {text!r}") from None
