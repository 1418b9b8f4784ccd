"""The sweeps of the paper and what it leaves out, as plain values. Other modules run, store and draw them.

The paper states D̄ = 100, h, b ~ U[0, 0.5] per step, D ~ U[0, 100], SAA with 10,000 samples, zero initial stock and
10 runs. It does not state the number of trajectories, the behaviour policy, δ, or what is held fixed while one quantity
varies. `Setting`'s defaults are our choice of those, made once; the sensitivity sweep varies each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from poolrl.paper import rossmann

PAPER_RUNS = 10  # seeds 0 .. 9
FEWEST_SEEDS = 5  # fewer decide nothing

# Γ of the paper softened: the best of these on seeds that judge nothing. Zero trusts every visited node fully, one
# is as printed.
SCALES = (0.0, 1e-6, 1e-5, 1e-4, 1e-2, 1.0)
TUNING_SEEDS = (1000, 1001, 1002)
TUNED = -1.0  # stands for the best of SCALES until it is known


@dataclass(frozen=True, order=True)
class Setting:
    """One point of a sweep: demand, a learner, a budget. With a seed it is a run."""

    data: str = "uniform"  # a demand family, or "rossmann"
    method: str = "pool"  # one of trials.METHODS
    rho: float = 1.0
    horizon: int = 5
    products: int = 1  # w = d
    boundary: float = 1.0  # λ as a share of D̄
    granularity: int = 100  # M: zones, bins per axis of a grid, or points per coordinate of `Separable`
    trajectories: int = 10_000
    behaviour: str = "uniform"  # a key of trials.BEHAVIOURS
    failure: float = 0.05  # δ of E_ρ and ι
    scale: float = 1.0  # of Γ
    demand_max: float = 100.0

    @property
    def bench(self) -> Setting:
        """The fields that matter before learning: learners with the same bench share a log."""
        return replace(self, method="", rho=1.0, granularity=0, failure=0.0, scale=0.0)


@dataclass(frozen=True)
class Range:
    """A field of `Setting` with the values that a sweep gives it, and how tables and figures name it."""

    field: str
    values: tuple[Any, ...]  # numbers
    symbol: str
    label: str
    times: int = 1  # shown is this multiple of the value

    def over(self, setting: Setting) -> list[Setting]:
        """The setting at every value."""
        return [replace(setting, **{self.field: value}) for value in self.values]

    def of(self, setting: Setting) -> float:
        """The value in a setting."""
        return float(getattr(setting, self.field))

    def shown(self, setting: Setting) -> float:
        """The value as people read it."""
        return self.times * self.of(setting)


RHOS = Range("rho", (0.01, 0.03, 0.1, 1.0, 5.0, 10.0, 20.0, 40.0), "ρ", "privacy budget ρ (zCDP)")
HORIZONS = Range("horizon", (5, 10, 15, 20, 40), "H", "horizon H")
BOUNDARIES = Range("boundary", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "|λ|", "boundary |λ|")
PRODUCT_COUNTS = Range("products", (1, 2, 3, 4, 8), "w + d", "dimensions w + d", times=2)
GRANULARITIES = Range("granularity", (50, 100, 200, 400, 800), "M", "granularity M")
LOG_SIZES = Range("trajectories", (100, 1_000, 10_000, 100_000), "n", "trajectories n")
HYPERPARAMETERS = (HORIZONS, BOUNDARIES, PRODUCT_COUNTS, GRANULARITIES)

BASE = Setting()
PUBLISHED = replace(BASE, method="published")
SOFTENED = replace(PUBLISHED, scale=TUNED)
GRID = replace(BASE, method="grid")
SOFT_GRID = replace(GRID, scale=TUNED)
OUTCOME_ZONES = replace(BASE, method="outcome zones")
INPUT = replace(BASE, method="input")
OUTPUT = replace(BASE, method="output")
NON_PRIVATE = replace(BASE, rho=math.inf)
DATA_FREE = replace(NON_PRIVATE, method="data-free")
MIDDLE = replace(NON_PRIVATE, method="middle")
PARTIAL = replace(NON_PRIVATE, method="partial")

NAMES = {
    PUBLISHED: "Pool.published, printed constants",
    SOFTENED: "Pool.published, tuned scale of Γ",
    BASE: "Pool (default)",
    GRID: "grid (DP-APVI), printed constants",
    SOFT_GRID: "grid (DP-APVI), tuned scale of Γ",
    OUTCOME_ZONES: "zones on outcome counts",
    INPUT: "input perturbation",
    OUTPUT: "output perturbation",
    NON_PRIVATE: "NonPrivate: Pool(rho=inf)",
    DATA_FREE: "no data: plan on the public bounds",
    MIDDLE: "no data: order up to the middle",
    PARTIAL: "partial discretisation of Qin et al. (not private)",
}
JUDGED = (PUBLISHED, SOFTENED, BASE)  # the claims are judged for each of them
IN_RQ3 = (*JUDGED, GRID, SOFT_GRID, OUTCOME_ZONES)


def real(setting: Setting, stores: int = 1, bound: float | None = None) -> Setting:
    """The same learner on Rossmann's weeks: H = 7, the first half of 133 weeks, a declared bound."""
    declared = bound or (rossmann.BOUND if stores == 1 else rossmann.BOUND_OF_SEVERAL)
    return replace(
        setting, data="rossmann", horizon=7, products=stores, trajectories=66, demand_max=declared, boundary=1.0
    )


# A place moves a learner's setting to some data.
Place = Callable[[Setting], Setting]
SYNTHETIC, STORE_1 = "synthetic", "Rossmann, Store 1"
PAPERS = (SYNTHETIC, STORE_1)
PLACES: dict[str, Place] = {
    SYNTHETIC: lambda setting: setting,
    STORE_1: real,
    "normal demand": partial(replace, data="normal"),
    "exponential demand": partial(replace, data="exponential"),
    "Rossmann, 2 stores": partial(real, stores=2),
    "Rossmann, 4 stores": partial(real, stores=4),
    "Rossmann, 8 stores": partial(real, stores=8),
}
DEMAND_LAWS = ("uniform", "normal", "exponential")  # the paper's, and two that the public prior does not know
KNOWN_OPTIMUM = (SYNTHETIC, "normal demand", "exponential demand")  # their places
DECLARED_BOUNDS = (10_000.0, 15_000.0, 20_000.0, 30_000.0)
# What the paper leaves open, one choice at a time.
OPEN_CHOICES: dict[str, Place] = {
    **{
        f"n = {size:,}, {demand} demand": partial(replace, data=demand, trajectories=size)
        for demand in DEMAND_LAWS
        for size in LOG_SIZES.values
    },
    **{f"behaviour {name}": partial(replace, behaviour=name) for name in ("uniform", "low", "steady")},
    **{
        f"behaviour {name}, normal demand": partial(replace, data="normal", behaviour=name)
        for name in ("low", "steady")
    },
    **{f"δ = {failure:g}": partial(replace, failure=failure) for failure in (0.01, 0.05, 0.2)},
    "H = 10, M = 200": partial(replace, horizon=10, granularity=200),
    "H = 10, w + d = 4": partial(replace, horizon=10, products=2),
    **{f"Store 1, public bound {bound:,.0f}": partial(real, bound=bound) for bound in DECLARED_BOUNDS},
}


def rq1() -> Iterator[Setting]:
    """POOL, IP and OP over ρ, with NonPrivate (ρ = ∞), and what needs no data."""
    for place in PLACES.values():
        for learner in (*JUDGED, INPUT, OUTPUT):
            yield from RHOS.over(place(learner))
        for learner in (*JUDGED, DATA_FREE, MIDDLE):
            yield place(replace(learner, rho=math.inf))
        if place(BASE).products == 1:  # M cells per axis are M² nodes here, and M⁴ with a second product
            yield from RHOS.over(place(SOFT_GRID))
            yield from (place(replace(SOFT_GRID, rho=math.inf)), place(PARTIAL))


def rq2() -> Iterator[Setting]:
    """One hyperparameter at a time, around the base setting."""
    # On uniform demand the default's prior is the truth; the other families show the default where it is not.
    for learner in (*JUDGED, *(replace(BASE, data=demand) for demand in DEMAND_LAWS[1:])):
        for each in HYPERPARAMETERS:
            yield from each.over(learner)


def rq3() -> Iterator[Setting]:
    """Zones against a grid over M, on gap and time; with outcome counts the discretisation stands alone."""
    for learner in IN_RQ3:
        for place in PAPERS:
            yield from GRANULARITIES.over(PLACES[place](learner))


def sensitivity() -> Iterator[Setting]:
    """What the paper leaves open, one choice at a time."""
    for learner in (*JUDGED, NON_PRIVATE):
        yield from (move(learner) for move in OPEN_CHOICES.values())
    for learner in (DATA_FREE, MIDDLE):
        yield from (real(learner, bound=bound) for bound in DECLARED_BOUNDS)


Sweep = Callable[[], Iterator[Setting]]
SWEEPS: dict[str, Sweep] = {"rq1": rq1, "rq2": rq2, "rq3": rq3, "sensitivity": sensitivity}


def settings_of(names: Iterable[str], *, quick: bool = False, real_data: bool = True) -> list[Setting]:
    """The settings of the named sweeps, each once; `quick` keeps the ends and the middle of every range."""
    settings = dict.fromkeys(setting for name in names for setting in SWEEPS[name]())
    wanted = (setting for setting in settings if real_data or setting.data != "rossmann")
    return [setting for setting in wanted if not quick or _in_quick(setting)]


def _in_quick(setting: Setting) -> bool:
    return (
        setting.rho in (0.1, 1.0, 40.0, math.inf)
        and setting.horizon in (5, 7, 10)
        and setting.boundary in (0.5, 1.0)
        and setting.products in (1, 2)
        and setting.granularity in (50, 200, BASE.granularity)
        and setting.trajectories in (66, 1_000, 10_000)
        and setting.failure == BASE.failure
        and setting.behaviour == BASE.behaviour
        and setting.data != "exponential"
        and (setting.data, setting.products) != ("rossmann", 2)
        and setting.demand_max in (100.0, rossmann.BOUND, rossmann.BOUND_OF_SEVERAL)
    )
