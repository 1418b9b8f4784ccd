"""The benchmark of decisions compares two programs that give the same answers, and would see if they did not."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import decisions


def test_both_programs_answer_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "CHAIN", 5)
    policy, ours, plain = tmp_path / "p.npz", tmp_path / "ours.csv", tmp_path / "plain.csv"
    made = decisions.chain_policy(3)
    made.save(policy)
    decisions.write_stocks(tmp_path / "t.csv", made, 200)
    decisions.row_by_row(policy, tmp_path / "t.csv", plain)
    decisions.timed(policy, tmp_path / "t.csv", ours)
    decisions.check_answers(ours, plain)
    good = ours.read_text()
    ours.write_text(good.replace("000000007,", "7,"))
    with pytest.raises(AssertionError, match="a cell was not kept"):
        decisions.check_answers(ours, plain)
    before, comma, last = plain.read_text().rstrip("\n").rpartition(",")
    plain.write_text(f"{before}{comma}{float(last) + 0.001}\n")
    ours.write_text(good)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        decisions.check_answers(ours, plain)
