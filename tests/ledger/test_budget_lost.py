"""Two regions with different logs were taken for one: a product that nobody bought looks the same everywhere."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl.data.periods import sketch_of
from poolrl.data.table import Table
from poolrl.ledger.ledger import Sketch
from tests.helpers.ledgers import spent
from tests.helpers.shops import Facts, Run, small_shop, write_config

pytestmark = pytest.mark.usefixtures("no_page")

COLUMNS = {
    part: [f"{name}_0"] for part, name in (("states", "state"), ("actions", "action"), ("next_states", "next_state"))
}


def test_two_regions_with_one_product_that_nobody_bought(tmp_path: Path, facts: Facts, run: Run) -> None:
    for region, seed in (("north", 5), ("south", 6)):
        small_shop(tmp_path, seed=seed)
        table = pq.read_table(tmp_path / "log.parquet")
        for name in ("state_1", "action_1", "next_state_1"):
            table = table.set_column(table.column_names.index(name), name, pa.array(np.zeros(len(table))))
        pq.write_table(table, tmp_path / "log.parquet")
        facts["privacy"]["data_set"] = region
        run("fit", "--new-account", "--config", write_config(tmp_path, facts), "--out", tmp_path / region)
        assert spent(tmp_path, region) == Fraction(1, 2)


def whole_numbers(seed: int, *, weeks: int, steps: int, mean: float) -> Table:
    """Orders and sales in whole units, of a shop where few different weeks are possible."""
    rng = np.random.default_rng(seed)
    level = np.floor(mean + rng.uniform(0, 2 * mean, weeks * steps))
    left = np.maximum(0.0, level - rng.poisson(mean, weeks * steps))
    where = {"trajectory": np.repeat(np.arange(weeks), steps), "step": np.tile(np.arange(steps), weeks)}
    columns = {"state_0": np.zeros(weeks * steps), "action_0": level, "next_state_0": left}
    return Table(pa.table(where | columns), trajectory="trajectory", step="step", **COLUMNS)


@pytest.mark.parametrize(("steps", "mean"), [(1, 3.0), (1, 100.0), (2, 2.0), (7, 1.0)])
def test_regions_that_are_alike_by_chance_are_not_taken_for_one(steps: int, mean: float) -> None:
    sketches = [Sketch(*sketch_of(whole_numbers(seed, weeks=300, steps=steps, mean=mean))) for seed in range(4)]
    assert not any(one.overlaps(other) for one in sketches for other in sketches if one is not other)
    again = Sketch(*sketch_of(whole_numbers(0, weeks=300, steps=steps, mean=mean)))
    assert again.overlaps(sketches[0])


def test_logs_without_a_row_of_any_product_are_not_taken_for_one() -> None:
    """The name of a product was misspelt in both configurations. Each of them has lost its rho, and no more."""
    empty = [Sketch(b"nothing was read", ()) for _ in range(2)]
    assert not empty[0].overlaps(empty[1])
    # All weeks are equal by chance, so that nothing but the whole log can be recognised.
    alike = [Sketch(b"these very rows.", (b"the only mark...",), by_chance=1.0) for _ in range(2)]
    assert alike[0].overlaps(alike[1])


def test_the_chance_of_equal_weeks_is_that_of_good_and_turing() -> None:
    """Four kinds of weeks: once, once, twice, three times. Of two that came once, 2 x 1 / 2 are expected again."""
    level = np.array([1.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0])
    rows = pa.table(
        {"trajectory": range(7), "step": [0] * 7, "state_0": [0.0] * 7, "action_0": level, "next_state_0": [0.0] * 7}
    )
    _, marks, by_chance = sketch_of(Table(rows, trajectory="trajectory", step="step", **COLUMNS))
    assert len(marks) == 4
    assert by_chance == (2 + 2) / 4
