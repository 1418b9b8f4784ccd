"""An agent of another library, trained on a private model, beside the planner: stable-baselines3's PPO.

    pip install -e '.[agents]'                  # brings PyTorch
    python -m benchmarks.agents                 # about ten minutes on two cores
    python -m benchmarks.agents --steps 300000 --write

Both see the same private model, at no further privacy cost, and both are judged on the same paths of it. The first shop
is the paper's, whose plan is exact. The second has a reserve that all products share (`Depot`), with fitted values.
PPO has the library's usual settings, eight environments, and observations and rewards of unit size.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.joint import a_world
from benchmarks.planning import WEEKS
from benchmarks.report import Report, run
from poolrl import Policy, Pool, PrivateModel, SeededNoise, rollout_cost
from poolrl.checks import FloatArray
from poolrl.plans.environment import ModelEnv
from poolrl.problems.problem import OutcomeProblem

PRODUCTS, CORRELATION, JUDGED = 3, 0.5, 2_000


def trained(model: PrivateModel, problem: OutcomeProblem, steps: int, seed: int) -> Any:
    """An agent, and the environment that knows how it sees."""
    from gymnasium.wrappers import RescaleAction
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    def shop() -> Any:
        return RescaleAction(ModelEnv(model, problem), np.float32(-1), np.float32(1))

    shops = VecNormalize(make_vec_env(shop, n_envs=8, seed=seed), gamma=1.0)
    # Actions are shares of a wide range, so the first ones must not all lie at its ends.
    agent = PPO(
        "MlpPolicy", shops, gamma=1.0, seed=seed, device="cpu", policy_kwargs={"log_std_init": -1.0}, n_steps=512
    )
    agent.learn(steps)
    return agent, shops


def agent_cost(agent: Any, shops: Any, problem: OutcomeProblem, demand: FloatArray) -> float:
    """Mean cost on paths (n, H, k), by the actions that the agent finds best."""
    state = np.tile(problem.initial_state, (len(demand), 1))
    bounds, total = problem.state_high - problem.state_low, 0.0
    for step in range(problem.horizon):
        day = np.tile(np.eye(problem.horizon)[step], (len(state), 1))
        unit = np.clip((state - problem.state_low) / bounds, 0.0, 1.0)
        seen = shops.normalize_obs(np.concatenate([unit, day], axis=1).astype(np.float32))
        share, _ = agent.predict(seen, deterministic=True)
        low, high = problem.allowed(step, state)
        action = low + (np.clip(share, -1.0, 1.0) + 1) / 2 * (high - low)
        total += float(problem.cost(step, state, action, demand[:, step]).mean())
        state = problem.next_state(step, state, action, demand[:, step])
    return total


def measure(report: Report, asked: argparse.Namespace) -> None:
    """One table."""
    depot, truth = a_world(PRODUCTS, CORRELATION, asked.seed)
    rng = np.random.default_rng(asked.seed)
    log = depot.shop.simulate_log(truth.sample(WEEKS, rng=rng), rng=rng)
    model = Pool(1.0, together=0.1).model(depot.shop, log, noise=SeededNoise(asked.seed))
    demand = model.sample(JUDGED, rng=rng)
    rows = []
    problems: dict[str, OutcomeProblem] = {"each product by itself": depot.shop, "a shared reserve": depot}
    for name, problem in problems.items():
        began = time.perf_counter()
        policy: Policy = model.plan(problem)
        planned, cost = time.perf_counter() - began, rollout_cost(problem, policy, demand)
        began = time.perf_counter()
        agent, shops = trained(model, problem, asked.steps, asked.seed)
        took = time.perf_counter() - began
        costs = f"{cost:.2f}", f"{agent_cost(agent, shops, problem, demand):.2f}"
        rows.append(
            [name, costs[0], f"{planned:.1f} s", costs[1], f"{float(costs[1]) / cost - 1:+.1%}", f"{took:.0f} s"]
        )
    header = ["three products, 5 days", "planner: cost", "time", "PPO: cost", "above the planner", "time"]
    report.table(header, rows, title=f"On a private model (ρ = 1, {WEEKS:,} weeks), PPO with {asked.steps:,} steps")


if __name__ == "__main__":
    run(
        Report("agents", "An agent beside the planner", ("learning", "plans")),
        measure,
        steps=(300_000, "of the environment"),
        seed=(5, "of the world and of the agent"),
    )
