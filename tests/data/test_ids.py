"""Several spellings of one unit are one unit, on every engine and in Python; worked by hand, and for all of Unicode."""

from __future__ import annotations

import datetime as dt
import sys
import unicodedata
import uuid
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import Table, Trajectories
from poolrl.data.ids import can_be_ids, canonical_texts, first_of_each, foldings, owners
from tests.helpers.shops import Facts
from tests.helpers.sources import seen
from tests.helpers.spellings import NO_UNIT, ONE_UNIT, forms, some_texts
from tests.helpers.tables import columns

# Each row is one unit, in scripts other than ASCII.
ONE_IN_ANY_CASE = (
    ("ЯМА 7", "яма 7", "Яма７"),
    ("ΑΘΗΝΑΣ", "αθηνας", "αθηνασ"),
    ("ŁÓDŹ", "łódź", "Łódz\u0301"),
    ("ØL", "øl", "\u2800øl\u17b4", "ø\u2065l\u3164"),
    ("STRASSE", "straße", "STRAẞE", "strasse"),
    ("İSTANBUL", "istanbul", "ISTANBUL", "ıstanbul", "i\u0307stanbul", "I\u0307stanbul"),
    ("\U00010400x", "\U00010428X"),
    ("ᏣᎳᎩ", "ꮳꮃꭹ"),
    ("ՀԱՅ", "հայ"),
)
EVERYTHING = [text for group in (*ONE_UNIT.values(), *ONE_IN_ANY_CASE) for text in group]


def distinct(groups: Iterable[Iterable[str]]) -> list[set[str | None]]:
    """The ids that the texts of each group spell, all read at once."""
    listed = [[*group] for group in groups]
    read = iter(canonical_texts([text for group in listed for text in group]))
    return [{next(read) for _ in group} for group in listed]


def one_row_each(ids: pa.Array, **more: Any) -> pa.Table:
    """A log of H = 1 in which row i belongs to trajectory or unit ids[i]."""
    numbers = {name: pa.array(np.zeros(len(ids))) for name in ("state_0", "action_0", "next_state_0")}
    return pa.table({"trajectory": ids, "step": pa.array(np.zeros(len(ids), dtype=int)), **numbers, **more})


# Texts.


def test_spellings_of_one_unit() -> None:
    assert distinct(ONE_UNIT.values()) == [{read} for read in ONE_UNIT]
    ids = distinct(ONE_IN_ANY_CASE)
    assert all(len(found) == 1 and None not in found for found in ids), ids
    assert len(set.union(*ids)) == len(ids)  # and different units stay different
    assert canonical_texts([*NO_UNIT, "ᾳ", "α\u0345"]) == [None] * (len(NO_UNIT) + 2)


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (None, [".0", "0.10", "1E3", "1e+3", ".5e-3", "-1.e3"]),
        ("x", ["x.0", "x.00", "00x", "\u200bx"]),
        ("?", ["é", "e\u0301", "ж\u0483"]),
        ("ক?", ["ক\u09cb", "ক\u09c7\u09be"]),  # a vowel sign in one character and in two
        ("жaz{[@`!~", ["жAZ{[@`!~\x7f"]),  # of ASCII letters alone have two cases, and all but the last is drawn
        (None, ["жǅ"]),
        ("a", ["a\n"]),
        ("ab", ["A b"]),
        ("αι", ["ΑΙ"]),
        ("-1", ["0-1"]),
        *((text, [text]) for text in ("7.5", "10", "1e", "e3", "x.10", "a-0", "12-3", "3/4", "!")),
    ],
)
def test_texts_by_hand(read: str | None, given: list[str]) -> None:
    assert canonical_texts(given) == [read] * len(given)


def test_a_date_is_one_id_with_and_without_its_midnight() -> None:
    times = ("", " 00:00", " 00:00:00", "T00:00:00", "t00:00:00", "T00:00Z", " 00:00:00.000", " 00:00:00+00", " 00:00 ")
    for text in ("2025-03-01", "till 4"):
        assert len({*canonical_texts([text + time for time in times])}) == 1
    others = ("-01 00:01:00", "-01 12:00:00", "-01 00:00:01", "-02", "-01 00:00:00+01")
    assert len({*canonical_texts([f"2025-03{text}" for text in ("-01", *others)])}) == 6
    # What was dropped once leaves nothing that would be dropped the second time.
    once = canonical_texts(["a00:00" * 3, "7.000:00", "1e300:00", "a.0 00:00.0", "00:00"])
    assert canonical_texts(once) == once


def cases(text: str) -> set[str]:
    """The same text in every case: Python's own tables say what they are."""
    return {text, text.upper(), text.lower(), text.title(), text.swapcase(), text.casefold()}


def test_every_character_is_one_in_all_its_cases_and_normal_forms() -> None:
    """All of Unicode, with a letter before and a digit after: read alike, or left out."""
    spelt: dict[str, set[str]] = {}
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        if 0xD800 <= point < 0xE000 or (0xAC00 <= point < 0xD7A4 and point % 97):
            continue  # no characters, and eleven thousand syllables that are all made alike
        if len(cases(character)) > 1 or not unicodedata.is_normalized("NFKD", character):
            spelt[hex(point)] = {f"b{text}7" for text in cases(character)} | forms(f"b{character}7")
    assert not [point for point, read in zip(spelt, distinct(spelt.values()), strict=True) if len(read - {None}) > 1]


def test_cases_and_normal_forms_of_one_text_are_never_two_units() -> None:
    read = distinct({form for case in cases(text) for form in forms(case)} for text in some_texts(120))
    assert all(len(found - {None}) <= 1 for found in read)


def test_no_letter_is_folded_twice() -> None:
    """So the order of the tables does not matter, and one table more for a text changes nothing."""
    given = "".join(fold.given for fold in foldings())
    assert len(given) == len({*given}) > 1000
    assert not {*given} & {*"".join(fold.counts_as for fold in foldings())}


def test_characters_that_are_not_drawn_are_dropped() -> None:
    """What Unicode lets every font ignore, also where nothing is assigned yet."""
    # The ends of Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties, and blanks that are no white space.
    ends = [(0xAD,), (0x34F,), (0x61C,), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F)]
    ends += [(0x202A, 0x202E), (0x2060, 0x206F), (0x3164,), (0xFE00, 0xFE0F), (0xFEFF,), (0xFFA0,), (0xFFF0, 0xFFF8)]
    ends += [(0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF), (0x2800,), (0x16FE4,), (0x1D159,)]
    ends += [(0x80, 0x9F), (0xA0,), (0x2000, 0x200A), (0x2028, 0x2029), (0x3000,)]  # controls, and white space
    characters = [chr(point) for points in ends for point in points]
    assert canonical_texts([f"b{character}7" for character in characters]) == ["b7"] * len(characters)


# Columns.


def test_a_table_counts_spellings_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As units and as trajectories; without the rule, which the test then misses, each is one by itself."""
    spellings = [text for group in ONE_UNIT.values() for text in group]
    table = one_row_each(pa.array([*spellings, *NO_UNIT]))
    assert Table(table, **columns(1)).units == len(ONE_UNIT)
    owned = table.append_column("unit", table["trajectory"]).set_column(0, "trajectory", pa.array(range(len(table))))
    by_unit = Table(owned, **columns(1, unit="unit", max_per_unit=2))
    assert by_unit.units == len(ONE_UNIT)
    lives = by_unit.lives(1).to_pyarrow().to_pydict()
    kept = [unit for unit, surplus in zip(lives["unit"], lives["surplus"], strict=True) if not surplus]
    assert max(kept.count(unit) for unit in kept) == 2
    monkeypatch.setattr("poolrl.data.table.canonical", lambda column: column)
    assert Table(table, **columns(1)).units > 3 * len(ONE_UNIT)


def test_which_trajectories_are_kept_is_decided_by_ids_as_they_are_read() -> None:
    """Of " 2", "１" and "03" those that read 1 and 2, whatever their bytes are."""
    table = one_row_each(pa.array([" 2", "１", "03"]), unit=pa.array(["x", "X ", "ｘ"]))
    lives = Table(table, **columns(1, unit="unit", max_per_unit=2)).lives(1)
    kept = lives.filter(~lives.surplus).to_pyarrow()["trajectory"].to_pylist()
    assert sorted(kept) == ["1", "2"]


def test_two_types_of_one_id_in_two_files(tmp_path: Path, facts: Facts) -> None:
    """Text and times. Every trajectory is in both files, so all of its steps are there twice."""
    table = pq.read_table(tmp_path / "log.parquet")
    ids = table["trajectory"].to_pylist()
    days = [dt.datetime(2020, 1, 1) + dt.timedelta(days=int(i)) for i in ids]
    (tmp_path / "both").mkdir()
    spelt = pa.array([f"{day:%Y-%m-%d}" for day in days]), pa.array(days, pa.timestamp("us"))
    for number, column in enumerate(spelt):
        pq.write_table(table.set_column(0, "trajectory", column), tmp_path / "both" / f"{number}.parquet")
    found = seen(tmp_path, facts, source="both")
    assert (found.units, found.counts().sum()) == (300, 0)


@pytest.mark.parametrize(
    ("ids", "units"),
    [
        (pa.array([7.0, -0.0, 0.0, 7.5, float("nan"), float("inf"), 1e300, None]), 2),
        (pa.array([Decimal("7.50"), Decimal("7.5"), Decimal("8.0")]), 2),
        (pa.array(np.arange(5) * 2**40 - 2**50), 5),
        (pa.array(np.arange(5).astype("datetime64[D]")), 5),
        (pa.array(["7", "7.0", "x"]).dictionary_encode(), 2),
    ],
    ids=["floats", "decimals", "large integers", "dates", "dictionary"],
)
def test_ids_that_are_not_text(ids: pa.Array, units: int) -> None:
    assert Table(one_row_each(ids), **columns(1)).units == units


@pytest.mark.parametrize(
    ("kinds", "held"),
    [
        ("int8 uint64 float32 float64 decimal(5,2) boolean uuid null date time timestamp string", True),
        ("float16 binary array<int8> interval('s') json", False),
    ],
)
def test_which_types_can_be_ids(kinds: str, held: bool) -> None:
    """No rule says which bytes are one text."""
    assert {kind: can_be_ids(ibis.dtype(kind)) for kind in kinds.split()} == dict.fromkeys(kinds.split(), held)
    for read in (Table, Trajectories.from_table):
        with pytest.raises(ValueError, match="must hold ids"):
            read(one_row_each(pa.array([b"7"])), **columns(1))


def test_a_table_in_memory_numbers_ids_like_the_engine() -> None:
    """`Trajectories.from_table` and `Table` find the same units, in the order of the ids that they read."""
    spellings = [*EVERYTHING[::3], "b", "a 1", "10", "9"]
    table = one_row_each(pa.array([f"week {i}" for i in range(len(spellings))]), unit=pa.array(spellings))
    named = columns(1, unit="unit", max_per_unit=12)
    log, ids = Trajectories.from_table(table, **named), [read or "" for read in canonical_texts(spellings)]
    assert log.units == Table(table, **named).units == len({*ids})
    # `owner` numbers units in the order of their ids, trajectories in the order of theirs.
    weeks = sorted(range(len(ids)), key=lambda i: f"week{i}")
    assert log.owner.tolist() == [sorted({*ids}).index(ids[i]) for i in weeks]


# Arrays and lists.

LARGEST = 2**53
NOON = dt.datetime(2024, 3, 1, 12, 0)


@pytest.mark.parametrize(
    "same",
    [
        [7, 7.0, "07", np.int8(7), np.uint64(7), np.float32(7), Decimal("7.00"), Decimal("7"), Fraction(7), "+7"],
        [1, True, np.bool_(True), "1", Decimal(1)],
        [0, False, np.bool_(False), -0.0, "-0", Decimal("-0.0")],
        [LARGEST, float(LARGEST), str(LARGEST), Decimal(LARGEST)],
        [dt.date(2024, 3, 1), dt.datetime(2024, 3, 1), np.datetime64("2024-03-01T00:00:00.000"), "2024-03-01"],
        [NOON, np.datetime64("2024-03-01T12:00:00"), "2024-03-01 12:00:00"],
        [Decimal("7.5"), Decimal("7.50"), "7.5"],
        [10**30 + 1, Decimal(10**30 + 1), str(10**30 + 1)],
        [uuid.UUID(int=5), str(uuid.UUID(int=5)).upper()],
        *(list(group) for group in ONE_UNIT.values()),
    ],
)
def test_entries_that_spell_one_unit(same: list[Any]) -> None:
    """One entry does not decide how the others are read: NumPy alone would make all of them text."""
    entries = [*same, "another", same[0]]
    assert owners(entries, len(entries)).tolist() == [0] * len(same) + [1, 0]


@pytest.mark.parametrize(
    "bad",
    [
        *(None, float("nan"), float("inf"), -float("inf"), 7.5, LARGEST * 2.0, -LARGEST * 2.0, np.float64(LARGEST + 2)),
        *("", " ", "1e3", "7.50", b"7", [1], np.datetime64("NaT"), pd.NaT, Decimal("NaN"), Decimal("Infinity"), 1j),
    ],
)
def test_entries_that_are_no_ids(bad: Any) -> None:
    entries = np.empty(2, dtype=object)
    entries[:] = ["x", bad]
    with pytest.raises(ValueError, match="missing ids, or values that are not ids"):
        owners(entries, 2)


def test_units_are_numbered_as_the_array_has_them() -> None:
    """Numbers in their own order, others in the order in which they come first; text arrays in the order of text."""
    for units, numbers in (
        (np.array([9, 3, 9, 5]), [2, 0, 2, 1]),
        (np.array([7.0, -0.0, 0.0]), [1, 0, 0]),
        (["b", "a", "b"], [0, 1, 0]),
        (np.array(["b", "a", "B "]), [0, 1, 0]),  # "B " comes first
    ):
        found = owners(units, len(units))
        assert (found.tolist(), found.dtype) == (numbers, np.int64)
    for many, wrong in ((3, [1, 2]), (3, [[1], [2], [3]]), (3, 7), (2, [np.zeros((2, 1)), np.zeros((2, 2))])):
        with pytest.raises(ValueError, match="unit must hold one id per trajectory"):
            owners(wrong, many)
    for bad in (np.array([b"7"]), np.array(["NaT"], "datetime64[D]")):
        with pytest.raises(ValueError, match="missing ids, or values that are not ids"):
            owners(bad, 1)


@pytest.mark.parametrize("most", [1, 3])
def test_the_first_of_each_unit_are_kept(most: int) -> None:
    rng = np.random.default_rng(most)
    owner = np.unique(rng.integers(0, 9, 60), return_inverse=True)[1]
    expected = [list(owner[:place]).count(each) < most for place, each in enumerate(owner)]
    assert first_of_each(owner, most).tolist() == expected
