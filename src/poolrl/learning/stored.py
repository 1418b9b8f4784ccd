"""Files of what was learned: arrays, and a JSON text of facts with a checksum. No pickle."""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from typing import Any
from zipfile import ZipFile

import numpy as np

from poolrl.checks import FloatArray
from poolrl.npz import Arrays, read_arrays, write_arrays

# Bytes of all arrays of a file, several times what the largest partitions need, and of its text.
LARGEST_POLICY, MOST_TEXT = 2**29, 2**22


def write_learned(path: str | PathLike[str], facts: dict[str, Any], arrays: Arrays) -> None:
    """Write one npz file. `facts["format"]` says what it holds."""
    text = json.dumps(facts | {"sha256": _checksum(facts, arrays)}, sort_keys=True)
    write_arrays(path, {"facts": np.frombuffer(text.encode(), dtype=np.uint8), **arrays})


def read_learned(path: str | PathLike[str], wanted: str, called: str) -> tuple[dict[str, Any], Arrays]:
    """Facts and arrays of a file in the `wanted` format; refuses what is none, too large, or was changed."""
    try:
        arrays = read_arrays(path, most_bytes=LARGEST_POLICY)
        text = arrays.pop("facts").tobytes()
        if len(text) > MOST_TEXT:
            raise ValueError(f"more text than any {called} has")
        facts = json.loads(text)
        del text
        if facts["format"] != wanted:
            raise ValueError("another format")
        intact = facts.pop("sha256") == _checksum(facts, arrays)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a poolrl {called}, or is truncated") from error
    if not intact:
        raise ValueError(f"{path} was changed after it was saved: its checksum does not fit its content")
    return facts, arrays


def says_it_is(path: str | PathLike[str], wanted: str) -> bool:
    """Whether a file says that it has the `wanted` format; what it holds is checked when it is read."""
    # Only the text of its facts is read: a file may be large, and is read afterwards.
    try:
        with ZipFile(path) as file, file.open("facts.npy") as text:
            return f'"format": "{wanted}"'.encode() in text.read(MOST_TEXT)
    except Exception:  # of whatever is no file of ours: who reads it says so in words
        return False


def _checksum(facts: dict[str, Any], arrays: dict[str, FloatArray]) -> str:
    """SHA-256 of everything in the file. It finds accidents, but a forger can compute it too."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)  # without a copy
    return digest.hexdigest()
