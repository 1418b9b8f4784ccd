"""Short simulations: a few fits, for tests that are not about the numbers of a page or a plan."""

from __future__ import annotations

from collections.abc import Callable

SHORT_FORECAST = {"MOST_RUNS": 2, "RUNS_OF_SPENT": 2, "LEAST_RUNS": 2, "SLIDER_BUDGETS": (10.0,)}
SHORT_PLAN = {"COMPARED_BUDGETS": (0.01, 1.0), "SIZES": (100, 1_000)}

SetAttribute = Callable[[object, str, object], object]


def shorten_forecast(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl fit` and `poolrl report` simulate 7 fits instead of about 50."""
    # Late, because most tests do without the shop.
    from poolrl.shop import forecast
    from poolrl.simulation.worlds import worlds_of

    for name, value in SHORT_FORECAST.items():
        set_attribute(forecast, name, value)
    # One family of demand instead of all.
    set_attribute(forecast, "worlds_of", lambda problem, demand, runs: worlds_of(problem, "normal", runs=runs))


def shorten_plan(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl plan` simulate two budgets and two sizes."""
    from poolrl.shop import plan

    for name, value in SHORT_PLAN.items():
        set_attribute(plan, name, value)
