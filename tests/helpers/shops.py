"""A small shop: its log, the facts of its configuration, and what a fit of it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales
from poolrl.ledger.ledger import Ledger
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.verified import verify_folder

PRODUCTS = ["bread", "milk"]
PAPERS = {"certificate.json", "certificate.sig", "leaflet.txt", "registry.yaml"}
DRAWN = {"report.html", "levels.csv"}  # afterwards, from the policy
RELEASE = PAPERS | DRAWN | {"policy.npz", "trees.npz", "poolrl.toml"}

Facts = dict[str, dict[str, Any]]
Run = Callable[..., str]  # the fixture `run`: a command in this process


def small_shop(folder: Path, *, units: int = 300, seed: int = 5) -> Facts:
    """Write log.parquet (columns as `to_arrow` names them) and return the facts of its configuration."""
    problem = LostSales(horizon=3, products=2, holding=0.2, shortage=[0.5, 0.6], demand_max=[40.0, 60.0], boundary=0.9)
    rng = np.random.default_rng(seed)
    demand = np.minimum(rng.gamma(4.0, 4.0, (units, 3, 2)), problem.demand_max)
    pq.write_table(problem.simulate_log(demand, rng=rng).to_arrow(), folder / "log.parquet")
    return {
        "problem": {
            "kind": "lost sales",
            "products": PRODUCTS,
            "horizon": 3,
            "steps": ["Fri", "Sat", "Sun"],
            "holding": 0.2,
            "shortage": [0.5, 0.6],
            "demand_max": [40.0, 60.0],
            "boundary": 0.9,
        },
        "log": {
            "source": "log.parquet",
            "trajectory": "trajectory",
            "step": "step",
            "first_step": 0,
            "opening": ["state_0", "state_1"],
            "order_up_to": ["action_0", "action_1"],
            "left": ["next_state_0", "next_state_1"],
        },
        "privacy": {"rho": 0.5, "budget": 1.0, "data_set": "small shop", "ledger": "ledger.sqlite"},
        "plan": {"units": units},
        "publication": {
            "name": "Weekend orders",
            "curator": "Ann & <Bob>",
            "region": "Here",
            "intended_use": "Trying.",
        },
    }


def write_config(folder: Path, facts: Facts) -> Path:
    """Write poolrl.toml; its path."""
    path = folder / "poolrl.toml"
    path.write_bytes(write_toml(facts).encode())
    return path


def faults_of(release: Path, **others: Path | None) -> list[str]:
    """What `verify` does not accept of a release."""
    checks = verify_folder(release / "policy.npz", release / "certificate.json", **others)
    return [check.what for check in checks if not check.good]


def fit_of(config: Path) -> list[str | Path]:
    """The command that fits, with the flag that only the first fit of a data set may have."""
    file = load_config(config)
    if file.ledger.exists():
        with Ledger.existing(file.ledger) as ledger:
            if ledger.account(file.config.privacy.data_set) is not None:
                return ["fit", "--config", config]
    return ["fit", "--new-account", "--config", config]


def message_of_failed_fit(folder: Path, facts: Facts, query: str | None, run: Run) -> str:
    """Fit through a query, which must fail and say what was spent; its message."""
    if query is not None:
        facts["log"]["query"] = query
    with pytest.raises(ValueError, match="spent") as caught:
        run(*fit_of(write_config(folder, facts)))
    return str(caught.value)
