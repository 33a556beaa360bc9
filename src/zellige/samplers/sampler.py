"""What a sampler is, the only loop (`run`), and the one place where the network is asked (`ask`)."""

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from .. import maths
from ..arguments import checked, of_kind
from ..batch import tensor
from ..errors import InputError, at_least
from ..maths import Randomness
from ..method import Method
from ..prediction import Prediction
from ..process import Mixture, Process
from ..schedule import CLEAN

HIDDEN = -2  # of `fixed`: a place that is neither given nor drawn; it stays noise, which only `hides` may do


@dataclass(frozen=True)
class State:
    """Everything a sampler carries from step to step.

    Attributes:
        x: (B, L) tokens, masks among them.
        fixed: (B, L) bool, positions that must not change: given, or hidden, which hold the mask.
        context: what the network remembers (a key/value cache).
        memory: what the sampler remembers (times of the rows, confidences).
        calls: (B,) network calls so far.
    """

    x: Tensor
    fixed: Tensor
    calls: Tensor
    context: Any = None
    memory: Any = None

    def take(self, rows: Tensor) -> "State":
        """These rows (N,) of it; memory that is no tensor is not by rows."""
        context = None if self.context is None else self.context.take(rows)
        memory = self.memory[rows] if isinstance(self.memory, Tensor) else self.memory
        return State(self.x[rows], self.fixed[rows], self.calls[rows], context, memory)


class Sampler(Protocol):
    """State in, state out; nothing hidden between calls. The arguments of `__init__` are the sampler's options."""

    name: ClassVar[str]
    error: ClassVar[str]  # how far its law is from the model's with many calls
    order: ClassVar[str]  # the order of that error in 1/steps
    needs: ClassVar[str]
    calls: ClassVar[str]
    grows: ClassVar[bool] = False  # whether it writes from left to right, and a text may pass the network's own length
    inner: "Sampler | None" = None  # what draws inside of it
    redraw: int = (
        0  # how often a text that repeats itself is drawn again; by who draws texts (`generate.watch`), not in `run`
    )

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            checked(cls)

    @classmethod
    def refuse(cls, method: Method) -> str | None:
        """Why it cannot sample from this method ("needs absorbing noise"); None where it can. The only place that says so."""
        return None

    def admit(self, method: Method, fixed: Tensor | None) -> None:
        """InputError where it cannot keep these tokens, (L,) or (B, L), -1 where they are free."""

    def times(self, method: Method, steps: int | None) -> Tensor:
        """Its grid of times, decreasing, from where sampling starts to CLEAN; or a mere counter; a row is a time."""
        ...

    def expected_calls(self, method: Method, times: Tensor, free: int) -> float | None:
        """How many network calls a row with `free` positions to draw takes on these times, in expectation; None where unknown."""
        return None

    def init(
        self, method: Method, shape: tuple[int, int], *, fixed: Tensor | None = None, generator: Randomness = None
    ) -> State:
        """A draw from the prior, with `fixed` (B, L) tokens put in where they are not negative."""
        check(self, method)
        self.admit(method, fixed)
        return start(method, shape, fixed, generator)

    def step(self, method: Method, state: State, t: Tensor, s: Tensor, generator: Randomness = None) -> State:
        """From time t to s <= t; scalars or (B, 1)."""
        ...


def _answers(method: Any) -> None:
    """InputError unless a sampler can ask it."""
    if isinstance(method, type) or not all(hasattr(method, name) for name in ("predict", "process", "shape")):
        raise InputError(f"method is {of_kind(method)}; it must be a Method")


@checked
def check(sampler: Sampler, method: Any) -> None:
    """InputError where the two cannot be paired, with the samplers that draw from this method's law."""
    _answers(method)
    why = sampler.refuse(method)
    if why is not None:
        from . import SAMPLERS

        ours = lambda name, s: s.error.startswith("none") or name == method.sampler  # noqa: E731
        others = [name for name, s in SAMPLERS.items() if ours(name, s) and s.refuse(method) is None]
        *most, last = others[:3] or ["another method"]
        use = f"{', '.join(most)} or {last}" if most else last
        raise InputError(f"sampler '{sampler.name}' {why}; with {method.name} use {use}")
    if sampler.inner is not None:
        check(sampler.inner, of_length(method, method.block or method.window))


def steps_of(method: Method) -> int:
    """T of a method whose time is discrete, 0 for continuous time."""
    return getattr(method.process, "T", 0)


def divisors(T: int, steps: int) -> list[int]:
    """The divisors of T, nearest to `steps` first (by their ratio)."""
    return sorted((d for d in range(1, T + 1) if T % d == 0), key=lambda d: abs(math.log(d / steps)))


def admissible(method: Method, steps: int) -> int:
    """The number of steps nearest to `steps` that the method's time admits: itself, or in discrete time a divisor of T."""
    T = steps_of(method)
    return divisors(T, steps)[0] if T else steps


def of_length(method: Method, length: int) -> Method:
    """The same method for texts of `length` tokens; they share the network, whose own length stays `method.window`."""
    if method.shape == (length,):
        return method
    other = copy.copy(method)
    other.built_for, other.shape = method.window, (length,)  # pyright: ignore
    return other


def blank(method: Method) -> int | None:
    """What stands where no token is yet: the mask, after the tokens where nothing is noised; None where noise is tokens too."""
    return method.vocabulary if method.predicts == "next" else getattr(method.process, "blank", None)


def at_once(method: Method) -> str | None:
    """A reason to refuse: a text is drawn as a whole, and the network reads one block after another."""
    return "draws all of a text at once, this network block after block" if 0 < method.block < method.shape[0] else None


def reverses(method: Method) -> str | None:
    """A reason to refuse: there is no process whose reverse could be drawn."""
    return "needs a process to reverse" if method.process is None else at_once(method)


def absorbs(method: Method, one: bool = False) -> str | None:
    """A reason to refuse: the process is not absorbing; or (`one`) its tokens do not share one alpha."""
    process = method.process
    if not isinstance(process, Mixture) or process.mask is None:
        return "needs absorbing noise"
    return at_once(method) if one_alpha(process) or not one else "needs one alpha for all tokens"


def rateless(method: Method) -> str | None:
    """A reason to refuse: there is no process, or its time is discrete."""
    if why := reverses(method):
        return why
    discrete = steps_of(method) or type(method.process).rate is Process.rate
    return "needs a rate, which discrete time has not" if discrete else None


def one_alpha(process: Process) -> bool:
    """Whether the process has a schedule that all its tokens share."""
    schedule = getattr(process, "schedule", None)
    return schedule is not None and schedule.alpha(process.prior.new_ones(())).shape[-1] == 1


def start_law(method: Method) -> Tensor:
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
        law = start_law(method)
        x = maths.replace(torch.zeros(shape, dtype=torch.long, device=law.device), 1.0, law, generator)
    given = torch.zeros_like(x, dtype=torch.bool) if fixed is None else fixed.to(x.device).expand(shape) != -1
    if fixed is not None:
        x = torch.where(fixed.to(x.device) >= 0, fixed.to(x.device), x)
    return State(x, given, torch.zeros(shape[0], dtype=torch.long, device=x.device))


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
) -> Iterator[State]:
    """Sample, one state a step; the first is the initial state, the last the sample.

    Args:
        method: a Method, or what answers as one.
        shape: (B, L); L is the method's own length, or less, or what the sampler admits.
        steps: how many, or the times themselves, decreasing; None for the sampler's own number.
        fixed: (B, L) long, the token where it is given, -1 where it is free, HIDDEN where it stays masked. Exact for absorbing
            processes.
        generator: one, or a list with one for each row: then a row's draw does not depend on its batch.
    """
    _answers(method)
    if isinstance(steps, Tensor) and (steps.ndim > 2 or not len(steps.shape) or not steps.is_floating_point()):
        raise InputError(f"steps is {tensor(steps)}; it must be a number of steps, or the times, from 1 to 0")
    at_least("rows", shape[0], 1)
    at_least("length", shape[1], 1)
    if fixed is not None and (fixed.ndim > 2 or any(a not in (1, b) for a, b in zip(fixed.shape[::-1], shape[::-1]))):
        raise InputError(f"fixed is {tensor(fixed)}; it must be of the shape {tuple(shape)}")
    if isinstance(generator, Sequence) and len(generator) != shape[0]:
        raise InputError(f"{len(generator)} generators for {shape[0]} rows; give one for each row")
    method = of_length(method, shape[1])
    check(sampler, method)
    times = sampler.times(method, steps) if steps is None or isinstance(steps, int) else torch.as_tensor(steps)
    times = times.to(start_law(method))
    state = sampler.init(method, shape, fixed=fixed, generator=generator)
    yield state
    for t, s in itertools.pairwise(times):
        state = sampler.step(method, state, t, s, generator)
        yield state


# ---------------------------------------------------------------------------------- asking the network
def ask(method: Method, state: State, at: Tensor, t: Tensor | float) -> Prediction | None:
    """The prediction at the positions `at` (B, L) bool, leading shape (N,); None where there is none.

    The network sees only the rows that have such a position, and its head computes only there. Given positions are CLEAN.
    """
    rows = at.any(-1).nonzero()[:, 0]
    if len(rows) == 0:
        return None
    time = clean_where_fixed(method, state, t)
    context = None if state.context is None else state.context.take(rows)
    return method.predict(state.x[rows], time[rows], at=at[rows], context=context)


def redraw(
    method: Method,
    state: State,
    at: Tensor,
    t: Tensor | float,
    law: Callable[[Prediction], Tensor],
    generator: Randomness = None,
) -> State:
    """Ask at the positions `at`, and draw what stands there from `law` (N, K) of the prediction."""
    pred = ask(method, state, at, t)
    if pred is None:
        maths.discard(at.shape, generator)
        return state
    return fill(state, at, maths.categorical(law(pred), generator, at), at.any(-1))


def choose_then_ask(
    method: Method,
    state: State,
    reveal: Tensor,
    t: Tensor,
    law: Callable[[Prediction], Tensor],
    generator: Randomness = None,
) -> State:
    """Reveal each free mask with a probability that the network has no part in, then ask what stands there.

    Args:
        reveal: the probability, (1,) or (B, 1, 1); or one for each token, (K,) or (B, 1, K): then positions are chosen with the
            largest, and a token k that is drawn is kept with probability reveal_k / largest (thinning).
        law: the clean posterior (N, K) of the prediction.
    """
    largest = reveal.amax(-1)
    chosen = free(method, state) & maths.bernoulli(largest.expand(state.x.shape), generator)
    if reveal.shape[-1] == 1:
        return redraw(method, state, chosen, t, law, generator)
    pred = ask(method, state, chosen, t)
    if pred is None:
        for _ in range(2):  # the draws below, which other rows may make
            maths.discard(chosen.shape, generator)
        return state
    x = maths.categorical(law(pred), generator, chosen)
    relative = (reveal / largest[..., None]).expand(len(chosen), 1, -1)[chosen.nonzero()[:, 0], 0, x]
    keep = maths.bernoulli(relative, generator, chosen)
    return fill(state, chosen.masked_scatter(chosen, keep), x[keep], chosen.any(-1))


def calls_of(reveal: Tensor, free: int) -> float:
    """E of the network calls of a row with `free` masks, where a step reveals one that is left with probability reveal (n,).

    A step asks if it reveals any: sum_i 1 - (1 - r_i)^free, with r_i the probability that a position is revealed in step i. For
    the kernel of absorbing noise r_i = alpha_s - alpha_t (RADD, arXiv 2406.03736, on its expected function evaluations).
    """
    masked = torch.cat((reveal.new_ones(1), (1 - reveal).cumprod(0)[:-1]))
    return float((1 - (1 - masked * reveal) ** free).sum())


def choosable(method: Method) -> bool:
    """Whether `choose_then_ask` has the law of the kernel: absorbing noise, and a prediction that is a law.

    A score is not: how much it says in all decides how likely a mask is revealed.
    """
    return absorbs(method) is None and method.predicts != "score"


def free(method: Method, state: State) -> Tensor:
    """(B, L) bool, the positions that a reverse step may change."""
    return method.process.movable(state.x) & ~state.fixed


def expected_time(method: Method, state: State) -> Tensor:
    """The time (B, 1) at which the share of masks among the positions that are not given is the expected one, to 1/1000."""
    T, given = steps_of(method) or 1000, given_places(method, state)
    process, share = method.process, (method.process.movable(state.x) & ~given).sum(-1) / (~given).sum(-1).clamp_min(1)
    t = torch.arange(T + 1, dtype=torch.float64, device=state.x.device) / T
    alpha = process.schedule.alpha(t)  # (T + 1, 1), or (T + 1, K)
    lost = 1 - (alpha if alpha.shape[-1] == 1 else alpha[:, process.clean]).mean(-1)
    return t[torch.searchsorted(lost.contiguous(), share.to(lost)).clamp_max(T)][:, None]


def hides(method: Method) -> bool:
    """Whether a place can be left out of a draw: where noise is a mask, which says nothing of the token behind it.

    With the mask at a place the clean posterior of the others is their law with that place summed out. Noise that is a token
    is an observation of it.
    """
    mask = getattr(method.process, "mask", None)
    return mask is not None and not bool(method.process.clean[mask])


def given_places(method: Method, state: State) -> Tensor:
    """(B, L) bool, the positions whose tokens are given; not those that are hidden."""
    return state.fixed & (state.x != method.process.mask) if hides(method) else state.fixed


def clean_where_fixed(method: Method, state: State, t: Tensor | float) -> Tensor:
    """Times (B, L): t, and CLEAN at the positions that are given, since they carry no noise."""
    time = torch.as_tensor(t, dtype=torch.float64, device=state.x.device)
    return torch.where(given_places(method, state), CLEAN, time)


def fill(state: State, at: Tensor, tokens: Tensor, asked: Tensor) -> State:
    """The state with tokens (N,) put in at `at` (B, L), after one network call for each row of `asked` (B,) bool."""
    return replace(state, x=state.x.masked_scatter(at, tokens), calls=state.calls + asked)
