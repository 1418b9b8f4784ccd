"""Where fits are killed, and what must be true afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.helpers.processes import program
from tests.helpers.shops import small_shop, write_config

# STEP-WHEN: whether its rho stays spent, and whether its release is there.
KILLED_AT = {
    "reserve-after": (True, False),
    "read-after": (True, False),
    "_write_draft-after": (True, False),
    "commit-after": (True, False),
    "draw_page-before": (True, True),
}
# The same between those steps.
KILLED_BETWEEN = {
    "reserve-before": (False, False),
    "open_log-before": (True, False),
    "sketch_of-after": (True, False),
    "read-before": (True, False),
    "learn-after": (True, False),
    "commit-before": (True, False),
}


def kill_fits(folder: Path, cases: Iterable[str]) -> Path:
    """Make a shop for each case, in a folder that is named after it, and kill its fit there."""
    for case in cases:
        (folder / case).mkdir()
        write_config(folder / case, small_shop(folder / case))
    subprocess.run(program("killed_fits", folder, *cases), check=True, capture_output=True)
    return folder
