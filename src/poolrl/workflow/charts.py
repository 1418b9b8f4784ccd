"""Pictures of the page as inline SVG: coloured by the page's style sheet, so that they follow light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.workflow.trades.vocabulary import Words

WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, UPPER, BOTTOM = 52, 14, 14, 46
BAR_WIDTH = 240


@dataclass(frozen=True)
class Scale:
    """Numbers to pixels, linear between two ends."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """A pixel, to a tenth."""
        span = self.high - self.low
        return round(self.start + (value - self.low) / (span or 1.0) * (self.end - self.start), 1)


def interval_bar(low: float, mean: float, high: float, *, axis: tuple[float, float]) -> str:
    """An interval with its mean, as a line of the page; bars with the same axis can be compared."""
    x = Scale(*axis, 4, BAR_WIDTH - 4)
    start, middle, end = x(low), x(mean), x(high)
    return (
        f'<svg viewBox="0 0 {BAR_WIDTH} 16" aria-hidden="true"><path class="grid" d="M0 8H{BAR_WIDTH}"/>'
        f'<path class="interval" d="M{start} 8H{end}M{start} 3v10M{end} 3v10"/>'
        f'<circle class="dot" cx="{middle}" cy="8" r="4"/></svg>'
    )


@dataclass(frozen=True)
class Curve:
    """A drawn curve: the picture, and where its points lie, for the marker that the slider moves."""

    svg: str
    points: list[tuple[float, float]]


def cost_chart(budgets: Sequence[float], costs: Sequence[float], *, best: float | None, chosen: int) -> Curve:
    """Predicted cost against ρ on a logarithmic axis, beside the cost of knowing the demand where that is known."""
    least, worst = min([*costs, *([] if best is None else [best])]), max(costs)
    room = max(worst - least, 0.02 * least, 1e-9)
    low, high = max(0.0, least - 0.35 * room), least + 1.25 * room
    x = Scale(math.log10(budgets[0]), math.log10(budgets[-1]), LEFT + 12, WIDTH - RIGHT - 12)
    y = Scale(low, high, HEIGHT - BOTTOM, UPPER)
    places = [(x(math.log10(rho)), y(cost)) for rho, cost in zip(budgets, costs, strict=True)]
    body = [_axis(y, high, low)]
    for rho in budgets:
        power = math.log10(rho)
        if abs(power - round(power)) < 1e-9:
            body.append(_svg_text(x(power), HEIGHT - BOTTOM + 18, f"{rho:g}", "middle"))
    body.append(_svg_text((LEFT + WIDTH) / 2, HEIGHT - 8, "privacy budget ρ: more privacy to the left", "middle quiet"))
    if best is not None:
        body.append(f'<path class="limit" d="M{LEFT} {y(best)}H{WIDTH - RIGHT}"/>')
        body.append(_svg_text(LEFT + 6, y(best) + 16, "knows the demand", "quiet"))
    body.append(f'<polyline class="curve" points="{" ".join(f"{a},{b}" for a, b in places)}"/>')
    body += [f'<circle class="dot" cx="{a}" cy="{b}" r="3"/>' for a, b in places]
    body.append(f'<circle class="marker" id="marker" cx="{places[chosen][0]}" cy="{places[chosen][1]}" r="8"/>')
    words = "; ".join(f"rho {rho:g}: {cost:.1f}" for rho, cost in zip(budgets, costs, strict=True))
    return Curve(_svg("cost", "Predicted cost against the privacy budget", words, body), places)


def _svg(name: str, title: str, words: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-words">'
        f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-words">{html.escape(words)}</desc>'
        + "".join(body)
        + "</svg>"
    )


def _axis(y: Scale, high: float, low: float = 0.0) -> str:
    step = _round_step(max((high - low) / 4, 1e-9))
    ticks = np.arange(math.ceil(low / step) * step, high + step / 1e6, step)
    digits = max(0, -math.floor(math.log10(step)))
    return "".join(
        f'<path class="grid" d="M{LEFT} {y(float(tick))}H{WIDTH - RIGHT}"/>'
        + _svg_text(LEFT - 7, y(float(tick)) + 4, f"{tick:,.{digits}f}", "end quiet")
        for tick in ticks
    )


def _svg_text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(words)}</text>'


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10 ** math.floor(math.log10(rough))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9)))


def law_chart(
    name: str,
    points: FloatArray,
    reached: FloatArray,
    *,
    seen: tuple[float, float],
    marks: Sequence[float],
    words: Words,
) -> str:
    """How often an outcome reaches each amount, the range in which the log shows it, and the decisions of one step."""
    shown = slice(None, None, max(1, len(points) // 120))
    x, y = Scale(0.0, float(points[-1]), LEFT, WIDTH - RIGHT), Scale(0.0, 1.0, HEIGHT - BOTTOM, UPPER)
    start, end = (x(min(max(each, 0.0), float(points[-1]))) for each in seen)
    places = " ".join(f"{x(float(a))},{y(float(b))}" for a, b in zip(points[shown], reached[shown], strict=True))
    body = [f'<path class="interval" d="M{start} {HEIGHT - BOTTOM}H{end}"/>', _axis(y, 1.0)]
    step = _round_step(max(float(points[-1]) / 5, 1e-9))
    for tick in np.arange(0.0, float(points[-1]) + step / 1e6, step):
        body.append(_svg_text(x(float(tick)), HEIGHT - BOTTOM + 18, f"{tick:g}", "middle"))
    body.append(f'<polyline class="curve" points="{places}"/>')
    body += [f'<path class="limit" d="M{x(mark)} {UPPER}V{HEIGHT - BOTTOM}"/>' for mark in marks]
    under = f"dashed: {words.decisions}; thick: where the log shows {words.outcome}"
    body.append(_svg_text((LEFT + WIDTH) / 2, HEIGHT - 8, under, "middle quiet"))
    said = "; ".join(f"{mark:.4g}" for mark in marks)
    return _svg(name, f"{words.outcome} and {words.decisions}", f"{words.decisions}: {said}", body)
