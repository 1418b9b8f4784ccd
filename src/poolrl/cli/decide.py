"""`poolrl decide`."""

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from poolrl.cli.verbs import AsJson, OwnConfig, verb
from poolrl.workflow.decision_tables import PLAIN, decide_table, open_desk
from poolrl.workflow.desk import Answers, Desk, Questions, pairs_from_text

decide_verb = verb("""\
  poolrl decide release/policy.npz --step Sat --stock bread=10,milk=20,salad=5
  poolrl decide release/policy.npz --step 6 --stock 10,20,5 --whole --json
  poolrl decide release/policy.npz --step Sat --packs bread=12,milk=6
  poolrl decide release/policy.npz --step Sat --labels shop=7,promo=yes --scale 30
  poolrl decide release/policy.npz --table stocks.csv --out orders.csv
  poolrl decide release/policy.npz --table bestand.csv --delimiter ';' --decimal ','
  poolrl decide orders/plan.npz --step Sat --stock 10,20,5 --coming 0,6,0
  poolrl decide release/policy.npz --step 3 --stock lots=2 --labels item=watch

A table has a row for each product of each shop:
  step,product,stock,shop,promo,scale
Other columns stay as they are. Names may be those of your log, as poolrl.toml declares them. A column pack is the size
of a pack.

Labels (here shop and promo) and scale are needed where the policy was learned with them. A policy answers a value that
was not declared, such as a new shop, with the population's levels. The column basis says which: own, population.

Other problems than shops: --stock gives the state by its name (lots=2), a table has a column for it and gets one for
the decision. A problem of your own needs --config, the configuration that names it.

Packs: an order is the multiple of the pack that comes nearest to the level. Half a pack counts as one. Beyond the
public bound at most one pack is ordered.""")


@decide_verb.default
def decide(
    policy: Annotated[Path, Parameter(help="A policy that fit has written, or a plan of replan.")],
    *,
    step: Annotated[str | None, Parameter(help="Name or number of the step.")] = None,
    stock: Annotated[
        str | None, Parameter(help="Stock of each product; an empty shelf if left out.", allow_leading_hyphen=True)
    ] = None,
    labels: Annotated[str | None, Parameter(help="With --step: the value of each label, shop=7,promo=yes.")] = None,
    scale: Annotated[str | None, Parameter(help="With --step: what is expected, 30 or bread=30,milk=12.")] = None,
    coming: Annotated[list[str] | None, Parameter(help="Of a plan: what arrives 1, 2, ... steps later.")] = None,
    table: Annotated[
        Path | None,
        Parameter(help="A CSV file of questions (below); - is a pipe.", allow_leading_hyphen=True),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Where answers to a table go; standard output if left out.")] = None,
    whole: Annotated[bool, Parameter(help="Round levels to whole units.")] = False,
    packs: Annotated[str | None, Parameter(help="With --step: the sizes of packs, bread=12; others singly.")] = None,
    delimiter: Annotated[str, Parameter(help="With --table: the sign between cells, or tab.")] = ",",
    decimal: Annotated[str, Parameter(help="With --table: the sign before decimals, . or ,")] = ".",
    config: OwnConfig = None,
    json: AsJson = False,
) -> None:
    """One question or a table of them; refuse flags that do not go together."""
    if (step is None) == (table is None):
        raise ValueError("decide answers one of --step NAME or --table FILE")
    if table is not None and (json or any(each is not None for each in (stock, labels, scale, coming, packs))):
        flags = "--stock, --labels, --scale, --coming, --packs and --json"
        raise ValueError(f"{flags} go with --step; a table has its own columns")
    if table is None and (out is not None or (delimiter, decimal) != PLAIN):
        raise ValueError("--out, --delimiter and --decimal go with --table")
    own = None
    if config is not None:
        from poolrl.workflow.config.configuration import load_config
        from poolrl.workflow.trades.trade import own_problem

        own = own_problem(load_config(config).config.problem.posed)
    desk = open_desk(policy, own)
    for flag, given in {"packs": packs, "whole": whole, "coming": coming}.items():
        if given and flag not in desk.takes:
            raise ValueError(f"--{flag} {desk.refusal}")
    if step is not None:
        asked = desk.question(step, stock=stock, labels=labels, scale=scale, packs=packs, coming=coming or [])
        answers = desk.answer(asked, whole=whole)
        print(dumps(_facts(desk, asked, answers, labels)) if json else "\n".join(_lines(desk, asked, answers)))
    elif table is not None:
        mark = "\t" if delimiter in ("tab", "\\t") else delimiter
        decide_table(desk, table, out, delimiter=mark, decimal=decimal, whole=whole)


def _facts(desk: Desk, asked: Questions, answers: Answers, labels: str | None) -> dict[str, Any]:
    """A question and its answer, for programs."""
    names = desk.names.products

    def by_product(amounts: Any) -> Any:
        shown = [round(float(amount), desk.decimals) for amount in amounts[0]]
        return dict(zip(names, shown, strict=True)) if desk.by_product else shown[0]

    state = {"stock": asked.state} if desk.by_product else {name: asked.state[:, [i]] for i, name in enumerate(names)}
    amounts = state | ({} if asked.scale is None else {"scale": asked.scale}) | answers
    shown = {name: each[0] if isinstance(each, list) else by_product(each) for name, each in amounts.items()}
    return {"step": desk.names.steps[int(asked.step[0])], **pairs_from_text(labels, "labels"), **shown}


def _lines(desk: Desk, asked: Questions, answers: Answers) -> list[str]:
    """An answer, for people: what to order of each product, or the decision."""
    basis = answers.pop("basis", ["own"])
    if not desk.by_product:
        return [f"{name}: {amounts[0, 0]:.6g}" for name, amounts in answers.items()]
    names = desk.names.products
    width, titles = max(len("product"), *map(len, names)), [name.replace("_", " ") for name in answers]
    lines = ["  ".join([f"{'product':<{width}}", f"{'stock':>10}", *(f"{title:>11}" for title in titles)])]
    for i, name in enumerate(names):
        amounts = [f"{each[0, i]:>11.2f}" for each in answers.values()]
        lines.append("  ".join([f"{name:<{width}}", f"{asked.state[0, i]:>10.10g}", *amounts]))
    return [*lines, *(["Levels of the population: a label value was not declared."] if basis != ["own"] else [])]
