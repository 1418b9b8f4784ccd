"""What benchmarks compare must be the same: the transcription finds the library's Q, the contenders the same counts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks import counting, counting_labels, report, transcription
from benchmarks.fitting import a_shop, exponent

from poolrl import Pool


@pytest.mark.parametrize("products", [1, 2])
def test_the_transcription_is_algorithm_1(products: int) -> None:
    problem, log = a_shop(products, 3, 2_000)
    found = transcription.published(problem, log, zones=12, rho=math.inf, rng=None)
    rule = Pool.published(math.inf, 12).fit(problem, log).rule
    assert (found > 0).mean() > 0.3
    np.testing.assert_allclose(found, rule.arrays()["q"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("messy", [False, True])
def test_contenders_count_alike(tmp_path: Path, messy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting.resource, "setrlimit", lambda *_: None)  # it would last, and browsers need more
    path = tmp_path / "log.parquet"
    counting.make_log(path, 40_000, messy=messy)
    names = [name for name in counting.CONTENDERS if not (messy and counting.CONTENDERS[name] is counting.arrays)]
    digests = {counting.timed(name, str(path), 1)[1] for name in names}
    assert len(digests) == 1


def test_contenders_count_labels_and_multiples_alike(tmp_path: Path) -> None:
    path, rows = tmp_path / "log.parquet", 50_000
    counting_labels.make_log(path, rows)
    names = counting_labels.CONTENDERS
    found = {counting_labels.timed(name, where, rows, 1)[1:] for name in names for where in (str(path), None)}
    ((_, counted),) = found
    assert 0.98 * rows < counted < rows


def test_an_exponent_is_the_slope_of_logarithms() -> None:
    sizes = [1.0, 2.0, 4.0, 8.0]
    assert exponent(sizes, [3 * size**1.5 for size in sizes]) == "1.50 ± 0.00"


def test_a_section_of_the_page_is_replaced_in_its_place(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    for name, number in (("one", "1"), ("two", "2"), ("one", "3")):
        section = report.Report(name, f"Section {name}", page)
        section.table(("what", "seconds"), [["a", number]])
        section.write()
    text = page.read_text()
    assert text.index("Section one") < text.index("Section two")
    assert "| a | 3 |" in text
    assert "| a | 1 |" not in text
