"""ε is shown in one way everywhere, rounded up: ρ = 0.1 is ε = 2.15 at δ = 10⁻⁶, on paper and on every screen."""

from __future__ import annotations

import io
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console
from rich.table import Table

from poolrl import LostSales, Policy, Pool
from poolrl.audit.attack import CERTAINTY, AuditFinding
from poolrl.audit.cases import CASES
from poolrl.certificate.certificate import Certificate, certify
from poolrl.certificate.leaflet import leaflet, leaflet_sections, registry_record
from poolrl.cli.audit import _audit_table
from poolrl.cli.plan import _budget_table
from poolrl.privacy import zcdp
from poolrl.workflow.budget import BudgetStudy, StudyLine
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import keys_of
from poolrl.workflow.page import claim_rows
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import trade_named
from tests.helpers.certificates import release_facts

ROOT = Path(__file__).parents[2]
RHO, SHOWN = 0.1, "2.15"
# Those that documents speak of.
BUDGETS = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 40.0)
DOCUMENTS = [path for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")) if path.name != "results.md"]
PROBLEM = LostSales(horizon=2, holding=0.1, shortage=0.4, demand_max=10.0)
FACTS = release_facts(PROBLEM, spent=Fraction(1, 10), units=20)


@pytest.fixture(scope="module")
def policy() -> Policy:
    log = PROBLEM.simulate_log(np.full((20, 2, 1), 5.0), rng=np.random.default_rng(0))
    return Pool(RHO).fit(PROBLEM, log)


@pytest.fixture(scope="module")
def certificate(policy: Policy) -> Certificate:
    return certify(policy.guarantee, **FACTS)


def drawn(table: Table) -> str:
    """A table as a wide terminal shows it."""
    screen = io.StringIO()
    Console(width=250, file=screen).print(table)
    return screen.getvalue()


def cells_of(table: Table, first: str, second: str) -> list[str]:
    """The cells of the one row that begins with these two."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in drawn(table).splitlines() if "│" in line]
    (row,) = (row for row in rows if row[:2] == [first, second])
    return row


def test_it_is_rounded_up() -> None:
    exact = zcdp.epsilon(RHO, 1e-6)
    assert float(SHOWN) - 0.01 < exact < float(SHOWN)
    assert zcdp.epsilon_shown(RHO) == zcdp.rounded_up(exact) == SHOWN


def test_papers_and_screens_show_the_same(policy: Policy, certificate: Certificate) -> None:
    """The registry's field has the certified number, to four digits; its words are for people."""
    record = yaml.safe_load(registry_record(certificate))["deployment"]["privacy_loss"]
    log = PROBLEM.simulate_log(np.full((20, 2, 1), 5.0), rng=np.random.default_rng(0))
    half = certify(Pool(RHO / 2).fit(PROBLEM, log).guarantee, **FACTS)
    (numbers,) = (text for title, text in leaflet_sections(certificate) if title.startswith("The numbers"))
    found = AuditFinding(CASES[0], "secure", 100, RHO, 0.1, 0.1, CERTAINTY, ())
    for text, words in (
        (str(policy.guarantee), f"rho = 0.1 (zCDP), that is epsilon = {SHOWN} at delta = 1e-6"),
        (" ".join(leaflet(certificate).split()), f"epsilon = 1.92 at delta 1e-05, {SHOWN} at delta 1e-06,"),
        (numbers[0], f"{SHOWN} at delta 1e-06"),
        (record["privacy_parameters_details"], f"epsilon {SHOWN} at delta 1e-06"),
        # What was spent in all, of which this is half.
        (" ".join(leaflet(half).split()), f"(rho = 0.1 together, epsilon = {SHOWN} at delta 1e-06)"),
        (drawn(_audit_table([found])), f"rho = 0.1, epsilon = {SHOWN} at delta = 1e-06"),
    ):
        assert words in text
    assert ["epsilon at delta = 1e-06", SHOWN] in claim_rows(Released(Path(), policy, certificate))


def test_the_table_of_budgets_shows_it() -> None:
    line = StudyLine(RHO, 20, 1.0, 0.1, 0.1, "normal")
    asked = {"rho": RHO, "units": 20, "demand": "normal", "within": 0.02}
    study = BudgetStudy(**asked, by_rho=[line], by_size=[line], gap_without_data=0.5, trade=trade_named("lost sales"))
    assert cells_of(_budget_table(study), "0.1", SHOWN)


def test_the_comment_in_the_configuration() -> None:
    keys = keys_of(trade_named("lost sales"), sales=False)
    (why,) = (key.why for key in keys if (key.section, key.name) == ("privacy", "rho"))
    assert f"0.1 is epsilon {SHOWN} at delta 1e-6, 1 is {zcdp.epsilon_shown(1.0)};" in why
    assert f"# {why}\n" in write_toml({})


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


def test_the_documents_do_show_it() -> None:
    for name, times in (("README.md", 2), ("docs/workflow.md", 1), ("docs/privacy.md", 1)):
        assert len(re.findall(rf"\b{re.escape(SHOWN)}\b", (ROOT / name).read_text())) >= times, name
