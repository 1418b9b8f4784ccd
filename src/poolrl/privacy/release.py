"""The door: the only code that sees exact counts and noise together. Everything after it is free.

Every release protects one unit of the log, by default one trajectory, when it is replaced by any other. A unit has
max_per_unit slots. A slot that it does not fill counts as unobserved, so totals are public.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.data import counts
from poolrl.data.cells import sees_everything
from poolrl.data.log import Log, refuse_visits
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.partition import Lattice, Partition, Rings
from poolrl.privacy import sensitivity, zcdp
from poolrl.privacy.guarantee import KEEP_IDS, REPLACE_ANY, Guarantee, Mechanism
from poolrl.privacy.noise.secure import SECURE
from poolrl.privacy.noise.source import NoiseSource, Sampler
from poolrl.privacy.released import (
    PrivateLevels,
    PrivateOutcomes,
    PrivateRows,
    PrivateTable,
    PrivateVisits,
)
from poolrl.problems.problem import OutcomeProblem, Problem

# Nodes on which visits are counted.
NODES = (Lattice, Rings)
NOTHING_ON_TOP: Mapping[str, zcdp.Budget] = MappingProxyType({})


def admit(log: object) -> None:
    """Refuse anything but this package's own logs, before it is counted.

    Sensitivities are proved for their counts. A subclass could count in another way.
    """
    kind = type(log)
    if kind is not Trajectories:
        # Here, because engines take long to import. By `is`, because a class may call itself another's subclass.
        from poolrl.data.table import Table

        if kind is not Table:
            raise ValueError(f"a log must be a Trajectories or a Table, and no subclass, got {kind.__name__}")


def moved_by(log: Log) -> int:
    """c: how many trajectories may move with one unit, by what was declared of the log."""
    facts = log.facts
    return sensitivity.moved_trajectories(
        per_unit=facts.max_per_unit, scale_memory=facts.scale_memory, has_units=facts.has_units
    )


def release_outcomes(
    log: Log,
    problem: OutcomeProblem,
    *,
    level_sizes: tuple[int, ...],
    rho: zcdp.Budget,
    noise: NoiseSource,
    on_top: Mapping[str, zcdp.Budget] = NOTHING_ON_TOP,
    edges: Callable[[PrivateOutcomes], IntArray] | None = None,
) -> PrivateOutcomes:
    """Release trees of censored outcome counts: those levels that have as many ranges as `level_sizes` says.

    Budgets `on_top` pay for more tables (`PrivateOutcomes`). `edges` chooses from what was released before where such a
    table is counted.

    Guarantee: ρ-zCDP, by Δ₂² = 2 H k L c² of `sensitivity.outcome_trees` and noise of variance Δ₂² / 2ρ in every node.
    c trajectories move with a unit, by `sensitivity.moved_trajectories`. Every table costs its own budget on top, by
    its formula in `sensitivity.ON_TOP`, which holds for all edges alike: a release may depend on earlier ones
    (composition).
    """
    admit(log)
    # Public facts alone may decide whether a row can be unobserved, and whether the root needs noise.
    complete = sees_everything(problem) and log.is_full
    moved = moved_by(log)
    trees = sensitivity.outcome_trees(
        problem, level_sizes=level_sizes, per_unit=moved, complete=complete, labels_public=log.facts.labels_public
    ).mechanism(rho)
    if unknown := [name for name in on_top if name not in sensitivity.ON_TOP]:
        raise ValueError(f"there is no table {unknown[0]!r}; known tables: {', '.join(sensitivity.ON_TOP)}")
    asked = [name for name in sensitivity.ON_TOP if on_top.get(name)]
    if missing := [name for name in asked if sensitivity.ON_TOP[name].beside_edges and edges is None]:
        raise ValueError(f"{missing[0]} needs edges: say where outcomes are compared")
    tables = {name: sensitivity.ON_TOP[name].layout(problem, per_unit=moved).mechanism(on_top[name]) for name in asked}
    variances = {name: float(table.variance) for name, table in tables.items()}  # a number too large fails here
    log.check(problem)
    exact = counts.count_outcomes(log, problem, level_sizes=level_sizes)
    public_root = sensitivity.root_is_public(problem, level_sizes=level_sizes, complete=complete)

    sampler = noise.begin()
    noisy = [sampler.add(level, trees.variance) for level in exact.levels[int(public_root) :]]
    unobserved = None if complete else sampler.add(exact.unobserved, trees.variance)
    root = [np.full_like(exact.levels[0], log.slots)] if public_root else []
    # Which rows have which labels gets no noise where the data holder declares it public, and is left out elsewhere.
    totals = exact.totals if log.facts.labels_public else None
    guarantee = _guarantee(log, problem, noise, trees, *tables.values())
    nodes = tuple(root + noisy), unobserved, log.slots, float(trees.variance)
    released = PrivateOutcomes(*nodes, guarantee, totals, log.facts.step_labels)
    # All tables come from one sampler: a seed that began anew would give two tables the same noise.
    for name, table in tables.items():
        chosen = edges(released) if edges and sensitivity.ON_TOP[name].beside_edges else None
        noisy_table = sampler.add(counts.ON_TOP[name](log, problem, chosen), table.variance)
        tables_so_far = {**released.on_top, name: PrivateTable(noisy_table, variances[name], chosen)}
        released = replace(released, on_top=tables_so_far)
    return released


def release_visits(
    log: Log, problem: Problem, partition: Partition, *, rho: zcdp.Budget, noise: NoiseSource
) -> PrivateVisits:
    """Release the paper's visit counts, ρ/2 for each of the two tables.

    Guarantee: ρ-zCDP, by Δ₂² = 2 H c² of `sensitivity.visit_tables` for each, that is σ² = 2 H c² / ρ.
    """
    admit(log)
    refuse_visits(log, problem)
    if type(partition) is not Partition or any(
        type(each) not in NODES for each in (partition.states, *partition.pairs)
    ):
        raise ValueError("visits are counted on nodes of this package: Zones or Grid")
    log.check(problem)
    exact = counts.count_visits(log, partition)
    layouts = sensitivity.visit_tables(
        problem, pairs=partition.pair_count, states=partition.state_count, per_unit=log.facts.max_per_unit
    )
    visits, transitions = (layout.mechanism(zcdp.budget(rho) / 2) for layout in layouts)

    sampler = noise.begin()
    pairs = sampler.add(exact.pairs, visits.variance)
    rows = _Transitions(exact, sampler, transitions.variance)
    guarantee = _guarantee(log, problem, noise, visits, transitions)
    return PrivateVisits(pairs, rows, transitions.cells, float(transitions.variance), guarantee)


class _Transitions:
    """Noisy rows of n′(b, s′) on request, each once only: two draws of one row would average its noise away."""

    def __init__(self, exact: counts.VisitCounts, sampler: Sampler, variance: Fraction) -> None:
        self._exact, self._sampler, self._variance = exact, sampler, variance
        self._handed_out = np.zeros(exact.pairs.shape, dtype=bool)
        self._lock = threading.Lock()

    def __call__(self, step: int, rows: IntArray) -> IntArray:
        steps, nodes = len(self._handed_out), self._handed_out[0].size
        # Refused: True, which indexes in another way. Copied as int64: narrow integers wrap around, and a caller may
        # write to its own array while this runs.
        whole = type(step) is int and isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind == "i"
        rows = np.array(rows, dtype=np.int64) if whole else rows
        if not whole or not 0 <= step < steps or ((rows < 0) | (rows >= nodes)).any():
            raise ValueError(f"transitions takes a step in 0 .. {steps - 1} and an array of rows in 0 .. {nodes - 1}")
        with self._lock:
            if (np.diff(rows) <= 0).any() or self._handed_out[step, rows].any():
                raise ValueError("each row of transitions is released once, in ascending order; fit again to pay again")
            self._handed_out[step, rows] = True
        return self._sampler.add(self._exact.transitions(step, rows), self._variance)

    def __reduce_ex__(self, protocol: object) -> str:
        """Refuse: a copy would release rows again, and a file would hold the exact counts."""
        raise TypeError("transitions not yet released can be neither copied nor saved")


def release_rows(log: Trajectories, problem: Problem, *, rho: zcdp.Budget, noise: NoiseSource) -> PrivateRows:
    """Release every action and next state, each with its own noise: input perturbation, for comparison.

    Guarantee: ρ-zCDP for one trajectory, by `sensitivity.logged_numbers`.
    """
    admit(log)
    refuse_visits(log, problem)
    log.check(problem)
    if log.facts.has_units:
        raise ValueError("input perturbation protects single trajectories: leave out unit and max_per_unit")
    mechanism = sensitivity.logged_numbers(problem, trajectories=len(log)).mechanism(rho)
    low = np.concatenate([problem.action_low, problem.state_low])
    high = np.concatenate([problem.action_high, problem.state_high])
    noisy = _on_lattice(np.concatenate([log.actions, log.next_states], axis=2), low, high, mechanism, noise)
    actions, next_states = noisy[:, :, : problem.action_dim], noisy[:, :, problem.action_dim :]
    return PrivateRows(actions, next_states, _guarantee(log, problem, noise, mechanism))


def release_levels(
    levels: FloatArray, log: Trajectories, problem: Problem, *, rho: zcdp.Budget, noise: NoiseSource
) -> PrivateLevels:
    """Release a decision table (H, d) learned from `log` without privacy: output perturbation, for comparison.

    Guarantee: ρ-zCDP for a unit of any number of trajectories, by `sensitivity.decision_table`.
    """
    admit(log)
    refuse_visits(log, problem)
    if levels.shape != (problem.horizon, problem.action_dim):
        raise ValueError(f"levels must have shape {(problem.horizon, problem.action_dim)}, got {levels.shape}")
    mechanism = sensitivity.decision_table(problem).mechanism(rho)
    noisy = _on_lattice(levels, problem.action_low, problem.action_high, mechanism, noise)
    return PrivateLevels(noisy, _guarantee(log, problem, noise, mechanism))


def _on_lattice(
    values: FloatArray, low: FloatArray, high: FloatArray, mechanism: Mechanism, noise: NoiseSource
) -> FloatArray:
    """Noisy numbers, each rounded to a whole number of steps of its public range before."""
    if values.shape[-1] != len(low):  # nobody has paid for what broadcasting would add
        raise ValueError(f"{len(low)} numbers are paid for, got {values.shape[-1]}")
    # Clipped, because a value that rounding put outside its range must not move further than was paid for.
    steps = np.rint(np.clip((values - low) / (high - low), 0.0, 1.0) * sensitivity.LATTICE).astype(np.int64)
    noisy = noise.begin().add(steps, mechanism.variance)
    return np.asarray(low + noisy / sensitivity.LATTICE * (high - low))


def _guarantee(log: Log, problem: Problem, noise: NoiseSource, *mechanisms: Mechanism) -> Guarantee:
    # By `is`, because another class could declare itself equal.
    secure = any(type(noise) is each for each in SECURE)
    unit = "unit" if log.facts.has_units else "trajectory"
    return Guarantee(
        mechanisms,
        secure,
        problem.horizon,
        trajectories_per_unit=log.facts.max_per_unit,
        unit=unit,
        adjacency=KEEP_IDS if log.facts.ids_public else REPLACE_ANY,
        scaled=log.facts.has_scale,
        scale_memory=log.facts.scale_memory,
        labels=("public" if log.facts.labels_public else "protected") if log.facts.label_names else "none",
    )
