"""Fitted value iteration: values without structure in more dimensions than a grid can fill (Munos, Szepesvári 2008).

    Q_h(s, a) = mean over outcomes ξ of cost_h(s, a, ξ)  +  U_h(s, a)
    U_h(s, a) ≈ mean over outcomes ξ of V_{h+1}(f_h(s, a, ξ))       by regression on sampled pairs
    V_h(s)    ≈ min_a Q_h(s, a)                                     by regression on sampled states

All pairs meet the same quasi-random outcomes, so Q is smooth in the action, and a search along its coordinates finds a
minimum. U and V are linear in hinges max(0, w·x + c). States and pairs are those that a plan reaches: first one of
random actions, then the one that was fitted last, with a little less or more than it says.
"""

from dataclasses import asdict, dataclass, replace

import numpy as np

from poolrl.checks import FloatArray, IntArray, whole
from poolrl.problems.problem import OutcomeProblem, Problem

# How often values are fitted on the states of the plan before.
FIT_ROUNDS = 3
# How much less or more than planned is done, so that values are known around the plan too; on every second path
# anything up to the last, and a little besides, so that nothing is believed of actions that were never tried.
LESS, MORE, MUCH_MORE, BESIDES = 0.5, 1.6, 3.0, 0.1
# A search begins with steps of the first share of the allowed box, halves them where nothing is gained any more, and
# ends when they are smaller than the last. From the action of a similar state it need not look so far.
FIRST_STRIDE, NEARBY_STRIDE, LAST_STRIDE = 0.25, 0.04, 0.002
# Hinges of each coordinate; all others lie along random directions.
KNOTS = 6
# Penalty of the regression, beside features of unit size.
RIDGE = 1e-5
# States times outcomes that are looked at together.
PAIRS_AT_ONCE = 2**16


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Values by regression: on `states` points of each step, with this many `hinges`, for `outcomes` of the model."""

    states: int = 512
    hinges: int = 128
    outcomes: int = 256

    def __post_init__(self) -> None:
        whole(states=self.states, hinges=self.hinges, outcomes=self.outcomes)
        if self.outcomes & (self.outcomes - 1):
            raise ValueError(f"outcomes must be a power of two, got {self.outcomes}")


@dataclass(frozen=True)
class Bent:
    """A function of unit points x (m, n) that is linear in 1, x and hinges, (1 + n + F,)."""

    directions: FloatArray  # (n, F)
    offsets: FloatArray  # (F,)
    weights: FloatArray
    least: FloatArray  # () of what it was fitted on: a search must not be drawn to where a line goes on for ever

    def __call__(self, points: FloatArray) -> FloatArray:
        """Its values (m,)."""
        return np.maximum(_features(points, self.directions, self.offsets) @ self.weights, self.least)


@dataclass(frozen=True)
class FittedU:
    """Act by one look ahead: what a step costs for the sampled outcomes, and the fitted cost of what comes after it."""

    after: tuple[Bent, ...]  # U of every step but the last
    outcomes: FloatArray  # (H, S, k) that every decision looks at
    states: FloatArray  # (H, N, w), and the best action of each, (H, N, d): where a search begins
    actions: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray, cell: IntArray | int = 0) -> FloatArray:
        """The best action that is found in each state (m, w). Labels need `Levels`, so there is one cell."""
        assert isinstance(problem, OutcomeProblem)
        after = self.after[step] if step < len(self.after) else None
        start = self.known_action(problem, step, state)
        return _Step(problem, step, self.outcomes[step], after).search(state, start, NEARBY_STRIDE)[0]

    def known_action(self, problem: Problem, step: int, state: FloatArray) -> FloatArray:
        """The action of the nearest state that values were fitted on, (m, d)."""
        # It takes a while to import, and other plans do not need it.
        from scipy.spatial import KDTree

        span = problem.state_high - problem.state_low
        _, nearest = KDTree(self.states[step] / span).query(state / span)
        return np.asarray(self.actions[step][nearest])

    def arrays(self) -> dict[str, FloatArray]:
        """What goes into a file."""
        tables = {"outcomes": self.outcomes, "states": self.states, "actions": self.actions}
        if not self.after:
            return tables
        hinges = [asdict(bent) for bent in self.after]
        return tables | {name: np.stack([parts[name] for parts in hinges]) for name in hinges[0]}


def fit_values(problem: OutcomeProblem, outcomes: FloatArray, settings: Fitted) -> FittedU:
    """Values of every step, from the last to the first, for outcomes (H, S, k)."""
    # Public: it says where values are fitted, and draws no outcome.
    rng = np.random.default_rng(0)
    found: FittedU | None = None
    for _ in range(FIT_ROUNDS):
        states, tried = _reached_pairs(problem, outcomes, found, settings.states, rng)
        actions, later = np.empty_like(tried), []
        value: Bent | None = None  # of the step after
        for step in reversed(range(problem.horizon)):
            here, this = states[step], _Step(problem, step, outcomes[step])
            if value is not None:
                arrived = this.mean(here, tried[step], value)
                after = _regressed(this.pair(here, tried[step]), arrived, settings.hinges, rng)
                this = replace(this, after=after)
                later.append(after)
            low, high = problem.allowed(step, here)
            start = low + FIRST_STRIDE * (high - low) if found is None else found.known_action(problem, step, here)
            actions[step], best = this.search(here, start, FIRST_STRIDE)
            value = _regressed(problem.unit_state(here), best, settings.hinges, rng)
        found = FittedU(tuple(reversed(later)), outcomes, states, actions)
    assert found is not None
    return found


def _reached_pairs(
    problem: OutcomeProblem, outcomes: FloatArray, plan: FittedU | None, many: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """States (H, many, w) and actions on paths of a plan that is not followed to the letter; random ones without it."""
    state = np.broadcast_to(problem.initial_state, (many, problem.state_dim))
    states, actions = (np.empty((problem.horizon, many, n)) for n in (problem.state_dim, problem.action_dim))
    for step in range(problem.horizon):
        low, high = problem.allowed(step, state)
        if plan is None:
            action = low + rng.random(low.shape) * (high - low)
        else:
            planned = plan.known_action(problem, step, state) - low
            near = rng.uniform(LESS, MORE, low.shape) * planned
            far = rng.uniform(0.0, MUCH_MORE, low.shape) * planned + rng.uniform(0, BESIDES, low.shape) * (high - low)
            action = np.clip(low + np.where(np.arange(many)[:, None] % 2 == 0, near, far), low, high)
        states[step], actions[step] = state, action
        drawn = outcomes[step, rng.integers(outcomes.shape[1], size=many)]
        state = problem.next_state(step, state, action, drawn)[..., : problem.state_dim]
    return states, actions


@dataclass(frozen=True)
class _Step:
    """A step in which every state and action meets the same outcomes (S, k); `after` is U, unless it is the last."""

    problem: OutcomeProblem
    step: int
    outcomes: FloatArray
    after: Bent | None = None

    def mean(self, state: FloatArray, action: FloatArray, value: Bent | None = None) -> FloatArray:
        """What the step costs on average, (m,); or the fitted `value` of what its outcomes lead to."""
        problem, means, rows = self.problem, np.empty(len(state)), max(1, PAIRS_AT_ONCE // len(self.outcomes))
        for begin in range(0, len(state), rows):
            here, does = (part[begin : begin + rows, None] for part in (state, action))
            if value is None:
                each = problem.cost(self.step, here, does, self.outcomes[None])
            else:
                arrived = problem.next_state(self.step, here, does, self.outcomes[None])[..., : problem.state_dim]
                each = value(problem.unit_state(arrived.reshape(-1, problem.state_dim))).reshape(len(here), -1)
            means[begin : begin + rows] = each.mean(axis=1)
        return means

    def pair(self, state: FloatArray, action: FloatArray) -> FloatArray:
        """What decides about the next state, in unit coordinates: the action, and the state where it counts."""
        pair = self.problem.unit_pair(state, action)
        return pair[:, self.problem.state_dim :] if self.problem.action_sets_state else pair

    def q(self, state: FloatArray, action: FloatArray) -> FloatArray:
        """Q, (m,)."""
        cost = self.mean(state, action)
        return cost if self.after is None else cost + self.after(self.pair(state, action))

    def search(self, state: FloatArray, start: FloatArray, widest: float) -> tuple[FloatArray, FloatArray]:
        """The best action that is found in each state (m, d), and its Q (m,): along each coordinate, and along all."""
        low, high = self.problem.allowed(self.step, state)
        action = np.clip(start, low, high)
        best = self.q(state, action)
        stride = np.full(len(state), widest)
        ways = np.concatenate([np.eye(action.shape[1]), np.ones((1, action.shape[1]))])
        while (going := np.flatnonzero(stride >= LAST_STRIDE)).size:
            improved = np.zeros(len(state), dtype=bool)
            for way in ways:
                rows = going
                for sign in (1.0, -1.0):
                    moved = sign * stride[rows, None] * way * (high - low)[rows]
                    tried = np.clip(action[rows] + moved, low[rows], high[rows])
                    cost = self.q(state[rows], tried)
                    better = cost < best[rows] - 1e-12 * np.abs(best[rows])
                    action[rows[better]], best[rows[better]] = tried[better], cost[better]
                    improved[rows[better]] = True
                    rows = rows[~better]  # who gained one way need not try the other
                    if not rows.size:
                        break
            stride[going[~improved[going]]] /= 2
        return action, best


def _features(points: FloatArray, directions: FloatArray, offsets: FloatArray) -> FloatArray:
    bent = points @ directions
    bent += offsets
    np.maximum(bent, 0.0, out=bent)
    return np.concatenate([np.ones((len(points), 1)), points, bent], axis=1)


def _regressed(points: FloatArray, target: FloatArray, hinges: int, rng: np.random.Generator) -> Bent:
    """Ridge regression on features of unit size. Hinges bend at quantiles of each coordinate, and at random points."""
    width = points.shape[1]
    knots = np.quantile(points, (np.arange(KNOTS) + 0.5) / KNOTS, axis=0)
    directions = rng.standard_normal((width, max(hinges, KNOTS * width)))
    directions /= np.linalg.norm(directions, axis=0)
    chosen = points[rng.integers(len(points), size=directions.shape[1])]
    offsets = -np.einsum("fw,wf->f", chosen, directions)
    directions[:, : KNOTS * width] = np.repeat(np.eye(width), KNOTS, axis=1)
    offsets[: KNOTS * width] = -knots.T.ravel()
    features = _features(points, directions, offsets)
    size = np.sqrt(np.mean(np.square(features), axis=0)) + 1e-12
    scaled = features / size
    penalty = np.full(scaled.shape[1], RIDGE * len(scaled))
    penalty[0] = 1e-12
    weights = np.linalg.solve(scaled.T @ scaled + np.diag(penalty), scaled.T @ target) / size
    return Bent(directions, offsets, np.asarray(weights), np.asarray(target.min()))
