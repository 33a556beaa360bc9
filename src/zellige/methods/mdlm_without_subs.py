"""MDLM without SUBS, an ablation of the paper (Sahoo et al. 2024, arXiv 2406.07524, section 5.3, table 8).

Without carry-over, zero masking, or both, mu takes the place of x_0 in q(x_s | x_t, x_0), over T steps. It may then
have the probability mu_m on the mask, and differ from a visible token. With o = alpha/(1 - alpha),
r = (alpha_s - alpha_t)/(1 - alpha_t):

    a step t -> s    at a mask r [-log mu(x_0)] + log(1 + o_t mu_m) - (1 - r) log(1 + o_s mu_m); 0 elsewhere, where q
                     keeps what it sees
    the last step    -log mu(x_0) + log(1 - mu_m) at the masks, and without carry-over everywhere, for it redraws every
                     token

Differences from the paper: its code, without carry-over, draws x_0 in one step more than T; here the last of T steps
does. There mu is normalised over the tokens, so that no sample holds a mask.
"""

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..core import random
from ..core.curves import schedule_of
from ..core.prediction import Substituted
from ..core.process import Mixture, absorbing
from ..core.schedule import CLEAN, Schedule
from . import diffusion
from .absorbing import without_mask
from .diffusion import Diffusion


def redrawing(K: int, schedule: Schedule, mask: int | None, T: int) -> Mixture:
    """Absorbing noise of a model whose steps may change visible tokens, too, at the times i/T."""
    process = absorbing(K, schedule, mask)
    process.mask = None  # no state stays as it is in a reverse step; what is no token is `blank`
    process.T = T
    return process


class WithoutSUBS(Diffusion):
    """Masked diffusion without carry-over, zero masking, or both, in discrete time; its Config is MDLM's."""

    parameterization = "leave_one_out"
    time_input = "sigma"

    def __init__(self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config=None):
        config = self.checked(config)
        if not config.diffusion_steps:
            part = "zero masking" if config.carry_over else "carry-over"
            raise InputError(f"without {part} mdlm needs discrete time: set `diffusion_steps`, 1,000 in the paper")
        vocabulary, mask = without_mask(vocabulary, config.mask)
        process = redrawing(vocabulary + 1, schedule_of(config), mask, config.diffusion_steps)
        super().__init__(network, vocabulary, shape, config, process, config.time, config.diffusion_steps)

    @property
    def retraces(self):
        return self.config.carry_over

    def read(self, logits, x_t, t):
        mu = self._allowed(logits).softmax(-1)  # (*, K)
        if self.config.carry_over:
            visible = (x_t != self.process.blank)[..., None]
            mu = torch.where(visible, self.process.one_hot(x_t).to(mu), mu)
        return Substituted(self.process, mu, x_t, t)

    def _allowed(self, logits: Tensor) -> Tensor:
        return self.process.without_mask(logits) if self.config.zero_masking else logits

    def cost(self, logits, x_0, x_t, t, s=None):
        """Cost as in `Diffusion`, at positions where the step has one."""
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

    def discrete_bound(self, batch, x_t, t, s, weight=None):
        s = diffusion.per_position(s).expand(x_t.shape)
        redrawn = (s == CLEAN) & (not self.config.carry_over)  # (B, L): visible tokens that the step draws anew
        at = (x_t == self.process.blank) | redrawn
        return diffusion.summed(self, self.cost, batch, x_t, t, s, at=at & batch.counted, weight=weight)

    def loss(self, batch, generator=None):
        if self.config.carry_over:
            return super().loss(batch, generator)
        # the last step redraws every token: taken for each example, as the paper's code does, not for one of T
        T, times = self.steps, self.grid(self.steps, batch.tokens.device)
        i = (random.stratified(len(batch), generator, times.device) * (T - 1)).long().clamp_max(T - 2)
        t, s = times[i], times[i + 1]  # (B,) each
        x_t = self.corrupt(batch, t[:, None], generator)
        value = (T - 1) * self.discrete_bound(batch, x_t, t, s)
        return value + diffusion.jump(self, batch, times[-2], times[-1], generator)
