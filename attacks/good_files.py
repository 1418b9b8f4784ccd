"""One good file of every kind that the program reads, made once, for the fuzzer to spoil."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import shutil
import tempfile
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from poolrl import LostSales, OutcomeProblem, Pool, SeededNoise, simulate_log
from poolrl.cli.main import app
from poolrl.paper.results import Results
from poolrl.problems.registry import KINDS
from poolrl.workflow.config.answers import write_toml

# These are in rows of the log and nowhere else, so no message may have them. They are too long for a file position.
SECRET_NUMBER, SECRET_NAME = 31.337519, "Musterfrau"
SECRETS = ("31.3375", "3133.75", "3.13375", "313375", SECRET_NAME)


def problem() -> LostSales:
    """The problem of all files."""
    return LostSales(horizon=2, products=1, holding=0.2, shortage=0.5, demand_max=40.0)


def other_kinds() -> dict[str, type[OutcomeProblem]]:
    """Every kind of the registry that is no shop."""
    return {name: kind for name, kind in KINDS.items() if kind.example}


@cache
def good() -> Path:
    """A configuration, a log with secrets, a ledger and a release, made once."""
    folder = Path(tempfile.mkdtemp(prefix="poolrl-good."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rng = np.random.default_rng(0)
    log = problem().simulate_log(rng.uniform(0, 40, (30, 2, 1)), rng=rng)
    table = log.to_arrow()
    actions = table["action_0"].to_pylist()
    rows = table.set_column(table.column_names.index("action_0"), "action_0", pa.array([SECRET_NUMBER, *actions[1:]]))
    rows = rows.append_column("who", pa.array([f"{SECRET_NAME} {i // 2}" for i in range(len(table))]))
    pq.write_table(rows, folder / "log.parquet")
    pa.csv.write_csv(rows, folder / "log.csv")
    facts: dict[str, dict[str, Any]] = {
        "problem": {
            "kind": "lost sales",
            "products": ["bread"],
            "horizon": 2,
            "holding": 0.2,
            "shortage": 0.5,
            "demand_max": 40.0,
        },
        "log": {
            "source": "log.parquet",
            "trajectory": "trajectory",
            "step": "step",
            "first_step": 0,
            "opening": ["state_0"],
            "order_up_to": ["action_0"],
            "left": ["next_state_0"],
        },
        "privacy": {"rho": 0.5, "budget": 1.0, "data_set": "shop", "ledger": "ledger.sqlite"},
        "plan": {"units": 30},
        "publication": {"name": "Orders", "curator": "Ann", "region": "Here", "intended_use": "Trying."},
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    (folder / "poolrl.toml").write_text(write_toml(facts))
    with contextlib.redirect_stdout(io.StringIO()):
        app(["fit", "--new-account", "--config", str(folder / "poolrl.toml"), "--json"], result_action="return_value")
    zones = Pool.published(1.0, zones=3).fit(problem(), log, noise=SeededNoise(0))
    zones.save(folder / "zones.npz")
    for name, kind in other_kinds().items():
        other = kind(**kind.example)
        outcomes = rng.uniform(other.outcome_low, other.outcome_high, (30, other.horizon, other.outcome_dim))
        seen = simulate_log(other, other.arranged(outcomes), rng=rng)
        Pool(1.0).fit(other, seen, noise=SeededNoise(0)).save(folder / f"{name}.npz")
        own = facts | {"problem": {"kind": name, **kind.example}, "log": {"source": "log.parquet"}}
        (folder / f"{name}.json").write_text(json.dumps(own))
    with Results(folder / "results.jsonl"):
        pass
    days = [date(2013, 1, 1) + timedelta(day) for day in range(60)]
    lines = [f"{store},{day},{store * day.day}" for store in (1, 2) for day in days]
    (folder / "train.csv").write_text("\n".join(["Store,Date,Sales", *lines, ""]))
    return folder
