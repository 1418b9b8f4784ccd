"""The trades of the package: order-up-to levels of shops; reserves of auctions, prices and bids of rounds."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.rounds import DynamicPricing, FirstPriceBidding, ReserveAuction
from poolrl.workflow.trades.trade import LEVELS_FILE, TableColumn, Trade, Words, part

EXAMPLE_SALES, EXAMPLE_SEED = 800, 1
WORDS = tomllib.loads((Path(__file__).parents[1] / "assets" / "trades.toml").read_text("utf-8"))


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


def words_of(name: str) -> Words:
    """The words of trades.toml, and the columns of its table."""
    facts: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in WORDS[name].items()
    }
    return Words(**facts | {"columns": tuple(_column(**column) for column in facts.get("columns", ()))})


def _column(spared: dict[str, Any] | None = None, **facts: Any) -> TableColumn:
    """A column that no problem needs which has all the facts of `spared`."""

    def is_spared(problem: Any) -> bool:
        return spared is not None and all(getattr(problem, name) == fact for name, fact in spared.items())

    return TableColumn(**facts, spared=is_spared)


LOST_SALES = ShopTrade("lost sales", LostSales, words_of("shops"))
BACKLOG = ShopTrade("backlog", Backlog, words_of("shops"))
RESERVES = RoundTrade("reserve-auction", ReserveAuction, words_of("reserve-auction"))
PRICES = RoundTrade("dynamic-pricing", DynamicPricing, words_of("dynamic-pricing"))
BIDS = RoundTrade("first-price-bidding", FirstPriceBidding, words_of("first-price-bidding"))
