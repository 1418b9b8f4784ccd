"""`poolrl init`: flags and questions, both made of the configuration's own keys."""

from __future__ import annotations

import sys
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.prompt import Prompt

from poolrl.cli.verbs import CONFIG_NAME, verb
from poolrl.problems.registry import KINDS
from poolrl.workflow.answers import (
    Answers,
    all_flags,
    asked_keys,
    check_answer,
    facts_from,
    flag_of,
    is_needless,
    missing_keys,
    split_names,
)
from poolrl.workflow.column_names import LABEL_MEANINGS
from poolrl.workflow.config_file import parse_config
from poolrl.workflow.config_log import SALES_ROLES
from poolrl.workflow.config_problem import SHOPS
from poolrl.workflow.example import write_example
from poolrl.workflow.header import Proposal, propose_columns
from poolrl.workflow.kind_init import (
    ASKED,
    kind_facts,
    kind_keys,
    needed_keys,
    own_keys,
    pairs,
    write_kind_example,
)
from poolrl.workflow.toml import write_toml
from poolrl.workflow.trades.trade import code_beside, trade_named

init_verb = verb(
    "init",
    examples="""\
  poolrl init                      asks, one key after the other
  poolrl init --example            a simulated chain of shops to try things on
  poolrl init --problem reserve-auction --example   auctions to try things on
  poolrl init --problem reserve-auction --facts "bid_max=4; lots=3; horizon=10" \\
      --columns "reserve=limit; sold=hammer" --source sales.csv --labels item=a,b \\
      --units 2000 --data-set "sales 2025" --rho 0.5
  poolrl init --sales export.csv   asks; proposes columns from the names in its header
  poolrl init --sales export.csv --decimal , --date-format %d.%m.%Y --yes ja --no nein \\
      --products bread,milk --holding 0.3,0.1 --shortage 0.6,0.4 --demand-max 4 \\
      --scale "same weekday, last 4 weeks" --labels "shop=1..40; promotion=nein,ja" \\
      --units 2000 --data-set "shops 2025" --rho 0.1
  poolrl init --products bread,milk --horizon 7 --holding 0.3,0.1 \\
      --shortage 0.6,0.4 --demand-max 150,200 --source log.parquet \\
      --units 2000 --data-set "shops 2025" --rho 0.1""",
)


# Kinds of the registry that are no shops.
OTHER_KINDS = [name for name in KINDS if name not in SHOPS]
# Asked only where they are needed, and then they are.
GO_TOGETHER = ("max_per_unit", "scale_memory")


def _help(why: str, answer: str | None) -> str:
    return why if not answer else f"{why} ({answer} if left out)"


# One flag for each key that `init` asks for; lists are separated by commas, or are the lines of a file behind @.
Flags: Any = Parameter(name="*")(
    make_dataclass(
        "Flags",
        [
            (key.flag, Annotated[str | None, Parameter(help=_help(key.why, key.answer))], field(default=None))
            for key in all_flags()
        ],
        kw_only=True,
        namespace={"__module__": __name__},  # where its annotations are looked up
    )
)


@init_verb.default
def init(
    answers: Flags | None = None,
    *,
    out: Annotated[Path, Parameter(help="The file to write.")] = CONFIG_NAME,
    example: Annotated[bool, Parameter(help="Write a simulated table as well.", negative="")] = False,
    sales: Annotated[
        Path | bool,
        Parameter(help="A sales export (a row per shop, date and product); its header proposes columns.", negative=""),
    ] = False,
    problem: Annotated[
        str | None,
        Parameter(help=f"Another problem than a shop: {', '.join(OTHER_KINDS)}, or module:Class of your own."),
    ] = None,
    facts: Annotated[str, Parameter(help="With --problem: its own keys, 'lots=3; bid_max=4'.")] = "",
    columns: Annotated[str, Parameter(help="With --problem: which column holds what, 'reserve=limit'.")] = "",
    force: Annotated[bool, Parameter(help="Replace an existing file.", negative="")] = False,
) -> None:
    """Write a configuration, and with `--example` the table it describes."""
    console = Console()
    if out.exists() and not force:
        raise ValueError(f"{out} exists; write elsewhere with --out, or replace it with --force")
    given = {name: text for name, text in vars(answers or Flags()).items() if text is not None}
    if problem is None and (facts or columns):
        raise ValueError("--facts and --columns go with --problem")
    if problem is not None:
        _write_kind(console, out, problem, given, facts, columns, example=example)
    elif example:
        if given:
            raise ValueError(f"--example writes its own facts; leave out {', '.join(map(flag_of, given))}")
        written = write_example(out.parent, seed=1)
        _write_whole(out, write_toml(written).encode())
        console.print(
            f"A simulated chain of 40 shops: [bold]{escape(str(out.parent / written['log']['source']))}[/] is its "
            f"table, [bold]{escape(str(out))}[/] says what is public about it.",
            highlight=False,
        )
    else:
        header = None
        if sales is not False:
            given, header = _with_header(out, given, sales)
            _print_proposal(console, given, header)
        _write_answers(console, out, given, header)
        console.print(f"Wrote {out}; every key in it says why it is asked for.", highlight=False, markup=False)
    flag = "" if out.name == CONFIG_NAME.name and out.parent == Path() else escape(f" --config {out}")
    console.print(
        f"Next: [bold]poolrl check{flag}[/] (is the table as the file says?), [bold]poolrl plan{flag}[/] (what "
        "does each budget buy?)",
        highlight=False,
    )


def _write_kind(
    console: Console, out: Path, name: str, given: Answers, facts: str, columns: str, *, example: bool
) -> None:
    """A configuration of another problem than a shop; asks on a terminal for what is missing."""
    with code_beside(out):
        if example:
            if given or facts or columns:
                raise ValueError("--example writes its own facts; leave out the others")
            written = write_kind_example(out.parent, name)
            console.print(f"A simulated table: {written['log']['source']}", highlight=False, markup=False)
        else:
            if sys.stdin.isatty() and console.is_terminal:
                given, facts = _asked_kind(console, name, given, facts)
            written = kind_facts(name, given, facts, columns)
        content = write_toml(written).encode()
        parse_config(out, content)
        _write_whole(out, content)
    console.print(f"Wrote {out}; every key in it says why it is there.", highlight=False, markup=False)


def _asked_kind(console: Console, name: str, given: Answers, facts: str) -> tuple[Answers, str]:
    kind = trade_named(name).problem
    console.print("Everything asked for here is public. [bold]Answer from what you know, not from the log.[/]")
    known, answers = pairs(facts, "facts"), dict(given)
    reasons = {key.flag: key.why for key in kind_keys()}
    try:
        for key in needed_keys(kind):
            if key not in known:
                console.print(f"[dim]{escape(own_keys(kind)[key])}[/]", highlight=False)
                known[key] = Prompt.ask(key, console=console)
        for flag in ASKED:
            if not answers.get(flag):
                console.print(f"[dim]{escape(reasons[flag])}[/]", highlight=False)
                answers[flag] = Prompt.ask(flag, console=console)
    except (EOFError, KeyboardInterrupt):
        raise ValueError("stopped; nothing was written") from None
    return answers, "; ".join(f"{key}={value}" for key, value in known.items())


def _with_header(out: Path, given: Answers, sales: Path | bool) -> tuple[Answers, Proposal]:
    """The answers, and for each column that nobody named the one that the header proposes."""
    named = given.get("source", "") if sales is True else str(sales)
    if not named:
        raise ValueError("--sales needs the export: poolrl init --sales export.csv")
    path = Path(named).expanduser()
    mark = {"tab": "\t"}.get(given.get("delimiter", ""), given.get("delimiter"))
    header = propose_columns(path, delimiter=mark, encoding=given.get("encoding", "utf-8"))
    proposed = {f"{role}_column": header.only(role) for role in SALES_ROLES}
    # Relative to the file that is written, as everything in it.
    where = path if path.is_absolute() or out.parent == Path() else path.resolve()
    known: Answers = {name: column for name, column in proposed.items() if column is not None}
    return known | {"delimiter": header.delimiter} | given | {"source": str(where)}, header


def _print_proposal(console: Console, given: Answers, header: Proposal) -> None:
    named = [(role, given.get(f"{role}_column")) for role in SALES_ROLES]
    columns = ", ".join(f"{role} = {column}" for role, column in named if column)
    console.print("The header was read, and no line behind it.", highlight=False)
    console.print(f"Columns by their names: {columns or 'none'}.", highlight=False, markup=False)
    for meaning in LABEL_MEANINGS:
        if header.only(meaning) and meaning not in given.get("labels", ""):
            hint = f"{header.only(meaning)} may be a label; declare its values with --labels '{meaning}=no,yes'"
            console.print(f"{hint}, in the words of the column.", highlight=False, markup=False)


def _write_answers(console: Console, out: Path, given: Answers, header: Proposal | None) -> None:
    sales = header is not None
    asking = bool(missing_keys(given, sales=sales)) and sys.stdin.isatty() and console.is_terminal
    answers = _ask(console, given, sales=sales) if asking else given
    content = write_toml(facts_from(answers, sales=sales, header=header)).encode()
    try:
        parse_config(out, content)
    except ValueError as error:
        if not asking:
            raise
        _write_whole(out, content)  # nobody should have to answer everything again
        raise ValueError(f"{error}\nThe file was written anyway: correct it there") from None
    _write_whole(out, content)


def _write_whole(path: Path, content: bytes) -> None:
    """Replace a file as a whole, so that a failure leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(content)
    draft.replace(path)


def _ask(console: Console, given: Answers, *, sales: bool) -> Answers:
    console.print(
        "Everything asked for here is public. [bold]Answer from what you know of the shop, not from the log.[/]\n"
        "Lists are separated by commas; an empty answer takes what stands in brackets."
    )
    answers, section = dict(given), ""
    for key in asked_keys(sales=sales):
        if key.flag in answers or is_needless(key, answers):
            continue
        if key.section != section:
            section = key.section
            console.print(f"\n[bold]{escape(f'[{section}]')}[/]")
        needed = key.answer is None or (key.flag in GO_TOGETHER)
        console.print(f"[dim]{escape(key.why)}[/]", highlight=False)
        while key.flag not in answers:
            try:
                shown = key.name if needed else f"{key.name} [dim](optional)[/]"
                default = key.answer if not needed or key.answer else None
                text = Prompt.ask(shown, console=console, default=default, show_default=bool(default))
                if text is None or (not text.strip() and needed):
                    raise ValueError(f"{key.name} is needed")
                if text.strip():
                    check_answer(key, text, split_names(answers.get("products", "?")))
                answers[key.flag] = text
            except ValueError as error:
                console.print(f"[red]{escape(str(error))}[/]")
            except (EOFError, KeyboardInterrupt):
                raise ValueError("stopped; nothing was written") from None
    return answers
