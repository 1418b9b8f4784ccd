"""zCDP arithmetic: exact fractions for what is paid, tight conversions for what is explained.

Sources: Bun and Steinke 2016 (zCDP); Canonne, Kamath and Steinke 2020 (the discrete Gaussian and the
conversion to (ε, δ)); Balle and Wang 2018 (the exact curve of one Gaussian);
Dong, Roth and Su 2022 (attacks as hypothesis tests).
"""

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from poolrl.checks import fraction, positive

Budget = Fraction | float  # a float only for infinity, which buys no privacy


def budget(rho: Budget) -> Budget:
    """ρ as the decimal number that was written: 0.1 is 1/10, not the nearest double."""
    if isinstance(rho, Fraction):
        positive(rho=float(rho))
        return rho
    positive(rho=rho)
    return math.inf if math.isinf(rho) else Fraction(str(float(rho)))


def finite_budget(**named: Budget) -> Fraction:
    """The same for a budget that must be finite. The argument's name goes into the message."""
    ((name, rho),) = named.items()
    exact = budget(rho)
    if isinstance(exact, float):
        raise ValueError(f"{name} must be finite, got {rho!r}")
    return exact


def shares_of(rho: Budget, **shares: float) -> tuple[Budget, dict[str, Budget]]:
    """What is left of ρ, and what each share s of it buys, sρ, all exact. The arguments' names go into messages."""
    exact = {}
    for name, share in shares.items():
        number = isinstance(share, int | float | np.integer | np.floating) and not isinstance(share, bool)
        if not number or not 0 <= share < 1:
            raise ValueError(f"{name} must be a share of rho, at least 0 and less than 1, got {share!r}")
        exact[name] = Fraction(str(float(share)))
    if sum(exact.values()) >= 1:
        raise ValueError(f"{', '.join(shares)} must leave a part of rho to the trees")
    whole = budget(rho)
    if isinstance(whole, float):
        return whole, {name: whole if share else share for name, share in exact.items()}
    parts: dict[str, Budget] = {name: share * whole for name, share in exact.items()}
    return whole - sum(exact.values()) * whole, parts


# Digits only: "1e999999999" is a short text, but no memory can hold the number.
_WRITTEN = re.compile(r"\d{1,400}(/(?!0+\Z)\d{1,400})?", re.ASCII)


def written(text: str) -> Fraction:
    """A number that is not negative, as files have it: "3" or "1/3". Numbers that take long to read are refused."""
    if not isinstance(text, str) or not _WRITTEN.fullmatch(text):
        raise ValueError("not a number written as a fraction")
    return Fraction(text)


def noise_variance(*, sensitivity_squared: Fraction, rho: Budget) -> Fraction:
    """σ² = Δ₂² / 2ρ, exact; zero for ρ = ∞."""
    exact = budget(rho)
    return Fraction(0) if isinstance(exact, float) else sensitivity_squared / (2 * exact)


def spent(*, sensitivity_squared: Fraction, variance: Fraction) -> Budget:
    """ρ = Δ₂² / 2σ², exact: what one (discrete) Gaussian release costs."""
    return math.inf if variance == 0 else sensitivity_squared / (2 * variance)


def compose(costs: Iterable[Budget]) -> Budget:
    """Σ ρᵢ, exact: the costs of releases from the same log add up."""
    return sum(costs, Fraction(0))


# Grids that narrow around a minimum: each is 1,000 times as fine as the one before.
ZOOMS, ZOOM_POINTS = 3, 2001


def epsilon(rho: float, delta: float) -> float:
    """The smallest ε such that ρ-zCDP implies (ε, δ)-DP by Canonne, Kamath and Steinke's conversion.

    ε = inf_{α>1}  αρ + log(1/(αδ)) / (α − 1) + log(1 − 1/α)
    """
    positive(rho=rho)
    fraction(delta=delta)
    if math.isinf(rho):
        return math.inf

    # The minimum lies near α − 1 = √(log(1/δ)/ρ). Every α gives a valid ε, so a coarser grid claims more, never less.
    centre, width = 0.5 * math.log(math.log(1 / delta) / rho), 12.0
    for _ in range(ZOOMS):
        log_excess = np.linspace(centre - width, centre + width, ZOOM_POINTS)
        excess = np.exp(log_excess)  # α − 1
        bounds = rho + excess * rho - (np.log1p(excess) + math.log(delta)) / excess - np.log1p(1 / excess)
        best = int(bounds.argmin())
        centre, width = float(log_excess[best]), 2 * width / (ZOOM_POINTS - 1)
    return max(0.0, float(bounds[best]))


def gaussian_delta(rho: float, eps: float) -> float:
    """δ(ε) of one continuous Gaussian release that costs ρ: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), μ = √(2ρ)."""
    shift = math.sqrt(2 * rho)
    first = math.exp(float(log_ndtr(shift / 2 - eps / shift)))
    second = math.exp(eps + float(log_ndtr(-shift / 2 - eps / shift)))
    return first - second


def gaussian_epsilon(rho: float, delta: float) -> float:
    """ε on the exact curve of one continuous Gaussian release. It is shown beside `epsilon`, but not claimed."""
    most = epsilon(rho, delta)
    if math.isinf(most):
        return most
    if gaussian_delta(rho, 0.0) <= delta:
        return 0.0
    return _last_true(lambda eps: gaussian_delta(rho, eps) > delta, 0.0, most + 1e-9)


# Rényi orders at which an attack is bounded. With fewer orders the bound can only be larger.
ORDERS = 1 + np.logspace(-4, 5, 2000)


def attack_power(rho: float, false_positives: float = 0.05) -> float:
    """The largest true-positive rate q that any attack on ρ-zCDP can have at a false-positive rate p.

    An attack is a test between two neighbouring logs. Its answer is post-processing, so for every order α > 1

        D_α(Bernoulli(q) ‖ Bernoulli(p)) ≤ αρ   and the same with q and p exchanged.
    """
    positive(rho=rho)
    fraction(false_positives=false_positives)
    if math.isinf(rho):
        return 1.0
    p = false_positives

    def possible(q: float) -> bool:
        return max(_renyi(q, p, rho), _renyi(p, q, rho)) <= 0

    highest = 1 - 1e-12
    return 1.0 if possible(highest) else _last_true(possible, p, highest)


def _last_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The end of where `holds` is true, which it is from `low` on and no more at `high`, from above; by bisection."""
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _renyi(q: float, p: float, rho: float) -> float:
    """max_α D_α(Bernoulli(q) ‖ Bernoulli(p)) − αρ, computed in logarithms."""
    yes = ORDERS * math.log(q) + (1 - ORDERS) * math.log(p)
    no = ORDERS * math.log1p(-q) + (1 - ORDERS) * math.log1p(-p)
    return float((np.logaddexp(yes, no) / (ORDERS - 1) - ORDERS * rho).max())


def gaussian_attack_power(rho: float, false_positives: float = 0.05) -> float:
    """The best attack on one continuous Gaussian release: Φ(Φ⁻¹(p) + √(2ρ)) true positives. Shown, but not claimed."""
    positive(rho=rho)
    fraction(false_positives=false_positives)
    return float(ndtr(ndtri(false_positives) + math.sqrt(2 * rho)))


def noise_bound(*, variance: float, cells: int, failure: float) -> float:
    """E_ρ: with probability 1 − δ no noisy count strays further than E_ρ / 2 from the exact one.

    E_ρ = 4 √(H log(4 H M² w (w + d) / δ) / ρ) with σ² = 2H/ρ is √(8 σ² log(4 · cells / δ)),
    where cells = H · M(w + d) · Mw numbers the transition counts.
    """
    return math.sqrt(8 * variance * math.log(4 * cells / failure))


def ceiling(value: float, decimals: int) -> float:
    """Rounded up to `decimals`, so that a claim is never too small."""
    return math.ceil(value * 10**decimals - 1e-9) / 10**decimals


def rounded_up(value: float) -> str:
    """How every ε is shown: two decimals, or two digits if it is small, and never less than the value."""
    if math.isinf(value):
        return "inf"
    decimals = 2 if value >= 0.1 or value <= 0 else 1 - math.floor(math.log10(value))
    return f"{ceiling(value, decimals):.{decimals}f}"


def epsilon_shown(rho: float) -> str:
    """ε at δ = 10⁻⁶ as every table, picture, label and page shows it."""
    return rounded_up(epsilon(rho, 1e-6))
