"""The page of a release as one HTML file: no request leaves it, it opens from the file system, it prints.

Everything on it is public or post-processing of what was released. Its blocks are in assets/page.html. A trade says
what stands in them (`TradePage`), and a block without content is left out. Pictures (assets/pictures.svg) are inline
SVG, coloured by the page's style sheet, so that they follow light and dark.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import islice, product
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.console import Console
from rich.progress import Progress

from poolrl.certificate.certificate import seen_in
from poolrl.certificate.leaflet import leaflet_sections, neighbours, percent, whose
from poolrl.certificate.release_files import CERTIFIED, PAGE, TREES
from poolrl.learning.by_count import tried_range
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import Policy
from poolrl.privacy.zcdp import rounded_up
from poolrl.workflow.decision_tables import decisions_of, scale_in_words, shown_states
from poolrl.workflow.forecast import Forecast, money
from poolrl.workflow.trades.trade import LawPicture, PageSection, PageTable, TradePage, trade_of

if TYPE_CHECKING:
    from poolrl.workflow.release_folder import Released

VERDICTS = {
    "switch": ("Switch", "good"),
    "do not switch": ("Do not switch", "bad"),
    "cannot tell": ("We cannot tell whether to switch", "open"),
}
# A longer certificate is named and not repeated. A page of more label cells, or pictures, would be no page any more.
LONGEST_CERTIFICATE, SHOWN_CELLS, MOST_PICTURES = 200_000, 60, 6
MOST_CURVE_POINTS = 120
# What if a cost is another one? Plans of more decisions are made by `poolrl replan`, and not three times for a page.
OTHER_COSTS = (("half", 0.5), ("twice", 2.0), ("five times", 5.0))
MOST_PLANNED_AGAIN = 10_000


def draw_page(release: Released, console: Console) -> Forecast:
    """Write the page and all decisions as CSV beside the policy and the certificate; what the page forecasts."""
    policy, trade = release.policy, trade_of(release.policy.problem)
    if policy.outcomes is None:
        raise ValueError("the page draws policies with a model of outcomes, as 'poolrl fit' makes them")
    page, table = release.folder / PAGE, release.folder / trade.decisions_file
    for path in (page, table):
        if path.is_symlink():
            raise ValueError(f"{path} is a link: it would be written elsewhere")
    trees = release.folder / TREES
    with Progress(console=console, transient=True) as progress:
        forecast = trade.forecast(policy, FadedTrees.load(trees) if trees.exists() else None, progress)
        text = release_page(release, forecast)
    page.write_text(text, encoding="utf-8")
    table.write_text(trade.decisions_csv(policy), encoding="utf-8", newline="")
    return forecast


def release_page(release: Released, forecast: Forecast) -> str:
    """The page. Its policy lets only its own style and scripts run, and nothing be fetched."""
    certificate, policy = release.certificate, release.policy
    trade, seen = trade_of(policy.problem), seen_in(certificate)
    page = trade.page(policy, forecast)
    # Where noise hides the model, nothing is said of other costs.
    what_if = None if forecast.warning else what_if_section(policy)
    loader = PackageLoader("poolrl.workflow", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    # Texts are escaped, and `code` in them is set as such.
    code = partial(re.sub, r"`([^`]+)`", r"<code>\1</code>")
    environment.filters |= {"words": lambda text: Markup(code(str(escape(text)))), "money": money}
    files = ["page.css", *(["levels.js"] if page.levels else [])]
    # Each with the hash by which the page's policy lets it pass.
    style, *scripts = (
        (text, "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
        for text in (loader.get_source(environment, name)[0] for name in files)
    )
    text = certificate.canonical().decode()
    verdict, mood = VERDICTS[forecast.verdict]
    return environment.get_template("page.html").render(
        certificate=certificate,
        certificate_text=text if len(text) <= LONGEST_CERTIFICATE else "",
        page=page,
        file=trade.decisions_file,
        sections=[*page.sections, *([] if what_if is None else [what_if])],
        words=trade.words,
        forecast=forecast,
        verdict=verdict,
        mood=mood,
        compared=[*zip(page.compared, (forecast.today, forecast.policy, forecast.best), strict=False)],
        whose=whose(certificate),
        rho=f"{float(Fraction(seen.rho)):g}",
        epsilon=rounded_up(seen.epsilon["1e-06"]),
        attack=percent(seen.attack.true_positives_at_most),
        lost="" if forecast.lost is None else percent(forecast.lost),
        replanned=(release.folder / CERTIFIED).exists(),
        leaflet=leaflet_sections(certificate),
        claim_rows=claim_rows(release),
        style=style,
        scripts=scripts,
    )


def what_if_section(policy: Policy) -> PageSection | None:
    """Plans of the same model with other costs, as the problem declares them. Nothing but the policy is read.

    Each row says by how much the typical decision would move, and what planning again would bring.
    """
    model, trade, before = PrivateModel.of(policy), trade_of(policy.problem), decisions_of(policy)
    words, facts, rows = trade.words, model.problem.facts(), []
    changed = [name for name in trade.cost_words if np.any(facts[name])] if before.size <= MOST_PLANNED_AGAIN else []
    for name, (times, factor) in product(changed, OTHER_COSTS):
        try:
            other = model.problem.changed(**{name: np.asarray(facts[name]) * factor})
        except ValueError:  # five times a worth may be more than anybody may pay
            continue
        plan = model.plan(other)
        ratios = decisions_of(plan)[before > 0] / before[before > 0]
        move = float(np.median(ratios)) - 1 if ratios.size else 0.0
        moved = "as they are" if abs(move) < 0.005 else f"{abs(move):.0%} {'higher' if move > 0 else 'lower'}"
        kept, planned = trade.cost_by_model(policy, other), trade.cost_by_model(plan, other)
        # Costs are compared as shares. Earnings may be zero, or a loss.
        share = 1 - planned / kept if kept > 0 else 0.0
        gained = money(max(kept - planned, 0.0)) if trade.earns else f"{max(share, 0.0):.1%}"
        rows.append([f"{trade.cost_words[name]} {times} as much", moved, gained])
    header = (
        "if ...",
        f"{words.decisions} become",
        f"{f'earned more in a {words.trajectory}' if trade.earns else 'saved'} by planning again",
    )
    text = (
        "Other costs need no new data. `poolrl replan` plans this release again at no cost in privacy, and says how "
        f"{words.decisions} change. By the released estimate of {words.outcome}:"
    )
    table = PageTable(header, rows, "Other costs")
    return PageSection("what-if", "What if costs change?", text, table=table) if rows else None


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


def declared_page(policy: Policy, forecast: Forecast) -> TradePage:
    """A page that follows from a problem's declarations: a table of decisions for each label cell."""
    words, scale = trade_of(policy.problem).words, scale_in_words(policy)
    more = policy.problem.labels.count - SHOWN_CELLS
    caution = (
        f"Earnings are predicted as if past {words.past} did not follow what only the people who set them knew. If "
        f"they did, these {words.decisions} can earn less than predicted. Try them on a part first."
    )
    return TradePage(
        name="decisions",
        title=words.decisions.capitalize(),
        advice=f"{words.advice}{f' Each is this many times {scale}.' if scale else ''} `poolrl decide` answers for one "
        f"{words.step}, or for a table.",
        compared=("What you do today", "With this policy"),
        amounts=f"{words.earned.capitalize()} of one {words.trajectory} on average"
        f"{f', in multiples of {scale}' if scale else ''}.",
        caution=caution if forecast.policy else "",
        tables=list(_cell_tables(policy)),
        left_out=f"{more:,} more combinations of labels are left out here." if more > 0 else "",
    )


def _cell_tables(policy: Policy) -> Iterator[PageTable]:
    """For each label cell its decisions by state and step, and the picture of what they rest on."""
    words, names, labels = trade_of(policy.problem).words, policy.names, policy.problem.labels
    states, decisions = shown_states(policy), decisions_of(policy)
    for cell, values in enumerate(islice(product(*labels.values), SHOWN_CELLS)):
        table = decisions[cell]
        shown = [[" / ".join(f"{part:,.4g}" for part in each) for each in by_step] for by_step in table]
        rows = [[" / ".join(f"{part:g}" for part in state), *row] for state, row in zip(states, shown, strict=True)]
        yield PageTable(
            [" / ".join(names.products), *names.steps],
            rows,
            f"{words.decisions.capitalize()} by {' and '.join(names.products)} and {words.step}",
            ", ".join(f"{name} {value}" for name, value in zip(labels.names, values, strict=True)),
            _picture(policy, cell, table[:, 0, 0].tolist()) if cell < MOST_PICTURES and table.shape[-1] == 1 else None,
        )


def _picture(policy: Policy, cell: int, decisions: list[float]) -> LawPicture:
    """How often the outcome of the first step reaches each amount, how far it was seen, and where decisions lie."""
    model = PrivateModel.of(policy)
    problem, outcomes = model.problem, model.outcomes
    laws, at = outcomes.by_cell
    weights, points = laws[cell, 0, 0], at[cell, 0]
    end, top = float(outcomes.explored.reshape(-1, *outcomes.explored.shape[-2:])[cell, 0, 0]), float(points[-1])
    low, high = (end, top) if outcomes.higher else (0.0, end)
    if 0 in problem.current_status:
        # Only the side is known, and only at amounts that were tried.
        low, high = tried_range(outcomes, problem).reshape(2, -1, problem.horizon)[:, cell, 0].tolist()
    shown = slice(None, None, max(1, len(points) // MOST_CURVE_POINTS))
    reached = 1 - np.cumsum(weights) / weights.sum()
    # 1, 2 or 5 times a power of ten, at least a fifth of the axis.
    rough = max(top / 5, 1e-9)
    power = 10 ** math.floor(math.log10(rough))
    step = float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9)))
    return LawPicture(
        name=f"law-{cell}",
        top=top,
        ticks=np.arange(0.0, top + step / 1e6, step).tolist(),
        curve=[*zip(points[shown].tolist(), reached[shown].tolist(), strict=True)],
        seen=(min(max(low, 0.0), top), min(max(high, 0.0), top)),
        decisions=decisions,
    )
