"""The command line: `poolrl --help`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

from cyclopts import App, Parameter

from poolrl import __version__
from poolrl.cli.workflow import add_workflow

app = App(
    name="poolrl",
    version=__version__,
    help="Learn a decision policy from a sensitive, censored log, with a differential-privacy guarantee.",
    help_format="plaintext",
    help_epilogue="""From a table to a signed policy:
  poolrl init --example && poolrl check && poolrl plan && poolrl fit""",
    suppress_keyboard_interrupt=False,  # `main` says that it was stopped
)
add_workflow(app)

STOPPED = 130  # as shells say of a command that Ctrl-C has ended; a request to end is answered alike

DEMO_EXAMPLES = """Examples:
  poolrl demo
  poolrl demo /tmp/shop --trajectories 500"""


@app.command(help_epilogue=DEMO_EXAMPLES, sort_key=20)
def demo(
    out: Annotated[Path, Parameter(help="Folder for the log, the policy, the guarantee and the picture.")] = Path(
        "demo"
    ),
    *,
    trajectories: Annotated[int, Parameter(help="Weeks in the simulated log.")] = 2000,
    seed: Annotated[int, Parameter(help="Of the simulated shop; the privacy noise is never seeded.")] = 1,
) -> None:
    """Simulate a shop, learn its ordering policy at several privacy budgets, and show what privacy costs.

    Takes less than a minute. Everything is written to a folder that you can look through.
    """
    from poolrl.shop.demo import run_demo

    run_demo(out, trajectories=trajectories, seed=seed)


AUDIT_EXAMPLES = """Examples:
  poolrl audit                                   both learners, c = 1 and 3: three minutes on 2 cores
  poolrl audit --releases 20000                  a first look: sees a number that lacks a tenth of its variance
  poolrl audit default --noise opendp            OpenDP's sampler, some ten times slower
  poolrl audit --times 20 --releases 20000       how often is a sound release flagged?

Exits with 1 if anything is flagged. docs/threat-model.md says what an audit can show and what not."""


@app.command(help_epilogue=AUDIT_EXAMPLES, sort_key=22)
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
    json: Annotated[bool, Parameter(help="For programs: JSON on standard output.", negative="")] = False,
) -> None:
    """Attack poolrl's own releases: is the privacy loss really no larger than claimed?

    Two simulated logs that differ in one unit, at the worst case; many releases of each, through the code of fit; the
    best test between them, and the privacy loss that its success proves. No log of yours is read, and no budget spent.
    """
    from poolrl.cli.audit import run_audit

    if not run_audit(learner, out, rho=rho, releases=releases, noise=noise, times=times, workers=workers, as_json=json):
        raise SystemExit(1)


REPRODUCE_EXAMPLES = """Examples:
  poolrl reproduce --quick                                  a first look, in three minutes
  poolrl reproduce --rossmann ~/Downloads/train.csv         everything: about eight minutes on 2 cores
  poolrl reproduce rq1 --runs 20
  poolrl reproduce claims                                   the verdicts; runs what is missing
  poolrl reproduce report                                   draw again from the results, run nothing
  RAY_ADDRESS=10.0.0.1:6379 poolrl reproduce --backend ray  on a cluster; without RAY_ADDRESS a Ray of its own

Stopped by Ctrl-C, kill or power cut: the same command goes on where it was."""


@app.command(help_epilogue=REPRODUCE_EXAMPLES, sort_key=21)
def reproduce(
    what: Annotated[
        str,
        Parameter(help="all, rq1, rq2, rq3, sensitivity, qlearning, claims (all of them), or report (run nothing)."),
    ] = "all",
    *,
    out: Annotated[Path, Parameter(help="Folder for results, report and figures.")] = Path("reproduction"),
    runs: Annotated[int | None, Parameter(help="Seeds per setting: 10, as in the paper, or 5 with --quick.")] = None,
    quick: Annotated[bool, Parameter(help="Fewer values, fewer seeds.", negative="")] = False,
    workers: Annotated[
        int | None, Parameter(help="Processes; all cores if left out. Rows do not depend on it.")
    ] = None,
    backend: Annotated[
        str,
        Parameter(
            help="Where they run: loky (this machine), ray (pip install 'poolrl[ray]') or spark (pip install "
            "'poolrl[spark]', and Java), on a cluster that has poolrl. Rows do not depend on it either."
        ),
    ] = "loky",
    rossmann: Annotated[
        Path | None,
        Parameter(help="Your copy of Kaggle's Rossmann train.csv, plain or .gz; or set POOLRL_ROSSMANN."),
    ] = None,
) -> None:
    """Reproduce the paper's evaluation, with an honest verdict on each of its claims.

    Every finished run is stored at once, and a run depends on its setting and seed alone.
    """
    from poolrl.cli.reproduce import run_reproduction

    run_reproduction(what, out, runs=runs, quick=quick, workers=workers, train_csv=rossmann, backend=backend)


def main() -> None:
    """Run the command line; a bad argument ends in one line, not in a traceback."""
    import os

    from poolrl.interrupts import answered

    with answered() as asked:
        try:
            app()
        except KeyboardInterrupt:
            _end_as_asked()
        except OSError as error:
            what = "there is no file" if isinstance(error, FileNotFoundError) else error.strerror
            print(f"poolrl: {error if error.filename is None else f'{what}: {error.filename}'}", file=sys.stderr)
            raise SystemExit(STOPPED if asked else 1) from None
        except ValueError as error:
            print(f"poolrl: {error}", file=sys.stderr)
            raise SystemExit(STOPPED if asked else 1) from None
        except Exception as error:
            if asked:  # a library that is interrupted may fail in words of its own, a compiled one at its import, say
                _end_as_asked()
            if os.environ.get("POOLRL_TRACEBACK"):  # for its developers, on data of their own
                raise
            # The message is not printed, because nobody knows whether it quotes the log.
            print(f"poolrl: stopped by an unexpected {type(error).__name__}: a defect of poolrl", file=sys.stderr)
            raise SystemExit(1) from None


def _end_as_asked() -> NoReturn:
    print("poolrl: stopped", file=sys.stderr)
    raise SystemExit(STOPPED) from None


if __name__ == "__main__":
    main()
