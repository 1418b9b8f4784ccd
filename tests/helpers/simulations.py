"""Short simulations: a few fits, for tests that are not about the numbers of a page or a plan."""

from __future__ import annotations

from collections.abc import Callable

SHORT_FORECAST = {"REPETITIONS": 1, "BUDGETS": (10.0,), "BUDGET_TREES": 1}
SHORT_STUDY = {"BUDGETS": (0.01, 1.0), "SIZES": (100, 1_000)}

SetAttribute = Callable[[object, str, object], object]


def shorten_forecast(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl fit` and `poolrl report` rehearse 4 fits instead of about 11."""
    # Late, because most tests do without the shop.
    from poolrl.workflow.trades import shop_forecast

    for name, value in SHORT_FORECAST.items():
        set_attribute(shop_forecast, name, value)


def shorten_plan(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl plan` simulate two budgets and two sizes."""
    from poolrl.workflow import budget

    for name, value in SHORT_STUDY.items():
        set_attribute(budget, name, value)
