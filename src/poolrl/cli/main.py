"""The command line: `poolrl --help`."""

import os
import select
import sys
from typing import NoReturn

from cyclopts import App

from poolrl import __version__
from poolrl.cli.verbs import FILES, VERBS
from poolrl.interrupts import as_keyboard_interrupt

app = App(
    name="poolrl",
    version=__version__,
    help="Learn a decision policy from a sensitive, censored log, with a differential-privacy guarantee.",
    help_format="plaintext",
    help_epilogue="""From a table to a signed policy:
  poolrl init --example && poolrl check && poolrl plan && poolrl fit --new-account""",
    suppress_keyboard_interrupt=False,  # `main` says that it was stopped
)
for number, (name, words) in enumerate(VERBS.items()):  # each is imported on its call
    app.command(f"poolrl.cli.{FILES.get(name, name)}:{name}_verb", name=name, help=words, sort_key=number)

STOPPED = 130  # as shells say of a command that Ctrl-C has ended; SIGTERM is answered alike
READER_GONE = 141  # as they say of a command whose answer nobody reads any more: `poolrl ... | head`
# Our matrices are small. Threads that share them wait for each other, ten times as long where others use the cores.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> None:
    """Run the command line; a bad argument ends in one line, not in a traceback."""
    for name, threads in ONE_THREAD.items():
        os.environ.setdefault(name, threads)  # before a verb imports NumPy
    with as_keyboard_interrupt() as signals:
        try:
            app()
        except KeyboardInterrupt:
            _refuse("stopped", STOPPED)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and _reader_is_gone():
                # The rest of the output is thrown away, or Python's end would fail again.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise SystemExit(READER_GONE) from None
            what = "there is no file" if isinstance(error, FileNotFoundError) else error.strerror
            _refuse(f"{error if error.filename is None else f'{what}: {error.filename}'}", STOPPED if signals else 1)
        except ValueError as error:
            _refuse(str(error), STOPPED if signals else 1)
        except Exception as error:
            if signals:  # an interrupted library may fail in words of its own, a compiled one at its import, say
                _refuse("stopped", STOPPED)
            if os.environ.get("POOLRL_TRACEBACK"):  # for developers, on data of their own
                raise
            # The message is not printed, because it might quote the log.
            _refuse(f"stopped by an unexpected {type(error).__name__}: a defect of poolrl", 1)


def _reader_is_gone() -> bool:
    """Whether nobody reads standard output any more. Another pipe may have broken, which is a fault."""
    waiting = select.poll()
    waiting.register(sys.stdout.fileno(), 0)
    return any(state & select.POLLERR for _, state in waiting.poll(0))


def _refuse(message: str, code: int) -> NoReturn:
    print(f"poolrl: {message}", file=sys.stderr)
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
