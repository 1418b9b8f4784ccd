"""Hostile values, and how bytes choose among them: a fuzzer changes bytes, and these say how to spoil a good file."""

from __future__ import annotations

import contextlib
import copy
import io
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

# Values that a reader might trust: empty, too large, of another type, or numbers that take very long to write.
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    10**6,
    10**18,
    2**63,
    -(2**63),
    0.5,
    -0.0,
    1e-300,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "0",
    "-1",
    "1/0",
    "1/3",
    "1e999999999",
    "1" * 5000,
    "9" * 400,
    10**400,
    "nan",
    "../../etc/passwd",
    "/tmp/x\x00y",
    "\ud800",
    "\u202e[bold]{}%s\n",
    "'; DROP TABLE entries; --",
    [],
    {},
    [[]],
    [None],
    [0.0, 0.0],
    {"kind": "LostSales"},
    ["x"] * 1000,
)


# Stands for a very deep list. JSON writers cannot go so deep, so it is inserted into the written text.
DEEP = "@deep@"


def deepened(text: str) -> str:
    """A text with a very deep list in place of every DEEP."""
    return text.replace(f'"{DEEP}"', "[" * 50_000 + "]" * 50_000)


class Script:
    """Bytes read as choices. When they are used up, every choice is the first."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def number(self, below: int) -> int:
        """One of 0 .. below − 1."""
        width = 1 if below <= 256 else 4
        taken = self._content[self._at : self._at + width]
        self._at += width
        return int.from_bytes(taken, "little") % below

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of several."""
        return choices[self.number(len(choices))]

    def rest(self) -> bytes:
        """Whatever has not been read."""
        return self._content[self._at :]


def mutated(facts: Any, script: Script) -> Any:
    """Facts as JSON has them, with up to four entries replaced, removed or doubled."""
    facts = copy.deepcopy(facts)
    for _ in range(script.number(4) + 1):
        owner, key = _somewhere(facts, script)
        if owner is None:
            continue
        how = script.number(8)
        if how == 0 and isinstance(owner, dict):
            del owner[key]
        elif how == 1 and isinstance(owner, list):
            owner.append(owner[key])
        elif how == 2:
            owner[key] = DEEP
        elif how == 3:
            owner[key] = script.rest()[:40].decode("utf-8", "replace")
        else:
            owner[key] = copy.deepcopy(script.pick(HOSTILE))
    return facts


def _somewhere(facts: Any, script: Script) -> tuple[Any, Any]:
    """A list or dictionary inside, and a place in it."""
    owner, key = None, None
    here = facts
    while isinstance(here, dict | list) and here:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        owner, key = here, script.pick(keys)
        here = here[key]
        if script.number(4) == 0:
            break
    return owner, key


def mutated_array(array: np.ndarray[Any, Any], script: Script) -> np.ndarray[Any, Any]:
    """An array of another kind, shape or content."""
    how = script.number(9)
    if how == 0:
        return array.reshape(-1)[:0]
    if how == 1:
        return np.array(script.pick((0.0, 1e9, float("nan"), -1.0)))
    if how == 2:
        return array.astype(script.pick(("float32", "int8", "complex128", "U4", "S3", "bool", ">f8")))
    if how == 3:
        with np.errstate(invalid="ignore"):
            return np.full_like(array, script.pick((float("nan"), float("inf"), -1e308, 1e18, 0.0)))
    if how == 4:
        return array.reshape(-1)
    if how == 5:
        return np.concatenate([array.reshape(-1), array.reshape(-1)])
    if how == 6:
        return array[None]
    changed = np.array(array)
    if changed.size:
        changed.reshape(-1)[script.number(changed.size)] = script.pick((0.0, -1.0, 1e18, 7.0))
    return changed


def spoilt(content: bytes, script: Script) -> bytes:
    """A good file with a few bytes changed, removed or doubled, or cut off."""
    changed = bytearray(content)
    for _ in range(script.number(6) + 1):
        at = script.number(max(1, len(changed)))
        how = script.number(6)
        if how == 0:
            del changed[at:]
        elif how == 1:
            del changed[at : at + script.number(40)]
        elif how == 2:
            changed[at:at] = changed[at : at + script.number(200)]
        elif how == 3:
            changed[at:at] = script.pick(
                (b"\x00", b"\xff\xfe", b'"', b"\n", b",", b"1e999", b"-", b"\xed\xa0\x80", b"[[[")
            )
        elif at < len(changed):
            changed[at] = script.number(256)
    return bytes(changed)


def lying_archive(script: Script) -> bytes:
    """An archive with false sizes, names or types."""
    shape = script.pick(("(1000000000000,)", "(10,)", "(-1,)", "()", "(1000000, 1000000, 1000000)", "(2, 'x')", "(0,)"))
    kind = script.pick(("'<f8'", "'|O'", "'|V1000000000'", "'<U1000000000'", "[('a', '<f8')]", "'|u1'", "nonsense"))
    order = script.pick(("True", "False", "None"))
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + script.rest()[:200]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", script.pick((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for name in ("facts", script.pick(("levels", "../../levels", "/tmp/levels", "q", "outcomes.weights", "facts"))):
            with contextlib.suppress(UserWarning):
                file.writestr(f"{name}.npy", member if script.number(3) else b"\x93NUMPY\x01\x00\x10\x00junk")
    return archive.getvalue()
