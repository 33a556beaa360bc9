"""Ctrl-C, SIGTERM and SIGUSR1 while a model is trained.

Before the first step they end the training at once; then the first one asks to stop after this step, the second one
quits. A signal that is ignored when training starts (nohup, a job in the background of a shell) stays ignored.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

WARNING = getattr(signal, "SIGUSR1", None)  # which Slurm sends, if set so, before it ends a job; Windows has none
GONE = 0.5  # seconds in which a process that was killed is gone
WATCHED = (signal.SIGINT, signal.SIGTERM, *([WARNING] if WARNING else []))


class Stopped(SystemExit):
    """Training was asked to stop, by Ctrl-C (code 130), SIGTERM (143) or SIGUSR1 (138). Uncaught it ends the process
    so.

    Attributes:
        step: what is saved, or None if nothing is.
        saved: False where it was quit at once, without saving.
    """

    def __init__(self, number: int, step: int | None = None, saved: bool = True):
        super().__init__(128 + number)
        self.step, self.saved = step, saved


class Quit(BaseException):
    """The second signal."""


class Interrupted(BaseException):
    """A signal in a piece of work that may be dropped at once (what comes before the first step, a validation)."""


class Signals:
    """Our handlers, inside a `with` block. (Lightning's own save in the middle of things, and hang with several
    processes.)

    Attributes:
        asked: the signal that came first, or 0.
        begun: the steps are being taken.
        droppable: work is going on that a signal may interrupt.
    """

    def __init__(self, say: Callable[[str], Any]):
        self.say, self.asked, self.quit, self.begun, self.droppable = say, 0, False, False, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in WATCHED}
            self._before = {n: h for n, h in handlers.items() if h != signal.SIG_IGN}
            for number in self._before:
                signal.signal(number, self._handle)
            self.droppable = True
        return self

    def __exit__(self, *failure: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self) -> None:
        """From here on a signal waits for the end of the step; one that came before is in `asked`."""
        self.droppable, self.begun = False, True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self.quit = True
            for signal_number in self._before:
                signal.signal(signal_number, signal.SIG_DFL)  # a third one needs nobody's help
            raise Quit
        self.asked = number
        when = " after this step and saving" if self.begun else ""
        self.say(f"stopping{when}; Ctrl-C again quits at once")
        if self.droppable:
            self.droppable = False
            raise Interrupted


def worker(number: int = 0) -> None:
    """In a process that reads data: Ctrl-C and SIGUSR1 are for the trainer, and so is a SIGTERM that somebody else
    sends.

    A batch system sends SIGTERM to every process: the trainer needs rows until its step is saved, and a reader that
    ends before would look like a fault. The trainer's own SIGTERM ends it, and a reader ends by itself where its
    trainer has gone. (Where the system does not say who sent a signal, on macOS and Windows, any SIGTERM ends it.)
    """
    for number in WATCHED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.excepthook = partial(_complain, os.getppid())  # also of the threads that hand over tensors
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # in every thread: the one below takes them all
        threading.Thread(target=_wait_for_end, args=(os.getppid(),), daemon=True).start()


def _complain(trainer: int, kind: type[BaseException], problem: BaseException, *where: Any) -> None:
    """Print an error of a reader, unless it is that its trainer has gone in the middle of a word; then end."""
    if isinstance(problem, (EOFError, OSError)):
        time.sleep(GONE)  # the trainer's files are closed a moment before it is no more
    if os.getppid() != trainer:
        os._exit(0)
    sys.__excepthook__(kind, problem, *where)


def _wait_for_end(trainer: int) -> None:
    """Wait for the trainer's SIGTERM, and end."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != trainer:
        pass
    os._exit(0)
