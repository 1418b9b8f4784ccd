"""What this library asks of its own default, judged from the same results by the same rule as the paper's claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poolrl.paper import sweeps
from poolrl.paper.claims import KNOWN_OPTIMUM, PAPERS, PLACES, Claim, Comparisons, Place, Verdict, approaches, beats
from poolrl.paper.statistics import Interval, Table, mean_difference, of_mean
from poolrl.paper.sweeps import BASE, Setting, real


def _ratio(method: str, times: float) -> Comparisons:
    def compare(table: Table, learner: Setting) -> list[Interval]:
        pairs = table.paired([learner, replace(learner, method=method)])
        if not len(pairs):
            return []
        scaled = pairs * np.array([times, 1.0])
        about = f"{100 * pairs[:, 0].mean():.3f} against {100 * pairs[:, 1].mean():.1f} percent"
        return [mean_difference(100 * scaled, about)]

    return compare


def _at_most(place: Place, rho: float, limit: float) -> Comparisons:
    def compare(table: Table, learner: Setting) -> list[Interval]:
        gaps = table.paired([place(replace(learner, rho=rho))])
        if not len(gaps):
            return []
        about = f"gap {100 * gaps.mean():.2f} percent"
        return [of_mean(limit - 100 * gaps[:, 0], about)]

    return compare


def _targets() -> list[Claim]:
    strong = [rho for rho in sweeps.RHOS if rho >= 0.03]
    weak = [rho for rho in sweeps.RHOS if rho >= 1]
    found = []
    for data in PAPERS:
        for method, name in (("input", "IP"), ("output", "OP")):
            compare = beats(method, PLACES[data], strong)
            found.append(Claim(f"beats {name} at every ρ ≥ 0.03", data, f"gap of {name} − gap", "pp", compare))
    for method, name in (("input", "IP"), ("output", "OP")):
        text, statistic = f"gap at most 1/20 of {name}'s at ρ = 1", f"gap of {name} − 20 gap"
        found.append(Claim(text, "synthetic", statistic, "pp", _ratio(method, 20)))
    for data in KNOWN_OPTIMUM:
        compare = approaches(PLACES[data], weak, 0.005)
        text = "within 0.5 pp of NonPrivate at every ρ ≥ 1, n = 10,000"
        found.append(Claim(text, data, "0.5 pp − |gap − gap at ρ = ∞|", "pp", compare))
    for rho, limit in ((10.0, 2.0), (1.0, 8.0)):
        text = f"gap to SAA on the same 66 weeks at most {limit:g}% at ρ = {rho:g}"
        found.append(Claim(text, "Rossmann, Store 1", f"{limit:g} − gap", "pp", _at_most(real, rho, limit)))
    return found


TARGETS = tuple(_targets())


def target_verdicts(table: Table) -> list[Verdict]:
    """What this library asks of its own default."""
    return [claim.verdict(table, "Pool (default)", BASE) for claim in TARGETS]
