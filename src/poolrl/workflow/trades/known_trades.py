"""The trades of the package: order-up-to levels of shops; reserves of auctions, prices and bids of rounds."""

from pathlib import Path
from typing import Any

import numpy as np

from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.rounds import DynamicPricing, FirstPriceBidding, ReserveAuction
from poolrl.workflow.trades.trade import LEVELS_FILE, TableColumn, Trade, Words, part

EXAMPLE_SALES, EXAMPLE_SEED = 800, 1
UNSOLD = {"keep": "an unsold unit is worth"}


class ShopTrade(Trade):
    """Lost sales, or backlog."""

    earns = False
    # Shelves that held more would have sold what was asked for, and the log tells that on most days.
    why_no_backtest = ""
    before_switch = "replay it on later weeks of the log: poolrl backtest {folder}"
    section = part("poolrl.workflow.trades.problem_section:ShopFacts")
    example = part("poolrl.workflow.trades.shop_example:write_example")
    fields = part("poolrl.workflow.trades.shop_findings:fields_of_rows")
    findings = part("poolrl.workflow.trades.shop_findings:rows_of_shops")
    judge = part("poolrl.workflow.budget:judge_levels")
    forecast = part("poolrl.workflow.trades.shop_forecast:make_forecast")
    cost_by_model = part("poolrl.workflow.page:cost_by_model")
    desk = part("poolrl.workflow.desk:ShopDesk")
    page = part("poolrl.workflow.page:shop_page")
    decisions_file = LEVELS_FILE
    decisions_csv = part("poolrl.workflow.decision_tables:levels_csv")


class RoundTrade(Trade):
    """One of the package's own problems of rounds."""

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """A simulated table, and the facts of its configuration.

        Things are of very different size: their scale is what an expert thought before, and people decide by that.
        """
        # Here, because `decide` must not wait for what simulates.
        import pyarrow as pa
        import pyarrow.csv

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
        state, action, after = (part.reshape(-1, part.shape[-1]) for part in (log.states, log.actions, log.next_states))
        number, step = np.divmod(np.arange(len(state)), problem.horizon)
        success = after[:, 0] <= state[:, 0] - 0.5
        # A row as people have it: count, decision, flag, and what is shown, where it is.
        count, decision, flag, *_ = (column.name for column in words.columns)
        columns = {words.trajectory: number + 1, words.step: step + 1, "estimate": size[number].round(2)}
        columns |= {count: state[:, 0], decision: action[:, 0].round(4), flag: np.where(success, "yes", "no")}
        for name, shown in zip(problem.shows, after[:, problem.state_dim :].T, strict=True):
            columns[name] = pa.array(shown.round(4), mask=~success & (shown == action[:, 0]))
        source = f"{words.trajectory}s.csv"
        folder.mkdir(parents=True, exist_ok=True)
        pyarrow.csv.write_csv(pa.table(columns), folder / source)
        table: dict[str, Any] = {"source": source, "trajectory": words.trajectory, "step": words.step, "first_step": 1}
        privacy: dict[str, Any] = {"rho": 1.0, "budget": 2.0, "ledger": "ledger.sqlite"}
        return {
            "problem": {"kind": self.kind, **dict(self.problem.example)},
            "log": table | {"scale": ["estimate"], "scale_memory": 0},
            "privacy": privacy | {"data_set": f"example of {self.kind}", "protects": f"one {words.trajectory}"},
            "plan": {"units": EXAMPLE_SALES},
        }


WORDS = Words(
    decision="order-up-to level",
    decisions="order-up-to levels",
    past="orders",
    scope="{count} products",
    outcome="demand",
    trajectory="week",
    step="day",
    logged="stocks and sales",
    earned="minus the cost",
    estimate="Kaplan-Meier estimate of demand beyond empty shelves",
    # Only the ratio of both costs matters: half the cost of a missed sale is twice that of what is left.
    costs={"shortage": "a missed sale costs"},
    advice="Fill the shelf up to this number, whatever is still on it.",
)
LOST_SALES, BACKLOG = ShopTrade("lost sales", LostSales, WORDS), ShopTrade("backlog", Backlog, WORDS)
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
            TableColumn("stock", "units left before the period", otherwise="1", spared=lambda one: one.stock == 1),
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
            TableColumn("wanted", "wins still wanted before a round", otherwise="1", spared=lambda one: one.wins == 1),
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
