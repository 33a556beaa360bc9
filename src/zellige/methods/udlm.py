"""UDLM: Simple guidance mechanisms for discrete diffusion models (Schiff et al. 2024, arXiv 2412.10193).

    q(x_t | x_0)     uniform: alpha_t x_0 + (1 - alpha_t) / K, by default loglinear
    network          mu = p(x_0 | the other positions of x_t): it takes the place of x_0 in the posterior; given sigma
    bound            `Uniform.cost`; with w(x) = K alpha_t x + 1 - alpha_t, z = x_t, per unit of time

        -alpha'/(K alpha) [ K/w(mu)_z - K/w(x_0)_z + sum_y w(x_0)_y/w(x_0)_z log( w(x_0)_y w(mu)_z / (w(x_0)_z w(mu)_y)
        ) ]

    T steps          KL of the posterior with x_0 and the one with mu                                 (as D3PM's eq. 1)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| uniform | loglinear | LeaveOneOut | continuous; finite T | ancestral |

Differences from the paper: here alpha is the schedule's throughout, and alpha(1) = eps gives a prior term. The published
code draws x_t with 1 - (1 - eps) t, but takes alpha = 1 - t in the bound. It adds a reconstruction at t = 0, where alpha
is 1 and nothing is left to reconstruct.

`loss` sundae trains by the unrolled denoising of SUNDAE (arXiv 2112.06749) in the place of the bound: with m(. | x) the
network's p(x_0 | x) at each position and x' drawn from m(. | x_t), position by position and without a gradient,

    1/2 [ -log m(x_0 | x_t) - log m(x_0 | x') ]       t uniform, the same in both evaluations

It is no bound. SUNDAE's network has no time (`time` False).
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import random
from ..core.batch import Batch
from ..core.curves import SCHEDULES, ScheduleChoice, schedule_of
from .diffusion import per_position
from .uniform import Uniform, as_mean


class UDLM(Uniform):
    """Uniform noise, the network read as the distribution of a token given the others;
    see the module for the equations."""

    name = "udlm"
    system, paper, noise = "UDLM", "2412.10193", "uniform"
    published_end = 1e-5
    time_input = "sigma"
    choices: ClassVar = {"schedule": SCHEDULES, "loss": ("bound", "sundae")}
    variants = ({}, {"diffusion_steps": 4})

    @declared
    class Config(ScheduleChoice):
        """UDLM's options."""

        time: bool = option("condition the network on the total noise sigma", default=True)
        diffusion_steps: int = option(
            "T of discrete time, with its T-step bound; 0: continuous time", default=0, minimum=0
        )
        loss: str = option("training loss: bound, or sundae, which is no bound", default="bound")

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        if config.loss == "sundae" and config.diffusion_steps:
            raise InputError("`loss` sundae needs continuous time; leave out `diffusion_steps`")
        schedule = schedule_of(config)
        super().__init__(network, vocabulary, shape, config, schedule, config.time, config.diffusion_steps)
        self.loss_is_bound = config.loss == "bound"

    def loss(self, batch, generator=None):
        if self.config.loss == "bound":
            return super().loss(batch, generator)
        t = self.draw_times(batch, generator)
        x_t = self.corrupt(batch, per_position(t), generator)
        logits = self._mean_logits(batch, x_t, t)
        x = random.categorical(logits.detach().softmax(-1), generator)  # (B, L), drawn by the network itself
        x = torch.where(batch.counted, x, batch.tokens)
        return (self._missed(batch, logits) + self._missed(batch, self._mean_logits(batch, x, t))) / 2

    def _mean_logits(self, batch: Batch, x: Tensor, t: Tensor) -> Tensor:
        """Logits (B, L, K) of p(x_0 | x)."""
        logits = self.logits(self.hidden(x, per_position(t), batch))
        return as_mean(self.process, logits, x, per_position(t).expand(x.shape))

    def _missed(self, batch: Batch, logits: Tensor) -> Tensor:
        """-log of the probability of x_0 by logits (B, L, K), over the positions that count: (B,) nats."""
        nll = F.cross_entropy(logits.flatten(0, 1), batch.tokens.flatten(), reduction="none")
        return torch.where(batch.counted, nll.reshape(batch.tokens.shape), 0.0).double().sum(-1)
