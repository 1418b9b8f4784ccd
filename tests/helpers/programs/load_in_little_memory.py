"""Load policies where little memory may be had: `load_in_little_memory.py MEGABYTES GOOD ... -- FILE ...`.

Prints, as JSON, what happened to each file: the line of its refusal, `null` if it was read, or the name of an error
that is no refusal. A file that is read is also asked for what `poolrl verify` compares. Good files come first, so that
everything that a load imports is there before memory is counted.
"""

from __future__ import annotations

import json
import resource
import sys

from poolrl import Policy
from poolrl.privacy import sensitivity
from poolrl.workflow.paying import release_layout


def look(path: str) -> str | None:
    """What happened to a file."""
    try:
        policy = Policy.load(path)
        assert policy.names.steps
        assert policy.problem.facts()
        guarantee = policy.guarantee
        moved = sensitivity.moved_trajectories(per_unit=guarantee.trajectories_per_unit, scale_memory=0, has_units=True)
        release_layout(policy.problem, slots=300 * moved, moved=moved, rho=guarantee.rho)  # type: ignore[arg-type]
        policy.guarantee.to_dict()
        policy.act(0, [0.0] * policy.problem.state_dim, labels={n: v[0] for n, v in _labels(policy)})
    except ValueError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__} is no refusal"
    return None


def _labels(policy: Policy) -> zip[tuple[str, tuple[int | float | str, ...]]]:
    return zip(policy.problem.labels.names, policy.problem.labels.values, strict=True)


if __name__ == "__main__":
    megabytes, *names = sys.argv[1:]
    middle = names.index("--")
    assert [look(path) for path in names[:middle]] == [None] * middle
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limit = used + int(megabytes) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps([look(path) for path in names[middle + 1 :]]))
