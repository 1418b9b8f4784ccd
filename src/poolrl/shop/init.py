"""`poolrl init`: a configuration from questions, from flags, or with a simulated shop to try everything on."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.prompt import Prompt

from poolrl.shop.config import AMOUNTS, KINDS, Publication, parse_config
from poolrl.shop.example import write_example
from poolrl.shop.sales import from_sales
from poolrl.shop.toml import KEYS, write_toml

NUMBERS = set(AMOUNTS)
COUNTS = {"horizon", "first_step", "max_per_unit", "units"}
COLUMNS = {"opening", "order_up_to", "left"}
POSITIVE = {"demand_max", "horizon", "max_per_unit", "units", "rho", "budget", "boundary"}
LISTS = {"products", "steps", "opening", "order_up_to", "left"}
# What nobody has to answer; the text after a key is the answer if there is none.
DEFAULTS = {
    "kind": "lost sales",
    "boundary": "1",
    "first_step": "1",
    "trajectory": "week",
    "step": "day",
    "opening": "{product}_opening",
    "order_up_to": "{product}_order_up_to",
    "left": "{product}_left",
    "demand": "any",
    "ledger": "ledger.sqlite",
}
OPTIONAL = {"steps", "unit", "max_per_unit", "protects", "query", "budget"}
ASKED = {
    "problem": ("kind", "products", "horizon", "steps", "holding", "shortage", "demand_max", "boundary"),
    "log": ("source", "query", "trajectory", "step", "first_step", "opening", "order_up_to", "left"),
    "privacy": ("unit", "max_per_unit", "protects", "rho", "budget", "data_set"),
    "plan": ("units",),
}
BY_SALES = {"query", "trajectory", "step", "first_step", "opening", "order_up_to", "left"}


def run_init(
    path: Path, flags: dict[str, str | None], *, example: bool, sales: bool, force: bool, seed: int = 1
) -> None:
    """Write a configuration, and with `example` the table it speaks of."""
    console = Console()
    if path.exists() and not force:
        raise ValueError(f"{path} exists; write elsewhere with --out, or replace it with --force")
    given = {key: text for key, text in flags.items() if text is not None}
    if example:
        if given:
            raise ValueError(f"--example writes its own facts; leave out {', '.join(map(_flag, given))}")
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = write_example(path.parent, sales=sales, seed=seed)
        _write(path, write_toml(facts).encode())
        console.print(
            f"A simulated chain of 40 shops: [bold]{escape(str(path.parent / facts['log']['source']))}[/] is its "
            f"table, [bold]{escape(str(path))}[/] says what is public about it.",
            highlight=False,
        )
        _say_next(console, path)
        return
    asked = bool(_missing(given, sales=sales)) and sys.stdin.isatty() and console.is_terminal
    facts = _facts(_ask(console, given, sales=sales) if asked else given, sales=sales)
    content = write_toml(facts).encode()
    try:
        parse_config(path, content)
    except ValueError as error:
        if not asked:
            raise
        _write(path, content)  # nobody should have to answer everything again
        raise ValueError(f"{error}\nIt is written all the same: correct it there") from None
    _write(path, content)
    console.print(f"Wrote {path}; every key in it says why it is asked for.", highlight=False, markup=False)
    _say_next(console, path)


def _write(path: Path, content: bytes) -> None:
    """Replace a file as a whole, so that a failure leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(content)
    draft.replace(path)


def _say_next(console: Console, path: Path) -> None:
    config = "" if path.name == "poolrl.toml" and path.parent == Path() else escape(f" --config {path}")
    console.print(
        f"Next: [bold]poolrl check{config}[/] (is the table as the file says?), [bold]poolrl plan{config}[/] (what "
        "does each budget buy?)",
        highlight=False,
    )


def _ask(console: Console, given: dict[str, str], *, sales: bool) -> dict[str, str]:
    console.print(
        "Everything asked for here is public. [bold]Answer from what you know of the shop, not from the log.[/]\n"
        "Lists are separated by commas; an empty answer takes what stands in brackets."
    )
    answers = dict(given)
    for section, keys in ASKED.items():
        console.print(f"\n[bold]{escape(f'[{section}]')}[/]")
        for key in keys:
            if key in answers or (sales and key in BY_SALES) or (key == "max_per_unit" and not answers.get("unit")):
                continue
            needed = key not in OPTIONAL or (key == "max_per_unit" and bool(answers.get("unit")))
            console.print(f"[dim]{escape(KEYS[section][key])}[/]", highlight=False)
            default = DEFAULTS.get(key, "" if key in OPTIONAL else None)
            while key not in answers:
                try:
                    shown = key if needed else f"{key} [dim](optional)[/]"
                    text = Prompt.ask(shown, console=console, default=default, show_default=bool(default))
                    if text is None or (not text.strip() and needed):
                        raise ValueError(f"{key} is needed")
                    _check(key, text, _split(answers.get("products", "?")))
                    answers[key] = text
                except ValueError as error:
                    console.print(f"[red]{escape(str(error))}[/]")
                except (EOFError, KeyboardInterrupt):
                    raise ValueError("stopped; nothing was written") from None
    return answers


def _facts(answers: dict[str, str], *, sales: bool) -> dict[str, dict[str, Any]]:
    """The facts of a configuration from texts; says all that is missing at once."""
    missing = _missing(answers, sales=sales)
    if missing:
        raise ValueError(
            f"init needs {', '.join(map(_flag, missing))} as well; on a terminal it asks, and 'poolrl init --example' "
            "writes a shop to try"
        )
    products = _split(answers["products"])
    texts = DEFAULTS | {"budget": answers["rho"]} | {key: text for key, text in answers.items() if text.strip()}
    facts: dict[str, dict[str, Any]] = {
        section: {key: _parse(key, texts[key], products) for key in keys if key in texts}
        for section, keys in KEYS.items()
    }
    facts["log"]["clip"] = False
    facts["publication"] = Publication().model_dump()
    if sales:
        facts["log"] |= from_sales(products, days=facts["problem"]["horizon"])
        facts["privacy"].setdefault("protects", "one week of one shop")
    return facts


def _missing(answers: dict[str, str], *, sales: bool) -> list[str]:
    free = {*DEFAULTS, *OPTIONAL, *(BY_SALES if sales else ())}
    return [key for keys in ASKED.values() for key in keys if key not in free and not answers.get(key, "").strip()]


def _parse(key: str, text: str, products: list[str]) -> Any:
    if key in LISTS:
        parts = _split(text)
        pattern = len(parts) == 1 and "{product}" in parts[0]
        return [parts[0].replace("{product}", product) for product in products] if pattern else parts
    if key in COUNTS:
        return _number(key, text, int, "a whole number") if text.strip() else None
    if key in NUMBERS:
        numbers = [
            _number(key, part, float, "a number, or one per product with commas between") for part in _split(text)
        ]
        return numbers[0] if len(numbers) == 1 else numbers
    if key in ("rho", "budget"):
        return _number(key, text, float, "a number") if text.strip() else None
    return text.strip() or None


def _check(key: str, text: str, products: list[str]) -> None:
    """Refuse an answer that the file would refuse, as far as it can be judged alone."""
    value = _parse(key, text, products)
    numbers = value if isinstance(value, list) else [value]
    if key in NUMBERS | COLUMNS and len(numbers) not in (1, len(products)):
        raise ValueError(f"{key} must be one, or {len(products)} with commas between: one per product")
    if key in ("holding", "shortage") and min(numbers) < 0:
        raise ValueError(f"{key} must not be negative")
    if key in POSITIVE and any(number is not None and not number > 0 for number in numbers):
        raise ValueError(f"{key} must be positive")
    if key == "boundary" and max(numbers) > 1:
        raise ValueError("boundary must lie in (0, 1]")
    if key == "kind" and value not in KINDS:
        raise ValueError(f"kind must be {' or '.join(KINDS)}")


def _number(key: str, text: str, kind: Callable[[str], Any], what: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{key} must be {what}, got {text!r}") from None


def _split(text: str) -> list[str]:
    return [part for part in re.split(r"\s*,\s*", text.strip()) if part]


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"
