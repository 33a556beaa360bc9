"""The command line: `zellige COMMAND`. Nothing heavy is imported before it is known what to do.

Exit codes: 0 done; 1 the work ran and failed; 2 the input was wrong, nothing was written; 130 Ctrl-C, 143 SIGTERM, 138
SIGUSR1, 141 nobody read the output.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..base.errors import Diverged, InputError
from ..base.processes import this_process
from ..base.trust import allow
from ..show.terminal import Terminal
from . import help, options
from .commands import COMMANDS
from .meanings import COMMAND_NEAR


class Terminated(BaseException):
    """SIGTERM arrived, or SIGUSR1, by which Slurm says that it will: the number of the signal."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    terminal = Terminal(fields=options.EVERYWHERE)
    try:
        if sys.stdout is None:  # the next file that is opened would be taken for it
            raise InputError("stdout is closed, and the result would go nowhere; send it to a file, or to /dev/null")
        if any("\0" in word for word in argv):
            raise InputError("the command line holds a NUL character, which no file or text has; leave it out")
        chosen, argv = options.everywhere(argv)
        rank = this_process().rank  # of several processes the first one speaks
        terminal = Terminal(
            quiet=chosen.quiet or rank > 0,
            color=chosen.color,
            json=chosen.json,
            fields=options.EVERYWHERE,
            prefix=f"rank {rank}: " if rank else "",
        )
        if chosen.json not in (None, "-"):  # before the work, not after it
            from .common import writable

            writable(chosen.json, "--json")
        with (
            _quiet_libraries(),
            _terminable(),
            allow(chosen.allow_code, chosen.allow_remote, changed=not chosen.checksums),
        ):
            return dispatch(argv, terminal)
    except InputError as error:
        terminal.fail(str(error))
        return 2
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        terminal.say("stopped")
        return 130
    except Terminated as end:
        terminal.say("stopped")
        return 128 + end.args[0]
    except BrokenPipeError:  # the reader of our output has seen enough, or nothing: then as other programs end
        _drop_output()
        return 0 if terminal.wrote else 141
    except OSError as error:
        from ..base.files import is_full
        from ..base.schema import explain

        wrong = explain(error)
        if is_full(error):
            wrong = InputError("no space left where the output goes; free space and run it again")
            _drop_output()
        terminal.fail(str(wrong) if wrong else _unforeseen(error))
        return 2 if wrong else 1
    except Exception as error:
        short = "out of memory; lower --train.batch or --batch, or use a smaller --net" if _memory(error) else None
        foreseen = isinstance(error, Diverged)  # its message is of several lines, and says what to do
        terminal.fail(short or (str(error) if foreseen else _unforeseen(error)), keep="\n" if foreseen else "")
        return 1


def _drop_output() -> None:
    """Discard what is still to be written to stdout, at the end of the process too."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dispatch(argv: Sequence[str], terminal: Terminal) -> int:
    """Find the command by its name, and run it."""
    first, rest = (argv[0], list(argv[1:])) if argv else ("--help", [])
    if first in ("--help", "-h", "help", "--help-all"):
        terminal.result(help.commands(), keep="\n")
        return 0
    if first in ("--version", "-V"):
        terminal.result(f"zellige {__version__}")
        return 0
    if first not in COMMANDS and first.startswith("-"):
        raise InputError(f"unknown option '{first}'; a command comes first (all: zellige --help)")
    if first == "train" and (not rest or options.asks_help(rest[:1])):
        if not rest:
            raise InputError(
                "train needs a method; e.g. zellige train mdlm --run runs/mine (all: zellige list methods)"
            )
        terminal.result(help.TRAIN, keep="\n")
        return 0
    if first in COMMAND_NEAR and first not in COMMANDS:
        raise InputError(f"unknown command '{first}'; use zellige {COMMAND_NEAR[first]} (all: zellige --help)")
    return COMMANDS[first](rest, terminal, time.monotonic())


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Hold back the warnings of other libraries, unless Python was asked for warnings (-W, PYTHONWARNINGS)."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGUSR1 as an exception, so that the cursor comes back and files are whole; training has its own
    inside.

    A signal that is ignored when the command starts (nohup, `trap ''`) stays ignored, as Python leaves SIGINT then.
    """

    over = hooked = False

    def again(number: int) -> None:
        threading.Timer(0.01, os.kill, (os.getpid(), number)).start()

    def stop(number: int, frame: object) -> None:
        if hooked:
            again(number)
        elif not over:
            raise Terminated(number)

    def unraisable(info: Any) -> None:
        """What is raised in `__del__`, or in here, is printed and lost: a signal is sent again, a little later."""
        nonlocal hooked
        if isinstance(info.exc_value, Terminated | KeyboardInterrupt) and not over:
            hooked = True
            again(info.exc_value.args[0] if isinstance(info.exc_value, Terminated) else signal.SIGINT)
            hooked = False
        elif isinstance(info.exc_value, Exception):
            before(info)

    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, getattr(signal, "SIGUSR1", None)) if number
    }
    own_handlers = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    if threading.current_thread() is not threading.main_thread():
        own_handlers = {}
    before = sys.unraisablehook
    try:
        for number in own_handlers:
            signal.signal(number, stop)
        sys.unraisablehook = unraisable
        yield
    finally:
        over = True
        sys.unraisablehook = before
        for number, handler in own_handlers.items():
            signal.signal(number, handler)


def _memory(error: Exception) -> bool:
    """Return whether memory ran out, here or on the GPU."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in message or "can't allocate memory" in message


def _unforeseen(error: Exception) -> str:
    """Message for an unexpected exception: one line, and where the rest is."""
    from ..base.files import write_file

    text = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
    file = Path(tempfile.gettempdir()) / f"zellige-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        write_file(file, f"zellige {__version__} {sys.argv}\n\n{''.join(traceback.format_exception(error))}")
    except InputError:
        return f"{text}; the traceback could not be written to {file}"
    return f"{text} (traceback: {file})"
