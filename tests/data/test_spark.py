"""The same expressions and ids on a small Spark cluster, whose driver and worker are processes apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poolrl import LostSales, Pool, Table
from poolrl.data.ids import canonical, canonical_texts
from tests.helpers.long_tables import MESSES, a_mess, as_table, by_hand, long
from tests.helpers.spellings import NO_UNIT, ONE_UNIT, some_texts
from tests.helpers.tables import Make, a_shop, assert_counted_like_arrays, columns, wide


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.xdist_group("spark")
class TestSpark:
    """One cluster for all of them, also where tests run side by side."""

    @pytest.mark.parametrize("form", [wide, long])
    @pytest.mark.parametrize("name", ["lost sales", "backlog on a grid", "labels and units"])
    def test_counts_like_arrays(self, cluster: Make, name: str, form: Any) -> None:
        assert_counted_like_arrays(
            name, lambda log, clip: form(log, clip, cluster), everything=form is wide and name != "backlog on a grid"
        )

    @pytest.mark.parametrize("products", MESSES)
    def test_what_cannot_be_used_is_unobserved(self, cluster: Make, products: int) -> None:
        problem, named = MESSES[products]
        rows = a_mess(np.random.default_rng(5), products)
        units, leaves, _ = by_hand(rows, products, bins=4, max_per_unit=2, labels_public=False)
        table = Table(cluster(as_table(rows)), **named, max_per_unit=2)
        assert table.units == units
        np.testing.assert_array_equal(table.outcome_leaves(problem, bins=4), leaves)

    def test_a_fit_on_a_cluster(self, cluster: Make) -> None:
        problem, log = a_shop(LostSales, gridded=True)
        mine = Pool(np.inf).fit(problem, Table(cluster(log.to_arrow()), **columns(2)))
        np.testing.assert_array_equal(mine.levels, Pool(np.inf).fit(problem, log).levels)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.xdist_group("spark")
def test_spark_reads_ids_like_python(cluster: Callable[[pa.Table], Any]) -> None:
    spellings = [*NO_UNIT, *(text for group in ONE_UNIT.values() for text in group), *some_texts(600)]
    table = cluster(pa.table({"at": range(len(spellings)), "text": pa.array(spellings)}))
    found = table.select("at", "text", id=canonical(table.text)).order_by("at").to_pyarrow()
    assert found["id"].to_pylist() == canonical_texts(spellings)
