"""The same expressions on a Spark cluster, a small one on this machine: driver and worker are processes apart."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import Backlog, LostSales, Pool, Table
from poolrl.problems.inventory import Inventory
from tests.helpers.tables import Make, a_mess, a_shop, assert_same_counts, assert_same_labelled_counts, by_hand, columns


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Lets a Spark cluster of one worker read an Arrow table from Parquet; an Ibis table of it."""
    if shutil.which("java") is None:
        if os.environ.get("POOLRL_TEST_EVERYTHING"):
            pytest.fail("Java is not installed")
        pytest.skip("Spark needs Java (Debian: openjdk-17-jre-headless)")
    pyspark = pytest.importorskip("pyspark.sql", reason="needs Spark: pip install 'poolrl[spark]'")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        pyspark.SparkSession.builder.master("local-cluster[1,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than counting so few rows
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    connection, folder, numbers = ibis.pyspark.connect(session), tmp_path_factory.mktemp("spark"), itertools.count()

    def make(table: pa.Table) -> Any:
        path = folder / f"{next(numbers)}.parquet"
        pq.write_table(table, path)
        return connection.read_parquet(path)

    yield make
    session.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.xdist_group("spark")
class TestSpark:
    """One cluster for all of them, also where tests run side by side."""

    @pytest.mark.parametrize(("kind", "gridded"), [(LostSales, False), (Backlog, True)])
    def test_counts_like_arrays(self, cluster: Make, kind: type[Inventory], gridded: bool) -> None:
        assert_same_counts(cluster, kind, gridded=gridded)

    def test_counts_labels_and_multiples_like_arrays(self, cluster: Make) -> None:
        assert_same_labelled_counts(cluster)

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
