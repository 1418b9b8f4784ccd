"""Many releases from one count: the door counts once, and every sampler adds its own noise.

A count in an engine takes a tenth of a second, and it is the same for each release of a log. Each of the releases has a
sampler of its own, begun as for a fit, and gets the same calls from the door as the sampler of a fit does.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from poolrl.audit.evidence import Rows
from poolrl.checks import IntArray
from poolrl.privacy.noise.source import NoiseSource, Sampler


class Repeated:
    """A source of noise that draws for many releases at once, and keeps what each of them would have released."""

    def __init__(self, sources: Iterable[NoiseSource]) -> None:
        self._sources = list(sources)
        self._tables: list[Rows] = []
        self.variances: list[Fraction] = []

    def begin(self) -> Sampler:
        """A sampler for every release."""
        return _RepeatedSampler([source.begin() for source in self._sources], self._tables, self.variances)

    @property
    def numbers(self) -> Rows:
        """What was drawn, (releases, numbers), in the order in which the door asked for it."""
        return np.concatenate(self._tables, axis=1)


class _RepeatedSampler:
    def __init__(self, samplers: list[Sampler], tables: list[Rows], variances: list[Fraction]) -> None:
        self._samplers, self._tables, self._variances = samplers, tables, variances

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        noisy = [sampler.add(counts, variance) for sampler in self._samplers]
        self._tables.append(np.stack([each.ravel() for each in noisy]).astype(np.int32))
        self._variances.append(variance)
        return noisy[0]
