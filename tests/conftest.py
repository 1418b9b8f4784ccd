"""A small shop with a configuration, and its finished release, for the tests of the workflow."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales
from poolrl.cli.main import app
from poolrl.shop.toml import write_toml

PRODUCTS = ["bread", "milk"]


def small_shop(folder: Path, *, units: int = 300, seed: int = 5) -> dict[str, dict[str, Any]]:
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
        "privacy": {"rho": 0.5, "budget": 1.0, "data_set": "small shop"},
        "plan": {"units": units},
        "publication": {
            "name": "Weekend orders",
            "curator": "Ann & <Bob>",
            "region": "Here",
            "intended_use": "Trying.",
        },
    }


@pytest.fixture
def facts(tmp_path: Path) -> dict[str, dict[str, Any]]:
    return small_shop(tmp_path)


@pytest.fixture
def config(tmp_path: Path, facts: dict[str, dict[str, Any]]) -> Path:
    path = tmp_path / "poolrl.toml"
    path.write_text(write_toml(facts))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call a command in this process; its standard output."""

    def call(*arguments: str | Path) -> str:
        capsys.readouterr()
        app([str(argument) for argument in arguments], result_action="return_value")
        return capsys.readouterr().out

    return call


@pytest.fixture(scope="session")
def one_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with configuration, ledger and a finished release; do not write into it."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "poolrl.toml").write_text(write_toml(small_shop(folder)))
    app(["fit", "--config", str(folder / "poolrl.toml"), "--json"], result_action="return_value")
    return folder


@pytest.fixture
def released(one_release: Path, tmp_path: Path) -> Path:
    """The same, to be tampered with."""
    shutil.copytree(one_release, tmp_path, dirs_exist_ok=True)
    return tmp_path
