"""The SQL that a configuration stands for: its own query, or the one of its sales export."""

from __future__ import annotations

from poolrl.shop.config import Config
from poolrl.shop.sales import columns_read, export_query, sales_query


def log_query(config: Config, *, explained: bool = False) -> str | None:
    """The SQL that gives the log's rows, from the answer to `log_export` if there is one.

    `explained` adds why a row of a sales export is unobserved.
    """
    sales, steps = config.sales, config.problem.step_labels
    if sales is None:
        return config.log.query
    return sales_query(sales, labels=_label_columns(config), step_labels=steps, explained=explained)


def log_export(config: Config) -> str | None:
    """The SQL that gives the rows of a sales export in a database file."""
    return None if config.sales is None else export_query(config.sales, _label_columns(config))


def log_reads(config: Config) -> list[str]:
    """The columns that a sales export must have."""
    return [] if config.sales is None else columns_read(config.sales, _label_columns(config))


def certified_query(config: Config) -> str | None:
    """The query and its export as one."""
    query, export = log_query(config), log_export(config)
    return query if query is None or export is None else query.replace("WITH ", f"WITH log AS ({export}), ", 1)


def _label_columns(config: Config) -> dict[str, str]:
    assert config.sales is not None
    return config.sales.label_columns(list(config.problem.labels))
