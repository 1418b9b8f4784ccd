"""Many releases of two logs, in blocks: what each block tells the two attacks, and the tests of the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from poolrl.audit.evidence import ReleaseMoments, Rows, learned_score, stated_score
from poolrl.audit.neighbours import Revealed, revealed
from poolrl.audit.noise import NUMBERS_AT_ONCE
from poolrl.audit.parts import NoiseEvidence, Parts, look_at_noise
from poolrl.audit.repeated import Repeated
from poolrl.audit.structure import NOISE
from poolrl.audit.worst_case import Configured
from poolrl.checks import FloatArray, IntArray
from poolrl.data.log import Log
from poolrl.pool import Prepared

# The share of releases from which the second attack learns, and by which thresholds are chosen.
TRAINING = 0.2
# Releases of each log that share one count, at most.
RELEASES_AT_ONCE = 1000
# Releases of each log that are made like a fit, from the engine's count to the last table.
END_TO_END = {"arrays": 100, "table": 20}
# The second attack looks at so many numbers at most: at those that move, if there are more.
MOST_LEARNED = 400


@dataclass
class Gathered:
    """What all blocks together show. Scores come in the order of releases, those of training first."""

    noise: NoiseEvidence | None = None
    blocks: list[tuple[int, list[FloatArray], list[FloatArray]]] = field(default_factory=list)
    moments: list[ReleaseMoments | None] = field(default_factory=lambda: [None, None])
    trained: int = 0

    @property
    def stated(self) -> list[FloatArray]:
        """The scores of the first attack, of each log."""
        ordered = sorted(self.blocks, key=lambda block: block[0])
        return [np.concatenate([block[1][which] for block in ordered]) for which in (0, 1)]

    @property
    def judged(self) -> list[FloatArray]:
        """Those of the second attack, without the releases from which it learned."""
        ordered = sorted(self.blocks, key=lambda block: block[0])
        return [np.concatenate([block[2][which] for block in ordered if block[2]]) for which in (0, 1)]


@dataclass(frozen=True)
class Block:
    """What one block of releases adds."""

    start: int
    stated: list[FloatArray]
    judged: list[FloatArray]
    moments: list[ReleaseMoments]
    noise: NoiseEvidence


@dataclass(frozen=True)
class Attack:
    """An attack on a case: what its releases are compared with, and how many there are of each log."""

    case: Configured
    rho: float
    noise: str
    exact: tuple[Revealed, Revealed]
    each: int
    end_to_end: int
    about: Parts
    learned_from: IntArray  # the places of the numbers that the second attack looks at

    @classmethod
    def on(cls, case: Configured, rho: float, noise: str, exact: tuple[Revealed, Revealed], releases: int) -> Attack:
        """The attack on the logs that have these exact counts, by so many releases of both together."""
        numbers = exact[0].numbers.size
        each = releases // 2
        about = Parts.of(tuple(exact[0].public["shapes"]), exact[0].table_variances, 2 * each)
        moves = exact[0].numbers != exact[1].numbers
        # Some of every part.
        some = [
            where.start + np.flatnonzero(moves[where])[: MOST_LEARNED // len(about.slices)] for where in about.slices
        ]
        learned_from = np.arange(numbers) if numbers <= MOST_LEARNED else np.concatenate(some)
        # The training releases are the first, so these are among them.
        whole_fits = max(1, min(END_TO_END[case.engine], each // 100))
        return cls(case, rho, noise, exact, each, whole_fits, about, learned_from)

    def run(self, workers: int, progress: Callable[[int], None]) -> Gathered:
        """All releases: first those from which the second attack learns."""
        cut = int(TRAINING * self.each)
        found = Gathered(trained=cut)
        self._look(found, None, [(0, self.end_to_end), *self._blocks(self.end_to_end, cut)], workers, progress)
        first, second = found.moments
        assert first is not None
        assert second is not None
        score = learned_score(first, second, self.exact[0].variances[self.learned_from])
        self._look(found, score, self._blocks(cut, self.each), workers, progress)
        return found

    def _blocks(self, start: int, end: int) -> list[tuple[int, int]]:
        length = max(2, min(RELEASES_AT_ONCE, NUMBERS_AT_ONCE // self.about.numbers) // 2 * 2)
        return [(at, min(length, end - at)) for at in range(start, end, length)]

    def _look(
        self,
        found: Gathered,
        score: Callable[[Rows], FloatArray] | None,
        blocks: list[tuple[int, int]],
        workers: int,
        progress: Callable[[int], None],
    ) -> None:
        import joblib

        run = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", backend="loky")
        for block in run(joblib.delayed(self._block)(score, *each) for each in blocks if each[1]):
            found.noise = block.noise if found.noise is None else found.noise + block.noise
            found.blocks.append((block.start, block.stated, block.judged))
            if score is None:
                pairs = zip(found.moments, block.moments, strict=True)
                found.moments = [more if so_far is None else so_far + more for so_far, more in pairs]
            progress(len(block.stated[0]) + len(block.stated[1]))

    def _block(self, score: Callable[[Rows], FloatArray] | None, start: int, count: int) -> Block:
        prepared = self.case.prepared(self.rho)
        with self.case.logs() as logs:
            released = [self._released(prepared, log, which, start, count) for which, log in enumerate(logs)]
        first, second = (each.numbers for each in self.exact)
        noise = [rows - each.astype(np.int32) for rows, each in zip(released, (first, second), strict=True)]
        looked_at = [rows[:, self.learned_from] for rows in released]
        places = start, self.each + start
        return Block(
            start,
            [stated_score(rows, first, second, self.exact[0].variances) for rows in released],
            [] if score is None else [score(rows) for rows in looked_at],
            [] if score is not None else [ReleaseMoments.of(rows) for rows in looked_at],
            look_at_noise(noise[0], noise[1], self.about, places),
        )

    def _released(self, prepared: Prepared, log: Log, which: int, start: int, count: int) -> Rows:
        """So many releases of a log, (count, numbers): the first of all from end to end, others from one count."""
        # The two logs get different seeds, because the noise of a common seed would cancel in the difference.
        sources = [NOISE[self.noise](2 * number + which) for number in range(start, start + count)]
        if start >= self.end_to_end:
            repeated = Repeated(sources)
            numbers = revealed(prepared, prepared.release(log, repeated)).numbers
            drawn = repeated.numbers
            if drawn.shape[1] == numbers.size and np.array_equal(drawn[0], numbers):
                return drawn
        # Also where the door releases anything else than what its sampler drew.
        rows = [revealed(prepared, prepared.release(log, source)).numbers for source in sources]
        return np.stack(rows).astype(np.int32)
