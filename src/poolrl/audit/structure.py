"""The faults of a release that need no statistics: what is paid for, what is public, and who draws which noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from itertools import groupby

import numpy as np

from poolrl.audit.construction import construction_faults, in_child
from poolrl.audit.neighbours import Exact, Frozen, Revealed, layouts, policy_file, revealed
from poolrl.audit.repeated import Repeated
from poolrl.audit.worst_case import Configured
from poolrl.data.log import Log
from poolrl.pool import Prepared
from poolrl.privacy import zcdp
from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.noise.source import NoiseSource

# A seeded dry run gets another seed for every release. With one seed all its releases would be equal.
NOISE: dict[str, Callable[[int], NoiseSource]] = {
    "secure": lambda _: SecureNoise(),
    "opendp": lambda _: OpenDPNoise(),
    "seeded": SeededNoise,
}
DIFFER = "neighbours differ without noise"


def structure_faults(
    case: Configured, logs: tuple[Log, Log], exact: tuple[Revealed, Revealed], rho: float, noise: str
) -> list[str]:
    """All of them, by the logs and their exact counts. For another noise, secure noise is not looked at."""
    prepared, mechanisms = case.prepared(rho), exact[0].public["guarantee"].mechanisms
    faults = construction_faults(*(each.variance for each in mechanisms)) if noise == "secure" else []
    if any("self-test" in fault for fault in faults):
        return faults
    # At rho = 1 no two releases are equal by chance.
    if noise != "seeded" and len(set(_digests(case, noise))) < 4:
        faults.append("two processes, or two releases, draw the same noise")
    files = [policy_file(prepared, log, Frozen()) for log in logs]
    if files[0] != files[1]:
        faults.append("the policy depends on more than the released tables")
    return faults + _counted_faults(case, prepared, exact) + _paid_faults(case, prepared, logs[0], exact, rho)


@dataclass(frozen=True)
class MovedTable:
    """What two neighbours move of one mechanism: Σ (difference)² as a share of Δ₂², both in whole numbers."""

    name: str
    cells: int
    rho: Fraction
    variance: Fraction
    share: Fraction


def moved_tables(first: Revealed, second: Revealed) -> tuple[MovedTable, ...]:
    """That of every mechanism."""
    found = []
    for number, stated in enumerate(first.public["guarantee"].mechanisms):
        moved = int(((second.of_mechanism(number) - first.of_mechanism(number)) ** 2).sum())
        share = moved / stated.sensitivity_squared
        found.append(MovedTable(stated.name, stated.cells, stated.rho, stated.variance, share))
    return tuple(found)


def moved_share(first: Revealed, second: Revealed) -> float:
    """How much of ρ the neighbours use: each mechanism's share of Δ₂², weighted by what it costs."""
    tables = moved_tables(first, second)
    return float(sum(each.share * each.rho for each in tables) / sum(each.rho for each in tables))


def _counted_faults(case: Configured, prepared: Prepared, exact: tuple[Revealed, Revealed]) -> list[str]:
    """An engine counts what arrays count, and nothing without noise differs, also for a neighbour that owns less."""
    faults, found = [], {}
    for engine in ("arrays", "table"):
        with ExitStack() as opened:
            two = [] if engine == case.engine else opened.enter_context(case.logs(engine))
            logs = [*two, opened.enter_context(case.poorer(engine))]
            counted = [revealed(prepared, prepared.release(log, Exact())) for log in logs if log is not None]
            found[engine] = [*exact, *counted] if engine == case.engine else counted
    for array, table in zip(found["arrays"][:2], found["table"], strict=False):
        # A table is never taken to be complete, so it may have unobserved counts after its trees.
        mechanisms = range(len(array.public["guarantee"].mechanisms))
        pairs = [(array.of_mechanism(number), table.of_mechanism(number)) for number in mechanisms]
        if not all(np.array_equal(mine, theirs[: mine.size]) for mine, theirs in pairs):
            faults.append("a table in an engine gives other counts than the same arrays")
            break
    if any(other.public != each[0].public for each in found.values() for other in each[1:]):
        faults.append(DIFFER)
    return faults


def _paid_faults(
    case: Configured, prepared: Prepared, log: Log, exact: tuple[Revealed, Revealed], rho: float
) -> list[str]:
    """The guarantee follows from the formulas, exactly, and the noise has its variances; a unit moves no more."""
    faults, watched, (first, second) = [], Repeated([Exact()]), exact
    revealed(prepared, prepared.release(log, watched))
    mechanisms = first.public["guarantee"].mechanisms
    if zcdp.compose(each.rho for each in mechanisms) != zcdp.budget(rho):
        faults.append("the guarantee states another rho")
    # In the order in which tables are drawn: one must not have another's noise. A public root is not drawn.
    if _without_repeats(watched.variances) != _without_repeats(mechanisms[n].variance for n in first.public["belongs"]):
        faults.append("noise is drawn with another variance than the guarantee states")
    stated = [(each.name, each.cells, each.sensitivity_squared) for each in mechanisms]
    formulas = layouts(prepared, first, per_unit=case.moved)
    by_formula = [(each.name, each.cells, each.sensitivity_squared) for each in formulas]
    if first.public != second.public or stated != by_formula or overdrawn(first, second):
        faults.append("one unit moves more than was paid for")
    return faults


def overdrawn(first: Revealed, second: Revealed) -> bool:
    """Whether any mechanism moves more than it paid for, whatever the others have left."""
    return any(each.share > 1 for each in moved_tables(first, second))


def _without_repeats(variances: Iterable[Fraction]) -> list[Fraction]:
    return [variance for variance, _ in groupby(variances)]


def _digests(case: Configured, noise: str) -> list[bytes]:
    """Two releases in this process, and one in each of two forks, which inherit the state of these releases."""
    prepared = case.prepared(1.0)
    # No engine's threads live on in a fork, and the noise is the same.
    with case.logs("arrays") as (log, _):

        def digest() -> bytes:
            numbers = revealed(prepared, prepared.release(log, NOISE[noise](0))).numbers
            return sha256(numbers.tobytes()).digest()

        found = [digest(), digest(), in_child(digest), in_child(digest)]
    if not all(found):
        raise RuntimeError("a forked process could not release")
    return found
