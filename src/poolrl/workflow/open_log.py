"""From a configuration to the log it speaks of, which stays where it lies."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from typing import Any

from poolrl.data.log import Columns
from poolrl.data.periods import rows_of_period
from poolrl.data.sources.engine import Source
from poolrl.data.sources.log_files import CsvFormat
from poolrl.data.sources.opening import open_source
from poolrl.data.table import Table
from poolrl.workflow.config.configuration import Config, ConfigFile
from poolrl.workflow.config.sales import columns_read

# Columns that an explained log of a sales export has beside those that are counted.
EXPLAINED = ("why", "shop", "monday")


@contextmanager
def open_log(
    file: ConfigFile,
    before_rows: Callable[[], object] = lambda: None,
    *,
    explained: bool = False,
    every_period: bool = False,
) -> Iterator[Table]:
    """The log as the learner gets it. `before_rows` is called if a query is about to see rows before it is there.

    For the data holder's eyes: `explained` adds columns to the rows of a sales export that no count uses, and
    `every_period` keeps rows outside [period].
    """
    config, explains = file.config, explained and file.config.sales is not None
    query, also = config.query(explained=explained), EXPLAINED if explains else ()
    with open_query(file, query, config.columns(), also=also, before_rows=before_rows) as opened:
        yield as_table(config, opened, every_period=every_period)


def open_query(
    file: ConfigFile, query: str | None, columns: Columns | None = None, **more: Any
) -> AbstractContextManager[Source]:
    """The answer to a query on the table of a configuration; the table itself without one."""
    config, sales, log = file.config, file.config.sales, file.config.log
    return open_source(
        log.source,
        columns,
        query=query,
        export=config.export(),
        reads=config.problem.columns_read(config) if sales is None else columns_read(sales, config.columns_of_labels()),
        folder=file.folder,
        csv=CsvFormat(log.delimiter) if sales is None else CsvFormat(sales.delimiter, sales.encoding),
        **more,
    )


def as_table(config: Config, opened: Source, *, every_period: bool = False) -> Table:
    """Rows that have the columns of a configuration, with all that it declares of them."""
    columns, period = config.columns(), config.declared_period()
    coordinates = {} if columns.coordinate is None else {"coordinates": config.problem.products}
    if period is not None and not every_period:
        # Scales are in the rows already, and may come from the weeks before the period.
        rows = rows_of_period(opened.rows, columns, first=period.first, before=period.before)
        opened = replace(opened, rows=rows)
    return Table(
        opened,
        **asdict(columns),
        **coordinates,
        max_per_unit=config.privacy.per_unit,
        first_step=config.first_step,
        clip=config.log.clip,
        scale_memory=config.scale_memory,
        labels_public=config.privacy.labels_public,
        ids_public=config.privacy.weeks_public,
        step_labels=config.problem.step_labels,
    )
