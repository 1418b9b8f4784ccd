"""Trade: a world as the application shows it, by the declarations of its problem; and reserves, prices and bids."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrl.problems.problem import OutcomeProblem, Problem
from poolrl.problems.rounds import DynamicPricing, FirstPriceBidding, ReserveAuction
from poolrl.workflow.trades.vocabulary import TableColumn, Words

if TYPE_CHECKING:
    from rich.progress import Progress

    from poolrl.data.table import Table
    from poolrl.learning.faded_trees import FadedTrees
    from poolrl.learning.policy import Policy
    from poolrl.simulation.families import World
    from poolrl.workflow.check import LogFinding
    from poolrl.workflow.config.configuration import ConfigFile
    from poolrl.workflow.config.sections import ProblemSection
    from poolrl.workflow.desk import Desk
    from poolrl.workflow.forecast import Forecast
    from poolrl.workflow.trades.trade import TradePage

# Paths on which policies of simulated fits are compared.
JUDGING_PATHS = 10_000
EXAMPLE_SALES, EXAMPLE_SEED = 800, 1
UNSOLD = {"keep": "an unsold unit is worth"}


class Trade:
    """A problem's class, its name in a configuration, its words, and what the application does for it.

    Here everything follows from the problem's declarations, as it does for a user's own problem. Methods import what
    they need when they are called: `poolrl decide` looks up one number, and does not wait for what draws pages.
    """

    earns = True  # whether a trajectory is judged by what it earns, and not by what it costs
    # How to compare a release in {folder} with today, as an order.
    before_switch = "try it on a part, chosen by lot, and compare"

    def __init__(self, kind: str, problem: type[Problem], words: Words | None = None) -> None:
        self.kind, self.problem = kind, problem
        self.words: Words = getattr(problem, "words", Words()) if words is None else words

    @property
    def section(self) -> type[ProblemSection]:
        """Its [problem] in `poolrl.toml`: the constructor's arguments."""
        from poolrl.workflow.trades.declared_section import DeclaredFacts

        return DeclaredFacts

    @property
    def cost_words(self) -> dict[str, str]:
        """Of costs that may change, how a sentence about their size begins."""
        return dict(self.words.costs) or {name: f"{name} is" for name in getattr(self.problem, "costs", ())}

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write a simulated table, and return the facts of its configuration. Nobody knows a user's own log."""
        raise ValueError(f"there is no example of {self.kind}: write --facts, and --columns for your table")

    def fields(self, file: ConfigFile) -> Iterable[LogFinding]:
        """What `poolrl check` says of fields, before rows are made of them."""
        return []

    def findings(self, file: ConfigFile, log: Table) -> Iterable[LogFinding]:
        """What `poolrl check` says of the rows."""
        from poolrl.workflow.trades.declared_findings import rows_of_table

        return rows_of_table(file, log)

    @property
    def why_no_backtest(self) -> str:
        """Why a policy cannot be replayed on a log, in words; empty where it can."""
        words = self.words
        return (
            f"nothing can be replayed: the log does not tell what other {words.decisions} would have met. It shows "
            f"{words.outcome} only as far as past {words.decisions} did. Try the policy on a part, chosen by lot, and "
            "compare"
        )

    def judge(self, problem: Any, world: World) -> tuple[Callable[[Policy], float], Policy]:
        """What a policy costs in an assumed world, and the policy of somebody who knows that world."""
        from poolrl.simulation.evaluation import rollout_cost, saa

        rng = np.random.default_rng(0)
        best = saa(problem, world.sample(problem, 2 * JUDGING_PATHS, rng))
        paths = world.sample(problem, JUDGING_PATHS, rng)
        return lambda policy: rollout_cost(problem, policy, paths), best

    def forecast(self, policy: Policy, trees: FadedTrees | None, progress: Progress) -> Forecast:
        """What today's decisions and the policy earn or cost, and whether to switch."""
        from poolrl.workflow.trades.round_forecast import forecast_rounds

        return forecast_rounds(policy, trees, progress=progress)

    def desk(self, policy: Policy) -> Desk:
        """Where a policy is asked in the user's words."""
        from poolrl.workflow.desk import StateDesk

        return StateDesk(policy, self.words)

    def cost_by_model(self, policy: Policy, problem: Any) -> float:
        """What a trajectory costs by the policy's model, and by the costs of a problem."""
        from poolrl.workflow.trades.round_forecast import earned_by_model

        return -earned_by_model(policy, problem)

    def page(self, policy: Policy, forecast: Forecast) -> TradePage:
        """What stands in the blocks of the page."""
        from poolrl.workflow.page import declared_page

        return declared_page(policy, forecast)

    def decisions_file(self, policy: Policy) -> tuple[str, str]:
        """The name of the file that holds all decisions as CSV, and its text."""
        from poolrl.workflow.decision_tables import DECISIONS_FILE, decisions_csv

        return DECISIONS_FILE, decisions_csv(policy)


class RoundTrade(Trade):
    """One of the package's own problems of rounds."""

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """A simulated table, and the facts of its configuration.

        Things of very different size: their scale is what an expert thought before. People decide by that, and a
        little by chance. Outcomes are about as large as the scale, more or less.
        """
        # Here, because `decide` must not wait for what simulates.
        from poolrl.simulation.logs import simulate_log

        words = self.words
        problem: Any = self.problem(**self.problem.example)
        rng = np.random.default_rng(EXAMPLE_SEED)
        size = np.exp(rng.normal(4.0, 1.2, EXAMPLE_SALES))
        scale = np.broadcast_to(size[:, None, None], (EXAMPLE_SALES, problem.horizon, 1))
        value = rng.lognormal(-0.05, 0.35, (EXAMPLE_SALES, problem.horizon, problem.outcome_dim))
        outcomes = problem.arranged(np.minimum(value, problem.outcome_high)) * scale

        def behaviour(step: int, state: Any, rng: np.random.Generator) -> Any:
            return scale[:, step] * rng.uniform(0.4, 1.3, (len(state), 1))

        log = simulate_log(problem, outcomes, rng=rng, behaviour=behaviour, scale=scale)
        source = f"{words.trajectory}s.csv"
        folder.mkdir(parents=True, exist_ok=True)
        names = [column.name for column in words.columns]
        with (folder / source).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [words.trajectory, words.step, "estimate", *names])
            writer.writeheader()
            for number, step in np.ndindex(EXAMPLE_SALES, problem.horizon):
                row = {words.trajectory: number + 1, words.step: step + 1, "estimate": f"{size[number]:.2f}"}
                parts = (part[number, step] for part in (log.states, log.actions, log.next_states))
                writer.writerow(row | _table_row(names, problem, *parts))
        return {
            "problem": {"kind": self.kind, **dict(self.problem.example)},
            "log": {
                "source": source,
                "trajectory": words.trajectory,
                "step": words.step,
                "first_step": 1,
                "scale": ["estimate"],
                "scale_memory": 0,
            },
            "privacy": {
                "protects": f"one {words.trajectory}",
                "rho": 1.0,
                "budget": 2.0,
                "data_set": f"example of {self.kind}",
                "ledger": "ledger.sqlite",
            },
            "plan": {"units": EXAMPLE_SALES},
        }


def _table_row(names: list[str], problem: OutcomeProblem, state: Any, action: Any, after: Any) -> dict[str, Any]:
    """A row of rounds as people have it: count, decision, flag, and what is shown, where it is."""
    count, decision, flag, *_ = names
    success = bool(after[0] <= state[0] - 0.5)
    shown = {
        name: f"{value:.4f}" if abs(value - action[0]) > 0 or success else ""
        for name, value in zip(problem.shows, after[problem.state_dim :], strict=True)
    }
    return {count: f"{state[0]:g}", decision: f"{action[0]:.4f}", flag: "yes" if success else "no"} | shown


RESERVES = RoundTrade(
    "reserve-auction",
    ReserveAuction,
    Words(
        decision="reserve",
        decisions="reserves",
        past="reserves",
        outcome="bids",
        outcomes=("highest bids", "second bids"),
        states=("lots",),
        trajectory="sale",
        alone="lot",
        step="round",
        logged="reserves, sales and prices",
        earned="revenue",
        estimate="estimate of bids below the reserve: Kaplan-Meier from above, or isotonic where bids are not shown",
        costs=UNSOLD,
        advice="Let no lot go below this reserve while this many lots are left.",
        keys={
            "horizon": "rounds of one sale: 1 where each lot is sold by itself",
            "lots": "lots of one thing at the beginning of a sale",
            "bid_max": "no bid and no reserve exceeds this, by public knowledge, in money or in multiples of the scale",
            "keep": "what a lot is worth to you that is never sold",
            "sees_highest": "whether the log shows the winner's bid, and not only the price that was paid",
        },
        columns=(
            TableColumn("lots", "lots that are left before the round", otherwise="1", spared=lambda one: one.lots == 1),
            TableColumn("reserve", "the reserve of the round"),
            TableColumn("sold", "whether the lot was sold", "flag"),
            TableColumn("price", "what it was sold for; empty if it was not sold"),
            TableColumn(
                "highest",
                "the winner's bid, where sees_highest = true",
                otherwise="{price}",
                spared=lambda one: not one.sees_highest,
            ),
        ),
        rows=(("{lots}",), ("{reserve}",), ("{lots} - {sold}",)),
        shown={
            "highest": "CASE WHEN {sold} > 0 THEN {highest} ELSE {reserve} END",
            "price": "CASE WHEN {sold} > 0 THEN {price} ELSE {reserve} END",
        },
    ),
)
PRICES = RoundTrade(
    "dynamic-pricing",
    DynamicPricing,
    Words(
        decision="price",
        decisions="prices",
        past="prices",
        outcome="what things are worth to buyers",
        states=("stock",),
        trajectory="season",
        alone="buyer",
        step="period",
        logged="prices and sales",
        earned="revenue",
        estimate="isotonic estimate of buyers' values, of which only the side of a price is known",
        costs=UNSOLD,
        advice="Ask this price while this many units are left.",
        keys={
            "horizon": "periods of one season, in each of which one buyer comes",
            "stock": "units at the beginning of a season",
            "price_max": "no price and no value exceeds this, by public knowledge, in money or multiples of the scale",
            "keep": "what a unit is worth to you that is never sold",
        },
        columns=(
            TableColumn(
                "stock", "units that are left before the period", otherwise="1", spared=lambda one: one.stock == 1
            ),
            TableColumn("price", "the price that was asked"),
            TableColumn("sold", "whether it was bought", "flag"),
        ),
        rows=(("{stock}",), ("{price}",), ("{stock} - {sold}",)),
    ),
)
BIDS = RoundTrade(
    "first-price-bidding",
    FirstPriceBidding,
    Words(
        decision="bid",
        decisions="bids",
        past="bids",
        outcome="competing bids",
        states=("wanted",),
        trajectory="season",
        alone="auction",
        step="round",
        logged="bids and wins",
        earned="value above what was paid",
        estimate="estimate of competing bids that were not shown: Kaplan-Meier, or isotonic where none is shown",
        costs={"worth": "a win is worth"},
        advice="Bid this amount while this many wins are still wanted.",
        keys={
            "horizon": "rounds of one season",
            "wins": "how many wins are wanted in a season",
            "worth": "what a win is worth to you",
            "bid_max": "no bid exceeds this, by public knowledge, in money or in multiples of the scale",
            "feedback": 'when the competing bid is shown: "lost", "won" or "never"',
        },
        columns=(
            TableColumn(
                "wanted",
                "wins that are still wanted before the round",
                otherwise="1",
                spared=lambda one: one.wins == 1,
            ),
            TableColumn("bid", "your bid"),
            TableColumn("won", "whether it won", "flag"),
            TableColumn(
                "competing",
                "the highest competing bid, where it is shown",
                otherwise="{bid}",
                spared=lambda one: not one.shows,
            ),
        ),
        rows=(("{wanted}",), ("{bid}",), ("{wanted} - {won}",)),
        shown={"competing": "COALESCE({competing}, {bid})"},
    ),
)
