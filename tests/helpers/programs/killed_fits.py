"""Fits that are killed at a step, as kill -9 would: `killed_fits.py FOLDER STEP-WHEN ...`.

FOLDER/STEP-WHEN holds the configuration. Each fit is a process of its own, forked so that packages are imported once.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import poolrl.cli.fit
import poolrl.workflow.page
import poolrl.workflow.release_folder
from poolrl import LostSales
from poolrl.cli.main import app
from poolrl.ledger.ledger import Ledger
from poolrl.pool import OnOutcomes, Pool

# Where the steps of a release are; all others are functions of `poolrl.workflow.release_folder`.
OWNERS = {"reserve": Ledger, "read": Ledger, "commit": Ledger, "learn": OnOutcomes, "draw_page": poolrl.workflow.page}


def fit_and_die(config: Path, step: str, when: str) -> None:
    """Fit, and kill this process before or after one step."""
    OnOutcomes.learn_from_nothing = lambda _: None  # type: ignore[method-assign]  # or it would be killed there
    owner = OWNERS.get(step, poolrl.workflow.release_folder)
    original = getattr(owner, step)

    def doomed(*args: Any, **kwargs: Any) -> None:
        if when == "after":
            original(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, step, doomed)
    app(["fit", "--new-account", "--config", str(config)], result_action="return_value")


def warm_up() -> None:
    """Import and compile here, once for all children, what a fit needs on its way."""
    for package in ("ibis.backends.duckdb", "yaml"):
        importlib.import_module(package)
    problem = LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=1.0)
    Pool(1.0).fit(problem, problem.simulate_log(np.zeros((9, 1, 1)), rng=np.random.default_rng(0)))


if __name__ == "__main__":
    warm_up()
    for case in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            fit_and_die(Path(sys.argv[1]) / case / "poolrl.toml", *case.split("-"))
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != -signal.SIGKILL:
            sys.exit(f"{case} ended with {ended}")
