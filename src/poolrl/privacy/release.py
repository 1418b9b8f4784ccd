"""The door: the only code that sees exact counts and noise together. Everything after it is free.

Every release protects one unit of the log, by default one whole trajectory, when it is replaced by any other.
A unit fills c = max_per_unit slots; a slot it leaves empty counts as unobserved, so that totals are public.
"""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.data.counts import VisitCounts, count_outcomes, count_visits
from poolrl.data.log import Log
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.partition import Partition
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import Guarantee, Mechanism
from poolrl.privacy.noise.secure import SECURE
from poolrl.privacy.noise.source import NoiseSource, Sampler
from poolrl.privacy.released import PrivateLevels, PrivateOutcomes, PrivateRows, PrivateVisits
from poolrl.problems.problem import OutcomeProblem, Problem


def release_outcomes(
    log: Log, problem: OutcomeProblem, *, bins: int, rho: zcdp.Budget, noise: NoiseSource
) -> PrivateOutcomes:
    """Release dyadic trees of censored outcome counts.

    Guarantee: ρ-zCDP. At each step, coordinate and released level a slot stands in at most one node, so a unit
    of c slots can take c from one node and add c to another: Δ₂² = 2 H k L c².
    """
    if bins < 2 or bins & (bins - 1):
        raise ValueError(f"bins must be a power of two, got {bins}")
    log.check(problem)
    counts = count_outcomes(log, problem, bins=bins)
    # Public facts alone decide whether a row can be unobserved and whether the root needs noise.
    complete = problem.boundary.everywhere and log.is_full
    root_is_public = complete and not problem.censored
    levels = len(counts.levels) - root_is_public
    sensitivity_squared = Fraction(2 * problem.horizon * problem.outcome_dim * levels * log.max_per_unit**2)
    variance = zcdp.noise_variance(sensitivity_squared=sensitivity_squared, rho=rho)

    sampler = noise.begin()
    noisy = [sampler.add(level, variance) for level in counts.levels[int(root_is_public) :]]
    unobserved = None if complete else sampler.add(counts.unobserved, variance)
    cells = sum(level.size for level in noisy) + (0 if unobserved is None else unobserved.size)
    # With nothing cut off and nothing unobserved every slot is under the root: a public number, not a count.
    root = [np.full_like(counts.levels[0], log.slots)] if root_is_public else []
    mechanism = Mechanism("outcome trees", cells, sensitivity_squared, variance)
    return PrivateOutcomes(
        levels=tuple(root + noisy),
        unobserved=unobserved,
        total=log.slots,
        variance=float(variance),
        guarantee=_guarantee(log, problem, noise, mechanism),
    )


def release_visits(
    log: Log, problem: Problem, partition: Partition, *, rho: zcdp.Budget, noise: NoiseSource
) -> PrivateVisits:
    """Release the paper's visit counts, ρ/2 for each of the two tables.

    Guarantee: ρ-zCDP. In each table a slot stands in at most one cell per step, so a unit of c slots can take
    c from one cell and add c to another: Δ₂² = 2 H c² each, σ² = 2 H c² / ρ.
    """
    log.check(problem)
    counts = count_visits(log, partition)
    sensitivity_squared = Fraction(2 * problem.horizon * log.max_per_unit**2)
    variance = zcdp.noise_variance(sensitivity_squared=sensitivity_squared, rho=zcdp.budget(rho) / 2)

    sampler = noise.begin()
    pairs = sampler.add(counts.pairs, variance)
    cells = pairs.size * partition.state_count
    mechanisms = (
        Mechanism("visits of nodes", pairs.size, sensitivity_squared, variance),
        Mechanism("transitions between nodes", cells, sensitivity_squared, variance),
    )
    rows = _Transitions(counts, sampler, variance)
    return PrivateVisits(pairs, rows, cells, float(variance), _guarantee(log, problem, noise, *mechanisms))


class _Transitions:
    """Noisy rows of n′(b, s′) on request, none of them twice: two draws of one row would average its noise away."""

    def __init__(self, counts: VisitCounts, sampler: Sampler, variance: Fraction) -> None:
        self._counts, self._sampler, self._variance = counts, sampler, variance
        self._handed_out = np.zeros(counts.pairs.shape, dtype=bool)
        self._lock = threading.Lock()

    def __call__(self, step: int, rows: IntArray) -> IntArray:
        steps, nodes = len(self._handed_out), self._handed_out[0].size
        # True is an index of another kind, narrow integers wrap around, and a caller may write to its array meanwhile.
        whole = type(step) is int and isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind == "i"
        rows = np.array(rows, dtype=np.int64) if whole else rows
        if not whole or not 0 <= step < steps or ((rows < 0) | (rows >= nodes)).any():
            raise ValueError(f"transitions takes a step in 0 .. {steps - 1} and an array of rows in 0 .. {nodes - 1}")
        with self._lock:
            if (np.diff(rows) <= 0).any() or self._handed_out[step, rows].any():
                raise ValueError("each row of transitions is released once, in ascending order; fit again to pay again")
            self._handed_out[step, rows] = True
        return self._sampler.add(self._counts.transitions(step, rows), self._variance)

    def __reduce_ex__(self, protocol: object) -> str:
        """A copy could be asked again, and a file would hold the exact counts."""
        raise TypeError("transitions not yet released can be neither copied nor saved")


# Noise is exact on integers: a number is rounded to this many steps of its public range.
LATTICE = 2**16


def release_rows(log: Trajectories, problem: Problem, *, rho: zcdp.Budget, noise: NoiseSource) -> PrivateRows:
    """Release every action and next state with noise of its own: input perturbation, for comparison.

    Guarantee: ρ-zCDP. A trajectory is H (d + w) numbers, each of which another trajectory may move by its whole range
    of LATTICE steps: Δ₂² = H (d + w) LATTICE².
    """
    log.check(problem)
    if log.has_units:
        raise ValueError("input perturbation protects single trajectories: leave out unit and max_per_unit")
    numbers = np.concatenate(
        [
            _to_lattice(log.actions, problem.action_low, problem.action_high),
            _to_lattice(log.next_states, problem.state_low, problem.state_high),
        ],
        axis=2,
    )
    sensitivity_squared = Fraction(log.horizon * numbers.shape[2] * LATTICE**2)
    variance = zcdp.noise_variance(sensitivity_squared=sensitivity_squared, rho=rho)
    noisy = noise.begin().add(numbers, variance)
    mechanism = Mechanism("logged numbers", noisy.size, sensitivity_squared, variance)
    return PrivateRows(
        _from_lattice(noisy[:, :, : problem.action_dim], problem.action_low, problem.action_high),
        _from_lattice(noisy[:, :, problem.action_dim :], problem.state_low, problem.state_high),
        _guarantee(log, problem, noise, mechanism),
    )


def release_levels(
    levels: FloatArray, log: Trajectories, problem: Problem, *, rho: zcdp.Budget, noise: NoiseSource
) -> PrivateLevels:
    """Release a decision table (H, d) learned from `log` without privacy: output perturbation, for comparison.

    Guarantee: ρ-zCDP. Nothing is known of the learner, so each of the H d entries may move by the whole range of
    actions, LATTICE steps: Δ₂² = H d LATTICE². This holds for a unit of any number of trajectories.
    """
    exact = _to_lattice(levels, problem.action_low, problem.action_high)
    sensitivity_squared = Fraction(exact.size * LATTICE**2)
    variance = zcdp.noise_variance(sensitivity_squared=sensitivity_squared, rho=rho)
    noisy = noise.begin().add(exact, variance)
    mechanism = Mechanism("decision table", noisy.size, sensitivity_squared, variance)
    return PrivateLevels(
        _from_lattice(noisy, problem.action_low, problem.action_high), _guarantee(log, problem, noise, mechanism)
    )


def _to_lattice(values: FloatArray, low: FloatArray, high: FloatArray) -> IntArray:
    # Clipped: a value that rounding errors of the log put outside must not move further than was paid for.
    return np.rint(np.clip((values - low) / (high - low), 0.0, 1.0) * LATTICE).astype(np.int64)


def _from_lattice(numbers: IntArray, low: FloatArray, high: FloatArray) -> FloatArray:
    return np.asarray(low + numbers / LATTICE * (high - low))


def _guarantee(log: Log, problem: Problem, noise: NoiseSource, *mechanisms: Mechanism) -> Guarantee:
    return Guarantee(
        mechanisms=mechanisms,
        secure=any(type(noise) is each for each in SECURE),  # nobody else's word is taken for it
        steps=problem.horizon,
        trajectories_per_unit=log.max_per_unit,
        unit="unit" if log.has_units else "trajectory",
    )
