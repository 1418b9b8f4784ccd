"""A small shop with a configuration, its finished release, and fits of it that were killed."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl.cli.main import app
from poolrl.workflow.forecast import Forecast
from tests.helpers.commands import CommandLine, answer_of
from tests.helpers.killed import KILLED_AT, kill_fits
from tests.helpers.shops import Facts, Run, small_shop, write_config
from tests.helpers.simulations import shorten_forecast, shorten_plan
from tests.helpers.tables import Make

# Half a million objects of imported modules stay to the end. To look through them for garbage as often as usual takes
# a third of the time in which tests are collected, and a fifth of that in which they run. They are not frozen, because
# attacks/mutant_code.py finds functions among the objects that the collector knows.
gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that ask for a browser, a server or a cluster are slow; those that share a fixture share a worker."""
    for item in items:
        if {"browser", "server", "cluster"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
        if any(each.scope == "module" for several in fixtures for each in several):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(autouse=True, scope="session")
def own_ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reaches the ledger of the person who runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return small_shop(tmp_path)


@pytest.fixture
def config(tmp_path: Path, facts: Facts) -> Path:
    return write_config(tmp_path, facts)


@pytest.fixture
def short_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that are not about the numbers on the page."""
    shorten_forecast(monkeypatch.setattr)


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is read, paid and refused: a fit takes a third less time without its page."""
    monkeypatch.setattr("poolrl.workflow.page.draw_page", lambda *_: Forecast(because=""))


@pytest.fixture
def short_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that are not about the numbers of a plan."""
    shorten_plan(monkeypatch.setattr)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], short_forecast: None) -> Run:
    """Call a command in this process, with a short forecast; its standard output."""

    def call(*arguments: str | Path) -> str:
        capsys.readouterr()
        app([str(argument) for argument in arguments], result_action="return_value")
        return capsys.readouterr().out

    return call


@pytest.fixture
def command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, short_forecast: None
) -> CommandLine:
    """The same with its exit status and its complaint, and errors as a user sees them."""
    return lambda *arguments: answer_of([str(each) for each in arguments], capsys, monkeypatch)


@pytest.fixture(scope="session")
def one_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with configuration, ledger and a finished release; do not write into it."""
    folder = tmp_path_factory.mktemp("shop")
    config = write_config(folder, small_shop(folder))
    with pytest.MonkeyPatch.context() as patch:
        shorten_forecast(patch.setattr)
        app(["fit", "--new-account", "--config", str(config), "--json"], result_action="return_value")
    return folder


@pytest.fixture
def released(one_release: Path, tmp_path: Path) -> Path:
    """The same, to be tampered with."""
    shutil.copytree(one_release, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(scope="session")
def killed_fits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shops whose fit was killed before or after a step, named after it; do not write into them."""
    return kill_fits(tmp_path_factory.mktemp("killed"), KILLED_AT)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Lets a Spark cluster of one worker read an Arrow table from Parquet; an Ibis table of it."""
    if shutil.which("java") is None:
        if os.environ.get("POOLRL_TEST_EVERYTHING"):
            pytest.fail("Java is not installed")
        pytest.skip("Spark needs Java (Debian: openjdk-17-jre-headless)")
    pyspark = pytest.importorskip("pyspark.sql", reason="needs Spark: pip install 'poolrl[spark]'")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        pyspark.SparkSession.builder.master("local-cluster[1,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than counting a few rows
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    connection, folder, numbers = ibis.pyspark.connect(session), tmp_path_factory.mktemp("spark"), itertools.count()

    def make(table: pa.Table) -> Any:
        path = folder / f"{next(numbers)}.parquet"
        pq.write_table(table, path)
        return connection.read_parquet(path)

    yield make
    session.stop()
