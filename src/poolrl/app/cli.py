"""The command line: `poolrl --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from poolrl import __version__

app = App(
    name="poolrl",
    version=__version__,
    help="Learn a decision policy from a sensitive, censored log, with a differential-privacy guarantee.",
    help_format="plaintext",
)


DEMO_EXAMPLES = """Examples:
  poolrl demo
  poolrl demo /tmp/shop --trajectories 500"""


@app.command(help_epilogue=DEMO_EXAMPLES)
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
    from poolrl.app.demo import run_demo

    run_demo(out, trajectories=trajectories, seed=seed)


def main() -> None:
    """Run the command line; a bad argument ends in one line, not in a traceback."""
    import sys

    try:
        app()
    except (ValueError, OSError) as error:
        print(f"poolrl: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
