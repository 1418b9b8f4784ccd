"""`poolrl plan`."""

from json import dumps
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table as RichTable

from poolrl.certificate.leaflet import MEANINGLESS_EPSILON, meaningless, percent
from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.privacy.zcdp import attack_power, epsilon, epsilon_shown
from poolrl.workflow.budget import BudgetStudy, study_budgets
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.forecast import NOISE_DOMINATED, money, signed_percent

plan_verb = verb("""\
  poolrl plan                      all five families of demand
  poolrl plan --demand exponential --rho 0.3
  poolrl plan --units 500 --within 0.05""")


@plan_verb.default
def plan(
    *,
    config: ConfigPath = CONFIG_NAME,
    rho: Annotated[float | None, Parameter(help="The budget to ask about; the file's if left out.")] = None,
    units: Annotated[int | None, Parameter(help="Units of the log; the file's if left out.")] = None,
    demand: Annotated[
        str | None, Parameter(help="any, prior, uniform, normal, beta, exponential or bimodal; the file's if left out.")
    ] = None,
    within: Annotated[float, Parameter(help="Cost above the optimum that is good enough.")] = 0.02,
    json: AsJson = False,
) -> None:
    """Simulate, then print two tables and one sentence."""
    facts = load_config(config).config
    console = Console(quiet=json)
    with Progress(console=console, transient=True) as progress:
        study = study_budgets(
            facts,
            progress,
            rho=facts.privacy.rho if rho is None else rho,
            units=facts.plan.units if units is None else units,
            demand=demand or facts.plan.demand,
            within=within,
        )
    if json:
        print(dumps(study.facts(), indent=2))
        return
    console.print(_budget_table(study))
    table = RichTable(title=f"How large a log, at rho = {study.rho:g}", title_justify="left", title_style="bold")
    for name in ("units", "gap", "worst gap"):
        table.add_column(name, justify="right")
    for line in study.by_size:
        table.add_row(f"{line.units:,}", signed_percent(line.gap), signed_percent(line.worst))
    console.print(table)
    for sentence in _sentences(study, facts.privacy.unit or "trajectory"):
        console.print(sentence, highlight=False)


def _budget_table(study: BudgetStudy) -> RichTable:
    words, earns = study.trade.words, study.trade.earns
    where = f"five families of {words.outcome}" if study.demand == "any" else f"{study.demand} {words.outcome}"
    knows = f"somebody who knows {'' if earns else 'the '}{words.outcome}"
    gap = f"the part of the {words.earned} of {knows} that is missing" if earns else f"mean cost above that of {knows}"
    table = RichTable(
        title=f"What a budget buys with {study.units:,} units, on {where}",
        caption=f"Gap: {gap}. Without data: {study.gap_without_data:+.0%}.\n"
        f"The simulation invents {words.outcome} between your bounds: compare these numbers with each other only; "
        "tenths of a percent are chance.\n"
        "Attack: what an attacker finds out at most, with 5% false alarms; guessing finds 5%. Epsilon at delta 1e-6.",
        title_justify="left",
        caption_justify="left",
        title_style="bold",
    )
    for name in ("rho", "epsilon", "attack", words.earned if earns else "cost", "gap", "worst gap"):
        table.add_column(name, justify="right")
    for line in study.by_rho:
        mark = "[bold]" if line.rho == study.rho else ""
        cells = (
            f"{line.rho:g}",
            epsilon_shown(line.rho),
            percent(attack_power(line.rho)),
            money(study.judged_by(line)),
            signed_percent(line.gap),
            f"{signed_percent(line.worst)} {line.worst_family if study.demand == 'any' else ''}",
        )
        table.add_row(*(mark + cell for cell in cells))
    return table


def _sentences(study: BudgetStudy, who: str) -> list[str]:
    needed = study.units_needed
    goal = f"To stay within {study.within:.0%} of the optimum at rho = {study.rho:g}, "
    goal += f"even for the worst {study.trade.words.outcome} tried, "
    if needed is None:
        goal += f"{study.by_size[-1].units:,} units are not enough: allow more cost (--within) or a larger rho."
    else:
        goal += f"the log should hold {needed:,} units or somewhat fewer (each a {escape(who)})."
    sentences = [goal]
    if study.noise_share > NOISE_DOMINATED:
        sentences.append(
            f"[bold red]Do not spend it like this:[/] with {study.units:,} units at rho = {study.rho:g} noise would "
            f"take about {min(1.0, study.noise_share):.0%} of what data could save "
            f"({signed_percent(study.chosen.gap)} above the optimum, "
            f"{signed_percent(study.gap_without_data)} without any data)."
        )
    if (eps := epsilon(study.rho, 1e-6)) > MEANINGLESS_EPSILON:
        sentences.append(f"[bold red]This rho gives no meaningful protection.[/] {meaningless(eps)}")
    return [*sentences, *study.assumed, "Predicted by simulation; no row of the log was read and nothing was spent."]
