"""A chain's export through the command line, as the benchmark measures it."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.chain_workflow import measure, write_chain

from poolrl.workflow.check import look_at
from poolrl.workflow.config.configuration import load_config


@pytest.mark.slow
def test_an_export_goes_from_init_to_a_release(tmp_path: Path) -> None:
    """Rows that are missing, double or misspelt cost themselves and no more; check accounts for every one of them."""
    rows = write_chain(tmp_path / "export.csv", products=3, weeks=200, seed=1)
    steps = measure(tmp_path, products=3, weeks=200, labels=False, rho=1.0)
    assert [step.code for step in steps] == [0, 0, 0, 0]
    assert (tmp_path / "release" / "certificate.json").exists()
    seen = {each.what: each.seen for each in look_at(load_config(tmp_path / "poolrl.toml"))}
    assert seen["rows"] == f"{rows:,} in the export"
    found = seen["weeks of shops"]
    assert found.startswith("200 found: ")
    lost = [int(seen[name].split()[0].replace(",", "")) for name in ("double rows", "missing rows", "no scale")]
    typing = int(seen["unreadable sales"].split()[0])
    used = 3600 - sum(lost) - typing
    assert seen["used by a fit"].startswith(f"{used / 3600:.1%}")
