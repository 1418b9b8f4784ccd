"""A short forecast: a few simulated fits, for tests that are not about the numbers on the page."""

from __future__ import annotations

from collections.abc import Callable

SHORT = {"MOST_RUNS": 2, "RUNS_OF_SPENT": 2, "LEAST_RUNS": 2, "SLIDER_BUDGETS": (10.0,)}


def shorten_forecast(set_attribute: Callable[[object, str, object], object] = setattr) -> None:
    """Let `poolrl fit` and `poolrl report` simulate 11 fits instead of about 50."""
    from poolrl.shop import forecast  # late: most tests do without the shop

    for name, value in SHORT.items():
        set_attribute(forecast, name, value)
