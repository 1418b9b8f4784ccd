"""What benchmarks compare must be the same, and a table that they write says which code made it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import stale, transcription

from poolrl import LostSales, Pool

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("products", [1, 2])
def test_the_transcription_is_algorithm_1(products: int) -> None:
    rng = np.random.default_rng(0)
    holding, shortage = rng.uniform(0, 0.5, (2, 3, products))
    problem = LostSales(horizon=3, products=products, holding=holding, shortage=shortage, demand_max=100.0)
    log = problem.simulate_log(rng.uniform(0, 100, (2_000, 3, products)), rng=rng)
    found = transcription.published(problem, log, zones=12, rho=math.inf, rng=None)
    rule = Pool.published(math.inf, 12).fit(problem, log).rule
    assert (found > 0).mean() > 0.3
    np.testing.assert_allclose(found, rule.arrays()["q"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("page", stale.PAGES)
def test_every_generated_table_says_what_made_it_and_what_it_measures(page: str) -> None:
    text = (ROOT / page).read_text()
    found = list(stale.tables(page, text))
    assert len(found) == max(1, len(re.findall(r"^<!-- end of ", text, re.MULTILINE)))
    for made in found:
        assert re.fullmatch(r"[0-9a-f]{7,}\+?", made.commit), made
        assert all((ROOT / "src/poolrl" / place).exists() for place in made.places), made
