"""From noisy outcome trees to outcome distributions: shapes, consistent masses, Kaplan-Meier.

Every step is post-processing of released numbers. Much noise leaves the shape, little noise the tree, and σ² = 0 plain
Kaplan-Meier on the bins. As ρ → 0 the result becomes the public prior, which is uniform between the outcome's bounds.
Rounds of a season are learned around the law of the whole season (`season`), also without noise: rows are a sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.resolution import PLANNING_BINS
from poolrl.learning.cell_laws import CellLaws, coarser, explain
from poolrl.learning.current_status import isotonic_laws
from poolrl.learning.exploration import EXPLORED, EXPLORED_BY_CHOICE, continued
from poolrl.learning.kaplan_meier import kaplan_meier, refined
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes, bin_middles, equal_bins, reaches
from poolrl.learning.season import at_own_size, shared_part
from poolrl.learning.totals import mean_left, observed_slots
from poolrl.learning.trees import consistent_masses
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True)
class Cells:
    """Trees of all cells of one `shape` (*labels, H, k): levels (cells, kinds, size), and slots `totals` (cells,)."""

    levels: list[FloatArray]
    variance: float
    totals: FloatArray
    shape: tuple[int, ...]

    @classmethod
    def of(cls, released: PrivateOutcomes, totals: FloatArray) -> Cells:
        """As they were released."""
        levels = [level.reshape(-1, *level.shape[-2:]).astype(np.float64) for level in released.levels]
        return cls(levels, released.variance, totals.ravel(), totals.shape)

    def number_of(self, axis: int) -> IntArray:
        """Which step (−2) or coordinate (−1) each cell belongs to, (cells,)."""
        return np.asarray(np.indices(self.shape)[axis].ravel())

    def whole_season(self) -> Cells:
        """All steps of a label cell and coordinate as one: counts add up, and so do the variances of their noise."""
        steps = self.shape[-2]
        levels = [
            level.reshape(*self.shape, *level.shape[-2:]).sum(axis=-4).reshape(-1, *level.shape[-2:])
            for level in self.levels
        ]
        totals = self.totals.reshape(self.shape).sum(axis=-2).ravel()
        return Cells(levels, self.variance * steps, totals, (*self.shape[:-2], 1, self.shape[-1]))

    def of_each_step(self, season: FloatArray) -> FloatArray:
        """Laws of a season, given to each of its steps, (cells, F)."""
        laws = season.reshape(*self.shape[:-2], 1, self.shape[-1], -1)
        return np.array(np.broadcast_to(laws, (*self.shape, laws.shape[-1]))).reshape(len(self.totals), -1)


def estimate_outcomes(released: PrivateOutcomes, problem: OutcomeProblem, settings: Outcomes) -> OutcomeDistribution:
    """Trees → shapes → consistent masses around them → Kaplan-Meier → equal bins, as far as outcomes reach.

    Where rows show only on which side an outcome lies, isotonic regression stands in the place of Kaplan-Meier.
    """
    totals = observed_slots(released)
    cells, season = Cells.of(released, totals), None
    if problem.one_season and problem.horizon > 1:
        season = cells.of_each_step(_season_laws(cells.whole_season(), problem, settings))
    weights, tried = _step_laws(cells, problem, settings, season)
    # From here on bins lie in their natural order.
    higher = problem.boundary.side == "higher"
    weights = weights.reshape(*cells.shape, -1)[..., :: -1 if higher else 1]
    if tried is not None:
        tried = tried.reshape(*cells.shape, -1)[..., :: -1 if higher else 1]
    tops = reaches(weights)
    every_slot = released.total if released.totals is None else released.totals.mean() * problem.labels.count
    observed = float(np.clip(totals.reshape(-1, *totals.shape[-2:]).sum(axis=0).mean() / max(every_slot, 1), 0.0, 1.0))
    return OutcomeDistribution(
        bin_middles(problem, PLANNING_BINS, tops),
        equal_bins(weights, tops),
        None if tried is None else equal_bins(tried, tops),
        observed,
        totals,
        mean_left(released, problem, totals),
        higher,
        released.variance,
    )


def _season_laws(cells: Cells, problem: OutcomeProblem, settings: Outcomes) -> FloatArray:
    """The law that all rounds of a season have together, (cells, F)."""
    laws = _explained(cells, problem)
    found, _ = _by_kaplan_meier(cells, problem, settings, laws)
    # Where only sides are seen, steps correct the shape together anyway (`isotonic_laws`).
    found[laws.status] = laws.outcomes[laws.status]
    return found


def _step_laws(
    cells: Cells, problem: OutcomeProblem, settings: Outcomes, season: FloatArray | None
) -> tuple[FloatArray, FloatArray | None]:
    """Laws of outcomes and of values that were tried, (cells, F), around the laws of their season (cells, F)."""
    laws = _explained(cells, problem)
    weights, tried = _around(laws, cells, problem, settings)
    if season is None or tried is None or laws.cutoffs is None:
        return weights, tried
    trees, higher = (cells.levels, cells.variance, cells.totals), problem.boundary.side == "higher"
    sized = at_own_size(season, laws.cutoffs, *trees, status=laws.status, higher=higher)
    groups = _same_season(cells.shape)
    part = shared_part(sized, laws.outcomes, laws.cutoffs, *trees, status=laws.status, same_season=groups)[:, None]
    shared, tried_too = _around(replace(laws, outcomes=sized), cells, problem, settings, around_season=True)
    assert tried_too is not None
    return part * shared + (1 - part) * weights, part * tried_too + (1 - part) * tried


def _around(
    laws: CellLaws, cells: Cells, problem: OutcomeProblem, settings: Outcomes, *, around_season: bool = False
) -> tuple[FloatArray, FloatArray | None]:
    """The trees around their shapes: Kaplan-Meier, or isotonic regression where only sides are seen."""
    weights, tried = _by_kaplan_meier(cells, problem, settings, laws, around_season=around_season)
    if tried is not None and (sides := laws.status).any():
        assert laws.cutoffs is not None
        shapes = laws.outcomes[sides], laws.cutoffs[sides]
        trees = [level[sides] for level in cells.levels], cells.variance, cells.totals[sides]
        weights[sides] = isotonic_laws(*trees, *shapes, _same_season(cells.shape)[sides], settings.spread)
        tried[sides] = laws.cutoffs[sides]
    return weights, tried


def _explained(cells: Cells, problem: OutcomeProblem) -> CellLaws:
    """The shapes of all cells."""
    higher = problem.boundary.side == "higher"
    return explain(
        cells.levels,
        cells.variance,
        cells.totals,
        cell_factors(cells.shape),
        steps=cells.number_of(-2),
        reach=np.concatenate([problem.cutoff_reach(step) for step in range(problem.horizon)]),
        status=np.isin(cells.number_of(-1), problem.current_status),
        higher=higher,
        # Zeros are lost from sight first on the higher side, and nobody sees them where only sides are seen.
        closes=not (higher or problem.current_status or problem.one_season),
    )


def _by_kaplan_meier(
    cells: Cells, problem: OutcomeProblem, settings: Outcomes, laws: CellLaws, *, around_season: bool = False
) -> tuple[FloatArray, FloatArray | None]:
    """Laws of outcomes and of cut-off levels, (cells, F): the trees around their shapes, or around their season."""
    bins = cells.levels[-1].shape[-1]
    masses = consistent_masses(
        cells.levels, cells.variance, cells.totals, laws.expected(bins), settings.spread, a_sample=around_season
    )
    weights = refined(kaplan_meier(masses, coarser(laws.outcomes, bins)), laws.outcomes)
    if laws.cutoffs is None:
        return weights, None
    # Outcome and cut-off level censor each other, so the same estimate works with their roles exchanged.
    tried = refined(kaplan_meier(masses[:, ::-1], coarser(laws.cutoffs, bins)), laws.cutoffs)
    if not around_season:  # a season has its tail already
        least = EXPLORED_BY_CHOICE if problem.one_season else EXPLORED
        further = continued(weights, tried, higher=problem.boundary.side == "higher", least=least)
        # The public prior knows its own tail.
        weights = laws.learned * further + (1 - laws.learned) * weights
    return weights, tried


def _same_season(shape: tuple[int, ...]) -> IntArray:
    """One number for all steps of a label cell and coordinate, (cells,)."""
    places = np.indices(shape).reshape(len(shape), -1)
    return np.asarray(np.ravel_multi_index((*places[:-2], places[-1]), (*shape[:-2], shape[-1])))


def cell_factors(shape: tuple[int, ...]) -> list[IntArray]:
    """For each label, step and coordinate, and for each pair of them, the number of its value in every cell, (cells,).

    Pairs are for effects that do not add up: a promotion that runs on weekdays, a shop that is strong on Saturdays. A
    factor with one value, or with a value for every cell, would only repeat what is known without it.
    """
    numbers = np.indices(shape).reshape(len(shape), -1)
    singles = [(number, size) for number, size in zip(numbers, shape, strict=True) if size > 1]
    pairs = [(one * size + two, many * size) for (one, many), (two, size) in combinations(singles, 2)]
    return [number for number, size in [*singles, *pairs] if size < math.prod(shape)]
