"""What the columns of a sales export may mean, by their names alone. Nothing but the header of a file is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from poolrl.data.sources.log_files import CsvFormat, files_of, header_of
from poolrl.workflow.column_names import DELIMITERS, meanings_of


@dataclass(frozen=True)
class Proposal:
    """What the names in a header may mean: for each meaning the columns that have such a name, in their order."""

    delimiter: str
    columns: dict[str, list[str]]

    def only(self, meaning: str) -> str | None:
        """The column that has this meaning, if there is exactly one."""
        found = self.columns.get(meaning, [])
        return found[0] if len(found) == 1 else None


def propose_columns(source: Path, *, delimiter: str | None, encoding: str) -> Proposal:
    """From the header of the first file, or a Parquet schema. With no delimiter, that which explains most."""
    files, is_csv = files_of(source)
    if not is_csv:
        return Proposal(",", meanings_of(pq.read_schema(files[0]).names))
    found = []
    for mark in DELIMITERS if delimiter is None else (delimiter,):
        names = header_of(files[0], CsvFormat(mark, encoding))
        columns = meanings_of(names)
        found.append((sum(map(bool, columns.values())), len(names), Proposal(mark, columns)))
    return max(found, key=lambda each: each[:2])[2]
