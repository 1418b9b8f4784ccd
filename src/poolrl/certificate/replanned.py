"""What comes from a certified policy at no cost: a plan, which is made once more, or its model; both are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from poolrl.learning.model import PrivateModel
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Policy
from poolrl.problems.problem import OutcomeProblem

# Another machine's Fourier transform may differ in the last bits.
SAME_PLAN = 1e-9


def made_again(policy: Path, certified: Path) -> tuple[bool, str]:
    """Whether a policy is a plan on the model of a certified one, by its own public facts; and why not."""
    try:
        mine, model = Policy.load(policy), PrivateModel.of(Policy.load(certified))
        if not isinstance(mine.problem, OutcomeProblem) or mine.outcomes is None:
            return False, "it has no model"
        again = model.plan(mine.problem)
        assert again.outcomes is not None
        told = (mine.guarantee, mine.report) == (again.guarantee, again.report)
        # Pages are drawn from the estimate that a policy carries.
        same = _same_laws(mine.outcomes, again.outcomes)
        return told and same and np.allclose(again.levels, mine.levels, rtol=SAME_PLAN, atol=0), ""
    except (ValueError, AttributeError) as error:
        return False, str(error)


def is_its_model(model: Path, certified: Path) -> tuple[bool, str]:
    """Whether a file holds the model that a certified policy was planned on, to the last bit; and why not."""
    try:
        mine, own = PrivateModel.load(model), PrivateModel.of(Policy.load(certified))
    except ValueError as error:
        return False, str(error)
    told = [(each.problem.facts(), each.guarantee, each.report) for each in (mine, own)]
    return told[0] == told[1] and _same_laws(mine.outcomes, own.outcomes), ""


def _same_laws(one: OutcomeDistribution, other: OutcomeDistribution) -> bool:
    mine, theirs = one.arrays(), other.arrays()
    return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
