"""The page as one HTML file: no request leaves it, it opens from the file system, it prints."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from poolrl.certificate.label import percent, sections, whose
from poolrl.privacy.zcdp import rounded_up
from poolrl.shop.charts import cost_chart, levels_chart
from poolrl.shop.prediction import signed_percent

if TYPE_CHECKING:
    from poolrl.shop.forecast import Forecast, Hidden
    from poolrl.shop.report import Facts


escape = html.escape


def page(facts: Facts) -> str:
    """The whole page. Its policy lets only its own style and its own script run, and nothing be fetched."""
    style, script = _asset("page.css"), _asset("page.js")
    rules = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    certificate = facts.certificate
    name = certificate["assumed_public"]["publication"]["name"]
    rho, eps = float(Fraction(certificate["rho"])), rounded_up(certificate["epsilon"]["1e-06"])
    hidden = '<a href="#censoring">Empty shelves</a> ' if facts.hides else ""
    parts = [
        f'<header><h1>{escape(name)}</h1><p class="lead">How far to fill the shelf, learned from past orders and sales '
        f"under differential privacy. Released {escape(certificate['issued'][:10])}; it protects "
        f"{escape(whose(certificate))}, at <strong>ρ = {rho:g}</strong> "
        f'(ε = {eps} at δ = 10⁻⁶; <a href="#label">in plain words</a>).</p></header>',
        _warning(facts.forecast),
        _levels(facts),
        _costs(facts),
        _censoring(facts) if facts.hides else "",
        _label(certificate),
        _certificate(facts),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}</title><style>{style}</style></head>\n<body>"
        '<a class="skip" href="#main">Skip to the content</a>'
        f'<nav aria-label="Sections"><a href="#levels">Levels</a> <a href="#costs">Privacy and cost</a> {hidden}'
        '<a href="#label">In plain words</a> <a href="#certificate">Certificate</a></nav>'
        f'<main id="main">{"".join(parts)}</main><script>{script}</script></body></html>\n'
    )


def _warning(forecast: Forecast) -> str:
    """Where noise drowned the log, said where the good-looking numbers stand."""
    if not forecast.drowned:
        return ""
    return f'<p class="warning" role="note">{escape(forecast.warning)}</p>'


def _levels(facts: Facts) -> str:
    charts = "".join(
        f"<figure><figcaption>{escape(product)}</figcaption>"
        + levels_chart(product, facts.steps, facts.levels[:, i], facts.demand[:, :, i], facts.limit[:, i], i)
        + "</figure>"
        for i, product in enumerate(facts.products)
    )
    rows = [[step, *(f"{level:.1f}" for level in facts.levels[number])] for number, step in enumerate(facts.steps)]
    return (
        '<section id="levels" aria-labelledby="levels-h"><h2 id="levels-h">What to order</h2>'
        "<p>Fill the shelf up to the bar (the number below it), whatever is still on it. The thin line spans the "
        "demand expected on eight days out of ten, as estimated from the noisy counts; a dashed line, "
        "where there is one, is λ, the limit beyond which the log cannot tell.</p>"
        f'<div class="charts">{charts}</div>'
        + _details("table", "All levels as a table", _table(["step", *facts.products], rows, "Order-up-to levels"))
        + "</section>"
    )


def _costs(facts: Facts) -> str:
    forecast = facts.forecast
    budgets = forecast.budgets
    curve = cost_chart(
        [each.rho for each in budgets],
        [each.cost for each in budgets],
        best=forecast.best,
        free=forecast.free,
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
    now = grid[forecast.chosen]
    outputs = "".join(
        f'<div><dt>{words}</dt><dd><output id="{key}" for="rho-slider">{now[key]}</output></dd></div>'
        for key, words in (
            ("rho", "budget ρ"),
            ("epsilon", "ε at δ = 10⁻⁶"),
            ("attack", "an attacker finds out, at most"),
            ("cost", "predicted cost"),
            ("gap", "above knowing the demand"),
        )
    )
    there = forecast.elsewhere
    mean, worst, without = map(signed_percent, (there.gap, there.worst, there.free_gap))
    columns = ("rho", "epsilon", "attack", "cost", "gap")
    rows = [[str(each[key]) for key in columns] for each in grid]
    return (
        '<section id="costs" aria-labelledby="costs-h"><h2 id="costs-h">What privacy costs here</h2>'
        f"<p>Predicted mean cost of one trajectory ({len(facts.steps)} steps), if demand and past orders are "
        f"as estimated: logs of {forecast.units:,} units simulated from that, a fit at each budget. Move the slider to "
        "see what another budget than the one that was spent would have cost. The levels above stay as they were "
        "released; looking costs nothing, because the log is not asked again.</p>"
        + _warning(forecast)
        + '<div class="slider"><label for="rho-slider">Privacy budget</label>'
        '<span aria-hidden="true">more privacy</span>'
        f'<input type="range" id="rho-slider" min="0" max="{len(grid) - 1}" step="1" value="{forecast.chosen}" '
        f'aria-valuetext="rho {now["rho"]}, predicted cost {now["cost"]}" data-spent="{forecast.chosen}">'
        '<span aria-hidden="true">less cost</span></div>'
        f'<dl class="numbers" aria-live="polite">{outputs}</dl>'
        '<p class="quiet" id="spent" aria-live="polite">This is the budget that was spent.</p>'
        f"<figure>{curve.svg}</figure>"
        f"<p>Somebody who knows the demand would pay {forecast.best:,.1f}; with costs and bounds alone, without any "
        f"data, it would be {forecast.free:,.1f}. Costs are in the units of the declared holding and shortage costs; "
        "the axis does not begin at zero. An attacker who merely guesses finds out in 5%.</p>"
        "<p>An estimate cannot tell how wrong it is. So the same on five families of demand that nobody estimated, "
        f"with logs of this size at the budget spent: {mean} above knowing the demand on average, {worst} at worst; "
        f"{without} without data.</p>"
        + _details(
            "table",
            "All budgets as a table",
            _table(["ρ", "ε at δ = 10⁻⁶", "attack at most", "cost", "above knowing"], rows, "Predicted cost by budget"),
        )
        + f'<script type="application/json" id="grid">{_json(grid)}</script></section>'
    )


def _censoring(facts: Facts) -> str:
    rows = [
        [each.product, _steps(each.binds, facts), _steps(each.untried, facts), percent(each.beyond), _lost(each)]
        for each in facts.forecast.hidden
    ]
    return (
        '<section id="censoring" aria-labelledby="censoring-h"><h2 id="censoring-h">What empty shelves hid</h2>'
        "<p>Demand beyond an empty shelf was never seen, and nothing is known beyond λ. Where λ binds, orders would go "
        "further if the log could tell. Where past orders seldom went as far as the level, fewer than one in ten, the "
        "level rests on the declared bounds more than on the log: order more there for a while, and fit again. The "
        "last column is the predicted cost, per trajectory, that a log of full shelves of the same size and the same "
        "privacy would have saved.</p>"
        + _table(
            ["product", "λ binds", "level seldom tried", "demand exceeds the level", "value of what was not seen"],
            rows,
            "What censoring costs, by product",
        )
        + "</section>"
    )


def _steps(names: list[str], facts: Facts) -> str:
    if len(names) == len(facts.steps):
        return "on every step"
    return ", ".join(names) or "never"


def _lost(each: Hidden) -> str:
    if each.lost <= 2 * each.error:
        return "too small to measure"
    return f"{each.lost:.2g} ± {each.error:.1g}"


def _label(certificate: dict[str, Any]) -> str:
    parts = "".join(
        f"<h3>{escape(title)}</h3>" + "".join(f"<p>{escape(text)}</p>" for text in texts)
        for title, texts in sections(certificate)
    )
    signed = "".join(
        f"<div><dt>{words}</dt><dd></dd></div>" for words in ("Checked by (name, role)", "Date, signature")
    )
    return (
        f'<section id="label" aria-labelledby="label-h"><h2 id="label-h">In plain words</h2>{parts}'
        f'<dl class="signature">{signed}</dl></section>'
    )


def _certificate(facts: Facts) -> str:
    certificate = facts.certificate
    claim = [
        ["rho (zCDP)", certificate["rho"]],
        *([f"epsilon at delta = {float(delta):g}", f"{eps:g}"] for delta, eps in certificate["epsilon"].items()),
        ["rho of all releases that the ledger knows of", certificate["in_all"]["rho"]],
        ["protects", whose(certificate)],
        ["neighbouring logs", f"{certificate['adjacency']} {certificate['unit']} by any other"],
        ["composition", certificate["composition"]],
        ["post-processing", "; ".join(certificate["post_processing"])],
        ["assumed public", certificate["assumed_public"]["what"]],
        ["ledger", f"entry {certificate['ledger']['entry']}, seal {certificate['ledger']['seal']}"],
        ["policy SHA-256", certificate["policy_sha256"]],
        ["configuration SHA-256", certificate["config_sha256"]],
    ]
    mechanisms = [
        [each["name"], each["noise"], f"{each['cells']:,}", each["sensitivity_squared"], each["variance"], each["rho"]]
        for each in certificate["mechanisms"]
    ]
    header = ["mechanism", "noise", "counts", "Δ₂²", "σ²", "ρ"]
    return (
        '<section id="certificate" aria-labelledby="certificate-h"><h2 id="certificate-h">The certificate</h2>'
        "<p>Check it yourself: <code>poolrl verify policy.npz certificate.json</code></p>"
        + _table(["claim", "value"], claim, "The claim", kind="hashes")
        + _table(header, mechanisms, "Mechanisms")
        + _details(
            "raw", "The certificate as it was issued", f'<pre tabindex="0">{escape(facts.certificate_text)}</pre>'
        )
        + "</section>"
    )


def _table(header: list[str], rows: list[list[str]], caption: str, *, kind: str = "plain") -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f'<table class="{kind}"><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _details(kind: str, summary: str, content: str) -> str:
    return f'<details class="{kind}"><summary>{escape(summary)}</summary>{content}</details>'


def _json(value: Any) -> str:
    """JSON that cannot end its script element early."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("poolrl.shop").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
