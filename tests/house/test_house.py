"""The house stays small enough to change: limits on the figures of `python -m benchmarks.house`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.house import SOURCE, asking_lines, files, lines, longest_chain, repeated_names, single_importers

# Files with one importer, each with its reason. A verb, and the work of a verb, are entry points, and not among them.
KEPT_APART = {
    "poolrl.audit.faults": "with attack it would have more than 500 lines",
    "poolrl.data.check_problem": "a public function of the package, which is imported by its name",
    "poolrl.data.sources.duckdb": "with opening it would have more than 500 lines",
    "poolrl.learning.cell_laws": "with estimation it would have more than 500 lines",
    "poolrl.paper.claims": "with the write-up it would have more than 500 lines",
}


def test_the_house_is_small() -> None:
    """A file is short, its name says which it is, and it has two importers or is an entry point."""
    assert lines(SOURCE) <= 25_000
    assert len(files(SOURCE)) <= 150
    assert sum(path.read_text().count("\n") for path in Path(__file__).parents[1].rglob("*.py")) <= 22_000  # of tests
    assert {name: text.count("\n") for name, text in files(SOURCE).items() if text.count("\n") > 500} == {}
    assert repeated_names(SOURCE) == []
    assert set(single_importers(SOURCE)) == set(KEPT_APART)
    assert len(longest_chain(SOURCE)) <= 15


def test_nobody_asks_which_kind_of_problem_it_is() -> None:
    asking = asking_lines(SOURCE)
    assert len(asking) <= 5, asking
    assert [line for line in asking if line.startswith("poolrl.learning.")] == []
