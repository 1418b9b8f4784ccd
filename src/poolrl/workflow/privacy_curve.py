"""The picture of what privacy costs: the gap to the benchmark against the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from poolrl.colours import ACCENT, INK, QUIET
from poolrl.privacy.zcdp import epsilon_shown


@dataclass(frozen=True)
class BudgetRuns:
    """One budget: mean cost over its runs, and the relative gaps to the benchmark."""

    rho: float
    cost: float
    gaps: tuple[float, ...]


def privacy_curve(path: Path, points: Sequence[BudgetRuns], *, non_private: float, data_free: float) -> None:
    """The gap to the benchmark against ρ, with ε on the upper axis and the two ends of the scale as lines."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    rhos = np.array([point.rho for point in points])
    # A fit may beat the benchmark by luck, which a logarithmic axis cannot show: such points lie on its floor.
    floor = 1e-4
    means = np.maximum([np.mean(point.gaps) for point in points], floor)
    non_private, data_free = max(non_private, floor), max(data_free, floor)
    axes.axhline(100 * data_free, color=QUIET, linestyle="--", linewidth=1)
    axes.axhline(100 * non_private, color=INK, linestyle=":", linewidth=1)
    for point in points:
        axes.plot(
            [point.rho] * len(point.gaps),
            100 * np.maximum(point.gaps, floor),
            "o",
            color=ACCENT,
            alpha=0.35,
            markersize=4,
        )
    axes.plot(rhos, 100 * means, "-o", color=ACCENT, linewidth=2, markersize=6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(rhos, [f"{rho:g}" for rho in rhos])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
    axes.set_xlabel("privacy budget ρ (zCDP): stronger privacy to the left")
    axes.set_ylabel("cost above SAA on uncensored demand")
    upper = axes.secondary_xaxis("top")
    upper.set_xticks(rhos, [epsilon_shown(rho) for rho in rhos])
    upper.xaxis.set_minor_locator(NullLocator())
    upper.set_xlabel("ε at δ = 10⁻⁶", color=QUIET)
    right = rhos[-1]
    axes.annotate(
        "no data at all", (right, 100 * data_free), (0, -14), textcoords="offset points", ha="right", color=QUIET
    )
    axes.annotate("no privacy", (rhos[0], 100 * non_private), (0, 4), textcoords="offset points", ha="left", color=INK)
    middle = len(rhos) // 2
    axes.annotate(
        "POOL", (rhos[middle], 100 * means[middle]), (8, 8), textcoords="offset points", color=ACCENT, weight="bold"
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title("What privacy costs", loc="left", weight="bold", color=INK)
    figure.savefig(path, dpi=150)
