"""A policy that was planned again from a certified one: the plan is made once more, and compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from poolrl.learning.model import PrivateModel
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
        own, laws = mine.outcomes.arrays(), again.outcomes.arrays()
        same = own.keys() == laws.keys() and all(np.array_equal(own[name], laws[name]) for name in own)
        return told and same and np.allclose(again.levels, mine.levels, rtol=SAME_PLAN, atol=0), ""
    except (ValueError, AttributeError) as error:
        return False, str(error)
