"""Asking a policy: the command line and tables give the levels that `act` gives."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from poolrl import Policy
from tests.helpers.processes import POOLRL
from tests.helpers.shops import Run

HEADER = "step,product,stock\n"


@pytest.fixture
def policy(one_release: Path) -> Path:
    return one_release / "release" / "policy.npz"


def test_the_command_line(policy: Path, run: Run) -> None:
    expected = Policy.load(policy).act(1, [50.0, 2.0])
    for step in ("Sat", "sat", "1"):
        answer = json.loads(run("decide", policy, "--step", step, "--stock", "50, 2", "--json"))
        assert answer["step"] == "Sat"
        assert list(answer["order_up_to"].values()) == pytest.approx(expected, abs=1e-6)
    by_name = json.loads(run("decide", policy, "--step", "Sat", "--stock", "milk=2,bread=50", "--json"))
    assert by_name["order_up_to"] == answer["order_up_to"]
    assert answer["stock"] == {"bread": 50, "milk": 2}
    table = run("decide", policy, "--step", "Sat", "--stock", "50,2").splitlines()
    assert table[0].split() == ["product", "stock", "order", "up", "to", "order"]
    assert table[1].split()[:2] == ["bread", "50"]
    assert float(table[1].split()[-1]) == pytest.approx(expected[0] - 50, abs=0.005)
    assert "milk" in run("decide", policy, "--step", "Fri")  # an empty shelf


def test_a_table_keeps_its_other_columns(policy: Path, run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps, stocks, products = rng.integers(0, 3, 500), rng.uniform(0, 60, 500), rng.integers(0, 2, 500)
    names = ["Fri", "Sat", "Sun"]
    with open(tmp_path / "stocks.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "stock", "step", "product"])
        for i in range(500):
            writer.writerow([f"shop, {i}", float(stocks[i]), names[steps[i]], ["bread", "milk"][products[i]]])
    text = run("decide", policy, "--table", tmp_path / "stocks.csv")
    run("decide", policy, "--table", tmp_path / "stocks.csv", "--out", tmp_path / "orders.csv")
    assert (tmp_path / "orders.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in rows] == [f"shop, {i}" for i in range(500)]
    asked = Policy.load(policy)
    for i, row in enumerate(rows):
        expected = asked.act(int(steps[i]), np.full(2, stocks[i]))[products[i]]
        assert float(row["order_up_to"]) == pytest.approx(expected, abs=1e-6)
        assert float(row["order"]) == pytest.approx(expected - stocks[i], abs=1e-6)
    with pytest.raises(ValueError, match="has answers already"):
        run("decide", policy, "--table", tmp_path / "orders.csv")


def test_whole_units_and_pipes(policy: Path, tmp_path: Path, run: Run) -> None:
    whole = json.loads(run("decide", policy, "--step", "Sat", "--stock", "1.5,59.7", "--whole", "--json"))
    exact = json.loads(run("decide", policy, "--step", "Sat", "--stock", "1.5,59.7", "--json"))
    assert whole["order_up_to"]["bread"] == round(exact["order_up_to"]["bread"])
    assert whole["order_up_to"]["milk"] == 59.7  # more than enough is there, and nothing goes back
    command, question = [*POOLRL, "decide", policy, "--table", "-"], f"{HEADER}Sat,bread,1\n"
    answer = subprocess.run(command, input=question, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[1].startswith("Sat,bread,1,")


def test_nobody_reads_on(policy: Path, tmp_path: Path) -> None:
    """As `poolrl decide ... | head -1`: it ends without a word, and not as if all were answered."""
    stocks = tmp_path / "stocks.csv"
    stocks.write_text(HEADER + "Sat,bread,2\n" * 20_000)
    command = [*POOLRL, "decide", policy, "--table", stocks]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"step,product,stock,")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_answers_do_not_replace_what_is_no_file(policy: Path, tmp_path: Path, run: Run) -> None:
    """A folder, or a device such as /dev/null, which a new file would replace for all."""
    (tmp_path / "stocks.csv").write_text(f"{HEADER}Sat,bread,2\n")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(ValueError, match="--out must be a file"):
            run("decide", policy, "--table", tmp_path / "stocks.csv", "--out", tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--step", "Sut", "--stock", "1,2"], r"there is no step 'Sut'; did you mean S"),
        (["--step", "0", "--stock=-1,2"], "the stock of bread must not be negative"),
        (["--step", "Mon", "--stock", "1,2"], "there is no step 'Mon'"),
        (["--step", "3", "--stock", "1,2"], "there is no step '3'; choose from Fri, Sat, Sun, 0 to 2"),
        (["--step", "0", "--stock", "1"], "stock must give a number for each of bread, milk"),
        (["--step", "0", "--stock", "bred=1,milk=2"], "no product 'bred'; did you mean bread"),
        (["--step", "0", "--stock", "bread=1"], "stock lacks milk"),
        (["--step", "0", "--stock", "1,nan"], "the stock of milk must be a finite number"),
        (["--step", "0", "--stock", "1,x"], "the stock of milk must be a finite number"),
        (["--step", "0", "--stock", "1,1e999"], "the stock of milk must be a finite number"),
        (["--step", "0", "--stock", "bread=1,bread=2"], "must name each product once"),
        (["--step", "0", "--labels", "shop=1"], "there is no label 'shop'; known labels: none"),
        (["--step", "0", "--labels", "7"], "--labels must be pairs"),
        (["--step", "0", "--scale", "7"], "learned without a scale: leave out --scale"),
        (["--step", "0", "--coming", "1,2"], "--coming goes with a plan for a lead time"),
    ],
)
def test_questions_that_have_no_answer(policy: Path, run: Run, flags: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("decide", policy, *flags)


def test_what_is_not_a_question(policy: Path, run: Run, tmp_path: Path) -> None:
    table = ("--table", tmp_path / "x.csv")
    for arguments in ((), ("--step", "Sat", *table)):
        with pytest.raises(ValueError, match="answers one of --step NAME or --table FILE"):
            run("decide", policy, *arguments)
    (tmp_path / "x.csv").write_text("step,product\nSat,bread\n")
    with pytest.raises(ValueError, match="must have one column 'stock': step, product, stock"):
        run("decide", policy, *table)
    (tmp_path / "x.csv").write_text(f"{HEADER}Sat,bread,2\nSat,milk\n")
    with pytest.raises(ValueError, match="line 3: has 2 cells, the header 3"):
        run("decide", policy, *table, "--out", tmp_path / "orders.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv"]  # no half of an answer
    (tmp_path / "x.csv").write_text(f"{HEADER}Sat,bread,2\n")
    with pytest.raises(ValueError, match="must not be the file that is read"):
        run("decide", policy, *table, "--out", tmp_path / "x.csv")
    with pytest.raises(ValueError, match="there is no folder"):
        run("decide", policy, *table, "--out", tmp_path / "none" / "x.csv")
    for wrong in (("--step", "Sat", "--out", "x"), ("--table", "x", "--stock", "1,2"), ("--table", "x", "--json")):
        with pytest.raises(ValueError, match="go with"):
            run("decide", policy, *wrong)
    (tmp_path / "x.csv").write_text(f"{HEADER}Sat,bread,{'2' * 200_000}\n")
    with pytest.raises(ValueError, match="line 2: field larger than"):
        run("decide", policy, *table)
    (tmp_path / "x.csv").write_bytes(HEADER.encode() + b"Sat,bread,\xff\n")
    with pytest.raises(ValueError, match="is not text in UTF-8"):
        run("decide", policy, *table)
    with pytest.raises(FileNotFoundError):
        run("decide", tmp_path / "none.npz", "--step", "Sat")
    with pytest.raises(ValueError, match="is not a poolrl policy"):
        run("decide", tmp_path / "x.csv", "--step", "Sat")
