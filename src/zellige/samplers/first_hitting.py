"""First-hitting sampling of absorbing processes: one token at a time (Zheng et al. 2024, arXiv 2409.02908, section
4.2).

The times at which masks are revealed do not depend on the network. With n masks left at time t, the next one is
revealed when 1 - alpha has fallen by the factor U^(1/n), U uniform, at a position drawn uniformly (proposition 4.1). So
each step reveals one token at its exact time, as infinitely many ancestral steps do. Works with predictions that are
distributions (`Mean` and `LeaveOneOut`).

**Samples from** the continuous-time model, whose bound `evaluate` prints. At the ends of the schedule, where alpha is
not quite 0 or 1, tokens are also revealed one by one. Published bounds have a jump at each end instead, which samples
all its tokens at once. The two differ if two or more tokens fall into one jump: of 1,024 tokens with probability 0.27
if alpha(1) = 1e-3, and 0.005 if it is 1e-4.

**An exponent for each token** (GenMD4): a mask becomes k at the rate mu_k w_k / tau, which depends on the network
through mu. So candidates come at the rate of the largest w. The network is evaluated at each candidate, and a sampled k
is accepted with probability w_k / max w (thinning, Lewis and Shedler 1979). A token may thus take several network
evaluations.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ..base.requests import declared
from ..base.waiting import at_most
from ..core import random
from ..core.curves import Polynomial
from ..core.prediction import posterior
from ..core.random import Randomness
from ..methods.diffusion import Diffusion
from .pairing import continuous_distribution, discrete_times, not_absorbing, unnormalised
from .predict import fill, free, predict_at, redraw
from .sampler import Exactness, Sampler, State


@declared
class FirstHitting(Sampler):
    """One token at a time, at its exact time; as many steps as tokens.
    `state.memory` is 1 - alpha of each sequence (B,)."""

    name: ClassVar[str] = "first_hitting"
    label: ClassVar[str] = "One position at a time"
    sentence: ClassVar[str] = "At its exact time: as many network evaluations as positions."
    exactness: ClassVar[Exactness] = "exact"
    samples_from: ClassVar[str] = "continuous time"
    claim: ClassVar[str] = "exact"
    needs: ClassVar[str] = "absorbing: not sedd, d3pm"
    calls: ClassVar[str] = "one per token"

    @classmethod
    def reason_against(cls, method):
        if why := not_absorbing(method):
            return why
        if why := unnormalised(method):
            return why
        if discrete_times(method):
            return "needs continuous time"
        schedule = getattr(method.process, "schedule", None)
        if not_absorbing(method, one=True) is None or (isinstance(schedule, Polynomial) and schedule.alpha_0 == 1.0):
            return None
        return "needs one alpha, or 1 - (1 - eps) tau^w for each token"

    def distribution(self, method, steps):
        return continuous_distribution(method)

    def has_fixed_shape(self, method, shape):
        return not_absorbing(method, one=True) is None

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A counter from L to 0, whatever `steps` is: each step reveals one token of each sequence."""
        (length,) = method.shape
        return torch.arange(length, -1, -1, dtype=torch.float64)

    def init(self, method, shape, *, fixed=None, generator=None):
        state = super().init(method, shape, fixed=fixed, generator=generator)
        return replace(state, memory=torch.ones(shape[0], dtype=torch.float64, device=state.x.device))

    def step(self, method: Diffusion, state, t, s, generator=None):
        if not_absorbing(method, one=True) is None:
            noise, at = self._next(method, state, generator)
            time = method.process.schedule.inverse(1 - noise)[:, None]
            with at_most(len(at)):
                return replace(redraw(method, state, at, time, posterior, generator), memory=noise)
        rows = free(method, state).any(-1).nonzero()[:, 0]
        while len(rows):  # those whose token is still to come
            subset = state.take(rows)
            streams = random.of_rows(generator, rows)
            new, success = self._candidate(method, subset, streams)
            scatter = lambda old, values, rows=rows: old.index_copy(0, rows, values)  # noqa: E731
            state = replace(
                state,
                x=scatter(state.x, new.x),
                calls=scatter(state.calls, new.calls),
                memory=scatter(state.memory, new.memory),
            )
            rows = rows[~success]
        return state

    def _next(self, method: Diffusion, state: State, generator: Randomness) -> tuple[Tensor, Tensor]:
        """1 - alpha (B,) at the next event (of the fastest token, if they differ), and its position, (B, L) bool."""
        left = free(method, state)
        n, possible = left.sum(-1), left.any(-1, keepdim=True)  # (B,), (B, 1)
        u = 1 - random.uniform((len(n),), generator, n.device)  # in (0, 1]
        event = state.memory * u ** (1 / n.clamp_min(1))  # first hitting, proposition 4.1
        noise = torch.where(n > 0, event, state.memory)
        where = random.categorical(torch.where(possible, left.double(), 1.0), generator)
        return noise, torch.zeros_like(left).scatter(-1, where[:, None], possible)

    def _candidate(self, method: Diffusion, state: State, generator: Randomness) -> tuple[State, Tensor]:
        """One candidate event of each sequence, and whether it was accepted, (B,)."""
        schedule = method.process.schedule
        assert isinstance(schedule, Polynomial)
        noise, at = self._next(method, state, generator)
        w = schedule.w.to(noise)
        tau = (noise / (1 - schedule.alpha_1)) ** (1 / w.max())  # tau; above 1 between PRIOR and t = 1
        pred = predict_at(method, state, at, schedule.time(tau.clamp_max(1.0))[:, None])
        assert pred is not None
        x = random.categorical(posterior(pred), generator, at)
        alike = (tau > 1) | (tau < schedule.begin)
        success = random.bernoulli(torch.where(alike, 1.0, w[x] / w.max()), generator)  # thinning: w_k / max w
        reveal_at = at & success[:, None]
        return replace(fill(state, reveal_at, x[success], at.any(-1)), memory=noise), success
