"""MDLM: Simple and effective masked diffusion language models (Sahoo et al. 2024, arXiv 2406.07524).

    q(x_t | x_0)     absorbing, alpha_t by default loglinear: alpha = 1 - (1 - eps) t            (eq. 4; appendix E.1)
    network          mu = p(x_0 | x_t) by SUBS: no probability on the mask, unmasked tokens carried over (section 3.2.3)
    bound            E_t [ -alpha'/(1 - alpha) sum over the masks of -log mu(x_0) ]                    (eq. 11)
    T steps          (alpha_s - alpha_t)/(1 - alpha_t) sum over the masks of -log mu(x_0)                        (eq. 8)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing | loglinear | Mean (SUBS) | weighted cross-entropy; finite T | ancestral |

Differences from the paper: the published bound leaves out the cost of the tokens that are still visible at t = 1 (here:
`prior`). The published code replaces the time by sigma = 0 when it is not conditioned on time; here such a network has no time
input at all.
"""

from typing import Any, ClassVar

from torch import nn

from ..core.curves import SCHEDULES, schedule_of, schedule_option
from ..errors import InputError
from ..requests import declared, option
from .absorbing import Masked


class MDLM(Masked):
    """Masked diffusion with the SUBS parameterization; see the module for the equations."""

    name = "mdlm"
    published_end = 1e-5
    time_input = "sigma"
    choices: ClassVar = {"schedule": SCHEDULES}
    variants = ({}, {"time": True}, {"diffusion_steps": 4})

    @declared
    class Config:
        """MDLM's options."""

        schedule: str = schedule_option("schedule", "loglinear")
        time: bool = False
        """condition the network on the total noise sigma (the paper's best models are not)"""
        diffusion_steps: int = option(default=0, minimum=0)
        """T of discrete time, with its T-step bound; 0: continuous time"""
        mask: int | None = option(default=None, minimum=0)
        """id of the tokenizer's own mask token, if it has one; by default the vocabulary has one more token, the mask"""
        sigma_min: float | None = schedule_option("sigma_min")
        sigma_max: float | None = schedule_option("sigma_max")
        alpha_1: float | None = schedule_option("alpha_1")
        exponent: float | None = schedule_option("exponent")

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Config | None = None,
        **more: Any,
    ):
        config = self.checked(config)
        if config.mask is not None:
            if not 0 <= config.mask < vocabulary:
                raise InputError(f"`mask` is {config.mask}; it must be a token of 0 to {vocabulary - 1:,}")
            vocabulary, more = vocabulary - 1, more | {"mask": config.mask}
        super().__init__(
            network,
            vocabulary,
            shape,
            config,
            schedule_of(config),
            config.time,
            config.diffusion_steps,
            **more,
        )

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.mask is None)
