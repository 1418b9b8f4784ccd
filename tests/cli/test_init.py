"""`poolrl init`: flags and questions, both made of the configuration's keys."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from poolrl.cli.main import app
from poolrl.workflow.config.answers import asked_keys, flag_of
from poolrl.workflow.config.configuration import Config, load_config
from tests.helpers.processes import POOLRL

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
    (tmp_path / "products.txt").write_text("bread, dark\n\nmilk\n")
    flags = {"unit": "shop", "max_per_unit": "50", "left": "rest_{product}", "products": f"@{tmp_path}/products.txt"}
    config = init(tmp_path / "b.toml", FLAGS | flags)
    assert (config.privacy.unit, config.privacy.max_per_unit) == ("shop", 50)
    assert config.problem.products == ["bread, dark", "milk"]
    assert config.log.left == ["rest_bread, dark", "rest_milk"]


def test_init_says_all_that_is_missing(tmp_path: Path) -> None:
    for flags, message in (
        ({"rho": None, "source": None, "holding": " "}, "needs --holding, --source, --rho as well"),
        ({"rho": "-1"}, r"\[privacy\] rho: input should be greater than or equal to"),
    ):
        with pytest.raises(ValueError, match=message):
            init(tmp_path / "a.toml", FLAGS | flags)
    assert not (tmp_path / "a.toml").exists()


def test_init_destroys_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("precious")
    with pytest.raises(ValueError, match="exists; write elsewhere with --out, or replace it with --force"):
        init(path, FLAGS)
    assert path.read_text() == "precious"
    init(path, FLAGS, force=True)
    good = path.read_bytes()
    with pytest.raises(ValueError, match="demand_max must be positive"):
        init(path, FLAGS | {"demand_max": "-5"}, force=True)
    assert path.read_bytes() == good
    with pytest.raises(ValueError, match="leave out --rho"):
        init(tmp_path / "b.toml", {"rho": "1"}, example=True)
    (tmp_path / "sensitive").mkdir()
    (tmp_path / "sensitive" / "sales.csv").write_text("the only copy")
    with pytest.raises(ValueError, match="might be somebody's only log"):
        init(tmp_path / "b.toml", {}, example=True)
    assert (tmp_path / "sensitive" / "sales.csv").read_text() == "the only copy"
    assert not (tmp_path / "b.toml").exists()


# A header that names everything, with a promotion; and a line that nobody may read, because it is no text at all.
GERMAN = b"Filial-Nr;DATUM;Artikel;Anfangsbestand;Wareneingang;Absatz;ausverkauft;Aktion\n" + b"\xff\x00;;\n"
OF_SALES = {name: text for name, text in FLAGS.items() if name not in ("horizon", "source")}


def test_init_from_the_header_of_a_sales_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but the header is read: the line behind it could not be."""
    export = tmp_path / "export.csv"
    export.write_bytes(GERMAN)
    words = {"yes": 'ja,""', "no": "nein", "decimal": ",", "date_format": "%d.%m.%Y", "closed": "So,Montag"}
    labels = {"labels": "promotion=nein,ja; shop=1..40", "scale": "same weekday, last 4 weeks", "weeks_public": "yes"}
    period = {"period_first": "2025-01-06", "period_before": "2025-02-03"}
    config = init(tmp_path / "a.toml", OF_SALES | {"sales": str(export)} | words | labels | period)
    assert (config.period.column, config.period.first, config.period.before) == ("monday", *period.values())
    sales = config.sales
    found = sales.shop, sales.date, sales.product, sales.opening, sales.delivery, sales.sales, sales.stock_out
    assert found == ("Filial-Nr", "DATUM", "Artikel", "Anfangsbestand", "Wareneingang", "Absatz", "ausverkauft")
    assert (sales.delimiter, sales.decimal, sales.yes, sales.no) == (";", ",", ["ja", ""], ["nein"])
    assert sales.labels == {"promotion": "Aktion"}
    assert (config.problem.horizon, config.problem.steps) == (5, ["Tue", "Wed", "Thu", "Fri", "Sat"])
    privacy = config.privacy
    assert (config.scale_memory, privacy.weeks_public, privacy.protects) == (4, True, "one week of one shop")
    printed = capsys.readouterr().out
    assert "no line behind it" in printed
    assert "shop = Filial-Nr" in printed


def test_a_decimal_comma_is_not_two_products(tmp_path: Path) -> None:
    """A user who writes decimal commas in the export may write them here. Elsewhere 0,1 stands for two products."""
    export = tmp_path / "export.csv"
    export.write_bytes(GERMAN)
    given = OF_SALES | {"sales": str(export), "products": "bread,milk", "holding": "0,1"}
    with pytest.raises(ValueError, match=r"--holding 0,1: is that one number.* Write 0.1 for one number, or 0.0,1.0"):
        init(tmp_path / "a.toml", given | {"decimal": ","})
    assert init(tmp_path / "a.toml", given | {"holding": "0.0,1.0", "decimal": ","}).problem.holding == [0.0, 1.0]
    assert init(tmp_path / "b.toml", given | {"decimal": "."}).problem.holding == [0.0, 1.0]


def test_init_asks_for_what_a_header_does_not_tell(tmp_path: Path) -> None:
    """Two names for a product, none for the stock; a flag answers, and does not need to be in the header."""
    export = tmp_path / "export.csv"
    export.write_text("store,date,Artikel,Artikelnummer,x,delivery,sold\n")
    asked = r"--product-column \(Artikel or Artikelnummer\), --opening-column \(no name.* on a terminal"
    with pytest.raises(ValueError, match=asked):
        init(tmp_path / "a.toml", OF_SALES | {"sales": str(export)})
    named = {"sales": str(export), "product_column": "Artikel", "opening_column": "x"}
    config = init(tmp_path / "a.toml", OF_SALES | named)
    assert (config.sales.opening, config.sales.stock_out, config.sales.delimiter) == ("x", None, ",")


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
    "shop=1..40; promo",  # a label without values
    "shop=1..40; promo=no,yes",
    "",  # no label changes from step to step
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
    "monday",
    "2025-01-06",
    "2025-02-03",
]


def test_init_asks_on_a_terminal(tmp_path: Path) -> None:
    """A real terminal, answered line by line as prompts come."""
    terminal, other = pty.openpty()
    process = subprocess.Popen([*POOLRL, "init"], cwd=tmp_path, stdin=other, stdout=other, stderr=other)
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
    assert b"horizon: input should be a valid integer" in shown
    assert b"Everything asked for here is public" in shown
    plain = "".join(re.sub(rb"\x1b\[[0-9;]*m", b"", shown).decode().split())
    for key in asked_keys(sales=False):  # the question is the description of the key
        assert "".join(key.why.split()) in plain
    config = load_config(tmp_path / "poolrl.toml").config
    assert (config.problem.products, config.log.opening) == (["bread", "milk"], ["bread_opening", "milk_opening"])
    assert config.problem.labels == {"shop": "1..40", "promo": ["no", "yes"]}
    assert (config.privacy.unit, config.privacy.max_per_unit, config.privacy.budget) == ("shop", 20, 0.1)
    assert (config.plan.units, config.period.column, config.period.before) == (2000, "monday", "2025-02-03")
