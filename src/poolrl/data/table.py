"""A log that stays where it is: DuckDB, Spark or another engine counts it, by one expression for each count.

Only counts come back, so the log may be larger than memory. No row makes a count fail, because a failure would reveal
that row. The rules look at one unit at a time (docs/privacy.md, lemmas 4 and 19):

  - a row is left out without an id (`data/ids.py`), a step among 0 .. H−1 or, with coordinates, a declared one;
  - a trajectory that has a step twice (of one coordinate) is unobserved, and so is a step whose public labels differ;
  - the first max_per_unit trajectories of a unit, in the order of their ids, are kept;
  - a row is unobserved where a value is no number within the public bounds, a scale is not positive, or a label is
    missing or was not declared.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np

from poolrl.checks import IntArray, whole
from poolrl.data import expressions
from poolrl.data.arrow import as_arrow
from poolrl.data.cells import (
    NOWHERE,
    CellFormula,
    cell_count,
    outcome_cells,
    recorded_cells,
    side_formula,
    sides,
)
from poolrl.data.expressions import COORDINATE, beside, with_places
from poolrl.data.ids import can_be_ids, canonical
from poolrl.data.log import Columns, Log, LogFacts, Tally, check_relative, is_relative, missing_column
from poolrl.data.row_rules import has_own_bounds, multiples_of, widths
from poolrl.data.sources.engine import NoRowsError, Source, answer, by_bytes, in_memory
from poolrl.data.trace import Recording
from poolrl.geometry.resolution import TOGETHER_BANDS
from poolrl.problems.labels import Labels, LabelValue
from poolrl.problems.problem import OutcomeProblem, Problem


class Table(Log):
    """A table with one row per (trajectory, step), in an engine: any Ibis table, or an Arrow, pandas or polars one.

        Table(ibis.read_parquet("log/*.parquet"), trajectory="week", step="day", states=["stock"],
              actions=["order_up_to"], next_states=["left"], unit="shop", max_per_unit=52)

    `columns` are the fields of `Columns`. `first_step` is the number of the first step. With `clip`, values outside the
    public bounds are moved to the nearest possible ones. Without it such rows are unobserved. `Trajectories` says what
    `scale_memory` and `labels_public` declare.

    The types of columns are taken as they are: give every column its type where a frame is read, for a reader that
    guesses lets one row decide how all others are read.

    A long table has one row per (trajectory, step, coordinate), for a problem whose coordinates are separable.
    `coordinate` names the column that says which one a row shows, as "product". `coordinates` declares its values, as
    ["bread", "milk"], in the order of the problem's.
    """

    def __init__(
        self,
        rows: Any,
        *,
        coordinates: Iterable[LabelValue] = (),
        max_per_unit: int = 1,
        first_step: int = 0,
        clip: bool = False,
        scale_memory: int = 0,
        labels_public: bool = False,
        ids_public: bool = False,
        step_labels: Iterable[str] = (),
        **columns: Any,
    ) -> None:
        named = Columns(**columns)
        facts = LogFacts(
            has_units=named.unit is not None,
            max_per_unit=max_per_unit,
            ids_public=bool(ids_public),
            has_scale=bool(named.scale),
            scale_memory=scale_memory,
            label_names=tuple(named.labels),
            step_labels=tuple(step_labels),
            labels_public=bool(labels_public),
            has_coordinates=named.coordinate is not None,
        )
        super().__init__(facts)
        if isinstance(rows, str | Path):
            raise ValueError("rows must be a table: for files, Table(ibis.read_parquet(path), ...)")
        opened = rows if isinstance(rows, Source) else Source(_table_of(rows, named))
        table = opened.rows
        whole(at_least=-(2**31), first_step=first_step)
        check_columns(table, named)
        self.rows, self.columns, self.first_step = table, named, int(first_step)
        self._coordinates = checked_coordinates(table, named, coordinates)
        # Of a long table those rows are counted that show a declared coordinate, and they are given its place.
        self.counted = table
        if self._coordinates is not None and named.coordinate is not None:
            self.counted = with_places(table, [table[named.coordinate]], self._coordinates, COORDINATE)
        # From all rows, whatever is selected from them later, so that an engine reads each spelling once.
        self._readings = {key: _readings(table[name], key) for key, name in self._id_columns().items()}
        self.clip, self.definitions = clip, opened.definitions

    def __repr__(self) -> str:
        return "Table(sensitive)"

    def check(self, problem: Problem) -> None:
        """Refuse columns that do not fit the problem. Their content is not looked at."""
        check_relative(self, problem)
        wanted = widths(problem) | ({"scale": problem.scale_dim} if self.facts.has_scale else {})
        if self.facts.has_coordinates:
            if len(self.coordinates) != problem.state_dim:
                raise ValueError(f"coordinates must be {problem.state_dim}, got {len(self.coordinates)}")
            wanted = dict.fromkeys(wanted, 1)
        for name, number in wanted.items():
            given = len(getattr(self.columns, name))
            if given != number:
                raise ValueError(f"{name} must name {number} columns, got {given}")
        for name, column in self.columns.labels.items():
            expressions.comparable(self.rows[column], problem.labels, name)

    @property
    def coordinates(self) -> tuple[LabelValue, ...]:
        """The declared values of a row's coordinate, in the order of the problem's; none where a row shows all."""
        return () if self._coordinates is None else self._coordinates.values[0]

    @cached_property
    def units(self) -> int:
        """How many units the log holds. This is public, because neighbours replace one unit."""
        named = self._named(self.rows.select(self._id_columns()))
        number = int(answer(named.aggregate(units=named[self._keys[0]].nunique()))["units"][0].as_py())
        if number == 0:
            raise NoRowsError("the table must not be empty: no row names a trajectory and its unit")
        return number

    def rows_of_steps(self, horizon: int, of: ir.Table | None = None, **columns: ir.Value) -> ir.Table:
        """Keys, step, coordinate and more `columns` of the rows that have ids, a step in 0 .. H−1 and a coordinate."""
        rows = self.counted if of is None else of
        step = rows[self.columns.step]
        # A step is read like an id: only whole numbers are steps.
        step = step if step.type().is_integer() else canonical(step.cast("float64"))
        steps = step.between(self.first_step, self.first_step + horizon - 1)
        # Rows that the filter removes get a step that can be cast too, because engines may filter later.
        place = (ibis.ifelse(steps, step, self.first_step).cast("int64") - self.first_step).cast("int32")
        return self.named_rows(rows.filter(steps), step=place, **columns)

    def named_rows(self, of: ir.Table | None = None, **columns: ir.Value) -> ir.Table:
        """Keys, coordinate and further columns of all rows that have ids and a coordinate, whatever their step."""
        rows = self.counted if of is None else of
        place = {"coordinate": rows[COORDINATE].cast("int32")} if self.facts.has_coordinates else {}
        return self._named(rows.select(**self._id_columns(), **place, **columns))

    def lives(self, horizon: int) -> ir.Table:
        """One row per trajectory (and coordinate): its keys, number of rows, whether one is `repeated` or `surplus`."""
        lives = expressions.count_steps(self.rows_of_steps(horizon), self._life, horizon)
        surplus = self._rank(lives) >= self.facts.max_per_unit if self.facts.has_units else ibis.literal(False)
        return lives.mutate(surplus=surplus)

    @staticmethod
    def _rank(lives: ir.Table) -> ir.IntegerColumn:
        """The place of a trajectory in its unit, by id. The order of rows may depend on other units."""
        return ibis.dense_rank().over(group_by=lives.unit, order_by=lives.trajectory)

    def dropped(self, horizon: int) -> ir.Table:
        """The keys of what is not used, trajectories or coordinates of them, under a name: engines find them once."""
        lives = self.lives(horizon)
        return lives.filter(lives.repeated | lives.surplus).select(self._life).alias("poolrl_dropped")

    def _named(self, rows: ir.Table) -> ir.Table:
        """The rows that have ids, with their ids in one spelling."""
        for key in self._keys:
            readings = self._readings[key]
            if readings is None:
                rows = rows.mutate(**{key: canonical(rows[key])})
                rows = rows.filter(rows[key].notnull())
            else:
                others = [rows[name] for name in rows.columns if name != key]
                joined = rows.inner_join(readings, rows[key] == readings.spelling)
                rows = joined.filter(readings.reading.notnull()).select(readings.reading.name(key), *others)
        return rows

    @property
    def _keys(self) -> list[str]:
        """The identity of a trajectory: equal ids in two units are two trajectories."""
        return ["unit", "trajectory"] if self.facts.has_units else ["trajectory"]

    @property
    def _life(self) -> list[str]:
        """In what no step may come twice: a trajectory, or what it shows of one coordinate."""
        return [*self._keys, "coordinate"] if self.facts.has_coordinates else self._keys

    def _id_columns(self) -> dict[str, str]:
        names = {"unit": self.columns.unit, "trajectory": self.columns.trajectory}
        return {key: name for key, name in names.items() if name is not None}

    def outcome_leaves(self, problem: OutcomeProblem, *, bins: int, formula: CellFormula = outcome_cells) -> IntArray:
        """How many rows fall into each cell of a formula, (*labels, H, k, `cell_count`)."""
        places = cell_count(problem, formula, bins) + 1  # of each tree: NOWHERE, then its cells
        counted = np.zeros((problem.labels.count * problem.horizon * problem.outcome_dim, places), dtype=np.int64)
        # Batches are not put together: a log of many label cells has millions of counts.
        for batch in answer(self.outcome_expression(problem, bins=bins, formula=formula)).to_batches():
            place, rows = (np.asarray(batch[name], dtype=np.int64) for name in ("place", "rows"))
            counted.reshape(-1)[place] = rows  # by place, because an engine returns groups in any order
        shape = *problem.labels.shape, problem.horizon, problem.outcome_dim, places - 1
        return np.ascontiguousarray(counted[:, 1:]).reshape(shape)

    def outcome_expression(
        self, problem: OutcomeProblem, *, bins: int, formula: CellFormula = outcome_cells
    ) -> ir.Table:
        """The counts of cells that are not zero: columns place (one number says where each belongs) and rows."""
        places, tallies = cell_count(problem, formula, bins) + 1, []
        for coordinate, rows in enumerate(self._formula_cells(problem, bins=bins, formula=formula)):
            # By small numbers: to put them together for every row would take longer than to group it.
            groups = [name for name in ("label", "step", "coordinate", "cell") if name in rows.columns]
            tally = rows.select(groups).group_by(groups).aggregate(rows=ibis._.count())
            place = _tree(tally, problem, coordinate) * places + (tally.cell - NOWHERE)
            tallies.append(tally.select("rows", place=place))
        return ibis.union(*tallies) if len(tallies) > 1 else tallies[0]

    def label_totals(self, problem: Problem) -> IntArray:
        """How many slots have each combination of labels at each step, (*labels, H)."""
        totals = np.zeros((problem.labels.count, problem.horizon), dtype=np.int64)
        rows = self._rows(problem, self._labelled(problem), {})
        if self.facts.has_coordinates:
            # A step of a trajectory fills one slot, whatever number of rows it has.
            steps = self._label_of_steps(rows)
            lives = self.lives(problem.horizon)
            surplus = lives.filter(lives.surplus).select(self._keys).distinct()
            rows = steps.filter(steps.label == steps.last).anti_join(surplus, self._keys)
        else:
            rows = rows.anti_join(self.dropped(problem.horizon), self._keys)
        counts = rows.group_by(["label", "step"]).aggregate(rows=ibis._.count())
        label, step, many = _integers(counts, "label", "step", "rows")
        totals[label, step] = many
        return totals.reshape(*problem.labels.shape, problem.horizon)

    def crowd_tallies(self, problem: OutcomeProblem, *, edges: IntArray) -> list[Tally]:
        """For each step, how many trajectories show j sides of their edges, i of them beyond: cell j · (k + 1) + i."""
        shown = []
        by_coordinate = self._formula_cells(problem, bins=TOGETHER_BANDS, formula=side_formula(problem))
        for coordinate, seen in enumerate(by_coordinate):
            rows = beside(seen, _tree(seen, problem, coordinate), {"edge": edges.ravel().tolist()})
            known, beyond = sides(problem, rows.cell, rows.edge.cast("int64"))
            known = known & (rows.cell != NOWHERE)
            numbers = {"known": known.cast("int64"), "beyond": (known & beyond).cast("int64")}
            shown.append(rows.select(*self._keys, "step", **numbers))
        rows = ibis.union(*shown) if len(shown) > 1 else shown[0]
        crowds = rows.group_by([*self._keys, "step"]).aggregate(shown=rows.known.sum(), far=rows.beyond.sum())
        crowd = crowds.shown.cast("int64") * (problem.outcome_dim + 1) + crowds.far.cast("int64")
        counts = crowds.select("step", crowd=crowd).group_by(["step", "crowd"]).aggregate(rows=ibis._.count())
        step, cell, many = _integers(counts, "step", "crowd", "rows")
        return [(cell[step == number], many[step == number]) for number in range(problem.horizon)]

    def _formula_cells(self, problem: OutcomeProblem, *, bins: int, formula: CellFormula) -> list[ir.Table]:
        """Keys, step and cell of every row that is kept, and its label: in one table, or one for each coordinate."""
        relative = is_relative(self, problem)
        dropped = self.dropped(problem.horizon)
        recordings = recorded_cells(problem, formula, bins, relative=relative, clip=self.clip)
        checks = multiples_of(problem, divided=relative, clip=self.clip)
        labelled, one = self._labelled(problem), expressions.OnColumns()
        if self.facts.has_coordinates:
            one = expressions.OnOneColumn(problem.outcome_dim, [*checks, *recordings])
            labelled = beside(labelled, labelled[COORDINATE], one.facts)
        one.read_from(labelled)
        # The facts travel with the rows, because the formulas of cells use them too.
        numbers = self._numbers(problem, labelled, checks, one) | {name: labelled[name] for name in one.facts}
        rows = self._rows(problem, labelled, numbers)
        one.read_from(rows)
        # A scan for each, of its own columns if it needs no others, is faster than one that multiplies rows.
        cells = expressions.cells_by_step(problem, rows, recordings, one)
        return [self._kept(rows, cell, dropped) for cell in cells]

    def _kept(self, rows: ir.Table, cell: ir.Value, dropped: ir.Table) -> ir.Table:
        """The rows with their cells, without those of dropped trajectories."""
        groups = [*(name for name in ("label", "step", "coordinate") if name in rows.columns), "cell"]
        # Cells come before the join, which then moves one column. Small numbers make small tables of groups.
        kept = rows.mutate(cell=cell.cast("int32").fill_null(NOWHERE)).select(*self._keys, *groups)
        kept = kept.anti_join(dropped, self._life)
        if self.facts.has_coordinates and self.facts.labels_public:
            steps = self._label_of_steps(rows)
            kept = kept.anti_join(steps.filter(steps.label != steps.last), [*self._keys, "step"])
        return kept

    def _label_of_steps(self, rows: ir.Table) -> ir.Table:
        """The first and the last label cell that a trajectory's rows of a step name: the same, if they name one."""
        return rows.group_by([*self._keys, "step"]).aggregate(label=rows.label.min(), last=rows.label.max())

    def _numbers(
        self,
        problem: Problem,
        rows: ir.Table,
        checks: tuple[Recording, Recording],
        evaluator: expressions.OnColumns,
    ) -> dict[str, ir.Column]:
        columns = self.columns
        given = [[rows[name] for name in names] for names in (columns.states, columns.actions, columns.next_states)]
        divisors: list[Any] = [rows[name].cast("float64") for name in columns.scale]
        if has_own_bounds(problem):
            shares = [rows[expressions.SHARE.format(i)].cast("float64") for i in range(len(columns.states))]
            divisors = [d * share for d, share in zip(divisors, shares, strict=True)] if divisors else shares
        return expressions.harmless(checks, given, evaluator, divisors)

    def _labelled(self, problem: Problem) -> ir.Table:
        """The rows whose labels are declared, with their cells; all rows where the problem has no labels."""
        if not problem.labels:
            return self.counted
        named = [self.counted[self.columns.labels[name]] for name in problem.labels.names]
        return expressions.with_label_cells(self.counted, named, problem, by_coordinate=self.facts.has_coordinates)

    def _rows(self, problem: Problem, rows: ir.Table, numbers: dict[str, ir.Column]) -> ir.Table:
        """Keys, step and harmless numbers of every row."""
        label = {"label": rows[expressions.CELL].cast("int32")} if problem.labels else {}
        return self.rows_of_steps(problem.horizon, rows, **numbers, **label)


def _table_of(rows: Any, columns: Columns) -> ir.Table:
    """A table of an engine, whose texts are equal where their bytes are."""
    if not isinstance(rows, ir.Table):
        arrow = as_arrow(rows, columns)
        try:
            return in_memory(arrow)
        except KeyError:  # of a type that Ibis does not know
            raise ValueError("columns must hold ids, numbers or text: one has another type") from None
    return by_bytes(rows, columns.as_they_are() & {*rows.columns})


def _readings(column: ir.Column, key: str) -> ir.Table | None:
    """Each text of a column beside the id that it spells; None where ids need no reading.

    Texts are grouped first, because to read one takes longer than to group many. They are read from the answer of an
    aggregate, because engines move a condition on a group's own key to before the grouping.
    """
    if not column.type().is_string():
        return None
    texts = column.name("spelling").as_table()
    found = texts.group_by("spelling").aggregate(text=texts.spelling.max())
    return found.select("spelling", reading=canonical(found.text)).alias(f"poolrl_{key}_ids")


def check_columns(rows: ir.Table, columns: Columns) -> None:
    """Refuse a column that is not there, or whose type cannot hold what it is named for."""
    schema = rows.schema()
    for name in columns.names():
        if name not in schema:
            raise ValueError(missing_column(name, schema.names))
        kind = schema[name]
        if name in (columns.trajectory, columns.unit) and not can_be_ids(kind):
            raise ValueError(f"column {name!r} must hold ids (numbers, text, dates), but has type {kind}")
        # The problem's declared values say what a label's column may hold.
        if name not in columns.as_they_are() and not kind.is_numeric():
            raise ValueError(f"column {name!r} must hold numbers, but has type {kind}")


def checked_coordinates(rows: ir.Table, columns: Columns, given: Iterable[LabelValue]) -> Labels | None:
    """The declared coordinates as the values of a label without a name; None where a row shows all coordinates."""
    values = () if isinstance(given, str) else tuple(given)
    if columns.coordinate is None:
        if given:
            raise ValueError("coordinates needs coordinate: name the column that says which coordinate a row shows")
        return None
    try:
        declared = Labels({"": values})
    except ValueError as error:
        raise ValueError(str(error).replace("label ''", "coordinates")) from None
    expressions.comparable(rows[columns.coordinate], declared, "")
    return declared


def _tree(rows: ir.Table, problem: OutcomeProblem, coordinate: int) -> ir.Value:
    """The tree of each row. Those of all label cells, steps and coordinates are numbered in this order."""
    first = rows.label.cast("int64") * problem.horizon if "label" in rows.columns else ibis.literal(0, "int64")
    return (first + rows.step) * problem.outcome_dim + (rows.coordinate if "coordinate" in rows.columns else coordinate)


def _integers(counts: ir.Table, *names: str) -> list[IntArray]:
    found = answer(counts)
    return [np.asarray(found[name], dtype=np.int64) for name in names]
