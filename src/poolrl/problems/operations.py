"""How a shop really works: what goods cost and bring, what spoils, and which orders can be placed. Public facts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import BoolArray, FloatArray, public_array
from poolrl.problems.problem import LeftoverCosts, LevelProblem


@dataclass(frozen=True, kw_only=True)
class Operations:
    """Costs and orders beyond those of the paper's shop, each a number, or an array that spreads to (*labels, H, k).

    An order costs `fixed`, however large, and `purchase` for each unit. A missed sale loses the `price`, on top of the
    problem's `shortage`; its purchase is saved, so that the margin is lost. A unit that is left after a step costs
    `holding`, and the share `spoilage` of such units is gone the next morning. After the last step a unit that is left
    brings `salvage`.
    Profit is price · E(demand) minus cost.

    Orders are whole packs of `pack` units (0: any amount) and at least `minimum`, on steps with `deliveries`.
    With `cycle` the first step comes again after the last, for ever; `discount` is what a cost of the next step counts
    for.
    """

    purchase: ArrayLike = 0.0
    price: ArrayLike = 0.0
    spoilage: ArrayLike = 0.0
    fixed: ArrayLike = 0.0
    salvage: ArrayLike = 0.0
    pack: ArrayLike = 0.0
    minimum: ArrayLike = 0.0
    deliveries: ArrayLike = True
    cycle: bool = False
    discount: float = 1.0

    def of(self, problem: LevelProblem) -> ShopTerms:
        """For every column (label cell and product); refuses, in words, what no shop can do."""
        shape = (*problem.labels.shape, problem.horizon, problem.products)
        arrays: dict[str, Any] = {}
        for name in (each.name for each in fields(self) if each.name not in ("cycle", "discount")):
            given = np.asarray(getattr(self, name), dtype=np.float64)
            arrays[name] = column_values(public_array(name, given, shape))
        for name, values in arrays.items():
            if name != "salvage" and (values < 0).any():
                raise ValueError(f"{name} must not be negative, got {values.min():g}")
        if (arrays["spoilage"] > 1).any():
            raise ValueError(f"spoilage is a share of what is left, at most 1, got {arrays['spoilage'].max():g}")
        if np.ptp(arrays["pack"], axis=1).any():
            raise ValueError("a product has one pack: it must be the same on all steps")
        if not 0 < self.discount <= 1:
            raise ValueError(f"discount must lie above 0 and be at most 1, got {self.discount:g}")
        if self.cycle and arrays["salvage"].any():
            raise ValueError("a cycle never ends, so nothing is salvaged: leave out salvage or cycle")
        if (arrays["salvage"][:, -1] > arrays["purchase"].min(axis=1)).any():
            raise ValueError("salvage above the purchase cost would be a reason to buy without end")
        if not (arrays["deliveries"] > 0).any(axis=1).all():
            raise ValueError("every product needs a step with deliveries")
        if ((arrays["price"] > 0) & (arrays["price"] < arrays["purchase"])).any():
            raise ValueError("a price below the purchase cost: nobody would order")
        price = arrays.pop("price")
        arrays |= {"salvage": arrays["salvage"][:, -1], "pack": arrays["pack"][:, 0]}
        return ShopTerms(
            holding=column_values(problem.holding),
            shortage=column_values(problem.shortage) + price,
            cap=column_values(problem.share * problem.label_bounds[..., None, :]),
            products=problem.products,
            cycle=self.cycle,
            discount=self.discount,
            **arrays | {"deliveries": arrays["deliveries"] > 0},
        )


@dataclass(frozen=True)
class ShopTerms(LeftoverCosts):
    """The same for C columns (label cells times products) and H steps, as planners need it."""

    holding: FloatArray  # (C, H), as all that follow but for salvage and pack (C,)
    shortage: FloatArray  # what a missed sale costs, its price included
    purchase: FloatArray
    spoilage: FloatArray
    fixed: FloatArray
    salvage: FloatArray
    pack: FloatArray
    minimum: FloatArray
    deliveries: BoolArray
    cap: FloatArray  # no level lies above
    products: int  # columns of one label cell
    cycle: bool
    discount: float

    def columns(self, chosen: slice) -> ShopTerms:
        """Some columns of it."""
        arrays: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: v[chosen] for name, v in arrays.items() if isinstance(v, np.ndarray)})  # type: ignore[arg-type]

    def require_plain_cycle(self, what: str) -> None:
        """Refuse all that planners of orders that arrive later do not know."""
        if not self.cycle or self.discount < 1:
            raise ValueError(f"{what} is planned for a cycle without discount: Operations(cycle=True)")
        if self.spoilage.any() or self.minimum.any() or self.pack.any() or not self.deliveries.all():
            raise ValueError(f"{what} is planned for orders of any amount on every step, without spoilage")

    def worth_holding(self, mean: float, width: float) -> float:
        """How much more than the next demand is ever worth holding, of one column, in lattice steps of `width` units.

        For a fixed cost twice the economic order √(2 K d / h), and one round for steps that differ; 50 steps at most.
        """
        holding = max(float(self.holding.min()), 1e-6 * float(self.shortage.max()), 1e-12)
        economic = float(np.sqrt(2 * float(self.fixed.max()) * mean / (holding * width)))
        return min(2 * economic + self.holding.shape[1] * mean, 50 * (mean + 1))


def column_values(values: FloatArray) -> FloatArray:
    """(*labels, H, k) as (C, H), products of one cell behind each other."""
    steps, products = values.shape[-2:]
    return np.moveaxis(values.reshape(-1, steps, products), -1, 1).reshape(-1, steps)
