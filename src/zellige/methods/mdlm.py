"""MDLM: Simple and effective masked diffusion language models (Sahoo et al. 2024, arXiv 2406.07524).

    q(x_t | x_0)     absorbing, alpha_t by default loglinear: alpha = 1 - (1 - eps) t            (eq. 4; appendix E.1)
    network          mu = p(x_0 | x_t) by SUBS: no probability on the mask, unmasked tokens carried over (section 3.2.3)
    bound            E_t [ -alpha'/(1 - alpha) sum over the masks of -log mu(x_0) ]                    (eq. 11)
    T steps          (alpha_s - alpha_t)/(1 - alpha_t) sum over the masks of -log mu(x_0)                        (eq. 8)

A network without time input, the default, learns the same bound without drawing t: exactly k positions are masked, k drawn
evenly, and the loss is weighted by k (`absorbing.Masked`).

An ablation, `MDLMWithoutSUBS`: without carry-over or zero masking (section 5.3, table 8; T steps) mu takes the place of
x_0 in q(x_s | x_t, x_0). It may then have mass mu_m on the mask and differ from a visible token. With o = alpha/(1 -
alpha), r = (alpha_s - alpha_t)/(1 - alpha_t):

    a step t -> s    at a mask r [-log mu(x_0)] + log(1 + o_t mu_m) - (1 - r) log(1 + o_s mu_m); 0 elsewhere: q keeps what it sees
    the last step    -log mu(x_0) + log(1 - mu_m) at the masks, and without carry-over everywhere, for it redraws every token

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing | loglinear | Mean (SUBS) | weighted cross-entropy; finite T | ancestral |

Differences from the paper: the published bound leaves out the cost of the tokens that are still visible at t = 1 (here:
`prior`). The published code replaces the time by sigma = 0 when it is not conditioned on time; here such a network has
no time input at all. Its code, without carry-over, draws x_0 in one step more than T; here the last of T steps does.
There mu is normalised over the tokens, so that no sample holds a mask.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import random
from ..core.curves import SCHEDULES, ScheduleChoice, schedule_of
from ..core.prediction import Substituted
from ..core.process import Mixture, absorbing
from ..core.schedule import CLEAN, Schedule
from . import diffusion
from .absorbing import Masked, without_mask
from .diffusion import Diffusion


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


class Visible(Mixture):
    """Absorbing noise of a model in which visible tokens may change, too: it has no `mask`, only a `blank`;
    its times are i/T."""

    def __init__(self, K: int, schedule: Schedule, mask: int | None, T: int):
        noise = absorbing(K, schedule, mask)
        super().__init__(noise.prior, schedule, noise.mask, noise.clean)
        self.mask, self.T = None, T


class MDLMWithoutSUBS(Diffusion):
    """MDLM without carry-over, zero masking, or both (section 5.3, table 8); in discrete time."""

    name = "mdlm"
    system, paper, noise = "MDLM", "2406.07524", "absorbing"
    Config = MDLM.Config
    choices: ClassVar = MDLM.choices
    parameterization = "leave_one_out"
    time_input = "sigma"

    @property
    def retraces(self):
        return self.config.carry_over

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: MDLM.Config | None = None
    ):
        config = self.checked(config)
        if not config.diffusion_steps:
            part = "zero masking" if config.carry_over else "carry-over"
            raise InputError(f"without {part} mdlm needs discrete time: set `diffusion_steps`, 1,000 in the paper")
        vocabulary, mask = without_mask(vocabulary, config.mask)
        process = Visible(vocabulary + 1, schedule_of(config), mask, config.diffusion_steps)
        super().__init__(network, vocabulary, shape, config, process, config.time, config.diffusion_steps)

    @classmethod
    def states(cls, vocabulary, config):
        return MDLM.states(vocabulary, config)

    def read(self, logits, x_t, t):
        mu = self._allowed(logits).softmax(-1)  # (*, K)
        if self.config.carry_over:
            visible = (x_t != self.process.blank)[..., None]
            mu = torch.where(visible, self.process.one_hot(x_t).to(mu), mu)
        return Substituted(self.process, mu, x_t, t)

    def _allowed(self, logits: Tensor) -> Tensor:
        return self.process.without_mask(logits) if self.config.zero_masking else logits

    def _redrawn(self, s: Tensor) -> Tensor:
        """Whether a step to s (*) draws visible tokens anew: (*) bool."""
        return (s == CLEAN) & (not self.config.carry_over)

    def cost(self, logits, x_0, x_t, t, s=None):
        """As that of `Diffusion`, at positions where the step has a cost."""
        assert s is not None, "discrete time has steps alone"
        last = -self.process.without_mask(logits).log_softmax(-1).gather(-1, x_0[..., None])[..., 0].double()
        return torch.where(s == CLEAN, last, self._inner(logits, x_0, t, s))

    def _inner(self, logits: Tensor, x_0: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """The cost of a mask in a step that is not the last, (N,) nats."""
        log_mu = self._allowed(logits).log_softmax(-1)
        nll = -log_mu.gather(-1, x_0[:, None])[:, 0].double()  # (N,)
        noise_t, noise_s = (1 - self.process.schedule.alpha(time)[..., 0] for time in (t, s))
        reveal = (noise_t - noise_s) / noise_t  # (N,): r = (alpha_s - alpha_t) / (1 - alpha_t)
        if self.config.zero_masking:
            return reveal * nll
        on_mask = log_mu[:, self.process.blank].exp().double()  # (N,): mu_m
        # log1p((1 - noise) / noise * mu_m), of noise 0 too, where its weight 1 - reveal is 0
        now, later = (torch.log1p((1 / n.clamp_min(1e-300) - 1) * on_mask) for n in (noise_t, noise_s))
        return reveal * nll + now - (1 - reveal) * later  # as D3PM, with mu for x_0

    def step(self, batch, x_t, t, s, weight=None):
        s = diffusion.per_position(s).expand(x_t.shape)
        at = (x_t == self.process.blank) | self._redrawn(s)
        return diffusion.summed(self, self.cost, batch, x_t, t, s, at=at & batch.counted, weight=weight)

    def loss(self, batch, generator=None):
        if self.config.carry_over:
            return super().loss(batch, generator)
        # the last step redraws every token: taken for each example, as the paper's code does, not for one of T
        T, times = self.steps, self.grid(self.steps, batch.tokens.device)
        i = (random.stratified(len(batch), generator, times.device) * (T - 1)).long().clamp_max(T - 2)
        t, s = times[i], times[i + 1]
        x_t = self.corrupt(batch, t[:, None], generator)
        return (T - 1) * self.step(batch, x_t, t, s) + diffusion.jump(self, batch, times[-2], times[-1], generator)
