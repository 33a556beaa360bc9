"""GIDD: generalized interpolating discrete diffusion (von Rütte et al. 2025, arXiv 2503.04482), written outside of the package.

    q(x_t | x_0)     alpha_t x_0 + (1 - alpha_t) pi, pi a mixture of the mask and of all states
    network          mu takes the place of x_0 in the posterior: q(x_t) = q(. | mu); never the mask
    bound            per unit of time, z = x_t, D(p, q) = p/q - log(p/q) - 1 (Itakura-Saito)

        -alpha'/alpha pi_z / q(z | x_0) [ KL(q(. | x_0) || q(. | mu)) + D(q(z | x_0), q(z | mu)) ]

In the paper pi changes with t, from any state to the mask at both ends; here it stays what it is, `absorbing_uniform`.
"""

from dataclasses import dataclass
from typing import Any

import torch

from zellige.base.requests import option
from zellige.core import maths
from zellige.core.curves import Linear
from zellige.core.prediction import LeaveOneOut
from zellige.core.process import absorbing_uniform
from zellige.core.schedule import CLEAN
from zellige.methods import Diffusion


class GIDD(Diffusion):
    """Masks and random tokens, so that a token that stands may be wrong; see the module for the equations."""

    name = "gidd"
    parameterization = "leave_one_out"
    variants = ({}, {"mask_proportion": 0.3}, {"diffusion_steps": 4})

    @dataclass(frozen=True)
    class Config:
        """GIDD's own choices."""

        mask_proportion: float = option("how much of what is lost goes to the mask; the rest to any state", default=0.8)
        diffusion_steps: int = option("T of discrete time; 0: continuous time", default=0)

    def __init__(self, network: Any, vocabulary: int, shape: tuple[int, ...], config: Config | None = None):
        config = self.checked(config)
        process = absorbing_uniform(vocabulary + 1, Linear(), config.mask_proportion)
        super().__init__(network, vocabulary, shape, config, process, timed=True, steps=config.diffusion_steps)

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 1

    def read(self, logits, x_t, t):
        mu = logits.masked_fill(~self.process.clean, -torch.inf).softmax(-1)
        return LeaveOneOut(self.process, mu, x_t, t)

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        mu = self.read(logits, x_t, t).mu.to(self.process.prior)
        q, q_mu = self.process.marginal(x_0, t), self.process.push(mu, CLEAN, t)
        here, here_mu = (distribution.gather(-1, x_t[:, None])[:, 0] for distribution in (q, q_mu))
        itakura_saito = here / here_mu - (here / here_mu).log() - 1
        rate = self.process.schedule.beta(t)[:, 0] * self.process.prior[x_t]
        return rate / here * (maths.kl(q, q_mu) + itakura_saito)
