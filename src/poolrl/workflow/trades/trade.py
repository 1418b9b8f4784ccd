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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolrl.problems.inventory import Depot
from poolrl.problems.problem import Problem
from poolrl.problems.registry import KINDS

if TYPE_CHECKING:
    from poolrl.workflow.trades.declared_trade import Trade

# Every trade of the package by its name in a configuration. The problem of the same name is in `KINDS`.
TRADES = {
    "lost sales": "poolrl.workflow.trades.shop_trade:LOST_SALES",
    "backlog": "poolrl.workflow.trades.shop_trade:BACKLOG",
    "reserve-auction": "poolrl.workflow.trades.declared_trade:RESERVES",
    "dynamic-pricing": "poolrl.workflow.trades.declared_trade:PRICES",
    "first-price-bidding": "poolrl.workflow.trades.declared_trade:BIDS",
}
# Problems that are posed on the model of another, and shown as that one.
SHOWN_AS: dict[type[Problem], str] = {Depot: "lost sales"}
# The class of all trades, which makes one of the declarations of a problem.
DECLARED = "poolrl.workflow.trades.declared_trade:Trade"
# The folder whose modules a configuration may name; None where it is not trusted to name code at all.
_TRUSTED: ContextVar[Path | None] = ContextVar("trusted", default=None)


@dataclass(frozen=True)
class PageTable:
    """A table: each row begins with its name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    title: str = ""
    picture: str = ""  # SVG, safe to be set as it is


@dataclass(frozen=True)
class PageSection:
    """A block of words, of points with a bold beginning, and of a table. `code` in backquotes is set as such."""

    name: str
    title: str
    text: str
    points: Sequence[tuple[str, str]] = ()
    table: PageTable | None = None
    link: str = ""  # from the top of the page


@dataclass(frozen=True)
class TradePage:
    """A trade's part of the page of a policy, without its empty fields."""

    name: str  # of the block of decisions, with its title, and what to do with a decision
    title: str
    advice: str
    file: str  # that holds all decisions
    compared: Sequence[str]  # what today's decisions, the policy and, if it is shown, knowing everything are called
    amounts: str  # what the numbers beside these are
    caution: str  # what they rest on
    tables: Sequence[PageTable]  # of decisions
    left_out: str = ""  # how many decisions no table shows
    levels: dict[str, Any] | None = None  # for the script, which shows them in the place of the tables
    sections: Sequence[PageSection] = ()


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
    return _declared(name, problem)


def trade_of(problem: Problem) -> Trade:
    """The trade of a problem; of a user's own one that is made from its declarations."""
    kind = next((name for name, known in KINDS.items() if known is type(problem)), SHOWN_AS.get(type(problem)))
    if kind is not None:
        return trade_named(kind)
    return _declared(f"{type(problem).__module__}:{type(problem).__name__}", type(problem))


def own_problem(problem: Problem) -> Problem | None:
    """A problem of the user's own, without which a file of it cannot be read."""
    return None if type(problem) in KINDS.values() else problem


def _declared(kind: str, problem: type[Problem]) -> Trade:
    trade: Trade = _imported(DECLARED)(kind, problem)
    return trade


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
