"""Asking a policy one question at a time, and through pipes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

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
    whole = json.loads(run("decide", policy, "--step", "Sat", "--stock", "50,59.7", "--whole", "--json"))
    assert whole["order_up_to"]["bread"] == round(answer["order_up_to"]["bread"])
    assert whole["order_up_to"]["milk"] == 59.7  # more than enough is there, and nothing goes back


def test_a_pipe_and_nobody_who_reads_on(policy: Path, tmp_path: Path) -> None:
    """As `... | poolrl decide --table - | head -1`: it ends without a word, and not as if all were answered."""
    (tmp_path / "x.csv").write_text("step,product,stock\n" + "Sat,bread,2\n" * 20_000)
    command = [*POOLRL, "decide", policy, "--table", "-"]
    with (
        open(tmp_path / "x.csv") as asked,
        subprocess.Popen(command, stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"step,product,stock,")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--step", "Sut", "--stock", "1,2"], r"there is no step 'Sut'; did you mean S"),
        (["--step", "0", "--stock=-1,2"], "the stock of bread must not be negative"),
        (["--step", "3", "--stock", "1,2"], "there is no step '3'; choose from Fri, Sat, Sun, 0 to 2"),
        (["--step", "0", "--stock", "1"], "stock must give a number for each of bread, milk"),
        (["--step", "0", "--stock", "bred=1,milk=2"], "no product 'bred'; did you mean bread"),
        (["--step", "0", "--stock", "bread=1"], "stock lacks milk"),
        (["--step", "0", "--stock", "1,nan"], "the stock of milk must be a finite number"),
        (["--step", "0", "--stock", "1,x"], "the stock of milk must be a finite number"),
        (["--step", "0", "--stock", "bread=1,bread=2"], "must name each product once"),
        (["--step", "0", "--labels", "shop=1"], "there is no label 'shop'; known labels: none"),
        (["--step", "0", "--labels", "7"], "--labels must be pairs"),
        (["--step", "0", "--scale", "7"], "learned without a scale: leave out --scale"),
        (["--step", "0", "--coming", "1,2"], "--coming goes with a plan for a lead time"),
        ([], "answers one of --step NAME or --table FILE"),
        (["--step", "Sat", "--table", "x"], "answers one of --step NAME or --table FILE"),
        (["--step", "Sat", "--out", "x"], "go with"),
        (["--table", "x", "--stock", "1,2"], "go with"),
        (["--table", "x", "--json"], "go with"),
    ],
)
def test_questions_that_have_no_answer(policy: Path, run: Run, flags: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("decide", policy, *flags)
