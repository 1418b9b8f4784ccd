"""Neighbouring logs, and how far one unit moves the exact tables that a release adds noise to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from poolrl import Backlog, LostSales, Trajectories
from poolrl.checks import IntArray
from poolrl.privacy import sensitivity

Pair = tuple[LostSales | Backlog, Trajectories, Trajectories]
# Of the stores 1 to 4 the last is not declared; a week is with a promotion, without, or nobody noted it.
LABELS: dict[str, Any] = {"store": [1, 2, 3], "promo": ["no", "yes"]}
STORES, PROMOS = 4, np.array(["no", "yes", None], dtype=object)


@dataclass
class Recorder:
    """A noise source that adds nothing and remembers what it was given: the exact tables and their variance."""

    tables: list[IntArray] = field(default_factory=list)
    variances: list[Fraction] = field(default_factory=list)

    def begin(self) -> Recorder:
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        self.tables.append(counts.copy())
        self.variances.append(variance)
        return counts


def squared_change(first: Recorder, second: Recorder) -> list[int]:
    """The squared distance between two releases, table by table."""
    return [int(((a - b) ** 2).sum()) for a, b in zip(first.tables, second.tables, strict=True)]


def plant_layout(plant: pytest.MonkeyPatch, name: str, layout: Callable[..., sensitivity.TableLayout]) -> None:
    """A planted bug: a table on top of the trees is paid for by another formula."""
    plant.setitem(sensitivity.ON_TOP, name, replace(sensitivity.ON_TOP[name], layout=layout))


@st.composite
def neighbours(draw: st.DrawFn, *, labels_public: bool | None = None) -> Pair:
    """Two logs that differ in one unit, which may own 1 to 4 trajectories of which max_per_unit count.

    Where `labels_public` is given, rows have labels, and perhaps a bound for each store, of which they are multiples.
    Labels of the unit stay if they are public; otherwise all of it may be another's.
    """
    horizon, products = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind, share = draw(st.sampled_from([LostSales, Backlog])), draw(st.sampled_from([1.0, 0.6]))
    bounds, known = 10.0, {}
    if labels_public is not None:
        bounds, known = draw(st.sampled_from([10.0, np.array([10.0, 5.0, 2.0]).reshape(3, 1, 1)])), {"labels": LABELS}
    problem = kind(
        horizon=horizon, products=products, holding=1, shortage=1, demand_max=bounds, boundary=share, **known
    )
    cap, units = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    # Whole numbers meet bin edges, the boundary and zero stock far more often than reals do.
    rng, whole, by_step = (
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        draw(st.booleans()),
        draw(st.booleans()),
    )
    owned = [draw(st.integers(1, 4)) for _ in range(units + 1)]
    if labels_public:
        owned[units] = owned[units - 1]

    def rows(count: int) -> dict[str, Any]:
        x = rng.uniform(problem.state_low, 10, (count, horizon, products))
        y = rng.uniform(np.maximum(x, 0), 10)
        demand = rng.uniform(0, 10, y.shape)
        if whole:
            x, y, demand = np.floor(x), np.ceil(y), np.floor(demand)
        return {"states": x, "actions": y, "next_states": problem.next_state(0, x, y, demand)}

    def labels(count: int) -> dict[str, Any]:
        shape = (count, horizon) if by_step else count
        return {"store": rng.integers(1, STORES + 1, count), "promo": rng.choice(PROMOS, shape)}

    parts = [rows(count) for count in owned]
    named = [labels(count) for count in owned]
    if labels_public:
        named[units] = named[units - 1]

    def log(members: list[int]) -> Trajectories:
        more: dict[str, Any] = {name: np.concatenate([parts[i][name] for i in members]) for name in parts[0]}
        if labels_public is not None:
            more["labels"] = {name: np.concatenate([named[i][name] for i in members]) for name in LABELS}
            more["labels_public"] = labels_public
        unit = np.repeat(np.arange(len(members)), [owned[i] for i in members])
        return Trajectories(**more, unit=unit, max_per_unit=cap)

    common = list(range(units - 1))
    return problem, log([*common, units - 1]), log([*common, units])


@st.composite
def scaled_neighbours(draw: st.DrawFn, *, labels_public: bool | None = None) -> Pair:
    """Two logs of weeks of shops that differ in one week. A week's scale is the mean sale of its shop's last m weeks.

    Where `labels_public` is given, the shop is a label too. If labels are protected, the week may become another
    shop's. Then m weeks of either shop have another scale.
    """
    horizon, products, m = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    kind, share = draw(st.sampled_from([LostSales, Backlog])), draw(st.sampled_from([1.0, 0.6]))
    labels = {} if labels_public is None else {"labels": {"store": LABELS["store"]}}
    problem = kind(horizon=horizon, products=products, holding=1, shortage=1, demand_max=3.0, boundary=share, **labels)
    weeks = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    store, replaced = rng.integers(1, STORES + 1, weeks), int(rng.integers(0, weeks))
    shape = (weeks + 1, horizon, products)
    # Some weeks sell nothing, some start with more than they order: their own rows, and scales of later ones, are bad.
    demand = rng.integers(0, 7, shape).astype(float) * rng.integers(0, 2, (weeks + 1, 1, 1))
    order = rng.integers(0, 9, shape).astype(float)
    stock = np.where(rng.random(shape) < 0.1, order + 1, np.floor(order / 2))
    left = problem.next_state(0, stock, order, demand)

    def log(week: int, of: int) -> Trajectories:
        """Another week, perhaps another shop's, in one place of the log."""
        rows, shops = np.arange(weeks), store.copy()
        rows[replaced], shops[replaced] = week, of
        x, y, after = stock[rows], order[rows], left[rows]
        scale = np.ones(x.shape)
        for place in range(weeks):
            earlier = [i for i in range(place) if shops[i] == shops[place]][-m:]
            if earlier:
                scale[place] = (y - after)[earlier].mean(axis=0)
        given: dict[str, Any] = {"scale": scale, "scale_memory": m if labels_public is not False else 2 * m}
        if labels_public is not None:
            given |= {"labels": {"store": shops}, "labels_public": labels_public}
        return Trajectories(states=x, actions=y, next_states=after, **given)

    moves_house = labels_public is False and draw(st.booleans())
    other = int(rng.integers(1, STORES + 1)) if moves_house else int(store[replaced])
    return problem, log(replaced, int(store[replaced])), log(weeks, other)
