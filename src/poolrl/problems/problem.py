"""What is public about a sequential decision: spaces, boundary, rewards and, if declared, its outcomes.

Four kinds of problem. Each declares more than the one before:

    Problem            s, a → s′ by an unknown kernel                                  learn with Visits
    OutcomeProblem     s′ = f_h(s, a, ξ), ξ independent of (s, a)                      learn with Outcomes
    SeparableProblem   ... and coordinate i of s′ depends on coordinate i of s, a, ξ   plan with Separable
    LevelProblem       ... and costs are linear in what is left and what is missing    plan levels of all label cells

Your own problem subclasses one of them. All methods take batches in the user's units: states (m, w),
actions (m, d), outcomes (m, k); leading axes broadcast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray, whole
from poolrl.problems.labels import Labels

Side = Literal["lower", "higher"]
# The value of an outcome, and whether it was cut off there.
Observation = tuple[FloatArray, BoolArray]
# A rounding error in the user's arithmetic (y − x′, or a level of exactly λ) does not break a bound.
ROUNDING = 1e-9
# In more dimensions of states and actions nodes lie too far apart.
MOST_ON_NODES = 3


@dataclass(frozen=True)
class Boundary:
    """The observable boundary λ_h: feedback exists on one side of it only.

    `share` is λ in unit coordinates, shape (H, w + d), states before actions.
    """

    share: FloatArray
    side: Side = "lower"

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", np.asarray(self.share, dtype=np.float64))
        if self.side not in ("lower", "higher"):
            raise ValueError(f"side must be 'lower' or 'higher', got {self.side!r}")
        inside = (self.share > 0) & (self.share <= 1) if self.side == "lower" else self.share < 1
        if not (inside & (self.share >= 0)).all():
            rule = "(0, 1]" if self.side == "lower" else "[0, 1)"
            raise ValueError(f"boundary must lie in {rule} on the {self.side} side")

    @property
    def reach(self) -> FloatArray:
        """The observable region is [0, reach_h] in oriented coordinates, (H, w + d)."""
        return self.share if self.side == "lower" else 1.0 - self.share

    def orient(self, unit: FloatArray) -> FloatArray:
        """Mirror the higher side onto the lower one, so that all later code has one side only."""
        return unit if self.side == "lower" else 1.0 - unit

    @property
    def everywhere(self) -> bool:
        """Whether the whole space is observable (λ = 1 on the lower side)."""
        return bool((self.reach >= 1).all())


class Problem(ABC):
    """A finite-horizon decision problem with one-sided feedback; every attribute is public."""

    horizon: int
    state_low: FloatArray  # (w,) in the user's units, as are the next five
    state_high: FloatArray
    action_low: FloatArray  # (d,)
    action_high: FloatArray
    initial_state: FloatArray  # (w,)
    boundary: Boundary
    labels: Labels = Labels()  # public facts of trajectories and steps, if any are declared
    # Names of what a row shows beside the next state, such as a price, with its bounds (e,).
    shows: tuple[str, ...] = ()
    shown_low: FloatArray = np.zeros(0)
    shown_high: FloatArray = np.zeros(0)
    # The state is one whole number, 0 .. N, such as lots that are left; amounts are one action and what is shown. Steps
    # are then rounds of a season: they share one law, none is idle, and decisions are named freely.
    counts_down: bool = False
    example: ClassVar[Mapping[str, Any]] = {}  # facts of a small one, to try things on

    @abstractmethod
    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """The reward as a known function of what the log shows; shape (...,)."""

    @abstractmethod
    def reward_range(self, step: int) -> tuple[float, float]:
        """Public bounds on `reward` at a step."""

    def feasible(self, step: int, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The box of allowed actions in each state, (..., d) twice; by default the whole action space."""
        shape = (*state.shape[:-1], self.action_dim)
        return np.broadcast_to(self.action_low, shape), np.broadcast_to(self.action_high, shape)

    def ended(self, state: FloatArray) -> BoolArray:
        """In which states nothing is left to decide about, (...,): by default where a count is zero."""
        return np.asarray(self.counts_down & (state[..., 0] < self.state_low[0] + 0.5))

    def facts(self) -> dict[str, Any]:
        """JSON-able public facts that identify the problem in a saved policy."""
        names = ("state_low", "state_high", "action_low", "action_high", "initial_state")
        arrays = {name: getattr(self, name).tolist() for name in names}
        boundary = {"boundary": self.boundary.share.tolist(), "side": self.boundary.side}
        return {"kind": type(self).__name__, "horizon": self.horizon} | arrays | boundary

    def changed(self, **facts: Any) -> Self:
        """The same problem with other facts, where these are the constructor's arguments."""
        return type(self)(**{name: fact for name, fact in (self.facts() | facts).items() if name != "kind"})

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], stored: tuple[int, ...]) -> Self:
        """The problem of a file that holds a table for every label value and step, of the shape `stored` (*labels, H).

        A few bytes may declare a horizon of millions. So sizes that the file does not hold are refused, and nothing is
        made before. `facts` are the constructor's arguments.
        """
        require_stored(facts, stored)
        return cls(**facts)

    @property
    def planner(self) -> str:
        """Which planner makes its plans (`learning.planning`)."""
        return "nodes"

    @property
    def needs_own_planner(self) -> bool:
        """Whether its formulas leave something out that only its own planner knows: by default, labels."""
        return bool(self.labels)

    @property
    def state_dim(self) -> int:
        """w."""
        return len(self.state_low)

    @property
    def action_dim(self) -> int:
        """d."""
        return len(self.action_low)

    @property
    def scale_dim(self) -> int:
        """How many scales a row may have: one for all amounts where the state is a count, otherwise none."""
        return 1 if self.counts_down else 0

    @property
    def scales_state(self) -> bool:
        """Whether states are amounts, which a scale divides. A count and its bounds are the same in every unit."""
        return not self.counts_down

    @property
    def arrival_low(self) -> FloatArray:
        """The least that a row's next state and what it shows can be, (w + e,)."""
        return np.concatenate([self.state_low, self.shown_low])

    @property
    def arrival_high(self) -> FloatArray:
        """The most of it."""
        return np.concatenate([self.state_high, self.shown_high])

    def unit_state(self, state: FloatArray) -> FloatArray:
        """States in oriented unit coordinates."""
        return self.boundary.orient((state - self.state_low) / (self.state_high - self.state_low))

    def unit_pair(self, state: FloatArray, action: FloatArray) -> FloatArray:
        """(s, a) in oriented unit coordinates, where the observable region is [0, λ]."""
        unit_action = self.boundary.orient((action - self.action_low) / (self.action_high - self.action_low))
        return np.concatenate([self.unit_state(state), unit_action], axis=-1)

    def natural_state(self, unit: FloatArray) -> FloatArray:
        """The inverse of `unit_state`."""
        return self.state_low + self.boundary.orient(unit) * (self.state_high - self.state_low)

    def natural_pair(self, unit: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The inverse of `unit_pair`."""
        action = self.boundary.orient(unit[..., self.state_dim :])
        span = self.action_high - self.action_low
        return self.natural_state(unit[..., : self.state_dim]), self.action_low + action * span

    def within(self, step: int, unit: FloatArray) -> BoolArray:
        """Which coordinates of unit pairs lie within the boundary, (..., w + d); λ itself counts as inside."""
        reach = self.boundary.reach[step]
        # Where there is no boundary, everything is inside.
        return unit <= np.where(reach < 1, reach + ROUNDING, np.inf)

    def allowed(self, step: int, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Feasible actions that stay within λ. If no action does, the feasible one nearest to λ."""
        low, high = self.feasible(step, state)
        share = self.boundary.share[step, self.state_dim :]
        limit = self.action_low + share * (self.action_high - self.action_low)
        if self.boundary.side == "lower":
            return low, np.maximum(low, np.minimum(high, limit))
        return np.minimum(high, np.maximum(low, limit)), high


def require_stored(facts: Mapping[str, Any], stored: tuple[int, ...]) -> None:
    """Refuse declared labels and steps other than those that a file holds tables for."""
    whole(horizon=facts["horizon"])
    declared = (*(len(values) for _, values in facts.get("labels", [])), facts["horizon"])
    if declared != stored:
        raise ValueError(f"the file declares steps, with labels before them, {declared}, but its tables have {stored}")


class OutcomeProblem(Problem):
    """A problem whose world is exogenous: s′ = f_h(s, a, ξ) with ξ independent of (s, a)."""

    outcome_low: FloatArray  # (k,)
    outcome_high: FloatArray
    censored: bool = True  # whether the log can show an outcome cut off
    shared: tuple[str, ...] = ()  # names of coordinates of states and actions beyond those of the outcomes
    action_sets_state: bool = False  # cost and next state depend on the action alone (order-up-to)
    # Numbers of outcome coordinates of which a row shows one thing only: on which side of a value they lie.
    current_status: tuple[int, ...] = ()
    # Facts that rewards depend on, but neither outcomes nor what a row shows of them.
    costs: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """f_h(s, a, ξ), (..., w + e): the state that follows, and behind it what the row `shows` besides."""

    @abstractmethod
    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """What a row of the log shows of the outcome: its value, and whether it was cut off there, (..., k).

        On the lower side a cut-off value z means ξ ≥ z, on the higher side ξ ≤ z. A coordinate of `current_status` is
        never seen itself: a value z that is not cut off means that ξ lies on the other side of it.
        """

    def cost(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """The true cost when the outcome is known, for evaluation by simulation."""
        return -self.reward(step, state, action, self.next_state(step, state, action, outcome))

    def labelled_cost(
        self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray, cell: IntArray
    ) -> FloatArray:
        """The same in the label cell of each row. By default labels change no cost."""
        return self.cost(step, state, action, outcome)

    def why_unknown(self, other: OutcomeProblem) -> str:
        """Why a model of this problem does not know the outcomes of another one, in words; empty if it does."""
        own, others = self.facts(), other.facts()
        names = [name for name in own | others if own.get(name) != others.get(name) and name not in self.free_facts]
        may = ", ".join(self.free_facts)
        return f"the model was learned with another {names[0]}: in a plan only {may} may differ" if names else ""

    @property
    def free_facts(self) -> tuple[str, ...]:
        """Facts that a plan on the same model may change. After the last step the first one comes again."""
        return ("horizon", *self.costs)

    @property
    def planner(self) -> str:
        """By count, if the state is one; on nodes in few dimensions, where they lie near each other."""
        if self.counts_down:
            return "counts"
        return "nodes" if self.state_dim + self.action_dim <= MOST_ON_NODES else "fitted"

    @property
    def shows_levels(self) -> bool:
        """Whether outcomes are cut off at the actions, and some outcome is seen on one side of them."""
        # One action is the level of all outcomes. With two of them a row would stand in two cells.
        seen = len(self.current_status) < self.outcome_dim
        return self.censored and self.counts_down and self.action_dim == 1 and seen

    def cutoff_reach(self, step: int) -> FloatArray:
        """How far up an outcome can be seen, (k,) in oriented unit coordinates; only the prior uses it."""
        return np.ones(self.outcome_dim)

    def arranged(self, outcomes: FloatArray) -> FloatArray:
        """Outcomes (..., k) that were drawn one by one, as they can happen together. By default, as they are."""
        return outcomes

    @property
    def world(self) -> OutcomeProblem:
        """The problem whose outcomes these are: a model of it knows all that this one needs. By default, itself."""
        return self

    @property
    def outcome_dim(self) -> int:
        """k."""
        return len(self.outcome_low)

    @property
    def bound_share(self) -> FloatArray:
        """The outcome bound of each label cell as a share of `outcome_high`, (*labels.shape, k)."""
        return np.ones((*self.labels.shape, self.outcome_dim))

    @property
    def kinds(self) -> int:
        """How many things a row can show of an outcome: 2 (seen, cut off), or 1 where nothing is ever cut off."""
        return 2 if self.censored else 1

    def seen_coordinates(self, step: int, state: FloatArray, action: FloatArray) -> BoolArray:
        """Which outcome coordinates a row may report, (..., k): none if any coordinate of the pair is beyond λ."""
        inside = self.within(step, self.unit_pair(state, action)).all(axis=-1, keepdims=True)
        return np.broadcast_to(inside, (*inside.shape[:-1], self.outcome_dim))

    def facts(self) -> dict[str, Any]:
        """JSON-able public facts, with the bounds of the outcomes."""
        bounds = {"outcome_low": self.outcome_low.tolist(), "outcome_high": self.outcome_high.tolist()}
        return super().facts() | bounds


class SeparableProblem(OutcomeProblem):
    """An outcome problem that is a sum of one problem per coordinate (w = d = k)."""

    planner = "axes"  # those of its coordinates

    @abstractmethod
    def coordinate_reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """The reward of each coordinate, (..., k); `reward` is their sum."""

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """The sum of the coordinates' rewards."""
        return self.coordinate_reward(step, state, action, next_state).sum(axis=-1)

    @property
    def shows_levels(self) -> bool:
        """Each action is the level of its outcome."""
        return self.censored

    @property
    def scale_dim(self) -> int:
        """One for each coordinate."""
        return self.state_dim

    def seen_coordinates(self, step: int, state: FloatArray, action: FloatArray) -> BoolArray:
        """Coordinate by coordinate: a product beyond its λ does not make the others unobserved."""
        inside = self.within(step, self.unit_pair(state, action))
        return inside[..., : self.state_dim] & inside[..., self.state_dim :]


class LeftoverCosts:
    """What a step of a shop costs: a unit that is left costs `holding`, a missing one `shortage`."""

    holding: FloatArray
    shortage: FloatArray

    def of_leftovers(self, place: Any, left: FloatArray | float, missing: FloatArray | float) -> FloatArray:
        """h (y − D)⁺ + b (D − y)⁺, by both amounts, at a place of the tables of costs."""
        return np.asarray(self.holding[place] * left + self.shortage[place] * missing)


class LevelProblem(LeftoverCosts, SeparableProblem):
    """A separable problem of products in stock, whose best plan orders up to a level.

    Tables of costs are (*labels, H, k). Tomorrow knows what is left, and nothing else.
    """

    products: int  # k
    scale_profile: FloatArray  # (*labels, H, k) how large the scale usually is; only ratios matter
    label_bounds: FloatArray  # (*labels, k) the most demand of each label cell
    demand_max: FloatArray  # (k,) of all of them
    share: FloatArray  # (H, k) λ as a share of it
    planner = "levels"  # of all label cells at once
    action_sets_state = True
    costs = ("holding", "shortage")

    @property
    def needs_own_planner(self) -> bool:
        """Formulas know neither labels nor a scale profile."""
        return bool(self.labels) or bool((self.scale_profile != 1).any())

    @abstractmethod
    def averaged_over(self, unknown: Collection[str], chance: FloatArray) -> Self:
        """The problem of somebody whose values of some labels are unknown, and come by `chance` (*labels, H)."""


def broken_declarations(problem: OutcomeProblem) -> Iterator[tuple[str, str]]:
    """Declarations that contradict each other: what is declared, and what it must be."""
    width, actions, outcomes = problem.state_dim, problem.action_dim, problem.outcome_dim
    if isinstance(problem, SeparableProblem) and not width == actions == outcomes:
        yield "a separable problem", "have as many actions and outcomes as states"
    if problem.counts_down and (width, actions) != (1, 1):
        yield "counts_down", "go with one state and one action"
    shares, shape = problem.bound_share, (*problem.labels.shape, outcomes)
    if np.shape(shares) != shape or not ((shares > 0) & (shares <= 1)).all():
        yield "bound_share", f"have shape {shape} and lie in (0, 1]"
    elif problem.counts_down and (shares != 1).any():
        yield "bound_share", "be one where the state is a count"
