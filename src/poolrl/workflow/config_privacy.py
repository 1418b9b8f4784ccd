"""[privacy] and [plan] of `poolrl.toml`: who is protected, how strongly, and what a plan assumes of the log."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from poolrl.ledger.ledger import normal_name
from poolrl.workflow.section import ConfigSection, key, name_key


class Privacy(ConfigSection):
    """Who is protected, how strongly, and what may be spent in all."""

    unit: str | None = key(
        None,
        why="column: who is protected with all their trajectories; left out, each trajectory by itself",
        answer="",
        min_length=1,
    )
    max_per_unit: int | None = key(
        None,
        why="goes with unit: how many trajectories of one unit are used; noise grows in proportion",
        answer="",
        ge=1,
        le=10**6,
    )
    owns_at_most: int | None = key(
        None,
        why="goes with unit: every trajectory belongs to one unit, and none owns more of them than this, by a public "
        "fact; needed where other releases of the account protect single trajectories",
        asked=False,
        ge=1,
        le=10**6,
    )
    labels_public: bool = key(
        False,
        why="goes with labels: neighbours keep them, and how many rows have which labels is released exactly",
        asked=False,
    )
    weeks_public: bool = key(
        False,
        why="goes with a scale of the same weekday: it is public which shop has rows in which week, so neighbours "
        "replace what happened in a week; halves the memory",
        answer="",
    )
    protects: str = key("", why="what one of those is, in words, for the leaflet: one week of one shop", answer="")
    rho: float = key(
        why="the privacy budget of one fit (zCDP): 0.1 is epsilon 2.15 at delta 1e-6, 1 is 7.77; see poolrl plan",
        ge=1e-9,
    )
    budget: float = key(
        why="what may be spent on this data set in all, over all fits, by the ledger; equal to rho, it allows one fit",
        answer="",
        gt=0,
    )
    together: bool = key(
        False,
        why="spend a tenth of rho on how far products sell much or little together, for a shared reserve; left out "
        "where [plan] units are too few for it",
        asked=False,
    )
    data_set: str = name_key(why="the name of its account in the ledger; a corrected or longer log keeps its name")
    ledger: str | None = key(
        None,
        why="the ledger's file, with its secret keys beside it; left out, one place for all data sets of a user",
        asked=False,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.unit is None and self.max_per_unit is not None:
            raise ValueError("max_per_unit needs unit: name the column that says whose trajectory it is")
        if self.unit is not None and self.max_per_unit is None:
            raise ValueError("unit needs max_per_unit: say how many trajectories of one unit are used")
        if self.unit is None and self.owns_at_most is not None:
            raise ValueError("owns_at_most needs unit: it says how many trajectories one unit owns")
        if not normal_name(self.data_set):
            raise ValueError("data_set must be a name with a letter or a digit")
        if self.rho > self.budget:
            raise ValueError(f"rho must not exceed budget: {self.rho:g} is more than {self.budget:g}")
        return self

    @property
    def per_unit(self) -> int:
        """c, the trajectories that one unit may own."""
        return self.max_per_unit or 1


class PlanFacts(ConfigSection):
    """What `poolrl plan` assumes: how many units the log holds, and which demand to try."""

    units: int = key(
        1000,
        why="about how many units (trajectories, if each is its own) the log holds; their number counts as public",
        ge=1,
        le=10**12,
    )
    trajectories_per_unit: int | None = key(
        None,
        why="goes with unit: how many a unit owns, about; max_per_unit if left out",
        asked=False,
        ge=1,
        le=10**6,
    )
    demand: str = key(
        "any",
        why="the demand to plan with: any, prior, uniform, normal, beta, exponential or bimodal",
        asked=False,
    )
