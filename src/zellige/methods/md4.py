"""MD4: Simplified and generalized masked diffusion for discrete data (Shi et al. 2024, arXiv 2406.04329).

    q(x_t | x_0)     absorbing; alpha = (1 - 2 eps) raw + eps, eps = 1e-4, raw linear, cosine or 1 - t^w   (table 4)
    network          mu = p(x_0 | x_t), zero on the mask, carry-over                                  (eq. 3)
    bound            E_t [ -alpha'/(1 - alpha) sum over the masks of -log mu(x_0) ] + reconstruction + prior   (eq. 5)
    T steps          (alpha_s - alpha_t)/(1 - alpha_t) sum over the masks of -log mu(x_0)          (section 3, L_T)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing | linear, cosine, polynomial | Mean | weighted cross-entropy + reconstruction | ancestral, cosine grid |

The loss is `Masked.loss`, in `absorbing`. The cosine grid (eq. 6) is for the linear schedule: alpha then takes the values
of the cosine schedule on the uniform grid. The other schedules use the uniform grid, and so does the T-step model.

Differences from the paper: alpha(0) = 1 - eps, so a few tokens are still masked at t = 0. In the published
reconstruction term, the constant L eps log V, they are guessed uniformly; here the network predicts them one after
another, as in sampling. The published latent term is 0; here (`prior`) it is the cost of the tokens that are still
visible at t = 1, where alpha is eps. `published` computes the published bound.

`loss` maskgit trains without the weight -alpha'/(1 - alpha), as MaskGIT does (arXiv 2202.04200): the mean over t of the
cross-entropy at the masks.
"""

import math
from typing import Any, ClassVar

import torch
from torch import nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core.curves import Cosine, Linear, Polynomial
from ..core.schedule import Schedule
from .absorbing import Masked
from .diffusion import per_position


class MD4(Masked):
    """Masked diffusion conditioned on t, with MD4's schedules; see the module for the equations."""

    name = "md4"
    system, paper, noise = "MD4", "2406.04329", "absorbing"
    published_end = 0.0
    choices: ClassVar = {"schedule": ("linear", "cosine", "polynomial"), "loss": ("bound", "maskgit")}
    variants = ({}, {"schedule": "cosine"}, {"schedule": "polynomial"}, {"diffusion_steps": 4})

    @declared
    class Config:
        """MD4's options."""

        schedule: str = option("alpha_t: linear, cosine or polynomial", default="linear")
        exponent: float = option("w of the polynomial schedule, alpha = 1 - t^w", default=2.0)
        eps: float = option("alpha runs from 1 - eps to eps", default=1e-4)
        time: bool = option("condition the network on t", default=True)
        diffusion_steps: int = option(
            "T of discrete time, with its T-step bound; 0: continuous time", default=0, minimum=0
        )
        loss: str = option("training loss: bound, or maskgit, without weights, which is no bound", default="bound")

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Config | None = None,
        **more: Any,
    ):
        config = self.checked(config)
        if config.loss == "maskgit" and config.diffusion_steps:
            raise InputError("`loss` maskgit needs continuous time; leave out `diffusion_steps`")
        super().__init__(
            network, vocabulary, shape, config, _schedule(config), config.time, config.diffusion_steps, **more
        )
        self.loss_is_bound = config.loss == "bound"
        even = config.schedule != "linear" or config.diffusion_steps > 0
        self.sampling_grid = "uniform" if even else "cosine"  # MD4 eq. 6

    def loss(self, batch, generator=None):
        if self.config.loss == "bound":
            return super().loss(batch, generator)
        t = self.draw_times(batch, generator)
        x_t = self.corrupt(batch, per_position(t), generator)
        return self.cross_entropy(batch, x_t, per_position(t))  # (B,): no weight

    def published(self, batch, generator=None, steps=0):
        T, t = steps or self.steps, self.draw_times(batch, generator)
        t = (t * T).ceil() / T if T else t  # from t = 1 to t = 0, without a jump at either end
        x_t = self.corrupt(batch, per_position(t), generator)
        diffusion = T * self.discrete_bound(batch, x_t, t, t - 1 / T) if T else self.continuous_bound(batch, x_t, t)
        return {
            "diffusion": diffusion,  # MD4 eq. 5; section 3, L_T
            "reconstruction": self.config.eps * math.log(self.vocabulary) * batch.counted.sum(-1).double(),
            "prior": torch.zeros_like(diffusion),
        }


def _schedule(config: MD4.Config) -> Schedule:
    if not 0.0 <= config.eps < 0.5:
        raise InputError(f"`eps` is {config.eps}; alpha runs from 1 - eps to eps, so it must be in [0, 0.5)")
    ends = (config.eps, 1 - config.eps)  # MD4 table 4
    if config.schedule == "linear":
        return Linear(*ends)
    if config.schedule == "cosine":
        return Cosine(*ends)
    if config.exponent <= 0:
        raise InputError(f"`exponent` is {config.exponent}; it must be above 0")
    return Polynomial(config.exponent, *ends)
