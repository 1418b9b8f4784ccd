"""Everything that the program reads, as functions of hostile bytes. None may do more than refuse in its own words.

A target gets bytes and an empty folder, writes a file there, and returns how the program reads it. Bytes are the file
itself, or choose how a good one is spoilt (`mutations`).
"""

from __future__ import annotations

import atexit
import contextlib
import gzip
import io
import json
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from attacks.mutations import HOSTILE, Script, deepened, mutated, mutated_array
from poolrl import LostSales, Pool, SeededNoise, Trajectories
from poolrl.app import decide
from poolrl.app.cli import app
from poolrl.app.config import parse_config
from poolrl.app.toml import write_toml
from poolrl.app.verify import verify
from poolrl.data.frames import Columns
from poolrl.data.sources import open_table
from poolrl.data.tables import Table
from poolrl.learning import policy as policies
from poolrl.paper import rossmann
from poolrl.paper.results import Results
from poolrl.privacy.accounts import OverspendError
from poolrl.privacy.ledger import Ledger

Target = Callable[[Script, Path], Callable[[], object]]
# Turn up in rows of the log and nowhere else, and so in no message.
SECRET_NUMBER, SECRET_NAME = 31.3375, "Musterfrau"
SECRETS = ("31.337", "3133", SECRET_NAME)
REFUSALS = (ValueError, OverspendError)


class FindingError(AssertionError):
    """A hostile file did more than being refused."""


def attempt(target: Target, content: bytes) -> str | None:
    """Let a target read its bytes in a folder of its own; the refusal, if it refuses. Anything else is a finding."""
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
            if type(error) not in REFUSALS:  # also UnicodeDecodeError and the like, whose words quote the file
                raise FindingError(f"{type(error).__name__} is no documented refusal") from error
            said = str(error)
        for words in (said or "", printed.getvalue()):
            if any(secret in words for secret in SECRETS):
                raise FindingError("a value of the log is told")
        if said is not None and not said.strip():
            raise FindingError("a refusal without words")
        if [path.name for path in Path(outer).iterdir()] != ["place"]:
            raise FindingError("a file was written outside the folder")
        return said


@cache
def good() -> Path:
    """A configuration, a log with secrets, a ledger and a release, made once."""
    folder = Path(tempfile.mkdtemp(prefix="poolrl-good."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    problem = LostSales(horizon=2, products=1, holding=0.2, shortage=0.5, demand_max=40.0)
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 40, (30, 2, 1)), rng=rng)
    log.save(folder / "log.npz")
    table = log.to_arrow()
    actions = table["action_0"].to_pylist()
    rows = table.set_column(table.column_names.index("action_0"), "action_0", pa.array([SECRET_NUMBER, *actions[1:]]))
    rows = rows.append_column("who", pa.array([f"{SECRET_NAME} {i // 2}" for i in range(len(table))]))
    pq.write_table(rows, folder / "log.parquet")
    pa.csv.write_csv(rows, folder / "log.csv")
    facts = {
        "problem": {
            "kind": "lost sales",
            "products": ["bread"],
            "horizon": 2,
            "holding": 0.2,
            "shortage": 0.5,
            "demand_max": 40.0,
        },
        "log": {
            "source": "log.parquet",
            "trajectory": "trajectory",
            "step": "step",
            "first_step": 0,
            "opening": ["state_0"],
            "order_up_to": ["action_0"],
            "left": ["next_state_0"],
        },
        "privacy": {"rho": 0.5, "budget": 1.0, "data_set": "shop"},
        "plan": {"units": 30},
        "publication": {"name": "Orders", "curator": "Ann", "region": "Here", "intended_use": "Trying."},
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    (folder / "poolrl.toml").write_text(write_toml(facts))
    with contextlib.redirect_stdout(io.StringIO()):
        app(["fit", "--config", str(folder / "poolrl.toml"), "--json"], result_action="return_value")
    zones = Pool.published(1.0, zones=3).fit(problem, log, noise=SeededNoise(0))
    zones.save(folder / "zones.npz")
    with Results(folder / "results.sqlite"):
        pass
    days = [date(2013, 1, 1) + timedelta(day) for day in range(60)]
    lines = [f"{store},{day},{store * day.day}" for store in (1, 2) for day in days]
    (folder / "train.csv").write_text("\n".join(["Store,Date,Sales", *lines, ""]))
    return folder


def policy(script: Script, place: Path) -> Callable[[], object]:
    """A policy: the file, its facts or its arrays spoilt, with a checksum that fits."""
    path, how = place / "policy.npz", script.number(5)
    source = good() / script.pick(("release/policy.npz", "zones.npz"))
    if how == 0:
        path.write_bytes(script.rest())
    elif how == 1:
        path.write_bytes(spoilt(source.read_bytes(), script))
    elif how == 2:
        path.write_bytes(_archive(script))
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
        text = json.dumps(facts | {"sha256": policies._checksum(facts, arrays)} if isinstance(facts, dict) else facts)
        np.savez(path, facts=np.frombuffer(deepened(text).encode("utf-8", "replace"), np.uint8), **arrays)

    def read() -> None:
        desk = decide.Desk.open(path)
        desk.levels([0, desk.policy.problem.horizon - 1], [[1.0] * len(desk.products)] * 2, whole=True)
        desk.policy.guarantee.to_dict()
        repr(desk.policy)

    return read


def _archive(script: Script) -> bytes:
    """An archive whose members claim what is not so: sizes, names, types."""
    shape = script.pick(("(1000000000000,)", "(10,)", "(-1,)", "()", "(1000000, 1000000, 1000000)", "(2, 'x')", "(0,)"))
    kind = script.pick(("'<f8'", "'|O'", "'|V1000000000'", "'<U1000000000'", "[('a', '<f8')]", "'|u1'", "nonsense"))
    order = script.pick(("True", "False", "None"))
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + script.rest()[:200]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", script.pick((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for name in ("facts", script.pick(("levels", "../../levels", "/tmp/levels", "q", "outcomes.weights", "facts"))):
            with contextlib.suppress(UserWarning):
                file.writestr(f"{name}.npy", member if script.number(3) else b"\x93NUMPY\x01\x00\x10\x00junk")
    return archive.getvalue()


def log_file(script: Script, place: Path) -> Callable[[], object]:
    """A log as `Trajectories.save` writes it."""
    path, how = place / "log.npz", script.number(4)
    if how == 0:
        path.write_bytes(script.rest())
    elif how == 1:
        path.write_bytes(spoilt((good() / "log.npz").read_bytes(), script))
    elif how == 2:
        path.write_bytes(_archive(script))
    else:
        with np.load(good() / "log.npz") as file:
            arrays = dict(file)
        name = script.pick(sorted(arrays))
        arrays[name] = mutated_array(arrays[name], script)
        np.savez(path, **arrays)
    return lambda: Pool(1.0).prepare(_problem()).release(Trajectories.load(path), SeededNoise(0))


def _problem() -> LostSales:
    return LostSales(horizon=2, products=1, holding=0.2, shortage=0.5, demand_max=40.0)


def configuration(script: Script, place: Path) -> Callable[[], object]:
    """`poolrl.toml`: the file, or good facts spoilt."""
    if script.number(3) == 0:
        text = script.rest()
    elif script.number(2):
        text = spoilt((good() / "poolrl.toml").read_bytes(), script)
    else:
        facts = mutated(json.loads((good() / "facts.json").read_text()), script)
        try:
            text = deepened(write_toml(facts)).encode("utf-8", "replace")
        except (AttributeError, TypeError, RecursionError):  # such facts cannot even be written
            text = b""

    def read() -> None:
        config = parse_config(place / "poolrl.toml", text).config
        config.declared()
        config.labels()

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
        checks = verify(good() / "release/policy.npz", place / "certificate.json", config, books)
        if all(check.good for check in checks) and text != original:
            raise FindingError("a forged certificate was believed")

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
            opened.reserve("shop", 0.25)
        # Whoever spoils a ledger gains nothing: it is the one it was, or it was refused before this line.
        if faults or any(account.left > 0.5 for account in left.values()):
            raise FindingError("a spoilt ledger was believed")

    return read


def results(script: Script, place: Path) -> Callable[[], object]:
    """A results file."""
    path = place / "results.sqlite"
    how = script.number(3)
    if how == 0:
        path.write_bytes(script.rest())
    else:
        shutil.copy(good() / "results.sqlite", path)
        if how == 1:
            path.write_bytes(spoilt(path.read_bytes(), script))
        else:
            _rewrite(path, script, ("runs", "facts"))

    def read() -> None:
        with Results(path, read_only=True) as opened:
            opened.runs()
            opened.fact("seconds")

    return read


def _rewrite(path: Path, script: Script, tables: tuple[str, ...]) -> None:
    """Statements that a forger with SQLite would try; those that SQLite refuses are left out."""
    database = sqlite3.connect(path, isolation_level=None)
    for trigger in ("entries_stay", "entries_remain"):
        database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
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
    database.close()


def questions_csv(script: Script, place: Path) -> Callable[[], object]:
    """Questions to a policy, as CSV."""
    original = b"step,bread,note\n0,3.5,a\n1,0,b\n"
    path = place / "q.csv"
    path.write_bytes(script.rest() if script.number(2) else spoilt(original, script))
    whole = bool(script.number(2))
    return lambda: decide.decide_csv(good() / "release/policy.npz", path, place / "out.csv", whole=whole)


def questions_json(script: Script, place: Path) -> Callable[[], object]:
    """Questions to a policy, as JSON lines: what a service would get as the body of a request."""
    how, path = script.number(3), place / "q.jsonl"
    if how == 0:
        path.write_bytes(script.rest())
    elif how == 1:
        path.write_bytes(
            spoilt(b'{"step": "1", "stock": [3.5], "id": 7}\n{"step": 0, "stock": {"bread": 1}}\n', script)
        )
    else:
        path.write_text(deepened(json.dumps(mutated({"step": "1", "stock": {"bread": 3.5}, "id": [7]}, script))) + "\n")
    whole = bool(script.number(2))
    return lambda: decide.decide_lines(good() / "release/policy.npz", path, place / "out.jsonl", whole=whole)


COLUMNS = Columns("trajectory", "step", ("state_0",), ("action_0",), ("next_state_0",), "who")
NAMES: dict[str, Any] = vars(COLUMNS)


def engine(script: Script, place: Path) -> Callable[[], object]:
    """A table of the log as `poolrl fit` reads it, in DuckDB."""
    name = script.pick(("log.csv", "log.parquet"))
    path = place / name
    path.write_bytes(_spoilt_table(name, script))

    def read() -> None:
        with open_table(name, COLUMNS, folder=place) as rows:
            log = Table(rows, **NAMES, max_per_unit=2)
            log.check(_problem())
            Pool(1.0).prepare(_problem()).release(log, SeededNoise(0))

    return read


def arrays(script: Script, place: Path) -> Callable[[], object]:
    """A table of the log as `Trajectories` reads it, into memory."""
    name = script.pick(("log.csv", "log.parquet"))
    path = place / name
    path.write_bytes(_spoilt_table(name, script))
    log = Trajectories.from_csv if name.endswith("csv") else Trajectories.from_parquet
    return lambda: Pool(1.0).prepare(_problem()).release(log(path, **NAMES, max_per_unit=2), SeededNoise(0))


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
    values[place] = script.pick([each for each in HOSTILE if not isinstance(each, list | dict)])
    try:
        changed = table.set_column(number, column, pa.array(values))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):  # then in words, if they can be written
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


def spoilt(content: bytes, script: Script) -> bytes:
    """A good file with a few bytes changed, removed or doubled, or cut off."""
    changed = bytearray(content)
    for _ in range(script.number(6) + 1):
        at = script.number(max(1, len(changed)))
        how = script.number(6)
        if how == 0:
            del changed[at:]
        elif how == 1:
            del changed[at : at + script.number(40)]
        elif how == 2:
            changed[at:at] = changed[at : at + script.number(200)]
        elif how == 3:
            changed[at:at] = script.pick(
                (b"\x00", b"\xff\xfe", b'"', b"\n", b",", b"1e999", b"-", b"\xed\xa0\x80", b"[[[")
            )
        elif at < len(changed):
            changed[at] = script.number(256)
    return bytes(changed)


# How many of a hundred thousand cases each gets: what takes long gets fewer.
SHARES: dict[Target, int] = {
    policy: 22_000,
    log_file: 12_000,
    configuration: 22_000,
    certificate: 6_000,
    ledger: 9_000,
    results: 8_000,
    questions_csv: 10_000,
    questions_json: 12_000,
    arrays: 6_000,
    engine: 1_500,
    sales: 3_000,
}
TARGETS: dict[str, Target] = {target.__name__: target for target in SHARES}
