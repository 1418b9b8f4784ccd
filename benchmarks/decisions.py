"""How many order-up-to decisions per second does `poolrl decide --table` make?

    python -m benchmarks.decisions

A chain of a thousand shops with labels and a scale asks. It is compared with the obvious program: read a row, call
`Policy.act`, write a row. Both must write the same answers.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.report import Report, apart, run
from poolrl import LostSales, Policy
from poolrl.learning import stored
from poolrl.learning.policy import Levels
from poolrl.learning.stored import Names
from poolrl.privacy.guarantee import Guarantee
from poolrl.workflow.decision_tables import decide_table, open_desk

CHAIN, ROWS, ROW_BY_ROW = 1_000, 1_000_000, 10_000
STEPS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def chain_policy(products: int) -> Policy:
    """A policy for a thousand shops with and without a promotion; its levels may come from anywhere."""
    labels = {"shop": range(1, CHAIN + 1), "promo": ["no", "yes"]}
    problem = LostSales(
        horizon=7,
        products=products,
        holding=0.1,
        shortage=0.4,
        demand_max=4.0,
        labels={k: [*v] for k, v in labels.items()},
    )
    levels = np.random.default_rng(1).uniform(0.5, 2.0, (CHAIN, 2, 7, products))
    names = Names([f"product {i}" for i in range(products)], STEPS, 1)
    guarantee = replace(Guarantee.of_nothing(7), scaled=True)
    return Policy(problem, Levels(levels), guarantee, stored.Report(names=names))


def write_stocks(path: Path, policy: Policy, rows: int) -> None:
    """Stocks of shops in random order, with an id that must keep its zeros."""
    rng, products = np.random.default_rng(2), policy.names.products
    columns = {
        "id": [f"{i:09d}" for i in range(rows)],
        "step": [STEPS[i] for i in rng.integers(0, 7, rows)],
        "shop": rng.integers(1, CHAIN + 1, rows).tolist(),
        "promo": [["no", "yes"][i] for i in rng.integers(0, 2, rows)],
        "scale": rng.uniform(5, 50, rows).round(2).tolist(),
        "stock": rng.uniform(0, 60, rows).round(2).tolist(),
        "product": [products[i] for i in rng.integers(0, len(products), rows)],
    }
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def row_by_row(file: Path, source: Path, out: Path) -> None:
    """The obvious program."""
    policy = Policy.load(file)
    products = policy.names.products
    with open(source, newline="") as questions, open(out, "w", newline="") as answers:
        rows = csv.DictReader(questions)
        writer = csv.writer(answers, lineterminator="\n")
        for row in rows:
            stock, asked = np.zeros(len(products)), products.index(row["product"])
            stock[asked] = float(row["stock"])
            labels = {"shop": int(row["shop"]), "promo": row["promo"]}
            levels = policy.act(STEPS.index(row["step"]), stock, scale=float(row["scale"]), labels=labels)
            numbers = (levels[asked], levels[asked] - stock[asked])
            writer.writerow([*row.values(), *(round(float(number), 6) for number in numbers)])


def timed(file: Path, source: Path, out: Path) -> float:
    """Processor seconds of `poolrl decide --table`."""
    began = time.process_time()
    decide_table(open_desk(file), source, out)
    return time.process_time() - began


def cost_of_a_table(products: int, rows: int, sampled: int) -> tuple[float, float, float]:
    """Seconds of `poolrl decide` and of the obvious program, by a sample of rows, and the peak memory of the first."""
    with tempfile.TemporaryDirectory() as folder:
        file, table, sample, out, slow = (Path(folder) / name for name in ("p.npz", "t.csv", "s.csv", "o.csv", "r.csv"))
        policy = chain_policy(products)
        policy.save(file)
        write_stocks(table, policy, rows)
        write_stocks(sample, policy, sampled)
        began = time.process_time()
        row_by_row(file, sample, slow)
        plain = (time.process_time() - began) * rows / sampled
        timed(file, sample, out)
        check_answers(out, slow)
        ours, peak = apart(timed, file, table, out)
        return ours, plain, peak


def check_answers(ours: Path, plain: Path) -> None:
    """Refuse answers that differ, or cells that were not kept."""
    with open(ours, newline="") as one, open(plain, newline="") as other:
        next(one)
        for row, expected in zip(csv.reader(one), csv.reader(other), strict=True):
            if row[:-3] != expected[:-2]:
                raise AssertionError("a cell was not kept")
            np.testing.assert_allclose(np.array(row[-3:-1], float), np.array(expected[-2:], float), atol=2e-6)


def work(report: Report, _: argparse.Namespace) -> None:
    """Tables of more and more products on the command line."""
    rows = []
    for products in (1, 8, 100):
        ours, plain, peak = cost_of_a_table(products, ROWS, ROW_BY_ROW)
        rows.append([str(products), f"{ours:.1f}", f"{plain:.0f}", f"{plain / ours:.1f}", f"{peak:,.0f}"])
    report.table(
        ("products", "seconds", "row by row, seconds", "times as fast", "peak MiB"),
        rows,
        title=f"{ROWS:,} rows of {CHAIN:,} shops with two labels and a scale: poolrl decide --table",
    )
    report.text(
        f"Row by row is `Policy.act` for each row, measured on {ROW_BY_ROW:,} rows, which got the same answers. "
        "Seconds are those of one processor core."
    )


if __name__ == "__main__":
    run(Report("decisions", "Decisions per second", ("learning/policy.py", "workflow")), work)
