"""`poolrl decide`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from poolrl.cli.verbs import AsJson, verb
from poolrl.shop.decide import answer_as_json, decide_csv, decide_lines
from poolrl.shop.desk import Desk, stock_from_text

decide_verb = verb(
    "decide",
    examples="""\
  poolrl decide release/policy.npz --step Sat --stock bread=10,milk=20,salad=5
  poolrl decide release/policy.npz --step 6 --stock 10,20,5 --whole --json
  poolrl decide release/policy.npz --csv stocks.csv --out orders.csv
  echo '{"step": "Sat", "stock": [10, 20, 5]}' \\
      | poolrl decide release/policy.npz --lines -""",
)


@decide_verb.default
def decide(
    policy: Annotated[Path, Parameter(help="A policy that fit has written.")],
    *,
    step: Annotated[str | None, Parameter(help="Name or number of the step.")] = None,
    stock: Annotated[
        str | None, Parameter(help="Stock of each product; an empty shelf if left out.", allow_leading_hyphen=True)
    ] = None,
    csv: Annotated[
        Path | None, Parameter(help="CSV with columns step and products; - is a pipe.", allow_leading_hyphen=True)
    ] = None,
    lines: Annotated[
        Path | None,
        Parameter(
            help="JSON lines with step and stock; - is a pipe, whose lines are answered as they come.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Where answers to a file go; standard output if left out.")] = None,
    whole: Annotated[bool, Parameter(help="Round levels to whole units.", negative="")] = False,
    json: AsJson = False,
) -> None:
    """Choose the kind of question; refuse flags that do not go together."""
    if sum(question is not None for question in (step, csv, lines)) != 1:
        raise ValueError("decide answers one of --step NAME, --csv FILE or --lines FILE")
    if step is None and (stock is not None or json):
        raise ValueError("--stock and --json go with --step; --lines answers in JSON anyway")
    if step is not None and out is not None:
        raise ValueError("--out goes with --csv and --lines")
    if csv is not None:
        decide_csv(policy, csv, out, whole=whole)
    elif lines is not None:
        decide_lines(policy, lines, out, whole=whole)
    elif step is not None:
        _decide_one(Desk.open(policy), step, stock, whole=whole, as_json=json)


def _decide_one(desk: Desk, step: str, stock: str | None, *, whole: bool, as_json: bool) -> None:
    """One question from the command line; without a stock the shelf is empty."""
    products, number = desk.names.products, desk.step(step)
    given = desk.stock([0.0] * len(products) if stock is None else stock_from_text(stock))
    levels = desk.levels([number], [given], whole=whole)[0]
    if as_json:
        question = {"step": desk.names.steps[number], "stock": dict(zip(products, given, strict=True))}
        print(answer_as_json(desk, question, levels, given))
        return
    width = max(len("product"), *map(len, products))
    print(f"{'product':<{width}}  {'stock':>10}  {'order up to':>11}  {'order':>10}")
    for name, have, level in zip(products, given, levels, strict=True):
        print(f"{name:<{width}}  {have:>10.10g}  {level:>11.2f}  {level - have:>10.2f}")
