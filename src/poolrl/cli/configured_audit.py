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

from poolrl.audit.worst_case import Configured
from poolrl.certificate.parts import PeriodFacts
from poolrl.data.log import Log
from poolrl.shop.config_file import ConfigFile
from poolrl.shop.open_log import open_log

# Rows of the simulated log: an engine counts so many in a fraction of a second.
MOST_ROWS = 100_000


def configured_case(file: ConfigFile) -> Configured:
    """The fit that the file describes, with as many units as `plan` assumes, or as many as can be simulated."""
    config = file.config
    trajectories = MOST_ROWS // config.problem.horizon
    return Configured(
        config.problem.shop,
        per_unit=None if config.privacy.unit is None else config.privacy.per_unit,
        units=max(2, min(config.plan.units, trajectories // config.privacy.per_unit)),
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
        names = dict(zip(case.columns.names(), config.columns().names(), strict=True))
        steps = pa.compute.add(rows["step"], config.log.first_step)
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
