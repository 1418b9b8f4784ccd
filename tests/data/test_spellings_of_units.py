"""Several spellings of one unit are one unit, on every engine and in Python."""

from __future__ import annotations

import datetime
import sys
import unicodedata
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Table, Trajectories
from poolrl.data.ids import canonical, canonical_text, foldings, owners
from tests.helpers.shops import Facts
from tests.helpers.sources import seen
from tests.helpers.spellings import NO_UNIT, ONE_UNIT, forms, texts
from tests.helpers.tables import columns


def by_duckdb(spellings: list[str]) -> list[str | None]:
    """The ids that DuckDB reads."""
    table = ibis.memtable(pa.table({"at": range(len(spellings)), "text": pa.array(spellings, pa.string())}))
    found: list[str | None] = table.select("at", id=canonical(table.text)).order_by("at").to_pyarrow()["id"].to_pylist()
    return found


def one_row_each(ids: pa.Array, **more: Any) -> pa.Table:
    """A log of H = 1 in which row i belongs to trajectory or unit ids[i]."""
    numbers = {name: pa.array(np.zeros(len(ids))) for name in ("state_0", "action_0", "next_state_0")}
    return pa.table({"trajectory": ids, "step": pa.array(np.zeros(len(ids), dtype=int)), **numbers, **more})


def test_spellings_of_one_unit() -> None:
    ids = [{canonical_text(text) for text in spellings} for spellings in ONE_UNIT]
    assert all(len(found) == 1 and None not in found for found in ids), ids
    assert len(set.union(*ids)) == len(ONE_UNIT)  # and different units stay different
    assert [canonical_text(text) for text in NO_UNIT] == [None] * len(NO_UNIT)


def test_a_date_is_one_id_with_and_without_its_midnight() -> None:
    times = ("", " 00:00", " 00:00:00", "T00:00:00", "t00:00:00", "T00:00Z", " 00:00:00.000", " 00:00:00+00", " 00:00 ")
    for text in ("2025-03-01", "till 4"):
        assert len({canonical_text(text + time) for time in times}) == 1
    others = ("-01 00:01:00", "-01 12:00:00", "-01 00:00:01", "-02", "-01 00:00:00+01")
    assert len({canonical_text(f"2025-03{text}") for text in ("-01", *others)}) == 6
    # What was dropped once leaves nothing that would be dropped the second time.
    for text in ("a00:00" * 3, "7.000:00", "1e300:00", "a.0 00:00.0", "00:00"):
        once = canonical_text(text)
        assert once is None or canonical_text(once) == once


def test_every_character_is_read_like_what_unicode_says_that_it_is() -> None:
    """All that have another normal form, with a letter before and a digit after: read alike, or left out."""
    for point in range(sys.maxunicode + 1):
        if 0xD800 <= point < 0xE000 or unicodedata.is_normalized("NFKD", chr(point)):
            continue
        if 0xAC00 <= point < 0xD7A4 and point % 97:
            continue  # eleven thousand syllables that are all made alike
        found = {canonical_text(form) for form in forms(f"b{chr(point)}7")} - {None}
        assert len(found) <= 1, hex(point)


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


def cases(text: str) -> set[str]:
    """The same text in every case."""
    return {text, text.upper(), text.lower(), text.title(), text.swapcase(), text.casefold()}


def test_letters_of_every_script_are_one_in_both_cases() -> None:
    ids = [{canonical_text(text) for text in spellings} for spellings in ONE_IN_ANY_CASE]
    assert all(len(found) == 1 and None not in found for found in ids), ids
    assert len(set.union(*ids)) == len(ids)
    spellings = [text for group in ONE_IN_ANY_CASE for text in group]
    assert by_duckdb(spellings) == [canonical_text(text) for text in spellings]
    assert [canonical_text(text) for text in ("ᾳ", "α\u0345", "ΑΙ")] == [None, None, "αι"]


def test_every_character_of_unicode_is_one_in_all_cases() -> None:
    """Python's own tables say what the cases of a character are."""
    for character in map(chr, range(sys.maxunicode + 1)):
        if len(cases(character)) > 1:
            found = {canonical_text(f"b{text}7") for text in cases(character)} - {None}
            assert len(found) <= 1, hex(ord(character))


@given(texts())
@settings(max_examples=300, deadline=None)
def test_cases_of_one_text_are_never_two_units(text: str) -> None:
    assert len({canonical_text(form) for case in cases(text) for form in forms(case)} - {None}) <= 1


def test_no_letter_is_folded_twice() -> None:
    """So the order of the tables does not matter, and one table more for a text changes nothing."""
    given = "".join(fold.given for fold in foldings())
    assert len(given) == len({*given}) > 1000
    assert not {*given} & {*"".join(fold.counts_as for fold in foldings())}


def test_characters_that_are_not_drawn_are_dropped() -> None:
    """What Unicode lets every font ignore, also where nothing is assigned yet."""
    for point in (
        0xAD,
        0x61C,
        0x115F,
        0x1160,
        0x17B4,
        0x2065,
        0x206F,
        0x2800,
        0x3164,
        0xFFA0,
        0xFFF0,
        0x1D173,
        0xE0FFF,
    ):
        assert canonical_text(f"b{chr(point)}7") == "b7", hex(point)


@given(texts())
@settings(max_examples=500, deadline=None)
def test_normal_forms_of_one_text_are_never_two_units(text: str) -> None:
    assert len({canonical_text(form) for form in forms(text)} - {None}) <= 1


@given(st.lists(texts(), min_size=1, max_size=60))
@settings(max_examples=20, deadline=None)
def test_duckdb_reads_ids_like_python(spellings: list[str]) -> None:
    assert by_duckdb(spellings) == [canonical_text(text) for text in spellings]


def test_a_table_counts_spellings_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As units and as trajectories; without the rule, which the test then misses, each is one by itself."""
    spellings = [text for group in ONE_UNIT for text in group]
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


@pytest.mark.parametrize("kinds", ["numbers", "days"])
def test_two_types_of_one_id_in_two_files(tmp_path: Path, facts: Facts, kinds: str) -> None:
    """Text and floats, or text and times. Every trajectory is in both files, so all of its steps are there twice."""
    table = pq.read_table(tmp_path / "log.parquet")
    ids = table["trajectory"].to_pylist()
    days = [datetime.datetime(2020, 1, 1) + datetime.timedelta(days=int(i)) for i in ids]
    (tmp_path / "both").mkdir()
    spelt = {
        "numbers": (pa.array([f"0{i}" for i in ids]), pa.array([float(i) for i in ids])),
        "days": (pa.array([f"{day:%Y-%m-%d}" for day in days]), pa.array(days, pa.timestamp("us"))),
    }
    for number, column in enumerate(spelt[kinds]):
        pq.write_table(table.set_column(0, "trajectory", column), tmp_path / "both" / f"{number}.parquet")
    found = seen(tmp_path, facts, source="both")
    assert (found.units, found.counts().sum()) == (300, 0)


@pytest.mark.parametrize(
    ("ids", "units"),
    [
        (pa.array([7.0, -0.0, 0.0, 7.5, float("nan"), float("inf"), 1e300, None]), 2),
        (pa.array([7.0, 7.0, 0.5], pa.float32()), 1),
        (pa.array([Decimal("7.50"), Decimal("7.5"), Decimal("8.0")]), 2),
        (pa.array([1, 2, 2]), 2),
        (pa.array(["7", "7.0", "x"]).dictionary_encode(), 2),
    ],
    ids=["floats", "small floats", "decimals", "integers", "dictionary"],
)
def test_ids_that_are_not_text(ids: pa.Array, units: int) -> None:
    assert Table(one_row_each(ids), **columns(1)).units == units


def test_bytes_are_refused_by_their_type() -> None:
    """No rule says which bytes are one text."""
    for kind in (pa.binary(), pa.large_binary(), pa.binary(1)):
        table = one_row_each(pa.array([b"7"], kind))
        with pytest.raises(ValueError, match="must hold ids"):
            Table(table, **columns(1))
        with pytest.raises(ValueError, match="must hold ids"):
            Trajectories.from_table(table, **columns(1))


def test_arrays_read_units_by_the_same_rule() -> None:
    for spellings in ONE_UNIT:
        assert set(owners(list(spellings), len(spellings))) == {0}
        assert set(owners(np.array(spellings), len(spellings))) == {0}
    same = uuid.UUID(int=5)
    mixed: list[Any] = [7, 7.0, "07", np.int8(7), np.float32(7), Decimal("7.00"), True, 1, "x", same, str(same)]
    assert owners(mixed, len(mixed)).tolist() == [0] * 6 + [1, 1, 2, 3, 3]
    assert owners(np.array([7.0, -0.0, 0.0]), 3).tolist() == [1, 0, 0]
    arrays: list[Any] = [np.array([b"7"]), np.array(["NaT"], "datetime64[D]")]
    for bad in (*([entry] for entry in (None, float("nan"), 7.5, "1e3", " ", b"7")), *arrays):
        with pytest.raises(ValueError, match="missing ids, or values that are not ids"):
            owners(bad, 1)


@given(st.lists(texts().filter(lambda text: canonical_text(text) is not None), min_size=1, max_size=12))
@settings(max_examples=6, deadline=None)
def test_a_table_in_memory_numbers_ids_like_the_engine(spellings: list[str]) -> None:
    """`Trajectories.from_table` and `Table` find the same units, in the order of the ids that they read."""
    table = one_row_each(pa.array([f"week {i}" for i in range(len(spellings))]), unit=pa.array(spellings))
    named = columns(1, unit="unit", max_per_unit=12)
    log, ids = Trajectories.from_table(table, **named), [canonical_text(text) or "" for text in spellings]
    assert log.units == Table(table, **named).units == len({*ids})
    # `owner` numbers units in the order of their ids, trajectories in the order of theirs.
    weeks = sorted(range(len(ids)), key=lambda i: f"week{i}")
    assert log.owner.tolist() == [sorted({*ids}).index(ids[i]) for i in weeks]
