"""Log files: which ones a path names, and how DuckDB reads them, so that no line decides how another is read.

Names and texts of all our SQL are quoted here too.
"""

from __future__ import annotations

import codecs
import csv
import glob
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# A function for queries that put ids together from several columns: it brings one of them into one spelling.
ID_FUNCTION = "poolrl_id"


def quoted_name(name: str) -> str:
    """A name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: str) -> str:
    """A text, quoted for SQL."""
    return "'" + value.replace("'", "''") + "'"


def sql_list(values: Sequence[str]) -> str:
    """Texts as a list of SQL."""
    return "[" + ", ".join(quoted_text(value) for value in values) + "]"


def files_in(where: Path) -> list[Path]:
    """The files of a source: one, those of a folder, or those that a pattern finds."""
    if where.is_dir():
        files = sorted(path for path in where.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    elif not where.is_file() and any(sign in str(where) for sign in "*?["):
        files = sorted(Path(path) for path in glob.glob(str(where), recursive=True))
    else:
        files = [where]
    missing = [path for path in files or [where] if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"there is no file {missing[0]}")
    return files


def files_of(where: Path) -> tuple[list[str], bool]:
    """The files of a source, and whether they are CSV by their names."""
    files = files_in(where)
    names = [str(path.resolve()) for path in files]
    if all(path.suffix in (".parquet", ".pq") for path in files):
        return names, False
    if all(path.suffix == ".csv" for path in files):
        return names, True
    raise ValueError(f"{where} must be Parquet (.parquet) or CSV (.csv) files, all of one format")


def parquet_reader(where: Path, files: Sequence[str]) -> str:
    """Rows of Parquet files, columns by name."""
    # Subfolders like year=2025 are columns of text, because one name must not decide how another is read.
    hive = "true, hive_types_autocast=false" if where.is_dir() else "false"
    return f"SELECT * FROM read_parquet({sql_list(files)}, union_by_name=true, hive_partitioning={hive})"


LONGEST_HEADER = 2**20  # bytes of a header line, at most. A file without lines would be read to its end
# Bytes of a line, at most. A longer one is left out: one unit's text must not decide how long a fit takes.
LONGEST_LINE = 2**16
# DuckDB judges a line at its own limit by its place. So ours, which sees the line alone, is the lower one.
_LINE_LIMIT = 2 * LONGEST_LINE
# DuckDB would choose its buffer by a line's size, and read slowly. A power of two: with a size that is no multiple of
# 64, DuckDB loses lines that lie across the end of a buffer.
LINES_AT_ONCE = 2**25


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written, by declaration: one character between fields, and the encoding of letters."""

    delimiter: str = ","
    encoding: str = "utf-8"  # or latin-1, in which every byte is a letter

    @property
    def field(self) -> str:
        """A field after its delimiter: in quotes, with "" for a quote, or up to the next delimiter."""
        mark = {"|": r"\|", "\t": r"\t"}.get(self.delimiter, self.delimiter)
        return mark + r'("(?:[^"]|"")*"|[^' + mark + "]*)"

    def lines(self, files: Sequence[str]) -> str:
        """The lines of files behind their headers, each as one text. Lines that are no such text are left out."""
        return (
            f"read_csv({sql_list(files)}, auto_detect=false, columns={{'line': 'VARCHAR'}}, header=false, skip=1, "
            "new_line='\\n', delim='\x01', quote='', escape='', comment='', strict_mode=false, ignore_errors=true, "
            f"max_line_size={_LINE_LIMIT}, buffer_size={LINES_AT_ONCE}, encoding='{self.encoding}')"
        )


COMMAS = CsvFormat()


def line_count(files: Sequence[str]) -> int:
    """How many lines there are behind the headers but blank ones, whatever their bytes."""
    found = 0
    for file in files:
        with open(file, encoding="latin-1") as lines:  # in which every byte is a letter
            next(lines, "")
            found += sum(bool(line.strip(" \n")) for line in lines)
    return found


def as_utf8(files: Sequence[str], form: CsvFormat, folder: Path) -> tuple[list[str], CsvFormat]:
    """The files as UTF-8, copied into a private folder if they are not, and how they are then written.

    DuckDB refuses a whole file of latin-1 for one byte in 128 .. 159. Here every byte is a letter, so nothing fails.
    """
    if form.encoding == "utf-8":
        return list(files), form
    copies = [str(folder / f"{number}.csv") for number in range(len(files))]
    for file, copied in zip(files, copies, strict=True):
        with open(file, "rb") as source, open(copied, "wb") as copy:
            shutil.copyfileobj(codecs.EncodedFile(source, "utf-8", form.encoding), copy)
    return copies, replace(form, encoding="utf-8")


def csv_reader(files: Sequence[str], form: CsvFormat = COMMAS) -> str:
    """Rows of CSV files, every column as text, every line read by itself.

    By a usual reader one unit changes the rows of others: an open quote swallows all later lines, and a guessed type
    changes values that do not fit it. Each byte 10 and each byte 13 ends a line, whatever stands beside it.
    """
    by_header: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        by_header.setdefault(header_of(file, form), []).append(file)
    parts = []
    for names, same in by_header.items():
        mark = quoted_text(form.delimiter)
        cut, plain = f"regexp_extract_all({mark} || line, {quoted_text(form.field)}, 1)", f"string_split(line, {mark})"
        short = f"FROM {form.lines(same)} WHERE strlen(line) <= {LONGEST_LINE}"  # in bytes
        fields = f"SELECT CASE WHEN contains(line, '\"') THEN {cut} ELSE {plain} END AS field {short}"
        chosen = ", ".join(_unquoted(f"field[{i}]") + f" AS {quoted_name(name)}" for i, name in enumerate(names, 1))
        parts.append(f"SELECT {chosen} FROM ({fields}) WHERE len(field) = {len(names)}")
    return " UNION ALL BY NAME ".join(parts)


def _unquoted(field: str) -> str:
    inside = f"replace({field}[2:-2], '\"\"', '\"')"
    return f"CASE WHEN {field} LIKE '\"%\"' THEN {inside} ELSE nullif({field}, '') END"


def header_of(file: str, form: CsvFormat = COMMAS) -> tuple[str, ...]:
    """The names in the first line of a file. Nothing behind that line is read."""
    coding = "utf-8-sig" if form.encoding == "utf-8" else form.encoding
    try:
        with open(file, "rb") as content:
            # Rows begin behind the first end of a line, and no error may depend on them.
            line = content.readline(LONGEST_HEADER).split(b"\r")[0].rstrip(b"\n")
        names = tuple(next(csv.reader([line.decode(coding)], delimiter=form.delimiter), []))
    except (UnicodeDecodeError, csv.Error):
        names = ()
    if not names or len(set(names)) < len(names):
        written = form.encoding.upper()
        raise ValueError(f"{file} is not a readable CSV file: {written}, with a header line of different names")
    return names
