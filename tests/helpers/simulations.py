"""Short simulations: a few fits, for tests that are not about the numbers of a page or a plan."""

from __future__ import annotations

from collections.abc import Callable

SHORT_FORECAST = {"REPETITIONS": 1, "SLIDER_BUDGETS": (10.0,), "SLIDER_TREES": 1}
SHORT_PLAN = {"COMPARED_BUDGETS": (0.01, 1.0), "SIZES": (100, 1_000)}

SetAttribute = Callable[[object, str, object], object]


def shorten_forecast(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl fit` and `poolrl report` rehearse 4 fits instead of about 11."""
    # Late, because most tests do without the shop.
    from poolrl.workflow import forecast

    for name, value in SHORT_FORECAST.items():
        set_attribute(forecast, name, value)


def shorten_plan(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl plan` simulate two budgets and two sizes."""
    from poolrl.workflow import plan

    for name, value in SHORT_PLAN.items():
        set_attribute(plan, name, value)
