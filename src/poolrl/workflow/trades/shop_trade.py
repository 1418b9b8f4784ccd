"""The trade of shops: order-up-to levels of products whose shelves run empty."""

from __future__ import annotations

from poolrl.problems.inventory import Backlog, LostSales
from poolrl.workflow.trades.trade import LEVELS_FILE, Trade, part
from poolrl.workflow.trades.vocabulary import Words


class ShopTrade(Trade):
    """Lost sales, or backlog."""

    earns = False
    # Shelves that held more would have sold what was asked for, and the log tells that on most days.
    why_no_backtest = ""
    before_switch = "replay it on later weeks of the log: poolrl backtest {folder}"
    section = part("poolrl.workflow.trades.shop_section:ShopFacts")
    example = part("poolrl.workflow.trades.shop_example:write_example")
    fields = part("poolrl.workflow.trades.shop_findings:fields_of_rows")
    findings = part("poolrl.workflow.trades.shop_findings:rows_of_shops")
    judge = part("poolrl.workflow.budget:judge_levels")
    forecast = part("poolrl.workflow.trades.shop_forecast:make_forecast")
    cost_by_model = part("poolrl.workflow.trades.shop_levels:cost_by_model")
    desk = part("poolrl.workflow.desk:ShopDesk")
    page = part("poolrl.workflow.trades.shop_levels:shop_page")
    decisions_file = LEVELS_FILE
    decisions_csv = part("poolrl.workflow.decision_tables:levels_csv")


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
