"""What benchmarks compare must be the same, and a table that they write says which code made it."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from benchmarks import departures, stale, transcription
from benchmarks.departures import Sizes, approximation_bound, measured_approximation, optimality_bound

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


def test_the_bounds_worked_by_hand() -> None:
    sizes = Sizes(5, 1, 100, 1.0)
    # E_ρ = 4 √(5 log(4·5·100²·1·2/0.05))
    assert sizes.noise_bound == pytest.approx(4 * math.sqrt(5 * math.log(4 * 5 * 100**2 * 2 / 0.05)))
    assert departures.sample_size(sizes, accuracy=0.5) == pytest.approx((1 + sizes.noise_bound) * 125 / 0.25)
    assert departures.zone_count(sizes, accuracy=0.1, lipschitz=0.5) == pytest.approx(5 * 0.5 * math.sqrt(2) / 0.1)
    # With ‖λ‖₂ = w + d and many trajectories only the first term of Theorem 1 is left: H L √(w + d) / M.
    left = {"lipschitz": 0.5, "boundary_norm": 2}
    assert approximation_bound(sizes, **left) == pytest.approx(2.5 * math.sqrt(2) / 100)
    bounds = [optimality_bound(sizes, trajectories=n, **left) for n in (10**4, 10**8, 10**16)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[2] == pytest.approx(2.5 * math.sqrt(2) / 100, rel=0.01)


@pytest.mark.parametrize("products", [1, 2])
def test_theorem_1_is_kept_by_its_second_term_alone(products: int) -> None:
    """A finding: the error does not fall with M, so the first term is no bound; the printed sum still is."""
    rng, errors = np.random.default_rng(0), []
    for zones in (50, 400):
        measured, lipschitz = measured_approximation(products, zones, rng=rng)
        first, full = (
            approximation_bound(Sizes(1, products, zones, 1.0), lipschitz=lipschitz, boundary_norm=norm)
            for norm in (2 * products, math.sqrt(2 * products))
        )
        assert first < measured <= full
        errors.append(measured)
    assert errors[1] > 0.5 * errors[0]


def test_counting_at_every_informed_node_moves_more_than_was_paid_for() -> None:
    assert departures.change_by_replay() > 10


def test_what_departures_undo_can_still_be_counted_and_planned() -> None:
    problem = LostSales(horizon=5, holding=0.2, shortage=0.3, demand_max=100.0)
    log = problem.simulate_log(np.random.default_rng(0).uniform(0, 100, (50, 5, 1)), rng=np.random.default_rng(1))
    learn = departures.on_visits(lambda nodes: departures.printed(nodes, wide=True), math.inf)
    assert not learn(problem, log, 0).guarantee.private
