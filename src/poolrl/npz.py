"""Npz archives of numbers that may come from strangers.

NumPy's own reader allocates what a header declares, before it knows whether the bytes are there. This reader trusts no
header: an array must have exactly the bytes of its member, and all arrays together must stay below a limit. The limit
grows with the file, so that a small file cannot unpack to very much.
"""

import math
import os
import zipfile
from os import PathLike
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
# Bytes that every file may unpack to, and how many more for each byte of its own.
SMALL_UNPACKED, MOST_UNPACKED = 2**25, 32


class DamagedError(ValueError):
    """Not an archive of numbers, or a damaged one."""


def write_arrays(path: str | PathLike[str], arrays: Arrays) -> None:
    """Write arrays so that `read_arrays` reads them: packed, or plain where they pack too well."""
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    headers = 2**16  # room for those of all arrays
    if sum(array.nbytes for array in arrays.values()) + headers > _unpacked_at_most(os.path.getsize(path)):
        with open(path, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def _unpacked_at_most(size: int) -> int:
    return SMALL_UNPACKED + MOST_UNPACKED * size


def read_arrays(path: str | PathLike[str], *, most_bytes: int) -> Arrays:
    """Every array of an npz file, by name."""
    with open(path, "rb") as file:
        try:
            return _read_archive(file, min(most_bytes, _unpacked_at_most(os.fstat(file.fileno()).st_size)))
        except DamagedError:
            raise
        except Exception as error:
            # Readers of damaged archives raise many kinds of errors, and none of their messages helps a user.
            raise DamagedError("not an archive of arrays") from error


def _read_archive(file: IO[bytes], most_bytes: int) -> Arrays:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names) or sum(member.file_size for member in members) > most_bytes:
            raise DamagedError("a name appears twice, or there are more bytes than such a file can have")
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise DamagedError("a compression that cannot be unpacked piece by piece")
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
        raise DamagedError("an array that does not hold numbers")
    if math.prod(shape) * kind.itemsize != size - stream.tell():
        raise DamagedError("an array that is larger or smaller than its header says")
    content = bytearray(stream.read(size - stream.tell()))  # as many bytes at most, however many it unpacks to
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran_order else "C")
