"""What is lost of a sales export, and why. For the data holder's eyes; not for release: the counts are exact.

Two looks: at every row of the export (can its fields be read?), and at every week of a shop (is it complete?).
"""

from __future__ import annotations

from collections.abc import Iterator

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from poolrl.data.label_cells import comparable
from poolrl.data.log import Columns
from poolrl.data.relative import SMALLEST_SCALE, usable_divisor
from poolrl.data.sources.engine import answer, quoted_text
from poolrl.data.sources.files import LONGEST_LINE, CsvFormat
from poolrl.data.sources.opening import count_lines, open_source
from poolrl.data.table import Table
from poolrl.problems.problem import ROUNDING
from poolrl.shop.config import Config
from poolrl.shop.config_file import ConfigFile
from poolrl.shop.config_log import WEEKDAYS, SalesTable
from poolrl.shop.findings import MOSTLY, LogFinding, Standing, many, share_of
from poolrl.shop.sales import SHUT, TWICE, readings, typed_rows, unreadable

# Reasons why a row that can be read is unobserved. Those of the query come first.
UNKNOWN_LABEL, NO_SCALE, IMPOSSIBLE, BEYOND, UNTRIED = (
    "label",
    "no scale",
    "impossible",
    "beyond a bound",
    "beyond lambda",
)
NO_ROW = "missing"
# So many products have a share of their own in a line.
FEW_PRODUCTS = 12


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
        **{name: f"count(*) FILTER ({unreadable(name)})" for name in known},
        **{WEEKDAYS[day - 1]: f"count(*) FILTER (isodow(date) = {day})" for day in sales.open_days},
    }
    counted = ", ".join(f"{sql} AS counted_{name}" for name, sql in asked.items())
    query = f"WITH {typed_rows(sales, {})} SELECT {counted} FROM typed"
    first, second, *others = (f"counted_{name}" for name in asked)
    columns, form = Columns(first, second, tuple(others), (), ()), CsvFormat(sales.delimiter, sales.encoding)
    with open_source(config.log.source, columns, query=query, folder=file.folder, csv=form) as opened:
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


def weeks_of_shops(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """How many weeks of shops there are, how many are complete, and what the others lack."""
    config = file.config
    found = answer(_reasons_by_week(config, log)).to_pylist()[0]
    seen = {name: int(value or 0) for name, value in found.items()}
    by_shop = log.rows.group_by("shop").aggregate(weeks=log.rows["week"].nunique())
    most = config.privacy.max_per_unit or 0
    owned = answer(by_shop.aggregate(weeks=by_shop.weeks.sum(), surplus=ibis.greatest(by_shop.weeks - most, 0).sum()))
    weeks, surplus = (int(owned[name][0].as_py() or 0) for name in ("weeks", "surplus"))
    each = config.problem.horizon * len(config.problem.products)
    cells, used = weeks * each, seen["cells_used"]
    complete = seen["weeks_complete"]
    yield LogFinding(
        "weeks of shops",
        "good" if weeks else "bad",
        f"{weeks:,} found: {complete:,} complete, {weeks - complete:,} incomplete",
    )
    names = _reason_names(config)
    lost = {name: (seen[f"weeks_{i}"], seen[f"cells_{i}"]) for i, name in enumerate(names)}
    # A week without a row of a declared product lacks all of them.
    empty = weeks - seen["weeks_with_rows"]
    lost[NO_ROW] = (seen["weeks_missing"] + empty, cells - seen["cells_found"])
    for name, (in_weeks, in_cells) in lost.items():
        if in_cells:
            what, fix = _reason_in_words(config, name)
            lost_share = f"{in_cells:,} of {cells:,} days and products ({share_of(in_cells, cells)})"
            yield LogFinding(
                what,
                "bad" if in_cells > MOSTLY * cells else "note",
                f"{lost_share}, in {many(in_weeks, 'week')}, {fix}",
            )
    if surplus and config.privacy.unit is not None:
        beyond = f"{surplus:,} of {many(weeks, 'week')} lie beyond max_per_unit and are not used"
        yield LogFinding("max_per_unit", "note", beyond)
    stands: Standing = "bad" if used <= MOSTLY * cells else "note" if used < 0.9 * cells else "good"
    yield LogFinding("used by a fit", stands, f"{share_of(used, cells)} of all days and products of these weeks")


def empty_shelves(config: Config, log: Table) -> LogFinding:
    """How often shelves ran empty, product by product if there are few of them."""
    rows = log.rows.filter(log.rows["product"].isin(list(log.coordinates)) & log.rows["left"].notnull())
    by_product = rows.group_by("product").aggregate(empty=(rows["left"].cast("float64") <= 0).mean())
    found = {row["product"]: row["empty"] for row in answer(by_product).to_pylist()}
    shares = [(name, found[name]) for name in config.problem.products if name in found]
    if len(shares) <= FEW_PRODUCTS:
        text = ", ".join(f"{name} {share:.0%}" for name, share in shares)
    else:
        ranked = sorted(shares, key=lambda each: each[1])
        (low, least), (_, middle), (high, most) = ranked[0], ranked[len(ranked) // 2], ranked[-1]
        text = f"{least:.0%} ({low}) to {most:.0%} ({high}), {middle:.0%} in the middle of {len(ranked):,} products"
    return LogFinding("empty shelves", "good", f"on these shares of days: {text or 'none'}")


def _reason_names(config: Config) -> list[str]:
    sales = config.sales
    assert sales is not None
    labels = [f"{UNKNOWN_LABEL} {name}" for name in config.problem.labels]
    return [*readings(sales), SHUT, TWICE, *labels, NO_SCALE, IMPOSSIBLE, BEYOND, UNTRIED]


def _reasons_by_week(config: Config, log: Table) -> ir.Table:
    """One row of counts: weeks and cells (a day and product) in all, used, and lost for each reason."""
    problem, names = config.problem.shop, _reason_names(config)
    limits = problem.share.max(axis=0) * problem.demand_max * (1 + ROUNDING)
    declared = {"declared": list(log.coordinates), "most": problem.demand_max, "tried": limits}
    products = ibis.memtable(pa.table({name: pa.array(values) for name, values in declared.items()}))
    cells = log.rows.inner_join(products, log.rows["product"] == products.declared)
    cells = cells.mutate(reason=_reason(config, cells))
    cells = cells.mutate(place=cells.reason.isnull().ifelse(-1, cells.reason.find_in_set(names)))
    by_week = cells.group_by("week").aggregate(
        found=cells.count(),
        used=(cells.place == -1).sum(),
        **{f"lost_{i}": (cells.place == i).sum() for i in range(len(names))},
    )
    expected = problem.horizon * problem.products
    counted = {f"cells_{i}": by_week[f"lost_{i}"].sum() for i in range(len(names))}
    counted |= {f"weeks_{i}": (by_week[f"lost_{i}"] > 0).sum() for i in range(len(names))}
    return by_week.aggregate(
        weeks_with_rows=by_week.count(),
        weeks_complete=(by_week.used == expected).sum(),
        weeks_missing=(by_week.found < expected).sum(),
        cells_found=by_week.found.sum(),
        cells_used=by_week.used.sum(),
        **counted,
    )


def _reason(config: Config, cells: ir.Table) -> ir.StringValue:
    """Why a cell is unobserved, by the first rule that it breaks; NULL where it is used."""
    problem, columns = config.problem.shop, config.columns()
    opening, level, left = (cells[name].cast("float64") for name in ("opening", "order_up_to", "left"))
    rules = [(cells.why.notnull(), cells.why)]
    for name, values in zip(problem.labels.names, problem.labels.values, strict=True):
        value = comparable(cells[columns.labels[name]], problem.labels, name)
        known = value.isin(list(values)).fill_null(False)
        rules.append((~known, ibis.literal(f"{UNKNOWN_LABEL} {name}")))
    if columns.scale:
        scale = cells.scale.cast("float64")
        rules.append((~usable_divisor(scale).fill_null(False), ibis.literal(NO_SCALE)))
        level, opening, left = (each / ibis.greatest(scale, SMALLEST_SCALE) for each in (level, opening, left))
    if not config.log.clip:
        slack = ROUNDING * cells.most
        possible = (opening >= -slack) & (level >= opening - slack) & (left >= -slack) & (level >= left - slack)
        rules.append((~possible.fill_null(False), ibis.literal(IMPOSSIBLE)))
        if not columns.scale:
            rules.append((level > cells.most + slack, ibis.literal(BEYOND)))
        if (problem.share < 1).any():
            rules.append((level > cells.tried, ibis.literal(UNTRIED)))
    return ibis.cases(*rules, else_=ibis.null("string"))


def _reason_in_words(config: Config, name: str) -> tuple[str, str]:
    """What to call a reason, and what happens to such cells or would mend it."""
    sales = config.sales
    assert sales is not None
    if name == NO_ROW:
        rule = f'[sales] missing_days is "{sales.missing_days}"'
        first = ", and the first days of a week have no row before them" * (sales.missing_days != "unobserved")
        return "missing rows", f"have no row and are unobserved; {rule}{first}"
    if name.startswith(UNKNOWN_LABEL):
        label = name.removeprefix(f"{UNKNOWN_LABEL} ")
        column = sales.label_columns([label])[label]
        declare = f"add it to [problem] labels = {{ {label} = [...] }}"
        undeclared = f"have a value in column {column} that was not declared, or none, and are unobserved"
        return f"label {label}", f"{undeclared}; {declare}"
    words = {
        TWICE: "stand more than once and are unobserved; is a column that tells them apart missing?",
        SHUT: "are rows of closed shops and unobserved",
        NO_SCALE: "have no scale and are unobserved: too few weeks before, or 0 in its column",
        IMPOSSIBLE: "do not fit (more sold than was there, or a negative number) and are unobserved; [log] clip = true "
        "moves them",
        BEYOND: "lie beyond demand_max and are unobserved; raise it, or [log] clip = true moves them",
        UNTRIED: "are orders beyond lambda, which are unobserved",
    }
    if name in words:
        return {BEYOND: "demand_max", IMPOSSIBLE: "numbers", UNTRIED: "boundary"}.get(name, name), words[name]
    return f"unreadable {name}", f"cannot be read in column {getattr(sales, name)} and are unobserved"
