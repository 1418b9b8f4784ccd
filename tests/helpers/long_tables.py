"""Tables with one row per (trajectory, step, product): from arrays, or a mess beside its counts by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as every
from typing import Any

import numpy as np
import pyarrow as pa

from poolrl import LostSales, Table, Trajectories
from poolrl.checks import IntArray
from poolrl.geometry.bins import bin_of
from poolrl.privacy.release import release_outcomes
from poolrl.privacy.zcdp import budget
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.tables import Make, every_level

SHOWN = ("bread", "it's milk")
AMOUNT_COLUMNS = ("state", "action", "left")
Rows = list[dict[str, Any]]


def long_columns(products: Sequence[Any] = SHOWN, **more: Any) -> dict[str, Any]:
    """The columns of `melted`, as arguments of `Table`."""
    parts = {"states": ["state"], "actions": ["action"], "next_states": ["left"]}
    names = {"trajectory": "trajectory", "step": "step", "coordinate": "product", "coordinates": products}
    return names | parts | more


def melted(log: Trajectories, products: Sequence[Any] = SHOWN) -> pa.Table:
    """The log's arrays with a row for each product, in an order that says nothing."""
    trajectory, step, place = (index.ravel() for index in np.indices(log.states.shape))
    parts = {"state": log.states, "action": log.actions, "left": log.next_states}
    parts |= {} if log.scale is None else {"scale": log.scale}
    columns: dict[str, Any] = {"trajectory": trajectory, "step": step, "product": np.array(products)[place]}
    columns |= {"unit": log.owner[trajectory]} if log.facts.has_units else {}
    columns |= {name: array.ravel() for name, array in parts.items()}
    for name, values in log.labels.items():
        columns[name] = (values[trajectory] if values.ndim == 1 else values[trajectory, step]).tolist()
    return pa.table(columns).take(np.random.default_rng(3).permutation(len(trajectory)))


def long(log: Trajectories, clip: bool, put: Make = lambda table: table) -> Table:
    """A table of the log with a row for each coordinate, which `put` hands to an engine."""
    facts, names = log.facts, [*SHOWN, "the third"][: log.states.shape[2]]
    more: dict[str, Any] = {"scale": ["scale"]} if facts.has_scale else {}
    more |= {"labels": facts.label_names, "labels_public": facts.labels_public, "scale_memory": facts.scale_memory}
    more |= {"unit": "unit", "max_per_unit": facts.max_per_unit} if facts.has_units else {}
    return Table(put(melted(log, names)), **long_columns(names, **more), clip=clip)


# What a mess is made of: two declared products and two values that nobody declared, steps 0 and 1, demand up to 8.
PRODUCTS, STEPS, BOUND = ("bread", "milk", "tea", None), (0, 1, 0.5, 2, -1, 1e300, np.nan, np.inf, None), 8.0
AMOUNTS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 8.5, -1.0, np.nan, np.inf, 1e300, None)
FLAGS = ("no", "yes", "perhaps", None)

ALONE, LABELLED = (
    LostSales(horizon=2, products=products, holding=1, shortage=1, demand_max=BOUND, labels={"promo": FLAGS[:2]})
    for products in (1, 2)
)
DECLARED = long_columns(PRODUCTS[:2], unit="unit", labels=["promo"])
# How many products: the problem, and the columns of its table. One product alone has no column that names it.
MESSES = {1: (ALONE, {k: v for k, v in DECLARED.items() if not k.startswith("coordinate")}), 2: (LABELLED, DECLARED)}


def a_mess(rng: np.random.Generator, products: int) -> Rows:
    """Three trajectories for each of thirty units; some trajectories and some units have no name."""
    names = [(n // 3 if n % 13 else None, n if n % 11 else None) for n in range(90)]
    rows = [row for unit, trajectory in names for row in messy_trajectory(rng, unit, trajectory)]
    return [row for row in rows if products > 1 or row["product"] == PRODUCTS[0]]


def messy_trajectory(rng: np.random.Generator, unit: int | None, trajectory: int | None) -> Rows:
    """Rows that may be missing, doubled, out of range, without a number, or with labels that disagree."""
    rows, flag = [], rng.choice(np.array(FLAGS, dtype=object), p=[0.4, 0.4, 0.1, 0.1])
    for step, product in every(STEPS, PRODUCTS):
        declared = step in (0, 1) and product in PRODUCTS[:2]
        for _ in range(int(rng.choice([0, 1, 2, 6], p=[0.1, 0.75, 0.1, 0.05] if declared else [0.7, 0.2, 0.1, 0.0]))):
            order = float(rng.choice([1.0, 3.0, 5.0, 8.0]))
            amounts = [order * share for share in rng.choice([0.0, 0.5, 1.0], 2)]
            amounts = [amounts[0], order, amounts[1]]
            if rng.random() < 0.15:
                amounts[int(rng.integers(3))] = AMOUNTS[int(rng.integers(len(AMOUNTS)))]
            own = rng.choice(np.array(FLAGS, dtype=object)) if rng.random() < 0.05 else flag
            ids = {"unit": unit, "trajectory": trajectory, "step": step, "product": product, "promo": own}
            rows.append(ids | dict(zip(AMOUNT_COLUMNS, amounts, strict=True)))
    return rows


def as_table(rows: Rows) -> pa.Table:
    """Rows as an Arrow table, whatever is missing from them."""
    kinds = dict.fromkeys(("unit", "trajectory"), pa.int64()) | {"step": pa.float64()}
    kinds |= dict.fromkeys(("product", "promo"), pa.string()) | dict.fromkeys(AMOUNT_COLUMNS, pa.float64())
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def by_hand(
    rows: Rows, products: int, *, bins: int, max_per_unit: int, labels_public: bool
) -> tuple[int, IntArray, IntArray]:
    """Units, leaves (2, 2, products, 2 · bins) and totals (2, 2) of rows with a label, one row after the other."""
    named = [row for row in rows if row["trajectory"] is not None and row["unit"] is not None]
    units = len({row["unit"] for row in named})
    named = [row for row in named if row["step"] in (0, 1) and row["product"] in PRODUCTS[:products]]
    owned: dict[int, set[int]] = {}
    for row in named:
        owned.setdefault(row["unit"], set()).add(row["trajectory"])
    kept = {(unit, name) for unit, names in owned.items() for name in sorted(names)[:max_per_unit]}
    named = [row for row in named if (row["unit"], row["trajectory"]) in kept]
    leaves, totals = np.zeros((2, 2, products, 2 * bins), dtype=np.int64), np.zeros((2, 2), dtype=np.int64)
    for (unit, name), step in every(sorted(kept), (0, 1)):
        life = [row for row in named if (row["unit"], row["trajectory"]) == (unit, name)]
        flags = {row["promo"] for row in life if row["step"] == step} & set(FLAGS[:2])
        steps = [row["step"] for row in life]
        if len(flags) == 1 and (products > 1 or len(set(steps)) == len(steps)):  # a doubled row alone hides its life
            totals[FLAGS.index(*flags), step] += 1
        for place, product in enumerate(PRODUCTS[:products]):
            steps = [row["step"] for row in life if row["product"] == product]
            if len(set(steps)) < len(steps) or (labels_public and len(flags) != 1):
                continue
            for row in life:
                if (row["step"], row["product"]) == (step, product) and row["promo"] in FLAGS[:2] and _possible(row):
                    sold, empty = (row["action"] - row["left"]) / BOUND, row["left"] <= 1e-8
                    leaf = int(bin_of(np.array(sold), bins)) + (bins if empty else 0)
                    leaves[FLAGS.index(row["promo"]), step, place, leaf] += 1
    return units, leaves, totals


def _possible(row: dict[str, Any]) -> bool:
    amounts = [row[name] for name in AMOUNT_COLUMNS]
    if any(amount is None or not 0 <= amount <= BOUND for amount in amounts):
        return False
    return bool(row["state"] <= row["action"] and row["left"] <= row["action"])


def week_of(name: int, left: float, times: int = 1) -> Rows:
    """A week in which both products begin with nothing and are ordered up to the bound, with this many equal rows."""
    row = {"unit": 0, "trajectory": name, "promo": "no", "state": 0.0, "action": BOUND, "left": left}
    steps = [{**row, "step": step, "product": product} for step in (0, 1) for product in PRODUCTS[:2]]
    return [dict(each) for each in steps for _ in range(times)]


def change_and_price(pair: tuple[Rows, Rows], *, most: int, labels_public: bool) -> tuple[int, int]:
    """The squared change of all tables that get noise, and what is paid for; all else must be the same."""
    recorders, public = (Recorder(), Recorder()), []
    for rows, recorder in zip(pair, recorders, strict=True):
        log = Table(as_table(rows), **DECLARED, max_per_unit=most, labels_public=labels_public)
        released = release_outcomes(log, LABELLED, level_sizes=every_level(4), rho=budget(1.0), noise=recorder)
        public.append((log.slots, None if released.totals is None else released.totals.tolist()))
    assert public[0] == public[1]
    (mechanism,) = released.guarantee.mechanisms
    return sum(squared_change(*recorders)), int(mechanism.sensitivity_squared)
