"""A CSV file of stocks: what its columns mean, and its rows as questions in columns.

    wide    a row for each shop: step, a column for each product, labels, scale or scale_<product>
    long    a row for each shop and product: product, stock, step, labels, scale

Columns may have other names (`column_names`). Every cell is text. A column is read as a whole, and only if that fails
cell by cell, to name the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.workflow.column_names import DELIMITERS, STOCK_MEANINGS, meanings_of, words_like
from poolrl.workflow.desk import Desk
from poolrl.workflow.shelf import Questions, RowRefusedError

# Spellings that are kept in memory, for each column.
MOST_SPELLINGS = 100_000


@dataclass(frozen=True)
class CsvForm:
    """How a CSV file is written: the sign between cells, and the sign before decimals."""

    delimiter: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n\0 ' or self.delimiter.isalnum():
            raise ValueError("--delimiter must be one sign, for example ';', or the word tab")
        if self.decimal not in (".", ","):
            raise ValueError("--decimal must be . or ,")
        if self.decimal == self.delimiter:
            raise ValueError("--delimiter and --decimal must differ: for a decimal comma give --delimiter ';'")

    def number_text(self, cell: str) -> str:
        """A cell as Python reads numbers. A point beside a decimal comma may separate thousands: it is no number."""
        return cell.translate(COMMA_IS_POINT) if self.decimal == "," else cell

    def numbers(self, cells: Sequence[str]) -> FloatArray:
        """The numbers of a column; NaN where a cell holds none."""
        texts = cells if self.decimal == "." else [self.number_text(cell) for cell in cells]
        try:
            return np.array(list(map(float, texts)))
        except ValueError:
            return np.array([_number_or_nan(text) for text in texts])

    def why_not(self, cell: str) -> str:
        """What is wrong with a cell that is not a finite number."""
        if not cell.strip():
            return "is missing"
        if self.decimal == "." and "," in cell:
            return "must be a finite number; is the comma a decimal comma? Then give --decimal ','"
        if self.decimal == "," and "." in cell:
            return "must be a finite number with a decimal comma, and without points"
        return "must be a finite number"


COMMA_IS_POINT = str.maketrans({",": ".", ".": "?"})


class Spellings(dict[str, int]):
    """What words mean, looked up once for each word."""

    def __init__(self, read: Callable[[str], int]) -> None:
        super().__init__()
        self.read = read

    def __missing__(self, word: str) -> int:
        found = self.read(word)
        if len(self) < MOST_SPELLINGS:
            self[word] = found
        return found


@dataclass(frozen=True)
class StockTable:
    """The columns of a CSV file by their meaning. Errors about a row are `RowRefusedError`."""

    desk: Desk
    header: Sequence[str]
    form: CsvForm

    def __post_init__(self) -> None:
        twice = [name for name in self.header if name and self.header.count(name) > 1]
        if twice:
            raise ValueError(
                f"must have one column {twice[0]!r}, but the header names it {self.header.count(twice[0])} times"
            )
        products = self.desk.names.products
        if not self.is_long and (missing := [name for name in products if name not in self.header]):
            some = f"{', '.join(products[:10])}{', ...' if len(products) > 10 else ''}"
            raise ValueError(
                f"must have one column {missing[0]!r}{self._other_delimiter}: {', '.join(self._wanted)} and a column "
                f"for each product ({some}), or the columns product and stock"
            )
        for name in (self._called[meaning] for meaning in ("step", *self.desk.labels)):
            if name not in self.header:
                raise ValueError(f"must have one column {name!r}{self._other_delimiter}: {', '.join(self._wanted)}")
        if self.desk.scaled and not self._amount_columns("scale"):
            raise ValueError(
                "must have a column 'scale', what was expected before the order: the policy was learned with one"
            )
        if not set(self.header).isdisjoint(self.answer_names):
            raise ValueError(f"has answers already: columns {', '.join(self.answer_names[:3])}, ...")

    @cached_property
    def is_long(self) -> bool:
        """Whether a row asks for one product. A file with a column for each product is wide."""
        wide = all(name in self.header for name in self.desk.names.products)
        return not wide and {self._called["product"], self._called["stock"]} <= set(self.header)

    @cached_property
    def answer_names(self) -> list[str]:
        """The columns that answers add."""
        products = [""] if self.is_long else [f"_{name}" for name in self.desk.names.products]
        amounts = [f"{what}{product}" for what in ("order_up_to", "order") for product in products]
        return amounts + (["basis"] if self.desk.labels else [])

    @cached_property
    def has_packs(self) -> bool:
        """Whether the file says how large packs are."""
        return bool(self._amount_columns("pack"))

    def questions(self, rows: Sequence[Sequence[str]], packs: FloatArray | None) -> Questions:
        """The questions of some rows, each as long as the header. `packs` (products,) are those of the command line."""
        columns = list(zip(*rows, strict=True))
        step = self._words(columns, self._called["step"], self._steps)
        places = [
            self._words(columns, self._called[name], read)
            for name, read in zip(self.desk.labels, self._places, strict=True)
        ]
        if self.is_long:
            product = self._words(columns, self._called["product"], self._products)[:, None]
            stock = self._amounts(columns, [self._called["stock"]], "stock")
        else:
            product = self.desk.all_products
            stock = self._amounts(columns, self.desk.names.products, "stock of {}")
        scale, pack = (
            self._amounts(columns, names, "{}", above_zero=True) if names else None
            for names in (self._amount_columns("scale") if self.desk.scaled else [], self._amount_columns("pack"))
        )
        if packs is not None:
            pack = packs[product]
        empty: IntArray = np.zeros((len(rows), 0), dtype=np.int64)
        return Questions(step, np.stack(places, axis=1) if places else empty, product, stock, scale, pack)

    @cached_property
    def _called(self) -> dict[str, str]:
        """What this file calls step, product, stock, scale, pack and each label. Their own names come first."""
        labels = {name: words_like(name) for name in self.desk.labels if name not in self.header}
        taken = {*self.desk.labels, *self.desk.names.products}
        found = meanings_of([name for name in self.header if name not in taken], STOCK_MEANINGS | labels)
        return {name: name for name in self.desk.labels} | {
            meaning: names[0] if len(names) == 1 and meaning not in names else meaning
            for meaning, names in found.items()
        }

    @cached_property
    def _wanted(self) -> list[str]:
        return ["step", *self.desk.labels, *(["scale"] if self.desk.scaled else [])]

    @property
    def _other_delimiter(self) -> str:
        shown = [sign for sign in DELIMITERS if sign != self.form.delimiter and sign in "".join(self.header)]
        return f" (is the delimiter another one? Give --delimiter {DELIMITERS[shown[0]]})" if shown else ""

    def _amount_columns(self, what: str) -> list[str]:
        """One column for all products, or one for each; none if there is neither."""
        if self._called[what] in self.header and self._called[what] not in self.desk.names.products:
            return [self._called[what]]
        by_product = [f"{what}_{name}" for name in self.desk.names.products]
        return by_product if not self.is_long and all(name in self.header for name in by_product) else []

    @cached_property
    def _at(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.header)}

    @cached_property
    def _steps(self) -> Spellings:
        return Spellings(self.desk.step)

    @cached_property
    def _products(self) -> Spellings:
        return Spellings(self.desk.product)

    @cached_property
    def _places(self) -> list[Spellings]:
        def reader(label: str) -> Callable[[str], int]:
            as_number = self.desk.has_numbers(label)
            return lambda cell: self.desk.place(label, self.form.number_text(cell) if as_number else cell)

        return [Spellings(reader(label)) for label in self.desk.labels]

    def _words(self, columns: Sequence[Sequence[str]], name: str, known: Spellings) -> IntArray:
        cells = columns[self._at[name]]
        try:
            return np.fromiter(map(known.__getitem__, cells), dtype=np.int64, count=len(cells))
        except ValueError:
            for row, cell in enumerate(cells):
                try:
                    known[cell]
                except ValueError as error:
                    raise RowRefusedError(row, str(error)) from None
            raise

    def _amounts(
        self, columns: Sequence[Sequence[str]], names: Sequence[str], words: str, *, above_zero: bool = False
    ) -> FloatArray:
        found = np.empty((len(columns[0]), len(names)))
        for i, name in enumerate(names):
            cells = columns[self._at[name]]
            found[:, i] = self.form.numbers(cells)
            what = f"the {words.format(name)}" if not above_zero else words.format(name)
            if not (good := np.isfinite(found[:, i])).all():
                row = int(good.argmin())
                raise RowRefusedError(row, f"{what} {self.form.why_not(cells[row])}")
            if above_zero and not (good := found[:, i] > 0).all():
                raise RowRefusedError(int(good.argmin()), f"{what} must be positive")
        return found


def _number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
