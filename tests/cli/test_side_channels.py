"""What a fit leaves behind follows from public facts and released numbers, also in its size. And what measures that."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from benchmarks.measured_fits import LEDGER, FitPlace, _content_of, files_that_differ, fixed_noise, places_of
from benchmarks.neighbour_logs import PAIRS, LogPair
from benchmarks.side_channels import Finding
from scipy.stats import mannwhitneyu

from poolrl.audit.faults import Frozen
from poolrl.checks import IntArray
from tests.helpers.shops import DRAWN, RELEASE, Run

# Its logs differ most, in rows and in what is observed.
MOST_DIFFERENT = "10,000 rows against one"


def pair_named(name: str) -> LogPair:
    (found,) = [pair for pair in PAIRS if pair.name == name]
    return found


def finding(first: list[float], second: list[float]) -> Finding:
    return Finding("time", "a pair", np.array(first, dtype=float), np.array(second, dtype=float))


def test_files_and_the_ledgers_growth_follow_from_public_facts_and_released_numbers(tmp_path: Path) -> None:
    found = []
    with fixed_noise():
        for place in places_of(pair_named(MOST_DIFFERENT), tmp_path):
            release = place.fit().folder
            growth = _content_of(place.folder / LEDGER) - _content_of(place.before / LEDGER)
            found.append({path.name: path.read_bytes() for path in release.iterdir()} | {LEDGER: str(growth).encode()})
    assert {*found[0]} >= {*RELEASE} - DRAWN
    assert [name for name in found[0] if found[0][name] != found[1].get(name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("pair", [p for p in PAIRS if p.name != MOST_DIFFERENT], ids=lambda pair: pair.name)
def test_all_that_a_fit_shows_is_the_same_to_the_byte_if_its_tables_are(
    pair: LogPair, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    def shown(place: FitPlace) -> dict[str, bytes]:
        said = run("fit", "--config", place.renew().path, "--out", place.release)
        return {path.name: path.read_bytes() for path in place.release.iterdir()} | {"on the screen": said.encode()}

    drawn = pair.name == "sells nothing"  # a page follows from the policy, so one pair may draw it for all
    if not drawn:
        request.getfixturevalue("no_page")
    places = places_of(pair, tmp_path)
    if pair.name != "the same log twice":
        assert places[0].log.read_bytes() != places[1].log.read_bytes()
    with fixed_noise():
        first, second = map(shown, places)
    assert {*first} >= (RELEASE if drawn else RELEASE - DRAWN)
    assert [name for name in first | second if first.get(name) != second.get(name)] == []


class WithoutNoiseOnce(Frozen):
    """A planted bug: what is unobserved is released as it is."""

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        return counts.copy() if counts.ndim == 2 else super().add(counts, variance)


@pytest.mark.slow
def test_a_number_without_noise_is_found(tmp_path: Path, short_forecast: None) -> None:
    places = places_of(pair_named("numbers out of bounds"), tmp_path)
    assert files_that_differ(places) == []
    with patch("benchmarks.measured_fits.Frozen", WithoutNoiseOnce):
        assert {"policy.npz", "certificate.json"} <= {*files_that_differ(places)}


def test_the_auc_by_hand_and_by_another_formula() -> None:
    # Of the four pairs (first, second) three are larger and one is equal.
    assert finding([1, 2], [2, 3]).auc == 3.5 / 4
    assert finding([1, 2], [2, 3]).difference == pytest.approx(2 / 3)
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 9, 30).tolist(), rng.integers(2, 11, 20).tolist()
    assert finding(first, second).auc == pytest.approx(mannwhitneyu(second, first).statistic / (30 * 20))


def test_the_permutation_test_counts_all_ways_to_exchange_the_logs() -> None:
    numbers = {1.0, 2.0, 4.0, 7.0, 11.0, 16.0}
    found = finding([1.0, 2.0, 7.0], [4.0, 11.0, 16.0])
    aucs = [finding(list(part), list(numbers - {*part})).auc for part in itertools.combinations(numbers, 3)]
    exact = np.mean([abs(auc - 0.5) >= abs(found.auc - 0.5) for auc in aucs])
    assert found.p_value == pytest.approx(exact, abs=0.02)
