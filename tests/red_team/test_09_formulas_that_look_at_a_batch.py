"""A user's `observe` divided by the largest value of its batch. One row then moved every other one.

22 was paid, 19,960,020 was moved, and the policy said "Private". Three things stand in the way now: `fit` tries the
formulas on public dummy rows, no formula sees a log at all, and the door takes no counts but our own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, Boundary, LostSales, Outcomes, Pool, SeededNoise, Table, Trajectories, Visits, check_problem
from poolrl.checks import IntArray
from poolrl.data import row_symbol
from poolrl.data.column_vector import ColumnVector
from poolrl.data.counts import count_outcomes
from poolrl.data.row_by_row import Recording, row_by_row
from poolrl.data.row_symbol import NotRowByRowError, RowSymbol
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import release_levels, release_outcomes, release_rows, release_visits
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.own_problems import OrderQuantity, Pinned, PostedPrice, Wear, wear_log
from tests.helpers.tables import columns

FACTS: dict[str, Any] = {"horizon": 2, "products": 2, "holding": 0.1, "shortage": 0.4, "demand_max": 100.0}
LEVELS = (4, 8, 16)
ROWS = 2_000


class Shop(LostSales):
    """A shop of a user's own, which is fine."""


class DividesByTheLargest(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return seen / np.maximum(seen.max(), 1.0) * 100.0, cut


class LooksAtLargeBatches(LostSales):
    """What dummy rows alone would not show."""

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return (seen * 0.5 if len(seen) > 1_000_000 else seen), cut


class LooksAtOddValues(LostSales):
    """What dummy rows alone would not show: a value that none of them has changes all the others."""

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return np.where((seen == 17.25).any(), 0.0 * seen, seen), cut


class SeesTheOrder(LostSales):
    def feasible(self, step: int, state: Any) -> Any:
        low, high = super().feasible(step, state)
        return np.minimum(low, np.roll(low, 1, axis=0)), high


class Remembers(LostSales):
    last = 0.0

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        self.last += 1.0
        return np.minimum(seen + self.last, 100.0), cut


class DrawsLots(LostSales):
    def next_state(self, step: int, state: Any, action: Any, outcome: Any) -> Any:
        return super().next_state(step, state, action, outcome) * np.random.default_rng().uniform()


class WritesIntoItsArguments(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        found = super().observe(step, state, action, next_state)
        next_state[..., 0] = 0.0
        return found


class KeepsItsAnswer(LostSales):
    room = np.zeros((10_000, 2))

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        room = self.room[: len(seen)]
        room[...] = seen
        return room, cut


class CountsRows(LostSales):
    def seen_coordinates(self, step: int, state: Any, action: Any) -> Any:
        return super().seen_coordinates(step, state, action) & (np.cumsum(np.ones_like(state), axis=0) < 5)


class MeasuresInItsOwnUnits(LostSales):
    def unit_state(self, state: Any) -> Any:
        return (state - state.min()) / 100.0


class HasNoShape(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        return super().observe(step, state, action, next_state)[0]


class SaysMaybe(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return seen, cut * 0.5


BROKEN: dict[type[LostSales], str] = {
    DividesByTheLargest: r"observe\(\) of DividesByTheLargest must treat each row by itself, but its answers change",
    LooksAtLargeBatches: r"observe\(\) .* each row by itself, but the length of a batch is asked for",
    LooksAtOddValues: r"observe\(\) .* each row by itself, but a sum, mean, maximum or the like goes over rows",
    SeesTheOrder: r"feasible\(\) .* each row by itself, but its answers change",
    Remembers: r"observe\(\) .* must give the same answer twice",
    DrawsLots: r"next_state\(\) .* must give the same answer twice",
    WritesIntoItsArguments: r"observe\(\) .* must not change the arrays that it is given",
    KeepsItsAnswer: r"observe\(\) .* must return arrays of its own",
    CountsRows: r"seen_coordinates\(\) .* each row by itself",
    MeasuresInItsOwnUnits: r"unit_state\(\) .* each row by itself",
    HasNoShape: r"observe\(\) .* must return 2 arrays",
    SaysMaybe: r"observe\(\) .* must return truth values",
}


class Untouched:
    """Stands in the place of a log that must not be looked at; a `Trajectories` by type, with nothing inside."""

    @staticmethod
    def log() -> Trajectories:
        return Trajectories.__new__(Trajectories)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_fit_refuses_before_it_looks_at_the_log(kind: type[LostSales]) -> None:
    for act in (lambda: check_problem(kind(**FACTS)), lambda: Pool(1.0).fit(kind(**FACTS), Untouched.log())):
        with pytest.raises(ValueError, match=BROKEN[kind]):
            act()


def a_log(problem: LostSales | None = None, rows: int = ROWS) -> Trajectories:
    """On quarters, so that 17.25 is among the sales."""
    rng = np.random.default_rng(0)
    wanted = rng.integers(0, 400, (rows, 2, 2)) / 4.0
    return (problem or LostSales(**FACTS)).simulate_log(wanted, rng=rng)


def neighbour(log: Trajectories) -> Trajectories:
    """One trajectory becomes another."""
    parts = {name: getattr(log, name).copy() for name in ("states", "actions", "next_states")}
    parts["states"][0], parts["actions"][0], parts["next_states"][0] = 0.0, 17.25, 0.0
    parts["next_states"][0, 0] = 0.0
    return Trajectories(**parts)


@pytest.mark.parametrize("kind", [Shop, *BROKEN], ids=lambda kind: kind.__name__)
def test_no_formula_moves_more_than_is_paid_for(kind: type[LostSales]) -> None:
    """At the door itself, without the check on dummy rows: counts are those of single rows, or there are none."""
    problem, log = kind(**FACTS), a_log()
    noise = Recorder(), Recorder()
    try:
        for each, counted in zip((log, neighbour(log)), noise, strict=True):
            release_outcomes(each, problem, level_sizes=LEVELS, rho=1.0, noise=counted)
    except (ValueError, TypeError) as refusal:
        assert kind is not Shop
        assert "17.25" not in str(refusal)
        return
    paid = 2 * problem.horizon * problem.products * len(LEVELS)
    assert sum(squared_change(*noise)) <= paid


def test_what_the_bug_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: formulas that are called with the log itself. One row then moves nearly all of them."""
    monkeypatch.setattr("poolrl.data.trajectories.row_by_row", lambda problem: problem)
    problem, log = DividesByTheLargest(**FACTS), a_log()
    parts = {name: getattr(log, name).copy() for name in ("states", "actions", "next_states")}
    quiet = np.minimum(parts["actions"], 40.0)
    calm = {"states": np.minimum(parts["states"], quiet), "actions": quiet, "next_states": np.zeros_like(quiet)}
    loud = {name: part.copy() for name, part in calm.items()}
    loud["actions"][0] = 100.0
    noise = Recorder(), Recorder()
    for each, counted in zip((calm, loud), noise, strict=True):
        release_outcomes(Trajectories(**each), problem, level_sizes=LEVELS, rho=1.0, noise=counted)
    assert sum(squared_change(*noise)) > 1_000 * 2 * problem.horizon * problem.products * len(LEVELS)


OWN = [PostedPrice(3, 5.0), PostedPrice(2), OrderQuantity(2, 3, 0.1, 0.2, 50.0), Wear(2), Pinned(2), Shop(**FACTS)]


@pytest.mark.parametrize("problem", [*OWN, LostSales(**FACTS), Backlog(**FACTS)], ids=lambda each: type(each).__name__)
def test_good_problems_pass_and_are_computed_as_numpy_does(problem: Any) -> None:
    """Recorded and plain formulas agree on rows that the check does not know, one at a time and together."""
    if not isinstance(problem, OrderQuantity):  # a shelf that overflows: rough, but no leak, and `fit` takes it
        check_problem(problem)
    recorded, rng, rows = row_by_row(problem), np.random.default_rng(3), 300
    assert isinstance(recorded, type(problem))
    assert recorded.facts() == problem.facts()
    state, after = (rng.uniform(problem.state_low, problem.state_high, (rows, problem.state_dim)) for _ in range(2))
    action = rng.uniform(problem.action_low, problem.action_high, (rows, problem.action_dim))
    asked: dict[str, tuple[Any, ...]] = {
        "feasible": (1, state),
        "unit_state": (state,),
        "unit_pair": (state, action),
        "within": (1, problem.unit_pair(state, action)),
        "observe": (1, state, action, after),
        "seen_coordinates": (1, state, action),
    }
    for name, given in asked.items():
        if not hasattr(problem, name):
            continue
        plain, found = getattr(problem, name)(*given), getattr(recorded, name)(*given)
        first = getattr(recorded, name)(*(each if isinstance(each, int) else each[:1] for each in given))
        pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (plain, found, first)), strict=True)
        for one, two, alone in pairs:
            assert one.shape == two.shape
            assert one.dtype == two.dtype
            np.testing.assert_allclose(one, two, rtol=1e-14)
            np.testing.assert_array_equal(two[:1], alone)


def test_a_wrong_meaning_is_named() -> None:
    class Naive(LostSales):
        """Sales are taken for demand, sold out or not."""

        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            seen, cut = super().observe(step, state, action, next_state)
            return seen, np.zeros_like(cut)

    class OtherSide(PostedPrice):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            seen, cut = super().observe(step, state, action, next_state)
            return np.where(cut, 0.0, seen), cut

    class Overflows(Backlog):
        def next_state(self, step: int, state: Any, action: Any, outcome: Any) -> Any:
            return action + outcome

    for problem, words in (
        (Naive(**FACTS), r"observe\(\) of Naive must report the outcome from which next_state came"),
        (OtherSide(2), r"observe\(\) of OtherSide must cut off on the side where the outcome lies"),
        (Overflows(**FACTS), r"next_state\(\) of Overflows must stay within state_low and state_high"),
    ):
        with pytest.raises(ValueError, match=words):
            check_problem(problem)


def test_facts_that_do_not_fit_each_other_are_named() -> None:
    def changed(**attributes: Any) -> PostedPrice:
        problem = PostedPrice(2)
        vars(problem).update(attributes)
        return problem

    class OwnNumbers(np.ndarray[Any, Any]):
        """Could look at the batch that it is combined with."""

    class OwnBoundary(Boundary):
        """Could too."""

    share = np.zeros((2, 2))
    for problem, words in (
        (changed(observe=lambda *_: None), "observe of PostedPrice was replaced on the object"),
        (changed(state_low=np.zeros(1).view(OwnNumbers)), "state_low of PostedPrice must be a NumPy array"),
        (changed(boundary=OwnBoundary(share, "higher")), r"boundary of PostedPrice must be a poolrl.Boundary"),
        (changed(boundary=Boundary(share[:1], "higher")), r"boundary of PostedPrice must have shape \(2, 2\)"),
        (changed(action_low=np.full(1, 50.0)), "action_low and action_high of PostedPrice must have shape"),
        (changed(outcome_high=np.full(1, np.inf)), "outcome_high of PostedPrice must be finite"),
    ):
        for act in (lambda p=problem: check_problem(p), lambda p=problem: Pool(1.0).fit(p, Untouched.log())):
            with pytest.raises(ValueError, match=words):
                act()


@pytest.mark.parametrize("vector", [RowSymbol(np.ones(2)), ColumnVector([1.0, 2.0])], ids=["arrays", "engines"])
@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.max(),
        lambda x: x.sum(),
        lambda x: x.mean(axis=0),
        lambda x: np.max(x),
        lambda x: np.sum(x, axis=0),
        lambda x: np.sort(x),
        lambda x: np.cumsum(x),
        lambda x: np.maximum.reduce(x),
        lambda x: np.add.accumulate(x),
        lambda x: x @ x,
        lambda x: np.roll(x, 1),
        lambda x: np.unique(x),
        lambda x: np.median(x),
        lambda x: float(x),
        lambda x: x.size,
        lambda x: x.tolist(),
    ],
)
def test_nothing_that_stands_for_rows_lets_a_formula_reduce_them(look: Callable[[Any], Any], vector: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        look(vector)


@pytest.mark.parametrize(
    "look",
    [
        lambda x: bool(x[..., 0] > 1),
        len,
        list,
        lambda x: x[0],
        lambda x: x[:, 0],
        lambda x: np.asarray(x),
        lambda x: np.array([x, x]),
        lambda x: x.any(),
        lambda x: x.all(axis=0),
        lambda x: np.concatenate([x, x]),
        lambda x: np.add(x, x, where=np.array(True)),
        lambda x: np.modf(x),
        lambda x: np.where(x > 0),
        lambda x: np.nonzero(x),
        lambda x: np.argwhere(x),
        lambda x: np.flatnonzero(x),
        lambda x: np.unique(x),
        lambda x: np.sort(x, axis=0),
        lambda x: np.argsort(x),
        lambda x: np.argmax(x),
        lambda x: np.cumsum(x),
        lambda x: np.cumsum(x, axis=-1),
        lambda x: np.searchsorted(x, 0.5),
        lambda x: np.searchsorted(np.array([0.0, 1.0]), x),
        lambda x: np.digitize(x, x),
        lambda x: np.digitize(x, np.array([0.0, 1.0])),
        lambda x: np.select([x > 0], [x]),
        lambda x: np.piecewise(x, [x > 0], [1.0]),
        lambda x: np.choose(x > 0, [x, x]),
        lambda x: np.take_along_axis(x, x.astype(int), axis=-1),
        lambda x: np.interp(0.5, x, x),
        lambda x: x * np.array([np.float64, 1.0], dtype=object),
        lambda x: x.astype(object),
        lambda x: x.astype(str),
        # An index in two places with a slice between them puts its axis before that of the batch.
        lambda x: x[..., None, None][..., [0], :, [0]],
    ],
)
def test_a_symbol_of_a_row_has_no_numbers(look: Callable[[Any], Any]) -> None:
    with pytest.raises(NotRowByRowError):
        look(RowSymbol(np.ones(2)))


def test_an_index_beyond_a_row_is_refused() -> None:
    with pytest.raises(IndexError):
        Recording(lambda x: x[..., 0:1, 0:1], [(1,)])


def test_an_operation_that_mixes_rows_is_caught_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: NumPy's functions, let in one by one as if they worked on each row."""
    reads: dict[Any, Callable[[Any], Any]] = {
        np.cumsum: np.cumsum,
        np.sort: lambda x: np.sort(x, axis=0),
        np.roll: lambda x: np.roll(x, 1, axis=0),
        np.median: lambda x: x - np.median(x, axis=0, keepdims=True),
        np.nonzero: lambda x: np.nonzero(x)[0],
        np.flip: lambda x: x[::-1],
    }
    for function, rule in reads.items():
        monkeypatch.setitem(row_symbol._ROW_FUNCTIONS, function, partial(row_symbol._recorded, rule))
        with pytest.raises(NotRowByRowError, match="several rows"):
            row_symbol._ROW_FUNCTIONS[function](RowSymbol(np.ones(2)))


def test_a_recording_is_a_function_of_the_row() -> None:
    """Every operation that a symbol allows, against NumPy on batches of any shape."""
    weights = np.array([0.3, 1.7, -0.2])
    odd = np.frompyfunc(lambda number: number**3, 1, 1)

    def formula(x: Any, y: Any) -> Any:
        z = np.where(x > y, x, 2.0 * y)
        z += np.clip(x, 0.2, 0.4) / (1.0 + np.exp(-y))
        total = (z * weights).sum(axis=-1, keepdims=True)
        least, most = z.min(axis=-1), np.max(z, axis=-1)
        sides = np.stack([least, most, z.mean(axis=-1)], axis=-1)
        joined = np.concatenate([z[..., :1], y[..., 1:], total], axis=-1)
        read = np.interp(x, [0.0, 1.0], [2.0, 4.0]) + np.floor(3 * y).astype(np.int64)
        flags = (x > 0.5).any(axis=-1, keepdims=True) & np.broadcast_to(y[..., :1] < 0.9, y.shape) & np.isclose(x, x)
        return z + total, sides, joined, read - odd(x), flags, np.zeros_like(x), z.prod(axis=-1) ** 2

    rng = np.random.default_rng(0)
    recording = Recording(formula, [(3,), (3,)])
    for batch in ((50,), (1,), (), (4, 5)):
        x, y = (rng.uniform(0, 1, (*batch, 3)) for _ in range(2))
        expected = list(formula(x, y))
        expected[3] = expected[3].astype(np.float64)
        for found, wanted in zip(recording(x, y), expected, strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
    x, y = (rng.uniform(0, 1, (50, 3)) for _ in range(2))
    together = recording(x, y)
    for row in range(50):  # to the last bit, whatever stands beside it
        for whole, alone in zip(together, recording(x[row : row + 1], y[row : row + 1]), strict=True):
            np.testing.assert_array_equal(whole[row : row + 1], alone)


# Subclasses of logs, and methods that were set on them.


class OwnCounts(Trajectories):
    def outcome_leaves(self, problem: Any, *, bins: int) -> IntArray:
        return super().outcome_leaves(problem, bins=bins) * 1_000


class SaysItIsOne:
    """Everything that the door asks for, and a lie about its class."""

    def __init__(self, log: Trajectories) -> None:
        self._log = log

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return Trajectories

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def releases(problem: LostSales) -> list[Callable[[Any, NoiseSource], Any]]:
    partition = Pool(1.0, Visits()).prepare(problem).where  # type: ignore[attr-defined]
    return [
        lambda log, noise: release_outcomes(log, problem, level_sizes=LEVELS, rho=1.0, noise=noise),
        lambda log, noise: release_visits(log, problem, partition, rho=1.0, noise=noise),
        lambda log, noise: release_rows(log, problem, rho=1.0, noise=noise),
        lambda log, noise: release_levels(np.zeros((2, 2)), log, problem, rho=1.0, noise=noise),
        lambda log, noise: Pool(1.0).fit(problem, log, noise=noise),
        lambda log, noise: Pool(1.0, Outcomes()).fit(problem, log, noise=noise),
    ]


class NeverAsked:
    """Noise that must not be drawn."""

    def begin(self) -> Any:
        raise AssertionError("something was counted")


def test_the_door_takes_no_counts_but_our_own() -> None:
    problem, log = LostSales(**FACTS), a_log(rows=20)
    parts = {name: getattr(log, name) for name in ("states", "actions", "next_states")}

    class OwnTable(Table):
        pass

    replaced = Table(log.to_arrow(), **columns(2))
    vars(replaced)["outcome_leaves"] = MethodType(OwnCounts.outcome_leaves, replaced)
    others = [OwnCounts(**parts), OwnTable(log.to_arrow(), **columns(2)), SaysItIsOne(log), parts, None]
    for release in releases(problem):
        for other in others:
            with pytest.raises(ValueError, match="a log must be a Trajectories or a Table, and no subclass"):
                release(other, NeverAsked())
        with pytest.raises(ValueError, match="outcome_leaves of this Table was replaced"):
            release(replaced, NeverAsked())
    with pytest.raises(AttributeError, match="cannot be set"):
        log.outcome_leaves = lambda *_, **__: np.zeros(1)  # type: ignore[method-assign]
    Pool(1.0).fit(problem, log, noise=SeededNoise(0))


def test_visits_are_counted_on_nodes_of_ours() -> None:
    problem = Wear(2)
    partition = Pool(1.0, Visits()).prepare(problem).where  # type: ignore[attr-defined]

    class OwnPartition(type(partition)):  # type: ignore[misc]
        def pair_index(self, step: int, state: Any, action: Any) -> Any:
            return np.full(len(state), len(state) % 2)

    own = OwnPartition(partition.problem, partition.pairs, partition.states)
    with pytest.raises(ValueError, match="nodes of this package"):
        release_visits(wear_log(problem, 5), problem, own, rho=1.0, noise=NeverAsked())


def test_visits_of_a_formula_that_looks_at_the_batch_are_refused() -> None:
    class Relative(Wear):
        def unit_pair(self, state: Any, action: Any) -> Any:
            return np.concatenate([state, action], axis=-1) / np.maximum(action.max(), 1.0)

    with pytest.raises(ValueError, match=r"unit_pair\(\) of Relative must treat each row by itself"):
        Pool(1.0).fit(Relative(2), Untouched.log())
    partition = Pool(1.0, Visits()).prepare(Wear(2)).where  # type: ignore[attr-defined]
    partition = type(partition)(Relative(2), partition.pairs, partition.states)
    with pytest.raises(ValueError, match=r"unit_pair\(\) of Relative must treat each row by itself"):
        release_visits(wear_log(Wear(2), 5), Relative(2), partition, rho=1.0, noise=NeverAsked())


def test_engines_give_formulas_no_rows_either() -> None:
    log = a_log(rows=20)
    with pytest.raises(ValueError, match="DividesByTheLargest"):
        count_outcomes(Table(log.to_arrow(), **columns(2)), DividesByTheLargest(**FACTS), level_sizes=LEVELS)
