"""The page of a release as one HTML file: no request leaves it, it opens from the file system, it prints.

Everything on it is public or post-processing of what was released. Its words are in assets/page.html, and
assets/levels.js draws the table of levels from the numbers of `page_data`.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from poolrl.certificate.certificate import Certificate, seen_in
from poolrl.certificate.leaflet import leaflet_sections, neighbours, percent, whose
from poolrl.certificate.release_files import CERTIFIED
from poolrl.learning.policy import Levels, Policy
from poolrl.privacy.zcdp import rounded_up
from poolrl.problems.inventory import Inventory
from poolrl.workflow.charts import cost_chart, interval_bar
from poolrl.workflow.forecast import CostEstimate, Forecast, ProductCosts, money, signed_percent
from poolrl.workflow.levels_csv import LEVELS_FILE
from poolrl.workflow.page_data import PageNumbers, page_numbers
from poolrl.workflow.release_folder import Released
from poolrl.workflow.what_if import what_ifs

# The numbers that the slider moves, with their words; also the columns of the table of budgets.
OUTPUTS = (
    ("rho", "budget ρ"),
    ("epsilon", "ε at δ = 10⁻⁶"),
    ("attack", "an attacker finds out, at most"),
    ("cost", "predicted cost"),
    ("gap", "above knowing the demand"),
)
VERDICTS = {
    "switch": ("Switch", "good"),
    "do not switch": ("Do not switch", "bad"),
    "cannot tell": ("We cannot tell whether to switch", "open"),
}
# Without a script, a table of so many numbers at most; and of the products whose demand was hidden, the first. A
# longer certificate is named and not repeated.
MOST_PLAIN_NUMBERS, MOST_HIDDEN, LONGEST_CERTIFICATE = 12_000, 20, 200_000


def can_be_drawn(release: Released) -> bool:
    """Whether it is an order-up-to policy with its estimate of demand, as `poolrl fit` makes them."""
    policy = release.policy
    return isinstance(policy.problem, Inventory) and isinstance(policy.rule, Levels) and policy.outcomes is not None


def release_page(release: Released, forecast: Forecast) -> str:
    """The page. Its policy lets only its own style and script run, and nothing be fetched."""
    certificate, policy = release.certificate, release.policy
    assert isinstance(policy.problem, Inventory)
    numbers, seen = page_numbers(policy), seen_in(certificate)
    loader = PackageLoader("poolrl.workflow", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    files = ("page.css", "levels.js", "page.js")
    style, table_script, script = (loader.get_source(environment, name)[0] for name in files)
    text = certificate.canonical().decode()
    verdict, mood = VERDICTS[forecast.verdict]
    return environment.get_template("page.html").render(
        certificate=certificate,
        certificate_text=text if len(text) <= LONGEST_CERTIFICATE else "",
        public=certificate.assumed_public,
        steps=policy.names.steps,
        products=policy.names.products,
        whose=whose(certificate),
        rho=f"{float(Fraction(seen.rho)):g}",
        epsilon=rounded_up(seen.epsilon["1e-06"]),
        attack=percent(seen.attack.true_positives_at_most),
        hides=policy.problem.censored or not policy.problem.boundary.everywhere,
        scale=scale_in_words(policy),
        forecast=forecast,
        verdict=verdict,
        mood=mood,
        costs=_cost_rows(forecast),
        numbers=numbers,
        levels=numbers.embedded() | {"scale": scale_in_words(policy), "costs": _costs_of_products(forecast)},
        plain=_plain_table(numbers),
        levels_file=LEVELS_FILE,
        **_slider(forecast),
        outputs=OUTPUTS,
        replanned=(release.folder / CERTIFIED).exists(),
        what_ifs=[] if forecast.noise_dominated else [each.row for each in what_ifs(policy)],
        hidden=_hidden_rows(forecast.products, len(policy.names.steps)),
        label=leaflet_sections(certificate),
        claim_rows=claim_rows(release),
        mechanism_rows=mechanism_rows(certificate),
        style=Markup(style),
        scripts=[Markup(table_script), Markup(script)],
        style_hash=integrity(style),
        script_hashes=[integrity(table_script), integrity(script)],
    )


def scale_in_words(policy: Policy) -> str:
    """What levels are multiples of, as a fit has put it into its report; nothing without a scale."""
    if not policy.guarantee.scaled:
        return ""
    return str(policy.report.scale_in_words or "the expected amount")


def _cost_rows(forecast: Forecast) -> list[Mapping[str, Any]]:
    """Today's ordering, this policy and knowing the demand: words, mean, interval and its picture on a common axis.

    No row if none of them is known.
    """
    known = [each for each in (forecast.today, forecast.policy, forecast.best) if each is not None]
    if not known:
        return []
    axis = (min(each.low for each in known), max(each.high for each in known))
    words = ("How you order today", "With these levels", "If demand were known")

    def row(name: str, cost: CostEstimate | None) -> Mapping[str, Any]:
        if cost is None:
            return {"name": name, "mean": "not known", "between": "", "bar": ""}
        bar = Markup(interval_bar(cost.low, cost.mean, cost.high, axis=axis))
        return {
            "name": name,
            "mean": money(cost.mean),
            "between": f"{money(cost.low)} to {money(cost.high)}",
            "bar": bar,
        }

    return [row(*each) for each in zip(words, (forecast.today, forecast.policy, forecast.best), strict=True)]


def _costs_of_products(forecast: Forecast) -> list[list[float | None]]:
    """Cost today, with this policy, and how often demand exceeds the level, for the table's columns."""
    return [
        [
            None if each is None or math.isnan(each) else float(f"{each:.4g}")
            for each in (one.today, one.policy, one.beyond)
        ]
        for one in forecast.products
    ]


def _plain_table(numbers: PageNumbers) -> dict[str, Any]:
    """The table for browsers without a script."""
    rows, axis = numbers.first_rows(), numbers.axes[numbers.rows]
    digits = numbers.digits if numbers.rows == len(numbers.axes) - 1 else [numbers.digits[0]] * len(rows)
    most = max(1, MOST_PLAIN_NUMBERS // len(numbers.steps))
    shown = [
        [name, *(f"{level:,.{max(places, 0)}f}" for level in levels)]
        for name, levels, places in zip(axis.values[:most], rows[:most], digits[:most], strict=True)
    ]
    others = [
        f"{each.name} {each.values[0]}"
        for number, each in enumerate(numbers.axes)
        if number != numbers.rows and len(each.values) > 1
    ]
    return {"axis": axis.name, "rows": shown, "left_out": len(axis.values) - len(shown), "others": ", ".join(others)}


def _slider(forecast: Forecast) -> dict[str, Any]:
    """What the slider shows at each budget, and the curve; nothing where budgets were not simulated."""
    if not forecast.budgets:
        return {"grid": [], "now": None, "budget_rows": [], "curve": ""}
    grid, curve = _grid(forecast)
    rows = [[each[key] for key, _ in OUTPUTS] for each in grid]
    return {"grid": grid, "now": grid[forecast.chosen], "budget_rows": rows, "curve": Markup(curve)}


def _grid(forecast: Forecast) -> tuple[list[dict[str, Any]], str]:
    """What the slider shows at each budget, with the place of its marker, and the curve itself."""
    budgets = forecast.budgets
    curve = cost_chart(
        [each.rho for each in budgets],
        [each.cost for each in budgets],
        best=None if forecast.best is None else forecast.best.mean,
        chosen=forecast.chosen,
    )
    grid = [
        {
            "rho": f"{each.rho:g}",
            "epsilon": rounded_up(each.epsilon),
            "attack": percent(each.attack),
            "cost": f"{each.cost:,.1f}",
            "gap": signed_percent(each.gap),
            "x": place[0],
            "y": place[1],
        }
        for each, place in zip(budgets, curve.points, strict=True)
    ]
    return grid, curve.svg


def _hidden_rows(products: list[ProductCosts], steps: int) -> dict[str, Any]:
    """What empty shelves hid: how many products, and those whose demand exceeds the level most often."""

    def some(names: list[str]) -> str:
        return "always" if len(names) == steps else ", ".join(names) or "no"

    marked = [each for each in products if each.binds or each.untried]
    worst = sorted(marked, key=lambda each: -each.beyond if math.isfinite(each.beyond) else 0.0)[:MOST_HIDDEN]
    rows = [
        [each.product, some(each.binds), some(each.untried), percent(each.beyond) if math.isfinite(each.beyond) else ""]
        for each in worst
    ]
    never, seldom = (sum(bool(getattr(each, what)) for each in products) for what in ("binds", "untried"))
    return {"rows": rows, "never": never, "seldom": seldom, "marked": len(marked)}


def mechanism_rows(certificate: Certificate) -> list[list[str]]:
    """Each mechanism with its noise, its size and its cost."""
    return [
        [each.name, each.noise, f"{each.cells:,}", each.sensitivity_squared, each.variance, each.rho]
        for each in certificate.mechanisms
    ]


def claim_rows(release: Released) -> list[list[str]]:
    """What the certificate claims, for people who look it up."""
    certificate = release.certificate
    return [
        ["rho (zCDP)", certificate.rho],
        *([f"epsilon at delta = {float(delta):g}", rounded_up(eps)] for delta, eps in certificate.epsilon.items()),
        ["rho of all releases that the ledger knows of", certificate.in_all.rho],
        ["protects", whose(certificate)],
        ["neighbouring logs", neighbours(certificate)],
        ["composition", certificate.composition],
        ["post-processing", "; ".join(certificate.post_processing)],
        ["assumed public", certificate.assumed_public.what],
        ["ledger", f"entry {certificate.ledger.entry}, seal {certificate.ledger.seal}"],
        *([["signed with the key of SHA-256", certificate.signed_by]] if certificate.signed_by else []),
        ["policy SHA-256", certificate.policy_sha256],
        ["configuration SHA-256", certificate.config_sha256],
    ]


def integrity(text: str) -> str:
    """The hash by which the page's policy lets a style or a script of its own pass."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
