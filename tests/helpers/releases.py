"""Releases of any size for the page: levels and estimates are drawn at random, the certificate is one of a real fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from poolrl import LostSales, Policy, Pool
from poolrl.certificate.certificate import AssumedPublic, certify
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Levels
from poolrl.learning.stored import Names, Report
from poolrl.privacy.guarantee import Guarantee
from poolrl.workflow.forecast import CostEstimate, Forecast, ProductCosts
from poolrl.workflow.release_folder import Released
from tests.helpers.certificates import release_facts

WEEK = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


@cache
def small_guarantee() -> Guarantee:
    """The payment of a real fit of one product over seven days."""
    problem, rng = LostSales(horizon=7, holding=1, shortage=1, demand_max=10.0), np.random.default_rng(0)
    return Pool(0.5).fit(problem, problem.simulate_log(np.full((20, 7, 1), 5.0), rng=rng)).guarantee


def made_up_release(
    products: Sequence[str],
    *,
    labels: Mapping[str, Sequence[str | int]] | None = None,
    scaled: bool = False,
    steps: Sequence[str] = WEEK,
    bins: int = 32,
) -> Released:
    """Levels as of a week with a busy Saturday; some stand at λ, and some beyond what past orders tried."""
    rng, many = np.random.default_rng(0), len(products)
    top = np.full(many, 3.0) if scaled else rng.choice([30.0, 60.0, 400.0], many)
    problem = LostSales(
        horizon=len(steps), products=many, holding=0.2, shortage=0.6, demand_max=top, boundary=0.9, labels=labels
    )
    shape = (*problem.labels.shape, len(steps), many)
    size = rng.uniform(0.2, 0.7, (*problem.labels.shape, 1, many))
    week = (1 + 0.3 * np.sin(np.arange(len(steps)) * 0.9 + 3))[:, None]
    mean = size * week * rng.uniform(0.9, 1.1, shape)
    levels = np.minimum(1.3 * mean, 0.9) * top
    places = (np.arange(bins) + 0.5) / bins
    weights = np.exp(-0.5 * ((places - mean[..., None]) / (0.25 * mean[..., None])) ** 2)
    cutoffs = np.exp(-0.5 * ((places - 1.25 * mean[..., None]) / 0.12) ** 2)
    points = np.broadcast_to(places * top[:, None], (*problem.labels.shape, many, bins))
    weights, cutoffs = (each / each.sum(axis=-1, keepdims=True) for each in (weights, cutoffs))
    outcomes = OutcomeDistribution(points, weights, cutoffs)
    mode: Literal["none", "protected"] = "protected" if labels else "none"
    guarantee = replace(small_guarantee(), scaled=scaled, steps=len(steps), labels=mode)
    scale = "the average of the last 4 same weekdays" if scaled else None
    report = Report(names=Names(list(products), list(steps)), units=20, observed=1.0, scale_in_words=scale)
    policy = Policy(problem, Levels(levels), guarantee, report, outcomes)
    facts = release_facts(problem, spent=Fraction(1, 2), units=20)
    public: AssumedPublic = facts["public"]
    named = public.model_copy(update={"products": list(products), "steps": list(steps)})
    return Released(Path(), policy, certify(guarantee, **facts | {"public": named}))


def made_up_forecast(release: Released) -> Forecast:
    """Costs that nobody measured: the test looks only at how they are shown."""
    names, many = release.policy.names, len(release.policy.names.products)
    products = [
        ProductCosts(
            name, 4.0 + i % 7, 3.0 + i % 5, names.steps[:1] * (i % 4 == 0), names.steps[-1:], 0.1 + i / many / 5
        )
        for i, name in enumerate(names.products)
    ]
    return Forecast(
        today=CostEstimate(412.0, 390.0, 440.0),
        policy=CostEstimate(371.0, 352.0, 395.0),
        best=CostEstimate(350.0, 340.0, 361.0),
        unknown="",
        verdict="switch",
        because="With these levels a week costs 41 less than today, in nine cases out of ten between 5 and 80 less.",
        products=products,
        warning="",
    )
