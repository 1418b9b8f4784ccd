"""What `poolrl check` says of shops: fields of a sales export, its weeks, rows of a wide table, and past orders."""

from collections.abc import Iterator
from json import dumps

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from poolrl.data import row_rules
from poolrl.data.expressions import OnColumns, finite
from poolrl.data.row_rules import SMALLEST_SCALE
from poolrl.data.sources.engine import answer
from poolrl.data.sources.log_files import LONGEST_LINE
from poolrl.data.sources.opening import count_lines
from poolrl.data.table import Table
from poolrl.learning.stored import LEAST_EFFECT, LEAST_Z, Dependence
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from poolrl.workflow import check
from poolrl.workflow.check import MOSTLY, LogFinding, RowFault, Standing, integers_of, many, share_of
from poolrl.workflow.config.configuration import Config, ConfigFile
from poolrl.workflow.config.sales import FLAG_COUNTS, SHUT, TWICE, WEEKDAYS, field_counts, typed_rows
from poolrl.workflow.open_log import open_query
from poolrl.workflow.trades.trade import trade_of

# At most this many products have a share of their own in a line.
FEW_PRODUCTS = 12
# With more error than this, z would miss the weakest of the managers' logs.
MOST_ERROR = 0.03
REMEDY = (
    'give a scale (in [sales] "same weekday, last 4 weeks", or a column with your forecast), with demand_max in '
    "multiples of it, and [problem] labels for what managers know beforehand, such as the shop or a promotion"
)


def rows_of_shops(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """A sales export, or a wide table."""
    columns, problem = log.columns, file.config.problem.posed
    if file.config.sales is not None:
        yield from weeks_of_shops(file, log)
    else:
        parts = columns.states, columns.actions, columns.next_states
        called = [[f"column {name}" for name in part] for part in parts]
        yield from check.trajectories_of(file, log)
        numbers = check.faults_of_numbers(file, log, called, most=0.0)
        yield from check.faulty_rows(file, log, [*numbers, *_misfits(problem, log)])
        yield check.used_by_a_fit(log, problem)
    yield empty_shelves(file.config, log)
    # Backlogged demand is always seen, so nothing is assumed of orders.
    if problem.censored:
        yield orders_against_demand(log, file)


def _misfits(problem: Inventory, log: Table) -> Iterator[RowFault]:
    """Rows whose numbers do not fit each other. The rules are the same at every step."""
    columns = log.columns
    names = dict(zip(row_rules.PARTS, (columns.states, columns.actions, columns.next_states), strict=True))
    numbers = {part: _amounts(log, names[part]) for part in row_rules.PARTS}

    def rules(step: int, row: row_rules.Row) -> list[row_rules.RowRule]:
        if not columns.scale:
            return row_rules.fit_rules(problem, step, row)
        fits = row_rules.fits_in_any_unit(problem, step, row)
        return [row_rules.RowRule("next_states", "", "not possible beside the others", fits)]

    (held, *_), words = row_rules.recorded_rules(problem, rules)
    for rule, entries in zip(words, OnColumns()(held, *numbers.values()), strict=True):
        for i, kept in enumerate(entries):
            # Some rules hold whatever a row says: backlogged demand is never cut off.
            if isinstance(kept, ir.Value):
                there = finite(numbers["actions"][i] - numbers["states"][i] + numbers["next_states"][i])
                yield RowFault(f"column {names[rule.part][i]}", f"are {rule.broken}", there & ~kept, True, 0.0)
    for i, limit in enumerate(_limits(problem) if (problem.share < 1).any() else []):
        beyond = numbers["actions"][i] > limit
        yield RowFault(f"column {names['actions'][i]}", "are orders beyond lambda", beyond, most=1.0)


def _amounts(log: Table, names: tuple[str, ...]) -> list[ir.FloatingValue]:
    """Columns of numbers, divided by their scale if there is one."""
    numbers = [log.rows[name].cast("float64") for name in names]
    scales = [log.rows[name].cast("float64") for name in log.columns.scale] or [1.0] * len(numbers)
    return [number / scale for number, scale in zip(numbers, scales, strict=True)]


def _limits(problem: Inventory) -> list[float]:
    """λ of each product on the day on which it is largest."""
    return [float(limit) for limit in problem.share.max(axis=0) * problem.demand_max * (1 + ROUNDING)]


def fields_of_rows(file: ConfigFile) -> Iterator[LogFinding]:
    """Whether the fields of an export can be read as [sales] says, column by column. One scan of the export."""
    config, sales = file.config, file.config.sales
    if sales is None:
        return
    asked = {f"counted_{name}": sql for name, sql in field_counts(sales, config.problem.products).items()}
    named = ", ".join(f"{sql} AS {name}" for name, sql in asked.items())
    query = f"WITH {typed_rows(sales, {'spelt': sales.shop})} SELECT {named} FROM typed"
    with open_query(file, query, also=list(asked)) as opened:
        counts = {name.removeprefix("counted_"): number for name, number in integers_of(opened.rows).items()}
    rows, shops, spelt = (counts.pop(name) for name in ("rows", "shops", "spelt"))
    lines = count_lines(config.log.source, file.folder)
    if lines is not None and rows < lines:
        why = (
            f"of {many(lines, 'line')} were left out: another number of fields than the header ([sales] delimiter is "
            f"{sales.delimiter!r}), no {sales.encoding} ([sales] encoding), or longer than {LONGEST_LINE:,} bytes"
        )
        yield LogFinding("lines", _stands(lines - rows, lines), f"{lines - rows:,} {why}")
    yield LogFinding("rows", "good" if rows else "bad", f"{rows:,} in the export")
    alike = f", in {spelt:,} spellings: case, blanks, marks, zeros in front and .0 at the end make no other shop"
    yield LogFinding("shops", "note" if spelt > shops else "good", f"{shops:,}{alike if spelt > shops else ''}")
    # Shelves that ran out with stock on them, and that sold all without running out: yes and no are swapped.
    out, out_and_left, sold, sold_not_out = (counts.pop(name, 0) for name in FLAG_COUNTS)
    if out_and_left > MOSTLY * out and sold_not_out > MOSTLY * sold:
        yield LogFinding(
            "empty or not",
            "bad",
            f"stock_out says yes in {many(out, 'row')}, of which {share_of(out_and_left, out)} have stock left, and no "
            f"in {share_of(sold_not_out, sold)} of {many(sold, 'row')} where all was sold: are yes and no of [sales] "
            "swapped?",
        )
    by_day = {day: counts.pop(day) for day in WEEKDAYS if day in counts}
    never = [day for day, number in by_day.items() if not number]
    if never and any(by_day.values()):
        says = f"no row lies on {', '.join(never)}; if no shop opens then: closed = {dumps(never)}"
        yield LogFinding("days", "note", says)
    written = f"decimal is {sales.decimal!r}" + (f", thousands {sales.thousands!r}" if sales.thousands else "")
    form = "of the form 2025-12-31" if sales.date_format is None else f"of the form {sales.date_format}"
    flags = ", ".join(map(repr, [*sales.yes, *sales.no]))
    # What is wrong with rows of a column, and which key would mend it.
    faults = {
        "shop": ("name no shop and belong to no week", "an empty field, or a number like 1e3, is no id"),
        "date": (f"have no date {form} and belong to no week", "see [sales] date_format"),
        "closed": (f"lie on days that [sales] closed names ({', '.join(sales.closed)})", "they are not used"),
        "product": ("name a product that [problem] products does not", "they are not used"),
    } | {
        flag: (f"hold none of the words {flags} ({flag})", "they are unobserved; see [sales] yes and no")
        for flag in ("stock_out", "open")
    }
    for name, number in counts.items():
        if number:
            column = getattr(sales, "date" if name == "closed" else name)
            no_number = f"hold no number ({name}; {written})", "they are unobserved; see [sales] decimal"
            why, fix = faults.get(name, no_number)
            seen = f"{number:,} of {many(rows, 'row')} ({share_of(number, rows)}) {why}; {fix}"
            # An export may have other products and days than those that are planned.
            fine = name in ("product", "closed") and number < rows
            what = f"{'days of' if name == 'closed' else 'column'} {column}"
            yield LogFinding(what, "note" if fine else _stands(number, rows), seen)


def _stands(lost: int, of: int) -> Standing:
    return "bad" if lost > MOSTLY * of else "note"


def weeks_of_shops(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """How many weeks of shops there are, how many are complete, and what the others lack."""
    config, sales, problem = file.config, file.config.sales, file.config.problem.posed
    assert sales is not None
    # Rows of declared products, with the first rule that they break; NULL where they are used.
    facts = {"declared": list(log.coordinates), "most": problem.demand_max, "tried": _limits(problem)}
    products = ibis.memtable(pa.table({name: pa.array(values) for name, values in facts.items()}))
    cells = log.rows.inner_join(products, log.rows["product"] == products.declared)
    rules = list(_rules(config, cells))
    reasons = [(cells.why.notnull(), cells.why), *((broken, ibis.literal(name)) for name, _, broken in rules)]
    judged = cells.mutate(reason=ibis.cases(*reasons, else_=ibis.null("string")))
    first = ", and the first days of a week have no row before them" * (sales.missing_days != "unobserved")
    no_row = "missing rows"
    words = {name: says for name, says, _ in rules} | {
        no_row: f'have no row and are unobserved; [sales] missing_days is "{sales.missing_days}"{first}',
        TWICE: "stand more than once and are unobserved; is a column that tells them apart missing?",
        SHUT: "are rows of closed shops and unobserved",
    }
    expected = problem.horizon * len(config.problem.products)
    by_week = judged.group_by("week").aggregate(found=judged.count(), used=judged.reason.isnull().sum())
    seen = integers_of(
        by_week.aggregate(
            with_rows=by_week.count(),
            complete=(by_week.used == expected).sum(),
            short=(by_week.found < expected).sum(),
            found=by_week.found.sum(),
            used=by_week.used.sum(),
        )
    )
    by_shop = log.rows.group_by("shop").aggregate(weeks=log.rows["week"].nunique())
    beyond = ibis.greatest(by_shop.weeks - (config.privacy.max_per_unit or 0), 0)
    weeks, surplus = integers_of(by_shop.aggregate(weeks=by_shop.weeks.sum(), surplus=beyond.sum())).values()
    count, used, complete = weeks * expected, seen["used"], seen["complete"]
    says = f"{weeks:,} found: {complete:,} complete, {weeks - complete:,} incomplete"
    yield LogFinding("weeks of shops", "good" if weeks else "bad", says)
    lost = judged.filter(judged.reason.notnull())
    lacks = answer(lost.group_by("reason").aggregate(weeks=lost.week.nunique(), cells=lost.count())).to_pylist()
    # A week without a row of a declared product lacks all of them.
    lacks.append({"reason": no_row, "weeks": seen["short"] + weeks - seen["with_rows"], "cells": count - seen["found"]})
    for row in sorted(lacks, key=lambda row: (-row["cells"], row["reason"])):
        if row["cells"]:
            what, fix = row["reason"], words.get(row["reason"])
            if fix is None:
                what, fix = f"unreadable {what}", f"cannot be read in column {getattr(sales, what)} and are unobserved"
            lost_share = f"{row['cells']:,} of {count:,} days and products ({share_of(row['cells'], count)})"
            says = f"{lost_share}, in {many(row['weeks'], 'week')}, {fix}"
            yield LogFinding(what, _stands(row["cells"], count), says)
    # In a total over all products, those of which little or nothing can be used would hardly be seen.
    by_product = judged.group_by("product").aggregate(used=judged.reason.isnull().sum())
    by_name = {row["product"]: int(row["used"] or 0) for row in answer(by_product).to_pylist()}
    shares = {name: by_name.get(name, 0) / max(1, weeks * problem.horizon) for name in config.problem.products}
    if nothing := _some([name for name, share in shares.items() if not share]):
        fix = "is the name spelt as in the export, and can its numbers be read ([sales] decimal)?"
        yield LogFinding("products", "bad", f"no row can be used of: {nothing}; {fix}")
    if little := _some([name for name, share in shares.items() if 0 < share <= MOSTLY]):
        yield LogFinding("products", "note", f"less than {MOSTLY:.0%} of the days can be used of: {little}")
    if surplus and config.privacy.unit is not None:
        says = f"{surplus:,} of {many(weeks, 'week')} lie beyond max_per_unit and are not used"
        yield LogFinding("max_per_unit", "note", says)
    stands: Standing = "bad" if used <= MOSTLY * count else "note" if used < 0.9 * count else "good"
    yield LogFinding("used by a fit", stands, f"{share_of(used, count)} of all days and products of these weeks")


def _rules(config: Config, cells: ir.Table) -> Iterator[tuple[str, str, ir.BooleanValue]]:
    """Rules that readable numbers may break: what a break is called, what to do then, and which cells have it."""
    problem, columns = config.problem.posed, config.columns()
    opening, level, left = (cells[name].cast("float64") for name in ("opening", "order_up_to", "left"))
    for name, column in config.columns_of_labels().items():
        undeclared = f"have a value in column {column} that was not declared, or none, and are unobserved"
        mend = f"add it to [problem] labels = {{ {name} = [...] }}"
        yield (
            f"label {name}",
            f"{undeclared}; {mend}",
            ~check.declared(cells[columns.labels[name]], problem.labels, name),
        )
    if columns.scale:
        scale, why = cells.scale.cast("float64"), "too few weeks before, or 0 in its column"
        missing = ~row_rules.usable_divisor(scale).fill_null(False)
        yield "no scale", f"have no scale and are unobserved: {why}", missing
        level, opening, left = (amount / ibis.greatest(scale, SMALLEST_SCALE) for amount in (level, opening, left))
    if not config.log.clip:
        slack, moves = ROUNDING * cells.most, "[log] clip = true moves them"
        possible = (opening >= -slack) & (level >= opening - slack) & (left >= -slack) & (level >= left - slack)
        misfit = "do not fit (more sold than was there, or a negative number) and are unobserved"
        yield "numbers", f"{misfit}; {moves}", ~possible.fill_null(False)
        if not columns.scale:
            yield (
                "demand_max",
                f"lie beyond demand_max and are unobserved; raise it, or {moves}",
                level > cells.most + slack,
            )
    # Clipped values lie within their bounds, but not within λ.
    if (problem.share < 1).any():
        yield "boundary", "are orders beyond lambda, which are unobserved", level > cells.tried


def _some(names: list[str]) -> str:
    more = len(names) - FEW_PRODUCTS
    return ", ".join(names[:FEW_PRODUCTS]) + (f" and {more:,} more" if more > 0 else "")


def empty_shelves(config: Config, log: Table) -> LogFinding:
    """How often shelves ran empty, product by product, the emptiest first."""
    problem = config.problem.posed
    if config.sales is None:
        named = zip(config.problem.products, _amounts(log, log.columns.next_states), problem.demand_max, strict=True)
        empty = {name: (rest <= float(ROUNDING * top)).mean() for name, rest, top in named}
        (by_name,) = answer(log.rows.aggregate(**empty)).to_pylist()
    else:
        rows = log.rows.filter(log.rows["product"].isin(list(log.coordinates)) & log.rows["left"].notnull())
        by_product = rows.group_by("product").aggregate(empty=(rows["left"].cast("float64") <= 0).mean())
        by_name = {row["product"]: row["empty"] for row in answer(by_product).to_pylist()}
    shares = [(name, by_name[name]) for name in config.problem.products if by_name.get(name) is not None]
    ranked = sorted(shares, key=lambda pair: -pair[1])
    text = _some([f"{name} {share:.0%}" for name, share in ranked])
    return LogFinding("empty shelves", "good", f"on these shares of days: {text or 'none'}")


def orders_against_demand(log: Table, file: ConfigFile) -> LogFinding:
    """Test the log as it is, and say in the words of its file what would mend its orders."""
    problem, what = file.config.problem.posed, check.habits_of(trade_of(file.config.problem.posed).words)
    try:
        tested = check.exact_dependence(log, problem)
    except ValueError as error:
        return LogFinding(what, "good", f"could not be compared: {error}")
    seen = f"{advice_about_orders(tested)} (effect {tested.effect:+.2f}, z {tested.z:+.1f})"
    mend = f"; {REMEDY}; then check again" if tested.flagged else ""
    return LogFinding(what, "note" if tested.flagged else "good", f"{seen}{mend}")


def advice_about_orders(tested: Dependence) -> str:
    """What the test found."""
    if tested.flagged:
        return "orders follow demand, so demand is overestimated"
    if tested.error > MOST_ERROR:
        return "it cannot be told whether orders follow demand: there are too few rows, or too much noise"
    if tested.effect < -LEAST_EFFECT and tested.z < -LEAST_Z:
        slow = "as where stock is left after slow days or in slow shops"
        return f"higher order-up-to levels go with lower demand, {slow}; demand may be underestimated"
    return "no sign that orders follow demand"
