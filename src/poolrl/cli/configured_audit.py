"""From a configuration to the fit that `poolrl audit` attacks: simulated rows, opened and counted as by `fit`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from poolrl.audit.kind_case import KindCase
from poolrl.audit.worst_case import Configured
from poolrl.certificate.terms import PeriodFacts
from poolrl.data.log import Log
from poolrl.data.sources.opening import open_source
from poolrl.workflow.config.configuration import Config, ConfigFile
from poolrl.workflow.open_log import as_table, open_log
from poolrl.workflow.paying import dependence_share, left_over_share, together_share
from poolrl.workflow.trades.declared_section import DeclaredFacts

# Rows of the simulated log: an engine counts so many in a fraction of a second.
MOST_ROWS = 100_000


def configured_case(file: ConfigFile, rho: float | None = None) -> Configured:
    """The fit that the file describes, at its ρ or another; as many units as `plan` assumes, or as can be simulated."""
    config = file.config
    budget = config.privacy.rho if rho is None else rho
    trajectories = MOST_ROWS // config.problem.horizon
    kind = KindCase if isinstance(config.problem, DeclaredFacts) else Configured
    return kind(
        config.problem.posed,
        per_unit=None if config.privacy.unit is None else config.privacy.per_unit,
        scaled=bool(config.columns().scale),
        scale_memory=config.scale_memory,
        labels_public=config.privacy.labels_public,
        left_over=left_over_share(config.problem.posed, moved=config.moved, rho=budget),
        together=together_share(config, budget),
        dependence=dependence_share(config, budget),
        units=max(2 + config.scale_memory, min(config.plan.units, trajectories // config.privacy.per_unit)),
        title=str(file.path.name),
        opened_by=AsByFit(file),
    )


@dataclass(frozen=True)
class AsByFit:
    """Opens a simulated log as `fit` opens the user's: under the names of its columns, from a file of its kind."""

    file: ConfigFile

    @contextmanager
    def __call__(self, case: Configured, rows: pa.Table) -> Iterator[Log]:
        """Write the rows to a folder that is gone afterwards. Nothing of the user's is read but the configuration."""
        # The simulated rows are those of the period.
        config = self.file.config.model_copy(update={"period": PeriodFacts()})
        if config.sales is not None:
            with _opened_like_sales(config, case, rows) as table:
                yield table
            return
        if isinstance(config.problem, DeclaredFacts):
            with _opened_like_kinds(config, case, rows) as table:
                yield table
            return
        names = dict(zip(case.columns.names(), config.columns().names(), strict=True))
        steps = pa.compute.add(rows["step"], config.first_step)
        rows = rows.set_column(rows.column_names.index("step"), "step", steps)
        rows = rows.rename_columns([names[name] for name in rows.column_names])
        is_csv = config.log.source.endswith(".csv")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / ("log.csv" if is_csv else "log.parquet")
            (pyarrow.csv.write_csv if is_csv else pq.write_table)(rows, path)
            log = config.log.model_copy(update={"source": path.name, "query": None})
            simulated = config.model_copy(update={"log": log})
            with open_log(ConfigFile(Path(folder) / self.file.path.name, simulated, self.file.content)) as table:
                yield table


@contextmanager
def _opened_like_kinds(config: Config, case: Configured, rows: pa.Table) -> Iterator[Log]:
    """The rows as the query of a configured kind gives them. The query itself is not attacked."""
    columns = config.columns()
    names = dict(zip(case.columns.names(), columns.names(), strict=True))
    steps = pa.compute.add(rows["step"], config.first_step)
    rows = rows.set_column(rows.column_names.index("step"), "step", steps)
    rows = rows.rename_columns([names[name] for name in rows.column_names])
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows, Path(folder) / "log.parquet")
        with open_source("log.parquet", columns, folder=Path(folder)) as opened:
            yield as_table(config, opened)


@contextmanager
def _opened_like_sales(config: Config, case: Configured, rows: pa.Table) -> Iterator[Log]:
    """The rows as the query of a sales export gives them: one for each product. The query itself is not attacked."""
    columns, wide = config.columns(), case.columns
    kept = {columns.trajectory: wide.trajectory, **({} if columns.unit is None else {columns.unit: str(wide.unit)})}
    kept |= {columns.labels[name]: column for name, column in wide.labels.items()}
    parts = []
    for place, product in enumerate(config.problem.products):
        shown = {name: rows[column] for name, column in kept.items()}
        shown[columns.step] = pa.compute.add(rows[wide.step], config.first_step)
        shown[str(columns.coordinate)] = pa.array([product] * len(rows))
        for part in ("states", "actions", "next_states", *(["scale"] if columns.scale else [])):
            shown[getattr(columns, part)[0]] = rows[getattr(wide, part)[place]]
        parts.append(pa.table(shown))
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.concat_tables(parts), Path(folder) / "log.parquet")
        with open_source("log.parquet", columns, folder=Path(folder)) as opened:
            yield as_table(config, opened)
