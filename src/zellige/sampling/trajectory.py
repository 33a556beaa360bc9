"""The sampling trajectory: every state of a set of samples, from noise to the last step.

Each sample has its own stream of random numbers, a function of (seed, its number), so that it does not depend on the
samples beside it. (The network's rounding may: a sample can differ where two tokens are equally likely to within a few
ulps.)

(B, L) below are the samples of a batch and the tokens of a sample.
"""

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.random import Streams, mix
from ..methods.method import device_of
from ..models.model import Model
from ..samplers import Sampler, State, run
from ..samplers.guide import Wrapper
from ..samplers.pairing import Distribution, blank, of_length
from ..samplers.sampler import below, distribution_of, start_distribution
from ..show import kinds
from ..show.style import Mark

Seed = int | Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Trajectory:
    """A request for samples, resolved and checked for one model; `frames` computes it, one batch after another.

    Attributes:
        sampler: the sampler itself; steps: how many, None for its own number.
        seed: of all samples; or a pair (seed, number) for each.
        count, length, batch: samples, tokens of each, samples at once.
        fixed: (N, length) tokens, -1 where one is free, HIDDEN where nothing is sampled; `count` is a multiple of N.
        condition: (count,) the class of each sample; None: the network is given no class.
        names: of the classes.
        end: the token that ends a text, of a model trained on documents.
        wrappers: of the method, the innermost first: guidance, a reward.
        lengths: tokens of each sample, at most `length`, where they are not all of that.
        begin: (N, length) texts, from whose noise at the time `noise` the samples begin; `count` is a multiple of N.
    """

    model: Model
    sampler: Sampler
    steps: int | None
    seed: Seed
    count: int
    length: int
    batch: int
    fixed: Tensor | None = None
    condition: Tensor | None = None
    names: tuple[str, ...] = ()
    end: int | None = None
    wrappers: tuple[Callable[[Any], Any], ...] = ()
    lengths: tuple[int, ...] = ()
    begin: Tensor | None = None
    noise: float = 1.0

    @property
    def distribution(self) -> Distribution:
        """The distribution that the samples are drawn from, and the number that bounds it."""
        method = self.method
        distribution = distribution_of(self.sampler, method, self.steps)
        if self.lengths:
            given = "given a length, which is drawn from those of its training"
            distribution = distribution.changed("given a length", given, distribution.number)
        if copies := getattr(self.model.method.network, "symmetries", 0):
            number = {"symmetries": copies} if distribution.number == {} else None
            distribution = distribution.changed(f"symmetries {copies}", f"averaged over {copies} symmetries", number)
        if not self.wrappers or isinstance(method, Wrapper):
            return distribution
        return distribution.changed("guided", "changed by guidance")

    @functools.cached_property
    def method(self) -> Any:
        """The method that is sampled from, with its wrappers, for samples of this length."""
        return wrapped(of_length(self.model.method, self.length), self.wrappers)

    @functools.cached_property
    def grid(self) -> Tensor:
        """The times of the sampler, from the start of sampling."""
        return self.sampler.times(of_length(self.model.method, self.length), self.steps)

    def times(self) -> list[float]:
        """The time of each frame, from 1 to 0; times that are a mere counter, or several numbers, are spaced evenly."""
        grid = self.grid if self.begin is None else below(self.sampler, self.model.method, self.grid, self.noise)
        times = (grid if grid.ndim == 1 else grid[:, 0]).tolist()
        if grid.ndim > 1 or 1 < times[0] < math.inf:
            return [1 - i / max(len(times) - 1, 1) for i in range(len(times))]
        return [min(max(t, 0.0), 1.0) for t in times]

    @functools.cached_property
    def expected_calls(self) -> float | None:
        """Network evaluations of a sample in expectation, the mean of all samples;
        None where the sampler does not know."""
        if self.begin is not None:
            return None  # how many positions are noisy is drawn
        if self.lengths:
            of_parts = [(len(numbers), part.expected_calls) for numbers, part in self._parts()]
            known = [number * calls for number, calls in of_parts if calls is not None]
            return sum(known) / self.count if len(known) == len(of_parts) else None
        method = self.method
        times = self.grid.to(start_distribution(method))
        free = [self.length] if self.fixed is None else (self.fixed == -1).sum(-1).tolist()
        if self.sampler.grows and len(set(free)) > 1:
            return None  # how much of a text is read depends on where the masked spans of the others begin
        counts = [self.sampler.expected_calls(method, times, number) for number in free]
        numbers = [count for count in counts if count is not None]
        return self.sampler.passes(method) * sum(numbers) / len(numbers) if len(numbers) == len(counts) else None

    def frames(self) -> "Iterator[Frame]":
        """Every state of one batch after another; the method is in evaluation mode meanwhile.

        Raises InputError before the first one: the sampler cannot take so many steps.
        """
        if self.lengths:
            return self._joined([(numbers, part.frames()) for numbers, part in self._parts()])
        return self._frames(self.times())

    def _parts(self) -> "Iterator[tuple[list[int], Trajectory]]":
        """Batches of samples of one length, in the order of their first ones: their numbers,
        and their trajectory alone."""
        batches, open_batches = list[list[int]](), dict[int, list[int]]()
        for number, length in enumerate(self.lengths):
            if length not in open_batches or len(open_batches[length]) == self.batch:
                open_batches[length] = []
                batches.append(open_batches[length])
            open_batches[length].append(number)
        for numbers in batches:
            length, of = self.lengths[numbers[0]], torch.tensor(numbers)
            yield (
                numbers,
                replace(
                    self,
                    length=length,
                    lengths=(),
                    count=len(numbers),
                    fixed=None if self.fixed is None else self.fixed[of * len(self.fixed) // self.count, :length],
                    seed=seed_pairs(self.seed, numbers),
                    condition=None if self.condition is None else self.condition[of],
                ),
            )

    def _joined(self, parts: "list[tuple[list[int], Iterator[Frame]]]") -> "Iterator[Frame]":
        finished = 0
        for numbers, frames in parts:
            for frame in frames:
                yield replace(frame, trajectory=self, first=finished, numbers=numbers)
            finished += len(numbers)

    def _frames(self, times: list[float]) -> "Iterator[Frame]":
        method, last = self.model.method, len(times) - 1
        training = method.training
        method.eval()
        try:
            for first in range(0, self.count, self.batch):
                numbers = range(first, min(first + self.batch, self.count))
                states, previous, seconds = self._states(torch.tensor(numbers), last), None, 0.0
                while True:
                    began = time.perf_counter()
                    numbered_state = next(states, None)
                    seconds += time.perf_counter() - began
                    if numbered_state is None:
                        break
                    step, state = numbered_state
                    previous = state.x if previous is None else previous
                    yield Frame(self, state, step, last, times[min(step, last)], previous, first, seconds, numbers)
                    previous = state.x
        finally:
            method.train(training)

    def _states(self, numbers: Tensor, last: int) -> Iterator[tuple[int, State]]:
        """(step, state) of the samples of these numbers; a sampler may draw some of them again (`Sampler.attempts`)."""
        draw = lambda rows, attempt: self._run(numbers[rows.cpu()], attempt)  # noqa: E731
        return self.sampler.attempts(self._run(numbers, 0), draw, last)

    def _run(self, numbers: Tensor, attempt: int) -> Iterator[State]:
        """The states of the samples of these numbers, with the random numbers of the attempt."""
        method, count = self.model.method, self.count
        device = device_of(method)
        again = (attempt,) if attempt else ()
        seeds = [mix(*pair, *again) for pair in seed_pairs(self.seed, numbers.tolist())]
        rows_of = lambda values: values[numbers * len(values) // count].to(device)  # noqa: E731
        return run(
            self.sampler,
            method,
            (len(numbers), self.length),
            self.grid,
            fixed=None if self.fixed is None else rows_of(self.fixed),
            generator=Streams(seeds, device),
            condition=None if self.condition is None else rows_of(self.condition),
            around=functools.partial(wrapped, wrappers=self.wrappers) if self.wrappers else None,
            begin=None if self.begin is None else (rows_of(self.begin), self.noise),
        )


def wrapped(method: Any, wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """A method with these wrappers around it, the first one inside."""
    for wrap in wrappers:
        method = wrap(method)
    return method


def seed_pairs(seed: Seed, numbers: Sequence[int]) -> list[tuple[int, int]]:
    """(seed, number) of the samples of these numbers, of which their random numbers are functions."""
    return [(seed, number) if isinstance(seed, int) else seed[number] for number in numbers]


@dataclass(frozen=True)
class Frame:
    """The state of a batch of a trajectory after `step` of `steps` sampling steps.

    Attributes:
        state: the sampler's state.
        t: its time, 1 before the first step, 0 after the last.
        previous: (B, L) the tokens one step earlier.
        first: how many samples were finished before this batch.
        seconds: time spent sampling this batch so far, without the time spent on the frames.
        numbers: of the samples in it.
    """

    trajectory: Trajectory
    state: State
    step: int
    steps: int
    t: float
    previous: Tensor
    first: int
    seconds: float
    numbers: Sequence[int]

    @property
    def count(self) -> int:
        """Number of all samples of the trajectory."""
        return self.trajectory.count

    @property
    def tokenizer(self) -> Any:
        """That of the model."""
        return self.trajectory.model.tokenizer

    @functools.cached_property
    def mask(self) -> int | None:
        """The token of a masked position; None where noise consists of tokens."""
        return blank(self.trajectory.model.method)

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of the class of each sample; () without classes."""
        condition, names = self.trajectory.condition, self.trajectory.names
        return () if condition is None else tuple(names[condition[number]] for number in self.numbers)

    @property
    def is_last(self) -> bool:
        """Whether its texts are finished."""
        return self.step == self.steps

    @property
    def x(self) -> Tensor:
        """(B, L) tokens."""
        return self.state.x

    @property
    def fixed(self) -> Tensor:
        """(B, L) bool, the given tokens."""
        return self.state.fixed

    @property
    def calls(self) -> Tensor:
        """(B,) network evaluations so far."""
        return self.state.calls * self.trajectory.sampler.passes(self.trajectory.method)

    @property
    def masked(self) -> Tensor:
        """(B, L) bool, masked tokens. Noise that absorbs into a token of the data leaves none at the end."""
        at_end = self.is_last and self.mask is not None and self.mask < self.tokenizer.size
        return torch.zeros_like(self.fixed) if self.mask is None or at_end else self.x == self.mask

    @property
    def new(self) -> Tensor:
        """(B, L) bool, tokens that took their value in this step."""
        return (self.x != self.previous) & ~self.masked

    @property
    def ends(self) -> list[int]:
        """Tokens of each text: all, or fewer where it ended. Sampled in any order,
        a text does not end before the last step."""
        return self.state.lengths(self._end).tolist()

    @property
    def reached(self) -> list[int]:
        """The end of what is given or being written of each text;
        a sampler that writes left to right is not at the end of it."""
        return self.state.reached(self._end).tolist()

    @property
    def _end(self) -> int | None:
        """The token that ends a text, in the last frame."""
        return self.trajectory.end if self.is_last else None

    @functools.cached_property
    def tokens(self) -> list[list[int]]:
        """The tokens of each text, up to where it ends."""
        return [row[:end] for row, end in zip(self.x.tolist(), self.ends)]

    @functools.cached_property
    def text(self) -> list[str]:
        """The texts; a masked token is `·`."""
        return [self.tokenizer.decode(row) for row in self.tokens]

    def _repr_html_(self) -> str:
        """The samples as a notebook shows them, with what happened in this step."""
        kind = kinds.of(self.tokenizer)
        length = max(self.reached) if kind.running else None
        marks = [self.marks(row)[:length] for row in range(len(self.x))]
        step = f"step {self.step} of {self.steps}, t = {self.t:.2f}"
        return f"<div><small>{step}</small>{kind.html(self.x[:, :length], marks)}</div>"

    def marks(self, row: int) -> list[Mark]:
        """The state of each token of a sample, as `show.style` names it."""
        was_token = torch.zeros_like(self.fixed) if self.mask is None else self.previous != self.mask
        codes = torch.full_like(self.x, 2)
        codes[self.x != self.previous] = 4  # another token than before
        codes[self.new & ~was_token & (self.mask is not None)] = 1
        codes[self.masked] = 0
        codes[self.masked & was_token] = 5  # a token before, masked again
        codes[self.fixed] = 3
        names: tuple[Mark, ...] = ("masked", "new", "shown", "given", "changed", "again")
        return [names[code] for code in codes[row].tolist()]
