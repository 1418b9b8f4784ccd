"""`poolrl report`: from a policy and its certificate to the page; everything on it is post-processing or public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from poolrl.certificate.certificate import read_certificate
from poolrl.certificate.files import CERTIFICATE, PAGE, POLICY
from poolrl.certificate.verify import verify
from poolrl.checks import FloatArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.rules import Levels
from poolrl.problems.inventory import Inventory
from poolrl.shop.decide import Desk
from poolrl.shop.forecast import Forecast, forecast
from poolrl.shop.page import page


@dataclass(frozen=True)
class Facts:
    """All that the page shows."""

    certificate: dict[str, Any]
    certificate_text: str
    products: list[str]
    steps: list[str]
    levels: FloatArray  # (H, k)
    limit: FloatArray  # (H, k): λ in the user's units
    demand: FloatArray  # (2, H, k): 10th and 90th percentile of the released estimate
    forecast: Forecast
    hides: bool  # whether anything can be hidden: demand beyond an empty shelf, or beyond λ


def draw_page(folder: Path, console: Console) -> Forecast:
    """Write the page of a release folder beside its policy and its certificate; what it forecasts."""
    policy_file, certificate_file = folder / POLICY, folder / CERTIFICATE
    if not certificate_file.exists():
        raise ValueError(f"{folder} is not a release: it has no {CERTIFICATE}. 'poolrl fit' makes one")
    broken = [check for check in verify(policy_file, certificate_file) if not check.good]
    if broken:
        raise ValueError(f"{certificate_file} does not hold ({broken[0].what}); see 'poolrl verify'")
    desk, content = Desk.open(policy_file), certificate_file.read_bytes()
    policy = desk.policy
    if not isinstance(policy.problem, Inventory) or not isinstance(policy.rule, Levels) or policy.outcomes is None:
        raise ValueError("the page draws order-up-to policies that 'poolrl fit' has made")
    certificate = read_certificate(content)
    with Progress(console=console, transient=True) as progress:
        predicted = forecast(policy, policy.outcomes, units=certificate["assumed_public"]["units"], progress=progress)
    facts = Facts(
        certificate,
        content.decode(),
        desk.products,
        desk.steps,
        policy.levels,
        policy.problem.share * policy.problem.demand_max,
        np.stack([_percentile(policy.outcomes, share) for share in (0.1, 0.9)]),
        predicted,
        policy.problem.censored or not policy.problem.boundary.everywhere,
    )
    if (folder / PAGE).is_symlink():
        raise ValueError(f"{folder / PAGE} is a link: the page would be written elsewhere")
    (folder / PAGE).write_text(page(facts), encoding="utf-8")
    return predicted


def _percentile(outcomes: OutcomeDistribution, share: float) -> FloatArray:
    """Of the estimated demand, (H, k)."""
    cumulative = np.cumsum(outcomes.weights, axis=-1)
    place = (cumulative < share * cumulative[..., -1:]).sum(axis=-1).clip(0, cumulative.shape[-1] - 1)
    return np.take_along_axis(outcomes.points[None], place[..., None], axis=-1)[..., 0]
