"""The faults of a release that need no statistics: what it pays for, what is public, and how its noise is made.

Some faults of noise no statistics can see. A key of 40 bits makes words that look uniform, and an attacker can try all
such keys. A variance of 20 for 20.5 takes a million releases to see. So the audit gives the sampler a known key, in a
process of its own, and computes by other means what it must draw.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import sha256
from itertools import accumulate, groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from poolrl.audit.cases import AuditCase
from poolrl.audit.noise import Rows
from poolrl.checks import FloatArray, IntArray
from poolrl.data.log import Log
from poolrl.pool import OnVisits, Prepared
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import Mechanism
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.inversion import inversion
from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise, Stream, sampler_faults
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.noise.source import NoiseSource, RandomWords, Sampler
from poolrl.privacy.sensitivity import ON_TOP, TableLayout, moved_trajectories, outcome_trees, visit_tables

# A seeded dry run gets another seed for every release. With one seed all its releases would be equal.
NOISE: dict[str, Callable[[int], NoiseSource]] = {
    "secure": lambda _: SecureNoise(),
    "opendp": lambda _: OpenDPNoise(),
    "seeded": SeededNoise,
}
DIFFER = "neighbours differ without noise"
# No two bytes are equal, so the sampler cannot leave one out or use one twice unseen.
KNOWN_KEY = bytes(range(101, 133))
# Besides the audited variances: fractions, which must not be rounded to whole numbers.
PROBED_VARIANCES = Fraction(41, 2), Fraction(1001, 3)
PROBED_DRAWS = 2**14
DIGITS = 60


def structure_faults(
    case: AuditCase, logs: tuple[Log, Log], exact: tuple[Revealed, Revealed], rho: float, noise: str
) -> list[str]:
    """All of them, by the logs and their exact counts. For another noise, secure noise is not looked at."""
    prepared, mechanisms = case.prepared(rho), exact[0].public["guarantee"].mechanisms
    faults = construction_faults(*(each.variance for each in mechanisms)) if noise == "secure" else []
    if any("self-test" in fault for fault in faults):
        return faults
    # At rho = 1 no two releases are equal by chance.
    if noise != "seeded" and len(set(_digests(case, noise))) < 4:
        faults.append("two processes, or two releases, draw the same noise")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("first.npz", "second.npz")]
        for log, file in zip(logs, files, strict=True):
            prepared.learn(prepared.release(log, Frozen())).save(file)
        if files[0].read_bytes() != files[1].read_bytes():
            faults.append("the policy depends on more than the released tables")
    return faults + _counted_faults(case, prepared) + _paid_faults(case, prepared, logs[0], exact, rho)


class MovedTable(NamedTuple):
    """One mechanism, and what two neighbours move of it: Σ (difference)² as a share of Δ₂², both in whole numbers."""

    stated: Mechanism
    share: Fraction


def moved_tables(first: Revealed, second: Revealed) -> tuple[MovedTable, ...]:
    """That of every mechanism."""
    moved, mechanisms = (second.numbers - first.numbers) ** 2, first.public["guarantee"].mechanisms
    squares = [int(moved[first.mechanism_of == number].sum()) for number in range(len(mechanisms))]
    return tuple(MovedTable(m, square / m.sensitivity_squared) for m, square in zip(mechanisms, squares, strict=True))


def moved_share(first: Revealed, second: Revealed) -> float:
    """How much of ρ the neighbours use: each mechanism's share of Δ₂², weighted by what it costs."""
    tables = moved_tables(first, second)
    return float(sum(share * stated.rho for stated, share in tables) / sum(stated.rho for stated, _ in tables))


def _counted_faults(case: AuditCase, prepared: Prepared) -> list[str]:
    """An engine counts what arrays count, and nothing without noise differs, also for a neighbour that owns less."""
    faults, counted = list[str](), {}
    for engine in case.engines:
        with case.logs(engine) as logs, case.poorer(engine) as poorer:
            counted[engine] = [exact_counts(prepared, log) for log in (*logs, poorer) if log is not None]
    for array, table in zip(counted["arrays"][:2], counted.get("table", []), strict=False):
        # A table is never taken to be complete, so it may have unobserved counts after its trees.
        for mechanism in range(len(array.public["guarantee"].mechanisms)):
            here, there = (counts.numbers[counts.mechanism_of == mechanism] for counts in (array, table))
            if not np.array_equal(here, there[: here.size]):
                faults = ["a table in an engine gives other counts than the same arrays"]
    if any(other.public != logs[0].public for logs in counted.values() for other in logs[1:]):
        faults.append(DIFFER)
    return faults


def _paid_faults(
    case: AuditCase, prepared: Prepared, log: Log, exact: tuple[Revealed, Revealed], rho: float
) -> list[str]:
    """The mechanisms cost ρ, exactly, and the noise has their variances; a unit moves no more than is paid for.

    The two logs need not move all that a unit can (public labels, λ < 1). So mechanisms are compared with formulas too.
    """
    faults, watched, public = [], Repeated([Exact()]), exact[0].public
    revealed(prepared, prepared.release(log, watched))  # it asks for every row of the tables
    mechanisms = public["guarantee"].mechanisms
    if zcdp.compose(each.rho for each in mechanisms) != zcdp.budget(rho):
        faults.append("the guarantee states another rho")
    # In the order in which tables are drawn: one must not have another's noise. A public root is not drawn.
    promised = (mechanisms[number].variance for number in public["belongs"])
    if [drawn for drawn, _ in groupby(watched.variances)] != [variance for variance, _ in groupby(promised)]:
        faults.append("noise is drawn with another variance than the guarantee states")
    stated = tuple(TableLayout(each.name, each.cells, each.sensitivity_squared) for each in mechanisms)
    # Each mechanism by itself, whatever the others have left.
    moved_more = any(table.share > 1 for table in moved_tables(*exact))
    per_unit = moved_trajectories(
        per_unit=case.per_unit or 1, scale_memory=case.scale_memory, has_units=case.per_unit is not None
    )
    if moved_more or stated != layouts(prepared, exact[0], per_unit=per_unit):
        faults.append("one unit moves more than was paid for")
    return faults


def _digests(case: AuditCase, noise: str) -> list[bytes]:
    """Two releases in this process, and one in each of two forks, which inherit the state of these releases."""
    prepared = case.prepared(1.0)

    def digest() -> bytes:
        return sha256(revealed(prepared, prepared.release(log, NOISE[noise](0))).numbers.tobytes()).digest()

    # No engine's threads live on in a fork, and the noise is the same.
    with case.logs("arrays") as (log, _):
        digests = [digest(), digest(), in_child(digest), in_child(digest)]
    if not all(digests):
        raise RuntimeError("a forked process could not release")
    return digests


@dataclass(frozen=True)
class Revealed:
    """Everything that a release reveals: noisy numbers in one row, and public facts, equal for all neighbours.

    Among these are the `shapes` of its tables, and the number of the mechanism to which each `belongs`.
    """

    numbers: IntArray
    public: dict[str, Any]

    @property
    def mechanism_of(self) -> IntArray:
        """The number of each number's mechanism."""
        return np.repeat(self.public["belongs"], [math.prod(shape) for shape in self.public["shapes"]])

    @property
    def variances(self) -> FloatArray:
        """That of each number."""
        return np.array([float(each.variance) for each in self.public["guarantee"].mechanisms])[self.mechanism_of]


def revealed(prepared: Prepared, released: Any) -> Revealed:
    """Everything at once, because a row of transitions is released once."""
    if isinstance(prepared, OnVisits):
        nodes = np.arange(prepared.where.pair_count)
        tables = [released.pairs, *(released.transitions(step, nodes) for step in range(prepared.problem.horizon))]
        belongs = [0] + [1] * prepared.problem.horizon
    else:
        trees = [*released.levels, *([] if released.unobserved is None else [released.unobserved])]
        sums = [table.counts for table in released.on_top.values()]
        # In the guarantee's order; a table that it leaves out is compared with its last one.
        last = len(released.guarantee.mechanisms) - 1
        tables, belongs = [*trees, *sums], [0] * len(trees) + [min(1 + i, last) for i in range(len(sums))]
    totals = getattr(released, "totals", None)
    public = {
        "guarantee": released.guarantee,
        "total": getattr(released, "total", None),
        "totals": None if totals is None else totals.tolist(),
        "shapes": [table.shape for table in tables],
        "belongs": belongs,
    }
    return Revealed(np.concatenate([table.ravel() for table in tables]), public)


def layouts(prepared: Prepared, counts: Revealed, *, per_unit: int) -> tuple[TableLayout, ...]:
    """What the formulas of `privacy.sensitivity` say of these tables."""
    if isinstance(prepared, OnVisits):
        nodes = {"pairs": prepared.where.pair_count, "states": prepared.where.state_count}
        return visit_tables(prepared.problem, **nodes, per_unit=per_unit)
    # Levels are (*labels, H, k, kinds, size). Unless the log is complete, one table counts what is unobserved.
    problem, belongs = prepared.problem, counts.public["belongs"]
    trees = [shape for shape in counts.public["shapes"] if len(shape) == len(problem.labels.shape) + 4]
    layout = outcome_trees(
        problem,
        level_sizes=tuple(shape[-1] for shape in trees),
        per_unit=per_unit,
        complete=len(trees) == belongs.count(0),
        labels_public=counts.public["guarantee"].labels == "public",
    )
    on_top = [table.layout(problem, per_unit=per_unit) for name, table in ON_TOP.items() if prepared.on_top[name]]
    return (layout, *on_top)


def exact_counts(prepared: Prepared, log: Log) -> Revealed:
    """What a release without noise would reveal."""
    return revealed(prepared, prepared.release(log, Exact()))


class Exact:
    """No noise: the exact counts, for an attacker who knows everything but the noise."""

    def begin(self) -> Exact:
        """Itself."""
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """The counts."""
        return counts.copy()


class Frozen:
    """Tables that do not depend on the counts. A policy learned from them must not depend on the log either."""

    def begin(self) -> Frozen:
        """From the beginning."""
        self.rng = np.random.default_rng(0)
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Numbers that do not depend on the counts."""
        return self.rng.integers(0, 40, counts.shape)


class Repeated:
    """Many releases from one count: the door counts once, and the sampler of every release adds its own noise.

    A count in an engine takes a tenth of a second, and it is the same for each release of a log. Each sampler is begun
    as for a fit, and gets the same calls from the door as the sampler of a fit does.
    """

    def __init__(self, sources: Iterable[NoiseSource]) -> None:
        self._sources = list(sources)
        self._samplers: list[Sampler] = []
        self._tables: list[Rows] = []
        self.variances: list[Fraction] = []

    def begin(self) -> Repeated:
        """A sampler for every release."""
        self._samplers = [source.begin() for source in self._sources]
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """The table of the first release. Those of all are kept."""
        noisy = [sampler.add(counts, variance) for sampler in self._samplers]
        self._tables.append(np.stack([table.ravel() for table in noisy]).astype(np.int32))
        self.variances.append(variance)
        return noisy[0]

    @property
    def numbers(self) -> Rows:
        """What was drawn, (releases, numbers), in the order in which the door asked for it."""
        return np.concatenate(self._tables, axis=1)


def construction_faults(*stated: Fraction) -> list[str]:
    """The faults of the sampler of secure noise, for these variances and some others."""
    failed = [f"the sampler fails its self-test: {fault}" for fault in sampler_faults()]
    if failed:
        return failed
    faults, variances = [], dict.fromkeys((*stated, *PROBED_VARIANCES))
    if not all(np.array_equal(inversion(each).thresholds, thresholds(each)[1]) for each in variances):
        faults.append("the table of a distribution is not exact")
    if not all(_follows_from_key(each) for each in variances):
        faults.append("noise does not follow from the key that the system drew and the stated variance")
    if can_be_continued():
        faults.append("a forked process can continue a release")
    return faults


def in_child(work: Callable[[], bytes]) -> bytes:
    """What some work in a forked process returns; nothing, if it fails there."""
    fork = get_context("fork")
    answer, end = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: end.send_bytes(work()))
    child.start()
    end.close()
    with answer, suppress(EOFError):
        return answer.recv_bytes()
    return b""


def _follows_from_key(variance: Fraction) -> bool:
    def draw() -> bytes:
        SecureNoise().begin()  # its self-test needs real keys
        asked: list[int] = []

        def known(size: int) -> bytes:
            asked.append(size)
            return KNOWN_KEY[:size]

        vars(secure)["urandom"] = known  # in this process alone
        noise = SecureNoise().begin().add(np.zeros(PROBED_DRAWS, dtype=np.int64), variance)
        return noise.tobytes() if asked == [len(KNOWN_KEY)] else b""

    return in_child(draw) == drawn_with(KNOWN_KEY, variance, PROBED_DRAWS).tobytes()


def drawn_with(key: bytes, variance: Fraction, count: int) -> IntArray:
    """The first numbers that a release with this key draws: AES block by block, decimals, and a search."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    blocks = b"".join(number.to_bytes(16, "big") for number in range((count + 1) // 2))
    words = np.frombuffer(Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(blocks), dtype="<u8")
    lowest, edges = thresholds(variance)
    # A word on an edge, which would not decide, comes up once in 2⁵⁰.
    return np.asarray(lowest + np.searchsorted(edges, words[:count], side="right"), dtype=np.int64)


@lru_cache(maxsize=8)
def thresholds(variance: Fraction) -> tuple[int, RandomWords]:
    """The least k, and ⌊2⁶⁴ P(X ≤ k)⌋ from the last k where it is 0 to the first where it is 2⁶⁴ − 1, by decimals."""
    with localcontext() as context:
        context.prec = DIGITS
        exponent = Decimal(-variance.denominator) / (2 * variance.numerator)
        # Beyond 14σ a tail is below 2⁻¹⁴⁰.
        weights = [(k * k * exponent).exp() for k in range(math.ceil(14 * math.sqrt(variance)) + 4)]
        tails = [*accumulate(reversed(weights[1:]))][::-1]  # Σ_{j>k} from the far end
        upper = [tail / (1 + 2 * tails[0]) for tail in tails]
        below = [int(2**64 * tail) for tail in upper]
        end = below.index(0) + 1
        above = [int(2**64 * (1 - tail)) for tail in upper[:end]]
    return -end, np.array(below[:end][::-1] + above, dtype=np.uint64)


def can_be_continued() -> bool:
    """Whether a fork can go on where its parent's stream is, by any of its methods."""
    stream = Stream()
    stream.take(2)

    def go_on() -> bytes:
        answer = b"refused"
        for method in (partial(stream.take, 2), partial(stream.words, 0, 2)):
            with suppress(RuntimeError):
                method()
                answer = b"went on"
        return answer

    return in_child(go_on) != b"refused"
