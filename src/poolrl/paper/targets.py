"""Our own targets for the default, judged from the same results by the same rule as the claims of the paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poolrl.paper import sweeps
from poolrl.paper.claims import Claim, Comparisons, Verdict, approaches, beats
from poolrl.paper.runs import Runs
from poolrl.paper.statistics import Estimate, mean_difference, of_mean
from poolrl.paper.sweeps import BASE, INPUT, OUTPUT, PLACES, RHOS, Range, Setting

RIVALS = ((INPUT, "IP"), (OUTPUT, "OP"))


def _ratio(rival: Setting, times: float) -> Comparisons:
    """The rival's gap minus so many times the learner's."""

    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        pairs = runs.paired([learner, replace(learner, method=rival.method)])
        if not len(pairs):
            return []
        about = f"{100 * pairs[:, 0].mean():.3f} against {100 * pairs[:, 1].mean():.1f} percent"
        return [mean_difference(100 * pairs * np.array([times, 1.0]), about)]

    return compare


def _gap_below(limit: float, rho: float) -> Comparisons:
    """How far the gap on Store 1 stays below a limit."""

    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        gaps = runs.paired([sweeps.real(replace(learner, rho=rho))])
        return [of_mean(limit - 100 * gaps[:, 0], f"gap {100 * gaps.mean():.2f} percent")] if len(gaps) else []

    return compare


def _from(least: float) -> Range:
    return replace(RHOS, values=tuple(rho for rho in RHOS.values if rho >= least))


def _targets() -> list[Claim]:
    found = []
    for data in sweeps.PAPERS:
        for rival, name in RIVALS:
            compare = beats(rival, PLACES[data], _from(0.03))
            found.append(Claim(f"beats {name} at every ρ ≥ 0.03", data, f"gap of {name} − gap", "pp", compare))
    for rival, name in RIVALS:
        text, statistic = f"gap at most 1/20 of {name}'s at ρ = 1", f"gap of {name} − 20 gap"
        found.append(Claim(text, sweeps.SYNTHETIC, statistic, "pp", _ratio(rival, 20)))
    for data in sweeps.KNOWN_OPTIMUM:
        text = "within 0.5 pp of NonPrivate at every ρ ≥ 1, n = 10,000"
        compare = approaches(PLACES[data], _from(1.0), 0.005)
        found.append(Claim(text, data, "0.5 pp − |gap − gap at ρ = ∞|", "pp", compare))
    for rho, limit in ((10.0, 2.0), (1.0, 8.0)):
        text = f"gap to SAA on the same 66 weeks at most {limit:g}% at ρ = {rho:g}"
        found.append(Claim(text, sweeps.STORE_1, f"{limit:g} − gap", "pp", _gap_below(limit, rho)))
    return found


TARGETS = tuple(_targets())


def target_verdicts(runs: Runs) -> list[Verdict]:
    """Every target, for the default."""
    return [claim.verdict(runs, BASE) for claim in TARGETS]
