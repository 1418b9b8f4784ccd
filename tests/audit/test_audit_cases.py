"""What is audited: worst cases that use up what is paid for, releases from one count, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, LostSales, Outcomes, SeededNoise
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import CASES, AuditCase
from poolrl.audit.faults import Repeated, Revealed, exact_counts, moved_share, moved_tables, revealed
from poolrl.certificate.certificate import AuditSummary
from poolrl.cli.audit import configured_case
from poolrl.data.counts import ON_TOP, sum_left
from poolrl.privacy.noise.secure import _SecureSampler
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.paying import ON_TOP_SHARE
from tests.helpers.shops import Facts, Run, write_config

FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 1.0, "shortage": 1.0, "boundary": 0.9}
TWO = FACTS | {"demand_max": [40.0, 60.0]}
EVERYWHERE = TWO | {"boundary": 1.0}
SIZES: dict[str, Any] = {"labels": {"size": ["large", "small"]}}
BY_LABEL = FACTS | SIZES | {"demand_max": np.array([[40.0, 60.0], [4.0, 70.0]])}
STEPWISE = {"boundary": [[0.9, 0.3], [1.0, 0.5], [0.07, 0.2]]}
SUMS: dict[str, Any] = {"on_top": {"left_over": ON_TOP_SHARE}, "units": 30}
FOLLOWED: dict[str, Any] = {"scaled": True, "scale_memory": 4}
PAIRS: dict[str, Any] = {"on_top": {"together": 0.1}, "scaled": True, "units": 5}
WORST_CASES = {
    **{case.name: case for case in CASES},
    "another boundary at every step": AuditCase(LostSales(**TWO | STEPWISE), units=30),
    "backlog, another boundary at every step": AuditCase(Backlog(**TWO | STEPWISE), per_unit=2, units=30),
    "a scale of one's own unit": AuditCase(LostSales(**TWO), per_unit=3, scaled=True, units=30),
    "a scale with memory, backlog": AuditCase(Backlog(**TWO), scaled=True, scale_memory=3, units=30),
    "a scale with memory behind a boundary": AuditCase(LostSales(**TWO), scaled=True, scale_memory=3, units=30),
    "bounds by label": AuditCase(LostSales(**BY_LABEL), per_unit=2, units=30),
    "bounds by public label": AuditCase(LostSales(**BY_LABEL), labels_public=True, units=30),
    "all at once": AuditCase(Backlog(**BY_LABEL), scaled=True, scale_memory=2, units=30),
    "a week of three products": AuditCase(
        LostSales(horizon=7, products=3, holding=1.0, shortage=1.0, demand_max=[150.0, 200.0, 100.0]), units=2000
    ),
    "two products, published": AuditCase(LostSales(**FACTS | {"demand_max": 8.0}), "published", engine="arrays"),
    "sums": AuditCase(LostSales(**EVERYWHERE), **SUMS),
    "sums of three trajectories": AuditCase(LostSales(**EVERYWHERE), per_unit=3, **SUMS),
    "sums of labels": AuditCase(LostSales(**EVERYWHERE, **SIZES), per_unit=2, **SUMS),
    "sums and a scale with memory": AuditCase(LostSales(**EVERYWHERE), **FOLLOWED, **SUMS),
    "pairs and a scale": AuditCase(LostSales(**EVERYWHERE), **PAIRS),
    "pairs and a scale with memory": AuditCase(LostSales(**EVERYWHERE), scale_memory=2, **PAIRS),
}
# Where sums move less than is paid for, and how much of it.
SUMS_THAT_MOVE_LESS = [
    # Labels are paid for twice, because a unit may leave a cell for another. Here it stays.
    (AuditCase(LostSales(**EVERYWHERE, **SIZES), labels_public=True, **SUMS), Fraction(1, 2)),
    (AuditCase(LostSales(**EVERYWHERE, **SIZES), **FOLLOWED, **SUMS), Fraction(1, 2)),
    # Behind λ = 3/4 at most 24 of 32 parts are left. With a scale, a quarter of the bound must be sold besides.
    (AuditCase(LostSales(**TWO | {"boundary": 0.75}), **SUMS), Fraction(9, 16)),
    (AuditCase(LostSales(**TWO | {"boundary": 0.75}), **FOLLOWED, **SUMS), pytest.approx(0.25, abs=0.02)),
]


def exact(case: AuditCase, engine: str | None = None) -> tuple[Revealed, Revealed]:
    prepared = case.prepared(1.0)
    with case.logs(engine) as (first, second):
        return exact_counts(prepared, first), exact_counts(prepared, second)


EVERY_CASE = [*((name, case, 1) for name, case in WORST_CASES.items())]
EVERY_CASE += [(case.name, case, share) for case, share in SUMS_THAT_MOVE_LESS]


@pytest.mark.parametrize(
    ("case", "share", "engine"),
    [
        pytest.param(case, share, engine, id=f"{name}-{engine}", marks=pytest.mark.slow if engine == "table" else ())
        for name, case, share in EVERY_CASE
        for engine in case.engines
    ],
)
def test_the_logs_use_up_what_was_paid_for(case: AuditCase, share: Any, engine: str) -> None:
    """The worst case indeed: the squared change is Δ₂², in integers. Of sums it is what can move at the same time."""
    first, second = exact(case, engine)
    tables = moved_tables(first, second)
    assert [each.share for each in tables] == [1] * (len(tables) - 1) + [share]
    paid_for = sum(each.share * each.stated.sensitivity_squared for each in tables)
    assert ((first.numbers - second.numbers) ** 2).sum() == paid_for
    on_top = Fraction(str(sum(case.on_top.values())))
    assert on_top in (0, tables[-1].stated.rho)
    assert moved_share(first, second) == pytest.approx(float(1 - on_top * (1 - tables[-1].share)))
    assert first.public == second.public


def test_what_cannot_use_up_what_was_paid_for_says_so() -> None:
    """Behind λ = 1/20 a scale moves nobody out of the first quarter of a tree: the share shows it."""
    case = AuditCase(LostSales(**TWO | {"boundary": 0.05}), scaled=True, scale_memory=3, units=30, engine="arrays")
    assert 0 < moved_share(*exact(case)) < 1


def test_a_backlog_has_no_sums(tmp_path: Path, facts: Facts) -> None:
    assert configured_case(load_config(write_config(tmp_path, facts))).on_top["left_over"] == ON_TOP_SHARE
    facts["problem"] |= {"kind": "backlog"}
    case = configured_case(load_config(write_config(tmp_path, facts)))
    assert isinstance(case.problem, Backlog)
    assert case.on_top["left_over"] == 0.0


def test_what_cannot_be_a_case_is_said() -> None:
    with pytest.raises(ValueError, match="there is no learner 'defualt'; did you mean default"):
        AuditCase(LostSales(**TWO), "defualt")
    with pytest.raises(ValueError, match="there is no engine 'table'; choose from arrays"):
        AuditCase(LostSales(**TWO), "published")
    with pytest.raises(ValueError, match="an audit needs a problem that declares its outcomes, got object"):
        AuditCase(object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="units must be a whole number of at least 5"):
        AuditCase(LostSales(**TWO), scaled=True, scale_memory=3, units=4)


def test_releases_from_one_count_are_those_that_the_door_makes() -> None:
    """Under seeds: one pass of the door with many samplers gives what a pass for each of them gives."""
    for case in (CASES[0], CASES[2], CASES[6]):
        prepared, sources = case.prepared(1.0), [SeededNoise(seed) for seed in range(4)]
        with case.logs() as (log, _):
            repeated = Repeated(sources)
            released = revealed(prepared, prepared.release(log, repeated))
            each = [revealed(prepared, prepared.release(log, source)).numbers for source in sources]
        assert np.array_equal(repeated.numbers, np.stack(each))
        assert np.array_equal(released.numbers, each[0])


@pytest.mark.slow
def test_the_command_writes_its_numbers(tmp_path: Path, run: Run) -> None:
    said = run("audit", "default", "--releases", "100", "--workers", "1", "--out", tmp_path / "audit")
    assert "epsilon = 7.77 at delta = 1e-06" in said
    assert "11 audits, 0 flagged" in said
    assert "move 100% of what is paid for" in said
    facts = json.loads((tmp_path / "audit/audit.json").read_text())
    assert facts["private"] is True
    assert "summary" not in facts
    assert [each["trajectories_per_unit"] for each in facts["audits"]] == [1, 3, *[1] * 9]
    assert not any(each["flagged"] for each in facts["audits"])
    assert [path.name for path in (tmp_path / "audit").iterdir()] == ["audit.json"]
    with pytest.raises(ValueError, match="exists, and no audit is written over another"):
        run("audit", "--out", tmp_path / "audit")


def test_a_configured_fit_is_opened_by_the_code_of_fit(tmp_path: Path, facts: Facts) -> None:
    """Under its own columns and steps, from a file of its kind; the counts are those of the same arrays."""
    facts["log"] |= {"first_step": 1, "source": "nowhere.csv", "trajectory": "Week no.", "query": "SELECT * FROM log"}
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 2}
    facts["plan"] = {"units": 10**6}
    case = configured_case(load_config(write_config(tmp_path, facts)))
    assert case.units == 100_000 // 3 // 2
    for table, arrays in zip(*(exact(replace(case, units=4), engine) for engine in ("table", "arrays")), strict=True):
        assert np.array_equal(table.numbers, arrays.numbers)
    assert not list(tmp_path.glob("*nowhere*"))


@pytest.mark.slow
def test_an_audit_of_a_configured_fit(tmp_path: Path, facts: Facts, run: Run) -> None:
    """Its problem, its budget and its unit, through the code that opens its log; and no row of that log."""
    facts["log"] |= {"first_step": 1, "source": "nowhere.csv"}
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 2}
    facts["plan"] = {"units": 40}
    config = write_config(tmp_path, facts)
    said = run("audit", "--config", config, "--releases", "400", "--workers", "1", "--out", tmp_path / "audit")
    assert "rho = 0.5" in said
    assert "differ in one shop with 2 trajectories" in " ".join(said.split())
    assert "100% of outcome trees (rho = 0.45), 82% of stock left over (rho = 0.05)" in " ".join(said.split())
    found = json.loads((tmp_path / "audit/audit.json").read_text())
    audited = found["audits"][0]
    assert not audited["flagged"]
    # Δ₂² = 2 H k L c² and H k c² P² with H = 3, k = 2, c = 2, and σ² = Δ₂² / 2ρ with nine tenths of ρ and a tenth.
    sizes = Outcomes().level_sizes(load_config(config).config.problem.posed, slots=80, per_unit=2, rho=0.45)
    trees, sums = (Fraction(each["variance"]) for each in audited["tables"])
    assert trees == 2 * 3 * 2 * len(sizes) * 4 / Fraction(9, 10)
    assert sums == 3 * 2 * 4 * 32**2 * 10
    assert audited["engine"] == "table"
    assert audited["end_to_end_releases"] == 4
    summary = AuditSummary.model_validate(found["summary"])
    assert summary.config_sha256 == sha256(config.read_bytes()).hexdigest()
    assert (summary.claimed_rho, summary.releases) == (0.5, 400)
    # Behind λ = 0.9 at most 29 of 32 parts are left: 28.8, rounded.
    assert summary.moved_share == pytest.approx(0.9 + 0.1 * (29 / 32) ** 2)
    assert summary.verdict == audited["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("option", [("--rho", "1"), ("--noise", "seeded")], ids=["budget", "noise"])
def test_a_certificate_carries_no_audit_of_another(
    option: tuple[str, str], tmp_path: Path, facts: Facts, run: Run
) -> None:
    """And an audit of seeded noise says that it is not private."""
    config, out = write_config(tmp_path, facts | {"plan": {"units": 5}}), tmp_path / "audit"
    said = run("audit", "--config", config, *option, "--releases", "100", "--workers", "1", "--out", out)
    found = json.loads((out / "audit.json").read_text())
    assert "summary" not in found
    assert found["private"] is ("seeded" not in option)
    assert ("NOT PRIVATE" in said) is ("seeded" in option)
    with pytest.raises(ValueError, match="leave out the learner with --config"):
        run("audit", "published", "--config", config)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["defualt"], "did you mean default"),
        (["--noise", "none"], "there is no noise 'none'; choose from secure, opendp, seeded"),
        (["--rho", "inf"], "rho must be finite"),
        (["--rho", "-1"], "rho must be positive"),
        (["--rho", "1e-6", "--releases", "100"], "rho must be larger for an audit"),
        (["--rho", "1e4", "--releases", "100"], "rho must be smaller for an audit"),
        (["--releases", "10"], "releases must be a whole number of at least 100"),
        (["--workers", "0"], "workers must be a whole number"),
    ],
)
def test_what_cannot_be_audited_is_said(
    arguments: list[str], words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words):
        run("audit", *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_is_flagged_ends_with_1(tmp_path: Path, facts: Facts, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a tenth of rho is charged for the sums, and their noise is drawn for all of it."""
    honest = _SecureSampler.add
    # Δ₂² = H k c² P² with H = 3, k = 2, c = 1, P = 32, and σ² = Δ₂² / 2ρ.
    of_sums = Fraction(3 * 2 * 32**2 * 10)
    monkeypatch.setattr(
        _SecureSampler, "add", lambda self, counts, v: honest(self, counts, v / 10 if v == of_sums else v)
    )
    facts["problem"]["boundary"] = 1.0
    config = write_config(tmp_path, facts | {"plan": {"units": 40}})
    with pytest.raises(SystemExit) as ended:
        run("audit", "--config", config, "--releases", "400", "--workers", "1", "--out", tmp_path / "audit")
    assert ended.value.code == 1
    found = json.loads((tmp_path / "audit/audit.json").read_text())["audits"][0]
    assert found["verdict"] == "FLAGGED"
    assert "the noise has another variance than is stated" in found["faults"]
    stated = {"name": "stock left over", "numbers": 6, "rho": 0.05, "variance": str(of_sums), "moved_share": 1.0}
    assert found["tables"][1] == stated


@pytest.mark.slow
def test_sums_of_a_table_are_compared_with_those_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        ON_TOP, "left_over", lambda log, problem, _: sum_left(log, problem) - (type(log).__name__ == "Table")
    )
    found = attack_case(replace(CASES[8], engine="arrays"), releases=200)
    assert "a table in an engine gives other counts than the same arrays" in found.faults
