"""The command line in this process, as the program `poolrl` starts it."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from poolrl.cli.main import main
from tests.helpers.simulations import shorten_forecast


@dataclass(frozen=True)
class Answer:
    """A command that has ended."""

    code: int
    out: str
    err: str


CommandLine = Callable[..., Answer]  # the fixture `command_line`


def _ended(arguments: Sequence[str], patch: pytest.MonkeyPatch) -> int:
    """Run a command to its end: its exit code. It changes signal handlers, which are restored."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the caller of the tests may ignore it
    patch.setattr(sys, "argv", ["poolrl", *arguments])
    try:
        with warnings.catch_warnings():
            # Cyclopts suspects a mistake wherever a test starts it like a program.
            warnings.filterwarnings("ignore", "Cyclopts application invoked without tokens")
            main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


def answer_of(arguments: list[str], capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> Answer:
    """A command, and what it printed."""
    capsys.readouterr()
    code = _ended(arguments, patch)
    return Answer(code, *capsys.readouterr())


def run_poolrl(*arguments: str, cwd: Path, exits: int = 0) -> str:
    """Run a command in a folder, on a wide terminal, with a short forecast; what it printed.

    Fails if it ends with another code.
    """
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd):
        patch.setenv("COLUMNS", "300")
        shorten_forecast(patch.setattr)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = _ended(arguments, patch)
    assert code == exits, said.getvalue()
    return said.getvalue()
