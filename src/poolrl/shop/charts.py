"""Pictures of the page as inline SVG: coloured by the page's style sheet, so that they follow light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray

WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, UPPER, BOTTOM = 52, 14, 14, 46
MANY_STEPS = 14  # beyond it there is no room for a number on every bar


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


def levels_chart(
    product: str, steps: Sequence[str], levels: FloatArray, demand: FloatArray, limit: FloatArray, number: int
) -> str:
    """Bars of order-up-to levels (H,), whiskers from the 10th to the 90th percentile of estimated demand (2, H)."""
    top = _round_up(max(float(levels.max()), float(demand.max()), 1e-9))
    y = Scale(0, top, HEIGHT - BOTTOM, UPPER)
    slot = (WIDTH - LEFT - RIGHT) / len(steps)
    body = [_axis(y, top)]
    for step, name in enumerate(steps):
        middle = LEFT + (step + 0.5) * slot
        width, high = min(0.62 * slot, 46), y(float(levels[step]))
        size = f'width="{width:.1f}" height="{y(0) - high:.1f}"'
        body.append(f'<rect class="bar" x="{middle - width / 2:.1f}" y="{high}" {size}/>')
        low, above = y(float(demand[0, step])), y(float(demand[1, step]))
        ends = f"M{middle - 5:.1f} {low}h10m-10 {above - low:.1f}h10"
        body.append(f'<path class="whisker" d="M{middle:.1f} {low}V{above}{ends}"/>')
        if len(steps) <= MANY_STEPS:
            body.append(_svg_text(middle, HEIGHT - BOTTOM + 36, f"{levels[step]:.0f}", "value middle"))
        if len(steps) <= MANY_STEPS or step % math.ceil(len(steps) / MANY_STEPS) == 0:
            body.append(_svg_text(middle, HEIGHT - BOTTOM + 18, name, "middle"))
        if limit[step] < top:
            edge = y(float(limit[step]))
            body.append(f'<path class="limit" d="M{middle - slot / 2:.1f} {edge}h{slot:.1f}"/>')
    words = ", ".join(f"{name} {level:.0f}" for name, level in zip(steps, levels, strict=True))
    return _svg(f"levels-{number}", f"Order-up-to levels of {product}", words, body)


@dataclass(frozen=True)
class Curve:
    """A drawn curve: the picture, and where its points lie, for the marker that the slider moves."""

    svg: str
    points: list[tuple[float, float]]


def cost_chart(budgets: Sequence[float], costs: Sequence[float], *, best: float, chosen: int) -> Curve:
    """Predicted cost against ρ on a logarithmic axis."""
    worst = max(*costs, best)
    room = max(worst - best, 0.02 * best, 1e-9)
    low, high = max(0.0, best - 0.35 * room), best + 1.25 * room
    x = Scale(math.log10(budgets[0]), math.log10(budgets[-1]), LEFT + 12, WIDTH - RIGHT - 12)
    y = Scale(low, high, HEIGHT - BOTTOM, UPPER)
    places = [(x(math.log10(rho)), y(cost)) for rho, cost in zip(budgets, costs, strict=True)]
    body = [_axis(y, high, low)]
    for rho in budgets:
        power = math.log10(rho)
        if abs(power - round(power)) < 1e-9:
            body.append(_svg_text(x(power), HEIGHT - BOTTOM + 18, f"{rho:g}", "middle"))
    body.append(_svg_text((LEFT + WIDTH) / 2, HEIGHT - 8, "privacy budget ρ: more privacy to the left", "middle quiet"))
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


def _round_up(value: float) -> float:
    step = _round_step(value / 4)
    return math.ceil(value / step - 1e-9) * step * 1.08
