"""Nothing of the log can be reached from a policy: neither through its objects nor in what pickle makes of it."""

from __future__ import annotations

import gc
import io
import pickle
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, Policy, Pool, Trajectories
from poolrl.data.counts import VisitCounts
from poolrl.privacy.noise.secure import SecureNoise


def leaks(policy: Policy, log: Trajectories) -> set[str]:
    """What of a log can be reached from a policy: by following every reference, and by pickling it and looking."""
    found: set[str] = set()
    seen: set[int] = set()
    frontier: list[Any] = [policy]
    arrays = (log.states, log.actions, log.next_states)
    while frontier:
        item = frontier.pop()
        if id(item) in seen or isinstance(item, type | types.ModuleType):
            continue
        seen.add(id(item))
        if type(item).__module__.startswith("poolrl.data"):
            found.add(f"an object of {type(item).__module__}")
        if isinstance(item, np.ndarray) and any(np.shares_memory(item, each) for each in arrays):
            found.add("an array of the log")
        if isinstance(item, types.FunctionType):  # what it has closed over; its module is everybody's
            frontier.extend([item.__closure__, item.__defaults__, item.__kwdefaults__])
        else:
            frontier.extend(gc.get_referents(item))
    try:
        content = io.BytesIO()
        pickle.Pickler(content, protocol=5).dump(policy)
    except (TypeError, AttributeError, pickle.PicklingError):
        found.add("something that cannot be pickled")
    else:
        # Arrays keep numbers with their last byte first, pickle those of Python with their first.
        numbers = np.unique(np.concatenate([each.ravel() for each in arrays]))
        for kind in ("<f8", ">f8", "<f4"):
            # Whole numbers may be anybody's, and four bytes may once be chance.
            written = numbers[numbers % 1 != 0].astype(kind)
            if sum(each.tobytes() in content.getvalue() for each in np.split(written, len(written))) > (kind == "<f4"):
                found.add("a number of the log")
    return found


@pytest.fixture
def problem() -> LostSales:
    return LostSales(horizon=2, products=1, holding=0.2, shortage=0.3, demand_max=100.0)


@pytest.fixture
def log(problem: LostSales) -> Trajectories:
    rng = np.random.default_rng(0)
    return problem.simulate_log(rng.uniform(0, 100, (50, 2, 1)), rng=rng)


# What is planted, and what it must be found as.
PLANTS: dict[str, tuple[Callable[[Policy, Trajectories], None], str | None]] = {
    "nothing": (lambda policy, log: None, None),
    "the log": (lambda policy, log: setattr(policy, "log", log), "an object of poolrl.data.trajectories"),
    "a view": (lambda policy, log: setattr(policy, "rows", log.actions[3:4]), "an array of the log"),
    "a number": (lambda policy, log: setattr(policy, "rows", float(log.next_states[3, 0, 0])), "a number of the log"),
    "a copy": (lambda policy, log: setattr(policy, "rows", log.next_states.copy()), "a number of the log"),
    "a coarse copy": (lambda policy, log: setattr(policy, "x", log.states.astype("f4")), "a number of the log"),
    "a function": (lambda policy, log: setattr(policy, "act", lambda *_: log), "something that cannot be pickled"),
}


@pytest.mark.parametrize("pool", [Pool(1.0), Pool.published(1.0, zones=4)], ids=["default", "published"])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_log_that_can_be_reached_from_the_policy(
    pool: Pool, plant: str, problem: LostSales, log: Trajectories
) -> None:
    policy = pool.fit(problem, log)
    plants, found_as = PLANTS[plant]
    plants(policy, log)
    found = leaks(policy, log)
    assert found_as in found if found_as else found == set()


def test_exact_counts_behind_a_function_are_found_too(problem: LostSales, log: Trajectories) -> None:
    prepared = Pool.published(1.0, zones=4).prepare(problem)
    released = prepared.release(log, SecureNoise())
    policy = prepared.learn(released)
    assert leaks(policy, log) == set()
    policy.rows = released.transitions
    assert leaks(policy, log) >= {f"an object of {VisitCounts.__module__}", "something that cannot be pickled"}
