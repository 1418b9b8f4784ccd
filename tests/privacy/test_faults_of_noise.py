"""Planted bugs in the noise that once survived: now a test fails under each of them, and `poolrl audit` flags it."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from poolrl import SeededNoise
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import CASES, AuditCase
from poolrl.audit.faults import KNOWN_KEY, can_be_continued, construction_faults, drawn_with, in_child
from poolrl.checks import IntArray
from poolrl.privacy.noise import inversion as tables
from poolrl.privacy.noise import secure as noise
from poolrl.privacy.noise.secure import SecureNoise, Stream, key_stream
from poolrl.problems.inventory import LostSales
from tests.helpers.noisy import Add, spoil_noise

DEFAULT, LABELLED = CASES[0], CASES[5]
# More numbers than are compared pair by pair.
WIDE = AuditCase(
    LostSales(horizon=4, products=3, holding=1.0, shortage=1.0, demand_max=8.0, boundary=0.9), units=60, engine="arrays"
)
TOLD_APART = "the logs can be distinguished better than the claim allows"
SHARED = "two numbers share noise, or its size"
OTHER_KEY = "noise does not follow from the key that the system drew and the stated variance"
Plant = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def no_self_test(monkeypatch: Plant) -> None:
    """An audit must see by itself what the self-test would refuse to release; and no engines, for they are sound."""
    monkeypatch.setattr(noise, "require_sound_sampler", lambda: None)
    monkeypatch.setattr("poolrl.audit.faults.sampler_faults", list)
    monkeypatch.setattr("poolrl.audit.faults._counted_faults", lambda *_: [])


def plant_in_noise(monkeypatch: Plant, change: Callable[[Any], None]) -> None:
    """Change the noise of every tree, (*labels, H, k, kinds, nodes), in place."""

    def spoilt(add: Add, counts: IntArray, variance: Fraction) -> IntArray:
        drawn = add(np.zeros_like(counts), variance)
        if drawn.ndim >= 4:
            change(drawn)
        return counts + drawn

    spoil_noise(monkeypatch, spoilt)


def all_products(drawn: Any) -> None:
    drawn[..., 1:, :, :] = drawn[..., :1, :, :]


def steps_two_apart(drawn: Any) -> None:
    drawn[..., 2, :, :, :] = drawn[..., 0, :, :, :]


def signs_apart(drawn: Any) -> None:
    """The same size in all products, with signs of their own."""
    drawn[..., 1:, :, :] = np.sign(drawn[..., 1:, :, :]) * np.abs(drawn[..., :1, :, :])


def label_cells(drawn: Any) -> None:
    drawn[2] = drawn[0]


@pytest.mark.parametrize(
    ("case", "shared"),
    [
        *((DEFAULT, shared) for shared in (all_products, steps_two_apart, signs_apart)),
        (LABELLED, label_cells),
        (WIDE, all_products),
    ],
)
def test_noise_shared_between_parts_of_a_table(
    monkeypatch: Plant, case: AuditCase, shared: Callable[[Any], None]
) -> None:
    """Two hundred releases are enough, because all cells that share it are looked at together."""
    plant_in_noise(monkeypatch, shared)
    assert SHARED in attack_case(case, releases=200).faults


def test_the_key_of_a_release_is_what_the_system_drew() -> None:
    """All 32 bytes that the system drew, and no others, are the key of AES."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "urandom", lambda size: KNOWN_KEY[:size])
        noisy = SecureNoise().begin().add(np.zeros(301, dtype=np.int64), Fraction(41, 3))
    assert np.array_equal(noisy, drawn_with(KNOWN_KEY, Fraction(41, 3), 301))


def test_a_key_of_40_bits(monkeypatch: Plant) -> None:
    """Its words look uniform, and the self-test must not choose keys. So it is found by construction."""
    honest = Stream.__init__

    def begin(self: Stream) -> None:
        honest(self)
        self._key = sha256(noise.urandom(5)).digest()

    monkeypatch.setattr(Stream, "__init__", begin)
    with pytest.raises(AssertionError):
        test_the_key_of_a_release_is_what_the_system_drew()
    assert construction_faults(Fraction(12)) == [OTHER_KEY]
    assert OTHER_KEY in attack_case(DEFAULT, releases=100).faults
    assert noise.sampler_faults() == []


def rounded(variance: Fraction) -> Fraction:
    return Fraction(round(variance)) if variance > 20 else variance


def test_a_variance_rounded_by_the_sampler(monkeypatch: Plant) -> None:
    """20.34 becomes 20, and the guarantee says 20.34: two percent that no attack sees, but all numbers together do."""
    spoil_noise(monkeypatch, lambda add, counts, v: add(counts, rounded(v)))
    assert construction_faults(Fraction(12)) == [OTHER_KEY]  # by other variances that are tried too
    found = attack_case(DEFAULT, rho=0.59, releases=4000)
    assert found.tables[0].stated.variance == Fraction(24) / 2 / Fraction("0.59")
    assert TOLD_APART not in found.faults
    assert OTHER_KEY in found.faults
    assert "the noise has another variance than is stated" in found.faults


def test_a_variance_rounded_by_the_table(monkeypatch: Plant) -> None:
    honest = tables.inversion
    monkeypatch.setattr(tables, "inversion", lambda variance: honest(rounded(variance)))
    monkeypatch.setattr("poolrl.audit.faults.inversion", tables.inversion)
    assert construction_faults(Fraction(12)) == ["the table of a distribution is not exact", OTHER_KEY]
    assert noise.sampler_faults() == ["tables of the distribution differ from known ones"]


def test_words_without_a_fork_guard(monkeypatch: Plant) -> None:
    """A fork between `take` and `words` would draw its parent's noise."""
    assert not can_be_continued()
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "words", lambda self, first, count: key_stream(self._key, first // 2, count))
        assert can_be_continued()
        assert "a forked process can continue a release" in construction_faults(Fraction(12))
        assert "a forked process can continue a release" in attack_case(DEFAULT, releases=100).faults
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "_refuse_forks", lambda self: None)
        assert can_be_continued()


@pytest.mark.parametrize("same_number", [False, True])
def test_words_are_refused_in_a_fork(same_number: bool, monkeypatch: Plant) -> None:
    """Also if the system gives the new process the number of its parent: forks are counted as well."""
    if same_number:
        monkeypatch.setattr(os, "getpid", lambda: 7)
    stream = Stream()
    first = stream.take(4)

    def asked(words: bool) -> bytes:
        try:
            return stream.words(first, 4).tobytes() if words else str(stream.take(4)).encode()
        except RuntimeError as error:
            return str(error).encode()

    for words in (False, True):
        assert b"begin another after a fork" in in_child(lambda words=words: asked(words))
    assert len(stream.words(first, 4)) == 4


@pytest.mark.parametrize("plant", ["a seed for every release", "one generator for all"])
def test_seeded_noise_that_claims_to_be_private(monkeypatch: Plant, plant: str) -> None:
    if plant == "a seed for every release":
        monkeypatch.setattr(SecureNoise, "begin", lambda self: SeededNoise(7).begin())
    else:  # every release is different, and every process draws the same ones
        monkeypatch.setattr(noise, "urandom", np.random.default_rng(0).bytes)
    found = attack_case(DEFAULT, releases=1000)
    assert "two processes, or two releases, draw the same noise" in found.faults
    assert ("a stretch of noise comes twice" in found.faults) == ("every release" in plant)
