"""What can be learned from a log, wherever it lies: to compare one source with another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.data.counts import count_outcomes
from poolrl.data.periods import sketch_of
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.open_log import open_log
from tests.helpers.shops import Facts, write_config
from tests.helpers.tables import every_level

SECRET = 31337.25  # stands in the log and must never stand in a message


@dataclass(frozen=True)
class Seen:
    """What anybody may get from a log, however sensitive: its units, marks and counts."""

    units: int
    marks: tuple[bytes, ...]
    leaves: bytes

    def counts(self) -> Any:
        """The counts of all leaves, as numbers."""
        return np.frombuffer(self.leaves, dtype=np.int64)


_SEEN: dict[tuple[bytes, bytes], Seen] = {}


def usually_seen(folder: Path, facts: Facts) -> Seen:
    """The same of the log as it is, which many tests compare with: looked at once for a file and a configuration."""
    known = (folder / facts["log"]["source"]).read_bytes(), write_config(folder, facts).read_bytes()
    if known not in _SEEN:
        _SEEN[known] = seen(folder, facts)
    return _SEEN[known]


def units_in(folder: Path, facts: Facts, **log: Any) -> int:
    """How many units the log has that the facts describe, with changes to their section `log`."""
    with open_log(load_config(write_config(folder, facts | {"log": facts["log"] | log}))) as table:
        return table.units


def seen(folder: Path, facts: Facts, **log: Any) -> Seen:
    """Open the log that the facts describe, with changes to their section `log`."""
    file = load_config(write_config(folder, facts | {"log": facts["log"] | log}))
    problem = file.config.problem.posed
    with open_log(file) as table:
        table.check(problem)
        leaves = count_outcomes(table, problem, level_sizes=every_level(32)).levels[-1]
        return Seen(table.units, sketch_of(table)[1], leaves.tobytes())
