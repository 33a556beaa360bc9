"""ReMDM: tokens may be masked again, so that mistakes can be corrected (Wang et al. 2025, arXiv 2503.00307).

A reverse step that keeps q(x_s | x_0) but masks a token again with probability sigma (eq. 6):

    a token    becomes the mask with probability sigma
    a mask     becomes a token with probability (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t), drawn from the clean posterior

for any 0 <= sigma <= sigma_max = min(1, (1 - alpha_s) / alpha_t) (eq. 7). sigma = 0 is `ancestral`. The option
`remasking` sets sigma (section 4):

    cap        sigma = min(eta, sigma_max)
    rescale    sigma = eta sigma_max
    conf       at visible tokens sigma = sigma_max softmax(-p), p each token's probability when it was revealed
    loop       alpha rises to alpha_on, stays there from t_on to t_off while sigma = min(eta, sigma_max), then rises to 1

**Keeps the marginals, not the distribution.** Given x_0, one step of cap, rescale or loop has exactly q(x_s | x_0). But
the tokens that a step samples again are sampled independently of each other. With a constant eta there are many of
them, however short the steps. So even with the exact network the error of cap and rescale falls only as steps^(-1/2),
and that of loop does not fall. conf does not keep the marginals: it reveals as many masks as if it masked nothing again
(as in the paper's code), so the expected fraction of masks is above 1 - alpha_s.

Works with absorbing noise with one alpha for all tokens, and every prediction. Which tokens are masked again is decided
before the network is evaluated.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import GRID, declared, known_grid, option
from ..core import random
from ..core.prediction import posterior
from ..core.schedule import CLEAN
from ..methods.diffusion import Diffusion
from .ancestral import LAST, argmax_where, is_greedy
from .grid import spaced
from .guide import untruncated
from .pairing import Distribution, count_of_steps, discrete_times, not_absorbing, usual_steps
from .predict import fill, free, predict_at
from .sampler import Exactness, Sampler, State


def most_masked(alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """sigma_max, the largest probability with which a step may mask a token again (ReMDM eq. 7)."""
    return ((1 - alpha_s) / alpha_t.clamp_min(1e-300)).clamp_max(1.0)  # at PRIOR no token is left to be masked


@declared
class Remasking(Sampler):
    """Ancestral steps in which tokens are masked again; the paper uses top_p = 0.9.

    `state.memory` is (B, L), the probability that the network itself gave each token when it was drawn.
    """

    remasking: Literal["cap", "rescale", "conf", "loop"] = option(
        "which tokens are masked again (ReMDM): cap or rescale (any), conf (by confidence), or loop (any, in a middle phase)",
        default="cap",
    )
    eta: float = option(
        "probability of masking a token again in a step (cap, loop), or its factor (rescale); no effect on conf",
        default=0.02,
        minimum=0,
        maximum=1,
    )
    t_on: float = option("with `remasking` loop: time at which the loop begins", default=0.55)
    t_off: float = option("with `remasking` loop: time at which the loop ends", default=0.05)
    alpha_on: float = option(
        "with `remasking` loop: fraction of tokens that are visible during the loop", default=0.9, above=0, below=1
    )
    grid: str = option(GRID, default="uniform", check=known_grid)
    argmax: Literal["none", "last"] = option(**LAST, default="none")

    name: ClassVar[str] = "remasking"
    label: ClassVar[str] = "With second thoughts"
    sentence: ClassVar[str] = "Masks some tokens again, so that mistakes can be repaired."
    exactness: ClassVar[Exactness] = "marginals"
    claim: ClassVar[str] = "keeps the marginals alone"
    needs: ClassVar[str] = "absorbing, one schedule"
    calls: ClassVar[str] = "up to steps"
    revises: ClassVar[bool] = True

    def __post_init__(self):
        if not 0 < self.t_off < self.t_on < 1:
            raise InputError(
                f"the loop runs from `t_on` {self.t_on:g} down to `t_off` {self.t_off:g}; e.g. 0.55 and 0.05"
            )
        if self.remasking == "loop" and self.grid not in ("uniform", "published"):
            raise InputError(f"remasking 'loop' has times of its own; use grid uniform or published, not {self.grid}")

    @classmethod
    def reason_against(cls, method):
        return not_absorbing(method, one=True)

    def distribution(self, method, steps):
        keeps = "" if self.remasking == "conf" else ", that keeps the marginals"
        return Distribution(f"{self.name} {self.remasking}", f"its own distribution{keeps}")

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """Evenly spaced; for `loop` the times at which alpha has its values, constant from t_on to t_off."""
        if self.remasking != "loop":
            return spaced(method, steps, self.grid)
        if discrete_times(method):
            raise InputError(f"remasking 'loop' needs continuous time; with {method.name} use cap, rescale or conf")
        steps = count_of_steps(steps, usual_steps(method))
        u = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
        u = u if self.grid == "uniform" else spaced(method, steps, self.grid).clamp(0.0, 1.0)
        u = u.to(method.process.prior.device)
        before, after = self.alpha_on * (1 - u) / (1 - self.t_on), 1 - (1 - self.alpha_on) * u / self.t_off
        alpha = torch.where(u > self.t_on, before, torch.where(u > self.t_off, self.alpha_on, after))
        times = method.process.schedule.inverse(alpha)
        times[0], times[-1] = method.process.start_time, CLEAN
        return times

    def init(self, method, shape, *, fixed=None, generator=None):
        state = super().init(method, shape, fixed=fixed, generator=generator)
        return replace(state, memory=torch.zeros(shape, dtype=torch.float64, device=state.x.device))

    def step(self, method: Diffusion, state, t, s, generator=None):
        process, schedule, masks = method.process, method.process.schedule, free(method, state)
        alpha_t, alpha_s = schedule.alpha(t), schedule.alpha(s)  # (1,) or (B, 1, 1)
        sigma = self.sigma(state, masks, alpha_t[..., 0], alpha_s[..., 0])
        again = ~masks & ~state.fixed & random.bernoulli(sigma, generator)  # (B, L): tokens to masks
        remask = torch.zeros_like(sigma) if self.remasking == "conf" else sigma
        at = masks & random.bernoulli(reveal_beside_remasking(alpha_t[..., 0], alpha_s[..., 0], remask), generator)
        pred = predict_at(method, state, at, t)
        if pred is None:
            random.discard(masks.shape, generator)
            memory = state.memory
        else:
            greedy = is_greedy(self.argmax, s).expand(at.shape)[at]
            x = random.categorical(argmax_where(posterior(pred), greedy), generator, at)
            probability = posterior(untruncated(pred)).gather(-1, x[:, None])[:, 0]
            memory = state.memory.masked_scatter(at, probability.double())
            state = fill(state, at, x, at.any(-1))
        return replace(state, x=torch.where(again, process.sample_prior(state.x.shape), state.x), memory=memory)

    def sigma(self, state: State, masked: Tensor, alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
        """Probability that a token is masked again, (B, L)."""
        limit = most_masked(alpha_t, alpha_s)
        if self.remasking == "conf":
            weight = (-state.memory).masked_fill(masked | state.fixed, -torch.inf).softmax(-1)
            return limit * weight.nan_to_num(0.0)  # nan: a row without tokens
        if self.remasking == "rescale":
            limit = self.eta * limit  # ReMDM section 4, as the others
        elif self.remasking == "loop":
            limit = torch.where(alpha_s == alpha_t, limit.clamp_max(self.eta), 0.0)
        else:
            limit = limit.clamp_max(self.eta)
        return limit.expand(state.x.shape)


def reveal_beside_remasking(alpha_t: Tensor, alpha_s: Tensor, sigma: Tensor) -> Tensor:
    """P(a mask becomes a token) in a step in which a token becomes a mask with probability sigma, (B, L);
    `Schedule.reveal_probability` where sigma is 0."""
    return (alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t)  # ReMDM eq. 6
