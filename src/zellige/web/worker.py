"""Who draws: a thread for each model. It takes one step of each group of requests in turn, so that a long one holds up none.

Requests that agree in all but their texts (`Job.key`) are drawn in one batch; each text has its own stream of random numbers
(`models.watch`: `seed` as pairs), so that an answer does not depend on who else asks. Between two steps the worker looks who has
hung up or is out of time; a group that nobody waits for is dropped.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import InputError
from .limits import Limits

LOOK = 0.25  # seconds between two looks whether an asker has hung up
GATHER = 0.005  # seconds that the first request of a group waits for others
_END, _NOTHING = object(), object()  # the end of an iterator; no step within LOOK
LOG = logging.getLogger("zellige.web")


class Busy(Exception):
    """More requests wait than there is room for."""


class OutOfTime(Exception):
    """The time of a request is over."""


class Failed(Exception):
    """The work failed for a reason of ours; the log has it."""


@dataclass(eq=False)
class Job:
    """A request.

    Attributes:
        key: requests with the same one are drawn together; unique where it should be alone.
        start: what draws for a group of jobs: an iterator, a step each.
        see: makes of a step what this job's asker gets; it is called in the worker's thread. None: nothing of this step.
        rows: texts of it; `first` is the number of the first among those of its group.
        work: what `start` and `see` need to know.
    """

    key: Hashable
    start: "Callable[[Sequence[Job]], Iterator[Any]]"
    see: "Callable[[Job, Any], Any]"
    rows: int = 1
    work: Any = None
    first: int = 0
    deadline: float = 0.0
    cancelled: bool = False
    over: bool = False
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _items: asyncio.Queue = field(default_factory=asyncio.Queue)

    def put(self, item: Any, last: bool = False) -> None:
        """Hand a step, or the error that ends it, to the asker's event loop; from the worker's thread."""
        self.over = self.over or last
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._items.put_nowait, (item, last))

    async def steps(self, gone: Callable[[], Any] | None = None) -> AsyncIterator[Any]:
        """What `see` gives, step by step. Raises what ended it.

        gone: whether the asker has hung up; awaited 4 times a second, however short or long the steps are.
        """
        waited = time.monotonic()
        try:
            while True:
                item, last = _NOTHING, False
                with contextlib.suppress(TimeoutError):
                    item, last = await asyncio.wait_for(self._items.get(), LOOK)
                if isinstance(item, BaseException):
                    raise item
                if last:
                    return
                if gone is not None and time.monotonic() - waited >= LOOK:
                    waited = time.monotonic()
                    if await gone():
                        return
                if item is not _NOTHING:
                    yield item
        finally:
            self.cancelled = True


class _Group:
    """Jobs that are drawn together."""

    def __init__(self, jobs: list[Job]):
        self.jobs, self.key, self.iterator = jobs, jobs[0].key, None
        first = 0
        for job in jobs:
            job.first, first = first, first + job.rows

    def step(self) -> bool:
        """Take a step; False where it is over."""
        now = time.monotonic()
        for job in self.jobs:
            if not job.over and now > job.deadline:
                job.put(OutOfTime(), last=True)
        waiting = [job for job in self.jobs if not (job.over or job.cancelled)]
        if not waiting:
            return self._close()
        try:
            if self.iterator is None:
                self.iterator = self.jobs[0].start(self.jobs)
            with torch.no_grad():
                made = next(self.iterator, _END)
                for job in waiting:
                    item = None if made is _END else job.see(job, made)
                    if made is _END or item is not None:
                        job.put(item, last=made is _END)
        except InputError as error:
            return self._close(error)
        except Exception as error:
            LOG.exception("a request failed")
            return self._close(Failed(f"{type(error).__name__}"))
        return made is not _END

    def _close(self, error: Exception | None = None) -> bool:
        if self.iterator is not None and hasattr(self.iterator, "close"):
            self.iterator.close()  # pyright: ignore[reportAttributeAccessIssue]
        for job in self.jobs:
            if not job.over:
                job.put(error, last=True)
        return False


class Worker:
    """The thread of a model. `ask` hands it a job; `close` ends it."""

    def __init__(self, name: str, limits: Limits):
        self.limits, self.changed = limits, threading.Condition()
        self.jobs: list[Job] = []
        self.groups: list[_Group] = []
        self.closed = False
        self.thread = threading.Thread(target=self._run, name=f"zellige-{name}", daemon=True)
        self.thread.start()

    def ask(self, job: Job) -> Job:
        """Put a job into the queue. Raises Busy where that is full."""
        job.deadline = time.monotonic() + self.limits.seconds
        with self.changed:
            if len(self.jobs) >= self.limits.waiting:
                raise Busy
            self.jobs.append(job)
            self.changed.notify()
        return job

    @property
    def load(self) -> int:
        """Requests that wait or are drawn."""
        return len(self.jobs) + sum(len(group.jobs) for group in self.groups)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join(5)

    def _run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or self.jobs or self.groups)
                if self.closed:
                    return
            if not self.groups:
                time.sleep(GATHER)
            self._gather()
            self.groups = [group for group in self.groups if group.step()]

    def _gather(self) -> None:
        """Make groups of those that wait. Who agrees with a group that is being drawn goes with the next one."""
        with self.changed:
            waiting, now = [], time.monotonic()
            for job in self.jobs:  # whoever is out of time or has hung up waits no longer
                if now > job.deadline and not job.cancelled:
                    job.put(OutOfTime(), last=True)
                elif not job.cancelled:
                    waiting.append(job)
            while waiting and len(self.groups) < self.limits.lanes:
                taken = {group.key for group in self.groups}
                first = next((job for job in waiting if job.key not in taken), None)
                if first is None:
                    break
                jobs, rows = [], 0
                for job in waiting:
                    if job.key == first.key and (not jobs or rows + job.rows <= self.limits.batch):
                        jobs, rows = [*jobs, job], rows + job.rows
                waiting = [job for job in waiting if job not in jobs]
                self.groups.append(_Group(jobs))
            self.jobs = waiting
