"""From a configuration to the log it speaks of, which stays where it lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from poolrl.app.config import ConfigFile
from poolrl.data.sources import open_table
from poolrl.data.tables import Table


@contextmanager
def open_log(file: ConfigFile) -> Iterator[Table]:
    """The log as the learner gets it."""
    config, columns = file.config, file.config.columns()
    with open_table(config.log.source, columns, query=config.log.query, folder=file.folder) as rows:
        yield Table(
            rows,
            trajectory=columns.trajectory,
            step=columns.step,
            states=columns.states,
            actions=columns.actions,
            next_states=columns.next_states,
            unit=columns.unit,
            max_per_unit=config.privacy.per_unit,
            first_step=config.log.first_step,
            clip=config.log.clip,
        )
