"""Can the fields of a sales export be read? For the data holder's eyes; not for release: the counts are exact."""

from __future__ import annotations

from collections.abc import Iterator

from poolrl.data.log import Columns
from poolrl.data.sources.engine import answer, quoted_name, quoted_text
from poolrl.data.sources.log_files import LONGEST_LINE, CsvFormat
from poolrl.data.sources.opening import count_lines, open_source
from poolrl.workflow.config_file import ConfigFile
from poolrl.workflow.config_log import LABEL_COLUMN, WEEKDAYS, SalesTable
from poolrl.workflow.findings import MOSTLY, LogFinding, Standing, many, share_of
from poolrl.workflow.sales import columns_read, readings, typed_rows, unreadable

# Rows on which the shelf ran out, those of them with stock left, rows that sold all, those of them that did not run
# out.
FLAG_COUNTS = ("flag_out", "flag_out_left", "flag_sold", "flag_sold_not_out")


def fields_of_rows(file: ConfigFile, sales: SalesTable) -> Iterator[LogFinding]:
    """Whether the fields of the export can be read as [sales] says, column by column."""
    config = file.config
    counts = _count_fields(file, sales)
    rows = counts.pop("rows")
    lines = count_lines(config.log.source, file.folder)
    if lines is not None and rows < lines:
        lost = lines - rows
        why = (
            f"of {many(lines, 'line')} were left out: another number of fields than the header ([sales] delimiter is "
            f"{sales.delimiter!r}), no {sales.encoding} ([sales] encoding), or longer than {LONGEST_LINE:,} bytes"
        )
        yield LogFinding("lines", _stands(lost, lines), f"{lost:,} {why}")
    yield LogFinding("rows", "good" if rows else "bad", f"{rows:,} in the export")
    shops, spelt = counts.pop("shops"), counts.pop("spelt")
    alike = f", in {spelt:,} spellings: case, blanks, marks, zeros in front and .0 at the end make no other shop"
    yield LogFinding("shops", "note" if spelt > shops else "good", f"{shops:,}{alike if spelt > shops else ''}")
    yield from _flags_that_contradict(counts)
    by_day = {day: counts.pop(day) for day in WEEKDAYS if day in counts}
    never = [day for day, number in by_day.items() if not number]
    if never and any(by_day.values()):
        names = ", ".join(f'"{day}"' for day in never)
        yield LogFinding(
            "days", "note", f"no row lies on {', '.join(never)}; if no shop opens then: closed = [{names}]"
        )
    for name, number in counts.items():
        if number:
            column, why, fix = _fault_of_field(sales, name)
            seen = f"{number:,} of {many(rows, 'row')} ({share_of(number, rows)}) {why}; {fix}"
            # An export may have other products and days than those that are planned.
            fine = name in ("product", "closed") and number < rows
            yield LogFinding(
                f"{'days of' if name == 'closed' else 'column'} {column}",
                "note" if fine else _stands(number, rows),
                seen,
            )


def _flags_that_contradict(counts: dict[str, int]) -> Iterator[LogFinding]:
    """Shelves that ran out with stock on them, and that sold all without running out: yes and no are swapped."""
    out, out_and_left, sold, sold_not_out = (counts.pop(name, 0) for name in FLAG_COUNTS)
    if out_and_left > MOSTLY * out and sold_not_out > MOSTLY * sold:
        yield LogFinding(
            "empty or not",
            "bad",
            f"stock_out says yes in {many(out, 'row')}, of which {share_of(out_and_left, out)} have stock left, and no "
            f"in {share_of(sold_not_out, sold)} of {many(sold, 'row')} where all was sold: are yes and no of [sales] "
            "swapped?",
        )


def _stands(lost: int, of: int) -> Standing:
    return "bad" if lost > MOSTLY * of else "note"


def _count_fields(file: ConfigFile, sales: SalesTable) -> dict[str, int]:
    """How many rows there are, and in how many of them each field cannot be read. One scan of the export."""
    config, known = file.config, list(readings(sales))
    names = ", ".join(map(quoted_text, config.problem.products))
    asked = {
        "rows": "count(*)",
        "shop": "count(*) FILTER (shop IS NULL)",
        "date": "count(*) FILTER (date IS NULL)",
        "closed": f"count(*) FILTER (isodow(date) NOT IN ({', '.join(map(str, sales.open_days))}))",
        "product": f"count(*) FILTER (product IS NULL OR product NOT IN ({names}))",
        "shops": "count(DISTINCT shop)",
        "spelt": f"count(DISTINCT {quoted_name(LABEL_COLUMN.format('shop'))})",
        **{name: f"count(*) FILTER ({unreadable(name)})" for name in known},
        **{WEEKDAYS[day - 1]: f"count(*) FILTER (isodow(date) = {day})" for day in sales.open_days},
    }
    if "stock_out" in known:
        left = "opening + delivery - sales"
        ran_out = ("stock_out", f"stock_out AND {left} > 0", f"{left} <= 0", f"{left} <= 0 AND NOT stock_out")
        asked |= {name: f"count(*) FILTER ({rows})" for name, rows in zip(FLAG_COUNTS, ran_out, strict=True)}
    counted = ", ".join(f"{sql} AS counted_{name}" for name, sql in asked.items())
    query = f"WITH {typed_rows(sales, {'shop': sales.shop})} SELECT {counted} FROM typed"
    first, second, *others = (f"counted_{name}" for name in asked)
    columns, form = Columns(first, second, tuple(others), (), ()), CsvFormat(sales.delimiter, sales.encoding)
    with open_source(
        config.log.source,
        columns,
        query=query,
        export=config.export(),
        reads=columns_read(sales, config.columns_of_labels()),
        folder=file.folder,
        csv=form,
    ) as opened:
        found = answer(opened.rows).to_pylist()[0]
    return {name: int(found[f"counted_{name}"]) for name in asked}


def _fault_of_field(sales: SalesTable, name: str) -> tuple[str, str, str]:
    """A column, what is wrong with rows in it, and the key that would mend it."""
    written = f"decimal is {sales.decimal!r}" + (f", thousands {sales.thousands!r}" if sales.thousands else "")
    words = f"none of the words {', '.join(map(repr, [*sales.yes, *sales.no]))}"
    form = "of the form 2025-12-31" if sales.date_format is None else f"of the form {sales.date_format}"
    if name == "shop":
        return sales.shop, "name no shop and belong to no week", "an empty field, or a number like 1e3, is no id"
    if name == "date":
        return sales.date, f"have no date {form} and belong to no week", "see [sales] date_format"
    if name == "closed":
        return sales.date, f"lie on days that [sales] closed names ({', '.join(sales.closed)})", "they are not used"
    if name == "product":
        return sales.product, "name a product that [problem] products does not", "they are not used"
    if name in ("stock_out", "open"):
        return getattr(sales, name), f"hold {words} ({name})", "they are unobserved; see [sales] yes and no"
    return getattr(sales, name), f"hold no number ({name}; {written})", "they are unobserved; see [sales] decimal"
