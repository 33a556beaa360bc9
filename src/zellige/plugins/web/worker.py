"""Workers: a few threads for each model, of which one computes at a time, each its share of the time.

So a long request delays no other, not even within a step: `in_turns` puts a `pause` before every network evaluation.
Requests that agree in all but their texts (`Job.key`) are sampled in one batch; each text has its own stream of random
numbers (`sampling.trajectory`: `seed` as pairs), so an answer does not depend on the other requests. At each pause a
group that nobody waits for is dropped: its clients have hung up or are out of time.
"""

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from zellige.base.errors import InputError

from .guard import Limits

LOOK = 0.25  # seconds between two looks whether an asker has hung up
GATHER = 0.005  # seconds that the first request of a group waits for others
_END, _NOTHING = object(), object()  # the end of an iterator; no step within LOOK
_HERE = threading.local()  # `group`: what this thread draws
LOG = logging.getLogger("zellige.plugins.web")


class Busy(Exception):
    """More requests wait than there is room for."""


class OutOfTime(Exception):
    """The time of a request is over."""


class _Dropped(BaseException):
    """Nobody waits for what is being computed."""


class Failed(Exception):
    """The work failed for a reason of ours; the log has it."""


@dataclass(eq=False)
class Job:
    """A request.

    Attributes:
        key: requests with the same one are drawn together; unique where it should be alone.
        start: what draws for a group of jobs: an iterator, a step each.
        see: makes of a step what this job's asker gets; it is called in the worker's thread. None: nothing of this
            step.
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

    @property
    def waited_for(self) -> bool:
        """True while the client is there and has time left."""
        return not (self.over or self.cancelled or time.monotonic() > self.deadline)

    def put(self, item: object, last: bool = False) -> None:
        """Hand a step, or the error that ends it, to the asker's event loop; from the worker's thread."""
        self.over = self.over or last
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._items.put_nowait, (item, last))

    async def steps(self, gone: Callable[[], Any] | None = None) -> AsyncIterator[Any]:
        """The results of `see`, step by step. Raises the error that ended the job.

        gone: whether the asker has hung up; awaited 4 times a second, however short or long the steps are, as is the
        deadline.
        """
        began = time.monotonic()
        try:
            while True:
                item, last = _NOTHING, False
                with contextlib.suppress(TimeoutError):
                    item, last = await asyncio.wait_for(self._items.get(), LOOK)
                if item is _NOTHING and not self.over and time.monotonic() > self.deadline:
                    raise OutOfTime
                if isinstance(item, BaseException):
                    raise item
                if last:
                    return
                if gone is not None and time.monotonic() - began >= LOOK:
                    began = time.monotonic()
                    if await gone():
                        return
                if item is not _NOTHING:
                    yield item
        finally:
            self.cancelled = True


class _Turn:
    """A lock that goes to the group that has computed least, so that each has its share of the time, and not of the
    evaluations.

    Of two that have computed as long it is the one that came first. A group that begins has computed as long as the one
    that has computed least.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.holder: _Group | None = None
        self.waiting: list[_Group] = []
        self.since = 0.0  # the holder has computed

    def enter(self, group: "_Group") -> None:
        with self.lock:
            others = [*self.waiting, *([] if self.holder is None else [self.holder])]
            group.computed = max(group.computed, min((other.computed for other in others), default=0.0))
            self.waiting.append(group)
            if self.holder is None:
                self._next()
        group.turn.wait()

    def leave(self) -> None:
        with self.lock:
            self._count()
            self._next()

    def pass_on(self) -> None:
        """Let one go first that has computed less."""
        with self.lock:
            group = self._count()
            if all(other.computed >= group.computed for other in self.waiting):
                return
            group.turn.clear()
            self.waiting.append(group)
            self._next()
        group.turn.wait()

    def _count(self) -> "_Group":
        assert self.holder is not None
        now = time.monotonic()
        self.holder.computed += now - self.since
        self.since = now
        return self.holder

    def _next(self) -> None:
        self.holder = min(self.waiting, key=lambda group: group.computed, default=None)
        if self.holder is not None:
            self.waiting.remove(self.holder)
            self.since = time.monotonic()
            self.holder.turn.set()


def pause() -> None:
    """Stand between two pieces of a request's work, where the others have their turn;
    work that nobody waits for ends here."""
    group = getattr(_HERE, "group", None)
    if group is not None:
        group.pause()


def in_turns(network: nn.Module) -> None:
    """Have a network pause before each of its evaluations."""
    for name in ("features", "advance", "extend"):
        evaluate = getattr(network, name, None)
        if evaluate is not None and not hasattr(evaluate, "paused"):

            @functools.wraps(evaluate)
            def paused(*args: Any, evaluate: Callable[..., Any] = evaluate, **more: Any) -> Any:
                if not torch.compiler.is_compiling():  # a step that is one graph is one piece
                    pause()
                return evaluate(*args, **more)

            vars(paused)["paused"] = True
            setattr(network, name, paused)


class _Group:
    """Jobs that are drawn together, by one thread."""

    def __init__(self, jobs: list[Job], worker: "Worker"):
        self.jobs, self.key, self.worker = jobs, jobs[0].key, worker
        self.computed, self.turn = 0.0, threading.Event()  # seconds; set while it may compute
        first = 0
        for job in jobs:
            job.first, first = first, first + job.rows

    def pause(self) -> None:
        self.worker.turn.pass_on()
        if self.worker.closed or not any(job.waited_for for job in self.jobs):
            raise _Dropped

    def draw(self) -> None:
        """Take all steps, and hand them out."""
        error: Exception | None = None
        try:
            with self._in_turn(), torch.no_grad(), contextlib.closing(self._steps()) as steps:
                for step in steps:
                    for job in self.jobs:
                        if job.waited_for and (item := job.see(job, step)) is not None:
                            job.put(item)
                    self.pause()
        except _Dropped:
            return
        except InputError as problem:
            error = problem
        except Exception as problem:
            LOG.exception("a request failed")
            error = Failed(f"{type(problem).__name__}")
        for job in self.jobs:
            job.put(error, last=True)

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        self.worker.turn.enter(self)
        try:
            yield
        finally:
            self.worker.turn.leave()

    def _steps(self) -> Generator[Any]:
        self.pause()
        yield from self.jobs[0].start(self.jobs)


class Worker:
    """The threads of a model, one for each of `Limits.lanes` groups. `ask` hands it a job; `close` ends it."""

    def __init__(self, name: str, limits: Limits):
        self.limits, self.changed, self.turn = limits, threading.Condition(), _Turn()
        self.jobs: list[Job] = []
        self.groups: list[_Group] = []
        self.closed = False
        self.threads = [
            threading.Thread(target=self._run, name=f"zellige-{name}-{i}", daemon=True) for i in range(limits.lanes)
        ]
        for thread in self.threads:
            thread.start()

    def ask(self, job: Job) -> Job:
        """Put a job into the queue. Raises Busy where that is full."""
        job.deadline = time.monotonic() + self.limits.seconds
        with self.changed:
            self._waiting()
            if len(self.jobs) >= self.limits.waiting:
                raise Busy
            self.jobs.append(job)
            self.changed.notify()
        return job

    @property
    def load(self) -> int:
        """Requests that wait or are drawn."""
        return len(self.jobs) + self.running

    @property
    def running(self) -> int:
        """Requests that are drawn."""
        return sum(len(group.jobs) for group in self.groups)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        until = time.monotonic() + 5
        for thread in self.threads:
            thread.join(max(until - time.monotonic(), 0))

    def _run(self) -> None:
        while (group := self._next()) is not None:
            _HERE.group = group
            try:
                group.draw()
            finally:
                with self.changed:
                    self.groups.remove(group)
                    self.changed.notify_all()

    def _waiting(self) -> Job | None:
        """The first in the queue whose like is not being drawn: who agrees with a group goes with the next one."""
        self.jobs = [job for job in self.jobs if job.waited_for]
        keys = {group.key for group in self.groups}
        return next((job for job in self.jobs if job.key not in keys), None)

    def _next(self) -> _Group | None:
        """A group of those that wait; None: there will be no more."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or self._waiting())
                if self.closed:
                    return None
                idle = not self.groups
            if idle:
                time.sleep(GATHER)
            with self.changed:
                first = self._waiting()
                if first is None:
                    continue
                jobs, rows = [], 0
                for job in self.jobs:
                    if job.key == first.key and (not jobs or rows + job.rows <= self.limits.batch):
                        jobs, rows = [*jobs, job], rows + job.rows
                self.jobs = [job for job in self.jobs if job not in jobs]
                self.groups.append(_Group(jobs, self))
                return self.groups[-1]
