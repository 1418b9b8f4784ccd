"""Everything that the program reads, as functions of hostile bytes. A reader may only refuse, with a message.

A target gets bytes and an empty folder. It writes a file there, and returns how the program reads it. The bytes are the
file itself, or they choose how a good file is spoilt (`mutations`).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from attacks.good_files import SECRET_NAME, SECRET_NUMBER, SECRETS, good, other_kinds, problem
from attacks.mutations import HOSTILE, Script, deepened, lying_archive, mutated, mutated_array, spoilt
from poolrl import Pool, SeededNoise, Trajectories
from poolrl.data.log import Columns
from poolrl.data.sources.engine import NoRowsError, RowError
from poolrl.data.sources.opening import open_source
from poolrl.data.table import Table
from poolrl.learning import stored
from poolrl.ledger.accounts import OverspendError, ProtectedUnit
from poolrl.ledger.ledger import Ledger
from poolrl.paper import rossmann
from poolrl.paper.results import Results
from poolrl.workflow import decision_tables as decide
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import parse_config
from poolrl.workflow.verified import verify_folder

COLUMNS = Columns("trajectory", "step", ("state_0",), ("action_0",), ("next_state_0",), "who")
NAMES: dict[str, Any] = vars(COLUMNS)


def engine(script: Script, place: Path) -> Callable[[], object]:
    """A table of the log as `poolrl fit` reads it, in DuckDB."""
    name = script.pick(("log.csv", "log.parquet"))
    path = place / name
    path.write_bytes(_spoilt_table(name, script))

    def read() -> None:
        with open_source(name, COLUMNS, folder=place) as opened:
            log = Table(opened.rows, **NAMES, max_per_unit=2)
            log.check(problem())
            Pool(1.0).prepare(problem()).release(log, SeededNoise(0))

    return read


def arrays(script: Script, place: Path) -> Callable[[], object]:
    """A table of the log as `Trajectories` reads it, into memory."""
    name = script.pick(("log.csv", "log.parquet"))
    path = place / name
    path.write_bytes(_spoilt_table(name, script))
    log = Trajectories.from_csv if name.endswith("csv") else Trajectories.from_parquet
    return lambda: Pool(1.0).prepare(problem()).release(log(path, **NAMES, max_per_unit=2), SeededNoise(0))


def _spoilt_table(name: str, script: Script) -> bytes:
    how = script.number(3)
    if how == 0:
        return script.rest()
    if how == 1:
        return spoilt((good() / name).read_bytes(), script)
    table = pq.read_table(good() / "log.parquet")
    number = script.number(table.num_columns)
    column = table.column_names[number]
    values = table[column].to_pylist()
    place = script.number(len(values))
    # The value that makes a reader fail must be a secret, or a message that quotes it would not be noticed.
    secret = (f"{SECRET_NAME} x", SECRET_NAME * 40, "3133.75.1", -313375e300, f"{SECRET_NUMBER}e999")
    values[place] = script.pick([*secret * 5, *(each for each in HOSTILE if not isinstance(each, list | dict))])
    try:
        changed = table.set_column(number, column, pa.array(values))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        # Values that have no common type are written as text.
        words = ["" if each is None else str(each).encode("utf-8", "replace").decode() for each in values]
        changed = table.set_column(number, column, pa.array(words))
    written = io.BytesIO()
    if name.endswith(".csv"):
        pa.csv.write_csv(changed, written)
    else:
        pq.write_table(changed, written)
    return written.getvalue()


def sales(script: Script, place: Path) -> Callable[[], object]:
    """Kaggle's train.csv, plain or packed."""
    original = (good() / "train.csv").read_bytes()
    packed = bool(script.number(2))
    text = script.rest() if script.number(3) == 0 else spoilt(original, script)
    path = place / ("train.csv.gz" if packed else "train.csv")
    path.write_bytes(gzip.compress(text) if packed and script.number(3) else text)
    return lambda: rossmann.read(path, (1, 2))


Target = Callable[[Script, Path], Callable[[], object]]
REFUSALS = (ValueError, stored.OwnProblemError, RowError, NoRowsError, OverspendError)


class FindingError(AssertionError):
    """A hostile file was not just refused."""


def attempt(target: Target, content: bytes) -> str | None:
    """Let a target read its bytes in a new folder; returns the refusal, if any. Any other failure is a finding."""
    with tempfile.TemporaryDirectory(prefix="poolrl-attack.") as outer:
        place = Path(outer) / "place"
        place.mkdir()
        said, read = None, target(Script(content), place)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                read()
        except OSError as error:
            said = f"{error.strerror} {error.filename} {error if error.strerror is None else ''}"
        except FindingError:
            raise
        except Exception as error:
            # By exact type, because subclasses like UnicodeDecodeError quote the file.
            if type(error) not in REFUSALS:
                raise FindingError(f"{type(error).__name__} is not a documented refusal") from error
            said = str(error)
        for words in (said or "", printed.getvalue()):
            if any(secret in words for secret in SECRETS):
                raise FindingError("a value of the log is revealed")
        if said is not None and not said.strip():
            raise FindingError("a refusal without a message")
        if [path.name for path in Path(outer).iterdir()] != ["place"]:
            raise FindingError("a file was written outside the folder")
        return said


def policy(script: Script, place: Path) -> Callable[[], object]:
    """A policy: the file, its facts or its arrays spoilt, with a checksum that fits."""
    path, how = place / "policy.npz", script.number(5)
    source = good() / script.pick(("release/policy.npz", "zones.npz", *(f"{name}.npz" for name in other_kinds())))
    if how == 0:
        path.write_bytes(script.rest())
    elif how == 1:
        path.write_bytes(spoilt(source.read_bytes(), script))
    elif how == 2:
        path.write_bytes(lying_archive(script))
    else:
        with np.load(source) as file:
            arrays = dict(file)
        facts = json.loads(arrays.pop("facts").tobytes())
        del facts["sha256"]
        if how == 3:
            facts = mutated(facts, script)
        else:
            name = script.pick(sorted(arrays))
            arrays[name] = mutated_array(arrays[name], script)
        text = json.dumps(facts | {"sha256": stored._checksum(facts, arrays)} if isinstance(facts, dict) else facts)
        np.savez(path, facts=np.frombuffer(deepened(text).encode("utf-8", "replace"), np.uint8), **arrays)

    def read() -> None:
        desk = decide.open_desk(path)
        names = desk.names
        for step in {names.first_step, names.first_step + len(names.steps) - 1}:
            stock = ",".join("1" * len(names.products))
            asked = desk.question(str(step), stock=stock, scale="2" if desk.scaled else None)
            desk.answer(asked, whole="whole" in desk.takes)

    return read


def configuration(script: Script, place: Path) -> Callable[[], object]:
    """`poolrl.toml`: the file, or good facts spoilt."""
    if script.number(3) == 0:
        text = script.rest()
    elif script.number(2):
        text = spoilt((good() / "poolrl.toml").read_bytes(), script)
    else:
        source = script.pick(("facts", *other_kinds()))
        facts = mutated(json.loads((good() / f"{source}.json").read_text()), script)
        try:
            text = deepened(write_toml(facts)).encode("utf-8", "replace")
        except (AttributeError, TypeError, RecursionError, ValueError):
            # Such facts cannot be written.
            text = b""

    def read() -> None:
        config = parse_config(place / "poolrl.toml", text).config
        config.terms(units=1)
        config.names()

    return read


def certificate(script: Script, place: Path) -> Callable[[], object]:
    """A certificate beside a good policy."""
    original = (good() / "release/certificate.json").read_bytes()
    how = script.number(3)
    if how == 0:
        text = script.rest()
    elif how == 1:
        text = spoilt(original, script)
    else:
        text = deepened(json.dumps(mutated(json.loads(original), script))).encode()
    (place / "certificate.json").write_bytes(text)

    def read() -> None:
        config, books = good() / "release/poolrl.toml", good() / "ledger.sqlite"
        checks = verify_folder(good() / "release/policy.npz", place / "certificate.json", config, books)
        if all(check.good for check in checks) and text != original:
            raise FindingError("a forged certificate was accepted")

    return read


def ledger(script: Script, place: Path) -> Callable[[], object]:
    """A ledger or its key, spoilt byte by byte or entry by entry."""
    for name in ("ledger.sqlite", "ledger.sqlite.key"):
        shutil.copy(good() / name, place / name)
    how = script.number(4)
    if how == 0:
        (place / "ledger.sqlite").write_bytes(script.rest())
    elif how == 1:
        name = script.pick(("ledger.sqlite", "ledger.sqlite.key"))
        (place / name).write_bytes(spoilt((place / name).read_bytes(), script))
    else:
        _rewrite(place / "ledger.sqlite", script, ("entries", "head"))

    def read() -> None:
        with Ledger.existing(place / "ledger.sqlite") as opened:
            faults = opened.verify()
            left = opened.accounts()
            opened.reserve("shop", 0.25, ProtectedUnit("trajectory"))
        # A spoilt ledger gains no budget: it is unchanged, or it was refused before this line.
        if faults or any(account.left > 0.5 for account in left.values()):
            raise FindingError("a spoilt ledger was accepted")

    return read


def results(script: Script, place: Path) -> Callable[[], object]:
    """A results file."""
    path, whole = place / "results.jsonl", (good() / "results.jsonl").read_bytes()
    path.write_bytes((b"", whole)[script.number(2)] + script.rest() if script.number(2) else spoilt(whole, script))

    def read() -> None:
        with Results(path, read_only=True) as opened:
            opened.runs()
            opened.fact("seconds")

    return read


def _rewrite(path: Path, script: Script, tables: tuple[str, ...]) -> None:
    """Run statements that a forger with SQLite would try; those that SQLite refuses are skipped."""
    database = sqlite3.connect(path, isolation_level=None)
    triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        database.execute(f"DROP TRIGGER {name}")
    for _ in range(script.number(3) + 1):
        table = script.pick(tables)
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")] or ["x"]
        value = script.pick([each for each in HOSTILE if each is None or isinstance(each, int | float | str)])
        statement = script.pick(
            (
                f'UPDATE {table} SET "{script.pick(columns)}" = ?1',
                f'UPDATE {table} SET "{script.pick(columns)}" = ?1 WHERE rowid = {script.number(5)}',
                f"DELETE FROM {table} WHERE rowid >= {script.number(5)} AND ?1 IS ?1",
                f"INSERT INTO {table} SELECT {', '.join(['?1'] * len(columns))}",
                f"ALTER TABLE {table} RENAME TO other_{script.number(9)}",
                f'ALTER TABLE {table} DROP COLUMN "{columns[-1]}"',
                f"CREATE VIEW {table}_view AS SELECT ?1",
                f"CREATE TABLE {table} (number, seal)",
            )
        )
        with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
            database.execute(statement, (value,)) if "?1" in statement else database.execute(statement)
    # A forger who leaves the triggers out is found at once, so mostly they are put back.
    for _, made in triggers if script.number(8) else []:
        with contextlib.suppress(sqlite3.Error):
            database.execute(made)
    database.close()


def questions_csv(script: Script, place: Path) -> Callable[[], object]:
    """Questions to a policy, as CSV."""
    original = b"step,product,stock,note\n0,bread,3.5,a\n1,bread,0,b\n"
    path = place / "q.csv"
    path.write_bytes(script.rest() if script.number(2) else spoilt(original, script))
    whole = bool(script.number(2))
    desk = decide.open_desk(good() / "release/policy.npz")
    return lambda: decide.decide_table(desk, path, place / "out.csv", whole=whole)


# How many of all cases each target gets. Slow targets get fewer.
SHARES: dict[Target, int] = {
    policy: 60_000,
    configuration: 22_000,
    certificate: 6_000,
    ledger: 9_000,
    results: 8_000,
    questions_csv: 20_000,
    arrays: 6_000,
    engine: 1_500,
    sales: 3_000,
}
TARGETS: dict[str, Target] = {target.__name__: target for target in SHARES}
