"""The same expressions and ids on a small Spark cluster, whose driver and worker are processes apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poolrl import Backlog, LostSales, Pool, Table
from poolrl.data.ids import canonical, canonical_text
from poolrl.problems.inventory import Inventory
from tests.helpers.long_tables import assert_same_long_counts
from tests.helpers.spellings import NO_UNIT, ONE_UNIT, some_texts
from tests.helpers.tables import Make, a_mess, a_shop, assert_same_counts, assert_same_labelled_counts, by_hand, columns


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.xdist_group("spark")
class TestSpark:
    """One cluster for all of them, also where tests run side by side."""

    @pytest.mark.parametrize(("kind", "gridded"), [(LostSales, False), (Backlog, True)])
    def test_counts_like_arrays(self, cluster: Make, kind: type[Inventory], gridded: bool) -> None:
        assert_same_counts(cluster, kind, gridded=gridded)

    def test_counts_labels_and_multiples_like_arrays(self, cluster: Make) -> None:
        assert_same_labelled_counts(cluster)

    def test_counts_long_tables_like_arrays(self, cluster: Make) -> None:
        assert_same_long_counts(cluster)

    @pytest.mark.parametrize("max_per_unit", [None, 3])
    def test_what_cannot_be_used_is_unobserved(self, cluster: Make, max_per_unit: int | None) -> None:
        problem = LostSales(horizon=3, holding=0.2, shortage=0.4, demand_max=10.0)
        mess = a_mess(np.random.default_rng(5))
        units, leaves = by_hand(mess, bins=16, max_per_unit=max_per_unit)
        named = columns(1) | ({"unit": "unit", "max_per_unit": max_per_unit} if max_per_unit else {})
        table = Table(cluster(mess), **named)
        assert table.units == units
        np.testing.assert_array_equal(table.outcome_leaves(problem, bins=16), leaves)

    def test_a_fit_on_a_cluster(self, cluster: Make) -> None:
        problem, log = a_shop(LostSales, gridded=True)
        mine = Pool(np.inf).fit(problem, Table(cluster(log.to_arrow()), **columns(2)))
        np.testing.assert_array_equal(mine.levels, Pool(np.inf).fit(problem, log).levels)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.xdist_group("spark")
def test_spark_reads_ids_like_python(cluster: Callable[[pa.Table], Any]) -> None:
    spellings = [*NO_UNIT, *(text for group in ONE_UNIT for text in group), *some_texts(600)]
    table = cluster(pa.table({"at": range(len(spellings)), "text": pa.array(spellings)}))
    found = table.select("at", "text", id=canonical(table.text)).order_by("at").to_pyarrow()
    assert found["id"].to_pylist() == [canonical_text(text) for text in spellings]
