"""Reserves on real auctions: 628 of eBay, hidden below simulated reserves and judged on the bids that were not shown.

    POOLRL_EBAY=auction.csv.gz python -m benchmarks.auctions            # about two minutes on two cores
    POOLRL_EBAY=auction.csv.gz python -m benchmarks.auctions --write

The data set of Jank and Shmueli, "Modeling Online Auctions" (Cartier watches, Palm Pilots, Xbox consoles), on Kaggle as
"Online Auctions Dataset". It may not be redistributed, so bring a copy. Columns: auctionid, bid, bidder, openbid,
price, item. Of each auction, the highest bids of its two highest bidders count; eBay shows of the winner's bid only
what the second one forced, so revenues are those of a seller who meets such bids.

Half of the auctions (by lot, ten times) are the log: a seller sets a reserve, and bids below it are hidden. Reserves
are set in three ways: anywhere up to the bound, between 0.5 and 1.1 times the median price of the item (what a
catalogue might say), or as eBay's sellers really opened (openbid). The other half is the judge, with all its bids.
Items are labels, and amounts are multiples of their scale, the rounded price of such a thing in a shop: public.
Revenue is the mean share of that scale. Noise is seeded, so nothing here is private.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import Report, run
from poolrl import Policy, Pool, ReserveAuction, SeededNoise, Trajectories, data_free, saa
from poolrl.checks import FloatArray

# What such a thing cost in a shop, by public knowledge: the scale of its auctions.
SHOP_PRICE = {"Cartier wristwatch": 2000.0, "Palm Pilot M515 PDA": 300.0, "Xbox game console": 200.0}
MOST, SPLITS = 2.0, 10
BUDGETS = (math.inf, 10.0, 1.0, 0.1)
WAYS = ("anywhere", "catalogue", "as they opened")


@dataclass(frozen=True)
class Auctions:
    """The two highest bids of each auction and its opening price, as shares of the item's scale."""

    bids: FloatArray  # (n, 2)
    opened: FloatArray
    item: FloatArray  # (n,) names


def read_auctions(path: Path) -> Auctions:
    """Highest bids of the two highest bidders, by auction."""
    best: dict[str, dict[str, float]] = defaultdict(dict)
    facts: dict[str, tuple[str, float]] = {}
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            mine = best[row["auctionid"]]
            mine[row["bidder"]] = max(mine.get(row["bidder"], 0.0), float(row["bid"]))
            facts[row["auctionid"]] = row["item"], float(row["openbid"])
    bids, opened, item = [], [], []
    for auction, by_bidder in best.items():
        name, start = facts[auction]
        top = sorted(by_bidder.values(), reverse=True)[:2]
        bids.append([each / SHOP_PRICE[name] for each in (top + [0.0])[:2]])
        opened.append(start / SHOP_PRICE[name])
        item.append(name)
    return Auctions(np.minimum(np.array(bids), MOST), np.minimum(np.array(opened), MOST), np.array(item))


def reserves(way: str, auctions: Auctions, rng: np.random.Generator) -> FloatArray:
    """What sellers set, before they know a bid."""
    if way == "anywhere":
        return rng.uniform(0.0, MOST, len(auctions.item))
    if way == "as they opened":
        return auctions.opened
    usual = {name: np.median(auctions.bids[auctions.item == name, 1]) for name in SHOP_PRICE}
    return np.array([usual[name] for name in auctions.item]) * rng.uniform(0.5, 1.1, len(auctions.item))


def shown(problem: ReserveAuction, auctions: Auctions, reserve: FloatArray) -> Trajectories:
    """The log: bids below the reserve are not in it."""
    state, action = np.ones((len(reserve), 1)), reserve[:, None]
    after = problem.next_state(0, state, action, auctions.bids)
    state, action, after = (part[:, None] for part in (state, action, after))
    return Trajectories(states=state, actions=action, next_states=after, labels={"item": auctions.item})


def revenue(reserve: FloatArray, bids: FloatArray) -> float:
    """The mean revenue of reserves (n,) on bids (n, 2)."""
    return float(np.where(bids[:, 0] >= reserve, np.maximum(bids[:, 1], reserve), 0.0).mean())


def policy_revenue(policy: Policy, auctions: Auctions) -> float:
    """That of a policy, item by item."""
    labels = {"item": auctions.item} if policy.problem.labels else {}
    return revenue(policy.act(0, np.ones((len(auctions.item), 1)), labels=labels)[:, 0], auctions.bids)


def best_per_item(known: Auctions, judged: Auctions) -> float:
    """The best reserve of each item for a seller who knows all bids of the log, without privacy."""
    single, chosen = ReserveAuction(bid_max=MOST), np.zeros(len(judged.item))
    for name in SHOP_PRICE:
        policy = saa(single, known.bids[known.item == name][:, None])
        chosen[judged.item == name] = policy.act(0, [1.0])[0]
    return revenue(chosen, judged.bids)


def measure(report: Report, options: argparse.Namespace) -> None:
    """A table of mean revenues over splits."""
    path = Path(os.environ.get("POOLRL_EBAY", ""))
    if not path.is_file():
        raise SystemExit("set POOLRL_EBAY to the eBay auctions (auction.csv or .csv.gz); see --help")
    every, rows = read_auctions(path), []
    names = [
        "today",
        *(f"ρ = {'∞' if math.isinf(rho) else f'{rho:g}'}" for rho in BUDGETS),
        "data-free",
        "all bids known",
    ]
    for sees in (True, False):
        problem = ReserveAuction(bid_max=MOST, sees_highest=sees, labels={"item": list(SHOP_PRICE)})
        for way in WAYS:
            found = np.array([_split(problem, every, way, seed) for seed in range(SPLITS)])
            known = "winner's bid shown" if sees else "price alone"
            error = found.std(axis=0, ddof=1) / math.sqrt(SPLITS)
            rows.append(
                [f"{way}, {known}", *(f"{m:.3f} ± {e:.3f}" for m, e in zip(found.mean(axis=0), error, strict=True))]
            )
    report.text(
        f"{len(every.item)} auctions, half of them the log; revenue as a share of the item's price in a shop, mean ± "
        f"standard error over {SPLITS} splits. Rows say how reserves of the log were set, and what it shows."
    )
    report.table(["reserves of the log", *names], rows)


def _split(problem: ReserveAuction, every: Auctions, way: str, seed: int) -> list[float]:
    rng = np.random.default_rng([seed, WAYS.index(way)])
    order = rng.permutation(len(every.item))
    half = len(order) // 2
    log, judge = (Auctions(every.bids[part], every.opened[part], every.item[part]) for part in np.split(order, [half]))
    reserve = reserves(way, log, rng)
    rows = shown(problem, log, reserve)
    policies = [Pool(rho).fit(problem, rows, noise=SeededNoise(seed)) for rho in BUDGETS]
    today = revenue(reserves(way, judge, rng), judge.bids)
    fitted = [policy_revenue(policy, judge) for policy in policies]
    return [today, *fitted, policy_revenue(data_free(problem), judge), best_per_item(log, judge)]


if __name__ == "__main__":
    run(Report("auctions", "Real auctions: reserves on eBay", ("learning", "problems")), measure)
