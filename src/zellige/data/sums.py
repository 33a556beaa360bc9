"""The sha256 of files, remembered: one that the system says has not changed since is not read again.

`sums.json` in the cache holds, for each file, its size, its times, its number and its sum. A file written a moment ago could
change once more within one tick of the clock, and is read each time until it has settled (as Git does it). Without `sums.json`
every file is read again.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..schema import read_json, sealed, sha256

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

    def of(self, path: Path, report: Callable[[int], None] = lambda count: None) -> str:
        """sha256 of a file's bytes. report(bytes since the last call) is called. OSError where it cannot be read."""
        name, now, before = str(path.absolute()), time.time(), _state(path)
        known = self._new.get(name) or self._known.get(name)
        if isinstance(known, list) and known[:-1] == before:
            report(before[0])
            return known[-1]
        known = [*before, sha256(path, report)]
        if before == _state(path) and max(before[1:3]) < (now - SETTLED) * 1e9:
            self._new[name] = known
        return known[-1]

    def keep(self) -> None:
        """Write the sums that came since; where the cache cannot be written they are forgotten."""
        if not self._new:
            return
        there = {name: known for name, known in self._known.items() if os.path.exists(name)}
        self._known, self._new = there | self._new, {}
        with contextlib.suppress(OSError):
            handle, aside = tempfile.mkstemp(prefix=f".{NAME}-", dir=self.cache)
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(sealed(self._known), file)
            os.replace(aside, self.cache / NAME)


def _state(path: Path) -> list[int]:
    """What changes where a file does: its size, when it was written, when anything of it changed (ns), its number."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
