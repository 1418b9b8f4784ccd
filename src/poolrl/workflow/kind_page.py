"""The page of a release for problems other than shops, in the problem's own words; one HTML file, as for shops."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from poolrl.certificate.certificate import seen_in
from poolrl.certificate.leaflet import leaflet_sections, percent, whose
from poolrl.learning.by_count import tried_range
from poolrl.learning.policy import Policy
from poolrl.privacy.zcdp import rounded_up
from poolrl.problems.problem import OutcomeProblem
from poolrl.workflow.charts import interval_bar, law_chart
from poolrl.workflow.decision_table import DECISIONS_FILE, decisions_of, shown_states
from poolrl.workflow.forecast import Forecast, money
from poolrl.workflow.page import (
    LONGEST_CERTIFICATE,
    VERDICTS,
    claim_rows,
    integrity,
    mechanism_rows,
    scale_in_words,
)
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import trade_of

# A page of more label cells, or pictures, would be no page any more.
SHOWN_CELLS, MOST_PICTURES = 60, 6


def kind_page(release: Released, forecast: Forecast) -> str:
    """The page. Its policy lets only its own style be used, and nothing be fetched."""
    certificate, policy = release.certificate, release.policy
    loader = PackageLoader("poolrl.workflow", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    style, seen, text = loader.get_source(environment, "page.css")[0], seen_in(certificate), certificate.canonical()
    verdict, mood = VERDICTS[forecast.verdict]
    return environment.get_template("kind.html").render(
        certificate=certificate,
        certificate_text=text.decode() if len(text) <= LONGEST_CERTIFICATE else "",
        public=certificate.assumed_public,
        words=trade_of(policy.problem).words,
        steps=policy.names.steps,
        states=policy.names.products,
        scale=scale_in_words(policy),
        whose=whose(certificate),
        rho=f"{float(Fraction(seen.rho)):g}",
        epsilon=rounded_up(seen.epsilon["1e-06"]),
        attack=percent(seen.attack.true_positives_at_most),
        forecast=forecast,
        lost=percent(forecast.lost or 0.0),
        verdict=verdict,
        mood=mood,
        earned=_earned_rows(forecast),
        tables=list(_tables(policy))[:SHOWN_CELLS],
        more=max(0, policy.problem.labels.count - SHOWN_CELLS),
        decisions_file=DECISIONS_FILE,
        label=leaflet_sections(certificate),
        claim_rows=claim_rows(release),
        mechanism_rows=mechanism_rows(certificate),
        style=Markup(style),
        style_hash=integrity(style),
    )


def _earned_rows(forecast: Forecast) -> list[dict[str, Any]]:
    """Today and with the policy, on a common axis."""
    known = [each for each in (forecast.today, forecast.policy) if each is not None]
    axis = (min((each.low for each in known), default=0.0), max((each.high for each in known), default=1.0))
    rows = []
    for name, each in (("What you do today", forecast.today), ("With this policy", forecast.policy)):
        if each is None:
            rows.append({"name": name, "mean": "not known", "between": "", "bar": ""})
            continue
        bar = Markup(interval_bar(each.low, each.mean, each.high, axis=axis))
        between = f"{money(each.low)} to {money(each.high)}"
        rows.append({"name": name, "mean": money(each.mean), "between": between, "bar": bar})
    return rows


def _tables(policy: Policy) -> Any:
    """For each label cell its title, its decisions by state and step, and the picture of what they rest on."""
    states, labels = shown_states(policy), policy.problem.labels
    for number, (values, table) in enumerate(decisions_of(policy)):
        title = ", ".join(f"{name} {value}" for name, value in zip(labels.names, values, strict=True))
        rows = [
            [
                " / ".join(f"{each:g}" for each in state),
                *(" / ".join(f"{one:,.4g}" for one in each) for each in by_step),
            ]
            for state, by_step in zip(states, table, strict=True)
        ]
        yield {
            "title": title,
            "rows": rows,
            "picture": _picture(policy, number, table) if number < MOST_PICTURES else "",
        }


def _picture(policy: Policy, cell: int, table: Any) -> str | Markup:
    """What the outcome of the first step is like, how far it was seen, and where the decisions lie."""
    outcomes = policy.outcomes
    if outcomes is None or table.shape[-1] != 1:
        return ""
    weights = outcomes.weights.reshape(-1, *outcomes.weights.shape[-3:])[cell, 0, 0]
    points = outcomes.points.reshape(-1, *outcomes.points.shape[-2:])[cell, 0]
    end = float(outcomes.explored.reshape(-1, *outcomes.explored.shape[-2:])[cell, 0, 0])
    reached = 1 - np.cumsum(weights) / weights.sum()
    seen = (end, float(points[-1])) if outcomes.higher else (0.0, min(end, float(points[-1])))
    problem = policy.problem
    if isinstance(problem, OutcomeProblem) and 0 in problem.current_status:
        # Only the side is known, and only at amounts that were tried.
        low, high = tried_range(outcomes, problem).reshape(2, -1, problem.horizon)[:, cell, 0]
        seen = (float(low), float(high))
    name = f"law-{cell}"
    words = trade_of(policy.problem).words
    return Markup(law_chart(name, points, reached, seen=seen, marks=table[:, 0, 0].tolist(), words=words))
