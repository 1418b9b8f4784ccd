"""Print a digest of what two learners find with seeded noise, to compare processes."""

from __future__ import annotations

import hashlib

import numpy as np

from poolrl import LostSales, Pool, SeededNoise

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    problem = LostSales(horizon=3, products=2, holding=0.2, shortage=0.4, demand_max=10.0)
    log = problem.simulate_log(rng.uniform(0, 10, (4000, 3, 2)), rng=rng)
    for pool in (Pool(1.0), Pool.published(20.0, 60, scale=1e-4)):
        rule = pool.fit(problem, log, noise=SeededNoise(1)).rule
        print([hashlib.sha256(array.tobytes()).hexdigest() for array in rule.arrays().values()])
