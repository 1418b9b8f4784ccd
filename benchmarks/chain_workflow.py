"""A chain's own export through the command line: init, check, fit, backtest, with the time and the memory of each.

    python -m benchmarks.chain_workflow                        # README's walk-through, 40 x 200, 500 x 2,000
    python -m benchmarks.chain_workflow --sizes 500x2000 --labels

The export is simulated, and as a German till writes it: semicolons, decimal commas, ja and nein, 31.12.2025. Shops
differ in size, managers order by the last weeks' sales. Some rows are missing, some stand twice, some have a typing
error. Seconds on the clock depend on what else the machine does; seconds of processors hardly do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.report import Report

DAYS, SHOPS = 6, 40
# Faults of a till: shares of rows that are missing, stand twice, or have a field that nobody can read.
LOST, TWICE, TYPOS = 0.01, 0.002, 0.002
EXPORT = """
SELECT shop AS "Filiale", strftime(DATE '2024-01-01' + CAST(7 * week + day AS INTEGER), '%d.%m.%Y') AS "Datum",
  'Artikel ' || product AS "Artikel", replace(printf('%.1f', opening), '.', ',') AS "Anfangsbestand",
  replace(printf('%.1f', delivery), '.', ',') AS "Lieferung",
  CASE WHEN typo THEN 'k.A.' ELSE replace(printf('%.1f', sales), '.', ',') END AS "Absatz",
  CASE WHEN "left" <= 0 THEN 'ja' ELSE 'nein' END AS "Ausverkauft",
  CASE WHEN promotion THEN 'ja' ELSE 'nein' END AS "Aktion"
FROM rows, unnest(range(copies))
"""


@dataclass(frozen=True)
class Step:
    """One command, and what it took."""

    name: str
    seconds: float
    processor: float  # seconds of all processors together
    gigabytes: float
    code: int

    def __str__(self) -> str:
        """For people."""
        took = f"{self.seconds:7.1f} s on the clock {self.processor:7.1f} s of processors"
        return f"{self.name:8s} {took} {self.gigabytes:6.2f} GB   exit {self.code}"


def write_chain(path: Path, *, products: int, weeks: int, seed: int) -> int:
    """Write the export of these weeks of shops, product by product; return its number of rows."""
    rng = np.random.default_rng(seed)
    shops = max(1, min(SHOPS, weeks // 20))
    per_shop = -(-weeks // shops)
    size = rng.uniform(0.3, 3.0, shops)
    promotion = rng.random((per_shop, shops)) < 0.25
    week, shop, day = np.meshgrid(np.arange(per_shop), np.arange(shops), np.arange(DAYS), indexing="ij")
    counted = (week * shops + shop < weeks).ravel()
    rows = 0
    with duckdb.connect() as database, path.open("wb") as file:
        for product in range(products):
            usual = rng.uniform(2.0, 60.0) * size[:, None] * rng.uniform(0.7, 1.3, DAYS)
            more = np.where(promotion, 1.5, 1.0)[:, :, None]
            demand = np.round(rng.gamma(6.0, usual * more / 6.0), 1)
            order, stock = np.empty_like(demand), np.zeros((shops, DAYS))
            sold = [usual]
            for number in range(per_shop):
                expected = np.mean(sold[-4:], axis=0) * more[number]
                order[number] = np.round(expected * rng.uniform(0.8, 2.2, expected.shape), 1)
                sold.append(np.minimum(order[number], demand[number]))
            left = np.round(order - np.minimum(order, demand), 1)
            chance = rng.random(demand.size)
            copies = np.where(chance < LOST, 0, np.where(chance < LOST + TWICE, 2, 1))
            numbers = {
                "delivery": order,
                "sales": order - left,
                "left": left,
                "opening": np.broadcast_to(stock, order.shape),
            }
            flags = {"typo": rng.random(demand.size) < TYPOS, "promotion": np.repeat(promotion.ravel(), DAYS)}
            columns = {"shop": shop.ravel() + 1, "week": week.ravel(), "day": day.ravel(), "copies": copies} | flags
            columns |= {name: values.ravel() for name, values in numbers.items()}
            table = pa.table({name: values[counted] for name, values in columns.items()})
            table = table.append_column("product", pa.array(np.full(len(table), product + 1)))
            database.register("rows", table)
            text = path.with_suffix(".part")
            head = "true" if product == 0 else "false"
            database.execute(f"COPY ({EXPORT}) TO '{text}' (FORMAT csv, DELIMITER ';', HEADER {head})")
            file.write(text.read_bytes())
            rows += int(copies[counted].sum())
    text.unlink()
    return rows


def timed(name: str, folder: Path, *arguments: str) -> Step:
    """A command of poolrl in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "poolrl.cli.main", name, *arguments]
    with (folder / f"{name}.txt").open("wb") as printed:
        process = subprocess.Popen(command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for, and must not be again
    seconds, processor = time.perf_counter() - began, used.ru_utime + used.ru_stime
    return Step(name, seconds, processor, used.ru_maxrss / 2**20, process.returncode)


def measure(folder: Path, *, products: int, weeks: int, labels: bool, rho: float) -> list[Step]:
    """Init, check, fit and backtest of one export."""
    (folder / "products.txt").write_text("".join(f"Artikel {i + 1}\n" for i in range(products)))
    wanted = ["--labels", "promotion=nein,ja"] if labels else []
    init = timed(
        "init", folder, "--sales", "export.csv", "--decimal", ",", "--date-format", "%d.%m.%Y", "--yes", "ja",
        "--no", "nein", "--closed", "Sun", "--products", "@products.txt", "--holding", "0.3", "--shortage", "0.6",
        "--demand-max", "5", "--scale", "same weekday, last 4 weeks", "--weeks-public", "true", "--units", str(weeks),
        "--data-set", "chain", "--rho", str(rho), *wanted,
    )  # fmt: skip
    config = folder / "poolrl.toml"
    config.write_text(config.read_text().replace("# ledger = ...", 'ledger = "ledger.sqlite"'))
    return [init, timed("check", folder), timed("fit", folder, "--new-account"), timed("backtest", folder)]


def walk_through(report: Report) -> None:
    """README's own example, from `init` to the page."""
    with tempfile.TemporaryDirectory() as made:
        arguments = {"init": ["--example"], "check": [], "plan": [], "fit": ["--new-account"]}
        steps = [timed(name, Path(made), *more) for name, more in arguments.items()]
    whole, most = sum(step.seconds for step in steps), max(step.gigabytes for step in steps)
    row = ["README's walk-through", *(_took(step) for step in steps), f"{whole:.1f} s", f"{most:.1f} GB"]
    report.table(["", *arguments, "init to page", "most memory"], [row])


def _took(step: Step) -> str:
    return f"{step.seconds:.1f} s{'' if step.code == 0 else f', exit {step.code}'}"


def report_on(sizes: Sequence[tuple[int, int]], report: Report, asked: argparse.Namespace) -> None:
    """A row for each size, with the time and the memory of each command."""
    rows = []
    for products, weeks in sizes:
        with tempfile.TemporaryDirectory() as made:
            folder = (asked.keep or Path(made)) / f"{products}x{weeks}"
            folder.mkdir(parents=True, exist_ok=True)
            lines = write_chain(folder / "export.csv", products=products, weeks=weeks, seed=1)
            size = f"{products:,} × {weeks:,} ({lines:,} rows)"
            steps = measure(folder, products=products, weeks=weeks, labels=asked.labels, rho=asked.rho)
            for step in steps:
                print(step, flush=True)
                if step.code:
                    print("  " + (folder / f"{step.name}.txt").read_text().strip().splitlines()[-1])
            whole = sum(step.seconds for step in steps[:3])
            rows.append([size, *map(_took, steps), f"{whole:.1f} s", f"{max(step.gigabytes for step in steps):.1f} GB"])
    report.table(["products × weeks of shops", *(step.name for step in steps), "init to page", "most memory"], rows)
    labels = ", with the promotion as a label" if asked.labels else ""
    report.text(f"Simulated exports at rho = {asked.rho:g}{labels}. Seconds are on the clock. fit includes its page.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what each command took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="40x200,500x2000", help="products x weeks (default: 40x200,500x2000)")
    parser.add_argument("--rho", type=float, default=1.0)
    parser.add_argument("--labels", action="store_true", help="the promotion as a label")
    parser.add_argument("--keep", type=Path, help="a folder to work in, which stays")
    asked = parser.parse_args(arguments)
    sizes = [(int(products), int(weeks)) for products, weeks in (size.split("x") for size in asked.sizes.split(","))]
    report = Report(
        "chain_workflow", "A chain's export through the command line", ("cli", "data", "learning", "workflow")
    )
    walk_through(report)
    report_on(sizes, report, asked)


if __name__ == "__main__":
    main()
