"""GenMD4: Simplified and generalized masked diffusion for discrete data (Shi et al. 2024, arXiv 2406.04329, section 6).

    q(x_t | x_0)     absorbing, each token at its own pace: alpha_k(t) = 1 - (1 - eps) tau^{w_k}, w_k learnt (softplus)
    time             tau = t_1 + (1 - t_1) t, t in [0, 1], t_1 = 1e-3: a few tokens are already masked at t = 0
    network          mu = p(x_0 | x_t) by SUBS, time-conditioned as in MD4
    bound (eq. 32)   E_t sum over the masks of  sum_k r_k mu_k - r_{x_0} (log mu_{x_0} + 1),
                     r_k = -alpha_k'/(1 - alpha_k)
                     + prior term (from alpha = 0 to alpha(1) = eps) + reconstruction term (what is masked at t = 0)
    gradient in w    x_t depends on w, so the loss takes two samples x_t, x_t'. With their bounds f, f' the gradient is
                     that of (f + f')/2 + (f - f')/2 (log q(x_t | x_0) - log q(x_t' | x_0)), (f - f')/2 held fixed
                     (REINFORCE, leave one out: RLOO; appendix I.2)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing, learnt by token | polynomial, one w a token | Mean (SUBS) | continuous + RLOO | ancestral, by thinning |

As t grows, a token with a larger w is masked later, since tau^w is smaller. Generation runs from t = 1 to 0, so there
it appears *earlier*: half of the tokens k have appeared at the t where alpha_k(t) = 1/2, and this t increases with w_k.
In both endpoint terms tokens are revealed one at a time (`core.schedule`).

Differences from the paper. The published reconstruction term does not use the network, but guesses in proportion to 1 -
alpha; here it uses the network. The published bound has no prior term, and its integral over [t_1, 1] lacks the factor
1 - t_1 (`published` computes it). The value of `loss` is that of the bound, (f + f')/2 and the endpoint terms; the
published loss has the value of the whole expression above, which may be negative.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..base.waiting import at_hand, fixed_shapes
from ..core import maths, random
from ..core.batch import Batch
from ..core.curves import Polynomial
from ..core.positions import positions
from ..core.process import absorbing
from ..core.schedule import CLEAN
from .absorbing import Absorbing


class GenMD4(Absorbing):
    """Masked diffusion with a learnt exponent w for each token; see the module for the equations."""

    name = "genmd4"
    system, paper, noise = "GenMD4", "2406.04329", "absorbing, learnt by token"
    published_end = 0.0
    learns_in_the_middle = False  # its exponents move the cost to times that are rarely drawn

    @declared
    class Config:
        """GenMD4's options."""

        exponent: float = option("w of every token at the start", default=1.0)
        learn: bool = option(
            "learn the exponents; if not, they keep their value, and the loss is one sample of the bound", default=True
        )
        eps: float = option("alpha(1) of every token", default=1e-4)
        begin: float = option("t_1, the value of tau at t = 0", default=1e-3)

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        if config.exponent <= 0:
            raise InputError(f"`exponent` is {config.exponent:g}; it must be above 0")
        for name, value in (("eps", config.eps), ("begin", config.begin)):
            if not 0.0 <= value < 1.0:
                raise InputError(f"`{name}` is {value:g}; it must be at least 0 and below 1")
        w = torch.full((self.states(vocabulary, config),), config.exponent)
        schedule = Polynomial(w, config.eps, learnable=config.learn, begin=config.begin)
        super().__init__(network, vocabulary, shape, config, absorbing(len(w), schedule), timed=True)

    @property
    def schedule(self) -> Polynomial:
        return cast(Polynomial, self.process.schedule)

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 1

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        w, log_mu = self.schedule.w, self.process.without_mask(logits).log_softmax(-1)
        mean = (log_mu.exp() * w.to(log_mu)).sum(-1).double()  # (N,): sum_k mu_k w_k
        log_mu_x_0 = log_mu.gather(-1, x_0[:, None])[:, 0].double()
        pace = (1 - self.schedule.begin) / self.schedule.tau(t)  # r = w tau'/tau: tau^w may underflow
        return pace * (mean - w[x_0] * (log_mu_x_0 + 1))  # MD4 eq. 32

    # ---------------------------------------------------------------------------------- learning the exponents
    def log_q(self, batch: Batch, x_t: Tensor, t: Tensor) -> Tensor:
        """log q(x_t | x_0) at times t (B,), summed over the counted positions: (B,) nats.

        Each position of x_t (B, L) is the token of x_0 or the mask.
        """
        masks = x_t == self.process.mask  # (B, L)
        log_most = math.log1p(-self.schedule.alpha_1)
        log_masked = self.schedule.w[batch.tokens] * self.schedule.tau(t).log()[:, None] + log_most
        log_kept = maths.log1mexp(torch.where(masks, 1.0, -log_masked))  # 1.0 where it is unused: no gradient is nan
        log_q = torch.where(masks, log_masked, log_kept)  # MD4 section 6: q(x_t | x_0)
        return (log_q if batch.mask is None else log_q.masked_fill(~batch.mask, 0.0)).sum(-1)

    def rloo(self, batch: Batch, z: Tensor, other: Tensor, t: Tensor, s: Tensor | None = None) -> Tensor:
        """Mean bound (f + f')/2 of two noise samples z and other (B, L) at t (B,): (B,) nats.

        It is per unit of time, or of the step from t to s if s is given. Its gradient in w is that of the module's
        docstring, which is unbiased for the gradient of the expected bound.
        """
        x_t = torch.cat((z, other))  # (2B, L)
        waited, end = not at_hand(x_t), s is not None
        with fixed_shapes(waited and not end):  # sequences without a mask, frequent at t = 0, are left out
            rows = positions(self.process.movable(x_t).any(-1, keepdim=True))
        of = rows.index % len(batch)
        batch_part, noisy, time = batch.take(of), x_t[rows.index], t[of]
        with fixed_shapes(waited and end):
            f, g = rows.sum(
                self.continuous_bound(batch_part, noisy, time)
                if s is None
                else self.discrete_bound(batch_part, noisy, time, s[of])
            ).chunk(2)
        push = (f - g).detach() / 2 * (self.log_q(batch, z, t) - self.log_q(batch, other, t))
        return (f + g) / 2 + (push - push.detach())  # MD4 appendix I.2

    def loss(self, batch, generator=None):
        if not self.config.learn:
            return torch.stack(list(self.jump_terms(batch, generator).values())).sum(0)
        t = 1 - random.stratified(len(batch), generator, batch.tokens.device)
        z_1, z_2 = self.corrupt(batch, t[:, None], generator), self.corrupt(batch, t[:, None], generator)
        total = self.rloo(batch, z_1, z_2, t) + self.prior_term(batch)
        if self.config.begin:
            z_1, z_2 = self.corrupt(batch, 0.0, generator), self.corrupt(batch, 0.0, generator)
            total = total + self.rloo(batch, z_1, z_2, torch.zeros_like(t), torch.full_like(t, CLEAN))
        return total

    def published(self, batch, generator=None, steps=0):
        if steps:
            raise InputError("the published bound of genmd4 is that of continuous time; leave `steps` out")
        t, begin = self.draw_times(batch, generator), self.config.begin
        diffusion = self.continuous_bound(batch, self.corrupt(batch, t[:, None], generator), t) / (1 - begin)
        value = torch.zeros_like(diffusion)
        if begin:
            w = self.schedule.w[: self.vocabulary].double()
            log_noise = w * math.log(begin) + math.log1p(-self.config.eps)  # log(1 - alpha)
            guess = log_noise.exp() * (log_noise.logsumexp(-1) - log_noise)
            value = (guess[batch.tokens] * batch.counted).sum(-1)
        return {"diffusion": diffusion, "reconstruction": value, "prior": torch.zeros_like(diffusion)}

    def learned_quantities(self):
        w = self.schedule.w[: self.vocabulary].detach().double()
        half = self.schedule.time((0.5 / (1 - self.config.eps)) ** (1 / w))
        return {"exponent": w, "half of them revealed at t": half}
