"""Evaluate groups of texts one after another, in several processes or ranks (`processes`), and keep finished groups in a
file.

Each group has its own random numbers, so neither the process, nor the other groups, nor an interruption changes its
result. A finished group is appended as a line of JSON (Python writes and reads a float without loss) with its checksum; a
line that was cut off or damaged is computed again. The file's name is a hash of everything that determines the number.
"""

import contextlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from ..base.errors import InputError
from ..base.files import make, unlinked, unwritable
from ..base.processes import Place, join, this_process
from ..base.requests import Progress
from ..base.schema import parse_as, sealed

GroupResult = dict[str, Any]  # what a group gives: plain lists of numbers, by name


def limit_processes(name: str, number: int) -> None:
    """InputError: far more processes than this machine has cores."""
    cores = os.cpu_count() or 1
    most = max(16, 4 * cores)
    if number > most:
        raise InputError(f"`{name}` is {number:,}, and this machine has {cores:,} cores; use {most} or fewer")


class ResultCache:
    """Finished groups, in a folder under a key; without a folder, in memory.

    Each rank appends to its own file and reads those of all, so that another number of ranks can continue.
    """

    def __init__(self, folder: Path | None, key: str, rank: int = 0):
        self.folder, self.name = folder, f".evaluate-{key[:24]}"
        self.results: dict[int, GroupResult] = {}
        self._rank, self._file = rank, None
        for path in self._files():
            for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
                with contextlib.suppress(ValueError, KeyError, TypeError):  # damaged, or the last one, cut off
                    entry = parse_as(line, Any, "")
                    self.results[entry["group"]] = entry["result"]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"{self.name}-*.jsonl")) if self.folder is not None else []

    def add(self, index: int, result: GroupResult) -> None:
        """Keep the result of a group."""
        self.results[index] = result
        if self.folder is None:
            return
        try:
            if self._file is None:
                make(self.folder)
                path = self.folder / f"{self.name}-{self._rank}.jsonl"
                self._file = unlinked(path).open("a", encoding="utf-8")
                self._file.write("\n")  # after a line that was cut off
            self._file.write(json.dumps(sealed({"group": index, "result": result})) + "\n")
            self._file.flush()
        except OSError as problem:
            raise unwritable(self.folder, problem) from problem

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk, which has been reported
                self._file.close()

    def remove(self) -> None:
        """Delete the files, when the number is computed."""
        self.close()
        for path in self._files():
            path.unlink(missing_ok=True)


def by_texts(progress: Progress | None, texts: int, size: int) -> Callable[[int], None]:
    """Turn the number of each finished group of `size` texts into the (texts done, in all) for `progress`."""
    count = 0

    def tell(index: int) -> None:
        nonlocal count
        count += min(size, texts - index * size)
        if progress:
            progress(count, texts)

    return tell


def gather_results(
    work: Callable[[int], GroupResult],
    count: int,
    *,
    processes: int = 1,
    distributed: bool = False,
    cache: ResultCache | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> list[GroupResult]:
    """Results of `work` for each of `count` groups, in order; on every rank.

    Args:
        processes: number of worker processes, 1: this one. On a CPU they are forked, and share its threads.
        distributed: share the groups with the other ranks of torchrun or Slurm.
        cache: the finished groups, and where to keep more.
        progress: called with the number of each finished group.
    """
    cache = cache or ResultCache(None, "")
    place = this_process() if distributed else Place()
    rank, world = place.rank, place.world
    join(place)
    for index in cache.results:
        if progress:
            progress(index)
    pending = [i for i in range(count) if i not in cache.results]
    if world > 1:  # each rank may have read the files at another moment: rank 0 says what is to be done
        schedule = [pending]
        torch.distributed.broadcast_object_list(schedule)
        pending = schedule[0][rank::world]
    try:
        for index, result in _each(work, pending, processes, torch.device(device)):
            cache.add(index, result)
            if progress:
                progress(index)
    finally:
        cache.close()
    if world > 1:
        results_of_ranks: list[Any] = [None] * world
        torch.distributed.all_gather_object(results_of_ranks, cache.results)
        for results in results_of_ranks:
            cache.results.update(results)
    return [cache.results[i] for i in range(count)]


def _each(
    work: Callable[[int], GroupResult], pending: list[int], processes: int, device: torch.device
) -> Iterator[tuple[int, GroupResult]]:
    limit_processes("processes", processes)
    processes = min(processes, len(pending))
    if processes <= 1:
        yield from ((index, work(index)) for index in pending)
        return
    can_fork = device.type == "cpu" and "fork" in multiprocessing.get_all_start_methods()
    threads = max(1, torch.get_num_threads() // processes)
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("fork" if can_fork else "spawn"), _begin, (work, threads)
    )
    try:
        for future in as_completed([pool.submit(_one, index) for index in pending]):
            yield future.result()
    except BrokenProcessPool as problem:
        raise InputError("a worker process has ended (out of memory?); use fewer `processes`") from problem
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_WORK: list[Callable[[int], GroupResult]] = []  # of a worker process


def _begin(work: Callable[[int], GroupResult], threads: int) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent says when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(threads)
    _WORK[:] = [work]


def _one(index: int) -> tuple[int, GroupResult]:
    return index, _WORK[0](index)
