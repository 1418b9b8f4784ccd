"""Sales exports as files, and configurations that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import ConfigFile, load_config
from tests.helpers.shops import Facts

ROLES = ("shop", "date", "product", "opening", "delivery", "sales", "stock_out")
WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

Row = Sequence[str]


def export_facts(products: Sequence[str] = ("bread", "milk"), *, days: int = 2, **sales: Any) -> Facts:
    """A chain whose week has its first days only; columns are called as [sales] calls them."""
    return {
        "problem": {
            "kind": "lost sales",
            "products": list(products),
            "horizon": days,
            "steps": list(WEEK[:days]),
            "holding": 1.0,
            "shortage": 2.0,
            "demand_max": 20.0,
        },
        "log": {"source": "sales.csv"},
        "sales": {role: role for role in ROLES} | {"closed": list(WEEK[days:])} | sales,
        "privacy": {"rho": 0.5, "budget": 1.0, "data_set": "chain", "ledger": "ledger.sqlite"},
        "plan": {"units": 10},
    }


def write_export(folder: Path, rows: Sequence[Row], header: Row = ROLES, delimiter: str = ",") -> Path:
    """A CSV file of these fields; those that hold a delimiter are quoted."""
    lines = [delimiter.join(f'"{each}"' if delimiter in each else each for each in row) for row in (header, *rows)]
    (folder / "sales.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder / "sales.csv"


def configured(folder: Path, facts: Facts) -> ConfigFile:
    """The configuration, written to a file and read back."""
    (folder / "poolrl.toml").write_text(write_toml(facts), encoding="utf-8")
    return load_config(folder / "poolrl.toml")
