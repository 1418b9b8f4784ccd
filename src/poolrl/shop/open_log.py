"""From a configuration to the log it speaks of, which stays where it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from poolrl.data.periods import rows_of_period
from poolrl.data.sources.files import CsvFormat
from poolrl.data.sources.opening import Source, open_source
from poolrl.data.table import Table
from poolrl.shop.config import Config
from poolrl.shop.config_file import ConfigFile

# What an explained log has besides: why a row is unobserved.
EXPLAINED = {"why": "why", "shop": "shop"}


@contextmanager
def open_log(
    file: ConfigFile, before_rows: Callable[[], object] = lambda: None, *, explained: bool = False
) -> Iterator[Table]:
    """The log as the learner gets it. `before_rows` is called if a query is about to see rows before it is there.

    `explained` adds columns to the rows of a sales export that no count uses, for the data holder's eyes.
    """
    config, columns = file.config, file.config.columns()
    sales, also = config.sales, columns
    options: dict[str, Any] = {"query": config.query(explained=explained and config.sales is not None)}
    if sales is not None:
        options["csv"] = CsvFormat(sales.delimiter, sales.encoding)
        if explained:
            also = replace(columns, labels={**EXPLAINED, **columns.labels})
    with open_source(config.log.source, also, folder=file.folder, before_rows=before_rows, **options) as opened:
        yield as_table(config, opened)


def as_table(config: Config, opened: Source) -> Table:
    """Rows that have the columns of a configuration, with all that it declares of them."""
    columns, period = config.columns(), config.declared_period()
    coordinates = {} if columns.coordinate is None else {"coordinates": config.problem.products}
    rows = opened.rows
    if period is not None:
        # Scales are in the rows already, and may come from the weeks before the period.
        rows = rows_of_period(rows, columns, first=period.first, before=period.before)
    return Table(
        rows,
        definitions=opened.definitions,
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
