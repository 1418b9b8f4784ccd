"""Every kind of problem by its name in a configuration. Tests, audits and the command line go through this list."""

from poolrl.problems.inventory import Backlog, Depot, LostSales
from poolrl.problems.problem import OutcomeProblem
from poolrl.problems.rounds import DynamicPricing, FirstPriceBidding, ReserveAuction

KINDS: dict[str, type[OutcomeProblem]] = {
    "lost sales": LostSales,
    "backlog": Backlog,
    "reserve-auction": ReserveAuction,
    "dynamic-pricing": DynamicPricing,
    "first-price-bidding": FirstPriceBidding,
}


def kind_of(name: str) -> type[OutcomeProblem] | None:
    """The class of a problem by its own name, which its facts say. A depot is planned on a shop's model alone."""
    kinds: list[type[OutcomeProblem]] = [*KINDS.values(), Depot]
    return next((kind for kind in kinds if kind.__name__ == name), None)
