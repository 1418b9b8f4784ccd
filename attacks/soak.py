"""Random faults, one after another, on one data set. The report says what was tried and what was lost.

    python -m attacks.soak                      an hour
    python -m attacks.soak --minutes 5 --seed 3

Every round disturbs a command that works on a ledger, a release or a reproduction. It kills the command at a random
moment, fills its disk, makes its folder read-only, truncates its log, or moves its clock. Afterwards

  - everything that was confirmed is there: every entry of the ledger, every stored run;
  - no budget was gained: what is spent never shrinks, and covers every release;
  - a release is complete, and verifies against the ledger, or it is not there;
  - the same command, undisturbed, continues or says what to do.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from attacks.faults import Fault, faults
from attacks.shop import LostError, Shop

MINUTE = 60.0


def main() -> int:
    """Run until the time is up, or something is lost; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m attacks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="of the faults (default: a random one, printed)")
    parser.add_argument("--only", default=None, help="one kind of fault")
    arguments = parser.parse_args()
    if not arguments.minutes > 0:
        parser.error(f"--minutes must be more than 0, got {arguments.minutes:g}")
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    console = Console(width=110)
    console.print(f"seed {seed}, {arguments.minutes:g} minutes", highlight=False)
    with tempfile.TemporaryDirectory(prefix="poolrl-soak.") as folder:
        shop = Shop(Path(folder), random.Random(seed))
        known = faults(shop)
        if arguments.only not in (None, *known):
            parser.error(f"there is no fault {arguments.only!r}; choose from {', '.join(known)}")
        chosen = {name: fault for name, fault in known.items() if arguments.only in (None, name)}
        began = time.monotonic()
        # Undisturbed, to measure how long a fit takes.
        shop.again(shop.out())
        shop.seconds = time.monotonic() - began
        tried, ended, lost = soak(shop, chosen, arguments.minutes * MINUTE, console)
        there = shop.summary()
    table = Table(title="What was tried", title_justify="left")
    for name in ("fault", "times", "how the commands ended"):
        table.add_column(name, justify="right" if name == "times" else "left")
    for name in chosen:
        how = ", ".join(f"{word} {count}" for (fault, word), count in sorted(ended.items()) if fault == name)
        table.add_row(name, str(tried[name]), how)
    console.print(table)
    console.print(there, highlight=False)
    console.print(f"Lost: {lost or 'nothing'}", highlight=False, style="bold red" if lost else "bold green")
    return 1 if lost else 0


def soak(
    shop: Shop, chosen: dict[str, Fault], seconds: float, console: Console
) -> tuple[Counter[str], Counter[tuple[str, str]], str]:
    """Faults until the time is up: how often each was tried, how its commands ended, and what was lost."""
    tried: Counter[str] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    end = time.monotonic() + seconds
    said = time.monotonic()
    while time.monotonic() < end:
        # The fault that was tried least, so that even a short soak tries them all.
        name = min(chosen, key=lambda each: (tried[each], shop.rng.random()))
        tried[name] += 1
        try:
            for word in chosen[name]():
                ended[name, word] += 1
            shop.check()
        except LostError as error:
            return tried, ended, f"{name}: {error}"
        except Exception as error:
            return tried, ended, f"{name}: the folder could not be checked ({type(error).__name__}: {error})"
        if time.monotonic() - said > MINUTE:
            said = time.monotonic()
            left = (end - said) / MINUTE
            console.print(f"{tried.total():,} faults, nothing lost, {left:.0f} minutes left", highlight=False)
    return tried, ended, ""


if __name__ == "__main__":
    sys.exit(main())
