"""What a sampler is, the only loop (`run`), and the one place where the network is asked (`ask`)."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..arguments import checked, of_kind
from ..core import random
from ..core.batch import WHOLE, tensor
from ..core.random import Randomness, Streams
from ..errors import InputError, Registry, at_least, unknown
from ..methods.method import Method
from ..requests import declared
from .guide import Truncation
from .pairing import Distribution, distribution_of, of_length

HIDDEN = -2  # of `fixed`: a place that is neither given nor drawn; it stays noise, which only `hides` may do


FORMER = {"law": "distribution"}  # hooks by their former names


@dataclass(frozen=True)
class State:
    """Everything a sampler carries from step to step.

    Attributes:
        x: (B, L) tokens, masks among them.
        fixed: (B, L) bool, positions that must not change: given, or hidden, which hold the mask.
        context: what the network remembers (a key/value cache).
        memory: what the sampler remembers (times of the rows, confidences).
        calls: (B,) network calls so far.
        condition: (B,) the class of each row, -1 for none; None: the network is told no classes.
    """

    x: Tensor
    fixed: Tensor
    calls: Tensor
    context: Any = None
    memory: Any = None
    condition: Tensor | None = None

    def take(self, rows: Tensor) -> "State":
        """These rows (N,) of it; memory that is no tensor is not by rows."""
        context = None if self.context is None else self.context.take(rows)
        memory = self.memory[rows] if isinstance(self.memory, Tensor) else self.memory
        condition = None if self.condition is None else self.condition[rows]
        return State(self.x[rows], self.fixed[rows], self.calls[rows], context, memory, condition)


@declared
class Sampler(Truncation):
    """Draws a state at an earlier time from a state; nothing is hidden between calls.

    A sampler of your own is a subclass, `@declared` as this one; its fields are its options.

    Attributes:
        name: in SAMPLERS.
        error: how far its distribution is from the model's with many network evaluations; order: of that error in 1/steps.
        needs, calls: what it asks of a method, and how many network evaluations it takes.
        grows: whether it writes from left to right, and a text may pass the network's own length.
        inner: the sampler inside of it, if there is one.
    """

    name: ClassVar[str]
    error: ClassVar[str]
    order: ClassVar[str]
    needs: ClassVar[str]
    calls: ClassVar[str]
    grows: ClassVar[bool] = False

    @property
    def inner(self) -> "Sampler | None":
        return None

    def __init_subclass__(cls, **more: Any) -> None:
        """Accept the former names of hooks in a subclass."""
        super().__init_subclass__(**more)
        for former, name in FORMER.items():
            if former in vars(cls) and name not in vars(cls):
                setattr(cls, name, vars(cls)[former])

    def redraws(self) -> int:
        """How often a text that repeats itself is drawn again from its beginning, at most; by `watch`, not in `run`."""
        return 0

    @classmethod
    def refuse(cls, method: Method) -> str | None:
        """Why it cannot sample from this method ("needs absorbing noise"); None where it can. The only place that says so."""
        return None

    def distribution(self, method: Any, steps: int | None) -> Distribution:
        """The distribution that `steps` steps sample from, and the number that bounds it.

        Temperature and top-p are left to `distribution_of`.
        """
        return Distribution("a distribution of its own")

    def law(self, method: Any, steps: int | None) -> Distribution:
        """Former name of `distribution`."""
        return self.distribution(method, steps)

    def admit(self, method: Method, fixed: Tensor | None) -> None:
        """InputError where it cannot keep these tokens, (L,) or (B, L), -1 where they are free."""

    def times(self, method: Method, steps: int | None) -> Tensor:
        """Its grid of times, decreasing, from where sampling starts to CLEAN; or a mere counter; a row is a time."""
        ...

    def expected_calls(self, method: Method, times: Tensor, free: int) -> float | None:
        """How many network calls a row with `free` positions to draw takes on these times, in expectation; None where
        unknown."""
        return None

    def most_calls(self, times: Tensor) -> int:
        """How many network calls a text takes on these times at most; what a sampler proposes and rejects comes on top."""
        return (len(times) - 1) * (1 + self.redraws())

    def init(
        self, method: Method, shape: tuple[int, int], *, fixed: Tensor | None = None, generator: Randomness = None
    ) -> State:
        """A draw from the prior, with `fixed` (B, L) tokens put in where they are not negative."""
        check(self, method)
        self.admit(method, fixed)
        return start(method, shape, fixed, generator)

    def step(self, method: Method, state: State, t: Tensor, s: Tensor, generator: Randomness = None) -> State:
        """From time t to s <= t; scalars or (B, 1). `method` is the one to draw from: what `guided` makes of the model's
        own."""
        ...


SAMPLERS: Registry[type[Sampler]] = Registry("sampler", "zellige list samplers")  # the package fills it
INSIDE = ("ancestral", "first_hitting", "any_order")  # of a block, in `distributions`
ALIASES = {  # another name: the sampler, and why they are one
    "analytic": ("ancestral", "SEDD: analytic, RADD: Tweedie, MDLM: ddpm: one kernel"),
    "mean": ("ancestral", "MD4: positions first, then tokens, which is choose-then-ask"),
}


@checked
def find(name: str) -> type[Sampler]:
    """The class of a sampler, by its name or an alias. Raises InputError for an unknown name."""
    if name not in SAMPLERS and name not in ALIASES:
        raise unknown(SAMPLERS.kind, name, [*SAMPLERS, *ALIASES], SAMPLERS.see)
    return SAMPLERS[ALIASES[name][0] if name in ALIASES else name]


def distributions(method: Any, steps: int | None = None) -> dict[str, Distribution]:
    """Whose distribution each sampler of a method draws from without options, and which number bounds it: the table of its
    distributions.

    Of a method of blocks `blockwise` with several inside, "blockwise, first_hitting".
    """
    able: dict[str, Sampler] = {name: cls() for name, cls in SAMPLERS.items() if cls.refuse(method) is None}
    if "blockwise" in able:
        cls: Any = type(able.pop("blockwise"))
        block = of_length(method, method.block) if 0 < method.block < method.shape[0] else None
        names = [name for name in INSIDE if block is not None and SAMPLERS[name].refuse(block) is None]
        able |= {f"blockwise, {name}": cls(name) for name in names}
    return {name: distribution_of(sampler, method, steps) for name, sampler in able.items()}


def _answers(method: Any) -> None:
    """InputError unless a sampler can ask it."""
    if isinstance(method, type) or not all(hasattr(method, name) for name in ("predict", "process", "shape")):
        raise InputError(f"`method` is {of_kind(method)}; it must be a Method")


@checked
def check(sampler: Sampler, method: Any) -> None:
    """InputError where the two cannot be paired, with the samplers that draw from this method's distribution."""
    _answers(method)
    why = sampler.refuse(method)
    if why is not None:
        is_exact = lambda name, s: s.error.startswith("none") or name == method.sampler  # noqa: E731
        alternatives = [name for name, s in SAMPLERS.items() if is_exact(name, s) and s.refuse(method) is None]
        *leading, last = alternatives[:3] or ["another method"]
        use = f"{', '.join(leading)} or {last}" if leading else last
        raise InputError(f"sampler '{sampler.name}' {why}; with {method.name} use {use}")
    if sampler.inner is not None:
        check(sampler.inner, of_length(method, method.block or method.window))


def start_distribution(method: Method) -> Tensor:
    """(K,) where sampling starts, at each position: the prior; without a process every token is equally likely."""
    if method.process is not None:
        return method.process.prior
    device = next(method.parameters(), torch.empty(0)).device
    return torch.full((method.vocabulary,), 1 / method.vocabulary, dtype=torch.float64, device=device)


def start(method: Method, shape: tuple[int, int], fixed: Tensor | None = None, generator: Randomness = None) -> State:
    """The state that every sampler starts from."""
    if method.process is not None:
        x = method.process.sample_prior(shape, generator)
    else:
        distribution = start_distribution(method)
        x = random.replace(
            torch.zeros(shape, dtype=torch.long, device=distribution.device), 1.0, distribution, generator
        )
    fixed_at = torch.zeros_like(x, dtype=torch.bool) if fixed is None else fixed.to(x.device).expand(shape) != -1
    if fixed is not None:
        x = torch.where(fixed.to(x.device) >= 0, fixed.to(x.device), x)
    return State(x, fixed_at, torch.zeros(shape[0], dtype=torch.long, device=x.device))


@torch.no_grad()
@checked
def run(
    sampler: Sampler,
    method: Any,
    shape: tuple[int, int],
    steps: int | Tensor | Sequence[float] | None = None,
    *,
    fixed: Tensor | None = None,
    generator: Randomness = None,
    condition: Tensor | None = None,
    around: Callable[[Any], Any] | None = None,
) -> Iterator[State]:
    """Sample, one state a step; the first is the initial state, the last the sample.

    Args:
        method: a Method, or what answers as one.
        shape: (B, L); L is the method's own length, or less, or what the sampler admits.
        steps: how many, or the times themselves, decreasing; None for the sampler's own number.
        fixed: (B, L) long, the token where it is given, -1 where it is free, HIDDEN where it stays masked. Exact for absorbing
            processes.
        generator: one; or `Streams`, or a list, with one for each row: then a row's draw does not depend on its batch.
        condition: (B,) the class of each row, for a network with classes; -1 for none.
        around: guidance: takes the method and gives what is drawn from in its place; a truncation acts on what this one says.
    """
    _answers(method)
    if isinstance(steps, Tensor) and (steps.ndim > 2 or not len(steps.shape) or not steps.is_floating_point()):
        raise InputError(f"`steps` is {tensor(steps)}; it must be a number of steps, or the times, from 1 to 0")
    at_least("rows", shape[0], 1)
    at_least("length", shape[1], 1)
    if fixed is not None and (fixed.ndim > 2 or any(a not in (1, b) for a, b in zip(fixed.shape[::-1], shape[::-1]))):
        raise InputError(f"`fixed` is {tensor(fixed)}; it must be of the shape {tuple(shape)}")
    if isinstance(generator, Sequence | Streams) and len(generator) != shape[0]:
        raise InputError(f"{len(generator)} generators for {shape[0]} rows; give one for each row")
    if condition is not None and (condition.shape != shape[:1] or condition.dtype not in WHOLE):
        raise InputError(f"condition is {tensor(condition)}; it must be whole numbers of the shape {tuple(shape[:1])}")
    method = of_length(method, shape[1])
    check(sampler, method)
    times = sampler.times(method, steps) if steps is None or isinstance(steps, int) else torch.as_tensor(steps)
    times = times.to(start_distribution(method))
    state = sampler.init(method, shape, fixed=fixed, generator=generator)
    state = state if condition is None else replace(state, condition=condition.to(state.x.device))
    yield state
    method = sampler.guided(method if around is None else around(method))
    for t, s in itertools.pairwise(times):
        state = sampler.step(method, state, t, s, generator)
        yield state
