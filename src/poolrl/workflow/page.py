"""The page of a release as one HTML file: no request leaves it, it opens from the file system, it prints.

Everything on it is public or post-processing of what was released. Its blocks are in assets/page.html. A trade says
what stands in them (`TradePage`), and a block without content is left out. Pictures are inline SVG, coloured by the
page's style sheet, so that they follow light and dark.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
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
from poolrl.workflow.forecast import CostEstimate, Forecast, money
from poolrl.workflow.trades.trade import PageSection, PageTable, TradePage, trade_of

if TYPE_CHECKING:
    from poolrl.workflow.release_folder import Released

VERDICTS = {
    "switch": ("Switch", "good"),
    "do not switch": ("Do not switch", "bad"),
    "cannot tell": ("We cannot tell whether to switch", "open"),
}
# A longer certificate is named and not repeated. A page of more label cells, or pictures, would be no page any more.
LONGEST_CERTIFICATE, SHOWN_CELLS, MOST_PICTURES = 200_000, 60, 6
# What if a cost is another one? Plans of more decisions are made by `poolrl replan`, and not three times for a page.
OTHER_COSTS = (("half", 0.5), ("twice", 2.0), ("five times", 5.0))
MOST_PLANNED_AGAIN = 10_000
# Sizes of pictures.
WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, UPPER, BOTTOM = 52, 14, 14, 46
BAR_WIDTH = 240


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
    loader = PackageLoader("poolrl.workflow", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters |= {"words": _with_code, "money": money}
    files = ["page.css", *(["levels.js"] if page.levels else [])]
    style, *scripts = ((text, _integrity(text)) for text in (loader.get_source(environment, name)[0] for name in files))
    text = certificate.canonical().decode()
    verdict, mood = VERDICTS[forecast.verdict]
    return environment.get_template("page.html").render(
        certificate=certificate,
        certificate_text=text if len(text) <= LONGEST_CERTIFICATE else "",
        page=page,
        file=trade.decisions_file,
        sections=[*page.sections, *_what_if_section(policy, forecast)],
        words=trade.words,
        forecast=forecast,
        verdict=verdict,
        mood=mood,
        compared=_compared(page.compared, forecast),
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


def _with_code(text: str) -> Markup:
    """Escaped text, in which `code` is set as such."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _integrity(text: str) -> str:
    """The hash by which the page's policy lets a style or a script of its own pass."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _compared(names: Sequence[str], forecast: Forecast) -> list[tuple[str, CostEstimate | None, str]]:
    """What each estimate is called, and its picture on a common axis; no row if nothing is known."""
    estimates = (forecast.today, forecast.policy, forecast.best)[: len(names)]
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return []
    x = _scale(min(one.low for one in known), max(one.high for one in known), 4, BAR_WIDTH - 4)
    bars = ["" if one is None else _interval_bar(x(one.low), x(one.mean), x(one.high)) for one in estimates]
    return list(zip(names, estimates, bars, strict=True))


@dataclass(frozen=True)
class WhatIf:
    """Another cost: by how much the typical decision would move, and what planning again would bring."""

    words: str
    move: float
    kept: float  # what today's plan would cost then
    planned: float  # what another plan would

    @property
    def saved(self) -> float:
        """As a share of what is kept."""
        return 1 - self.planned / self.kept if self.kept > 0 else 0.0

    def row(self, *, earns: bool) -> list[str]:
        """For the page's table."""
        way = "higher" if self.move > 0 else "lower"
        moved = "as they are" if abs(self.move) < 0.005 else f"{abs(self.move):.0%} {way}"
        # Costs are compared as shares. Earnings may be zero, or a loss.
        gained = money(max(self.kept - self.planned, 0.0)) if earns else f"{max(self.saved, 0.0):.1%}"
        return [self.words, moved, gained]


def what_ifs(policy: Policy) -> list[WhatIf]:
    """Plans of the same model with other costs, as the problem declares them. Nothing but the policy is read."""
    model, trade, before = PrivateModel.of(policy), trade_of(policy.problem), decisions_of(policy)
    facts = model.problem.facts()
    changed = [name for name in trade.cost_words if np.any(facts[name])] if before.size <= MOST_PLANNED_AGAIN else []
    cases = []
    for cost, (times, factor) in product(changed, OTHER_COSTS):
        try:
            other = model.problem.changed(**{cost: np.asarray(facts[cost]) * factor})
        except ValueError:  # five times a worth may be more than anybody may pay
            continue
        planned = model.plan(other)
        ratios = decisions_of(planned)[before > 0] / before[before > 0]
        move = float(np.median(ratios)) - 1 if ratios.size else 0.0
        costs = (trade.cost_by_model(plan, other) for plan in (policy, planned))
        cases.append(WhatIf(f"{trade.cost_words[cost]} {times} as much", move, *costs))
    return cases


def _what_if_section(policy: Policy, forecast: Forecast) -> list[PageSection]:
    """The block of other costs; none where noise hides the model, or where no cost is declared."""
    trade, cases = trade_of(policy.problem), [] if forecast.noise_dominated else what_ifs(policy)
    words = trade.words
    gained = f"earned more in a {words.trajectory}" if trade.earns else "saved"
    section = PageSection(
        "what-if",
        "What if costs change?",
        "Other costs need no new data. `poolrl replan` plans this release again at no cost in privacy, and says how "
        f"{words.decisions} change. By the released estimate of {words.outcome}:",
        table=PageTable(
            ("if ...", f"{words.decisions} become", f"{gained} by planning again"),
            [case.row(earns=trade.earns) for case in cases],
            "Other costs",
        ),
    )
    return [section] if cases else []


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
        rows = [
            [
                " / ".join(f"{part:g}" for part in state),
                *(" / ".join(f"{part:,.4g}" for part in decision) for decision in by_step),
            ]
            for state, by_step in zip(states, table, strict=True)
        ]
        yield PageTable(
            [" / ".join(names.products), *names.steps],
            rows,
            f"{words.decisions.capitalize()} by {' and '.join(names.products)} and {words.step}",
            ", ".join(f"{name} {value}" for name, value in zip(labels.names, values, strict=True)),
            _picture(policy, cell, table[:, 0, 0].tolist()) if cell < MOST_PICTURES and table.shape[-1] == 1 else "",
        )


def _picture(policy: Policy, cell: int, decisions: list[float]) -> str:
    """How often the outcome of the first step reaches each amount, how far it was seen, and where decisions lie."""
    model, words = PrivateModel.of(policy), trade_of(policy.problem).words
    problem, outcomes = model.problem, model.outcomes
    weights = outcomes.weights.reshape(-1, *outcomes.weights.shape[-3:])[cell, 0, 0]
    points = outcomes.points.reshape(-1, *outcomes.points.shape[-2:])[cell, 0]
    end, top = float(outcomes.explored.reshape(-1, *outcomes.explored.shape[-2:])[cell, 0, 0]), float(points[-1])
    seen = (end, top) if outcomes.higher else (0.0, end)
    if 0 in problem.current_status:
        # Only the side is known, and only at amounts that were tried.
        low, high = tried_range(outcomes, problem).reshape(2, -1, problem.horizon)[:, cell, 0]
        seen = (float(low), float(high))
    x, y = _scale(0.0, top, LEFT, WIDTH - RIGHT), _scale(0.0, 1.0, HEIGHT - BOTTOM, UPPER)
    shown = slice(None, None, max(1, len(points) // 120))
    reached = 1 - np.cumsum(weights) / weights.sum()
    places = [(x(a), y(b)) for a, b in zip(points[shown].tolist(), reached[shown].tolist(), strict=True)]
    start, stop = (x(min(max(place, 0.0), top)) for place in seen)
    step = _round_step(max(top / 5, 1e-9))
    body = [
        f'<path class="interval" d="M{start} {HEIGHT - BOTTOM}H{stop}"/>',
        _rows(y, 0.0, 1.0),
        *(_under(x(tick), f"{tick:g}") for tick in np.arange(0.0, top + step / 1e6, step).tolist()),
        _line(places),
        *(f'<path class="limit" d="M{x(decision)} {UPPER}V{HEIGHT - BOTTOM}"/>' for decision in decisions),
        _caption(f"dashed: {words.decisions}; thick: where the log shows {words.outcome}"),
    ]
    said = "; ".join(f"{decision:.4g}" for decision in decisions)
    return _svg(f"law-{cell}", f"{words.outcome} and {words.decisions}", f"{words.decisions}: {said}", body)


def _interval_bar(low: float, mean: float, high: float) -> str:
    """An interval with its mean, as a line of the page."""
    return (
        f'<svg viewBox="0 0 {BAR_WIDTH} 16" aria-hidden="true"><path class="grid" d="M0 8H{BAR_WIDTH}"/>'
        f'<path class="interval" d="M{low} 8H{high}M{low} 3v10M{high} 3v10"/>'
        f'<circle class="dot" cx="{mean}" cy="8" r="4"/></svg>'
    )


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Numbers to pixels, to a tenth: linear between two ends."""
    return lambda value: round(start + (value - low) / ((high - low) or 1.0) * (end - start), 1)


def _svg(name: str, title: str, words: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-words">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-words">{escape(words)}</desc>'
        f"{''.join(body)}</svg>"
    )


def _rows(y: Callable[[float], float], low: float, high: float) -> str:
    """Lines at round numbers, with these numbers beside them."""
    step = _round_step(max((high - low) / 4, 1e-9))
    ticks = np.arange(math.ceil(low / step) * step, high + step / 1e6, step).tolist()
    digits = max(0, -math.floor(math.log10(step)))
    return "".join(
        f'<path class="grid" d="M{LEFT} {y(tick)}H{WIDTH - RIGHT}"/>'
        + _text(LEFT - 7, y(tick) + 4, f"{tick:,.{digits}f}", "end quiet")
        for tick in ticks
    )


def _line(places: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="curve" points="{" ".join(f"{a},{b}" for a, b in places)}"/>'


def _under(x: float, number: str) -> str:
    return _text(x, HEIGHT - BOTTOM + 18, number, "middle")


def _caption(words: str) -> str:
    return _text((LEFT + WIDTH) / 2, HEIGHT - 8, words, "middle quiet")


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10 ** math.floor(math.log10(rough))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9)))
