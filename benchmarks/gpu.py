"""Would a GPU pay for `Pool.published`? `device` measures what a GPU could do, `fit` what would stay on the CPU.

    python benchmarks/gpu.py device           # on a machine with a GPU and CuPy; needs nothing of poolrl
    python -m benchmarks.gpu fit              # here: how a fit's time splits

The job is M = 1000, w + d = 16, H = 10, n = 10,000 at ρ = 100 and without pessimism, the heaviest of its size. With
more noise or with the printed constants most rows are noise-dominated, and the numeric part is small.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

RINGS, PRODUCTS, STEPS, TRAJECTORIES, CANDIDATES = 1000, 8, 10, 10_000, 258
STATES = RINGS * PRODUCTS
ROWS = 912  # nodes of a step that may not be noise-dominated, as `fit` prints


def on_the_device() -> None:
    """Projection, kernel, rewards and search of one step on random tables of the job's size, times H."""
    import cupy as cp

    rng = cp.random.default_rng(0)
    size = 2 * PRODUCTS
    joint = cp.rint(rng.standard_normal((ROWS, STATES)) * 0.5)
    high = rng.random(ROWS) * 20 + 5
    nodes, arrival = rng.random((ROWS, size)), rng.random((STATES, PRODUCTS))
    value, q = rng.random(STATES), rng.random(RINGS * size)
    inverse = rng.standard_normal((RINGS, size, size))
    state = rng.random((STATES, PRODUCTS))
    shares = rng.random((CANDIDATES, PRODUCTS))

    def backup() -> Any:
        counts = cp.maximum(joint, 0.0)
        t = cp.zeros(ROWS)
        for _ in range(8):  # Newton's steps; the library stops when it may
            active = counts > t[:, None]
            t = cp.maximum(t, (cp.where(active, counts, 0.0).sum(axis=1) - high) / cp.maximum(active.sum(axis=1), 1))
        kernel = cp.maximum(counts - t[:, None], 0.0)
        kernel /= kernel.sum(axis=1, keepdims=True)
        left, level = arrival.sum(axis=1), nodes[:, PRODUCTS:].sum(axis=1)
        reward = (kernel * (0.4 * (level[:, None] - left) - 0.2 * left)).sum(axis=1)
        return reward + kernel @ value

    def search() -> Any:
        best = cp.full(STATES, -cp.inf)
        for share in shares:
            unit = cp.concatenate([state, state + share * (1 - state)], axis=1)
            ring = cp.clip(cp.floor(cp.sqrt((unit * unit).sum(axis=1)) * RINGS / 4.0), 0, RINGS - 1).astype(cp.int64)
            raw = cp.maximum(cp.einsum("md,mdj->mj", unit, inverse[ring]), 0.0)
            total = cp.maximum(raw.sum(axis=1), 1e-300)
            best = cp.maximum(best, (q.reshape(RINGS, size)[ring] * raw).sum(axis=1) / total)
        return best

    def seconds(work: Callable[[], Any]) -> float:
        work()
        cp.cuda.Device().synchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            work()
        cp.cuda.Device().synchronize()
        return time.perf_counter() - began

    name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, CuPy {cp.__version__}: {ROWS} rows x {STATES} states, {STEPS} steps")
    print(f"projection, kernel and rewards: {seconds(backup):.3f} s")
    print(f"search of {CANDIDATES} candidates: {seconds(search):.3f} s")


def here() -> None:
    """The same job by the library: seconds in total, of geometry, of counting, of noise, and of the numeric part."""
    from benchmarks.fitting import TimedNoise, a_shop
    from poolrl import Pool, SeededNoise, Zones
    from poolrl.data.counts import count_visits

    problem, log = a_shop(PRODUCTS, STEPS, TRAJECTORIES)
    pool = Pool.published(100.0, RINGS, scale=0.0)
    Pool.published(100.0, 20, scale=0.0).fit(problem, log, noise=SeededNoise(0))  # compiles
    began = time.perf_counter()
    partition = Zones(RINGS).partition(problem)
    laid = time.perf_counter()
    count_visits(log, partition)
    counted = time.perf_counter()
    noise = TimedNoise(SeededNoise(0))
    pool.fit(problem, log, noise=noise)
    whole = time.perf_counter() - counted
    geometry, counts = laid - began, counted - laid
    rest = whole - geometry - counts - noise.seconds
    drawn = (noise.cells - STEPS * partition.pair_count) / STATES / STEPS
    print(f"fit {whole:.2f} s: geometry {geometry:.2f}, counting {counts:.2f}, ", end="")
    print(f"seeded noise {noise.seconds:.2f}, numeric {rest:.2f}")
    print(f"{drawn:.0f} rows of {partition.pair_count} drawn per step, {noise.cells:,} cells")
    print(f"at most {whole / (whole - rest):.1f} times faster if a GPU did the numeric part in no time at all")
    print(f"the printed constants: {_printed(problem, log):.2f} s")


def _printed(problem: Any, log: Any) -> float:
    from poolrl import Pool, SeededNoise

    began = time.perf_counter()
    Pool.published(1.0, RINGS).fit(problem, log, noise=SeededNoise(0))
    return time.perf_counter() - began


if __name__ == "__main__":
    {"device": on_the_device, "fit": here}[sys.argv[1] if len(sys.argv) > 1 else "fit"]()
