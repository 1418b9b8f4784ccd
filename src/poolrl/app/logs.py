"""From a configuration to the log it speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poolrl.app.config import ConfigFile
from poolrl.data import frames, sources
from poolrl.data.trajectories import Trajectories

if TYPE_CHECKING:
    import pyarrow as pa

IMPOSSIBLE = (
    "some rows of the log break a declared rule ('poolrl check' says which, and how many): correct them, declare wider "
    "bounds from public knowledge, or set clip = true under [log]"
)


def read_rows(file: ConfigFile) -> pa.Table:
    """The table, wherever it lies."""
    config, columns = file.config, file.config.columns()
    ids = {columns.trajectory} | ({columns.unit} if columns.unit else set())
    return sources.read_table(config.log.source, query=config.log.query, folder=file.folder, ids=ids)


def to_arrays(file: ConfigFile, table: pa.Table) -> dict[str, Any]:
    """Every trajectory of the table, as arrays, before any is dropped."""
    return frames.to_arrays(table, file.config.columns(), first_step=file.config.log.first_step)


def read_log(file: ConfigFile) -> tuple[Trajectories, list[bytes]]:
    """The log as the learner gets it, and digests of all its rows; refuses one that breaks a declared rule."""
    arrays, problem = to_arrays(file, read_rows(file)), file.config.problem.problem()
    log = Trajectories(**arrays, max_per_unit=file.config.privacy.per_unit)
    try:
        log = log.clipped(problem) if file.config.log.clip else log
        log.check(problem)
    except ValueError:
        raise ValueError(IMPOSSIBLE) from None
    return log, sources.digests(arrays)
