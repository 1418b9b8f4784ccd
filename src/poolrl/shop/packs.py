"""Orders that can be delivered: whole units, or whole packs on top of the stock."""

from __future__ import annotations

import numpy as np

from poolrl.checks import FloatArray

# A rounding error must not cost a pack.
PART_OF_A_PACK = 1e-9


def orders_in_packs(level: FloatArray, stock: FloatArray, pack: FloatArray, bound: FloatArray) -> FloatArray:
    """The order nearest to level − stock that is a multiple of the pack; half a pack counts as a whole one.

    Where the stock reaches the level nothing is ordered. The stock and the order stay within the public bound, except
    that one pack may break it: a pack that is larger than the bound could never be ordered otherwise.

    >>> level, stock = np.array([20.0, 20.0, 25.0, 20.0, 5.0]), np.array([3.0, 15.0, 25.0, 1.0, 0.0])
    >>> pack, bound = np.array([12.0, 12.0, 12.0, 12.0, 8.0]), np.array([40.0, 40.0, 40.0, 23.0, 5.0])
    >>> orders_in_packs(level, stock, pack, bound).tolist()
    [12.0, 0.0, 0.0, 12.0, 8.0]
    """
    wanted = np.floor((level - stock) / pack + 0.5)
    room = np.floor((bound - stock) / pack + PART_OF_A_PACK)
    return np.asarray(np.minimum(wanted, np.maximum(room, 1.0)) * pack)


def whole_levels(level: FloatArray, stock: FloatArray) -> FloatArray:
    """Levels rounded to whole units. Nothing is sent back, and nothing ordered where enough is there."""
    return np.where(level > stock, np.maximum(np.rint(level), stock), stock)
