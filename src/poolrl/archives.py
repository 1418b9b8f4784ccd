"""Reading npz archives of numbers from people one does not know.

NumPy's own reader allocates what a header declares before it looks whether the bytes are there. This one believes
nothing: an array must have exactly the bytes that its member has, and all of them together stay below a limit.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from os import PathLike
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]

# What readers of damaged archives say, beside ValueError; none of it is worth repeating.
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


class DamagedError(ValueError):
    """Not an archive of numbers, or a damaged one."""


def read_arrays(path: str | PathLike[str], *, most_bytes: int) -> Arrays:
    """Every array of an npz file, by name."""
    with open(path, "rb") as file:
        try:
            return _read_archive(file, most_bytes)
        except DamagedError:
            raise
        except _DAMAGES as error:
            raise DamagedError("not an archive of arrays") from error


def _read_archive(file: IO[bytes], most_bytes: int) -> Arrays:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names) or sum(member.file_size for member in members) > most_bytes:
            raise DamagedError("names that come twice, or more bytes than any such file has")
        found: Arrays = {}
        for name, member in zip(names, members, strict=True):
            with archive.open(member) as stream:
                found[name] = _read_array(stream, member.file_size)
        return found


def _read_array(stream: IO[bytes], size: int) -> np.ndarray[Any, np.dtype[Any]]:
    version = npy.read_magic(stream)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, fortran_order, kind = read_header(stream)
    if kind.kind not in "biuf" or any(length < 0 for length in shape):
        raise DamagedError("an array of something else than numbers")
    if math.prod(shape) * kind.itemsize != size - stream.tell():
        raise DamagedError("an array that is larger or smaller than it says")
    content = bytearray(stream.read())  # the archive ends it where its directory says
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran_order else "C")
