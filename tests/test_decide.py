"""Asking a policy: the command line, CSV and JSON lines give the levels that `act` gives."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from poolrl import Policy
from tests.helpers.processes import POOLRL
from tests.helpers.shops import Run


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


def test_a_csv_keeps_its_other_columns(policy: Path, run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps, stocks = rng.integers(0, 3, 500), rng.uniform(0, 60, (500, 2))
    names = ["Fri", "Sat", "Sun"]
    with open(tmp_path / "stocks.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "milk", "step", "bread"])
        for i in range(500):
            writer.writerow([f"shop, {i}", float(stocks[i, 1]), names[steps[i]], float(stocks[i, 0])])
    text = run("decide", policy, "--csv", tmp_path / "stocks.csv")
    run("decide", policy, "--csv", tmp_path / "stocks.csv", "--out", tmp_path / "orders.csv")
    assert (tmp_path / "orders.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in rows] == [f"shop, {i}" for i in range(500)]
    asked = Policy.load(policy)
    for i, row in enumerate(rows):
        expected = asked.act(int(steps[i]), stocks[i])
        assert [float(row["order_up_to_bread"]), float(row["order_up_to_milk"])] == pytest.approx(expected, abs=1e-6)
        assert float(row["order_milk"]) == pytest.approx(expected[1] - stocks[i, 1], abs=1e-6)
    with pytest.raises(ValueError, match="has answers already"):
        run("decide", policy, "--csv", tmp_path / "orders.csv")


def test_whole_units_and_pipes(policy: Path, tmp_path: Path, run: Run) -> None:
    whole = json.loads(run("decide", policy, "--step", "Sat", "--stock", "1.5,59.7", "--whole", "--json"))
    exact = json.loads(run("decide", policy, "--step", "Sat", "--stock", "1.5,59.7", "--json"))
    assert whole["order_up_to"]["bread"] == round(exact["order_up_to"]["bread"])
    assert whole["order_up_to"]["milk"] == 59.7  # more than enough is there, and nothing goes back
    question = '{"step": "Sat", "stock": [1, 2]}\n'
    command = [*POOLRL, "decide", policy]
    answer = subprocess.run([*command, "--lines", "-"], input=question, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout)["stock"] == [1, 2]
    question = "step,bread,milk\nSat,1,2\n"
    answer = subprocess.run([*command, "--csv", "-"], input=question, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[1].startswith("Sat,1,2,")


def test_nobody_reads_on(policy: Path, tmp_path: Path) -> None:
    """As `poolrl decide ... | head -1`: it ends without a word, and not as if all were answered."""
    stocks = tmp_path / "stocks.csv"
    stocks.write_text("step,bread,milk\n" + "Sat,1,2\n" * 20_000)
    command = [*POOLRL, "decide", policy, "--csv", stocks]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"step,bread,milk,")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_answers_do_not_replace_what_is_no_file(policy: Path, tmp_path: Path, run: Run) -> None:
    """A folder, or a device such as /dev/null, which a new file would replace for all."""
    (tmp_path / "stocks.csv").write_text("step,bread,milk\nSat,1,2\n")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(ValueError, match="--out must be a file"):
            run("decide", policy, "--csv", tmp_path / "stocks.csv", "--out", tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


def test_json_lines(policy: Path, run: Run, tmp_path: Path) -> None:
    questions = [{"step": "Sun", "stock": [1, 2], "id": 7}, {"step": 0, "stock": {"milk": 3, "bread": 60.5}}]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, questions)))
    answers = [json.loads(line) for line in run("decide", policy, "--lines", tmp_path / "q.jsonl").splitlines()]
    assert answers[0]["id"] == 7
    asked = Policy.load(policy)
    assert list(answers[0]["order_up_to"].values()) == pytest.approx(asked.act(2, [1, 2]), abs=1e-6)
    assert list(answers[1]["order_up_to"].values()) == pytest.approx(asked.act(0, [60.5, 3]), abs=1e-6)


def test_lines_are_answered_as_they_come(policy: Path) -> None:
    """A service writes one question, waits for its answer, and writes the next: the pipe stays open."""
    asked = Policy.load(policy)
    with subprocess.Popen(
        [*POOLRL, "decide", policy, "--lines", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(60, process.kill)  # or a command that does not answer would be waited for
        late.start()
        try:
            for number in range(3):
                question = json.dumps({"step": number, "stock": [number, 2], "id": f"nº {number}"}, ensure_ascii=False)
                for part in (question[:9], question[9:] + "\n"):  # a line may come in pieces
                    process.stdin.write(part.encode())
                    process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                assert answer["id"] == f"nº {number}"
                assert list(answer["order_up_to"].values()) == pytest.approx(asked.act(number, [number, 2]), abs=1e-6)
            process.stdin.write(b'\n{"step": 0, "stock": [1, 2], "id": 4}\n{"step": 0, "stock": [1, 2], "id": 5}')
            process.stdin.close()
            assert [json.loads(line)["id"] for line in process.stdout] == [4, 5]  # the last one has no line feed
        finally:
            late.cancel()
        assert process.wait() == 0


def test_a_bad_line_does_not_take_back_earlier_answers(policy: Path) -> None:
    lines = '{"step": 0, "stock": [1, 2]}\n', '\n{"step": 0, "stock": [1]}\n'
    command = [*POOLRL, "decide", policy, "--lines", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines[0])
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["stock"] == [1, 2]
        _, complaint = process.communicate(lines[1], timeout=60)
    assert complaint == "poolrl: -, line 3: stock must give a number for each of bread, milk\n"
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ('{"step": "Sut", "stock": [1, 2]}', r"line 1: there is no step 'Sut'; did you mean S"),
        ('{"step": 0, "stock": [-1, 2]}', "the stock of bread must not be negative"),
        ('{"step": "Mon", "stock": [1, 2]}', "line 1: there is no step 'Mon'"),
        ('{"step": 3, "stock": [1, 2]}', "line 1: there is no step '3'.* or 0 to 2"),
        ('{"stock": [1, 2]}', "line 1: 'step' is missing"),
        ('{"step": 0}', "line 1: 'stock' is missing"),
        ('{"step": 0, "stock": [1]}', "line 1: stock must give a number for each of bread, milk"),
        ('{"step": 0, "stock": "12"}', "stock must give a number for each"),
        ('{"step": 0, "stock": {"bred": 1, "milk": 2}}', "no product 'bred'; did you mean bread"),
        ('{"step": 0, "stock": {"bread": 1}}', "stock lacks milk"),
        ('{"step": 0, "stock": [1, NaN]}', "line 1: not JSON"),
        ('{"step": 0, "stock": [1, 2], "id": NaN}', "line 1: not JSON"),
        ('{"step": 0, "stock": [true, 2]}', "the stock of bread must be a finite number"),
        ('{"step": 0, "stock": [1, "x"]}', "the stock of milk must be a finite number"),
        ('{"step": 0, "stock": [1, 1e999]}', "the stock of milk must be a finite number"),
        ("[1, 2]", "line 1: must be an object"),
        ("{", "line 1: not JSON"),
        ('\n{"step": 0, "stock": [1]}', "line 2: stock must give"),
        ("\n\n", None),
    ],
)
def test_questions_that_have_no_answer(
    policy: Path, run: Run, tmp_path: Path, question: str, message: str | None
) -> None:
    (tmp_path / "q.jsonl").write_text(question)
    if message is None:
        assert run("decide", policy, "--lines", tmp_path / "q.jsonl") == ""
        return
    with pytest.raises(ValueError, match=message):
        run("decide", policy, "--lines", tmp_path / "q.jsonl")


def test_what_is_not_a_question(policy: Path, run: Run, tmp_path: Path) -> None:
    for arguments in ((), ("--step", "Sat", "--csv", tmp_path / "x.csv")):
        with pytest.raises(ValueError, match="answers one of --step NAME, --csv FILE or --lines FILE"):
            run("decide", policy, *arguments)
    (tmp_path / "x.csv").write_text("step,bread\nSat,1\n")
    with pytest.raises(ValueError, match="must have one column 'milk'"):
        run("decide", policy, "--csv", tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("step,bread,milk\nSat,1,2\nSat,1\n")
    with pytest.raises(ValueError, match="line 3: has 2 cells, the header 3"):
        run("decide", policy, "--csv", tmp_path / "x.csv", "--out", tmp_path / "orders.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv"]  # no half of an answer
    (tmp_path / "x.csv").write_text("step,bread,milk\nSat,1,2\n")
    with pytest.raises(ValueError, match="must not be the file that is read"):
        run("decide", policy, "--csv", tmp_path / "x.csv", "--out", tmp_path / "x.csv")
    with pytest.raises(ValueError, match="there is no folder"):
        run("decide", policy, "--csv", tmp_path / "x.csv", "--out", tmp_path / "none" / "x.csv")
    for wrong in (("--step", "Sat", "--out", "x"), ("--csv", "x", "--stock", "1,2"), ("--lines", "x", "--json")):
        with pytest.raises(ValueError, match=r"go(es)? with"):
            run("decide", policy, *wrong)
    with pytest.raises(ValueError, match="must name each product once"):
        run("decide", policy, "--step", "Sat", "--stock", "bread=1,bread=2")
    (tmp_path / "x.csv").write_text(f"step,bread,milk\nSat,1,{'2' * 200_000}\n")
    with pytest.raises(ValueError, match="line 2: field larger than"):
        run("decide", policy, "--csv", tmp_path / "x.csv")
    with pytest.raises(FileNotFoundError):
        run("decide", tmp_path / "none.npz", "--step", "Sat")
    with pytest.raises(ValueError, match="is not a poolrl policy"):
        run("decide", tmp_path / "x.csv", "--step", "Sat")
