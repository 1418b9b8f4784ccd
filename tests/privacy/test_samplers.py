"""The samplers: as a distribution, of which the declared variance passes and others do not, and at their edges."""

from __future__ import annotations

import importlib
import json
import math
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from poolrl import SeededNoise
from poolrl.privacy.noise import inversion as tables
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.inversion import LAST, MOST_GUIDE_BITS, Interval, inversion
from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise, Stream, key_stream, require_sampler
from poolrl.privacy.noise.source import NoiseSource, discrete_gaussian, scale_above

Plant = pytest.MonkeyPatch
LEAST, MOST = secure.TABLED
TINY = Fraction(1, 10**9)


def test_without_opendp_only_tabled_variances_can_be_drawn(monkeypatch: Plant) -> None:
    assert secure.opendp_version() is not None
    for variance in (Fraction(0), LEAST, Fraction(1), MOST, LEAST - TINY, MOST + TINY):
        require_sampler(variance)
    monkeypatch.setattr(secure, "opendp_version", lambda: None)
    for variance in (Fraction(0), LEAST, Fraction(1), MOST):
        require_sampler(variance)
    with pytest.raises(ValueError, match=r"noise of variance 0.01 needs OpenDP's sampler"):
        require_sampler(LEAST - TINY)
    with pytest.raises(ValueError, match=r"noise of variance 2.68e\+08 needs OpenDP's sampler"):
        require_sampler(MOST + TINY)
    with pytest.raises(ValueError, match="OpenDPNoise needs OpenDP's sampler"):
        OpenDPNoise().begin()
    with pytest.raises(ValueError, match="needs OpenDP's sampler"):
        SecureNoise().begin().add(np.zeros(1, dtype=np.int64), MOST + 1)


@pytest.mark.parametrize(
    ("version", "biased"),
    [("0.14.1a2", True), ("0.9.2", True), ("0.14.2", False), ("0.16.0.dev1", False)],
)
def test_biased_versions_of_opendp_are_refused(version: str, biased: bool) -> None:
    with (
        pytest.raises(ImportError, match=f"OpenDP {version} draws biased noise: install opendp >= 0.14.2")
        if biased
        else nullcontext()
    ):
        secure.refuse_biased(version)


def test_biased_versions_of_opendp_cannot_be_imported_past(monkeypatch: Plant) -> None:
    """The module is executed once more as it is imported, and is then what it was."""
    before = dict(vars(secure))
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.14.1")
    try:
        with pytest.raises(ImportError, match="draws biased noise"):
            importlib.reload(secure)
    finally:
        vars(secure).clear()
        vars(secure).update(before)


def test_who_draws_which_variance(monkeypatch: Plant) -> None:
    asked: list[tuple[str, Fraction]] = []
    require_sampler(MOST + TINY)  # OpenDP tests itself once in a process: before its draws are replaced
    monkeypatch.setattr(secure, "_add_by_opendp", lambda counts, v: asked.append(("opendp", v)) or counts)
    table = SimpleNamespace(add=lambda words, counts: None)
    monkeypatch.setattr(tables, "inversion", lambda v: asked.append(("table", v)) or table)
    secure_sampler, by_opendp = secure._SecureSampler(), OpenDPNoise().begin()
    counts = np.arange(3)
    for variance in (LEAST, MOST, LEAST - TINY, MOST + TINY):
        secure_sampler.add(counts, variance)
        by_opendp.add(counts, variance)
    mine = [("table", LEAST), ("table", MOST), ("opendp", LEAST - TINY), ("opendp", MOST + TINY)]
    assert asked[::2] == mine
    assert asked[1::2] == [("opendp", v) for _, v in mine]
    # Without noise nobody is asked, and the counts are copied: whoever gets them may write to them.
    asked.clear()
    for sampler in (secure_sampler, by_opendp, SeededNoise(1).begin()):
        same = sampler.add(counts, Fraction(0))
        assert same is not counts
        assert same.tolist() == [0, 1, 2]
    assert asked == []


def test_draws_of_opendp_that_do_not_fit_are_refused(monkeypatch: Plant) -> None:
    require_sampler(MOST + TINY)
    monkeypatch.setattr(secure, "_opendp_fits", lambda: False)
    for draw in (lambda: require_sampler(MOST + TINY), lambda: OpenDPNoise().begin()):
        with pytest.raises(RuntimeError, match="nothing may be released with them"):
            draw()
    require_sampler(MOST)  # the tables are another sampler


def test_a_draw_of_opendp_takes_its_words_too() -> None:
    """So that a fork is refused there as well."""
    sampler = secure._SecureSampler()
    counts = np.full((2, 3), 10**15)
    noisy = sampler.add(counts, MOST + 1)
    assert sampler._stream.take(0) == 6
    assert (noisy.shape, noisy.dtype) == ((2, 3), np.int64)
    assert (np.abs(noisy - counts) < 40 * math.sqrt(MOST)).all()
    for begun, variance in ((sampler, MOST + 1), (OpenDPNoise().begin(), Fraction(1))):
        begun._stream._process = (0, 0)  # type: ignore[attr-defined]  # as in a fork
        with pytest.raises(RuntimeError, match="belongs to the process that began it"):
            begun.add(counts, variance)


def test_a_scale_is_the_least_double_that_is_enough() -> None:
    rng = np.random.default_rng(1)
    exact = [Fraction(4), Fraction(1, 4), Fraction(int(rng.integers(1, 10**9))) ** 2]
    assert [scale_above(v) for v in exact] == [math.sqrt(v) for v in exact]
    for _ in range(200):
        variance = Fraction(int(rng.integers(1, 10**12)), int(rng.integers(1, 10**6)))
        scale = scale_above(variance)
        assert Fraction(scale) ** 2 >= variance > Fraction(math.nextafter(scale, 0)) ** 2


def seeded(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, 0x9E3779B9]))


@pytest.mark.parametrize("variance", [Fraction(10**9), Fraction(10**22)])  # the second draws beyond 32 bits
def test_wide_seeded_noise_is_a_rounded_normal(variance: Fraction) -> None:
    counts = np.arange(6).reshape(2, 3)
    expected = counts + np.rint(seeded(5).normal(0.0, scale_above(variance), (2, 3))).astype(np.int64)
    assert SeededNoise(5).begin().add(counts, variance).tolist() == expected.tolist()


@pytest.mark.parametrize(("variance", "block"), [(Fraction(200) ** 2, 2**17), (Fraction(1, 3), 5)])
def test_narrow_seeded_noise_is_drawn_by_inversion(variance: Fraction, block: int, monkeypatch: Plant) -> None:
    """One stream for all tables and threads: the same numbers however they are cut into blocks."""
    monkeypatch.setattr("poolrl.privacy.noise.seeded.SEEDED_BLOCK", block)
    counts = np.arange(6).reshape(2, 3)
    scale = math.sqrt(variance)
    support = np.arange(-math.ceil(9 * scale) - 1, math.ceil(9 * scale) + 2)
    weights = np.exp(-(support**2) / (2 * float(variance)))
    above = np.cumsum(weights / weights.sum())
    stream = seeded(5).random(12)
    sampler = SeededNoise(5).begin()
    for uniform in (stream[:6], stream[6:]):
        expected = [int(support[np.argmax(u < above)]) for u in uniform]
        assert (sampler.add(counts, variance) - counts).ravel().tolist() == expected
    mine, probabilities = discrete_gaussian(scale)
    assert mine.tolist() == support.tolist()
    np.testing.assert_allclose(probabilities, weights / weights.sum(), rtol=1e-12, atol=1e-300)


def test_words_are_reserved_in_one_turn_of_the_lock() -> None:
    """Two threads that look at the same place would get the same words."""
    uses: list[bool] = []

    class Watched(Stream):
        __slots__ = ()

        @property
        def _taken(self) -> int:
            uses.append(self._lock.locked())
            return self.__dict__["taken"]

        @_taken.setter
        def _taken(self, value: int) -> None:
            if hasattr(self, "_lock"):
                uses.append(self._lock.locked())
            self.__dict__["taken"] = value

    stream = Watched()
    assert [stream.take(3), stream.take(1)] == [0, 4]
    assert len(uses) >= 6
    assert all(uses)


def test_the_stream_is_aes_in_counter_mode() -> None:
    """Words are taken in whole blocks, and any part of the stream is what single blocks of AES say."""
    stream = Stream()
    assert [stream.take(count) for count in (5, 1, 8, 0, 2)] == [0, 6, 8, 16, 16]
    assert len(stream._key) == secure.KEY_BYTES == 32
    blocks = b"".join(number.to_bytes(16, "big") for number in range(9))
    by_hand = Cipher(algorithms.AES256(stream._key), modes.ECB()).encryptor().update(blocks)
    everything = np.frombuffer(by_hand, dtype="<u8")
    for first, count in ((0, 18), (0, 5), (2, 3), (6, 1), (8, 8), (16, 2), (4, 0)):
        words = stream.words(first, count)
        assert (words.tolist(), words.dtype) == (everything[first : first + count].tolist(), np.uint64)
    assert key_stream(stream._key, 3, 3).tolist() == everything[6:9].tolist()
    assert not np.array_equal(Stream().words(0, 4), everything[:4])


@pytest.mark.parametrize("variance", [Fraction(1, 100), Fraction(1), Fraction(41, 3), Fraction(10**6)])
def test_the_guide_starts_every_search_before_its_end(variance: Fraction) -> None:
    table = inversion(variance)
    edges = [int(each) for each in table.thresholds]
    bits = min(len(edges).bit_length() + 2, MOST_GUIDE_BITS)
    assert (len(table.guide), table.guide.dtype) == (2**bits, np.int32)
    assert table.lowest == -len(edges) // 2
    for at in range(0, 2**bits, max(1, 2**bits // 60)):
        assert table.guide[at] == sum(each <= at << (64 - bits) for each in edges)
    # Every word beside a threshold, and the ends.
    beside = {word for edge in edges for word in (edge - 1, edge + 1) if 0 <= word < LAST} - set(edges)
    words = np.array(sorted(beside), dtype=np.uint64)
    counts = np.zeros(len(words), dtype=np.int64)
    table.add(words, counts, further=lambda: pytest.fail("no word is undecided"))
    expected = table.lowest + np.searchsorted(table.thresholds, words, side="right")
    assert counts.tolist() == expected.tolist()


def test_words_beside_an_undecided_one_are_used_too() -> None:
    """Each cell gets the number of its own word, also after a word that further words had to settle."""
    table = inversion(Fraction(41, 3))
    edge, plain = int(table.thresholds[len(table.thresholds) // 2]), 2**63 + 12345
    words = [plain, edge, 5 * 2**60, edge, edge, plain, LAST, plain]

    def drawn(some: list[int]) -> list[int]:
        counts = np.full(len(some), 1000)
        table.add(np.array(some, dtype=np.uint64), counts, further=lambda: 2**62)
        return counts.tolist()

    assert drawn(words) == [number for word in words for number in drawn([word])]
    assert drawn([5 * 2**60]) != [1000]  # a cell that was left out would show


ONE = 2**64  # the unit of a threshold, where tails have 128 bits


@pytest.mark.parametrize(
    ("bounds", "floors"),
    [
        ([(7 * ONE + 1, 8 * ONE - 1), (1, 9)], [7, 0]),
        ([(7 * ONE, 7 * ONE + 9), (0, 9)], None),  # it may be 7 exactly, and then 1 − tail is rounded in another way
        ([(7 * ONE + 1, 7 * ONE + 9), (5, ONE + 1), (0, 9)], None),
        ([(7 * ONE + 1, 7 * ONE + 9), (ONE + 1, ONE + 2), (0, 9), (0, 1)], [7, 1, 0]),
        ([(7 * ONE + 1, 7 * ONE + 9)], None),  # no tail is small enough to end the table
    ],
)
def test_a_threshold_is_proved_or_there_is_no_table(monkeypatch: Plant, bounds: Any, floors: Any) -> None:
    """By hand: bounds of tails in units of 2⁻¹²⁸, and ⌊2⁶⁴ tail⌋ if both bounds agree on it."""
    monkeypatch.setattr(tables, "upper_tails", lambda _, bits: tuple(Interval(a, b, bits) for a, b in bounds))
    expected = None if floors is None else [*floors[::-1], *(LAST - floor for floor in floors)]
    assert tables._proved(Fraction(1), 128) == expected


# As a distribution.


SIGMAS = (0.7, 1.0, 2.0, 3.0, 5.0, 20.0, 50.0)


def p_value(draws: np.ndarray, sigma: float) -> float:
    """χ² of the whole probability mass function, tails pooled until every cell expects at least 8."""
    support, weights = discrete_gaussian(sigma)
    order = np.argsort(-weights, kind="stable")
    kept = order[weights[order] * len(draws) >= 8]
    low, high = support[kept].min(), support[kept].max()
    inside = (support >= low) & (support <= high)
    cells = np.bincount(np.clip(draws, low - 1, high + 1) - (low - 1), minlength=high - low + 3)
    below, above = weights[support < low].sum(), weights[support > high].sum()
    expected = np.concatenate([[below], weights[inside], [above]]) * len(draws)
    # Fold the two thin tails into their neighbours.
    cells[1] += cells[0]
    cells[-2] += cells[-1]
    expected[1] += expected[0]
    expected[-2] += expected[-1]
    return float(stats.chisquare(cells[1:-1], expected[1:-1] * cells[1:-1].sum() / expected[1:-1].sum()).pvalue)


@pytest.mark.parametrize(
    ("source", "sigma"),
    [
        *(pytest.param(SecureNoise(), sigma, id=f"secure-{sigma}") for sigma in SIGMAS),
        pytest.param(SeededNoise(11), 3.0, id="seeded-3.0"),
        *(
            pytest.param(SeededNoise(11), sigma, id=f"seeded-{sigma}", marks=pytest.mark.slow)
            for sigma in SIGMAS
            if sigma != 3.0
        ),
    ],
)
def test_the_declared_variance_is_accepted_and_others_are_rejected(source: NoiseSource, sigma: float) -> None:
    """2/3 and 3/2 of the variance are far off; 1% is what this many draws can tell."""
    variance = Fraction(str(sigma)) ** 2
    draws = 12_000_000 if sigma == 50 else 6_000_000  # over more cells a difference is harder to see
    drawn = source.begin().add(np.zeros(draws, dtype=np.int64), variance)
    assert p_value(drawn, sigma) > 1e-6
    for share in (2 / 3, 0.99, 1.01, 3 / 2):
        assert p_value(drawn, sigma * share**0.5) < 1e-6


@pytest.mark.parametrize(
    ("sigma", "draws"),
    [(2.0, 50_000), *(pytest.param(sigma, 200_000, marks=pytest.mark.slow) for sigma in (2.0, 50.0))],
)
def test_opendp_draws_the_same_distribution(sigma: float, draws: int) -> None:
    """The cross-check of the one sampler by the other, and of the version that is installed."""
    drawn = OpenDPNoise().begin().add(np.zeros(draws, dtype=np.int64), Fraction(sigma) ** 2)
    assert p_value(drawn, sigma) > 1e-6
    ours = SecureNoise().begin().add(np.zeros(draws, dtype=np.int64), Fraction(sigma) ** 2)
    # Numbers that were drawn: between two of them lies nothing, and no test can tell nothing from nothing.
    edges = np.unique(np.quantile(ours, np.linspace(0, 1, 40)[1:-1], method="lower"))
    table = [np.bincount(np.searchsorted(edges, each), minlength=len(edges) + 1) for each in (drawn, ours)]
    assert stats.chi2_contingency(table).pvalue > 1e-6


RECORDED = json.loads((Path(__file__).parents[1] / "recorded/opendp_0.14.1.json").read_text())


@pytest.mark.parametrize("sigma", RECORDED["histograms"])
def test_the_bias_of_old_versions_of_opendp_would_be_seen(sigma: str) -> None:
    """300,000 draws of version 0.14.1 at each scale, as it made them; the tests above look at more than that."""
    histogram = RECORDED["histograms"][sigma]
    drawn = np.repeat(np.array([int(k) for k in histogram]), list(histogram.values()))
    assert len(drawn) == RECORDED["draws"]
    assert p_value(drawn, float(sigma)) < 1e-6


def test_noise_beyond_32_bits_does_not_saturate() -> None:
    for source in (SecureNoise(), OpenDPNoise()):
        draws = source.begin().add(np.zeros(4000, dtype=np.int64), Fraction(10**20))
        assert np.abs(draws).max() > 2**33
        assert draws.std() == pytest.approx(1e10, rel=0.15)


def test_two_tables_of_one_release_never_share_noise() -> None:
    """And secure noise differs between releases, where seeded noise does not."""
    counts = np.zeros(200, dtype=np.int64)
    for source in (SecureNoise(), OpenDPNoise(), SeededNoise(5)):
        sampler = source.begin()
        assert not np.array_equal(sampler.add(counts, Fraction(50)), sampler.add(counts, Fraction(50)))

    def draw(source: NoiseSource) -> np.ndarray:
        return source.begin().add(counts, Fraction(50))

    for source in (SecureNoise(), OpenDPNoise()):
        assert not np.array_equal(draw(source), draw(source))
    assert np.array_equal(draw(SeededNoise(3)), draw(SeededNoise(3)))
    assert not np.array_equal(draw(SeededNoise(3)), draw(SeededNoise(4)))


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7"])
def test_a_seed_is_a_whole_number(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be a whole number"):
        SeededNoise(seed)
