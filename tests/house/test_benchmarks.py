"""What benchmarks compare must be the same, and a table that they write says which code made it."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from benchmarks import report, stale, transcription

from poolrl import LostSales, Pool, __version__

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


def test_a_section_of_the_page_is_replaced_in_its_place(tmp_path: Path) -> None:
    """It carries the version and the commit that made it."""
    from poolrl.paper.write_up import made_by  # here, because it imports matplotlib

    page = tmp_path / "benchmarks.md"
    for name, number in (("one", "1"), ("two", "2"), ("one", "3")):
        section = report.Report(name, f"Section {name}", ("privacy/noise", "pool.py"), page)
        section.table(("what", "seconds"), [["a", number]])
        section.write()
    text = page.read_text()
    assert text.index("Section one") < text.index("Section two")
    assert "| a | 3 |" in text
    assert "| a | 1 |" not in text
    for made in stale.tables("page.md", text):
        assert (made.version, made.places) == (__version__, ("privacy/noise", "pool.py"))
        assert f"poolrl {made.version} ({made.commit})" == made_by()


@pytest.mark.parametrize("page", stale.PAGES)
def test_every_generated_table_says_what_made_it_and_what_it_measures(page: str) -> None:
    text = (ROOT / page).read_text()
    found = list(stale.tables(page, text))
    assert len(found) == max(1, len(re.findall(r"^<!-- end of ", text, re.MULTILINE)))
    for made in found:
        assert re.fullmatch(r"[0-9a-f]{7,}\+?", made.commit), made
        assert all((ROOT / "src/poolrl" / place).exists() for place in made.places), made


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_table_is_stale_once_what_it_measures_has_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for place in ("learning", "data"):
        (tmp_path / "src/poolrl" / place).mkdir(parents=True)
        (tmp_path / "src/poolrl" / place / "law.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    first = git(tmp_path, "rev-parse", "HEAD").strip()
    of_learning, of_data = (stale.Made("page", "run", "1.0.0", first, (place,)) for place in ("learning", "data"))
    (tmp_path / "src/poolrl/learning/law.py").write_text("a = 2\n")
    git(tmp_path, "commit", "-qam", "second")
    assert stale.verdict(of_learning, tmp_path) == "stale: 1 commits since have changed learning"
    assert stale.verdict(of_data, tmp_path) == "up to date"
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", tmp_path.as_uri(), str(shallow))
    assert stale.verdict(of_data, shallow).startswith("cannot tell")
    assert stale.verdict(of_data, Path("/")).startswith("cannot tell")
