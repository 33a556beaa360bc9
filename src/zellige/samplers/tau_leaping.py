"""Tau-leaping: the reverse rate held constant for a step, and all jumps of that step made at once (tauLDR, arXiv
2205.14987, section 4.3).

At each position the number of jumps to y is n_y ~ Poisson((t - s) Rhat_t(x_t, y)) (algorithm 1). `jumps` sets what they
do:

    sum    x_s = x_t + sum_y n_y (y - x_t), clamped to 0..K-1: for ordered states, where a displacement means something
    one    x_s = y after a single jump to y; two or more are rejected and x_s = x_t: for tokens without order

`auto` is `sum` where the method's tokens are ordered and no state is a mask. With `one`, p(y) = m_y e^-m, with m_y the
mean of n_y and m their sum. The error is of order 1 in 1/steps.

**Corrector** (section 4.4). At any time the rates R_t + Rhat_t leave p_t unchanged. So jumps at these rates bring the
distribution of x nearer to p_t without moving in time. After a step to s, if the step started at t <= `corrector_from`,
`corrector` leaps are made at s, each of `corrector_step` times the step. Each is a leap as above, and one more network
evaluation.

The first and the last step have no rate and use the reverse kernel, as in `euler`. For absorbing noise with one alpha
the network is evaluated only where a mask is revealed (see `ancestral`). The published sampler ends with a leap to its
smallest time and then takes the likeliest clean token at each position; `argmax = "last"` does so in the last step.

**Statistics.** `State.memory`, a `Leaps`, has for each step the fraction of positions that jump, are clipped, or are
rejected (tauLDR, figures 9, 10 and 12). With m the mean number of jumps of a position, given the state:

    jump      1 - e^-m           one jump or more
    rejected  1 - (1 + m) e^-m   `one`: two or more
    clipped                      `sum`: the fraction of samples outside 0..K-1 before the clamp

Corrector leaps are not counted; the first and the last step are no leaps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import random
from ..core.prediction import Prediction, kernel, posterior, reverse_rate
from ..core.process import Mixture
from ..core.random import Randomness
from ..methods.diffusion import Diffusion
from .ancestral import LAST, argmax_where, is_greedy
from .grid import OnGrid
from .pairing import NEAR_CONTINUOUS, can_choose_first, not_absorbing, rateless
from .predict import choose_then_predict, expected_evaluations, fill, free, predict_at, redraw
from .sampler import Exactness, Memory, State, Summary

CORRECTOR = 1_000  # steps after a step, at most; each is a network evaluation

Jumps = Literal["auto", "one", "sum"]


@dataclass(frozen=True)
class Leap:
    """What the leaps of one step came to, all samples together.

    Attributes:
        t: where the step begins, 1 at the start of sampling.
        positions: how many a sample may change in it, in all samples; 0 in a step that is no leap.
        jump, clipped, rejected: fractions of these.
    """

    t: float
    positions: int
    jump: float
    clipped: float
    rejected: float


@dataclass(frozen=True)
class LeapSummary(Summary):
    """What the leaps of every step came to."""

    leaps: list[Leap]

    @classmethod
    def joined(cls, parts: Sequence["LeapSummary"], places: Sequence[int]) -> "LeapSummary":
        return cls(joined_leaps([part.leaps for part in parts]))

    def of_all(self) -> dict[str, Any]:
        return {"leaps": [asdict(leap) for leap in self.leaps]}

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> "LeapSummary | None":
        return cls([Leap(**leap) for leap in result["leaps"]]) if "leaps" in result else None

    def describe(self, pm: Any, one_target: bool) -> str:
        return describe_leaps(self.leaps)


@dataclass(frozen=True)
class Leaps(Memory):
    """Leaps of B samples so far: of each step its time and (B, 4) positions that may change, jump, are clipped,
    are rejected."""

    steps: tuple[tuple[Tensor, Tensor], ...] = ()

    def take(self, rows: Tensor) -> "Leaps":
        return Leaps(tuple((t, numbers[rows]) for t, numbers in self.steps))

    def fractions(self) -> list[Leap]:
        """Leaps of every step, all samples together."""
        totals = [(min(float(t.flatten()[0]), 1.0), numbers.sum(0).tolist()) for t, numbers in self.steps]
        return [
            Leap(t, round(positions), *(number / max(positions, 1) for number in others))
            for t, (positions, *others) in totals
        ]

    def summary(self, state: State) -> LeapSummary:
        return LeapSummary(self.fractions())


def joined_leaps(parts: Sequence[Sequence[Leap]]) -> list[Leap]:
    """The same steps of several batches as one: each fraction is weighted by the positions that it is of."""
    joined = []
    for leaps in zip(*parts, strict=True):
        total = sum(leap.positions for leap in leaps)
        mean = lambda name: sum(leap.positions * getattr(leap, name) for leap in leaps) / max(total, 1)  # noqa: B023, E731
        joined.append(Leap(leaps[0].t, total, mean("jump"), mean("clipped"), mean("rejected")))
    return joined


def describe_leaps(leaps: Sequence[Leap]) -> str:
    """`in a leap 3.1% of the positions jump (at most 9.0%), 0.2% are clipped (at most 1.1%)`;
    means of the steps that leap."""
    made = [leap for leap in leaps if leap.positions]
    if not made:
        return "no step was a leap"
    parts = []
    for name, verb in (("jump", "jump"), ("clipped", "are clipped"), ("rejected", "are rejected")):
        values = [getattr(leap, name) for leap in made]
        if name == "jump" or any(values):
            which = " of the positions" if name == "jump" else ""
            parts.append(f"{_percent(sum(values) / len(values))}{which} {verb} (at most {_percent(max(values))})")
    return f"in a leap {', '.join(parts)}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g}%" if fraction < 0.1 else f"{100 * fraction:.1f}%"


@declared
class TauLeaping(OnGrid):
    """Poisson numbers of jumps, on a grid of times, with corrector steps. `state.memory` is a `Leaps`."""

    jumps: Jumps = option(
        "jumps of one position in a step: sum (add them; for ordered values, such as pixels), one (reject two or more), or "
        "auto",
        default="auto",
    )
    corrector: int = option(
        "corrector steps after each step (the paper's code for images: 10, with 500 steps)",
        default=0,
        minimum=0,
        maximum=CORRECTOR,
    )
    corrector_step: float = option(
        "length of a corrector step, in steps of the grid (1.5 in the paper's code)", default=1.0, above=0
    )
    corrector_from: float = option(
        "make corrector steps only at times up to this; time falls from 1 to 0 (0.1 in the paper's code)",
        default=1.0,
        above=0,
        maximum=1,
    )
    argmax: Literal["none", "last"] = option(**LAST, default="none")

    name: ClassVar[str] = "tau_leaping"
    label: ClassVar[str] = "Many jumps each step"
    sentence: ClassVar[str] = "Tau-leaping: Poisson numbers of jumps, and corrector steps if you ask for them."
    exactness: ClassVar[Exactness] = "limit"
    samples_from: ClassVar[str] = "near continuous time"
    claim: ClassVar[str] = "exact in the limit of many steps"
    convergence: ClassVar[int | None] = 1
    needs: ClassVar[str] = "a rate: not d3pm"
    calls: ClassVar[str] = "steps or more"
    report: ClassVar[type[Summary] | None] = LeapSummary
    reconstructs: ClassVar[bool] = True

    @classmethod
    def reason_against(cls, method):
        return rateless(method)

    def distribution(self, method, steps):
        return NEAR_CONTINUOUS

    def init(self, method: Diffusion, shape, *, fixed=None, generator=None):
        if self.jumps == "sum" and not method.ordered:
            raise InputError(
                "`jumps` sum needs ordered tokens, such as pixels or pitches; these are not, use `jumps` one"
            )
        if self.jumps == "sum" and method.process.mask is not None:
            raise InputError(f"`jumps` sum needs states that are all levels; {method.name} has a mask, use `jumps` one")
        return super().init(method, shape, fixed=fixed, generator=generator)

    def step(self, method: Diffusion, state, t, s, generator=None):
        state = self.predict(method, state, t, s, generator)
        t = t.clamp(max=1.0)
        on = (t <= self.corrector_from) & s.isfinite() & (s < t)
        if not self.corrector or not bool(on.any()):
            return state
        h, s = torch.where(on, self.corrector_step * (t - s), 0.0), torch.where(on, s, 0.5)
        for _ in range(self.corrector):
            state = self.correct(method, state, s, h, generator)
        return state

    def expected_calls(self, method: Diffusion, times, free):
        if self.corrector or not _chosen_first(method):
            return None
        t, s = times[:-1], times[1:]
        end = (t >= 1) | s.isinf()
        return expected_evaluations(_reveal(method, t, s, torch.where(end, 0.0, t - s), end)[:, 0], free)

    def most_calls(self, method, times):
        return super().most_calls(method, times) * (1 + self.corrector)

    def predict(self, method: Diffusion, state: State, t: Tensor, s: Tensor, generator: Randomness = None) -> State:
        """A leap of the reverse rate from t to s; the kernel at the ends."""
        at, end = free(method, state), (t >= 1) | s.isinf()
        h, greedy = torch.where(end, 0.0, t - s), is_greedy(self.argmax, s)
        if _chosen_first(method) and not bool(greedy.any()):
            new = choose_then_predict(method, state, _reveal(method, t, s, h, end), t, posterior, generator)
            mean = (h[..., None] * method.process.schedule.weight(t))[..., 0].expand(at.shape)
            leaps = at & ~end
            return remembered(new, t, numbers(leaps, mean[leaps], torch.zeros_like(mean[leaps]), rejects=True))
        if bool(end.any()):  # all of it, but where several times are enumerated together
            end, later, h, greedy = (u.expand(at.shape)[at] for u in (end, s, h, greedy))

            def distribution(pred: Prediction) -> Tensor:
                ends = argmax_where(kernel(pred, later), greedy)
                if bool(end.all()):
                    return ends
                mean = torch.where(end[:, None], 0.0, h[:, None] * reverse_rate(pred))
                return torch.where(end[:, None], ends, self._distribution(method, pred.x_t, mean))

            new = redraw(method, state, at, t, distribution, generator)
            return remembered(new, t, torch.zeros(len(state.x), 4, dtype=torch.float64, device=state.x.device))
        return remembered(*self._leap(method, state, t, h, reverse_rate, generator))

    def correct(self, method: Diffusion, state: State, t: Tensor, h: Tensor, generator: Randomness = None) -> State:
        """A leap of size h at time t with the rates that keep p_t."""
        process, masks = method.process, free(method, state)
        if process.mask is None:
            return self._leap(method, state, t, h, corrector_rate, generator)[0]
        remask = ~masks & ~state.fixed & random.bernoulli(_single(h * _loss(method, state.x, t)), generator)
        if _chosen_first(method):
            reveal = _single(h[..., None] * method.process.schedule.weight(t))
            state = choose_then_predict(method, state, reveal, t, posterior, generator)
        else:
            state, *_ = self._leap(method, state, t, h, corrector_rate, generator)
        return replace(state, x=torch.where(remask, process.mask_id, state.x))

    def _leap(
        self, method: Diffusion, state: State, t: Tensor, h: Tensor, rate, generator: Randomness
    ) -> tuple[State, Tensor, Tensor]:
        """Jumps at `rate` for a time h, at the free positions: the state, the time, and the numbers of the leap
        (B, 4)."""
        at, sums = free(method, state), self._sums(method)
        counts = sums and not random.enumerates(generator)
        pred = predict_at(method, state, at, t)
        if pred is None:
            random.discard((*at.shape, method.process.K) if counts else at.shape, generator)
            return state, t, torch.zeros(len(at), 4, dtype=torch.float64, device=at.device)
        mean = h.expand(at.shape)[at][:, None] * rate(pred)  # (N, K): m_y = h rate(x_t, y)
        if counts:
            target = displaced(pred.x_t, random.poisson(mean, generator, at))  # tauLDR algorithm 1
            x, clipped = clamped(target, method.process.K), beyond(target, method.process.K)
        else:
            x = random.categorical(self._distribution(method, pred.x_t, mean), generator, at)  # (N,)
            clipped = clipped_probability(pred.x_t, mean) if sums else torch.zeros_like(mean[:, 0])
        return fill(state, at, x, at.any(-1)), t, numbers(at, mean.sum(-1), clipped, rejects=not sums)

    def _distribution(self, method: Diffusion, x: Tensor, mean: Tensor) -> Tensor:
        return leap_distribution(x, mean) if self._sums(method) else single_distribution(x, mean)

    def _sums(self, method: Diffusion) -> bool:
        return self.jumps == "sum" or (self.jumps == "auto" and method.ordered and method.process.mask is None)


# ---------------------------------------------------------------------------------- what the jumps come to
def corrector_rate(pred: Prediction) -> Tensor:
    """R_t(x_t, .) + Rhat_t(x_t, .), (*, K), zero at x_t itself (section 4.4)."""
    return pred.process.rate_from(pred.x_t, pred.t) + reverse_rate(pred)  # tauLDR section 4.4


def displaced(x: Tensor, count: Tensor) -> Tensor:
    """x + sum_y count_y (y - x), which may be no state: (*), (*, K) -> (*)."""
    y = torch.arange(count.shape[-1], dtype=count.dtype, device=x.device)
    return x + (count * (y - x[..., None])).sum(-1)  # tauLDR algorithm 1


def clamped(target: Tensor, K: int) -> Tensor:
    return target.clamp(0, K - 1).long()


def beyond(target: Tensor, K: int) -> Tensor:
    """Return whether the clamp to 0..K-1 changes a target, (*) bool."""
    return (target < 0) | (target > K - 1)


def landing(x: Tensor, count: Tensor) -> Tensor:
    """x + sum_y count_y (y - x), clamped to the states: (*), (*, K) -> (*)."""
    return clamped(displaced(x, count), count.shape[-1])


def leap_distribution(x: Tensor, mean: Tensor) -> Tensor:
    """Distribution of `landing` with Poisson counts: (*), means (*, K) -> (*, K)."""
    target, distribution = displaced_distribution(x, mean)
    return torch.zeros_like(mean).scatter_add(-1, clamped(target, mean.shape[-1]), distribution)


def clipped_probability(x: Tensor, mean: Tensor) -> Tensor:
    """Probability that `displaced` with Poisson counts is no state: (*), means (*, K) -> (*)."""
    target, distribution = displaced_distribution(x, mean)
    return torch.where(beyond(target, mean.shape[-1]), distribution, 0.0).sum(-1)


def displaced_distribution(x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Where `displaced` may lead with Poisson counts, and with what probability: (*), means (*, K) -> (*, n) twice.

    Displacements live on a circle that no number of jumps with a chance above 1e-17 goes round.
    """
    K, total = mean.shape[-1], float(mean.sum(-1).max())
    jumps = total + 9 * total**0.5 + 30  # Bernstein: P(Poisson(m) >= m + x) <= exp(-x^2 / (2 m + 2 x / 3))
    size = 2 ** int(2 * jumps * (K - 1) + 1).bit_length()
    y, displacement = torch.arange(K, device=x.device), torch.arange(size, device=x.device)
    displacement = torch.where(displacement < size // 2, displacement, displacement - size)
    flow = mean.new_zeros(*x.shape, size).scatter(-1, (y - x[..., None]) % size, mean)
    distribution = torch.fft.irfft((torch.fft.rfft(flow) - mean.sum(-1, keepdim=True)).exp(), size).clamp_min(0.0)
    return x[..., None] + displacement, distribution


def single_distribution(x: Tensor, mean: Tensor) -> Tensor:
    """Distribution after a single jump, or none if there would be more: (*), means (*, K) -> (*, K)."""
    total = mean.sum(-1, keepdim=True)
    return (mean * (-total).exp()).scatter(-1, x[..., None], 1 - _single(total))  # tauLDR section 4.3


def _single(mean: Tensor) -> Tensor:
    """P(Poisson(mean) = 1)."""
    return mean * (-mean).exp()


# ---------------------------------------------------------------------------------- what is remembered of a leap
def numbers(at: Tensor, mean: Tensor, clipped: Tensor, rejects: bool) -> Tensor:
    """(B, 4) of a leap: the positions `at` (B, L) that may change, and how many of them jump, are clipped, are
    rejected.

    Args:
        mean: (N,) of the number of jumps at these positions; clipped: (N,) whether they are, or how likely.
        rejects: whether two jumps at a position are rejected.
    """
    mean = mean.double()
    jump, single = -torch.expm1(-mean), _single(mean)
    rejected = jump - single if rejects else torch.zeros_like(mean)
    each = torch.stack((torch.ones_like(mean), jump, clipped.to(mean), rejected), -1)
    return each.new_zeros(len(at), 4).index_add(0, at.nonzero()[:, 0], each)


def remembered(state: State, t: Tensor, numbers: Tensor) -> State:
    """The state after a step from t, with what its leap came to."""
    before = state.memory.steps if isinstance(state.memory, Leaps) else ()
    return replace(state, memory=Leaps((*before, (t, numbers))))


# ---------------------------------------------------------------------------------- absorbing noise
def _chosen_first(method: Diffusion) -> bool:
    return can_choose_first(method) and not_absorbing(method, one=True) is None


def _reveal(method: Diffusion, t: Tensor, s: Tensor, h: Tensor, end: Tensor) -> Tensor:
    """P(a mask is revealed) in a step: (*, 1)."""
    schedule = method.process.schedule
    leap = _single(h[..., None] * schedule.weight(t))
    return torch.where(end[..., None], schedule.reveal_probability(t, s), leap)


def _loss(method: Diffusion, x: Tensor, t: Tensor) -> Tensor:
    """The rate at which the tokens x (B, L) are masked, (B, L)."""
    process = method.process
    if not isinstance(process, Mixture):
        return process.rate_from(x, t)[..., process.mask_id]
    beta = process.schedule.beta(t)
    return (
        beta[..., 0].expand(x.shape)
        if beta.shape[-1] == 1
        else beta.expand(*x.shape, -1).gather(-1, x[..., None])[..., 0]
    )
