"""One process at a time works in a folder: a lock that the system frees when its process is gone, whatever ended it.

The lock is the system's, on a file in the folder; a file beside it says, for people, who holds it. So neither a kill,
nor a copy of the folder with both files in it, leaves anything locked.
"""

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from ..base.errors import InputError
from ..base.files import made, unlinked, unwritable, write_file
from ..base.schema import read_json, shown

LOCK, HOLDER, SOFT = ".lock", ".lock.json", ".lock.soft"
WAIT = 0.5  # seconds, for a holder that is just ending
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)  # a network file system without locks


class Holder(TypedDict):
    """The process that holds the lock of a folder."""

    pid: int
    host: str
    since: str


@contextlib.contextmanager
def hold(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder, which is made if need be, within the block.

    Args:
        what: is done there: "trained", "compared".

    Raises InputError: another process holds it, here or on another computer; or nothing can be written there.
    """
    with made(folder):
        lock = _lock(folder, what)
        try:
            about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            with contextlib.suppress(InputError):
                write_file(folder / HOLDER, json.dumps(about) + "\n")
            yield
        finally:
            for name in (HOLDER, LOCK):  # while it is held: who has opened the old file meanwhile takes a new one
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
            with contextlib.suppress(OSError):
                lock.release()


def _lock(folder: Path, what: str) -> BaseFileLock:
    for kind, name in ((FileLock, LOCK), (SoftFileLock, SOFT)):
        try:
            lock = kind(unlinked(folder / name), thread_local=False)
            lock.acquire(timeout=WAIT)
            return lock
        except Timeout:
            raise InputError(
                f"'{shown(folder)}' is being {what} by {_holder(folder)}; wait for it, or stop it first"
            ) from None
        except OSError as problem:
            if kind is SoftFileLock or problem.errno not in _NO_LOCKS:
                raise unwritable(folder, problem) from problem
    raise AssertionError


def _holder(folder: Path) -> str:
    """`process 4242 on HOST since 2026-05-01 12:00:00`, as far as it is known."""
    try:
        about = read_json(folder / HOLDER, Holder)
        return f"process {about['pid']} on {about['host']:.100} since {about['since']:.40}"
    except (OSError, InputError):
        return "another process"
