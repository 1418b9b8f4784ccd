"""What one unit can move through a table, whatever order its rows come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from poolrl.data.counts import count_outcomes
from poolrl.privacy.sensitivity import every_level
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.open_log import open_log

Facts = dict[str, dict[str, Any]]


def moved_by_another_unit(folder: Path, facts: Facts, query: str | None) -> tuple[int, int]:
    """Replace one of fifty shops: the squared change of the counts, and what a fit pays for."""
    rng = np.random.default_rng(4)
    table = pq.read_table(folder / "log.parquet")
    shop = pa.array([f"shop {i // 6}" for i in table["trajectory"].to_pylist()])  # 50 shops of 6 trajectories
    table = table.append_column("shop", shop)
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 2}
    facts["log"]["query"] = query
    problem = load_config(_written(folder, facts)).config.problem.posed

    def counts(rows: pa.Table) -> Any:
        pq.write_table(rows.take(rng.permutation(len(rows))), folder / "log.parquet")
        with open_log(load_config(_written(folder, facts))) as log:
            return count_outcomes(log, problem, level_sizes=every_level(16))

    # Another shop in the first one's place, with other numbers, another name and other ids of its weeks.
    mine = pa.compute.equal(table["shop"], "shop 0")
    other = table.filter(pa.compute.equal(table["shop"], "shop 1"))
    other = other.set_column(0, "trajectory", pa.compute.add(other["trajectory"], 7_000))
    other = other.set_column(len(table.column_names) - 1, "shop", pa.array(["another"] * len(other)))
    before = counts(table)
    after = counts(pa.concat_tables([other, table.filter(pa.compute.invert(mine))]))
    moved = sum(int(((a - b) ** 2).sum()) for a, b in zip(before.levels, after.levels, strict=True))
    moved += int(((before.unobserved - after.unobserved) ** 2).sum())
    return moved, 2 * 3 * 2 * len(before.levels) * 2**2


GROUPING = (
    "SELECT trajectory, step, any_value(shop) AS shop, max(state_0) AS state_0, max(state_1) AS state_1, "
    "max(action_0) AS action_0, max(action_1) AS action_1, max(next_state_0) AS next_state_0, "
    "max(next_state_1) AS next_state_1 FROM log GROUP BY trajectory, step"
)


@pytest.mark.parametrize("query", [None, GROUPING], ids=["rows in another order", "a query that groups"])
def test_which_trajectories_a_unit_keeps_depends_on_no_other_unit(
    tmp_path: Path, facts: Facts, query: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of rows is the database's; what moves is what was paid for. By a rank among everybody's, far more."""
    kept = tmp_path / "log.parquet"
    table = pq.read_table(kept)
    moved, paid = moved_by_another_unit(tmp_path, facts, query)
    assert 0 < moved <= paid

    def among_everybody(lives: ir.Table) -> ir.IntegerColumn:
        return ibis.row_number().over(order_by=[lives.trajectory, lives.unit]) % 4

    if query is not None:
        return
    pq.write_table(table, kept)
    monkeypatch.setattr("poolrl.data.table.Table._rank", staticmethod(among_everybody))
    moved, paid = moved_by_another_unit(tmp_path, facts, query)
    assert moved > 5 * paid


def _written(folder: Path, facts: Facts) -> Path:
    (folder / "poolrl.toml").write_text(write_toml(facts))
    return folder / "poolrl.toml"
