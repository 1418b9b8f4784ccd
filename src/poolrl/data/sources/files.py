"""Log files: which ones a path names, and how DuckDB reads them, so that no line decides how another is read."""

from __future__ import annotations

import csv
import glob
import gzip
from collections.abc import Sequence
from pathlib import Path

from poolrl.data.sources.engine import quoted_name, quoted_text


def files_of(where: Path) -> tuple[list[str], bool]:
    """The files of a source, and whether they are CSV."""
    if where.is_dir():
        files = sorted(path for path in where.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    elif not where.is_file() and any(sign in str(where) for sign in "*?["):
        files = sorted(Path(path) for path in glob.glob(str(where), recursive=True))
    else:
        files = [where]
    missing = [path for path in files or [where] if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"there is no file {missing[0]}")
    names = [str(path.resolve()) for path in files]
    if all(path.suffix in (".parquet", ".pq") for path in files):
        return names, False
    if all(".csv" in path.suffixes for path in files):
        return names, True
    raise ValueError(f"{where} must be Parquet (.parquet) or CSV (.csv, .csv.gz) files, all of one kind")


def parquet_reader(where: Path, files: Sequence[str]) -> str:
    """Rows of Parquet files, columns by name."""
    # In a folder, names of subfolders like year=2025 are columns. They are text, because one name must not decide how
    # another is read.
    hive = "true, hive_types_autocast=false" if where.is_dir() else "false"
    return f"SELECT * FROM read_parquet({sql_list(files)}, union_by_name=true, hive_partitioning={hive})"


# A field after its comma: in quotes, with "" for a quote, or up to the next comma.
_FIELD = r',("(?:[^"]|"")*"|[^,]*)'


def csv_reader(files: Sequence[str]) -> str:
    """Rows of CSV files, every column as text, every line read by itself.

    A usual reader lets one line decide how others are read: an open quote swallows all later lines, and a guessed type
    changes values that do not fit it. One unit would then change the rows of others.
    """
    by_header: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        by_header.setdefault(_header(file), []).append(file)
    parts = []
    for names, same in by_header.items():
        lines = (
            f"read_csv({sql_list(same)}, auto_detect=false, columns={{'line': 'VARCHAR'}}, header=false, skip=1, "
            "delim='\x01', quote='', escape='', comment='', strict_mode=false, ignore_errors=true)"
        )
        cut = f"regexp_extract_all(',' || rtrim(line, chr(13)), {quoted_text(_FIELD)}, 1)"
        plain = "string_split(rtrim(line, chr(13)), ',')"
        fields = f"SELECT CASE WHEN contains(line, '\"') THEN {cut} ELSE {plain} END AS field FROM {lines}"
        chosen = ", ".join(_unquoted(f"field[{i}]") + f" AS {quoted_name(name)}" for i, name in enumerate(names, 1))
        parts.append(f"SELECT {chosen} FROM ({fields}) WHERE len(field) = {len(names)}")
    return " UNION ALL BY NAME ".join(parts)


def _unquoted(field: str) -> str:
    inside = f"replace({field}[2:-2], '\"\"', '\"')"
    return f"CASE WHEN {field} LIKE '\"%\"' THEN {inside} ELSE nullif({field}, '') END"


def _header(file: str) -> tuple[str, ...]:
    try:
        with (
            gzip.open(file, "rt", encoding="utf-8-sig") if file.endswith(".gz") else open(file, encoding="utf-8-sig")
        ) as f:
            names = tuple(next(csv.reader([f.readline().rstrip("\r\n")]), []))
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error):
        names = ()
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{file} is not a readable CSV file: UTF-8, with a header line of different names")
    return names


def sql_list(values: Sequence[str]) -> str:
    """Texts as a list of SQL."""
    return "[" + ", ".join(quoted_text(value) for value in values) + "]"
