"""Every kind of problem by its name in a configuration. Tests, audits and the command line go through this list."""

from __future__ import annotations

from poolrl.problems.auction import ReserveAuction
from poolrl.problems.bidding import FirstPriceBidding
from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.pricing import DynamicPricing
from poolrl.problems.problem import OutcomeProblem

KINDS: dict[str, type[OutcomeProblem]] = {
    "lost sales": LostSales,
    "backlog": Backlog,
    "reserve-auction": ReserveAuction,
    "dynamic-pricing": DynamicPricing,
    "first-price-bidding": FirstPriceBidding,
}
