"""A report is a list of sections of text, tables and pictures: their type, and how a cell is written."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure

from poolrl.paper.statistics import Table
from poolrl.paper.sweeps import Setting


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it."""

    title: str
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    figure: tuple[str, str, Figure] | None = field(default=None, compare=False)  # file name, alternative text, picture


def percent(table: Table, setting: Setting, measure: str, *, spread: bool = True) -> str:
    """Mean ± standard deviation over seeds, empty where it was not run or does not apply."""
    values = 100 * np.array([getattr(run, measure) for run in table.runs(setting).values()])
    if not len(values) or np.isnan(values).any():
        return ""
    deviation = f" ± {number(values.std(ddof=1))}" if spread and len(values) > 1 else ""
    return f"{number(values.mean())}{deviation}"


def difference(table: Table, setting: Setting, measure: str) -> str:
    """Mean ± standard deviation of c* − c, the appendix's gap: at most zero unless luck helps."""
    values = np.array([run.best_cost - run.cost for run in table.runs(setting).values()])
    if not len(values):
        return ""
    return f"{values.mean():,.0f}" + (f" ± {values.std(ddof=1):,.0f}" if len(values) > 1 else "")


def seconds(table: Table, setting: Setting, measure: str) -> str:
    """Mean processor seconds."""
    values = np.array([getattr(run, measure) for run in table.runs(setting).values()])
    return f"{values.mean():.3f}" if len(values) else ""


def per_step(table: Table, setting: Setting) -> str:
    """Cost per step, mean ± standard deviation."""
    costs = np.array([run.cost for run in table.runs(setting).values()]) / setting.horizon
    return f"{costs.mean():.4f} ± {costs.std(ddof=1) if len(costs) > 1 else 0:.4f}" if len(costs) else ""


def number(value: float) -> str:
    """Three figures or so, without exponents."""
    size = abs(value)
    return (
        f"{value:.0f}"
        if size >= 100
        else f"{value:.1f}"
        if size >= 10
        else f"{value:.2f}"
        if size >= 0.1
        else f"{value:.3f}"
    )
