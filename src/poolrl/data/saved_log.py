"""The file of a log (still sensitive): what `Trajectories.save` writes and `Trajectories.load` reads."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from poolrl.data.log_labels import packed, unpacked
from poolrl.data.row_rules import PARTS
from poolrl.npz import read_arrays, write_arrays

# Bytes of all arrays of a saved log: no log that fits into memory has more.
LARGEST_LOG_FILE = 2**40
_ALWAYS_SAVED = {*PARTS, "max_per_unit"}
_SAVED = {*_ALWAYS_SAVED, "unit", "scale", "scale_memory", "labels_public", "labels"}


def write_log(path: str | PathLike[str], parts: dict[str, Any]) -> None:
    """Write the arguments that make a log again; what it does not have is left out."""
    labels = parts["labels"]
    absent = {"labels", *(() if labels else ("labels_public",)), *(("scale_memory",) if parts["scale"] is None else ())}
    given = {name: np.asarray(part) for name, part in parts.items() if part is not None and name not in absent}
    write_arrays(path, given | packed(labels))


def read_log(path: str | PathLike[str]) -> dict[str, Any]:
    """The arguments that make a log again."""
    try:
        parts: dict[str, Any] = dict(read_arrays(path, most_bytes=LARGEST_LOG_FILE))
        for name in ("max_per_unit", "scale_memory", "labels_public"):
            if name in parts:
                parts[name] = int(parts[name])
        parts["labels"] = unpacked(parts)
    except (LookupError, ValueError, TypeError, OverflowError):
        # A reader's message about a damaged file may quote bytes of the log.
        raise ValueError(f"{path} is not a log written by Trajectories.save, or is damaged") from None
    if not _ALWAYS_SAVED <= parts.keys() <= _SAVED:
        raise ValueError(f"{path} is not a log written by Trajectories.save") from None
    return parts
