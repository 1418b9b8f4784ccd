"""`poolrl init`: flags and questions, both made of the configuration's own keys. And `poolrl demo`."""

import sys
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.prompt import Prompt

from poolrl.certificate.release_files import PAGE, POLICY
from poolrl.cli.verbs import CONFIG_NAME, verb
from poolrl.workflow.config import answers as texts
from poolrl.workflow.config.answers import Answers, Interview, Proposal, flag_of
from poolrl.workflow.config.configuration import LOST_SALES, parse_config
from poolrl.workflow.config.sales import SALES_ROLES
from poolrl.workflow.config.sections import Key
from poolrl.workflow.trades.trade import TRADES, code_beside, trade_named

init_verb = verb("""\
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
      --units 2000 --data-set "shops 2025" --rho 0.1""")

# A Saturday of the example's shops.
QUESTION = "--step Sat --stock bread=10,milk=20,salad=5 --labels promotion=no --scale bread=70,milk=90,salad=30"
# Asked only where they are needed, and then they are.
GO_TOGETHER = ("max_per_unit", "scale_memory")


def _flag(key: Key) -> tuple[str, Any, Any]:
    usual = f" ({key.answer} if left out)" if key.answer else ""
    return key.flag, Annotated[str | None, Parameter(help=f"{key.why}{usual}")], field(default=None)


# One flag for each key of shops that `init` asks for, each once; the keys of another trade go into --facts. Lists are
# separated by commas, or are the lines of a file behind @. Its annotations are looked up in its module.
_KEYS = {key.flag: key for key in texts.asked_keys(sales=False) + texts.asked_keys(sales=True)}
Flags: Any = Parameter(name="*")(
    make_dataclass("Flags", map(_flag, _KEYS.values()), kw_only=True, namespace={"__module__": __name__})
)


@init_verb.default
def init(
    answers: Flags | None = None,
    *,
    out: Annotated[Path, Parameter(help="The file to write.")] = CONFIG_NAME,
    example: Annotated[bool, Parameter(help="Write a simulated table as well.")] = False,
    sales: Annotated[Path | None, Parameter(help="A sales export, whose header proposes columns.")] = None,
    problem: Annotated[str | None, Parameter(help=f"The trade: {', '.join(TRADES)}, or module:Class.")] = None,
    facts: Annotated[str, Parameter(help="With --problem: its own keys, 'lots=3; bid_max=4'.")] = "",
    columns: Annotated[str, Parameter(help="With --problem: which column holds what, 'reserve=limit'.")] = "",
    force: Annotated[bool, Parameter(help="Replace an existing file.")] = False,
) -> None:
    """Write a configuration, and with `--example` the table it describes."""
    console = Console(highlight=False)
    if out.exists() and not force:
        raise ValueError(f"{out} exists; write elsewhere with --out, or replace it with --force")
    given = {name: text for name, text in vars(answers or Flags()).items() if text is not None}
    with code_beside(out):
        trade = trade_named(problem or LOST_SALES)
        if trade.section.has_flags and (facts or columns):
            raise ValueError("--facts and --columns go with --problem of another trade than shops")
        if example:
            own = {"--facts": facts, "--columns": columns}
            if extra := [*map(flag_of, given), *(flag for flag, text in own.items() if text)]:
                raise ValueError(f"--example writes its own facts; leave out {', '.join(extra)}")
            written = trade.example(out.parent)
            _write_whole(out, texts.write_toml(written).encode())
            table, file = escape(str(out.parent / written["log"]["source"])), escape(str(out))
            console.print(f"A simulated log: [bold]{table}[/] is its table, [bold]{file}[/] says what is public of it.")
        else:
            header = None
            if sales is not None:
                given, header = _with_header(console, out, given, sales)
            given |= texts.pairs(facts, "--facts") | ({"columns": columns} if columns else {})
            _write_answers(console, out, Interview(trade, given, header))
            console.print(f"Wrote {out}; every key in it says why it is asked for.", markup=False)
    flag = "" if out.name == CONFIG_NAME.name and out.parent == Path() else escape(f" --config {out}")
    check, plan = f"[bold]poolrl check{flag}[/]", f"[bold]poolrl plan{flag}[/]"
    console.print(f"Next: {check} (is the table as the file says?), {plan} (what does each budget buy?)")


def _with_header(console: Console, out: Path, given: Answers, sales: Path) -> tuple[Answers, Proposal]:
    """The answers, and for each column that nobody named the one that the header proposes."""
    path, mark, coding = sales.expanduser(), given.get("delimiter"), given.get("encoding", "utf-8")
    header = texts.propose_columns(path, delimiter="\t" if mark == "tab" else mark, encoding=coding)
    proposed = {f"{role}_column": column for role in SALES_ROLES if (column := header.only(role)) is not None}
    # Relative to the file that is written, as everything in it.
    where = path if path.is_absolute() or out.parent == Path() else path.resolve()
    answers = proposed | {"delimiter": header.delimiter} | given | {"source": str(where)}
    columns = [f"{role} = {answers[f'{role}_column']}" for role in SALES_ROLES if answers.get(f"{role}_column")]
    console.print("The header was read, and no line behind it.")
    console.print(f"Columns by their names: {', '.join(columns) or 'none'}.", markup=False)
    return answers, header


def _write_answers(console: Console, out: Path, interview: Interview) -> None:
    if asking := bool(interview.missing) and sys.stdin.isatty() and console.is_terminal:
        _ask(console, interview)
    content = texts.write_toml(interview.facts()).encode()
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


def _ask(console: Console, interview: Interview) -> None:
    console.print(
        "Everything asked for here is public. [bold]Answer from what you know, not from the log.[/]\n"
        "Lists are separated by commas; an empty answer takes what stands in brackets."
    )
    section = ""
    for key in interview.keys:
        if key.flag in interview.answers or interview.is_needless(key):
            continue
        if key.section != section:
            section = key.section
            console.print(f"\n[bold]{escape(f'[{section}]')}[/]")
        needed = key.answer is None or key.flag in GO_TOGETHER
        shown = key.name if needed else f"{key.name} [dim](optional)[/]"
        console.print(f"[dim]{escape(key.why)}[/]")
        while key.flag not in interview.answers:
            try:
                text = Prompt.ask(shown, console=console, default=key.answer or "", show_default=bool(key.answer))
                if not text.strip() and needed:
                    raise ValueError(f"{key.name} is needed")
                interview.add(key, text)
            except ValueError as error:
                console.print(f"[red]{escape(str(error))}[/]")
            except (EOFError, KeyboardInterrupt):
                raise ValueError("stopped; nothing was written") from None


demo_verb = verb("""\
  poolrl demo
  poolrl demo /tmp/shop

Takes a minute or two. Each heading is the command that you would type for the part below it.""")


@demo_verb.default
def demo(out: Annotated[Path, Parameter(help="Folder to make for all of it.")] = Path("demo")) -> None:
    """Call the other verbs, one after the other, on the example that `poolrl init` writes."""
    from poolrl.cli.main import app

    if out.exists():
        raise ValueError(f"{out} exists: name another folder, or remove it")
    console, config = Console(highlight=False), str(out / CONFIG_NAME)

    def heading(*words: str) -> None:
        console.print(f"\n$ poolrl {' '.join(words)}", style="bold", markup=False, soft_wrap=True)

    for words in (
        ["init", "--example", "--out", config],
        ["check", "--config", config],
        ["plan", "--config", config],
        ["fit", "--config", config, "--new-account"],
    ):
        heading(*words)
        app(words, result_action="return_value")
    console.print(f"\nNow open {out / 'release' / PAGE}, and ask for a day's orders:", markup=False, soft_wrap=True)
    heading("decide", str(out / "release" / POLICY), QUESTION)
