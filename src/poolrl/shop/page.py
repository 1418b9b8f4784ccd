"""The page of a release as one HTML file: no request leaves it, it opens from the file system, it prints.

Everything on it is public or post-processing of what was released. Its words are in assets/page.html.
"""

from __future__ import annotations

import base64
import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from poolrl.certificate.label import label_sections, neighbours, percent, whose
from poolrl.checks import FloatArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.rules import Levels
from poolrl.privacy.zcdp import rounded_up
from poolrl.problems.inventory import Inventory
from poolrl.shop.charts import cost_chart, levels_chart
from poolrl.shop.fit import Released
from poolrl.shop.forecast import Forecast, ProductCosts
from poolrl.shop.prediction import signed_percent

# The numbers that the slider moves, with their words; also the columns of the table of budgets.
OUTPUTS = (
    ("rho", "budget ρ"),
    ("epsilon", "ε at δ = 10⁻⁶"),
    ("attack", "an attacker finds out, at most"),
    ("cost", "predicted cost"),
    ("gap", "above knowing the demand"),
)


def can_be_drawn(release: Released) -> bool:
    """Whether it is an order-up-to policy with its estimate of demand, as `poolrl fit` makes them."""
    policy = release.policy
    return isinstance(policy.problem, Inventory) and isinstance(policy.rule, Levels) and policy.outcomes is not None


def release_page(release: Released, forecast: Forecast) -> str:
    """The page. Its policy lets only its own style and script run, and nothing be fetched."""
    certificate, policy = release.certificate, release.policy
    assert isinstance(policy.problem, Inventory)
    assert policy.outcomes is not None
    grid, curve = _grid(forecast)
    loader = PackageLoader("poolrl.shop", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    style, script = (loader.get_source(environment, name)[0] for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        certificate=certificate,
        certificate_text=certificate.canonical().decode(),
        public=certificate.assumed_public,
        names=policy.names,
        whose=whose(certificate),
        rho=f"{float(Fraction(certificate.rho)):g}",
        epsilon=rounded_up(certificate.epsilon["1e-06"]),
        hides=policy.problem.censored or not policy.problem.boundary.everywhere,
        forecast=forecast,
        cost_rows=_cost_rows(forecast),
        charts=_level_charts(release),
        level_rows=[
            [step, *(f"{level:.1f}" for level in levels)]
            for step, levels in zip(policy.names.steps, policy.levels, strict=True)
        ],
        grid=grid,
        now=grid[forecast.chosen] if grid else {},
        outputs=OUTPUTS,
        budget_rows=[[each[key] for key, _ in OUTPUTS] for each in grid],
        curve=Markup(curve),
        hidden_rows=[_hidden_row(each, len(policy.names.steps)) for each in forecast.products],
        label=label_sections(certificate),
        claim_rows=_claim_rows(release),
        mechanism_rows=[
            [each.name, each.noise, f"{each.cells:,}", each.sensitivity_squared, each.variance, each.rho]
            for each in certificate.mechanisms
        ],
        style=Markup(style),
        style_hash=_integrity(style),
        script=Markup(script),
        script_hash=_integrity(script),
    )


def _level_charts(release: Released) -> list[tuple[str, Markup]]:
    policy = release.policy
    assert isinstance(policy.problem, Inventory)
    assert policy.outcomes is not None
    demand = np.stack([_percentile(policy.outcomes, share) for share in (0.1, 0.9)])
    limit, names = policy.problem.share * policy.problem.demand_max, policy.names
    return [
        (name, Markup(levels_chart(name, names.steps, policy.levels[:, i], demand[:, :, i], limit[:, i], i)))
        for i, name in enumerate(names.products)
    ]


def _grid(forecast: Forecast) -> tuple[list[dict[str, Any]], str]:
    """What the slider shows at each budget, with the place of its marker, and the curve itself."""
    budgets = forecast.budgets
    if not budgets or forecast.best is None:
        return [], ""
    curve = cost_chart(
        [each.rho for each in budgets],
        [each.cost for each in budgets],
        best=forecast.best.mean,
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


def _cost_rows(forecast: Forecast) -> list[list[str]]:
    named = (
        ("today's ordering", forecast.today),
        ("this policy", forecast.policy),
        ("knowing the demand", forecast.best),
    )
    return [
        [name, f"{each.mean:,.1f}", f"{each.low:,.1f} to {each.high:,.1f}"] for name, each in named if each is not None
    ]


def _hidden_row(each: ProductCosts, steps: int) -> list[str]:
    def some(names: list[str]) -> str:
        return "on every step" if len(names) == steps else ", ".join(names) or "never"

    return [each.product, some(each.binds), some(each.untried), percent(each.beyond)]


def _claim_rows(release: Released) -> list[list[str]]:
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


def _percentile(outcomes: OutcomeDistribution, share: float) -> FloatArray:
    """Of the estimated demand, (H, k)."""
    cumulative = np.cumsum(outcomes.weights, axis=-1)
    place = (cumulative < share * cumulative[..., -1:]).sum(axis=-1).clip(0, cumulative.shape[-1] - 1)
    return np.take_along_axis(outcomes.points[None], place[..., None], axis=-1)[..., 0]


def _integrity(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
