"""Audits of configured fits, of every kind that a fit can be: what attacks prove, beside what is claimed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.report import Report, run
from poolrl import Backlog, LostSales
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import AuditCase
from poolrl.workflow.paying import ON_TOP_SHARE

THREATS = Path(__file__).parent.parent / "docs" / "threat-model.md"
FACTS: dict[str, Any] = {"holding": 1.0, "shortage": 1.0, "horizon": 3, "products": 2, "boundary": 0.9}
TWO: dict[str, Any] = FACTS | {"demand_max": [40.0, 60.0]}
SIZES = {"size": ["large", "small", "tiny"]}
UNITS = 300
# As by fit: a tenth of ρ for sums of what was left. A boundary limits how much can be left.
SUMS: dict[str, Any] = {"left_over": ON_TOP_SHARE, "units": UNITS}
OPEN = TWO | {"boundary": 1.0}
MEMORY: dict[str, Any] = {"scaled": True, "scale_memory": 2}
# Budgets of 0.7 and 0.59 have variances that are not whole numbers.
FITS = [
    (AuditCase(LostSales(**TWO), units=UNITS, title="two products, three steps, a boundary of 0.9"), 1.0),
    (AuditCase(Backlog(**TWO), units=UNITS, title="the same with a backlog"), 1.0),
    (AuditCase(LostSales(**TWO), per_unit=3, units=UNITS, title="units of three trajectories"), 0.7),
    (AuditCase(LostSales(**TWO, labels=SIZES), units=UNITS, title="three labels, protected"), 1.0),
    (AuditCase(LostSales(**TWO, labels=SIZES), units=UNITS, labels_public=True, title="three labels, public"), 0.59),
    (AuditCase(LostSales(**TWO), units=UNITS, scaled=True, scale_memory=2, title="a scale with a memory of 2"), 1.0),
    (AuditCase(LostSales(**TWO), **SUMS, title="two products and what was left"), 1.0),
    (AuditCase(LostSales(**TWO, labels=SIZES), **SUMS, title="three labels, protected, and what was left"), 1.0),
    (AuditCase(LostSales(**OPEN), **SUMS, **MEMORY, title="a scale with a memory of 2, and what was left"), 1.0),
    (AuditCase(LostSales(**FACTS, demand_max=8.0), "published", engine="arrays", title="the published learner"), 1.0),
]


def work(report: Report, arguments: argparse.Namespace) -> None:
    """Attack each of them."""
    rows, flagged = [], False
    for case, rho in track(FITS, "fits"):
        found = attack_case(case, rho=rho, releases=arguments.releases)
        flagged |= bool(found.faults)
        proved = f"{found.rho_bound:.3f} ({found.rho_bound / rho:.1%})"
        variances = ", ".join(dict.fromkeys(str(stated.variance) for stated, _ in found.tables))
        facts = [f"{found.numbers:,}", variances, f"{found.moved_share:.0%}", f"{rho:g}", proved]
        rows.append([case.name, *facts, found.verdict])
    header = ("fit", "numbers", "σ²", "moved, of what is paid for", "ρ claimed", "ρ proved, if Gaussian", "verdict")
    report.table(header, rows)
    report.text(
        f"{arguments.releases:,} releases of each fit, of a log with {UNITS} units counted by DuckDB. Bounds hold with "
        "95% confidence."
    )
    if flagged:
        sys.exit(1)


if __name__ == "__main__":
    run(
        Report("audits", "Audits of configured fits", ("audit", "privacy"), THREATS),
        work,
        releases=(20_000, "releases of each fit"),
    )
