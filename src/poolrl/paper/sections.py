"""A report is a list of sections of text, tables and pictures: their types, and how a cell is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure

from poolrl.checks import FloatArray
from poolrl.paper.runs import Runs
from poolrl.paper.sweeps import Setting


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files, and its alternative text."""

    name: str
    alt: str
    figure: Figure


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it: a picture first, then text, then a table."""

    title: str
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    picture: Picture | None = field(default=None, compare=False)


def in_percent(runs: Runs, setting: Setting, measure: str = "gap", *, spread: bool = True) -> str:
    """Mean ± standard deviation over seeds; empty where the setting was not run or has no such measure."""
    values = 100 * runs.measured(setting, measure)
    if np.isnan(values).any():
        return ""
    return _with_spread(values, number) if spread else _mean(values, number)


def difference(runs: Runs, setting: Setting) -> str:
    """Mean ± standard deviation of c* − c, the appendix's gap. Only luck makes it positive."""
    return _with_spread(runs.measured(setting, "best_cost") - runs.measured(setting, "cost"), "{:,.0f}".format)


def seconds(runs: Runs, setting: Setting) -> str:
    """Mean processor seconds."""
    return _mean(runs.measured(setting, "seconds"), "{:.3f}".format)


def per_step(runs: Runs, setting: Setting) -> str:
    """Cost per step, mean ± standard deviation."""
    return _with_spread(runs.measured(setting, "cost") / setting.horizon, "{:.4f}".format)


def number(value: float) -> str:
    """Three figures or so, without exponents."""
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3}f}"


def _mean(values: FloatArray, write: Callable[[float], str]) -> str:
    return write(values.mean()) if len(values) else ""


def _with_spread(values: FloatArray, write: Callable[[float], str]) -> str:
    deviation = f" ± {write(values.std(ddof=1))}" if len(values) > 1 else ""
    return _mean(values, write) + deviation
