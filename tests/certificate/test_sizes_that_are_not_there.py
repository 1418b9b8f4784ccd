"""A file of 78 kB declared ten million steps, and `poolrl verify` took 4 GB to look at it.

Objects made from a file are as large as the arrays that the file holds. Each public size is inflated in turn, in a file
with a right checksum, and read where 300 MB may be had.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import Grid, LostSales, Policy, Pool, SeededNoise, Zones, npz
from poolrl.learning import stored
from poolrl.learning.outcomes import STORED
from tests.helpers.processes import environment, program

MEGABYTES = 300
MANY = 9_900_000
FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 0.1, "shortage": 0.4, "demand_max": 50.0}
LABELS = {"store": [1, 2], "promo": ["no", "yes"]}
KINDS = {"levels": None, "lattice": Grid(3), "rings": Zones(4)}
# Of a good file of this kind: other facts (parts of a section, or a whole one) and arrays. None takes something away.
Change = tuple[str, dict[str, Any], dict[str, Any]]


def good_policy(kind: str) -> Policy:
    labels = {"labels": LABELS} if kind == "levels" else {}
    problem = LostSales(**FACTS, **labels)
    rng = np.random.default_rng(0)
    known = {name: values * 20 for name, values in LABELS.items()} if labels else None
    log = problem.simulate_log(rng.uniform(0, 50, (40, 3, 2)), rng=rng, labels=known)
    return Pool(1.0, values=KINDS[kind]).fit(problem, log, noise=SeededNoise(0))


def change(path: Path, others: dict[str, Any], stored_as: dict[str, Any]) -> None:
    """Change a file, and give it the checksum that fits. Another rule has other arrays."""
    with np.load(path) as file:
        arrays = dict(file)
    facts = json.loads(arrays.pop("facts").tobytes())
    del facts["sha256"]
    for name, entries in others.items():
        facts[name] = without_none(facts[name] | entries) if name in ("problem", "guarantee") else entries
    arrays = without_none(stored_as if "rule" in others else arrays | stored_as)
    text = json.dumps(facts | {"sha256": stored._checksum(facts, arrays)}).encode()
    np.savez_compressed(path, facts=np.frombuffer(text, np.uint8), **arrays)


def without_none(known: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in known.items() if value is not None}


def declared(**facts: Any) -> dict[str, Any]:
    """Other sizes, and costs that are one number for all of them."""
    return {"problem": {"holding": 0.1, "shortage": 0.4, "demand_max": 50.0, "boundary": 1.0} | facts}


def on_axes(points: float = 9.0, **facts: Any) -> Change:
    """Values on axes. We write them for problems of your own only, but a file may claim them for a shop."""
    costs = dict.fromkeys(("holding", "shortage", "boundary"), [[0.1, 0.1]] * 3) | {"demand_max": [50.0, 50.0]}
    problem = declared(**facts)["problem"] if facts else costs
    arrays = {"q": np.zeros((3, 2, 9)), "axes": np.array([points, 0.0])}
    return "levels", {"rule": "GreedyQ", "problem": problem | {"labels": None}}, arrays


def in_stores(values: int, labels: int) -> Change:
    return "levels", declared(labels=[[f"label {i}", list(range(values))] for i in range(labels)]), {}


def grid(bins: float) -> Change:
    return "lattice", {}, {"grid": np.array([bins, 0.0])}


def says(**facts: Any) -> Change:
    return "levels", facts, {}


BOMB = np.zeros(5_000_000)  # 40 MB that pack into 40 kB
HOSTILE: dict[str, Change] = {
    "horizon": says(**declared(horizon=MANY)),
    "horizon on axes": on_axes(horizon=MANY),
    "horizon on a lattice": ("lattice", declared(horizon=MANY), {}),
    "products": says(**declared(products=MANY)),
    "products on rings": ("rings", declared(products=MANY), {}),
    "cells of labels": in_stores(values=200, labels=3),
    # Levels for two million steps are there (they pack into 32 kB), but costs are not.
    "levels without costs": (
        "levels",
        declared(horizon=2_000_000, products=2, labels=None),
        {"levels": np.zeros((2_000_000, 2))},
    ),
    "an array of nobody": ("levels", {}, {"more": BOMB}),
    "points": on_axes(points=1e9),
    "bins": grid(1e8),
    "more bins than values": grid(20.0),
    "a horizon that is no number": says(**declared(horizon="9" * 1000)),
    "names of steps": says(report={"names": {"products": ["a"], "steps": ["0"] * 1_000_000}}),
    "mechanisms": says(guarantee={"mechanisms": [{}] * 100_000}),
}
# An array as large as the file says may be read. It must not take more than that.
READ_OR_REFUSED: dict[str, Change] = {
    "axes": on_axes(),
    "steps of the guarantee": says(guarantee={"steps": 10**15}),
    "a report of boxes": says(report={"x": [{} for _ in range(900_000)]}),
    "a deep report": says(report=reduce(lambda inside, _: {"x": inside}, range(900), {})),
}
# A hundred thousand steps, all of whose costs and levels are there.
LONG = dict.fromkeys(("holding", "shortage"), [[0.0, 0.0]] * 100_000) | {"boundary": [[1.0, 1.0]] * 100_000}
ALL_THERE: Change = (
    "levels",
    {"problem": LONG | {"horizon": 100_000, "demand_max": [1.0, 1.0], "labels": None}},
    {"levels": np.zeros((100_000, 2))} | dict.fromkeys(f"outcomes.{name}" for name in STORED),
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What happened to every file."""
    folder = tmp_path_factory.mktemp("hostile")
    for kind in KINDS:
        good_policy(kind).save(folder / f"{kind}.npz")
    cases = HOSTILE | READ_OR_REFUSED | {"stored": ALL_THERE}
    for name, (kind, *how) in cases.items():
        shutil.copy(folder / f"{kind}.npz", folder / f"{name}.npz")
        change(folder / f"{name}.npz", *how)
    files = [folder / f"{name}.npz" for name in (*KINDS, *cases)]
    good = [folder / f"{kind}.npz" for kind in KINDS]
    command = program("load_in_little_memory", MEGABYTES, *good, "--", *files)
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), timeout=100)
    return dict(zip((*KINDS, *cases), json.loads(answer.stdout), strict=True))


@pytest.mark.parametrize("case", [*KINDS, "stored", *HOSTILE, *READ_OR_REFUSED])
def test_a_size_that_is_not_there_is_refused_in_a_line(case: str, outcomes: dict[str, str | None]) -> None:
    """What is there is read; a size that costs nothing is read or refused."""
    said = outcomes[case]
    assert "is no refusal" not in (said or "")
    if case in (*KINDS, "stored"):
        assert said is None
    elif case in HOSTILE:
        assert len(said.splitlines()) == 1


def test_the_limit_would_show(tmp_path: Path) -> None:
    """The planted bug: without the comparison of sizes, memory runs out where a refusal is expected."""
    good, long = tmp_path / "good.npz", tmp_path / "long.npz"
    good_policy("levels").save(good)
    shutil.copy(good, long)
    change(long, declared(horizon=MANY // 2, labels=None), {})
    python, plain, *arguments = program("load_in_little_memory", MEGABYTES, good, "--", long)
    plant = "from poolrl import LostSales\nLostSales.from_facts = lambda facts, _: LostSales(**facts)\n\ndef look"
    (tmp_path / "planted.py").write_text(Path(plain).read_text().replace("def look", plant, 1))
    command = [python, tmp_path / "planted.py", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), timeout=100)
    assert json.loads(answer.stdout) == ["MemoryError is no refusal"]


def test_what_packs_too_well_is_stored_plainly_and_read_again(tmp_path: Path) -> None:
    """Zeros pack a thousandfold. A large file of them is not packed, so that it can be told from a bomb."""
    small, large = np.zeros(1000), np.zeros(6_000_000)
    for array, kind in ((small, zipfile.ZIP_DEFLATED), (large, zipfile.ZIP_STORED)):
        npz.write_arrays(tmp_path / "a.npz", {"a": array})
        with zipfile.ZipFile(tmp_path / "a.npz") as archive:
            assert archive.infolist()[0].compress_type == kind
        assert np.array_equal(npz.read_arrays(tmp_path / "a.npz", most_bytes=2**30)["a"], array)
    np.savez_compressed(tmp_path / "bomb.npz", a=large)
    with pytest.raises(npz.DamagedError, match="more bytes than such a file can have"):
        npz.read_arrays(tmp_path / "bomb.npz", most_bytes=2**30)
