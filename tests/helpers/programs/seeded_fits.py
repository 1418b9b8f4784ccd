"""Print digests of what two learners find with seeded noise, to compare processes: `seeded_fits.py`."""

from __future__ import annotations

import hashlib

import numpy as np

from poolrl import LostSales, Pool, SeededNoise


def fit_digests() -> list[str]:
    """The default and the published learner on one log."""
    rng = np.random.default_rng(0)
    problem = LostSales(horizon=3, products=2, holding=0.2, shortage=0.4, demand_max=10.0)
    log = problem.simulate_log(rng.uniform(0, 10, (4000, 3, 2)), rng=rng)
    rules = [
        pool.fit(problem, log, noise=SeededNoise(1)).rule for pool in (Pool(1.0), Pool.published(20.0, 60, scale=1e-4))
    ]
    return [hashlib.sha256(array.tobytes()).hexdigest() for rule in rules for array in rule.arrays().values()]


if __name__ == "__main__":
    print(*fit_digests())
