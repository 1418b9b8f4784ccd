"""Mutants of the door: does some test notice every small change of the code that counts and adds noise?

    python -m attacks.mutants                                 every mutant of the modules below
    python -m attacks.mutants src/poolrl/privacy/zcdp.py      of one module
    python -m attacks.mutants --sample 200 --seed 3           of 200 mutants, drawn at random
    python -m attacks.mutants --since-survivors mutants/results.jsonl

A mutant is the package with one change: `<` for `<=`, a condition that always holds, a call left out. The tests that
run the changed line are run, the quickest first, until one fails. A mutant that all of them pass is a survivor: a bug
that nobody would see. It needs a test, or a reason in `mutants_accepted.toml`. Before all mutants comes the package
without a change, by the same tests in the same order. A test that fails then says nothing, and is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from attacks.mutant_map import Mutant, Reasons, digest, mutants_in
from attacks.mutant_runs import Answer, Plan, imported, prepare, swapped

# Everything that counts rows, adds noise to counts, or says what that costs.
_COUNTING = "cells counts expressions row_rules table periods ids trajectories log_labels log check_problem trace"
DOOR = (
    "src/poolrl/privacy/**/*.py",
    *(f"src/poolrl/data/{name}.py" for name in _COUNTING.split()),
    "src/poolrl/geometry/bins.py",
)
DEAD = ("killed", "timeout", "crashed")
Facts = dict[str, Any]
Name = tuple[str, int, str, int]


def main() -> int:
    """Run mutants, and list the survivors; 1 if one has no reason."""
    arguments = _arguments()
    root = arguments.root.resolve()
    modules = _found(root, arguments.modules or DOOR, "module")
    tests = _found(root, arguments.tests, "file of tests")
    stored = root / "mutants"
    stored.mkdir(exist_ok=True)
    package = root / Path(*Path(modules[0]).parts[:2])
    plan = Plan(
        root, package, tuple(modules), tuple(tests), stored, arguments.workers, arguments.budget, arguments.patience
    )
    if arguments.new_map:
        (stored / "map.json").unlink(missing_ok=True)
    everything = mutants_in(root, modules)
    reasons = Reasons.read(root / "attacks" / "mutants_accepted.toml", everything)
    before = {path: digest(root / path) for path in modules}
    wanted = [mutant for mutant in everything if arguments.accepted or not reasons.reason(mutant)]
    earlier, wanted = _earlier(arguments, before, wanted)
    if arguments.sample is not None and arguments.sample < len(wanted):
        wanted = sorted(random.Random(arguments.seed).sample(wanted, arguments.sample), key=everything.index)
    console = Console(width=120, stderr=arguments.json)
    console.print(f"{len(everything):,} mutants of {len(modules)} modules, {len(wanted):,} to run", highlight=False)
    began = time.monotonic()
    rows = [*earlier, *_run(plan, wanted, before, console, arguments)]
    seconds = time.monotonic() - began
    changed = [path for path in modules if digest(root / path) != before[path]]
    if arguments.json:
        print(json.dumps({"mutants": len(everything), "seconds": seconds, "results": rows}))
    _report(console, plan, everything, rows, reasons)
    if wanted:
        each = seconds * arguments.workers / len(wanted)
        console.print(f"{seconds:,.0f} s, {each:.2f} s of one core for each mutant", highlight=False)
    if changed:
        console.print(f"Changed while this ran: {', '.join(changed)}. Run again.", style="bold red")
    bad = [row for row in rows if row["status"] not in DEAD and not row["reason"]]
    return 1 if bad or changed or reasons.unused else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m attacks.mutants", description=str(__doc__).splitlines()[0])
    parser.add_argument("modules", nargs="*", help="files or patterns (default: the door)")
    parser.add_argument("--tests", nargs="+", default=["tests/**/test_*.py"], help="files of tests (default: all)")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for each mutant (default: 60)")
    parser.add_argument("--patience", type=float, default=4.0, help="seconds that a test may take longer (default: 4)")
    parser.add_argument("--sample", type=int, default=None, help="this many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--since-survivors", type=Path, default=None, help="only the survivors of these results")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there for the same source")
    parser.add_argument("--new-map", action="store_true", help="find out again which test runs which line")
    parser.add_argument("--accepted", action="store_true", help="run also what has a reason")
    parser.add_argument("--json", action="store_true", help="results for programs")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="of the project")
    arguments = parser.parse_args()
    if arguments.workers < 1 or arguments.budget <= 0:
        parser.error("--workers and --budget must be more than 0")
    return arguments


def _found(root: Path, patterns: Sequence[str], what: str) -> list[str]:
    """Files below the root by patterns, without empty ones."""
    found = []
    for pattern in patterns:
        files = sorted(file for file in root.glob(pattern) if file.name != "__init__.py")
        if not files:
            sys.exit(f"there is no {what} {pattern!r}")
        found += [str(file.relative_to(root)) for file in files]
    return list(dict.fromkeys(found))


def _earlier(
    arguments: argparse.Namespace, digests: dict[str, str], wanted: list[Mutant]
) -> tuple[list[Facts], list[Mutant]]:
    """Results of an earlier run of the same source that stand, and the mutants that are still to be run."""
    results = arguments.since_survivors or (arguments.root / "mutants" / "results.jsonl" if arguments.resume else None)
    if results is None or not results.exists():
        return [], wanted
    rows: dict[Name, Facts] = {}
    for line in results.read_text().splitlines():
        facts = json.loads(line)
        if digests.get(facts["file"]) == facts["digest"]:
            rows[_name(facts)] = facts
    kept = {mutant.name: rows[mutant.name] for mutant in wanted if mutant.name in rows}
    if arguments.since_survivors:
        wanted = [mutant for mutant in wanted if mutant.name in kept]
        kept = {name: row for name, row in kept.items() if row["status"] in DEAD}
    return list(kept.values()), [mutant for mutant in wanted if mutant.name not in kept]


def _name(facts: Facts) -> Name:
    return facts["file"], facts["line"], facts["words"], facts["nth"]


def _run(
    plan: Plan, wanted: list[Mutant], digests: dict[str, str], console: Console, arguments: argparse.Namespace
) -> list[Facts]:
    """Every mutant's result, stored as soon as it is known."""
    if not wanted:
        return []
    prepare(plan)
    rows, keep = [], arguments.resume or arguments.since_survivors
    # Without a thread of its own, because this process forks.
    progress = Progress(console=console, auto_refresh=False)
    with (plan.stored / "results.jsonl").open("a" if keep else "w") as file, progress:
        tracing = progress.add_task("tests that run which lines", total=None)
        running = progress.add_task("mutants", total=len(wanted))
        for answer in _answers(plan, wanted):
            if isinstance(answer, str):
                progress.advance(tracing)
                progress.refresh()
                continue
            progress.update(tracing, total=1, completed=1)
            rows.append(_facts(wanted[answer.place], answer, digests))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            progress.advance(running)
            progress.refresh()
    known = plan.known()
    for name in known.failed(plan.tests):
        console.print(f"Fails without a mutant, and was left out: {name}", style="yellow", highlight=False)
    return rows


def _answers(plan: Plan, wanted: list[Mutant]) -> Iterator[Answer | str]:
    later = set(range(len(wanted)))
    for answer in swapped(plan, wanted, range(len(wanted))):
        if isinstance(answer, Answer):
            if answer.ended.status == "not here":
                continue
            later.discard(answer.place)
        yield answer
    yield from imported(plan, wanted, sorted(later))


def _facts(mutant: Mutant, answer: Answer, digests: dict[str, str]) -> Facts:
    status = answer.ended.status if answer.covering else "uncovered"
    facts = {"file": mutant.file, "digest": digests[mutant.file], "text": mutant.text, "nth": mutant.nth}
    said = answer.ended.said if status in DEAD else ""
    ran = {"status": status, "by": said, "seconds": round(answer.ended.seconds, 2), "reason": ""}
    return (
        facts
        | asdict(mutant.change)
        | {"words": mutant.change.words}
        | ran
        | {"tests": answer.tests, "covering": answer.covering}
    )


def _report(console: Console, plan: Plan, everything: list[Mutant], rows: list[Facts], reasons: Reasons) -> None:
    """A table by module, and every survivor."""
    ended = {_name(row): row for row in rows}
    table = Table(title="Mutants", title_justify="left")
    for name in ("module", "killed", "run", "timeouts", "survivors", "accepted", "all"):
        table.add_column(name, justify="left" if name == "module" else "right")
    total: Counter[str] = Counter()
    for file in plan.modules:
        counts: Counter[str] = Counter()
        for mutant in everything:
            if mutant.file == file:
                row, reason = ended.get(mutant.name), reasons.reason(mutant)
                dead = row is not None and row["status"] in DEAD
                if row:
                    row["reason"] = reason
                counts.update(all=1, run=row is not None, killed=dead, accepted=bool(reason))
                counts.update(timeouts=bool(row and row["status"] == "timeout"))
                counts.update(survivors=row is not None and not dead and not reason)
        table.add_row(file, *(str(counts[c]) for c in ("killed", "run", "timeouts", "survivors", "accepted", "all")))
        total.update(counts)
    table.add_row("together", *(str(total[c]) for c in ("killed", "run", "timeouts", "survivors", "accepted", "all")))
    console.print(table)
    for mutant in everything:
        row = ended.get(mutant.name)
        if row and row["status"] not in DEAD and not row["reason"]:
            tried = "no test runs it" if not row["covering"] else f"{row['tests']} of {row['covering']} tests"
            console.print(f"{mutant.words}  ({mutant.change.kind}; {tried})", highlight=False, markup=False)
        elif row and row["reason"] and row["status"] in DEAD:
            console.print(f"has a reason, but is killed: {mutant.words}", highlight=False, markup=False)
    for stale in reasons.unused:
        console.print(f"a reason that fits no mutant: {stale}", style="bold red", highlight=False, markup=False)


if __name__ == "__main__":
    # Not through the module's own name: workers must not import it twice.
    sys.exit(main())
