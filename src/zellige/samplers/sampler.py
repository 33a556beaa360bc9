"""The interface of a sampler, and the only sampling loop, `run`."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from ..base.arguments import checked, checked_methods, of_kind
from ..base.errors import InputError, unknown
from ..base.plugins import Registry, subclass
from ..base.requests import declared
from ..base.waiting import at_hand, fixed_shapes
from ..core import random
from ..core.batch import WHOLE, Batch, tensor
from ..core.random import Randomness, Streams
from ..methods.method import Method
from .captured import captured
from .guide import Truncated, Truncation
from .pairing import Distribution, discrete_times, of_length

HIDDEN = -2  # in `fixed`: a position that is neither given nor sampled; it stays masked, which needs `hides`
LOOK = 8  # steps of fixed shape from one look at whether all is finished to the next
# in `fixed`, any number of tokens: where a sampler inserts (`insertion`), or candidates are cut (`sampling.gap`)
GAP = -3

Exactness = Literal["exact", "limit", "marginals", "heuristic", "inner"]


class Summary:
    """Report on finished samples beside their tokens (`Memory.summary`); a subclass for each kind of report."""

    @classmethod
    def joined(cls, parts: Sequence[Any], places: Sequence[int]) -> "Summary":
        """Join those of several batches; sample number n of the result is number places[n] of the parts,
        one after another."""
        raise NotImplementedError

    def of_sample(self, number: int) -> dict[str, Any]:
        """Entries of one sample in JSON."""
        return {}

    def of_all(self) -> dict[str, Any]:
        """Entries of all samples together in JSON."""
        return {}

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> "Self | None":
        """The summary in the JSON of samples, the entries of each in `samples`;
        None where there is none of this kind."""
        return None

    def describe(self, pm: Callable[[float, float], str], one_target: bool) -> str:
        """Text printed below the samples; "" for nothing.

        Args:
            pm: formats a value and half its interval.
            one_target: the samples have one distribution: one class, one prompt, nothing else given.
        """
        return ""

    def refuse(self) -> None:
        """Raise InputError where no sample can be used."""


class Memory:
    """Values that a sampler carries from step to step beside the tokens, and what it reports: by default nothing."""

    def take(self, rows: Tensor) -> Self:
        """Select sequences (N,); a memory that is not of single sequences stays whole."""
        return self

    def lengths(self, found: Tensor) -> Tensor:
        """Number of tokens of each text, (B,); `found` (B,) of them stand before its end token, L without one."""
        return found

    def reached(self, given: Tensor, lengths: Tensor) -> Tensor:
        """Number of tokens of each text that are given or written so far, (B,).

        Args:
            given: (B,) of them are given at its beginning.
            lengths: (B,) in all.
        """
        return lengths

    def summary(self, state: "State") -> Summary | None:
        """Report of finished samples."""
        return None


@checked_methods
@dataclass(frozen=True)
class State:
    """Everything that a sampler carries from step to step.

    Attributes:
        x: (B, L) tokens, masks among them.
        fixed: (B, L) bool, positions that must not change: given, or hidden, which hold the mask.
        context: the network's memory (a key/value cache).
        memory: the sampler's memory: a `Memory`, or a tensor (B, ...) such as times of the sequences; None: none.
        calls: (B,) network evaluations so far.
        condition: (B,) the class of each sequence, -1 for none; None: the network has no classes.
        segments: (B, L) the packed document of each position; None: one document.
    """

    x: Tensor
    fixed: Tensor
    calls: Tensor
    context: Any = None
    memory: Any = None
    condition: Tensor | None = None
    segments: Tensor | None = None

    def take(self, rows: Tensor) -> "State":
        """Select sequences (N,) of the state."""
        context = None if self.context is None else self.context.take(rows)
        memory = self.memory[rows] if isinstance(self.memory, Tensor) else self.memory and self.memory.take(rows)
        condition = None if self.condition is None else self.condition[rows]
        segments = None if self.segments is None else self.segments[rows]
        return State(self.x[rows], self.fixed[rows], self.calls[rows], context, memory, condition, segments)

    @property
    def notes(self) -> Memory:
        """The memory, if it reports anything; else one that reports nothing."""
        return self.memory if isinstance(self.memory, Memory) else Memory()

    def lengths(self, token: int | None = None) -> Tensor:
        """Tokens of each text, (B,): those before a sampled `token`, which ends it, or as many as the memory says."""
        return self.notes.lengths(first_at(token, self.x, self.fixed))

    def reached(self, token: int | None = None) -> Tensor:
        """Tokens of each text that are given or written so far, (B,);
        all but for a sampler that writes from left to right."""
        return self.notes.reached(self.fixed.long().cumprod(-1).sum(-1), self.lengths(token))


def first_at(token: int | None, x: Tensor, fixed: Tensor) -> Tensor:
    """Position of the first sampled `token` in texts x (B, n): (B,) long; n without one."""
    hit = torch.zeros_like(fixed) if token is None else (x == token) & ~fixed
    return torch.where(hit.any(-1), hit.long().argmax(-1), x.shape[1])


def ordered(places: Sequence[int], *parts: Sequence[Any]) -> list[Any]:
    """The values of several parts, one after another, in the order of `places`."""
    values = [value for part in parts for value in part]
    return [values[place] for place in places]


def extent(values: Sequence[int]) -> str:
    """Print the smallest and the largest of some numbers: `7`, or `5 to 7`."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@declared
class Sampler(Truncation):
    """Base class of samplers: a step from a state to a state at an earlier time, without hidden state.

    A sampler of your own is a subclass, `@declared` as this one, with `times` and `step`; its fields are its options.
    The command line and type checkers know those of the samplers here from `cli/lists.json` and `sampling/choices.py`,
    which `make generate` writes.

    Attributes:
        name: in SAMPLERS.
        exactness: of its distribution: that of the model ("exact"); in the limit of many steps, proposals or particles
            ("limit"); of the model in each marginal alone ("marginals"); another one ("heuristic"); as exact as its
            inner sampler ("inner").
        convergence: order in 1/steps at which it approaches the model's distribution; None where steps are not what
            limits it.
        grows: whether it writes from left to right, and a text may pass the network's own length.
        revises: whether a token that is revealed may change again: by a correction, or because a copy of another
            candidate takes its place.
        reconstructs: whether it can begin with a noisy text: it has a grid of times, and its state is the text alone.
        inner: the sampler inside of it, if there is one.
        report: the class of what it reports, if it reports anything.

    Printed alone:
        label, sentence: what it is called and does, for a reader who knows no term of the field.
        samples_from, claim: its distribution, and its exactness.
        needs, calls: what it needs of a method, and how many network evaluations it takes.
    """

    name: ClassVar[str]
    exactness: ClassVar[Exactness] = "heuristic"
    convergence: ClassVar[int | None] = None
    grows: ClassVar[bool] = False
    revises: ClassVar[bool] = False
    reconstructs: ClassVar[bool] = False
    report: ClassVar[type[Summary] | None] = None

    label: ClassVar[str] = ""
    sentence: ClassVar[str] = ""
    samples_from: ClassVar[str] = "its own distribution"
    claim: ClassVar[str] = "not the model's distribution"
    needs: ClassVar[str]
    calls: ClassVar[str]

    def __post_init__(self) -> None:
        """Check what depends on several fields; each one is checked already."""

    @property
    def inner(self) -> "Sampler | None":
        return None

    def attempts(
        self, states: Iterator[State], draw: Callable[[Tensor, int], Iterator[State]], last: int
    ) -> Iterator[tuple[int, State]]:
        """Number the states of B texts, and draw some texts again: draw(rows (R,), attempt) has their states. Not in
        `run`.

        `last` is the number of the last step, which comes once, for all texts.
        """
        return enumerate(states)

    @classmethod
    def reason_against(cls, method: Method) -> str | None:
        """Reason why the sampler supports no such method ("needs absorbing noise"); None if it does.

        Options of a sampler that a method cannot serve are found later, by `admit`, `times` or the first step.
        """
        return None

    def truncates(self) -> bool:
        """Return whether the truncation changes anything."""
        return self.temperature != 1.0 or self.top_p < 1.0 or self.top_k is not None

    def truncated(self, method: Any) -> Any:
        """Wrap the method in this truncation; the method itself if nothing changes."""
        how = (self.temperature, self.top_p, self.top_k, self.drop_crossing)
        return Truncated(method, *how) if self.truncates() else method

    def distribution(self, method: Method, steps: int | None) -> Distribution:
        """The distribution that `steps` steps sample from, and the number that bounds it.

        `distribution_of` accounts for temperature and top-p.
        """
        return Distribution(self.name, "its own distribution")

    def admit(self, method: Method, fixed: Tensor | None) -> None:
        """Raise InputError if the sampler cannot keep these given tokens, (L,) or (B, L), -1 where free."""

    def times(self, method: Method, steps: int | None) -> Tensor:
        """Grid of times, decreasing from the start of sampling to CLEAN; or a counter. One entry for each time."""
        raise NotImplementedError

    def steps_of(self, times: Tensor) -> int:
        """Return the number of steps on these times, as `times` takes it."""
        return len(times) - 1

    def has_fixed_shape(self, method: Method, shape: tuple[int, int]) -> bool:
        """Return whether a step of texts (B, L) reads no value within `base.waiting.fixed_shapes`, as a GPU needs it.

        Then a text without free positions stays as it is, unless the sampler `grows`.
        """
        return False

    def expected_calls(self, method: Method, times: Tensor, free: int) -> float | None:
        """Expected network evaluations of a sequence with `free` positions on these times; None if unknown."""
        return None

    def passes(self, method: Method) -> int:
        """Number of passes of the network in one of its evaluations."""
        return method.passes

    def most_calls(self, method: Method, times: Tensor) -> int:
        """Largest number of network evaluations of a text on these times, rejected proposals not included."""
        return len(times) - 1

    def init(
        self, method: Method, shape: tuple[int, int], *, fixed: Tensor | None = None, generator: Randomness = None
    ) -> State:
        """Sample from the prior, with `fixed` (B, L) tokens put in where they are not negative."""
        check(self, method)
        self.admit(method, fixed)
        return initial_state(method, shape, fixed, generator)

    def step(self, method: Method, state: State, t: Tensor, s: Tensor, generator: Randomness = None) -> State:
        """Step from time t to s <= t; scalars or (B, 1). `method` is the one to sample from, after `truncated`."""
        raise NotImplementedError


SAMPLERS: Registry[type[Sampler]] = Registry(  # the package fills it
    "sampler", "zellige list samplers", "zellige.samplers", subclass(Sampler, "a class of zellige.samplers.Sampler")
)
INSIDE = ("ancestral", "first_hitting", "any_order")  # of a block, in `distributions`
ALIASES = {  # another name: the sampler, and why they are one
    "analytic": ("ancestral", "the same step, called analytic by SEDD, Tweedie by RADD, ddpm by MDLM"),
    "mean": ("ancestral", "the same step in MD4's order: positions first, then tokens"),
}


@checked
def find(name: str) -> type[Sampler]:
    """Return the class of a sampler, by its name or an alias. Raises InputError for an unknown name."""
    if name not in SAMPLERS and name not in ALIASES:
        raise unknown(SAMPLERS.kind, name, [*SAMPLERS, *ALIASES], SAMPLERS.see)
    return SAMPLERS[ALIASES[name][0] if name in ALIASES else name]


def distribution_of(sampler: Sampler, method: Method, steps: int | None = None) -> Distribution:
    """The distribution that a sampler samples texts of the model's length from, in `steps` steps, with the number that
    bounds it."""
    distribution = sampler.distribution(method, steps)
    changes = [str(method.changes)] if getattr(method, "changes", "") else []
    if sampler.temperature != 1.0 or sampler.truncated(method) is not method:
        changes.append("its temperature, top-p or top-k")
    if changes:
        return distribution.changed("changed", f"changed by {' and '.join(changes)}")
    return replace(distribution, number=None) if method.shape[0] != method.window else distribution


def distributions(method: Method, steps: int | None = None) -> dict[str, Distribution]:
    """The distribution of each sampler of a method without options, with the number that bounds it.

    For a method of blocks, `blockwise` with several samplers inside: "blockwise, first_hitting".
    """
    able: dict[str, Sampler] = {name: cls() for name, cls in SAMPLERS.items() if cls.reason_against(method) is None}
    if "blockwise" in able:
        cls: Any = type(able.pop("blockwise"))
        block = of_length(method, method.block) if 0 < method.block < method.shape[0] else None
        names = [name for name in INSIDE if block is not None and SAMPLERS[name].reason_against(block) is None]
        able |= {f"blockwise, {name}": cls(name) for name in names}
    return {name: distribution_of(sampler, method, steps) for name, sampler in able.items()}


def _answers(method: Method) -> None:
    """Raise InputError unless a sampler can use the method."""
    if isinstance(method, type) or not all(hasattr(method, name) for name in ("predict", "process", "shape")):
        raise InputError(f"`method` is {of_kind(method)}; it must be a Method")


@checked
def check(sampler: Sampler, method: Any) -> None:
    """Raise InputError if sampler and method do not fit; the error names samplers that fit."""
    _answers(method)
    why = sampler.reason_against(method)
    if why is not None:
        names = [name for name, s in SAMPLERS.items() if s.exactness in ("exact", "limit") or name == method.sampler]
        alternatives = [name for name in names if SAMPLERS[name].reason_against(method) is None]
        *leading, last = alternatives[:3] or ["another method"]
        use = f"{', '.join(leading)} or {last}" if leading else last
        raise InputError(f"sampler '{sampler.name}' {why}; with {method.name} use {use}")
    if sampler.inner is not None:
        check(sampler.inner, of_length(method, method.block or method.window))


def start_distribution(method: Method) -> Tensor:
    """Distribution (K,) of each position at the start: the prior; uniform without a process."""
    if method.process is not None:
        return method.process.prior
    device = next(method.parameters(), torch.empty(0)).device
    return torch.full((method.vocabulary,), 1 / method.vocabulary, dtype=torch.float64, device=device)


def initial_state(
    method: Method, shape: tuple[int, int], fixed: Tensor | None = None, generator: Randomness = None
) -> State:
    """Initial state of every sampler."""
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


def below(sampler: Sampler, method: Any, times: Tensor, t: float) -> Tensor:
    """The times from t on: t, then those of a grid (n + 1,) that are smaller. Of a model of T steps t is the next of
    its own.

    Raises:
        InputError: the sampler has no grid of times, or its state has a memory of what it did before t.
    """
    if not sampler.reconstructs:
        raise InputError(
            f"sampler '{sampler.name}' cannot begin with a noisy text; use ancestral, or another on a grid of times"
        )
    T = discrete_times(method)
    begin = max(round(t * T), 1) / T if T else t
    return torch.cat((times.new_tensor([begin]), times[times < begin - 1e-9]))


@checked
@torch.no_grad()  # under `checked`: it must see that this is a generator, else it covers the call and none of the steps
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
    begin: tuple[Tensor, float] | None = None,
) -> Iterator[State]:
    """Sample, one state a step; the first is the initial state, the last the sample.

    Args:
        method: a Method, or an object with its interface.
        shape: (B, L); L is the method's length or less, or a length that the sampler supports.
        steps: how many, or the times themselves, decreasing; None for the sampler's own number.
        fixed: (B, L) long, the token if it is given, -1 if it is free, HIDDEN if it stays masked. Exact for absorbing
            processes.
        generator: one; or `Streams` or a list, with one for each sequence, whose sample then does not depend on its
            batch.
        condition: (B,) the class of each sequence, for a network with classes; -1 for none.
        around: guidance: maps the method to the one to sample from in its place; truncation is applied to the result.
        begin: texts (B, L) and a time t: sample from their noise at t on, by the steps of the grid after t (`below`).
    """
    _answers(method)
    if isinstance(steps, Tensor) and (steps.ndim > 2 or not len(steps.shape) or not steps.is_floating_point()):
        raise InputError(f"`steps` is {tensor(steps)}; it must be a number of steps, or the times, from 1 to 0")
    for name, size in zip(("rows", "length"), shape):
        if size < 1:
            raise InputError(f"`{name}` is {size}; it must be 1 or more")
    if fixed is not None and (fixed.ndim > 2 or any(a not in (1, b) for a, b in zip(fixed.shape[::-1], shape[::-1]))):
        raise InputError(f"`fixed` is {tensor(fixed)}; it must be of the shape {tuple(shape)}")
    if isinstance(generator, Sequence | Streams) and len(generator) != shape[0]:
        raise InputError(f"{len(generator)} generators for {shape[0]} rows; give one for each row")
    if condition is not None and (condition.shape != shape[:1] or condition.dtype not in WHOLE):
        raise InputError(f"condition is {tensor(condition)}; it must be whole numbers of the shape {tuple(shape[:1])}")
    method = of_length(method, shape[1])
    method = method if around is None else around(method)
    state = sampler.init(method, shape, fixed=fixed, generator=generator)  # which checks that the two fit
    times = sampler.times(method, steps) if steps is None or isinstance(steps, int) else torch.as_tensor(steps)
    start = start_distribution(method)
    times = times.to(start) if times.ndim == 1 else times.to(start.dtype)  # several numbers are for Python to read
    if begin is not None:
        times, x_0 = below(sampler, method, times, begin[1]), begin[0].to(state.x.device)
        noisy = method.corrupt(Batch(x_0, None if fixed is None else ~state.fixed), times[0], generator)
        state = replace(state, x=torch.where(state.fixed, state.x, noisy))
    state = state if condition is None else replace(state, condition=condition.to(state.x.device))
    yield state
    method = sampler.truncated(method)
    unread, finished = _unread(sampler, method, state.x, generator), False
    for number, (t, s) in enumerate(itertools.pairwise(times)):
        if unread and not sampler.grows and number % LOOK == 0:
            finished = not bool((method.process.movable(state.x) & ~state.fixed).any())
        if not finished:
            with fixed_shapes(unread):  # a sampler that grows has graphs of its own
                step = sampler.step if sampler.grows else captured(sampler.step, method)
                state = step(method, state, t, s, generator)
        yield state


def _unread(sampler: Sampler, method: Any, x: Tensor, generator: Randomness) -> bool:
    """Return whether steps of texts x (B, L) read no value: where a device would be waited for, if they can."""
    model = method.method if isinstance(method, Truncated) else method
    able = isinstance(model, Method) and isinstance(generator, Streams)  # guidance reads values
    return not at_hand(x) and able and sampler.has_fixed_shape(model, (x.shape[0], x.shape[1]))
