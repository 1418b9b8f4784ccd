"""Hostile files: what once did more than being refused, generated ones, and that the harness would notice."""

from __future__ import annotations

import io
import itertools
import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attacks.good_files import SECRET_NAME, good
from attacks.mutations import Script
from attacks.targets import TARGETS, FindingError, attempt

from poolrl.learning import stored
from poolrl.npz import DamagedError, read_arrays
from poolrl.workflow.config.configuration import parse_config
from poolrl.workflow.verified import verify_folder

pytestmark = pytest.mark.xdist_group("hostile files")  # one worker makes the good ones
CORPUS = Path(__file__).parents[1] / "recorded" / "hostile"
# A fuzzer found them; each ended in a traceback, or in memory that a header had asked for.
DEFECTS = sorted(path.relative_to(CORPUS) for path in CORPUS.glob("*/*"))


@pytest.mark.parametrize("case", DEFECTS, ids=str)
def test_what_was_found_once_is_refused(case: Path) -> None:
    assert len(DEFECTS) > 25
    attempt(TARGETS[case.parent.name], (CORPUS / case).read_bytes())


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_generated_files_are_read_or_refused(name: str) -> None:
    """`make fuzz` tries many more. One is read: a harness that only ever sees refusals would test nothing."""
    rng = np.random.default_rng(0)
    said = (attempt(TARGETS[name], rng.bytes(length)) for _ in range(40) for length in (12, 12, 40, 150))
    assert len(list(itertools.islice(said, 5))) == 5
    rng = np.random.default_rng(0)
    assert any(attempt(TARGETS[name], rng.bytes(12)) is None for _ in range(150))


def planted(act: Callable[[Path], object]) -> Callable[[Script, Path], Callable[[], object]]:
    return lambda script, place: lambda: act(place)


def refuse(words: str) -> None:
    raise ValueError(words)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda place: {}["key"], "KeyError is not a documented refusal"),
        (lambda place: refuse(f"row of {SECRET_NAME} 3"), "a value of the log is revealed"),
        (lambda place: print(SECRET_NAME), "a value of the log is revealed"),
        (lambda place: refuse(" "), "a refusal without a message"),
        (lambda place: (place.parent / "x").write_text(""), "a file was written outside"),
    ],
)
def test_the_harness_would_notice(act: Callable[[Path], object], words: str) -> None:
    with pytest.raises(FindingError, match=words):
        attempt(planted(act), b"")


def archive(*members: tuple[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members:
            file.writestr(name, data)
    return content.getvalue()


def header_line(text: str) -> bytes:
    line = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line


def header(shape: str, kind: str = "'<f8'") -> bytes:
    return header_line(f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117))


def memory_to_refuse(content: bytes, path: Path) -> int:
    """The most bytes that were held at once while an archive was refused."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError):
            read_arrays(path, most_bytes=10**8)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content",
    [
        archive(("a.npy", header("(1000000, 1000000, 1000000)"))),
        archive(("a.npy", header("(10,)", "'<U1000000000'") + bytes(80))),
        archive(("a.npy", header("(1,)", "'|O'") + bytes(8))),
        archive(("a.npy", header("(3,)") + bytes(16))),
        b"",
    ],
    ids=["overflow", "wide text", "objects", "too short", "a bomb"],
)
def test_nothing_is_allocated_for_a_declared_size(content: bytes, tmp_path: Path) -> None:
    content = content or archive(("a.npy", bytes(60_000_000)))  # packed into 60 kB
    assert memory_to_refuse(content, tmp_path / "a.npz") < 5_000_000


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_directory_that_lies_about_sizes_is_not_believed(kind: int, tmp_path: Path) -> None:
    """30 MB that the archive's directory calls 136 bytes: what is unpacked is what was declared, and no more."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", kind, compresslevel=1) as file:
        file.writestr("a.npy", header("(1,)") + bytes(30_000_000))
    true, lie = ((len(header("(1,)")) + size).to_bytes(4, "little") for size in (30_000_000, 8))
    assert memory_to_refuse(content.getvalue().replace(true, lie), tmp_path / "a.npz") < 10_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".".join(["a"] * 20_000) + " = 1", "nested too deeply"),
        ("a = " + "[" * 2000, "nested too deeply"),
        ("# " + "x" * 2**20, "larger than"),
    ],
)
def test_configurations_that_take_for_ever(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_config(Path("poolrl.toml"), text.encode())


@pytest.mark.parametrize(
    ("entry", "value"),
    [("sensitivity_squared", "9" * 400), ("variance", "9" * 400), ("trajectories_per_unit", 0), ("names", [])],
)
def test_policies_beyond_all_bounds_do_not_verify(entry: str, value: object, tmp_path: Path) -> None:
    release = good() / "release"
    with np.load(release / "policy.npz") as file:
        arrays = dict(file)
    facts = json.loads(arrays.pop("facts").tobytes())
    del facts["sha256"]
    guarantee = facts["guarantee"]
    owner = {"names": facts["report"], "trajectories_per_unit": guarantee}
    owner.get(entry, guarantee["mechanisms"][0])[entry] = value
    text = json.dumps(facts | {"sha256": stored._checksum(facts, arrays)}).encode()
    np.savez(tmp_path / "policy.npz", facts=np.frombuffer(text, np.uint8), **arrays)
    checks = verify_folder(tmp_path / "policy.npz", release / "certificate.json")
    assert not all(check.good for check in checks)


def test_names_in_an_archive_are_names_and_not_places(tmp_path: Path) -> None:
    place = tmp_path / "inside"
    place.mkdir()
    names = ["../../up.npy", "/tmp/poolrl-hostile.npy", "a/b/c.npy", "..\\x.npy"]
    (place / "a.npz").write_bytes(archive(*((name, header("(1,)") + bytes(8)) for name in names)))
    assert len(read_arrays(place / "a.npz", most_bytes=10**6)) == len(names)
    assert sorted(os.listdir(tmp_path)) == ["inside"]
    assert os.listdir(place) == ["a.npz"]
    assert not Path("/tmp/poolrl-hostile.npy").exists()


def test_good_archives_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = itertools.product("CF", ("float64", ">f8", "int32", "uint8", "bool"))
    arrays = {f"{order}{kind}": np.array(rng.integers(0, 2, (3, 4, 5)), kind, order=order) for order, kind in kinds}
    arrays["one"] = np.array(7.5)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        read = read_arrays(tmp_path / "a.npz", most_bytes=10**6)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype
            assert read[name].flags.writeable
