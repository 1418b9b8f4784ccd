"""`poolrl decide`."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from poolrl.cli.verbs import AsJson, verb
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.decide import decide_csv, decide_lines
from poolrl.workflow.desk import BASIS, Desk
from poolrl.workflow.json_lines import answers_as_json, in_columns, question_of
from poolrl.workflow.kind_desk import KindDesk, decide_kind_csv, decide_kind_lines, decide_kind_once
from poolrl.workflow.plan_desk import PlanDesk, is_plan
from poolrl.workflow.stock_table import CsvForm
from poolrl.workflow.trades.trade import own_problem
from poolrl.workflow.words import amounts_from_text

decide_verb = verb(
    "decide",
    examples="""\
  poolrl decide release/policy.npz --step Sat --stock bread=10,milk=20,salad=5
  poolrl decide release/policy.npz --step 6 --stock 10,20,5 --whole --json
  poolrl decide release/policy.npz --step Sat --packs bread=12,milk=6
  poolrl decide release/policy.npz --step Sat --labels shop=7,promo=yes --scale 30
  poolrl decide release/policy.npz --csv stocks.csv --out orders.csv
  poolrl decide orders/plan.npz --step Sat --stock 10,20,5 --coming 0,6,0
  poolrl decide release/policy.npz --step 3 --stock lots=2 --labels item=watch
  poolrl decide release/policy.npz --csv bestand.csv --delimiter ';' --decimal ','
  echo '{"step": "Sat", "stock": [10, 20, 5]}' \\
      | poolrl decide release/policy.npz --lines -
  echo '{"step": "Sat", "product": "bread", "stock": 10}' \\
      | poolrl decide release/policy.npz --lines -""",
    more="""\
A CSV file has a row for each shop, or for each shop and product:
  step,bread,milk,salad,shop,promo,scale
  step,product,stock,shop,promo,scale
Other columns stay as they are. Names may be German: Wochentag, Artikel,
Bestand, Erwartung. A column pack (Gebinde) is the size of a pack. For each
product: scale_bread,... and pack_bread,...

Labels (here shop and promo) and scale are needed where the policy was learned
with them. JSON lines give them by the same names. A value that was not
declared, such as a new shop, gets the population's levels. The column basis
says whose levels decided: own or population.

Other problems than shops: --stock gives the state by its name (lots=2), a CSV
file has a column for it and gets one for the decision. A problem of your own
needs --config, the configuration that names it.

Packs: what is ordered is the multiple of the pack that comes nearest to the
level. Half a pack counts as one. Beyond the public bound at most one pack is
ordered.""",
)


@decide_verb.default
def decide(
    policy: Annotated[Path, Parameter(help="A policy that fit has written, or a plan of replan.")],
    *,
    step: Annotated[str | None, Parameter(help="Name or number of the step.")] = None,
    stock: Annotated[
        str | None, Parameter(help="Stock of each product; an empty shelf if left out.", allow_leading_hyphen=True)
    ] = None,
    labels: Annotated[str | None, Parameter(help="With --step: the value of each label, shop=7,promo=yes.")] = None,
    scale: Annotated[
        str | None, Parameter(help="With --step: what is expected, one number or bread=30,milk=12.")
    ] = None,
    coming: Annotated[
        list[str] | None,
        Parameter(help="With a plan for a lead time: what arrives in 1, 2, ... steps, once for each."),
    ] = None,
    csv: Annotated[
        Path | None, Parameter(help="CSV of stocks, wide or long (below); - is a pipe.", allow_leading_hyphen=True)
    ] = None,
    lines: Annotated[
        Path | None,
        Parameter(
            name=("--lines", "--jsonl"),
            help="JSON lines with step and stock; - is a pipe, whose lines are answered as they come.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Where answers to a file go; standard output if left out.")] = None,
    whole: Annotated[bool, Parameter(help="Round levels to whole units.", negative="")] = False,
    packs: Annotated[
        str | None, Parameter(help="Order in whole packs: their sizes, bread=12,milk=6. Others come singly.")
    ] = None,
    delimiter: Annotated[str, Parameter(help="With --csv: the sign between cells, or tab.")] = ",",
    decimal: Annotated[str, Parameter(help="With --csv: the sign before decimals, . or ,")] = ".",
    config: Annotated[
        Path | None, Parameter(help="For a problem of your own: the configuration that names it.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Choose the kind of question; refuse flags that do not go together."""
    if sum(question is not None for question in (step, csv, lines)) != 1:
        raise ValueError("decide answers one of --step NAME, --csv FILE or --lines FILE")
    if step is None and (stock is not None or json):
        raise ValueError("--stock and --json go with --step; --lines answers in JSON anyway")
    if step is None and (labels is not None or scale is not None):
        raise ValueError("--labels and --scale go with --step; a file has its own in each row")
    if step is not None and out is not None:
        raise ValueError("--out goes with --csv and --lines")
    form = CsvForm("\t" if delimiter in ("tab", "\\t") else delimiter, decimal)
    if csv is None and form != CsvForm():
        raise ValueError("--delimiter and --decimal go with --csv")
    sizes = None if packs is None else _pairs_from_text(packs, "packs")
    if is_plan(policy):
        if step is None or sizes is not None or scale is not None or whole:
            raise ValueError(f"{policy} is a plan, whose orders are what the shop can place: ask it with --step")
        _ask_plan(PlanDesk.open(policy), step, stock, labels, coming or [], as_json=json)
        return
    own = None if config is None else own_problem(load_config(config).config.problem.posed)
    if (other := KindDesk.open(policy, own)) is not None:
        if sizes is not None or coming or whole:
            raise ValueError("--packs, --coming and --whole are for orders of shops")
        _ask_kind(other, step, (stock, labels, scale), csv, lines, out, form, as_json=json)
        return
    if coming:
        raise ValueError("--coming goes with a plan for a lead time, by 'poolrl replan'")
    notes: list[str] = []
    if csv is not None:
        notes = decide_csv(policy, csv, out, whole=whole, form=form, packs=sizes)
    elif lines is not None:
        notes = decide_lines(policy, lines, out, whole=whole, packs=sizes)
    elif step is not None:
        desk = Desk.open(policy)
        row = {"step": step, "stock": [0.0] * len(desk.names.products)}
        given = {"stock": stock, "scale": scale}
        row |= {what: _amounts(text, what) for what, text in given.items() if text is not None}
        _decide_one(
            desk, row | (_pairs_from_text(labels, "labels") if labels else {}), sizes, whole=whole, as_json=json
        )
    for note in notes:
        print(f"poolrl: note: {note}", file=sys.stderr)


def _ask_kind(
    desk: KindDesk,
    step: str | None,
    said: tuple[str | None, str | None, str | None],
    csv: Path | None,
    lines: Path | None,
    out: Path | None,
    form: CsvForm,
    *,
    as_json: bool,
) -> None:
    if csv is not None:
        decide_kind_csv(desk, csv, out, form)
    elif lines is not None:
        decide_kind_lines(desk, lines, out)
    elif step is not None:
        stock, labels, scale = said
        states = desk.names.products
        given = amounts_from_text(stock, "stock") if stock else desk.policy.problem.initial_state.tolist()
        if not isinstance(given, dict):
            if len(given) != len(states):
                raise ValueError(f"--stock must give {', '.join(states)}")
            given = dict(zip(states, given, strict=True))
        row = {"step": step, **given, **(_pairs_from_text(labels, "labels") if labels else {})}
        decide_kind_once(desk, row | ({} if scale is None else {"scale": scale}), as_json=as_json)


def _ask_plan(
    desk: PlanDesk, step: str, stock: str | None, labels: str | None, coming: list[str], *, as_json: bool
) -> None:
    products = desk.names.products
    place, held = desk.step(step), [0.0] * len(products)
    if stock is not None:
        held = desk.stock(amounts_from_text(stock, "stock"))
    named = _pairs_from_text(labels, "labels") if labels else {}
    later = [desk.stock(amounts_from_text(each, "coming")) for each in coming]
    order = desk.order(place, held, named, later)
    if as_json:
        by_product = [dict(zip(products, each, strict=True)) for each in (held, order.tolist())]
        print(dumps({"step": desk.names.steps[place], **named, "stock": by_product[0], "order": by_product[1]}))
        return
    width = max(len("product"), *map(len, products))
    print(f"{'product':<{width}}  {'stock':>10}  {'order':>10}")
    for name, have, more in zip(products, held, order, strict=True):
        print(f"{name:<{width}}  {have:>10.10g}  {more:>10.2f}")


def _pairs_from_text(text: str, what: str) -> dict[str, Any]:
    found = amounts_from_text(text, what)
    if not isinstance(found, dict):
        raise ValueError(f"--{what} must be pairs, for example {'bread=12,milk=6' if what == 'packs' else 'shop=7'}")
    return found


def _amounts(text: str, what: str) -> Any:
    found = amounts_from_text(text, what)
    return found[0] if what == "scale" and len(found) == 1 and isinstance(found, list) else found


def _decide_one(desk: Desk, row: dict[str, Any], packs: dict[str, Any] | None, *, whole: bool, as_json: bool) -> None:
    """One question from the command line; without a stock the shelf is empty."""
    for name in (*desk.labels, *(["scale"] if desk.scaled else [])):
        if name not in row:
            flag = "--scale" if name == "scale" else f"--labels {name}=..."
            raise ValueError(f"this policy was learned with {name}: give {flag}")
    products = desk.names.products
    asked = question_of(desk, row, None if packs is None else desk.positive("pack", packs, some=True))
    answered = desk.shelf.answer(in_columns(desk, [asked]), whole=whole)
    shown = {"step": desk.names.steps[asked.step], "stock": dict(zip(products, asked.stock, strict=True))}
    if as_json:
        shown |= {name: row[name] for name in desk.labels}
        shown |= {"scale": dict(zip(products, asked.scale, strict=True))} if desk.scaled else {}
        print(*answers_as_json(desk, [(1, shown)], answered))
        return
    width = max(len("product"), *map(len, products))
    print(f"{'product':<{width}}  {'stock':>10}  {'order up to':>11}  {'order':>10}")
    for name, have, level, order in zip(products, asked.stock, answered.up_to[0], answered.order[0], strict=True):
        print(f"{name:<{width}}  {have:>10.10g}  {level:>11.2f}  {order:>10.2f}")
    if answered.population[0]:
        print(f"Levels of the {BASIS[1]}: a label value was not declared.")
