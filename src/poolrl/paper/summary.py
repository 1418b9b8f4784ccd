"""The first screen of the report: one picture, what was run, one table, and conclusions computed from the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from poolrl.paper import figures, sweeps
from poolrl.paper.claims import Verdict
from poolrl.paper.runs import Runs
from poolrl.paper.sections import Picture, Section, in_percent, number
from poolrl.paper.statistics import judge, mean_difference
from poolrl.paper.sweeps import BASE, DATA_FREE, INPUT, NAMES, OUTPUT, PLACES, PUBLISHED, SOFTENED, Setting
from poolrl.privacy.zcdp import epsilon_shown

HEADLINE_DATA = (sweeps.SYNTHETIC, "normal demand", sweeps.STORE_1)
HEADLINE_METHODS = (BASE, SOFTENED, PUBLISHED, INPUT, OUTPUT, DATA_FREE)


@dataclass(frozen=True)
class Origin:
    """Where the rows came from, as the results file remembers it."""

    runs: int  # rows in the file
    seconds: float  # of running, all calls together
    workers: str
    md5: str | None  # of train.csv, where rows used it
    quick: bool = False

    @property
    def effort(self) -> str:
        """How much was run."""
        return f"{self.runs:,} runs in {self.seconds / 60:.1f} minutes, {self.workers} at a time"


def summary_section(runs: Runs, judged: Sequence[Verdict], origin: Origin) -> Section:
    """What a busy reader needs; `judged` are the verdicts on the paper's own data."""
    counts = {name: Counter(each.verdict for each in judged if each.learner == name) for name in NAMES.values()}
    places = [place for place in HEADLINE_DATA if runs.of(PLACES[place](BASE))]
    rows = []
    for method in HEADLINE_METHODS:
        found, gaps = counts[NAMES[method]], [in_percent(runs, PLACES[place](method), spread=False) for place in places]
        tally = (found["holds"], found["does not hold"], found["undecided"] + found["vacuous"])
        rows.append((NAMES[method], *(str(count) if found else "" for count in tally), *gaps))
    header = ("method", "claims hold", "do not hold", "undecided", *(f"gap, {place}" for place in places))
    text = (_what_was_run(runs, origin), *_conclusions(runs, counts, places))
    papers = [place for place in places if place in sweeps.PAPERS]
    alt = "Relative gap of POOL, input and output perturbation against the privacy budget"
    picture = Picture("rq1", alt, figures.budgets(runs, papers)) if papers else None
    return Section("In short", text, header, tuple(row for row in rows if any(row[1:])), picture)


def _what_was_run(runs: Runs, origin: Origin) -> str:
    data = "simulated demand" if origin.md5 is None else "simulated demand and daily sales of Rossmann stores"
    quick = " This is a *quick* look: it has fewer values and seeds than the paper, so verdicts are provisional."
    return (
        f"{origin.effort}; {runs.seeds} seeds; {data}. The gap is the cost above SAA in percent. SAA plans on "
        "uncensored demand, without privacy. The table counts the verdicts on the paper's claims (vacuous ones as "
        f"undecided), and has gaps at ρ = 1 (ε = {epsilon_shown(1.0)} at δ = 10⁻⁶).{quick if origin.quick else ''}"
    )


def _conclusions(runs: Runs, counts: dict[str, Counter[str]], places: Sequence[str]) -> list[str]:
    """Plain sentences. The rows choose every number, and every word that could be otherwise."""
    found = []
    ours, softened, printed = (counts[NAMES[learner]] for learner in (BASE, SOFTENED, PUBLISHED))
    if ours:
        found.append(
            f"{ours['holds']} of the paper's {ours.total()} claims hold for the default Pool, on the paper's data. For "
            f"the algorithm as published, {printed['holds']} of {printed.total()} hold with the printed constants, and "
            f"{softened['holds']} of {softened.total()} with a tuned scale of Γ."
            + (f" {ours['not run']} were not run." if ours["not run"] else "")
        )
    gaps = {
        "the default Pool": _gaps(runs, places, BASE),
        "Pool.published with a tuned scale of Γ": _gaps(runs, places, SOFTENED),
        "input and output perturbation": _gaps(runs, places, INPUT, OUTPUT),
    }
    said = [f"for {who} it is {_least_to_largest(values)} percent" for who, values in gaps.items() if values]
    if said:
        found.append(f"The gap at ρ = 1 depends on the data: {', '.join(said)}.")
    private = [runs.paired([PLACES[place](sweeps.NON_PRIVATE), PLACES[place](BASE)]) for place in places]
    prices = [100 * float((pairs[:, 1] - pairs[:, 0]).mean()) for pairs in private if len(pairs)]
    if prices:
        span = _least_to_largest(prices)
        found.append(f"Privacy at ρ = 1 costs the default Pool {span} percentage points of gap.")
    return [*found, *_what_data_give(runs, places)]


def _what_data_give(runs: Runs, places: Sequence[str]) -> list[str]:
    """Where the default beats the plan that sees no data, by the rule of the claims."""
    verdicts: dict[str, list[str]] = {}
    for place in places:
        pairs = runs.paired([PLACES[place](BASE), PLACES[place](DATA_FREE)], "gap_common")
        if len(pairs):
            verdicts.setdefault(judge([mean_difference(100 * pairs)])[0], []).append(place)
    words = {
        "holds": "The default Pool beats a plan without data on {}.",
        "does not hold": "A plan without data is at least as good on {}.",
        "undecided": "It is undecided whether the log helps on {}.",
    }
    said = [words[verdict].format(" and ".join(verdicts[verdict])) for verdict in words if verdict in verdicts]
    return [" ".join(said)] if said else []


def _gaps(runs: Runs, places: Sequence[str], *methods: Setting) -> list[float]:
    """The mean gap of each method on each data set, in percent."""
    measured = [runs.measured(PLACES[place](method), "gap") for place in places for method in methods]
    return [100 * float(values.mean()) for values in measured if len(values)]


def _least_to_largest(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(number(value) for value in (min(values), max(values))))
