"""`poolrl check` of a sales export: nothing is lost in silence, and every line names its fix."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from poolrl.data.counts import count_outcomes
from poolrl.workflow.check import look_at, share_of
from poolrl.workflow.open_log import open_log
from tests.helpers.commands import CommandLine
from tests.helpers.exports import ROLES, Row, configured, export_facts, write_export
from tests.helpers.shops import Facts

WEEKS, DAYS = 8, 2


def good_rows(shops: Sequence[str] = ("1", "2")) -> list[list[str]]:
    """Two shops, eight weeks of two days, two products; nothing is wrong with any of it."""
    rng, monday, rows = np.random.default_rng(4), datetime.date(2025, 3, 3), []
    for shop in shops:
        for day in range(7 * WEEKS):
            if day % 7 < DAYS:
                for product in ("bread", "milk"):
                    level, demand = int(rng.integers(4, 15)), int(rng.integers(0, 12))
                    sold, date = min(level, demand), str(monday + datetime.timedelta(day))
                    rows.append([shop, date, product, "0", str(level), str(sold), str(sold == level).lower()])
    return rows


def findings(
    folder: Path, rows: Sequence[Row], facts: Facts | None = None, header: Row = ROLES
) -> dict[str, tuple[str, str]]:
    write_export(folder, rows, header)
    found = look_at(configured(folder, facts or export_facts()))
    lines = {each.what: (each.stands, each.seen) for each in found}
    assert len(lines) == len(found)
    return lines


def changed(rows: list[list[str]], role: str, value: str, where: range) -> list[list[str]]:
    place = ROLES.index(role)
    return [[*row[:place], value, *row[place + 1 :]] if i in where else row for i, row in enumerate(rows)]


def test_a_good_export(tmp_path: Path) -> None:
    seen = findings(tmp_path, good_rows())
    # All is well, but for what would be too late to know after a fit.
    stands, says = seen.pop("next month")
    assert stands == "note"
    assert "'poolrl update' cannot add later weeks" in says
    assert {stands for stands, _ in seen.values()} == {"good"}
    assert seen["weeks of shops"] == ("good", "16 found: 16 complete, 0 incomplete")
    assert seen["used by a fit"] == ("good", "100% of all days and products of these weeks")
    assert seen["shops"] == ("good", "2")


@pytest.mark.parametrize(
    ("facts", "what", "stands", "says"),
    [
        (
            export_facts(delivery="deliverys"),
            "table",
            "bad",
            "must have one column 'deliverys' (did you mean 'delivery'?)",
        ),
        # Every word is known. Flag and numbers disagree.
        (export_facts(yes=["false"], no=["true"]), "empty or not", "bad", "have stock left, and no in 100% of "),
        (
            export_facts(["bread", "milk", "salat"]),
            "products",
            "bad",
            "no row can be used of: salat; is the name spelt as",
        ),
    ],
)
def test_what_does_not_fit_a_good_export(tmp_path: Path, facts: Facts, what: str, stands: str, says: str) -> None:
    found = findings(tmp_path, good_rows(), facts)[what]
    assert found[0] == stands
    assert says in found[1]


def test_what_incomplete_weeks_lack(tmp_path: Path) -> None:
    """Everything at once, counted by hand: 64 days and products in 16 weeks."""
    rows = good_rows()
    rows[0][ROLES.index("stock_out")] = "vielleicht"
    rows[1][ROLES.index("opening")] = "1,5"
    rows[6][ROLES.index("delivery")] = "500"  # beyond demand_max
    rows[7][ROLES.index("sales")] = "1000"  # more than was there, and it is not said to have run out
    rows[7][ROLES.index("stock_out")] = "false"
    rows[8][ROLES.index("date")] = "03/17/2025"
    rows[12][ROLES.index("product")] = "beer"
    rows[16][ROLES.index("shop")] = ""
    rows = [*rows[:20], *rows[21:], rows[30]]  # a row less, and another one twice
    seen = findings(tmp_path, rows)
    assert seen["rows"] == ("good", "64 in the export")
    assert seen["weeks of shops"] == ("good", "16 found: 9 complete, 7 incomplete")
    for what, text in (
        ("double rows", "1 of 64 days and products (1.6%), in 1 week, stand more than once"),
        ("missing rows", "4 of 64 days and products (6.2%), in 4 weeks, have no row"),
        ("demand_max", "1 of 64 days and products (1.6%), in 1 week, lie beyond demand_max"),
        ("numbers", "1 of 64 days and products (1.6%), in 1 week, do not fit (more sold than was there"),
        ("column date", "1 of 64 rows (1.6%) have no date of the form 2025-12-31 and belong to no week; see [sales]"),
        ("column shop", "1 of 64 rows (1.6%) name no shop and belong to no week"),
        ("column product", "1 of 64 rows (1.6%) name a product that [problem] products does not"),
        ("column stock_out", "1 of 64 rows (1.6%) hold none of the words 'true'"),
        ("unreadable stock_out", "1 of 64 days and products (1.6%), in 1 week, cannot be read in column stock_out"),
        ("used by a fit", "85.9% of all days and products"),
    ):
        assert seen[what][0] == "note"
        assert seen[what][1].startswith(text)


UNREADABLE = {
    "stock_out": ("ja", "hold none of the words 'true', 'yes', '1', 'false', 'no', '0' (stock_out); they are unobs"),
    "date": ("31.12.2025", "have no date of the form 2025-12-31 and belong to no week; see [sales] date_format"),
    "sales": ("3,5", "hold no number (sales; decimal is '.'); they are unobserved; see [sales] decimal"),
    "shop": ("", "name no shop and belong to no week"),
}


def test_a_column_that_is_mostly_unreadable_fails(tmp_path: Path, command_line: CommandLine) -> None:
    """In another spelling: bad if it is most of a column, with exit code 1."""
    export = good_rows()
    for role, (value, _) in UNREADABLE.items():
        export = changed(export, role, value, range(40))
    write_export(tmp_path, export)
    answer = command_line("check", "--config", configured(tmp_path, export_facts()).path, "--json")
    assert answer.code == 1
    found = {(each["what"], each["stands"]): each["seen"] for each in json.loads(answer.out)["findings"]}
    for role, (_, fix) in UNREADABLE.items():
        assert fix in found[f"column {role}", "bad"]


def test_lines_that_do_not_fit_the_header_are_counted(tmp_path: Path) -> None:
    """Another delimiter, and letters that are no UTF-8: neither is silent."""
    text = write_export(tmp_path, good_rows()).read_text().splitlines()
    lines = [line if i % 3 else line.replace(",", ";") for i, line in enumerate(text, 1)]
    (tmp_path / "sales.csv").write_bytes(("\n".join(lines) + "\n\n").encode() + "9,ä\n".encode("latin-1"))
    seen = {each.what: each for each in look_at(configured(tmp_path, export_facts()))}
    assert seen["lines"].stands == "note"
    assert seen["lines"].seen.startswith("22 of 65 lines were left out: another number of fields than the header")
    assert seen["rows"].seen == "43 in the export"


def test_the_share_that_is_used_is_what_a_fit_counts(tmp_path: Path) -> None:
    """Fields of all kinds in any place: check and the counts that a fit releases agree on what is observed."""
    rng = np.random.default_rng(0)
    odd = {"opening": "3 -1 40", "delivery": "x -4 90", "sales": "7 nan -2", "stock_out": "true -"}
    rows = good_rows([str(shop) for shop in range(6)])
    for row in rows:
        for role, values in odd.items():
            if rng.random() < 0.15:
                row[ROLES.index(role)] = str(rng.choice(values.split()))
    facts = export_facts(scale="same weekday, last 2 weeks")
    facts["log"]["clip"] = True
    # A label of the same name must not replace a column that check adds.
    facts["problem"] |= {"demand_max": 3.0, "boundary": 0.5, "labels": {"shop": "0..5"}}
    seen = findings(tmp_path, rows, facts)
    file = configured(tmp_path, facts)
    with open_log(file) as log:
        observed = int(count_outcomes(log, file.config.problem.posed, level_sizes=(2,)).levels[0].sum())
        cells = log.units * DAYS * 2
    assert 0 < observed < cells
    assert seen["used by a fit"][1].startswith(f"{share_of(observed, cells)} of all")
    assert seen["weeks of shops"][1].startswith(f"{6 * WEEKS} found: ")


def test_check_names_what_would_help_in_words_of_the_file(tmp_path: Path, command_line: CommandLine) -> None:
    """The example without its scale and label: orders follow demand, and check says what to add where."""
    assert command_line("init", "--example", "--out", tmp_path / "poolrl.toml").code == 0
    text = (tmp_path / "poolrl.toml").read_text()
    for line, other in (
        ('scale = "same', '# scale = "same'),
        ("labels = { promotion", "# labels = { promotion"),
        ("demand_max = 4.0", "demand_max = 600.0"),
        ("weeks_public = true", "weeks_public = false"),
    ):
        assert line in text
        text = text.replace(f"\n{line}", f"\n{other}")
    (tmp_path / "poolrl.toml").write_text(text)
    answer = command_line("check", "--config", tmp_path / "poolrl.toml", "--json")
    (seen,) = (each["seen"] for each in json.loads(answer.out)["findings"] if each["what"] == "orders and demand")
    assert seen.startswith("orders follow demand, so demand is overestimated (effect +0.4")
    assert 'give a scale (in [sales] "same weekday, last 4 weeks"' in seen
    assert "[problem] labels for what managers know beforehand, such as the shop or a promotion" in seen
