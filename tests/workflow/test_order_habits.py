"""What `poolrl check` says about orders that follow demand, and about what would help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.chain import DAYS

from poolrl import Trajectories
from poolrl.workflow.check import look_at
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import load_config
from tests.helpers.managers import SHOP, STORES, WEEKS, managers
from tests.helpers.shops import Facts, Run


def chain_facts(folder: Path, facts: Facts, log: Trajectories, shop: Any, **privacy: Any) -> Path:
    """The log as a Parquet file with a column `shop`, and a configuration for it."""
    table = log.to_arrow()
    pq.write_table(table.append_column("shop", pa.array(shop)), folder / "log.parquet")
    facts["problem"] |= {"products": ["bread"], "horizon": log.horizon, "steps": [], "demand_max": 30_000.0}
    facts["problem"] |= {"holding": 1.0, "shortage": 3.0, "boundary": 1.0}
    facts["log"] |= {"opening": ["state_0"], "order_up_to": ["action_0"], "left": ["next_state_0"]}
    facts["privacy"] |= privacy
    (folder / "poolrl.toml").write_text(write_toml(facts))
    return folder / "poolrl.toml"


def orders(config: Path) -> tuple[str, str]:
    (found,) = (each for each in look_at(load_config(config)) if each.what == "orders and demand")
    return found.stands, found.seen


def test_check_says_what_would_help(tmp_path: Path, facts: Facts, run: Run) -> None:
    log, shop = managers().log(WEEKS), [f"shop {i // (60 * DAYS)}" for i in range(STORES * 60 * DAYS)]
    config = chain_facts(tmp_path, facts, log, shop, unit="shop", max_per_unit=60)
    stands, seen = orders(config)
    assert stands == "note"
    assert seen.startswith("orders follow demand, so demand is overestimated (effect +0.46, z +43.2); give a scale")
    assert seen.endswith("or make the column that tells shops apart a label; then check again")
    printed = json.loads(run("check", "--config", config, "--json"))
    assert printed["notice"].startswith("For the data holder's eyes; not for release")
    assert printed["good"]  # the log can be fitted: what to do about it is a person's decision


def test_check_of_independent_orders(tmp_path: Path, facts: Facts) -> None:
    rng = np.random.default_rng(2)
    log = SHOP.simulate_log(rng.gamma(4.0, 2000.0, (800, DAYS, 1)).clip(0, 30_000), rng=rng)
    stands, seen = orders(chain_facts(tmp_path, facts, log, np.zeros(800 * DAYS)))
    assert stands == "good"
    assert seen.startswith("no sign that orders follow demand (effect ")


def test_check_of_a_log_in_which_nothing_can_be_compared(tmp_path: Path, facts: Facts) -> None:
    zeros = np.zeros((5, DAYS, 1))
    log = Trajectories(states=zeros, actions=zeros + 100.0, next_states=zeros)
    stands, seen = orders(chain_facts(tmp_path, facts, log, np.zeros(5 * DAYS)))
    assert stands == "good"
    assert seen.startswith("it cannot be told whether orders follow demand")


def test_backlogged_demand_is_always_seen(tmp_path: Path, facts: Facts) -> None:
    log = managers().log(slice(0, 5))
    facts["problem"]["kind"] = "backlog"
    config = chain_facts(tmp_path, facts, log, np.zeros(STORES * 5 * DAYS))
    assert not [each for each in look_at(load_config(config)) if each.what == "orders and demand"]
