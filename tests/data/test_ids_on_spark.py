"""Spark reads ids like Python: the rule of `data/ids.py` on the engine that has least of Unicode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from poolrl.data.ids import canonical, canonical_text
from tests.helpers.spellings import NO_UNIT, ONE_UNIT, some_texts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.xdist_group("spark")
def test_spark_reads_ids_like_python(cluster: Callable[[pa.Table], Any]) -> None:
    spellings = [*NO_UNIT, *(text for group in ONE_UNIT for text in group), *some_texts(600)]
    table = cluster(pa.table({"at": range(len(spellings)), "text": pa.array(spellings)}))
    found = table.select("at", "text", id=canonical(table.text)).order_by("at").to_pyarrow()
    assert found["id"].to_pylist() == [canonical_text(text) for text in spellings]
