"""Which weeks of a sales export are complete, and what do the others lack?

For the data holder's eyes; not for release: the counts are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from poolrl.data.label_cells import comparable
from poolrl.data.row_rules import SMALLEST_SCALE, usable_divisor
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.problems.problem import ROUNDING
from poolrl.workflow.config import Config
from poolrl.workflow.config_file import ConfigFile
from poolrl.workflow.findings import MOSTLY, LogFinding, Standing, many, share_of
from poolrl.workflow.sales import SHUT, TWICE, readings

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
