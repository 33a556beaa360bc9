"""tauLDR: A continuous time framework for discrete denoising models (Campbell et al. 2022, arXiv 2205.14987).

The noise at each position is a continuous-time Markov chain with rates R_t = beta_t R; sigma_t is the integral of beta:

    q(x_t | x_0)     exp(R sigma_t): uniform, Gaussian target, birth-death (`tauldr_rates`), or absorbing
    network          mu = p(x_0 | x_t), softmax(logits) on the support {x_0: q(x_t | x_0) > 0}
    reverse rate     Rhat_t(x, y) = R_t(y, x) v_y,  v_y = sum_{x_0} mu(x_0) q(y | x_0) / q(x | x_0) (propositions 1, 3)
    L_CT             E [ sum_y Rhat_t(x, y) - Z(x) log Rhat_t(x~, x) ] + C                             (proposition 2)

Here x ~ q_t(. | x_0) is the noisy sequence, Z(x) the rate at which the noise leaves x, and x~ the sequence after one
jump of the noise from x. C does not depend on the network. With C, L_CT is the expectation over x of the generic bound
(`core.bound`), summed over positions, where u is the score given x_0:

    sum_y R_t(y, x) [ v_y - u_y + u_y log(u_y / v_y) ],   u_y = q(y | x_0) / q(x | x_0)

`objective` chooses its estimator. Let psi_t be the distribution of x~ given x_0, and w = q_t(x~) / psi_t(x~); 1/w is a
sum over positions (`tauldr_rows`). All take one network evaluation, except two-pass:

    generic           the generic bound at x ~ q_t
    two-pass          sum R (v - u) at x ~ q_t, plus w sum R u log(u / v) at x~ ~ psi_t
    one-pass          2/(1 + 1/w) times the generic bound, at x or at x~ with probability 1/2 each (the default)
    one-pass-biased   sum R (v - u) + w sum R u log(u / v), both at x~: as published, the first term without w

`loss` adds a cross-entropy: `auxiliary` times the mean over positions of -log softmax(logits)[x_0]. With absorbing
noise visible tokens add nothing to this mean, unless `auxiliary_at` is all. The logits are those of the first network
evaluation or, with `auxiliary_pass` second, of the second one, as in the published code for infilling.

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| any continuous-time chain | linear sigma; base (growth^t - 1) | Mean or LeaveOneOut | continuous + CE | tau-leaping |

Differences from the paper.

**The loss.** The published loss drops C and may be negative. Here `loss` includes C, so it is in nats; the gradient is
the same. The published one-pass form has its first term at x~ without w, which is biased. With w it would be unbiased,
but near t = 0 the weight is about 1/t with probability t, and this variance prevents training on short sequences. The
random choice between x and x~ limits the weight to 2 (the balance heuristic of Veach & Guibas 1995).

**The smallest time.** Published times start at 0.01. Here t = 0 is the time `min_time` of the noise schedule, which has
a little noise. `bound` adds the jump from there to clean tokens, and the prior term; the published value has neither.
For `prediction` mean the jump is needed, except with absorbing noise: as the noise vanishes, v_y grows as mu(x_0) / t
for some x_0, so without the jump the bound would be infinite. In the jump positions are independent, which makes the
bound looser by about the square of the noise at `min_time`. Hence the small default, 0.001. A mean must also be
accurate there: its error must be below t. Leave-one-out has no such problem, since Bayes' rule adds what the noise says
about x_0.

**Time and infilling.** The published network for sequences gets its time rounded to 0; here it gets 1000 t. Infilling
is approximate except for absorbing noise: the network does not know which positions are given.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import random
from ..core.batch import Batch
from ..core.prediction import LeaveOneOut, score, score_given, subs
from ..nn.logistic import near, within
from . import diffusion, tauldr_rows
from .diffusion import Diffusion
from .tauldr_rates import ORDERED, Noise
from .tauldr_rows import RowTables, rows_of, table_of

# uniform part of a logistic head; a mean divides by q(x_t | x_0), so a larger part would cost much far from x_t
LEAST = 1e-300


class TauLDR(Diffusion):
    """Diffusion by a continuous-time Markov chain with any rates; see the module for the equations."""

    name = "tauldr"
    system, paper, noise = "tauLDR", "2205.14987", "any continuous-time chain"
    choices: ClassVar = {
        "process": ("uniform", "gaussian", "birth-death", "absorbing"),
        "objective": ("two-pass", "one-pass", "one-pass-biased", "generic"),
        "prediction": ("mean", "leave-one-out"),
        "head": ("logits", "logistic", "logistic-within"),
        "auxiliary_at": ("masks", "all"),
        "auxiliary_pass": ("first", "second"),
    }
    of_levels: ClassVar = {"process": ORDERED, "head": ("logistic", "logistic-within")}
    loss_is_bound = False
    learns_in_the_middle = False  # at t = 0.2 nearly all is noise
    variants = (
        {},
        {"prediction": "leave-one-out"},
        {"process": "gaussian"},
        {"process": "birth-death"},
        {"process": "absorbing"},
    )

    @declared
    class Config:
        """tauLDR's options."""

        process: str = option("uniform or absorbing; gaussian or birth-death for ordered tokens", default="uniform")
        base: float | None = option(
            "rate of the noise: uniform, of a jump between two states (paper: 0.03 for 129 states); absorbing, of a jump into "
            "the mask; other noise, the factor in sigma(t) = base (growth^t - 1). By default e^-7 of the signal is left at t = 1",
            default=None,
        )
        growth: float | None = option(
            "growth of sigma(t) (gaussian and birth-death); by default the paper's 100", default=None
        )
        rate_sigma: float | None = option(
            "gaussian: width of a jump in states; by default the paper's 6 for 256 states in proportion, at least 1",
            default=None,
        )
        target_sigma: float | None = option(
            "gaussian: width of the stationary distribution in states; by default the paper's 512 for 256 states in "
            "proportion",
            default=None,
        )
        min_time: float = option(
            "time of the noise schedule that counts as t = 0; one last jump leads from it to clean tokens",
            default=0.001,
        )
        objective: str = option(
            "how training draws the bound: one-pass (as published: one-pass-biased), generic, or two-pass with two "
            "network evaluations",
            default="one-pass",
        )
        auxiliary: float = option(
            "weight of a cross-entropy added to the bound, a mean over all positions", default=0.001, minimum=0
        )
        prediction: str = option(
            "the network's softmax is p(x_0 | x_t): mean; or p(x_0 | the other positions): leave-one-out",
            default="mean",
        )
        head: str = option(
            "what the network gives: logits; logistic, the mean and scale of a logistic distribution over ordered "
            "values, truncated as in D3PM; or logistic-within, truncated as in the code of tauLDR",
            default="logits",
        )
        auxiliary_at: str = option(
            "where the cross-entropy of absorbing noise is summed: at the masks, or at all positions, as the "
            "published code does",
            default="masks",
        )
        auxiliary_pass: str = option(
            "of `objective` two-pass: which of the two network evaluations the cross-entropy reads, at x_t (first) or "
            "x~ (second)",
            default="first",
        )

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        sigmas = config.rate_sigma, config.target_sigma
        noise = Noise(config.process, config.base, config.growth, *sigmas, config.min_time)
        if config.head != "logits" and config.process == "absorbing":
            raise InputError(f"`head` {config.head} has no place for a mask; use `process` gaussian, or `head` logits")
        if config.auxiliary_pass == "second" and config.objective != "two-pass":
            raise InputError(
                f"`auxiliary_pass` second needs `objective` two-pass; {config.objective} evaluates the network once"
            )
        process = noise.on(self.states(vocabulary, config))
        super().__init__(network, vocabulary, shape, config, process, timed=True)
        self.parameterization = config.prediction.replace("-", "_")

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.process == "absorbing")

    def read(self, logits, x_t, t):
        logits, dtype = self._clean(logits, x_t), self.process.prior.dtype
        if self.parameterization == "mean":
            return subs(self.process, logits.to(dtype) if self.config.head != "logits" else logits, x_t, t)
        return LeaveOneOut(self.process, logits.to(dtype).softmax(-1), x_t, t)  # float64: no state is impossible

    def _clean(self, outputs: Tensor, x_t: Tensor) -> Tensor:
        """Logits (*, K) of clean tokens, from the outputs of the head."""
        if self.config.head == "logistic-within":
            return within(outputs, x_t, self.process.K)
        logistic = self.config.head == "logistic"
        return near(outputs, x_t, self.process.K, LEAST) if logistic else self.process.without_mask(outputs)

    # ---------------------------------------------------------------------------------- the bound and its two terms
    def moment(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """R_t(., x_t), the score u given x_0, and the network's score v, from which the bound follows: (N, K) each."""
        return self.process.rate_into(x_t, t), score_given(self.process, x_0, x_t, t), score(self.read(logits, x_t, t))

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        return tauldr_rows.both(*self.moment(logits, x_0, x_t, t))  # tauLDR proposition 2

    def weighted(
        self,
        f: Callable[..., Tensor],
        batch: Batch,
        x: Tensor,
        t: Tensor,
        w: Tensor,
        auxiliary: float,
        rows: RowTables | None = None,
        unweighted: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        """Sum over the positions of x (B, L) of w (B,) times f of `moment`, plus the weighted cross-entropy: (B,).

        `unweighted`, another function of `moment`, is added without w.
        """
        share = (auxiliary / batch.counted.sum(-1).clamp_min(1)).to(w)  # weight of the cross-entropy of one position
        everywhere = bool(auxiliary) and self.config.auxiliary_at == "all"

        def value(logits: Tensor, x_0: Tensor, x: Tensor, t: Tensor, w: Tensor) -> Tensor:
            moments = self.moment(logits, x_0, x, t)
            return w * f(*moments) if unweighted is None else w * f(*moments) + unweighted(*moments)

        def each(logits: Tensor, x_0: Tensor, x: Tensor, t: Tensor, w: Tensor, share: Tensor, row: Tensor) -> Tensor:
            clean = self._clean(logits, x)
            cross_entropy = share * F.cross_entropy(clean, x_0, reduction="none")
            if rows is not None:
                more = rows.sum(unweighted, clean, x_0, x, row) if unweighted else 0.0
                return w * rows.sum(f, clean, x_0, x, row) + more + cross_entropy
            if not everywhere:
                return value(logits, x_0, x, t, w) + cross_entropy
            moves = self.process.movable(x)  # elsewhere the bound is 0
            moving = value(logits[moves], x_0[moves], x[moves], t[moves], w[moves])
            return cross_entropy.to(moving.dtype).index_add(0, moves.nonzero()[:, 0], moving)

        at = batch.counted if everywhere else None
        return diffusion.summed(self, each, batch, x, t, w, share, torch.arange(len(t), device=t.device), at=at)

    def prepare(self):
        table_of(self.process, self.network)

    def loss(self, batch, generator=None):
        t = 1 - random.stratified(len(batch), generator, batch.tokens.device)  # in (0, 1]
        ones, auxiliary = torch.ones_like(t), self.config.auxiliary
        rows = rows_of(self.process, self.network, t, self.parameterization != "mean")
        if rows is None:
            x_t = self.corrupt(batch, t[:, None], generator)
        else:
            x_t = rows.sample(batch.tokens, batch.counted, generator)
        if self.config.objective == "generic":
            return self.weighted(tauldr_rows.both, batch, x_t, t, ones, auxiliary, rows)
        x_tilde = tauldr_rows.jump(self.process, x_t, t, batch.counted, generator)
        one_pass, x = self.config.objective == "one-pass", x_tilde
        if one_pass:
            x = torch.where(random.bernoulli(torch.full_like(t, 0.5), generator)[:, None], x_tilde, x_t)
        if rows is None:
            after = tauldr_rows.after(self.process, batch.tokens, x, t, batch.counted)
        else:
            after = rows.after(batch.tokens, x, batch.counted)
        if one_pass:
            return self.weighted(tauldr_rows.both, batch, x, t, 2 / (1 + after), auxiliary, rows)  # 2/(1 + 1/w)
        w = tauldr_rows.weight(after)
        leaving, signal = tauldr_rows.leaving, tauldr_rows.signal  # tauLDR proposition 2, term by term
        if self.config.objective == "one-pass-biased":  # as if x~ had the distribution of x_t
            return self.weighted(signal, batch, x_tilde, t, w, auxiliary, rows, unweighted=leaving)
        at_first = self.config.auxiliary_pass == "first"
        value = self.weighted(leaving, batch, x_t, t, ones, auxiliary * at_first, rows)
        return value + self.weighted(signal, batch, x_tilde, t, w, auxiliary * (not at_first), rows)
