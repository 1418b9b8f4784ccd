"""What a guarantee says and what it reads, word by word; and its epsilon, which is shown in one way everywhere."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from poolrl import LostSales, Pool
from poolrl.audit.attack import AuditFinding
from poolrl.audit.cases import CASES
from poolrl.certificate.certificate import certify
from poolrl.certificate.leaflet import leaflet, leaflet_sections, registry_record
from poolrl.cli.audit import _audit_table
from poolrl.cli.plan import _budget_table
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import KEEP_IDS, Guarantee, Mechanism, declared_in_words, neighbours_in_words
from poolrl.workflow.budget import BudgetStudy, StudyLine
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import keys_of
from poolrl.workflow.forecast import Forecast
from poolrl.workflow.page import release_page
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import trade_named
from tests.helpers.certificates import release_facts

# Δ₂² = 36 and σ² = 4: sensitivity 6, sd 2, ρ = 36 / 8 = 4.5; and the same again.
TREES = Mechanism("outcome trees", 1234, Fraction(36), Fraction(4))
OTHER = Mechanism("levels and outcomes", 5, Fraction(36), Fraction(4))
PAID = "outcome trees: 1,234 counts, sensitivity 6, noise sd 2"


def guarantee(**changed: Any) -> Guarantee:
    return Guarantee(**({"mechanisms": (TREES,), "secure": True, "steps": 7} | changed))


def test_the_cost_of_mechanisms_adds_up() -> None:
    assert TREES.rho == Fraction(9, 2)
    assert guarantee().rho == 4.5
    assert guarantee(mechanisms=(TREES, OTHER)).rho == 9.0
    assert guarantee().epsilon() == zcdp.epsilon(4.5, 1e-6)
    assert guarantee().epsilon(1e-9) == zcdp.epsilon(4.5, 1e-9) > guarantee().epsilon()


@pytest.mark.parametrize(
    ("cells", "moved", "variance"), [(0, 1, 1), (-1, 1, 1), (1, 0, 1), (1, -1, 1), (1, 1, Fraction(-1, 9))]
)
def test_no_mechanism_without_cells_or_sensitivity(cells: int, moved: int, variance: Fraction) -> None:
    with pytest.raises(ValueError, match="a mechanism has cells"):
        Mechanism("x", cells, Fraction(moved), Fraction(variance))
    # The smallest: one cell, and no noise at all. It costs everything.
    least = Mechanism("x", 1, Fraction(1, 9), Fraction(0))
    assert least.rho == math.inf
    assert Mechanism.from_dict(least.to_dict()) == least


@pytest.mark.parametrize(
    "wrong", [{"labels": "secret"}, {"scale_memory": -1}, {"scale_memory": 1}, {"scale_memory": -1, "scaled": True}]
)
def test_no_guarantee_of_other_kinds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a guarantee knows three modes of labels"):
        guarantee(**wrong)


NOT_PRIVATE = {
    "nothing": Guarantee.of_nothing(7),
    "no noise": guarantee(mechanisms=(Mechanism("outcome trees", 1234, Fraction(36), Fraction(0)),)),
    "seeded": guarantee(secure=False),
}


def test_what_is_not_private_says_so_and_why() -> None:
    """Each by its own reason, and epsilon is infinite."""
    assert [g.private for g in NOT_PRIVATE.values()] == [False, False, False]
    assert guarantee(mechanisms=()).private is False
    assert NOT_PRIVATE["nothing"].to_dict()["secure_noise"] is False
    assert all(g.epsilon() == math.inf for g in NOT_PRIVATE.values())
    assert NOT_PRIVATE["nothing"].rho == NOT_PRIVATE["no noise"].rho == math.inf
    steps = "Would protect one trajectory: all its 7 steps."
    dry = "NOT PRIVATE: a dry run with seeded noise (or your own sampler), which can be subtracted again."
    assert {name: str(g).splitlines() for name, g in NOT_PRIVATE.items()} == {
        "nothing": [
            "NOT PRIVATE: no private log was released here, so nothing is protected.",
            steps,
            "Mechanisms: none.",
        ],
        "no noise": [
            "NOT PRIVATE: rho = inf, the counts were released without noise.",
            steps,
            "Mechanisms: outcome trees: 1,234 counts, sensitivity 6, noise sd 0.",
        ],
        "seeded": [dry, steps, f"Mechanisms: {PAID}."],
    }
    for g in NOT_PRIVATE.values():
        facts = g.to_dict()
        assert facts["notice"] == str(g).splitlines()[0]
        assert facts["epsilon"] is facts["epsilon_if_one_gaussian"] is None


def test_the_three_lines_of_a_private_release() -> None:
    small, smaller = (zcdp.rounded_up(zcdp.epsilon(9.0, delta)) for delta in (1e-6, 1e-9))
    other = "levels and outcomes: 5 counts, sensitivity 6, noise sd 2"
    of_shop = guarantee(mechanisms=(TREES, OTHER), unit="shop", trajectories_per_unit=5)
    assert str(of_shop) == repr(of_shop)
    assert str(of_shop).splitlines() == [
        f"Private: rho = 9 (zCDP), that is epsilon = {small} at delta = 1e-6, {smaller} at 1e-9.",
        "Protects one shop: up to 5 trajectories of 7 steps; neighbouring logs replace one shop by any other.",
        f"Exact discrete Gaussian noise from a secure source. {PAID}; {other}.",
    ]
    alone = "Protects one trajectory: all its 7 steps; neighbouring logs replace one trajectory by any other."
    assert str(guarantee()).splitlines()[1] == alone


SCALE = "Declared by the data holder: "
MANY = "replacing one trajectory changes the scales of at most"


@pytest.mark.parametrize(
    ("declared", "sentences"),
    [
        ({}, []),
        ({"scaled": True}, [f"{SCALE}the scale comes from outside the log."]),
        ({"scaled": True, "scale_memory": 1}, [f"{SCALE}{MANY} 1 other; 2 trajectories are paid for."]),
        ({"scaled": True, "scale_memory": 2}, [f"{SCALE}{MANY} 2 others; 3 trajectories are paid for."]),
        ({"scaled": True, "scale_memory": 4}, [f"{SCALE}{MANY} 4 others; 5 trajectories are paid for."]),
        (
            {"scaled": True, "unit": "shop", "scale_memory": 2},
            [f"{SCALE}the scale of every trajectory comes from rows of its own shop, or from outside the log."],
        ),
        ({"unit": "shop"}, []),
        ({"labels": "protected", "unit": "shop"}, ["Labels are protected: the other shop may have other labels."]),
        (
            {"labels": "public", "scaled": True},
            [
                f"{SCALE}the scale comes from outside the log.",
                "Labels are public: the other trajectory has the same rows (trajectories, steps and products) with the "
                "same labels, and how many rows have which labels is released exactly.",
            ],
        ),
    ],
)
def test_what_was_declared_is_said(declared: dict[str, Any], sentences: list[str]) -> None:
    assert declared_in_words(guarantee(**declared)) == sentences
    second = str(guarantee(**declared)).splitlines()[1]
    assert second.endswith("".join(f" {sentence}" for sentence in sentences))
    # A certificate may declare what no guarantee does: the memory of no scale is not spoken of.
    odd = SimpleNamespace(scaled=False, scale_memory=2, unit="trajectory", labels="none")
    assert declared_in_words(odd) == []


def test_a_guarantee_in_a_file() -> None:
    facts = guarantee(scaled=True, scale_memory=2, labels="public", unit="trajectory").to_dict()
    assert facts == {
        "private": True,
        "notice": None,
        "rho": 4.5,
        "epsilon": {"1e-06": zcdp.epsilon(4.5, 1e-6), "1e-09": zcdp.epsilon(4.5, 1e-9)},
        "epsilon_if_one_gaussian": zcdp.gaussian_epsilon(4.5, 1e-6),
        "unit": "trajectory",
        "trajectories_per_unit": 1,
        "steps": 7,
        "adjacency": "replace one",
        "scaled": True,
        "scale_memory": 2,
        "labels": "public",
        "secure_noise": True,
        "mechanisms": [{"name": "outcome trees", "cells": 1234, "sensitivity_squared": "36", "variance": "4"}],
    }
    assert NOT_PRIVATE["no noise"].to_dict()["rho"] == "inf"
    assert guarantee(secure=False).to_dict()["rho"] == 4.5


NUMBERS = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)


@settings(max_examples=30)
@given(
    mechanisms=st.lists(st.builds(Mechanism, st.text(), st.integers(1, 10**9), NUMBERS, NUMBERS), max_size=3),
    secure=st.booleans(),
    steps=st.integers(1, 400),
    per_unit=st.integers(1, 99),
    unit=st.text(min_size=1),
    memory=st.integers(0, 9),
    labels=st.sampled_from(["none", "protected", "public"]),
    periods=st.text(),
)
def test_a_file_gives_the_same_guarantee_back(
    mechanisms: list[Mechanism],
    secure: bool,
    steps: int,
    per_unit: int,
    unit: str,
    memory: int,
    labels: Any,
    periods: str,
) -> None:
    declared = {"scale_memory": memory, "labels": labels, "periods": periods}
    written = Guarantee(tuple(mechanisms), secure, steps, per_unit, unit, "add one", memory > 0, **declared)
    read = Guarantee.from_dict(json.loads(json.dumps(written.to_dict())))
    assert read == written
    whole = read.steps, read.trajectories_per_unit, read.scale_memory, *(each.cells for each in read.mechanisms)
    assert {type(number) for number in whole} == {int}
    # Older files had no scale and no labels.
    old = {name: fact for name, fact in written.to_dict().items() if name not in ("scaled", "scale_memory", "labels")}
    assert Guarantee.from_dict(old) == replace(written, scaled=False, scale_memory=0, labels="none")


@pytest.mark.parametrize("name", ["secure_noise", "scaled"])
@pytest.mark.parametrize("value", [1, "true", "false", None, [True]])
def test_only_true_is_true(name: str, value: Any) -> None:
    """A file cannot make noise secure by a value that merely counts as true."""
    read = Guarantee.from_dict(guarantee(scaled=True).to_dict() | {name: value})
    assert (read.secure, read.scaled) == (name != "secure_noise", name != "scaled")


@pytest.mark.parametrize("name", ["sensitivity_squared", "variance"])
@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (str(10**100), True),
        (str(10**100 + 1), False),
        (f"1/{10**100}", True),
        (f"1/{10**100 + 1}", False),
        ("1e3", False),
        ("-4", False),
    ],
)
def test_numbers_that_floats_cannot_hold_are_refused(name: str, text: str, fits: bool) -> None:
    facts = TREES.to_dict() | {name: text}
    if fits:
        assert getattr(Mechanism.from_dict(facts), name) == Fraction(text)
    else:
        with pytest.raises(ValueError, match=r"poolrl writes no guarantee|not a number"):
            Mechanism.from_dict(facts)


def test_a_hundred_mechanisms_at_most() -> None:
    assert len(Guarantee.from_dict(guarantee(mechanisms=(TREES,) * 100).to_dict()).mechanisms) == 100
    with pytest.raises(ValueError, match="no guarantee of more than 100 mechanisms"):
        Guarantee.from_dict(guarantee(mechanisms=(TREES,) * 101).to_dict())


@pytest.mark.parametrize(("unit", "several"), [("trajectory", "trajectories"), ("shop", "shops")])
def test_what_neighbours_do(unit: str, several: str) -> None:
    keeps = guarantee(unit=unit, adjacency=KEEP_IDS)
    kept = f"replace what happened in one {unit}; the list of {several}, by their ids, is public and stays"
    assert neighbours_in_words(keeps) == kept
    assert f"neighbouring logs {kept}." in str(keeps)
    assert neighbours_in_words(guarantee(unit=unit)) == f"replace one {unit} by any other"


# Epsilon, rounded up: rho = 0.1 is 2.15 at delta = 1e-6, on paper and on every screen.


ROOT = Path(__file__).parents[2]
RHO, SHOWN = 0.1, "2.15"
# Those that documents speak of.
BUDGETS = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 40.0)
DOCUMENTS = [path for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")) if path.name != "results.md"]
PROBLEM = LostSales(horizon=2, holding=0.1, shortage=0.4, demand_max=10.0)
FACTS = release_facts(PROBLEM, spent=Fraction(1, 10), units=20)


def drawn(table: Table) -> str:
    """A table as a wide terminal shows it."""
    screen = io.StringIO()
    Console(width=250, file=screen).print(table)
    return screen.getvalue()


def test_papers_and_screens_show_the_same() -> None:
    """The registry's field has the certified number, to four digits; its words are for people."""
    assert float(SHOWN) - 0.01 < zcdp.epsilon(RHO, 1e-6) < float(SHOWN) == float(zcdp.epsilon_shown(RHO))
    log = PROBLEM.simulate_log(np.full((20, 2, 1), 5.0), rng=np.random.default_rng(0))
    policy, cheaper = (Pool(rho).fit(PROBLEM, log) for rho in (RHO, RHO / 2))
    certificate, half = (certify(each.guarantee, **FACTS) for each in (policy, cheaper))
    record = yaml.safe_load(registry_record(certificate))["deployment"]["privacy_loss"]
    (numbers,) = (text for title, text in leaflet_sections(certificate) if title.startswith("The numbers"))
    found = AuditFinding(CASES[0], "secure", 100, RHO, 0.1, 0.1, ())
    line = StudyLine(RHO, 20, 1.0, 0.1, 0.1, "normal")
    asked = {"rho": RHO, "units": 20, "demand": "normal", "within": 0.02}
    study = BudgetStudy(**asked, by_rho=[line], by_size=[line], gap_without_data=0.5, trade=trade_named("lost sales"))
    (why,) = (key.why for key in keys_of(study.trade, sales=False) if (key.section, key.name) == ("privacy", "rho"))
    for text, words in (
        (str(policy.guarantee), f"rho = 0.1 (zCDP), that is epsilon = {SHOWN} at delta = 1e-6"),
        (" ".join(leaflet(certificate).split()), f"epsilon = 1.92 at delta 1e-05, {SHOWN} at delta 1e-06,"),
        (numbers[0], f"{SHOWN} at delta 1e-06"),
        (record["privacy_parameters_details"], f"epsilon {SHOWN} at delta 1e-06"),
        # What was spent in all, of which this is half.
        (" ".join(leaflet(half).split()), f"(rho = 0.1 together, epsilon = {SHOWN} at delta 1e-06)"),
        (drawn(_audit_table([found])), f"rho = 0.1, epsilon = {SHOWN} at delta = 1e-06"),
        (" ".join(drawn(_budget_table(study)).split()), f"│ 0.1 │ {SHOWN} │"),
        (why, f"0.1 is epsilon {SHOWN} at delta 1e-6, 1 is {zcdp.epsilon_shown(1.0)};"),
        (write_toml({}), f"# {why}\n"),
    ):
        assert words in text
    page = release_page(Released(Path(), policy, certificate), Forecast(because=""))
    assert f'<th scope="row">epsilon at delta = 1e-06</th><td>{SHOWN}</td>' in page


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_show_the_same(document: Path) -> None:
    """A number that stands behind ε is one that we would show; and so is a row of them below a row of ρ."""
    text = document.read_text()
    deltas = (1e-5, 1e-6, 1e-9)
    shown = {zcdp.rounded_up(zcdp.epsilon(rho, delta)) for rho in BUDGETS for delta in deltas}
    shown |= {zcdp.rounded_up(zcdp.gaussian_epsilon(rho, 1e-6)) for rho in BUDGETS}  # said to be a Gaussian's
    assert set(re.findall(r"(?:ε|epsilon)(?: =| is| of|,)? (\d+\.\d+)", text)) <= shown
    for rhos, epsilons in re.findall(r"^\| ρ \|(.*)\|\n\|[-|]+\|\n\| ε at δ = 10⁻⁶[^|]*\|(.*)\|$", text, re.MULTILINE):
        budgets = [float(rho) for rho in rhos.split("|")]
        assert [cell.strip() for cell in epsilons.split("|")] == [zcdp.epsilon_shown(rho) for rho in budgets]
    if document.name in ("README.md", "workflow.md", "privacy.md"):
        assert re.search(rf"\b{re.escape(SHOWN)}\b", text)
