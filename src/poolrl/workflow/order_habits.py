"""Do the log's orders follow demand, and what would mend it? On exact counts, so for the data holder's eyes alone.

The statistic is that of `learning.dependence`. If it is flagged, it is computed twice more: within each unit, as if the
unit's column were a label, and in multiples of the mean of earlier sales, as if that were the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import ibis

from poolrl.data.counts import count_joint
from poolrl.data.log import Columns
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.learning.dependence import compare_levels, compared
from poolrl.learning.stored import LEAST_EFFECT, LEAST_Z, Dependence
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING, OutcomeProblem
from poolrl.workflow.config_file import ConfigFile
from poolrl.workflow.open_log import open_log

# With more error than this, z would miss the weakest of the managers' logs.
MOST_ERROR = 0.03
# The scale that is tried: mean sales of so many trajectories before, and a bound in multiples of it.
MEAN_OF, BOUND_IN_MULTIPLES = 4, 4.0
# More units than this are people rather than shops, and no label.
MOST_TRIED_VALUES = 2000
# Remedies of a sales export that is larger are named, but not tried: its query would run again.
MOST_TRIED_ROWS = 3_000_000


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
