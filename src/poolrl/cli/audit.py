"""`poolrl audit`: attack our own releases, and print what the attacks prove beside what is claimed."""

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import joblib
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable
from rich.text import Text

from poolrl import __version__
from poolrl.audit import attack
from poolrl.audit.attack import AuditFinding
from poolrl.audit.cases import CASES, AuditCase
from poolrl.checks import one_of, whole
from poolrl.cli.verbs import AsJson, verb
from poolrl.data.log import Log
from poolrl.data.sources.opening import open_source
from poolrl.privacy import zcdp
from poolrl.workflow.config.configuration import Config, ConfigFile, load_config
from poolrl.workflow.config.sections import PeriodFacts
from poolrl.workflow.open_log import as_table
from poolrl.workflow.paying import shares_on_top

audit_verb = verb("""\
  poolrl audit --config poolrl.toml              the fit that you configured, at its own budget
  poolrl audit                                   thirteen fits of our own, at rho = 1: some minutes on 2 cores
  poolrl audit --releases 20000                  a first look: sees a number that lacks a tenth of its variance
  poolrl audit default --noise opendp            OpenDP's sampler, some ten times slower
  poolrl fit --audit audit/.../audit.json        the certificate repeats what the audit of its configuration found

Two simulated logs that differ in one unit, at the worst case for the problem, the unit and the budget; many releases of
each, through the code of fit; the best test between them, and the privacy loss that its success proves. Noise is tested
over all numbers together, and bit by bit against a known key. No log of yours is read, and no budget spent.
Exits with 1 if anything is flagged. docs/threat-model.md says what an audit can show and what not.""")
# Of a configured fit: enough to prove nine tenths of the claim, between these limits.
FEWEST_RELEASES, MOST_RELEASES = 20_000, 200_000
# Rows of the simulated log: an engine counts them in a fraction of a second.
MOST_ROWS = 100_000
# What a certificate repeats of an audit of its configuration.
IN_CERTIFICATE = ("releases", "claimed_rho", "proved_rho", "moved_share", "confidence", "verdict")
AUDIT_COLOURS = {"FLAGGED": "red", "not refuted": "green", "too weak": "yellow"}
OUR_OWN_IN_WORDS = (
    "simulated logs of small problems (one or two products, two to four steps, a few units), which differ in one unit "
    "as much as they can; no log of yours"
)


@audit_verb.default
def audit(
    learner: Annotated[str, Parameter(help="all, default or published; not with --config.")] = "all",
    *,
    config: Annotated[Path | None, Parameter(help="Audit the fit of this configuration.")] = None,
    rho: Annotated[float | None, Parameter(help="The budget to attack; the configuration's, or 1.")] = None,
    releases: Annotated[int | None, Parameter(help="Of both logs, in each case; by default what rho needs.")] = None,
    noise: Annotated[str, Parameter(help="secure (what fit uses), opendp or seeded (dry runs).")] = "secure",
    out: Annotated[Path | None, Parameter(help="New folder for audit.json; audit/TIME if left out.")] = None,
    workers: Annotated[int | None, Parameter(help="Processes; all cores if left out.")] = None,
    json: AsJson = False,
) -> None:
    """Audit the configured fit, or every case of the learner; exits with 1 if anything was flagged."""
    one_of(["all", *dict.fromkeys(case.learner for case in CASES)], learner=learner)
    if config is not None and learner != "all":
        raise ValueError("fit has the default learner: leave out the learner with --config")
    file = None if config is None else load_config(config)
    budget = rho if rho is not None else 1.0 if file is None else file.config.privacy.rho
    cases = [configured_case(file, budget)] if file else [case for case in CASES if learner in ("all", case.learner)]
    many = MOST_RELEASES if releases is None else releases
    if releases is None and file is not None and 0 < budget < math.inf:
        needed = attack.releases_needed(math.sqrt(2 * budget), 0.9, attack.CONFIDENCE)
        many = min(max(FEWEST_RELEASES, needed), MOST_RELEASES)
    for case in cases:
        attack.refuse_impossible(case, rho=budget, releases=many, noise=noise)
    processes = joblib.cpu_count() if workers is None else workers
    whole(workers=processes)
    began = datetime.now(UTC)
    folder = out or Path("audit") / f"{began:%Y-%m-%d-%H%M%S}"
    if (folder / "audit.json").exists():
        raise ValueError(f"{folder} exists, and no audit is written over another: name a new one with --out")
    folder.mkdir(parents=True, exist_ok=True)  # before the long part
    console = Console(quiet=json)
    attacked = OUR_OWN_IN_WORDS if file is None else _configured_in_words(file, cases[0])
    found: list[AuditFinding] = []
    how: dict[str, Any] = {"rho": budget, "releases": many, "noise": noise, "workers": processes}
    with Progress(console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("releases", total=len(cases) * many)
        for case in cases:
            bars.update(task, description=case.name)
            if not console.is_terminal:
                console.print(f"{case.name}: {many:,} releases", highlight=False)
            found.append(attack.attack_case(case, **how, progress=partial(bars.advance, task)))
    when = began.isoformat(timespec="seconds")
    facts: dict[str, Any] = {
        "poolrl": __version__,
        "began": when,
        "private": noise != "seeded",
        "attacked": attacked,
        "audits": [_audit_facts(finding) for finding in found],
    }
    # A certificate can carry an audit of its own budget and noise alone.
    if file is not None and noise == "secure" and budget == file.config.privacy.rho:
        summary = {"poolrl": __version__, "began": when, "config_sha256": file.sha256}
        facts["summary"] = summary | {name: facts["audits"][0][name] for name in IN_CERTIFICATE}
    text = dumps(facts, indent=2) + "\n"
    (folder / "audit.json").write_text(text)
    if json:
        print(text, end="")
    _print_audit(console, found, attacked)
    console.print(f"The numbers are in {folder / 'audit.json'}.", markup=False)
    if any(finding.faults for finding in found):
        raise SystemExit(1)


def configured_case(file: ConfigFile, rho: float | None = None) -> AuditCase:
    """The fit that the file describes, at its ρ or another; as many units as `plan` assumes, or as can be simulated."""
    config = file.config
    trajectories = MOST_ROWS // config.problem.horizon
    return AuditCase(
        config.problem.posed,
        per_unit=None if config.privacy.unit is None else config.privacy.per_unit,
        scaled=bool(config.columns().scale),
        scale_memory=config.scale_memory,
        labels_public=config.privacy.labels_public,
        on_top=shares_on_top(config, rho),
        units=max(2 + config.scale_memory, min(config.plan.units, trajectories // config.privacy.per_unit)),
        title=str(file.path.name),
        opened_by=partial(opened_as_by_fit, config),
    )


@contextmanager
def opened_as_by_fit(configured: Config, rows_of: Callable[..., pa.Table]) -> Iterator[Log]:
    """Open a simulated log as `fit` opens the user's: by the names of its columns, from a file of its kind."""
    # The simulated rows are those of the period.
    config = configured.model_copy(update={"period": PeriodFacts()})
    columns = config.columns()
    rows = rows_of(columns, first_step=config.first_step, coordinates=config.problem.products)
    is_csv = config.log.source.endswith(".csv") and columns.coordinate is None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("log.csv" if is_csv else "log.parquet")
        (pyarrow.csv.write_csv if is_csv else pq.write_table)(rows, path)
        with open_source(path.name, columns, folder=path.parent) as opened:
            yield as_table(config, opened)


def _configured_in_words(file: ConfigFile, case: AuditCase) -> str:
    config = file.config
    unit = "one trajectory" if case.per_unit is None else f"one {config.privacy.unit} with {case.per_unit} trajectories"
    fewer = "" if case.units >= config.plan.units else f" ([plan] has {config.plan.units:,}, so its trees may be finer)"
    return (
        f"the fit of {file.path.name} ({config.in_words}) "
        f"by two simulated logs of {case.units:,} units{fewer}. They differ in {unit} as much as they can. "
        "DuckDB counts them as it counts the log of a fit; no log of yours was read"
    )


def _print_audit(console: Console, found: list[AuditFinding], attacked: str) -> None:
    say = partial(console.print, highlight=False, markup=False)
    say(_audit_table(found))
    for finding in found:
        for fault in finding.faults:
            say(f"{finding.case.name}: {fault}.", style="red")
    first, flagged = found[0], sum(bool(each.faults) for each in found)
    say(f"{len(found)} audit{'s' * (len(found) > 1)}, {flagged} flagged.")
    if any(finding.verdict == "too weak" for finding in found):
        needed = attack.releases_needed(math.sqrt(2 * first.rho), 0.9, attack.CONFIDENCE)
        say(f"An audit that proves little would have seen little: at this rho take about {needed:,} releases.")
    elif not flagged:
        say("No attack did better than the claim allows.")
    say(f"This is no proof of privacy. What was attacked: {attacked}.")
    parts = [f"{float(share):.0%} of {stated.name} (rho = {float(stated.rho):g})" for stated, share in first.tables]
    of_each = f": {', '.join(parts)}" if len(found) == 1 else ""
    say(
        f"The two logs move {min(each.moved_share for each in found):.0%} of what is paid for, counted exactly"
        f"{of_each}. {sum(each.end_to_end for each in found):,} releases were made from the rows on, as by fit. Others "
        "share a count, and each has a key of its own and its own noise in every table."
    )
    if first.noise == "seeded":
        say("NOT PRIVATE: seeded noise has the right distribution, and a seed that gives it away.", style="red")


def _audit_table(found: list[AuditFinding]) -> RichTable:
    first = found[0]
    claim = f"rho = {first.rho:g}, epsilon = {zcdp.rounded_up(first.epsilon)} at delta = {attack.DELTA:g}"
    table = RichTable(
        *("fit", "rho,\nGaussian", "epsilon,\nany release", "verdict"),
        title=f"Claimed: {claim}\nAt least, by attacks on {found[-1].releases:,} releases with {first.noise} noise:",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption=(
            f"Lower bounds, with {attack.CONFIDENCE:.0%} confidence each, and their shares of the claim. A release "
            f"that exceeds its claim with {attack.FLAGGING:.1%} confidence is flagged. For a Gaussian release by the "
            "Gaussian-DP bound. For any release by Clopper-Pearson, which rare events limit."
        ),
    )
    for finding in found:
        rho = f"{finding.rho_bound:.3f} ({finding.rho_bound / finding.rho:.1%})"
        epsilon = f"{finding.epsilon_bound:.2f} ({finding.epsilon_bound / finding.epsilon:.1%})"
        table.add_row(finding.case.name, rho, epsilon, Text(finding.verdict, AUDIT_COLOURS[finding.verdict]))
    return table


def _audit_facts(finding: AuditFinding) -> dict[str, Any]:
    facts = {
        "case": finding.case.name,
        "learner": finding.case.learner,
        "engine": finding.case.engine,
        "trajectories_per_unit": finding.case.per_unit or 1,
        "noise": finding.noise,
        "releases": finding.releases,
        "end_to_end_releases": finding.end_to_end,
        "numbers": finding.numbers,
        "tables": [
            {"name": stated.name, "numbers": stated.cells, "rho": float(stated.rho), "variance": str(stated.variance)}
            | {"moved_share": float(share)}
            for stated, share in finding.tables
        ],
        "moved_share": finding.moved_share,
        "claimed_rho": finding.rho,
        "proved_rho": finding.rho_bound,
        "delta": attack.DELTA,
        "claimed_epsilon": finding.epsilon,
        "proved_epsilon": finding.epsilon_bound,
        "confidence": attack.CONFIDENCE,
        "verdict": finding.verdict,
        "flagged": bool(finding.faults),
        "faults": finding.faults,
    }
    # Where neighbours differ without noise there is no bound.
    return {name: "inf" if value == math.inf else value for name, value in facts.items()}
