"""`poolrl init`: flags and questions, both made of the configuration's keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from poolrl.cli.main import app
from poolrl.shop.answers import asked_keys, flag_of
from poolrl.shop.config import Config
from poolrl.shop.config_file import load_config

FLAGS = {
    "products": "bread, milk",
    "horizon": "7",
    "holding": "0.3,0.1",
    "shortage": "0.6",
    "demand_max": "150,200",
    "source": "log.parquet",
    "data_set": "shops",
    "rho": "0.1",
    "units": "2000",
}


def init(path: Path, flags: dict[str, str | None], **options: bool) -> Config:
    given = [f"{flag_of(name)}={text}" for name, text in flags.items() if text is not None]
    app(
        ["init", f"--out={path}", *given, *(f"--{name}" for name, on in options.items() if on)],
        result_action="return_value",
    )
    return load_config(path).config


def test_init_from_flags(tmp_path: Path) -> None:
    config = init(tmp_path / "a.toml", FLAGS)
    assert config.problem.holding == [0.3, 0.1]
    assert config.problem.shortage == 0.6
    assert config.log.opening == ["bread_opening", "milk_opening"]
    assert (config.privacy.unit, config.privacy.budget) == (None, 0.1)
    config = init(tmp_path / "b.toml", FLAGS | {"unit": "shop", "max_per_unit": "50", "left": "rest_{product}"})
    assert (config.privacy.unit, config.privacy.max_per_unit) == ("shop", 50)
    assert config.log.left == ["rest_bread", "rest_milk"]
    config = init(tmp_path / "c.toml", FLAGS, sales=True)
    assert config.log.query is not None
    assert all(f"product = '{name}'" in config.log.query for name in ("bread", "milk"))
    assert config.privacy.protects == "one week of one shop"
    with pytest.raises(ValueError, match=r"horizon must lie in 1 \.\. 7 for a sales export"):
        init(tmp_path / "d.toml", FLAGS | {"horizon": "14"}, sales=True)


def test_init_says_all_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs --holding, --source, --rho as well"):
        init(tmp_path / "a.toml", FLAGS | {"rho": None, "source": None, "holding": " "})
    with pytest.raises(ValueError, match="horizon must be a whole number, got 'seven'"):
        init(tmp_path / "a.toml", FLAGS | {"horizon": "seven"})
    with pytest.raises(ValueError, match=r"\[privacy\] rho: input should be greater than or equal to"):
        init(tmp_path / "a.toml", FLAGS | {"rho": "-1"})
    assert not (tmp_path / "a.toml").exists()
    with pytest.raises(ValueError, match="unit needs max_per_unit"):
        init(tmp_path / "a.toml", FLAGS | {"unit": "shop"})


def test_init_destroys_nothing(tmp_path: Path) -> None:
    init(tmp_path / "a.toml", FLAGS)
    good = (tmp_path / "a.toml").read_bytes()
    with pytest.raises(ValueError, match="demand_max must be positive"):
        init(tmp_path / "a.toml", FLAGS | {"demand_max": "-5"}, force=True)
    assert (tmp_path / "a.toml").read_bytes() == good
    (tmp_path / "sensitive").mkdir()
    (tmp_path / "sensitive" / "log.parquet").write_text("the only copy")
    with pytest.raises(ValueError, match="might be somebody's only log"):
        init(tmp_path / "b.toml", {}, example=True)
    assert (tmp_path / "sensitive" / "log.parquet").read_text() == "the only copy"
    assert not (tmp_path / "b.toml").exists()


def test_init_replaces_nothing_unasked(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("precious")
    with pytest.raises(ValueError, match="exists; write elsewhere with --out, or replace it with --force"):
        init(tmp_path / "a.toml", FLAGS)
    assert (tmp_path / "a.toml").read_text() == "precious"
    init(tmp_path / "a.toml", FLAGS, force=True)
    with pytest.raises(ValueError, match="leave out --rho"):
        init(tmp_path / "b.toml", {"rho": "1"}, example=True)


ANSWERS = [
    "",  # kind: lost sales
    "bread, milk",
    "seven",  # not a number: asked again
    "-7",  # nor can it be negative
    "7",
    "",  # no names for the steps
    "0.3,0.1,0.2",  # three for two products
    "0.3,0.1",
    "0.6",
    "150,200",
    "",  # boundary: 1
    "log.parquet",
    *[""] * 7,  # query and columns
    "shop",
    "",  # needed with a unit
    "20",
    "",  # what it protects, in words
    "0.1",
    "",  # budget: rho
    "shops 2025",
    "2000",
]


def test_init_asks_on_a_terminal(tmp_path: Path) -> None:
    """A real terminal, answered line by line as prompts come."""
    import os
    import pty
    import subprocess
    import sys

    terminal, other = pty.openpty()
    command = [sys.executable, "-m", "poolrl.cli.main", "init"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=other, stdout=other, stderr=other)
    os.close(other)
    shown, answers = b"", iter(ANSWERS)
    while True:
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # the other end was closed
            break
        if shown.endswith(b": "):
            os.write(terminal, next(answers).encode() + b"\n")
            shown += b" "
    assert process.wait() == 0, shown.decode()
    os.close(terminal)
    assert next(answers, None) is None
    assert b"horizon must be a whole number" in shown
    assert b"Everything asked for here is public" in shown
    plain = "".join(re.sub(rb"\x1b\[[0-9;]*m", b"", shown).decode().split())
    for key in asked_keys(sales=False):  # the question is the description of the key
        assert "".join(key.why.split()) in plain
    config = load_config(tmp_path / "poolrl.toml").config
    assert config.problem.products == ["bread", "milk"]
    assert (config.privacy.unit, config.privacy.max_per_unit, config.privacy.budget) == ("shop", 20, 0.1)
    assert (config.log.opening, config.plan.units) == (["bread_opening", "milk_opening"], 2000)
