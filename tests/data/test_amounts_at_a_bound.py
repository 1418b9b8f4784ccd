"""Amounts exactly at a bound, and what a formula may not ask."""

from __future__ import annotations

import numpy as np
import pytest

from poolrl import Backlog, LostSales
from poolrl.data.cells import left_cells, outcome_cells
from poolrl.data.trace import NotRowByRowError, Recording

BINS = 8


@pytest.mark.parametrize("kind", [LostSales, Backlog])
def test_a_multiple_at_its_bound_is_counted_like_one_beyond(kind: type[LostSales] | type[Backlog]) -> None:
    """Of 8 nobody knows whether it would have been more: with a scale, "at least the bound" begins at the bound."""
    problem = kind(horizon=1, holding=1, shortage=1, demand_max=8.0)

    def cell(sold: float, *, relative: bool) -> int:
        row = (np.array([[0.0]]), np.array([[20.0]]), np.array([[20.0 - sold]]))
        found, observed = outcome_cells(problem, 0, *row, bins=BINS, relative=relative)
        assert observed is True or np.all(observed)
        return int(found[0, 0])

    assert cell(8.0, relative=True) == cell(12.0, relative=True)
    if problem.censored:
        # Just below it is seen, in the last bin; without a scale so is the bound itself.
        assert cell(7.999, relative=True) == cell(8.0, relative=False) == BINS - 1 != cell(8.0, relative=True)


def test_what_is_left_is_rounded_to_the_nearest_part() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0)
    left = np.array([[0.0], [0.12], [0.13], [4.0], [7.87], [7.88], [8.0], [9.0]])
    found, _ = left_cells(problem, 0, np.zeros_like(left), np.full_like(left, 8.0), left, bins=33, relative=False)
    assert found[:, 0].tolist() == [0, 0, 1, 16, 31, 32, 32, 32]


def test_a_formula_that_asks_which_rows_hold_is_refused() -> None:
    with pytest.raises(NotRowByRowError, match=r"np.where without two sides tells which rows hold"):
        Recording(lambda state: np.where(state > 0), [(1,)])
