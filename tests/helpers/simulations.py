"""Short simulations: a few fits, for tests that are not about the numbers of a page or a plan."""

from __future__ import annotations

from collections.abc import Callable

SHORT_FORECAST = {"REPETITIONS": 1}
SHORT_REHEARSAL = {"REHEARSED_FITS": 3}
SHORT_STUDY = {"BUDGETS": (0.01, 1.0), "SIZES": (100, 1_000), "MOST_ROWS": 1}

SetAttribute = Callable[[object, str, object], object]


def shorten_forecast(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl fit` and `poolrl report` rehearse 3 fits instead of about a dozen, of a shop or of rounds."""
    # Late, because most tests do without either.
    from poolrl.workflow.trades import round_forecast, shop_forecast

    families = {"FAMILIES": {name: shop_forecast.FAMILIES[name] for name in ("normal", "exponential")}}
    for trade, short in ((shop_forecast, SHORT_FORECAST | families), (round_forecast, SHORT_REHEARSAL)):
        for name, value in short.items():
            set_attribute(trade, name, value)


def shorten_plan(set_attribute: SetAttribute = setattr) -> None:
    """Let `poolrl plan` simulate two budgets and two sizes, each in one world."""
    from poolrl.workflow import budget

    for name, value in SHORT_STUDY.items():
        set_attribute(budget, name, value)
