"""Trade: a world as the application shows it. The application asks a trade, and never which one it is.

A trade is found by the name that a configuration gives it. Every name stands for an import path, so that only what is
named is imported, and a user's own problem is found in the same way:

[problem]
kind = "reserve-auction"          # one of TRADES
kind = "hospital:Beds"            # class Beds of the module hospital, beside the configuration or installed
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from poolrl.problems.inventory import Depot
from poolrl.problems.problem import Problem
from poolrl.problems.registry import KINDS

if TYPE_CHECKING:
    from rich.progress import Progress

    from poolrl.certificate.certificate import CertifiedWords
    from poolrl.data.table import Table
    from poolrl.learning.faded_trees import FadedTrees
    from poolrl.learning.policy import Policy
    from poolrl.simulation.families import World
    from poolrl.workflow.check import LogFinding
    from poolrl.workflow.config.configuration import ConfigFile
    from poolrl.workflow.config.sections import ProblemSection
    from poolrl.workflow.desk import Desk
    from poolrl.workflow.forecast import Forecast

# Every trade of the package by its name in a configuration. The problem of the same name is in `KINDS`.
TRADES = {
    "lost sales": "poolrl.workflow.trades.known_trades:LOST_SALES",
    "backlog": "poolrl.workflow.trades.known_trades:BACKLOG",
    "reserve-auction": "poolrl.workflow.trades.known_trades:RESERVES",
    "dynamic-pricing": "poolrl.workflow.trades.known_trades:PRICES",
    "first-price-bidding": "poolrl.workflow.trades.known_trades:BIDS",
}
# Problems that are posed on the model of another, and shown as that one.
SHOWN_AS: dict[type[Problem], str] = {Depot: "lost sales"}
LEVELS_FILE, DECISIONS_FILE = "levels.csv", "decisions.csv"
# The folder whose modules a configuration may name; None where it is not trusted to name code at all.
_TRUSTED: ContextVar[Path | None] = ContextVar("trusted", default=None)


@dataclass(frozen=True)
class TableColumn:
    """A column that people have in their tables."""

    name: str
    reads: Literal["number", "flag"] = "number"  # a flag is a word that means yes or no
    otherwise: str = ""  # SQL in its place, where a problem needs no such column and none is named
    spared: Callable[[Any], bool] = lambda problem: False  # of a problem: whether it needs no such column


@dataclass(frozen=True)
class Words:
    """The words of a problem, all in lower case, as they stand in the middle of a sentence."""

    decision: str = "action"
    decisions: str = "actions"
    past: str = "actions"  # what past decisions are called
    scope: str = "each number of {names}"  # what decisions are for: {names} of the state or of products, their {count}
    outcome: str = "outcomes"
    outcomes: tuple[str, ...] = ()  # a name for each of them, where there are several
    states: tuple[str, ...] = ("state",)  # a name for each coordinate of the state
    trajectory: str = "trajectory"
    alone: str = ""  # what a trajectory of one step is called
    step: str = "step"
    logged: str = "states and actions"  # what the log holds
    earned: str = "reward"  # what a trajectory is judged by; more is better
    estimate: str = "estimate of outcomes that were cut off"  # what replaces a plain count
    advice: str = "Do this in each state."  # what to do with a decision
    # Why each argument of the constructor is asked for.
    keys: Mapping[str, str] = field(default_factory=dict)
    # The columns of a table, and how states, actions and next states follow from it, as SQL in which {name} is a
    # column; and so what a row shows besides, by its name. Without columns, a table has these parts themselves.
    columns: tuple[TableColumn, ...] = ()
    rows: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())
    shown: Mapping[str, str] = field(default_factory=dict)

    def certified(self, names: list[str], *, censored: bool) -> CertifiedWords:
        """Those that papers repeat; `names` are those of products, or of the numbers of a state."""
        # Here, because `decide` needs words and no papers.
        from poolrl.certificate.certificate import CertifiedWords

        plain = {name: getattr(self, name) for name in ("decisions", "past", "outcome", "trajectory", "logged")}
        scope = self.scope.format(count=len(names), names=" and ".join(names))
        return CertifiedWords(**plain, scope=scope, estimate=self.estimate if censored else "")


@dataclass(frozen=True)
class PageTable:
    """A table: each row begins with its name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    title: str = ""


@dataclass(frozen=True)
class TradePage:
    """What a trade shows of a policy; the words around it stand in the page's template (assets/page.html)."""

    tables: Sequence[PageTable]  # of decisions, where no script shows levels
    left_out: int  # how many combinations of labels no table shows
    levels: dict[str, Any] | None = None  # of a shop, for the script
    hidden: PageTable | None = None  # what empty shelves hid, if they did; it may have no rows


def part(path: str) -> Any:
    """A part of a trade by its import path. It is imported when it is asked for, so `decide` waits for no page."""
    return _Part(path)


@dataclass(frozen=True)
class _Part:
    path: str

    def __get__(self, trade: Trade | None, owner: type[Trade]) -> Any:
        return _imported(self.path)


class Trade:
    """A problem's class, its words, and what the application does for it, by the problem's declarations alone."""

    earns = True  # whether a trajectory is judged by what it earns, and not by what it costs
    # How to compare a release in {folder} with today, as an order.
    before_switch = "try it on a part, chosen by lot, and compare"
    # Its [problem] in `poolrl.toml`.
    section: type[ProblemSection] = part("poolrl.workflow.trades.problem_section:DeclaredFacts")
    # What `poolrl check` says of the rows.
    findings: Callable[[ConfigFile, Table], Iterable[LogFinding]] = part("poolrl.workflow.check:rows_of_table")
    # What a policy costs in an assumed world, and the policy of somebody who knows that world.
    judge: Callable[[Any, World], tuple[Callable[[Policy], float], Policy]] = part(
        "poolrl.workflow.budget:judge_on_paths"
    )
    # What today's decisions and the policy earn or cost, and whether to switch.
    forecast: Callable[[Policy, FadedTrees | None, Progress], Forecast] = part(
        "poolrl.workflow.trades.round_forecast:forecast_rounds"
    )
    # What a trajectory costs by the policy's model, and by the costs of a problem.
    cost_by_model: Callable[[Policy, Any], float] = part("poolrl.workflow.trades.round_forecast:played_cost")
    # Where a policy is asked in the user's words.
    desk: Callable[[Policy], Desk] = part("poolrl.workflow.desk:StateDesk")
    # What stands in the blocks of the page.
    page: Callable[[Policy, Forecast], TradePage] = part("poolrl.workflow.page:declared_page")
    # The file that holds all decisions, and its text.
    decisions_file = DECISIONS_FILE
    decisions_csv: Callable[[Policy], str] = part("poolrl.workflow.decision_tables:decisions_csv")

    def __init__(self, kind: str, problem: type[Problem], words: Words | None = None) -> None:
        self.kind, self.problem = kind, problem
        self.words: Words = getattr(problem, "words", Words()) if words is None else words

    @property
    def why_no_backtest(self) -> str:
        """Why a policy cannot be replayed on a log, in words; empty where it can."""
        words = self.words
        return (
            f"nothing can be replayed: the log does not tell what other {words.decisions} would have met. It shows "
            f"{words.outcome} only as far as past {words.decisions} did. Try the policy on a part, chosen by lot, and "
            "compare"
        )

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write a simulated table, and return the facts of its configuration. Nobody knows a user's own log."""
        raise ValueError(f"there is no example of {self.kind}: write --facts, and --columns for your table")

    def fields(self, file: ConfigFile) -> Iterable[LogFinding]:
        """What `poolrl check` says of fields, before rows are made of them."""
        return []


@contextmanager
def code_beside(configuration: Path) -> Iterator[None]:
    """Let a configuration name a problem of one's own. Never for one that a stranger sent: a name is code that runs."""
    before = _TRUSTED.set(configuration.resolve().parent)
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def trade_named(name: str) -> Trade:
    """The trade that a configuration names."""
    if name in TRADES:
        trade: Trade = _imported(TRADES[name])
        return trade
    if not all(name.partition(":")):
        near = get_close_matches(name, TRADES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(TRADES)}"
        raise ValueError(f"kind {name!r} is not known; {hint} Your own problem is named module:Class")
    folder = _TRUSTED.get()
    if folder is None:
        raise ValueError(
            f"kind {name!r} is code of somebody's own, which runs when it is named: give the configuration yourself, "
            "with --config, if you trust it"
        )
    sys.path.insert(0, str(folder))
    try:
        problem = _imported(name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"kind {name!r} cannot be imported: {error}") from None
    finally:
        sys.path.remove(str(folder))
    if not (isinstance(problem, type) and issubclass(problem, Problem)) or inspect.isabstract(problem):
        raise ValueError(f"kind {name!r} must be a complete subclass of poolrl.Problem")
    return Trade(name, problem)


def trade_of(problem: Problem) -> Trade:
    """The trade of a problem; of a user's own one that is made from its declarations."""
    kind = next((name for name, known in KINDS.items() if known is type(problem)), SHOWN_AS.get(type(problem)))
    if kind is not None:
        return trade_named(kind)
    return Trade(f"{type(problem).__module__}:{type(problem).__name__}", type(problem))


def own_problem(problem: Problem) -> Problem | None:
    """A problem of the user's own, without which a file of it cannot be read."""
    return None if type(problem) in KINDS.values() else problem


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
