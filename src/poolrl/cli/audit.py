"""`poolrl audit`: attack our own releases, and print what the attacks prove beside what is claimed."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import joblib
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table as RichTable

from poolrl import __version__
from poolrl.audit.audit import CONFIDENCE, DELTA, FLAGGING, AuditFinding, attack_case, refuse_impossible
from poolrl.audit.evidence import releases_needed
from poolrl.audit.neighbours import CASES, Case
from poolrl.audit.picture import draw_audit
from poolrl.checks import one_of, whole
from poolrl.cli.progress import progress_bar
from poolrl.cli.verbs import AsJson, verb
from poolrl.privacy import zcdp

audit_verb = verb(
    "audit",
    examples="""\
  poolrl audit                                   both learners, c = 1 and 3: three minutes on 2 cores
  poolrl audit --releases 20000                  a first look: sees a number that lacks a tenth of its variance
  poolrl audit default --noise opendp            OpenDP's sampler, some ten times slower
  poolrl audit --times 20 --releases 20000       how often is a sound release flagged?""",
    more="""\
Two simulated logs that differ in one unit, at the worst case; many releases of each, through the code of fit; the
best test between them, and the privacy loss that its success proves. No log of yours is read, and no budget spent.
Exits with 1 if anything is flagged. docs/threat-model.md says what an audit can show and what not.""",
)
ENDLESS = 10**8  # releases that nobody waits for
AUDIT_COLOURS = {"FLAGGED": "red", "not refuted": "green", "too weak": "yellow"}
ATTACKED_IN_WORDS = (
    "two simulated logs of a shop that loses sales (one product, two steps, three units), which differ in one unit as "
    "much as they can; no log of yours"
)


@audit_verb.default
def audit(
    learner: Annotated[str, Parameter(help="all, default or published.")] = "all",
    *,
    rho: Annotated[float, Parameter(help="The budget to attack.")] = 1.0,
    releases: Annotated[int, Parameter(help="Of both logs together, in each case.")] = 200_000,
    noise: Annotated[str, Parameter(help="secure (what fit uses), opendp or seeded (dry runs).")] = "secure",
    times: Annotated[int, Parameter(help="Audits of each case.")] = 1,
    out: Annotated[
        Path | None, Parameter(help="New folder for the picture and the figures; audit/ and the time if left out.")
    ] = None,
    workers: Annotated[int | None, Parameter(help="Processes; all cores if left out.")] = None,
    json: AsJson = False,
) -> None:
    """Audit every case of the learner so many times; exits with 1 if anything was flagged."""
    one_of(["all", *dict.fromkeys(case.learner for case in CASES)], learner=learner)
    cases = [case for case in CASES if learner in ("all", case.learner)]
    for case in cases:
        refuse_impossible(case, rho=rho, releases=releases, noise=noise)
    processes = joblib.cpu_count() if workers is None else workers
    whole(times=times, workers=processes)
    began = datetime.now(UTC)
    folder = _new_folder(out or Path("audit") / f"{began:%Y-%m-%d-%H%M%S}")  # before the long part
    console = Console(quiet=json)
    try:
        found = _attack_all(console, cases * times, rho, releases, noise, processes)
    except BaseException:
        with suppress(OSError):  # it is empty, and the next audit may have the name
            folder.rmdir()
        raise
    draw_audit(folder / "audit.svg", [_strongest(found[i :: len(cases)]) for i in range(len(cases))], times)
    facts = {
        "poolrl": __version__,
        "began": began.isoformat(timespec="seconds"),
        "private": noise != "seeded",
        "attacked": ATTACKED_IN_WORDS,
        "audits": [_audit_facts(finding, 1 + number // len(cases)) for number, finding in enumerate(found)],
    }
    text = dumps(facts, indent=2) + "\n"
    (folder / "audit.json").write_text(text)
    if json:
        print(text, end="")
    _print_audit(console, found, len(cases))
    where = f"Open {folder / 'audit.svg'} for the curves of the attacks; figures are in {folder / 'audit.json'}."
    console.print(where, markup=False)
    if any(finding.faults for finding in found):
        raise SystemExit(1)


def _new_folder(folder: Path) -> Path:
    """An audit is evidence: none is written over another."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ValueError(f"{folder} exists, and no audit is written over another: name a new one with --out") from None
    except OSError as error:
        raise ValueError(f"the folder {folder} cannot be made: {error.strerror}") from None
    return folder


def _strongest(found: list[AuditFinding]) -> AuditFinding:
    return max(found, key=lambda finding: (bool(finding.faults), finding.mu_bound))


def _attack_all(
    console: Console, cases: list[Case], rho: float, releases: int, noise: str, workers: int
) -> list[AuditFinding]:
    with progress_bar(console) as bars:
        task = bars.add_task("releases", total=len(cases) * releases)
        found = []
        for case in cases:
            bars.update(task, description=case.name)
            if not console.is_terminal:
                console.print(f"{case.name}: {releases:,} releases", highlight=False)

            def more(releases: int) -> None:
                bars.advance(task, releases)

            found.append(attack_case(case, rho=rho, releases=releases, noise=noise, workers=workers, progress=more))
    return found


def _print_audit(console: Console, found: list[AuditFinding], cases: int) -> None:
    console.print(_audit_table(found, cases))
    for finding in found:
        for fault in finding.faults:
            console.print(f"[red]{finding.case.name}[/]: {fault}.", highlight=False)
    first, flagged = found[0], sum(bool(each.faults) for each in found)
    console.print(f"{len(found)} audits, {flagged} flagged.", highlight=False)
    if any(finding.verdict == "too weak" for finding in found):
        needed = releases_needed(math.sqrt(2 * first.rho), 0.9, CONFIDENCE)
        enough = "at this rho it would take more than a hundred million releases; try 1"
        if needed < ENDLESS:
            enough = f"at this rho take about {float(f'{needed:.1e}'):,.0f} releases"
        console.print(f"An audit that proves little would have seen little: {enough}.", highlight=False)
    elif not flagged:
        console.print("No attack did better than the claim allows.", highlight=False)
    console.print(f"This is no proof of privacy. Attacked were {ATTACKED_IN_WORDS}.", highlight=False)
    if first.noise == "seeded":
        console.print("[red]NOT PRIVATE[/]: seeded noise has the right distribution, and a seed that gives it away.")


def _audit_table(found: list[AuditFinding], cases: int) -> RichTable:
    first = found[0]
    most = first.gaussian_epsilon / first.epsilon
    claim = f"rho = {first.rho:g}, epsilon = {zcdp.rounded_up(first.epsilon)} at delta = {DELTA:g}"
    table = RichTable(
        title=f"Claimed: {claim}\nAt least, by attacks on {found[-1].releases:,} releases with {first.noise} noise:",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption=(
            f"Lower bounds, with {CONFIDENCE:.0%} confidence each, and their shares of the claim. A release that "
            f"exceeds its claim with {FLAGGING:.1%} confidence is flagged. For a Gaussian release by the Gaussian-DP "
            f"bound; one Gaussian of this rho has epsilon = {zcdp.rounded_up(first.gaussian_epsilon)}, so no attack on "
            f"it can prove more than {most:.1%} of that claim. For any release by Clopper-Pearson, which rare events "
            "limit."
        ),
    )
    for name in ("learner", "rho,\nGaussian", "epsilon,\nGaussian", "epsilon,\nany release", "verdict"):
        table.add_column(name, justify="left" if name in ("learner", "verdict") else "right", no_wrap=True)
    for number, finding in enumerate(found):
        if number and number % cases == 0:
            table.add_section()
        shares = [f"{finding.rho_bound:.3f} ({finding.rho_bound / finding.rho:.1%})"]
        for bound in (finding.gaussian_epsilon_bound, finding.epsilon_bound):
            shares.append(f"{bound:.2f} ({bound / finding.epsilon:.1%})")
        table.add_row(finding.case.name, *shares, f"[{AUDIT_COLOURS[finding.verdict]}]{finding.verdict}[/]")
    return table


def _audit_facts(finding: AuditFinding, round_: int) -> dict[str, Any]:
    return {
        "round": round_,
        "case": finding.case.name,
        "learner": finding.case.learner,
        "trajectories_per_unit": finding.case.per_unit,
        "noise": finding.noise,
        "releases": finding.releases,
        "confidence": CONFIDENCE,
        "delta": DELTA,
        "claimed": {
            "rho": finding.rho,
            "epsilon": finding.epsilon,
            "epsilon_if_one_gaussian": finding.gaussian_epsilon,
        },
        "gaussian_dp_bound": {
            "mu": _json_number(finding.mu_bound),
            "rho": _json_number(finding.rho_bound),
            "epsilon": _json_number(finding.gaussian_epsilon_bound),
            "share_of_claimed_rho": _json_number(finding.rho_bound / finding.rho),
        },
        "clopper_pearson_bound": {"epsilon": _json_number(finding.epsilon_bound)},
        "verdict": finding.verdict,
        "flagged": bool(finding.faults),
        "faults": list(finding.faults),
    }


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
