"""From a configuration to the log it speaks of, which stays where it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from poolrl.data.periods import rows_of_period
from poolrl.data.sources.opening import open_source
from poolrl.data.table import Table
from poolrl.shop.config_file import ConfigFile


@contextmanager
def open_log(file: ConfigFile, before_rows: Callable[[], object] = lambda: None) -> Iterator[Table]:
    """The log as the learner gets it. `before_rows` is called if a query is about to see rows before it is there."""
    config, columns = file.config, file.config.columns()
    source, query = config.log.source, config.log.query
    with open_source(source, columns, query=query, folder=file.folder, before_rows=before_rows) as opened:
        rows, period = opened.rows, config.declared_period()
        if period is not None:
            rows = rows_of_period(rows, columns, first=period.first, before=period.before)
        yield Table(
            rows,
            definitions=opened.definitions,
            **asdict(columns),
            max_per_unit=config.privacy.per_unit,
            first_step=config.log.first_step,
            clip=config.log.clip,
        )
