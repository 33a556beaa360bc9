"""UDLM: Simple guidance mechanisms for discrete diffusion models (Schiff et al. 2024, arXiv 2412.10193).

    q(x_t | x_0)     uniform: alpha_t x_0 + (1 - alpha_t) / K, by default loglinear
    network          mu = p(x_0 | the other positions of x_t): it takes the place of x_0 in the posterior; given sigma
    bound            `Uniform.cost`; with w(x) = K alpha_t x + 1 - alpha_t, z = x_t, per unit of time

        -alpha'/(K alpha) [ K/w(mu)_z - K/w(x_0)_z + sum_y w(x_0)_y/w(x_0)_z log( w(x_0)_y w(mu)_z / (w(x_0)_z w(mu)_y) ) ]

    T steps          KL of the posterior with x_0 and the one with mu                                 (as D3PM's eq. 1)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| uniform | loglinear | LeaveOneOut | continuous; finite T | ancestral |

Differences from the paper: the published code takes alpha = 1 - t in the bound while x_t is drawn with 1 - (1 - eps) t, and
adds a reconstruction at t = 0, where alpha is 1 and nothing is left to reconstruct; here alpha is the schedule's throughout,
and the end alpha(1) = eps is a term of its own. A given position of an infilling is no clean one for this network: approximate.
"""

from typing import ClassVar

from torch import nn

from ..core.curves import SCHEDULES, schedule_of, schedule_option
from ..requests import declared, option
from .uniform import Uniform


class UDLM(Uniform):
    """Uniform noise, the network read as the distribution of a token given the others; see the module for the equations."""

    name = "udlm"
    published_end = 1e-5
    time_input = "sigma"
    choices: ClassVar = {"schedule": SCHEDULES}
    variants = ({}, {"diffusion_steps": 4})

    @declared
    class Config:
        """UDLM's options."""

        schedule: str = schedule_option("schedule", "loglinear")
        time: bool = True
        """condition the network on the total noise sigma"""
        diffusion_steps: int = option(default=0, minimum=0)
        """T of discrete time, with its T-step bound; 0: continuous time"""
        sigma_min: float | None = schedule_option("sigma_min")
        sigma_max: float | None = schedule_option("sigma_max")
        alpha_1: float | None = schedule_option("alpha_1")
        exponent: float | None = schedule_option("exponent")

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        schedule = schedule_of(config)
        super().__init__(network, vocabulary, shape, config, schedule, config.time, config.diffusion_steps)
