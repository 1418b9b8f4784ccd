"""Reading npz archives of numbers from people one does not know.

NumPy's own reader allocates what a header declares before it looks whether the bytes are there. This one believes
nothing: an array must have exactly the bytes that its member has, and all of them together stay below a limit.
"""

from __future__ import annotations

import math
import zipfile
from os import PathLike
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

PIECE = 2**20
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


class DamagedError(ValueError):
    """Not an archive of numbers, or a damaged one."""


def read_arrays(path: str | PathLike[str], *, most_bytes: int) -> Arrays:
    """Every array of an npz file, by name."""
    with open(path, "rb") as file:
        try:
            return _read_archive(file, most_bytes)
        except DamagedError:
            raise
        except Exception as error:  # whatever readers of damaged archives say is not worth repeating
            raise DamagedError("not an archive of arrays") from error


def _read_archive(file: IO[bytes], most_bytes: int) -> Arrays:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names) or sum(member.file_size for member in members) > most_bytes:
            raise DamagedError("names that come twice, or more bytes than any such file has")
        found: Arrays = {}
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise DamagedError("packed in a way that cannot be unpacked little by little")
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
    content = bytearray(size - stream.tell())
    room = memoryview(content)
    while room:  # in pieces, for what is read at once is unpacked at once
        piece = stream.read(min(len(room), PIECE))
        if not piece:
            raise DamagedError("an array that ends too soon")
        room[: len(piece)] = piece
        room = room[len(piece) :]
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran_order else "C")
