"""A law on bins, and how it is read: between edges, on other bins, and at random."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from poolrl.checks import FloatArray, IntArray


@dataclass(frozen=True)
class Law:
    """Weights of outcomes (..., B), each spread evenly over its bin. Places are counted in bins, from 0 to B."""

    weights: FloatArray

    @cached_property
    def below(self) -> FloatArray:
        """The weight below each of the B + 1 edges."""
        return cumulative(self.weights)

    def share_up_to(self, places: FloatArray) -> FloatArray:
        """The share of the weight that lies below each place, (..., n)."""
        return read_at(self.below / self.below[..., -1:], np.clip(places, 0, self.weights.shape[-1]))

    def between(self, places: FloatArray) -> FloatArray:
        """The weight from each place to the next one, (..., n − 1); the last part also holds all that lies beyond."""
        reached = read_at(self.below, np.clip(places, 0, self.weights.shape[-1]))
        reached[..., -1] = self.below[..., -1]
        return np.maximum(np.diff(reached, axis=-1), 0.0)

    def places_at(self, shares: FloatArray) -> FloatArray:
        """Where shares (n,) of each law's weight are reached, (..., n), of laws (k, B)."""
        edges = np.arange(self.below.shape[-1])
        return np.stack([np.interp(shares, law / law[-1], edges) for law in self.below])

    def bins_at(self, shares: FloatArray) -> IntArray:
        """The bins in which shares (n,) of one law's weight lie."""
        place = np.searchsorted(self.below[1:], shares * self.below[-1], side="right")
        return np.minimum(place, len(self.weights) - 1)

    def bins_beyond(self, laws: IntArray, bins: IntArray, shares: FloatArray) -> IntArray:
        """The bins in which shares of the weight from a bin on lie; `laws` says of which law (L, B) each is."""
        below, (number, size) = self.below / self.below[:, -1:], self.weights.shape
        reached = below[laws, bins]
        # Laws one after another make one rising list, so one search serves all.
        rising = (below[:, 1:] + np.arange(number)[:, None]).ravel()
        found = np.searchsorted(rising, laws + reached + (1 - reached) * shares) - laws * size
        return np.clip(found, bins, size - 1)


def cumulative(weights: FloatArray) -> FloatArray:
    """The weight below each of the B + 1 edges, (..., B + 1), of weights (..., B) on bins."""
    return np.concatenate([np.zeros_like(weights[..., :1]), np.cumsum(weights, axis=-1)], axis=-1)


def read_at(values: FloatArray, places: FloatArray) -> FloatArray:
    """Values (..., N) at places (..., n) between 0 and N − 1, linear in between."""
    lower = np.minimum(places.astype(np.int64), values.shape[-1] - 2)
    part, lower = places - lower, np.broadcast_to(lower, (*values.shape[:-1], lower.shape[-1]))
    here, after = np.take_along_axis(values, lower, -1), np.take_along_axis(values, lower + 1, -1)
    return np.asarray(here * (1 - part) + after * part)


def places_of(unit: FloatArray, bins: int) -> FloatArray:
    """Where values of the unit range lie on the bins of `bin_edges`: i + (u B² − i²) / (2i + 1)."""
    # The edges are squares, so the place of a value among them is a square root.
    lower = np.minimum(np.floor(np.sqrt(unit) * bins), bins - 1)
    return np.asarray(lower + np.clip((unit * bins**2 - lower**2) / (2 * lower + 1), 0.0, 1.0))
