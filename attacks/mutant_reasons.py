"""Why some mutants may survive: one written reason each, kept beside the text that it is about.

    [[accepted]]
    module = "src/poolrl/privacy/zcdp.py"
    function = "epsilon"
    line = "return max(0.0, float(best.fun))"
    changes = ["0.0 -> 1.0"]
    reason = "..."

A reason holds for this line in this function only. Where a line has the same change in several places, "0.0 -> 1.0 #2"
is the second of them. It fits no mutant any more as soon as the line changes, and is
reported then.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from attacks.mutant_map import Mutant

Key = tuple[str, str, str, str]  # module, function, line, change


class Reasons:
    """Reasons by mutant."""

    def __init__(self, by_key: dict[Key, str], mutants: Sequence[Mutant]) -> None:
        self._by_key = by_key
        there = {key for mutant in mutants for key in _keys(mutant)}
        modules = {mutant.file for mutant in mutants}
        # Of modules that were not asked for, nothing is known.
        self.unused = [" | ".join(key) for key in by_key if key[0] in modules and key not in there]

    @classmethod
    def read(cls, path: Path, mutants: Sequence[Mutant]) -> Reasons:
        """The reasons of a file; none if there is none."""
        entries = tomllib.loads(path.read_text())["accepted"] if path.exists() else []
        by_key = {}
        for entry in entries:
            if not entry["reason"].strip():
                raise ValueError(f"a mutant of {entry['module']} is accepted without a reason: {entry['line']}")
            for change in entry["changes"]:
                by_key[entry["module"], entry["function"], entry["line"], change] = entry["reason"]
        return cls(by_key, mutants)

    def reason(self, mutant: Mutant) -> str:
        """Why it may survive; empty if it may not."""
        return next((self._by_key[key] for key in _keys(mutant) if key in self._by_key), "")


def _keys(mutant: Mutant) -> tuple[Key, Key]:
    """For every place of this change on its line, and for this place alone."""
    where = mutant.file, mutant.change.function, mutant.text
    return (*where, mutant.change.words), (*where, f"{mutant.change.words} #{mutant.nth + 1}")
