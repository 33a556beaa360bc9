"""The sha256 of files, remembered: one that the system says has not changed since is not read again.

`sums.json` in the cache holds, for each file, its size, its times, its number and its sum. A file written a moment ago
could change once more within one tick of the clock, and is read each time until it has settled (as Git does it).
Without `sums.json` every file is read again.

The trade: a corpus of a terabyte opens at once, and what changes a file without changing its times (a disk that loses a
bit, a restored image) is not seen until it is read through: `Sums.damaged`, `zellige doctor --verify-caches`.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.schema import read_json, sealed, sha256

SETTLED = 2.0  # seconds since a file was written after which its times tell a later writing apart
NAME = "sums.json"


class Sums:
    """The sums that a cache remembers. `of` gives one; `keep` writes what is new."""

    def __init__(self, cache: Path):
        self.cache = cache
        self._new: dict[str, Any] = {}

    @cached_property
    def _known(self) -> dict[str, Any]:
        try:
            return read_json(self.cache / NAME)
        except InputError:  # there is none, or it is damaged
            return {}

    def of(self, path: Path, report: Callable[[int], None] = lambda count: None, kind: str = "sha256") -> str:
        """sha256 of a file's bytes. report(bytes since the last call) is called. OSError where it cannot be read.

        kind: another sum, "md5".
        """
        name, now, before = _name(path, kind), time.time(), _state(path)
        entry = self._new.get(name) or self._known.get(name)
        if isinstance(entry, list) and entry[:-1] == before:
            report(before[0])
            return entry[-1]
        entry = [*before, sha256(path, report, kind)]
        if before == _state(path) and max(before[1:3]) < (now - SETTLED) * 1e9:
            self._new[name] = entry
        return entry[-1]

    def keep(self) -> None:
        """Write the sums that came since; where the cache cannot be written they are forgotten."""
        if not self._new:
            return
        existing = {name: entry for name, entry in self._known.items() if os.path.exists(_split(name)[0])}
        self._known, self._new = existing | self._new, {}
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            aside = self.cache / f".{NAME}-{secrets.token_hex(8)}"
            with aside.open("x", encoding="utf-8") as file:
                json.dump(sealed(self._known), file)
            os.replace(aside, self.cache / NAME)

    def damaged(self) -> Iterator[Path]:
        """The files whose bytes have another sum than the one remembered, although nothing else of them has changed.

        All of them are read. What lies in the cache itself is forgotten then, so that whoever reads it next reads it
        through.
        """
        wrong = []
        for name, entry in self._known.items():
            path, kind = _split(name)
            with contextlib.suppress(OSError):
                if entry[:-1] == _state(path) and sha256(path, kind=kind) != entry[-1]:
                    wrong.append(name)
                    yield path
        inside = [name for name in wrong if _split(name)[0].is_relative_to(self.cache.absolute())]
        if inside:
            self._known = {name: entry for name, entry in self._known.items() if name not in inside}
            self._write()


def _name(path: Path, kind: str) -> str:
    return str(path.absolute()) if kind == "sha256" else f"{kind}:{path.absolute()}"


def _split(name: str) -> tuple[Path, str]:
    """The path that a name means, and the kind of its sum."""
    return (Path(name.removeprefix("md5:")), "md5") if name.startswith("md5:") else (Path(name), "sha256")


def _state(path: Path) -> list[int]:
    """State that changes with a file: its size, modification time, change time (ns), inode."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
