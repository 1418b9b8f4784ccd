"""What check says of shops"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from poolrl.data.counts import count_joint
from poolrl.data.label_cells import comparable
from poolrl.data.log import Columns
from poolrl.data.row_rules import SMALLEST_SCALE, usable_divisor
from poolrl.data.sources.engine import answer, quoted_name, quoted_text
from poolrl.data.sources.log_files import LONGEST_LINE, CsvFormat
from poolrl.data.sources.opening import count_lines, open_source
from poolrl.data.table import Table
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.learning.dependence import compare_levels, compared
from poolrl.learning.stored import LEAST_EFFECT, LEAST_Z, Dependence
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING, OutcomeProblem
from poolrl.workflow.config.configuration import Config, ConfigFile
from poolrl.workflow.config.sections import LABEL_COLUMN, WEEKDAYS, SalesTable
from poolrl.workflow.findings import MOSTLY, LogFinding, Standing, many, share_of
from poolrl.workflow.open_log import open_log
from poolrl.workflow.sales import SHUT, TWICE, columns_read, readings, typed_rows, unreadable

# Rows on which the shelf ran out, those of them with stock left, rows that sold all, those of them that did not run
# out.
FLAG_COUNTS = ("flag_out", "flag_out_left", "flag_sold", "flag_sold_not_out")


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
# The scale that is tried: mean sales of so many trajectories before, and a bound in multiples of it.
MEAN_OF, BOUND_IN_MULTIPLES = 4, 4.0
# More units than this are people rather than shops, and no label.
MOST_TRIED_VALUES = 2000
# Remedies of a sales export that is larger are named, but not tried: its query would run again.
MOST_TRIED_ROWS = 3_000_000


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
    yield from _lost_products(config, log, weeks)
    if surplus and config.privacy.unit is not None:
        beyond = f"{surplus:,} of {many(weeks, 'week')} lie beyond max_per_unit and are not used"
        yield LogFinding("max_per_unit", "note", beyond)
    stands: Standing = "bad" if used <= MOSTLY * cells else "note" if used < 0.9 * cells else "good"
    yield LogFinding("used by a fit", stands, f"{share_of(used, cells)} of all days and products of these weeks")


def _lost_products(config: Config, log: Table, weeks: int) -> Iterator[LogFinding]:
    """Products of which little or nothing can be used. In a total over all products they would hardly be seen."""
    cells = _judged_cells(config, log)
    used = cells.group_by("product").aggregate(used=cells.reason.isnull().sum())
    found = {row["product"]: int(row["used"] or 0) for row in answer(used).to_pylist()}
    shares = {name: found.get(name, 0) / max(1, weeks * config.problem.horizon) for name in config.problem.products}
    nothing = [name for name, share in shares.items() if not share]
    little = [name for name, share in shares.items() if 0 < share <= MOSTLY]
    if nothing:
        fix = "is the name spelt as in the export, and can its numbers be read ([sales] decimal)?"
        yield LogFinding("products", "bad", f"no row can be used of: {_some(nothing)}; {fix}")
    if little:
        yield LogFinding("products", "note", f"less than {MOSTLY:.0%} of the days can be used of: {_some(little)}")


def _some(names: list[str]) -> str:
    more = len(names) - FEW_PRODUCTS
    return ", ".join(names[:FEW_PRODUCTS]) + (f" and {more:,} more" if more > 0 else "")


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
    problem, names = config.problem.posed, _reason_names(config)
    cells = _judged_cells(config, log)
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


def _judged_cells(config: Config, log: Table) -> ir.Table:
    """Rows of declared products, with the reason why they are unobserved."""
    problem = config.problem.posed
    limits = problem.share.max(axis=0) * problem.demand_max * (1 + ROUNDING)
    declared = {"declared": list(log.coordinates), "most": problem.demand_max, "tried": limits}
    products = ibis.memtable(pa.table({name: pa.array(values) for name, values in declared.items()}))
    cells = log.rows.inner_join(products, log.rows["product"] == products.declared)
    return cells.mutate(reason=_reason(config, cells))


def _reason(config: Config, cells: ir.Table) -> ir.StringValue:
    """Why a cell is unobserved, by the first rule that it breaks; NULL where it is used."""
    problem, columns = config.problem.posed, config.columns()
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


# With more error than this, z would miss the weakest of the managers' logs.
MOST_ERROR = 0.03


@dataclass(frozen=True)
class OrderHabits:
    """What was found, in words for the data holder."""

    flagged: bool
    in_words: str


def orders_against_demand(log: Table, problem: Inventory, file: ConfigFile | None = None) -> OrderHabits:
    """Test the log as it is. If its orders follow demand, test what would help too, in the words of its file."""
    try:
        raw = exact_dependence(log, problem)
    except ValueError as error:
        return OrderHabits(False, f"could not be compared: {error}")
    if not raw.flagged:
        return OrderHabits(False, f"{advice_about_orders(raw)} ({_figures(raw)})")
    found = f"orders follow demand ({_figures(raw)}), so demand is overestimated"
    if file is not None and file.config.sales is not None:
        return OrderHabits(True, f"{found}; {_remedies_of_sales(log, problem, file)}")
    return OrderHabits(True, f"{found}; {_remedies(log, problem)}")


def advice_about_orders(tested: Dependence) -> str:
    """What the test found, and what to do about it."""
    if tested.flagged:
        return (
            "orders follow demand, so demand is overestimated; give a scale, for example the average of the last "
            "sales of the same shop and step, or make a column that tells shops apart a label"
        )
    if tested.error > MOST_ERROR:
        return "it cannot be told whether orders follow demand: there are too few rows, or too much noise"
    if tested.effect < -LEAST_EFFECT and tested.z < -LEAST_Z:
        return (
            "higher order-up-to levels go with lower demand, as where stock is left after slow days or in slow "
            "shops; demand may be underestimated"
        )
    return "no sign that orders follow demand"


def exact_dependence(log: Table, problem: OutcomeProblem) -> Dependence:
    """The statistic without noise. Not for release."""
    return compare_levels(compared(count_joint(log, problem, bands=JOINT_BANDS), problem), 0.0)


def _remedies_of_sales(log: Table, problem: Inventory, file: ConfigFile) -> str:
    """What to add to a sales export's file, and how the log would stand then."""
    config, said = file.config, []
    assert config.sales is not None
    if int(answer(log.rows.aggregate(rows=log.rows.count()))["rows"][0].as_py()) > MOST_TRIED_ROWS:
        return "give [sales] a scale, or [problem] labels that tell shops or promotions apart (not tried: a large log)"
    if config.sales.scale is None:
        scale = f"same weekday, last {MEAN_OF} weeks"
        scaled = _tried(lambda: _with_sales_scale(file, problem, scale))
        said.append(f'add scale = "{scale}" to [sales], with demand_max in multiples of it ({scaled})')
    if "shop" not in config.problem.labels:
        labelled = _tried(lambda: exact_dependence(*_by_shop(log, problem)))
        said.append(f"add the shop to [problem] labels, with its declared values ({labelled})")
    others = "add labels that managers know beforehand, such as a promotion, or a forecast of yours as [sales] scale"
    return ", or ".join([*said, others])


def _with_sales_scale(file: ConfigFile, problem: Inventory, scale: str) -> Dependence:
    """The statistic of the same export with a scale. The query is run again."""
    assert file.config.sales is not None
    sales = file.config.sales.model_copy(update={"scale": scale})
    with open_log(replace(file, config=file.config.model_copy(update={"sales": sales}))) as log:
        return exact_dependence(log, _like(problem, demand_max=BOUND_IN_MULTIPLES, labels=dict(problem.labels.facts())))


def _by_shop(log: Table, problem: Inventory) -> tuple[Table, Inventory]:
    """The log with its shop as one more label. The values are read off the log: for the data holder alone."""
    values = _values_of(log, "shop")
    bounds: dict[str, Any] = {"demand_max": problem.demand_max, "boundary": problem.share}
    labelled = _reread(log, labels={**log.columns.labels, "shop": "shop"})
    return labelled, _like(problem, **bounds, labels=dict(problem.labels.facts()) | {"shop": values})


def _values_of(log: Table, column: str) -> list[Any]:
    found = answer(log.rows.select(column).distinct().limit(MOST_TRIED_VALUES + 1))[column].to_pylist()
    if len(found) > MOST_TRIED_VALUES:
        raise ValueError(f"it has more than {MOST_TRIED_VALUES:,} values")
    return [value for value in found if value is not None]


def _remedies(log: Table, problem: Inventory) -> str:
    unit = log.columns.unit
    if unit is None or log.has_scale or log.label_names:
        # Without a column that says whose row it is, earlier rows are not known to be the same shop's.
        return (
            "give a scale, for example a forecast or the mean of the same shop's last sales, or make the column that "
            "tells shops apart a label"
        )
    mean = f"the mean sales of the last {MEAN_OF} trajectories of the same {unit} and step, in the order of their ids"
    scaled = _tried(lambda: exact_dependence(*_in_multiples(log, problem, unit)))
    labelled = _tried(lambda: exact_dependence(*_by_unit(log, problem, unit)))
    return f"give a scale, for example {mean} ({scaled}), or make the column {unit!r} a label ({labelled})"


def _tried(remedy: Callable[[], Dependence]) -> str:
    """How the log would stand then."""
    try:
        found = remedy()
    except ValueError as error:
        return f"not tried: {error}"
    return f"then {_figures(found)}: {'orders still follow demand' if found.flagged else 'no longer flagged'}"


def _by_unit(log: Table, problem: Inventory, unit: str) -> tuple[Table, Inventory]:
    """The log with its unit as a label. The values are read off the log, so this is for the data holder alone."""
    values = _values_of(log, unit)
    bounds: dict[str, Any] = {"demand_max": problem.demand_max, "boundary": problem.share}
    return _reread(log, labels={unit: unit}), _like(problem, **bounds, labels={unit: values})


def _in_multiples(log: Table, problem: Inventory, unit: str) -> tuple[Table, Inventory]:
    """The log with the mean of earlier sales of the same unit and step as its scale."""
    columns, rows = log.columns, log.rows
    earlier = ibis.rows_window(
        preceding=(MEAN_OF, 1), group_by=[rows[unit], rows[columns.step]], order_by=rows[columns.trajectory]
    )
    scales: dict[str, Any] = {}
    for i, (action, left) in enumerate(zip(columns.actions, columns.next_states, strict=True)):
        level = rows[action].cast("float64")
        sold = level - rows[left].cast("float64")
        # A mean of fewer rows is another scale. An order beyond λ shows nothing, whatever it is divided by.
        limit = float((problem.share[:, i] * problem.demand_max[i]).max()) * (1 + ROUNDING)
        usable = (sold.count().over(earlier) == MEAN_OF) & (level <= limit)
        scales[f"poolrl_scale_{i}"] = ibis.ifelse(usable, sold.mean().over(earlier), ibis.null("float64"))
    scaled = _reread(log, rows=rows.mutate(**scales), scale=tuple(scales))
    return scaled, _like(problem, demand_max=BOUND_IN_MULTIPLES)


def _reread(log: Table, rows: Any = None, **more: Any) -> Table:
    columns: Columns = replace(log.columns, **more)
    given = log.rows if rows is None else rows
    return Table(
        given,
        **asdict(columns),
        coordinates=log.coordinates,
        max_per_unit=log.max_per_unit,
        first_step=log.first_step,
        clip=log.clip,
    )


def _like(problem: Inventory, **facts: Any) -> Inventory:
    """The same shop with other bounds or labels. Costs play no part here."""
    sizes: dict[str, Any] = {"horizon": problem.horizon, "products": problem.products}
    return type(problem)(**sizes, holding=1.0, shortage=1.0, **facts)


def _figures(found: Dependence) -> str:
    return f"effect {found.effect:+.2f}, z {found.z:+.1f}"
