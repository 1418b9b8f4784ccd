"""Where fits are killed, and what must be true afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.helpers.processes import program
from tests.helpers.shops import small_shop, write_config

# STEP-WHEN: whether its rho stays spent, and whether its release is there. The quick tests look at these steps.
KILLED_AT = {"_write_draft-after": (True, False), "commit-after": (True, False)}
# The same before, between and after them.
KILLED_BETWEEN = {
    "reserve-before": (False, False),
    "reserve-after": (True, False),
    "open_log-before": (True, False),
    "sketch_of-after": (True, False),
    "read-before": (True, False),
    "read-after": (True, False),
    "learn-after": (True, False),
    "commit-before": (True, False),
    "draw_page-before": (True, True),
}


def kill_fits(folder: Path, cases: Iterable[str]) -> Path:
    """Make a shop for each case, in a folder that is named after it, and kill its fit there."""
    for case in cases:
        (folder / case).mkdir()
        write_config(folder / case, small_shop(folder / case))
    subprocess.run(program("killed_fits", folder, *cases), check=True, capture_output=True)
    return folder
