"""Uniformisation: the exact reverse jump process, jump by jump (thinning: Lewis and Shedler 1979; Chen and Ying 2024).

In the time sigma = -log alpha the forward rates R are constant. There position i leaves x^i with the total rate

    sum_y R(y, x^i) ratio(t)[y]  <=  b(x^i) = max over clean x_0 of  sum_y Q(x_0, y) R(y, x^i) / Q(x_0, x^i)

The bound b holds for any network that predicts a distribution: the ratio of a Mean is a mean of Q(x_0, y) / Q(x_0, x^i)
over x_0, that of a LeaveOneOut a quotient of two sums, which is at most the largest quotient of their terms. The scores
of SEDD have no bound, so it is not supported.

Candidates for jumps come with the rate sum_i b(x^i), each at position i in proportion to b(x^i). The network is
evaluated at each candidate, at exactly its time. The jump to y is made with probability R(y, x^i) ratio(t)[y] / b(x^i).
Steps are intervals of time, each with its own bound; the result is exact for any number of them.

**The bound of an interval** sigma_s <= sigma <= sigma_t must hold throughout. For a mixture the maximum is 1/(1 -
alpha) - prior(x), largest at s. Other processes keep a state for a time d with probability at least e^(-r d), where r
is its exit rate, so

    Q_s(x_0, x) e^(-r d) <= Q(x_0, x),    Q(x_0, y) <= Q_t(x_0, y) e^(r d)

on each of `PARTS` parts of the interval. A rate above its bound is an error, never cut off.

**The ends** of time have no finite bound. There the reverse kernel takes one step for all positions at once: from pure
noise to where e^(-g sigma) is 1e-3 / L (g is the slowest rate at which R forgets a token, 1 for a mixture), and from r
sigma = 1e-5 / L to clean tokens. In total variation the first step costs about 5e-7, the probability that two positions
still have their tokens. The last costs at most 1e-5, the expected number of positions that are still noise.

A reference for other samplers on small spaces: each position needs at least about log(1e5 L) network evaluations.
"""

import math
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ..base.requests import declared
from ..core import random
from ..core.matrices import CTMC
from ..core.prediction import score
from ..core.process import Mixture, Process
from ..core.random import Randomness
from ..core.schedule import CLEAN
from ..methods.diffusion import Diffusion
from .ancestral import Ancestral
from .pairing import STEPS, continuous_distribution, count_of_steps, one_alpha, rateless, unnormalised
from .predict import fill, free, predict_at
from .sampler import Exactness, Sampler, State

NOISY, NEAR_CLEAN = 1e-3, 1e-5  # how many positions remember, or hold noise, where the kernel steps
PARTS = 16


@declared
class Uniformisation(Sampler):
    """Candidate jumps of a faster process, each accepted with the ratio of the two rates; one position at a time."""

    name: ClassVar[str] = "uniformisation"
    label: ClassVar[str] = "One jump at a time, without error"
    sentence: ClassVar[str] = "Jumps at random times, each accepted with the right probability."
    exactness: ClassVar[Exactness] = "exact"
    samples_from: ClassVar[str] = "continuous time"
    claim: ClassVar[str] = "exact at any number of steps"
    needs: ClassVar[str] = "a rate: not sedd, d3pm"
    calls: ClassVar[str] = "candidate jumps"

    @classmethod
    def reason_against(cls, method):
        if why := rateless(method):
            return why
        if why := unnormalised(method):
            return why
        supported = isinstance(method.process, Mixture | CTMC) and one_alpha(method.process)
        return None if supported else "needs one schedule for all rates"

    def distribution(self, method, steps):
        return continuous_distribution(method)

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """`steps` intervals evenly spaced in log(e^(g sigma) - 1), at least 64 (a long interval has a loose bound), and
        end jumps."""
        process, (length,) = method.process, method.shape
        steps = count_of_steps(steps, STEPS)
        like = {"dtype": torch.float64, "device": process.prior.device}
        top, base = process.schedule.sigma(torch.tensor(method.span[::-1], **like))[:, 0]
        slow, fast = pace(process)
        begin = slow * top.clamp(max=_forgotten(process, length))
        last = slow * base.clamp(min=NEAR_CLEAN / length / fast)
        values = torch.lerp(
            begin.expm1().log(), last.expm1().log(), torch.linspace(0, 1, max(steps, STEPS) + 1, **like)
        )
        inner = process.schedule.inverse((-values.exp().log1p() / slow).exp()).clamp(*method.span)
        before = [] if process.start_time == 1.0 and inner[0] == 1.0 else [process.start_time]
        return torch.cat((inner.new_tensor(before), inner, inner.new_tensor([CLEAN])))

    def step(self, method: Diffusion, state, t, s, generator=None):
        schedule, rows = method.process.schedule, len(state.x)
        t, s = t.reshape(-1).expand(rows), s.reshape(-1).expand(rows)
        jump = (schedule.sigma(t)[:, 0] > _forgotten(method.process, method.shape[0]) * (1 + 1e-9)) | s.isinf()
        if bool(jump.any()):
            jump_state = replace(state, fixed=state.fixed | ~jump[:, None])
            state = replace(Ancestral().step(method, jump_state, t[:, None], s[:, None], generator), fixed=state.fixed)
        todo = (~jump).nonzero()[:, 0]
        if len(todo) == 0:
            return state
        low, high = (schedule.sigma(u[todo])[:, 0] for u in (s, t))
        bound = bounds(method.process, low.min(), high.max())
        sigma, low = schedule.sigma(t)[:, 0].clone(), schedule.sigma(s)[:, 0]
        while len(todo):  # the rows with a candidate still to come
            streams = random.of_rows(generator, todo)
            subset = state.take(todo)
            rates = torch.where(free(method, subset), bound[subset.x], 0.0)
            total = rates.sum(-1)
            sigma[todo] -= random.exponential((len(todo),), streams, total.device) / total
            inside = sigma[todo] > low[todo]
            where = random.categorical(torch.where(inside[:, None], rates, 1.0), streams)
            at = torch.zeros_like(subset.fixed).scatter(-1, where[:, None], inside[:, None])
            subset = self._candidate(method, subset, at, sigma[todo], bound, streams)
            scatter = lambda old, values, rows=todo: old.index_copy(0, rows, values)  # noqa: E731
            state = replace(state, x=scatter(state.x, subset.x), calls=scatter(state.calls, subset.calls))
            todo = todo[inside]
        return state

    def _candidate(
        self, method: Diffusion, state: State, at: Tensor, sigma: Tensor, bound: Tensor, generator: Randomness
    ) -> State:
        """Jump, or stay, at the one position of each sequence in `at` (B, L), at time sigma (B,)."""
        pred = predict_at(method, state, at, method.process.schedule.inverse((-sigma).exp())[:, None])
        if pred is None:
            random.discard(at.shape, generator)
            return state
        rate = unit_rate(method.process, pred.x_t) * score(pred)
        limit, total = bound[pred.x_t], rate.sum(-1)
        if bool((total > limit * (1 + 1e-6)).any()):
            raise ArithmeticError(
                f"a rate of {float(total.max()):g} is above its bound; the process has no such distribution"
            )
        stay = (limit - total).clamp_min(0.0)
        distribution = rate.to(stay).scatter(-1, pred.x_t[:, None], stay[:, None])  # thinning: accept with rate / bound
        return fill(state, at, random.categorical(distribution, generator, at), at.any(-1))


def pace(process: Process) -> tuple[float, float]:
    """Slowest rate at which x forgets x_0, and fastest exit rate, for each unit of sigma."""
    if not isinstance(process, CTMC):
        return 1.0, 1.0
    decay = -torch.linalg.eigvals(process.R).real.sort().values
    return float(decay[-2]), float(-process.R.diagonal().min())


def _forgotten(process: Process, length: int) -> float:
    """The sigma beyond which the kernel steps."""
    return -math.log(NOISY / length) / pace(process)[0]


def unit_rate(process: Process, x: Tensor) -> Tensor:
    """R(., x), the rates into x for each unit of sigma, zero at x itself: (*) -> (*, K)."""
    return process.rate_into(x, 0.5) / process.schedule.beta(process.as_time(0.5)).to(process.prior)


def bounds(process: Process, low: Tensor, high: Tensor) -> Tensor:
    """b(x) for each unit of sigma, for all times with low <= sigma <= high: (K,)."""
    if isinstance(process, Mixture):
        return torch.where(process.prior > 0, 1 / -torch.expm1(-low) - process.prior, 0.0)
    sigmas = low * (high / low) ** torch.linspace(0, 1, PARTS + 1, dtype=torch.float64, device=low.device)
    Q = process.matrix(CLEAN, process.schedule.inverse((-sigmas).exp()))[:, process.clean]  # (PARTS + 1, V, K)
    into = unit_rate(process, torch.arange(process.K, device=low.device)).T  # R off its diagonal
    leave = into.sum(-1)
    growth = ((leave.max() + leave) * sigmas.diff()[:, None]).exp()[:, None]
    possible = Q[:-1] > 0
    ratios = torch.where(possible, Q[1:] @ into * growth / torch.where(possible, Q[:-1], 1.0), 0.0)
    return ratios.amax((0, 1))
