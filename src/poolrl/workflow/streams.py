"""Where questions come from and answers go: files and pipes."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PIPE = Path("-")


@contextmanager
def questions_from(source: Path) -> Iterator[IO[str]]:
    """A file as text in UTF-8, or standard input."""
    try:
        if source == PIPE:
            yield sys.stdin
        else:
            with open(source, encoding="utf-8-sig", newline="") as file:
                yield file
    except UnicodeDecodeError:
        raise ValueError(f"{source} is not text in UTF-8") from None


@contextmanager
def answers_to(out: Path | None, source: Path) -> Iterator[IO[str]]:
    """Standard output, or a file that appears when everything is answered."""
    if out is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield sys.stdout
        return
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError("--out must not be the file that is read")
    if out.exists() and not out.is_file():
        raise ValueError(f"--out must be a file, and {out} is none")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}")
    # A name that cannot be taken. JSON can name half a character, which UTF-8 cannot write: it stays escaped.
    with tempfile.NamedTemporaryFile(
        "w",
        encoding="utf-8",
        errors="backslashreplace",
        newline="",
        dir=out.parent,
        prefix=f".{out.name}.",
        delete=False,
    ) as file:
        try:
            yield file
            file.close()
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, out)
        except BaseException:
            os.unlink(file.name)
            raise


def _umask() -> int:
    """What the user's other programs leave out of a new file's rights; temporary files leave out everything."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
