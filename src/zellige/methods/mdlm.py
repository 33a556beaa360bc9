"""MDLM: Simple and effective masked diffusion language models (Sahoo et al. 2024, arXiv 2406.07524).

    q(x_t | x_0)     absorbing, alpha_t by default loglinear: alpha = 1 - (1 - eps) t            (eq. 4; appendix E.1)
    network          mu = p(x_0 | x_t) by SUBS: no probability on the mask, unmasked tokens carried over (section 3.2.3)
    bound            E_t [ -alpha'/(1 - alpha) sum over the masks of -log mu(x_0) ]                    (eq. 11)
    T steps          (alpha_s - alpha_t)/(1 - alpha_t) sum over the masks of -log mu(x_0)                        (eq. 8)
    by default       L E_k [ w_k sum over the k masks of -log mu(x_0) ], k uniform on 1..L       (`absorbing.Masked`)

By default the network has no time input (`time` False). Then no t is drawn either: exactly k positions are masked. w_k is
the weight of eq. 11, integrated over t with the probability of k masks: 1/k if alpha falls from 1 to 0. The loss is
`Masked.loss`, in `absorbing`. An ablation, without SUBS, is in `mdlm_without_subs`.

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing | loglinear | Mean (SUBS) | weighted cross-entropy; finite T | ancestral |

Differences from the paper: the published bound leaves out the cost of the tokens that are still visible at t = 1
(here: `prior`). The published code replaces the time by sigma = 0 when it is not conditioned on time; here such a
network has no time input at all.
"""

from typing import Any, ClassVar

from torch import nn

from ..base.requests import declared, option
from ..core.curves import SCHEDULES, ScheduleChoice, schedule_of
from .absorbing import Masked, without_mask
from .mdlm_without_subs import WithoutSUBS


class MDLM(Masked):
    """Masked diffusion with the SUBS parameterization; see the module for the equations."""

    name = "mdlm"
    system, paper, noise = "MDLM", "2406.07524", "absorbing"
    published_end = 1e-5
    time_input = "sigma"
    choices: ClassVar = {"schedule": SCHEDULES}
    variants = ({}, {"time": True}, {"diffusion_steps": 4})

    @declared
    class Config(ScheduleChoice):
        """MDLM's options."""

        time: bool = option(
            "condition the network on the total noise sigma (the paper's best models are not)", default=False
        )
        diffusion_steps: int = option(
            "T of discrete time, with its T-step bound; 0: continuous time", default=0, minimum=0
        )
        carry_over: bool = option(
            "keep visible tokens in every step; False, in discrete time: the last step draws each anew", default=True
        )
        zero_masking: bool = option(
            "give the mask no probability; False, in discrete time: the network may predict it", default=True
        )
        mask: int | None = option(
            "id of the tokenizer's own mask token, if it has one; by default the vocabulary has one more token, the "
            "mask",
            default=None,
            minimum=0,
        )

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Config | None = None,
        **more: Any,
    ):
        config = self.checked(config)
        vocabulary, mask = without_mask(vocabulary, config.mask)
        more = more if mask is None else more | {"mask": mask}
        steps = config.diffusion_steps
        super().__init__(network, vocabulary, shape, config, schedule_of(config), config.time, steps, **more)

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.mask is None)

    @classmethod
    def resolve(cls, config):
        return MDLMWithoutSUBS if cls is MDLM and not (config.carry_over and config.zero_masking) else cls


class MDLMWithoutSUBS(WithoutSUBS):
    """MDLM with `carry_over` or `zero_masking` False, an ablation of the paper; see `mdlm_without_subs`."""

    name = "mdlm"
    system, paper, noise = "MDLM", "2406.07524", "absorbing"
    Config = MDLM.Config
    choices: ClassVar = MDLM.choices

    @classmethod
    def states(cls, vocabulary, config):
        return MDLM.states(vocabulary, config)
