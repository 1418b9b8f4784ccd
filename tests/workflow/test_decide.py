"""Tables of questions: they are answered as `act` answers each row alone."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, LostSales, Policy, Pool, SeededNoise
from poolrl.learning.model import population_policy
from poolrl.learning.stored import Names
from poolrl.workflow import decision_tables as decide
from poolrl.workflow.desk import Questions, ShopDesk, orders_in_packs
from poolrl.workflow.release_folder import fit_release
from tests.helpers.commands import CommandLine
from tests.helpers.exports import configured, export_facts, write_export
from tests.helpers.shops import Run

STEPS, PRODUCTS = ["Fri", "Sat"], ["bread", "milk"]
LABELS: dict[str, list[Any]] = {"shop": [7, 8, 12], "promo": ["no", "yes"]}
ROWS = 200


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of a chain with two labels and a scale."""
    rng = np.random.default_rng(0)
    problem = LostSales(horizon=2, products=2, holding=0.1, shortage=0.4, demand_max=4.0, boundary=0.8, labels=LABELS)
    shop, promo = rng.choice(LABELS["shop"], 600), rng.choice(LABELS["promo"], 600)
    size = 1 + (shop[:, None, None] == 8) + 0.5 * (promo == "yes")[:, None, None]
    scale = rng.uniform(5, 50, (600, 2, 2))
    demand = scale * np.minimum(rng.gamma(6.0, 0.1, (600, 2, 2)) * size, 4.0)
    log = problem.simulate_log(demand, rng=rng, scale=scale, labels={"shop": shop, "promo": promo})
    policy = Pool(1.0).fit(problem, log, noise=SeededNoise(0))
    policy.report = replace(policy.report, names=Names(PRODUCTS, STEPS, 1))
    path = tmp_path_factory.mktemp("chain") / "policy.npz"
    policy.save(path)
    return path


class Asked:
    """Random stocks of shops, and what `Policy.act` answers to each of them alone."""

    def __init__(self, path: Path, seed: int = 3) -> None:
        rng, policy = np.random.default_rng(seed), Policy.load(path)
        self.step, self.stock = rng.integers(0, 2, ROWS), rng.uniform(0, 60, (ROWS, 2)).round(3)
        self.scale = rng.uniform(5, 50, (ROWS, 2)).round(3)
        self.shop = [int(each) for each in rng.choice([7, 8, 12, 1234], ROWS)]
        self.promo = [str(each) for each in rng.choice(LABELS["promo"], ROWS)]
        self.new = [each == 1234 for each in self.shop]
        newcomers = population_policy(policy, ["shop"])
        self.levels = np.empty((ROWS, 2))
        for i in range(ROWS):
            labels: dict[str, Any] = {"promo": self.promo[i]} | ({} if self.new[i] else {"shop": self.shop[i]})
            asked = newcomers if self.new[i] else policy
            self.levels[i] = asked.act(int(self.step[i]), self.stock[i], scale=self.scale[i], labels=labels)

    def rows(self) -> list[dict[str, Any]]:
        """Each stock twice, once for each product."""
        return [
            {
                "id": f"{i:03d}",
                "note": f'a "{i}"\n; b, c',
                "step": STEPS[self.step[i]] if i % 2 else int(self.step[i]) + 1,
                "shop": f"{self.shop[i]:03d}",
                "promo": self.promo[i].upper(),
                "product": product,
                "stock": float(self.stock[i, j]),
                "scale": float(self.scale[i, j]),
            }
            for i in range(ROWS)
            for j, product in enumerate(PRODUCTS)
        ]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def rows_of(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


def test_a_table_is_answered_as_row_by_row(
    chain: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are those of `act` for each row alone, other cells are kept, and batches do not show."""
    monkeypatch.setattr(decide, "CELLS_AT_ONCE", 40)
    asked = Asked(chain)
    file = write(tmp_path / "stocks.csv", asked.rows())
    found = rows_of(run("decide", chain, "--table", file))
    for i, (row, kept) in enumerate(zip(found, rows_of(file.read_bytes().decode()), strict=True)):
        assert row | kept == row
        level, stock = asked.levels[i // 2, i % 2], asked.stock[i // 2, i % 2]
        assert row["basis"] == ("population" if asked.new[i // 2] else "own")
        assert float(row["order_up_to"]) == pytest.approx(level, abs=6e-7)
        assert float(row["order"]) == pytest.approx(level - stock, abs=6e-7)


def test_one_question_on_the_command_line(chain: Path, run: Run) -> None:
    command = ("decide", chain, "--step", "Sat", "--stock", "3,4")
    known = ("--labels", "shop=8,promo=yes", "--scale", "bread=20,milk=10")
    expected = Policy.load(chain).act(1, [3.0, 4.0], scale=[20.0, 10.0], labels={"shop": 8, "promo": "yes"})
    answer = json.loads(run(*command, *known, "--json"))
    assert list(answer["order_up_to"].values()) == pytest.approx(expected, abs=6e-7)
    assert answer["basis"] == "own"
    new = run(*command, "--labels", "shop=99,promo=yes", "--scale", "20")
    assert new.splitlines()[-1] == "Levels of the population: a label value was not declared."
    for flags, message in (
        (known[:2], "scale is missing, .* give --scale"),
        (("--scale", "20", "--labels", "promo=yes"), r"shop is missing, .* give --labels shop=\.\.\."),
        ((*known, "--packs", "milk=-1"), "the pack of milk must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            run(*command, *flags)


@pytest.mark.parametrize("settings", [Pool(1.0), Pool.published(1.0, zones=6)], ids=["levels", "zones"])
def test_every_bit_is_that_of_act(settings: Pool, tmp_path: Path) -> None:
    """Rows about all products, and rows about one, if the policy decides on each alone."""
    rng = np.random.default_rng(4)
    backlog = Backlog(horizon=3, products=2, holding=0.1, shortage=0.4, demand_max=[30.0, 60.0], boundary=0.7)
    policy = settings.fit(backlog, backlog.simulate_log(rng.uniform(0, 30, (200, 3, 2)), rng=rng), noise=SeededNoise(1))
    desk, stock, nowhere = ShopDesk(policy), rng.uniform(-30, 80, (500, 2)), np.zeros((500, 0), dtype=np.int64)
    steps, product = rng.integers(0, 3, 500), rng.integers(0, 2, 500)
    acted = np.array([policy.act(int(step), waiting) for step, waiting in zip(steps, stock, strict=True)])
    assert np.array_equal(desk.answer(Questions(steps, nowhere, stock, None))["order_up_to"], acted)
    if desk.together:
        policy.save(tmp_path / "zones.npz")
        (tmp_path / "x.csv").write_text("step,product,stock\n0,1,3\n")
        with pytest.raises(ValueError, match="decides on all products together"):
            decide.decide_table(decide.open_desk(tmp_path / "zones.npz"), tmp_path / "x.csv", None)
    else:
        own, levels = (np.take_along_axis(each, product[:, None], 1) for each in (stock, acted))
        one = desk.answer(Questions(steps, nowhere, own, None, product=product))
        assert np.array_equal(one["order_up_to"], levels)


def test_packs_are_the_nearest_that_fit() -> None:
    """Against the rule by brute force: every number of packs, the nearest, within the bound unless it is the first."""
    rng, n, seen = np.random.default_rng(2), 2_000, set()
    bound, packs = rng.uniform(5, 60, n), rng.choice([0.5, 1.0, 6.0, 12.0, 80.0], n)
    stocks = rng.uniform(0, 70, n).round(1)
    levels = np.maximum(stocks, rng.uniform(0, 1, n) * bound)
    bounds = np.maximum(bound, levels)
    found = orders_in_packs(levels, stocks, packs, bounds)
    for order, stock, pack, level, most in zip(found, stocks, packs, levels, bounds, strict=True):
        misses = {c: abs(stock + c * pack - level) for c in range(200) if c <= 1 or stock + c * pack <= most}
        best = max(c for c, miss in misses.items() if miss <= min(misses.values()) + 1e-12)
        assert order == pytest.approx(best * pack)
        seen.add((best == 0, stock + best * pack > most))
    assert seen == {(True, False), (False, False), (False, True)}
    assert (orders_in_packs(stocks, stocks, packs, bound) == 0).all()


def test_orders_in_packs_and_whole_units(chain: Path, run: Run, tmp_path: Path) -> None:
    asked = Asked(chain)
    table = write(tmp_path / "packs.csv", [row | {"pack": 12} for row in asked.rows()])
    found = rows_of(run("decide", chain, "--table", table))
    orders = {row["order"] for row in found}
    assert {int(order) % 12 for order in orders} == {0}  # whole numbers are written without a point
    assert {"0", "12", "24"} <= orders
    for i, row in enumerate(found):
        level, stock = asked.levels[i // 2, i % 2], asked.stock[i // 2, i % 2]
        assert abs(stock + int(row["order"]) - level) <= 6 + 1e-9
        assert float(row["order_up_to"]) == pytest.approx(stock + int(row["order"]), abs=6e-7)


HEADER = "step,product,stock,shop,promo,scale\n"
GOOD = HEADER + "Sat,bread,2,7,no,9\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "Sat,bread,1,7,no,9\nSat,bred,1,7,no,9\n", "line 3: there is no product 'bred'; did you mean bread?"),
        (HEADER + ",bread,1,7,no,9\n", "line 2: there is no step ''"),
        (HEADER + "Sat,bread,,7,no,9\n", "line 2: the stock must be a finite number"),
        (HEADER + "Sat,bread,-1,7,no,9\n", "line 2: the stock of bread must not be negative"),
        (GOOD + "Sat,bread,nan,7,no,9\n", "line 3: the stock must be a finite number"),
        (GOOD + 'Sat,milk,"2,5",7,no,9\n', "line 3: the stock must be a finite number, with '.' before its decimals"),
        (GOOD + "Sat,bread,2,7,no,\n", "line 3: scale must be a finite number"),
        (GOOD + "Sat,bread,2,7,no,0\n", "line 3: scale must be positive"),
        (GOOD + "Sat,bread,1e300,7,no,1e-300\n", "line 3: stock, scale or pack is too large or too small"),
        (GOOD + "Sat,bread,2,,no,9\n", "line 3: shop is missing"),
        (GOOD + '\n"Sat\n",bread,2,7,no,9\nSat,bread,x,7,no,9\n', "line 6: the stock must be a finite number"),
        (GOOD + 'Sat,bread,2,7,no,"9\nSat,bread,2,7,no,9\n', "end of data; the last good line is 1"),
        ("stock," + GOOD, "must have one column 'stock', but the header names it 2 times"),
        ("step,product,stock,shop,promo\n", "must have one column 'scale'"),
        ("step,bread,milk,shop,promo,scale\n", "must have one column 'product'"),  # a column for each product
        (GOOD.replace("scale", "scale,basis"), "has answers already"),
        (GOOD.replace("\n", ",pack\n", 1).replace("9\n", "9,0\n"), "line 2: pack must be positive"),
    ],
)
def test_what_is_wrong_is_said(chain: Path, command_line: CommandLine, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text, encoding="utf-8-sig")
    answer = command_line("decide", chain, "--table", tmp_path / "x.csv", "--out", tmp_path / "orders.csv")
    assert answer.code == 1
    assert answer.err.startswith(f"poolrl: {tmp_path / 'x.csv'}")
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "orders.csv").exists()


def test_a_decimal_comma_does_not_hide_a_point(chain: Path, run: Run, tmp_path: Path) -> None:
    """1.234 may be one thousand and more where the comma is decimal, so it is refused."""
    file = tmp_path / "x.csv"
    file.write_text(GOOD.replace(",", ";").replace(";2;", ";1.234;"))
    with pytest.raises(ValueError, match="line 2: the stock must be a finite number, with ',' before"):
        run("decide", chain, "--table", file, "--delimiter", ";", "--decimal", ",")
    with pytest.raises(ValueError, match="must differ"):
        run("decide", chain, "--table", file, "--decimal", ",")


# What one chain calls its columns: no list of words has these.
OWN_COLUMNS = {"shop": "Haus", "date": "Buchung", "product": "Sorte", "opening": "Rest morgens", "delivery": "Zufuhr"}
OWN_COLUMNS |= {"sales": "Abgang", "stock_out": "weg"}


def test_a_stock_list_has_the_columns_of_the_sales_export(run: Run, command_line: CommandLine, tmp_path: Path) -> None:
    """Fit and decide of a German export: a release keeps the names that poolrl.toml declares."""
    rng, rows = np.random.default_rng(1), []
    for shop, week, day, product in itertools.product(range(8), range(10), range(2), ("Brot", "Milch")):
        level, demand = int(rng.integers(4, 15)), int(rng.integers(0, 12))
        sold, date = min(level, demand), np.datetime64("2025-03-03") + 7 * week + day
        amounts = ("0", f"{level},0", f"{sold}", "ja" if sold == level else "nein")
        rows.append((str(shop), str(date), product, *amounts, ("nein", "ja")[shop % 2]))
    write_export(tmp_path, rows, (*OWN_COLUMNS.values(), "Werbung im Blatt"), ";")
    form = {"delimiter": ";", "decimal": ",", "yes": ["ja"], "no": ["nein"]}
    facts = export_facts(["Brot", "Milch"], **OWN_COLUMNS, **form, labels={"promotion": "Werbung im Blatt"})
    facts["problem"]["labels"] = {"promotion": ["nein", "ja"]}
    facts["privacy"] |= {"rho": 5.0, "budget": 5.0}
    fit_release(configured(tmp_path, facts), tmp_path / "release", new_account=True)
    path, stocks = tmp_path / "release" / "policy.npz", tmp_path / "Bestand.csv"
    policy = Policy.load(path)
    assert policy.names.columns == {"product": "Sorte", "stock": "Rest morgens", "promotion": "Werbung im Blatt"}
    header, lines = "Haus;step;Sorte;Rest morgens;Werbung im Blatt", ["3;Di;Milch;2,5;ja", "3;Di;Brot;2,5;ja"]
    # A second column that could be meant is kept as it is.
    stocks.write_text("\n".join([f"{header};Bestand", *(f"{line};x" for line in lines), ""]))
    text = run("decide", path, "--table", stocks, "--delimiter", ";", "--decimal", ",")
    milk, bread = rows_of(text, ";")
    levels = policy.act(1, np.array([2.5, 2.5]), labels={"promotion": "ja"})
    found = [float(row["order_up_to"].replace(",", ".")) for row in (bread, milk)]
    assert found == pytest.approx(levels, abs=1e-5)
    assert (milk["Haus"], milk["Bestand"], milk["basis"]) == ("3", "x", "own")
    stocks.write_text("\n".join([header.replace("Rest morgens", "Rest"), *lines, ""]))
    answer = command_line("decide", path, "--table", stocks, "--delimiter", ";", "--decimal", ",")
    assert "must have one column 'stock' or 'Rest morgens'" in answer.err


@pytest.mark.parametrize(
    ("table", "out", "message"),
    [
        (b"Sat,bread,2\nSat,milk\n", "orders.csv", "line 3: has 2 cells, the header 3"),
        (b"Sat,bread,2\n", "x.csv", "must not be the file that is read"),
        (b"Sat,bread,2\n", "folder", "--out must be a file"),
        (b"Sat,bread,2\n", "pipe", "--out must be a file"),  # as /dev/null, which a new file would replace for all
        (b"Sat,bread," + b"2" * 200_000 + b"\n", "orders.csv", "line 2: field larger than"),
        (b"Sat,bread,\xff\n", "orders.csv", "is not text in UTF-8"),
    ],
)
def test_no_half_of_an_answer_is_left(one_release: Path, tmp_path: Path, table: bytes, out: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x.csv").write_bytes(b"step,product,stock\n" + table)
    desk = decide.open_desk(one_release / "release" / "policy.npz")
    with pytest.raises(ValueError, match=message):
        decide.decide_table(desk, tmp_path / "x.csv", tmp_path / out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe", "x.csv"]
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(ValueError, match="is not a poolrl policy"):
        decide.open_desk(tmp_path / "x.csv")
