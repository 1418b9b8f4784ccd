"""The configuration: every mistake is reported with its key, and what is written can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, LostSales
from poolrl.learning.stored import Names
from poolrl.workflow.column_names import MEANINGS, meanings_of
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import load_config
from tests.helpers.exports import configured, export_facts

Facts = dict[str, dict[str, Any]]


def fault(path: Path, facts: Facts) -> str:
    path.write_text(write_toml(facts))
    with pytest.raises(ValueError, match="mistake") as caught:
        load_config(path)
    return str(caught.value)


def test_a_good_file_gives_its_problem(config: Path) -> None:
    file = load_config(config)
    problem = file.config.problem.posed
    assert type(problem) is LostSales
    np.testing.assert_array_equal(problem.shortage, [[0.5, 0.6]] * 3)
    np.testing.assert_array_equal(problem.share, np.full((3, 2), 0.9))
    assert file.config.names() == Names(["bread", "milk"], ["Fri", "Sat", "Sun"], 0, {"step": "step"})
    assert file.ledger == config.parent / "ledger.sqlite"


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("privacy", {"rho": -1.0}, "[privacy] rho: input should be greater than or equal to 0.000000001, got -1.0"),
    ("privacy", {"rho": 5.0}, "[privacy] rho must not exceed budget: 5 is more than 1"),
    ("privacy", {"max_per_unit": 3}, "[privacy] max_per_unit needs unit"),
    ("privacy", {"unit": "shop"}, "[privacy] unit needs max_per_unit"),
    ("problem", {"kind": "lostsales"}, "[problem] kind 'lostsales' is not known; did you mean 'lost sales'?"),
    ("problem", {"horizon": 10**12}, "[problem] horizon: input should be less than or equal to 10000"),
    ("problem", {"steps": ["Fri", "Sat"]}, "[problem] steps must name each of the 3 steps"),
    ("problem", {"steps": ["1", "0", "2"]}, "[problem] steps must not call a step by the number of another one"),
    ("problem", {"products": ["bread", "a\u202eb"]}, "[problem] products must be printable names that differ"),
    ("problem", {"products": ["bread", "step"]}, "[problem] products must not be called step"),
    ("problem", {"holding": [0.1, 0.2, 0.3]}, "holding must be one number, or 2, one per product, or 3 lists"),
    ("problem", {"holding": -0.1}, "[problem] holding must not be negative, got -0.1"),
    ("problem", {"boundary": 1.5}, "[problem] boundary must lie in (0, 1] on the lower side"),
    ("log", {"opening": ["state_0"]}, "[log] opening must name one column for each of the 2 products, got 1"),
    ("log", {"source": "postgresql://shop@host/log"}, "[log] source is a PostgreSQL server: add a query"),
    ("log", {"scale": ["forecast"]}, "[log] scale and scale_memory go together"),
    ("period", {"column": "monday", "first": "2025-01-06"}, "[period] a period needs a column, and two dates"),
]
ABOUT_SALES: list[tuple[str, dict[str, Any], str]] = [
    ("sales", {"date_format": "%d.%m"}, "[sales] date_format must give day, month and year"),
    ("sales", {"yes": ["Ja", "1"], "no": ["ja"]}, "[sales] yes and no must not share a word, as they do 'ja'"),
    ("sales", {"closed": ["Sun"]}, "[problem] horizon must be 6: the days of a week but those of [sales] closed"),
    ("sales", {"scale": "forecast"}, "[sales] scale names a column, so scale_memory is needed"),
    ("sales", {"scale_memory": 1}, "[sales] scale_memory goes with a column as scale"),
    ("sales", {"scale": "same weekday, last 0 weeks"}, "with m in 1 .. 52"),
    ("sales", {"sales": "opening"}, "[sales] opening names the column 'opening', which another key names too"),
    ("sales", {"labels": {"promo": "p"}}, "[sales] labels names 'promo', which [problem] labels does not declare"),
    ("privacy", {"unit": "store", "max_per_unit": 2}, '[privacy] unit must be "shop" with [sales]'),
    ("privacy", {"weeks_public": True}, "[privacy] weeks_public goes with a scale of the same weekday"),
    ("privacy", {"labels_public": True}, "[privacy] labels_public needs [problem] labels"),
    ("problem", {"labels": {"shop": "9..1"}}, "[problem] labels: 9..1 is no range of numbers"),
    ("problem", {"step_labels": ["holiday"]}, "[problem] step_labels must be among the labels"),
    ("problem", {"scale_profile": [1.0]}, "[problem] scale_profile must have one number for each of the 2 steps"),
]


@pytest.mark.parametrize(("section", "given", "message"), [*MISTAKES, *ABOUT_SALES])
def test_mistakes_are_reported_with_their_key(
    tmp_path: Path, facts: Facts, section: str, given: dict[str, Any], message: str
) -> None:
    facts = export_facts() if (section, given, message) in ABOUT_SALES else facts
    facts[section] = facts.get(section, {}) | given
    assert message in fault(tmp_path / "poolrl.toml", facts)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("rho =", "roh =", "[privacy] roh is not known; did you mean rho?"),
        ("[privacy]", "[privcy]", "[privcy] is not known; did you mean privacy?"),
        ("[problem]", '[sales]\ndelimeter = "x"\n[problem]', "[sales] delimeter is not known; did you mean delimiter?"),
    ],
)
def test_a_typo_says_which_key_was_meant(config: Path, old: str, new: str, hint: str) -> None:
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(ValueError, match="mistake") as caught:
        load_config(config)
    assert hint in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "poolrl.toml"
    with pytest.raises(FileNotFoundError, match="'poolrl init' writes one"):
        load_config(path)
    for content, why in (
        (b"[problem\n", "is not a TOML file"),
        (b"\xff\xfe", "is not a TOML file"),
        (b"rho = 1\n", r"\[problem\] is missing"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=why):
            load_config(path)


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda text: text.isprintable() and bool(text.strip())
)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(
    products=st.lists(words, min_size=1, max_size=4, unique_by=str.lower).filter(lambda all: "step" not in all),
    text=names,
    query=st.none() | names | st.just("SELECT *\nFROM log\nWHERE x = '\"'"),
    rho=st.floats(1e-6, 1e6),
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, products: list[str], text: str, query: str | None, rho: float
) -> None:
    """Whatever the names: quotes, line feeds, control characters, other alphabets."""
    costs = [[0.1] * len(products), [0.2] * len(products)]
    columns = {part: [f"{part} {name}" for name in products] for part in ("opening", "order_up_to", "left")}
    log = {"source": text, "query": query, "clip": True, "trajectory": f"id {text}", "step": f"step {text}"} | columns
    problem = {"kind": "backlog", "products": products, "horizon": 2, "shortage": 0.4, "demand_max": 10.0}
    privacy = {"rho": rho, "budget": 2 * rho, "data_set": f"shop {text}"}
    facts = {"problem": problem | {"holding": costs}, "log": log, "privacy": privacy}
    config = configured(tmp_path_factory.mktemp("config"), facts).config
    assert config.problem.products == products
    assert type(config.problem.posed) is Backlog
    assert (config.log.source, config.log.clip, config.privacy.rho) == (text, True, rho)
    assert (config.log.query or "").strip() == (query or "").strip()


def test_labels_and_scale_of_a_file(tmp_path: Path) -> None:
    """Ranges stand for all numbers between; the problem, the columns and the ledger's unit know of everything."""
    facts = export_facts(scale="same weekday, last 3 weeks", labels={"promotion": "Aktion"})
    labels = {"shop": "2..4", "size": [1, "5..6", 9], "promotion": ["nein", "ja"]}
    facts["problem"] |= {"labels": labels, "step_labels": ["promotion"], "scale_profile": [1.0, 2.0]}
    facts["privacy"] |= {"labels_public": True, "weeks_public": True}
    config = configured(tmp_path, facts).config
    assert config.problem.posed.labels.values == ((2, 3, 4), (1, 5, 6, 9), ("nein", "ja"))
    np.testing.assert_array_equal(config.problem.posed.scale_profile[0, 0, 0], [[1.0] * 2, [2.0] * 2])
    assert config.columns().labels == {name: f"label_{name}" for name in ("shop", "size", "promotion")}
    query = config.query() or ""
    assert all(f'"{column}"' in query for column in ("shop", "size", "Aktion"))
    unit = config.unit()
    assert (unit.scale_memory, unit.labels_kept, unit.adjacency) == (3, True, "replace what happened in one")
    assert config.moved == 4
    facts["problem"]["products"] = [f"product {i}" for i in range(300)]
    assert len(query) == len(configured(tmp_path, facts).config.query() or "")


@pytest.mark.parametrize("source", ["postgresql://me:pw@host/log", "postgresql:///log?password=pw&host=h"])
def test_a_password_does_not_belong_in_a_public_file(config: Path, facts: Facts, source: str) -> None:
    facts["log"] |= {"source": source, "query": "SELECT 1"}
    message = fault(config, facts)
    assert "source must not hold a password" in message
    assert "pw" not in message


def test_no_word_has_two_meanings() -> None:
    """And a column without a name has none, not even of a label that no list of words knows."""
    for meaning, words in MEANINGS.items():
        for word in words.split(","):
            assert [each for each, names in meanings_of([word]).items() if names] == [meaning], word
    assert meanings_of(["", "?"], {"colour": "", "shop": "shop,"}) == {"colour": [], "shop": []}
