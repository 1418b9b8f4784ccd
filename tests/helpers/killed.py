"""Where a fit is killed by the fixture `killed_fits`, and what must be true afterwards."""

from __future__ import annotations

# STEP-WHEN: whether its rho stays spent, and whether its release is there.
KILLED_AT = {
    "reserve-before": (False, False),
    "reserve-after": (True, False),
    "open_log-before": (True, False),
    "digests-after": (True, False),
    "read-before": (True, False),
    "read-after": (True, False),
    "learn-after": (True, False),
    "_write_draft-after": (True, False),
    "commit-before": (True, False),
    "commit-after": (True, False),
    "draw_page-before": (True, True),
}
