"""Duo: the diffusion duality (Sahoo et al. 2025, arXiv 2506.10892), written outside of the package: its reading of uniform
noise.

    q(x_t | x_0)     uniform: the distribution of the argmax of Gaussian noise on one-hot tokens, by its own alpha_t
    network          mu takes the place of x_0 in the posterior                                (the family `Uniform`)
    bound            with w(x) = K alpha x + 1 - alpha, z = x_t, zeta = (1 - alpha) / (K alpha + 1 - alpha), l = log w(mu)

        -alpha'/(K alpha) [ K/w(mu)_z - K/w(x_0)_z + c sum_y (l_z - l_y) + d ]

        c = zeta, d = (K - 1) zeta log zeta                                   at z = x_0
        c = 1, d = (1/zeta - 1) (l_z - l_{x_0}) - log(zeta) / zeta            elsewhere

so that x_0 is asked at one place, no table of it is made. Its curriculum, which shows the network softened tokens, is left out.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from zellige.base.requests import option
from zellige.core.curves import SCHEDULES
from zellige.methods.uniform import Uniform


class Duo(Uniform):
    """Uniform noise with Duo's form of the bound; see the module for the equations."""

    name = "duo"
    time_input = "sigma"
    choices: ClassVar = {"schedule": SCHEDULES}
    variants = ({}, {"schedule": "cosine"}, {"diffusion_steps": 4})

    @dataclass(frozen=True)
    class Config:
        """Duo's own choices."""

        schedule: str = option("alpha_t: loglinear, cosine and others", default="loglinear")
        diffusion_steps: int = option("T of discrete time; 0: continuous time", default=0)

    def __init__(self, network: Any, vocabulary: int, shape: tuple[int, ...], config: Config | None = None):
        config = self.checked(config)
        schedule = SCHEDULES[config.schedule]()
        super().__init__(network, vocabulary, shape, config, schedule, timed=True, steps=config.diffusion_steps)

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        K, alpha, same = self.process.K, self.process.schedule.alpha(t), x_t == x_0
        w = K * alpha * logits.double().softmax(-1) + 1 - alpha
        at_z, at_x = (w.gather(-1, x[:, None])[:, 0] for x in (x_t, x_0))
        alpha, every = alpha[:, 0], (at_z[:, None] / w).log().sum(-1)
        zeta = (1 - alpha) / (K * alpha + 1 - alpha)
        kept = K / at_z - K / (K * alpha + 1 - alpha) + zeta * every + (K - 1) * zeta * zeta.log()
        lost = K / at_z - K / (1 - alpha) + every + (1 / zeta - 1) * (at_z / at_x).log() - zeta.log() / zeta
        return self.process.schedule.beta(t)[:, 0] / K * torch.where(same, kept, lost)
