"""Predictions: the output of a network in the one form that bounds and samplers need.

For a noisy x_t, at each position and for every s <= t,

    ratio(s)[y] = P(x_s = y, the other positions as in x_t) / P(x_t)          (*, K)

A parameterization obtains it from a network's output. Everything else follows:

    reverse kernel     p(x_s | x_t)          = q(x_t | x_s) ratio(s)[x_s]
    concrete score     p_t(y) / p_t(x_t)     = ratio(t)[y]
    reverse rate       Rhat(x_t, y)          = R_t(y, x_t) ratio(t)[y],   y != x_t
    clean posterior    p(x_0 | x_t)          = reverse kernel at s = CLEAN

All shapes (*): (B, L) for every position, (N,) for N chosen ones; times broadcast to (*).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.waiting import fixed
from . import maths
from .process import Process
from .schedule import CLEAN, as_time


@runtime_checkable
class Prediction(Protocol):
    """p_s / p_t(x_t) for every s <= t at each position."""

    @property
    def process(self) -> Process: ...
    @property
    def x_t(self) -> Tensor: ...
    @property
    def t(self) -> Tensor: ...
    def ratio(self, s: Tensor | float) -> Tensor: ...


@dataclass(frozen=True)
class Mean:
    """mu = p(x_0 | x_t), what tauLDR, MDLM, MD4, RADD and BD3-LM predict: ratio(s) = [mu / q(x_t | x_0 = .)] Q_{0,s}.

    mu is a distribution on its support, the clean states x_0 with q(x_t | x_0) > 0: `restricted`, `subs` and `truth`
    make it so, for every process.
    """

    process: Process
    mu: Tensor
    x_t: Tensor
    t: Tensor

    def ratio(self, s):
        q = self.process.likelihood(self.x_t, CLEAN, self.t)
        possible = q > 0
        weight = torch.where(possible, self.mu / torch.where(possible, q, 1.0), 0.0)  # two wheres: else nan gradients
        return self.process.push(weight, CLEAN, s)  # tauLDR proposition 1, its sum over x_0


@dataclass(frozen=True)
class LeaveOneOut:
    """mu = p(x_0 | the other positions of x_t), D3PM's eq. 4 and UDLM/Duo: ratio(s) = mu Q_{0,s} / (mu Q_{0,t})[x_t].

    Equal to `Mean` where q(x_t | x_0) is the same for all x_0: at a mask of a schedule with one alpha.
    """

    process: Process
    mu: Tensor
    x_t: Tensor
    t: Tensor

    def ratio(self, s):
        mu = self.mu.to(self.process.prior)
        now = self.process.push(mu, CLEAN, self.t)  # D3PM eq. 4, without its q(x_t | x_s)
        p_x_t = now.gather(-1, self.x_t[..., None])
        possible, then = p_x_t > 0, now if s is self.t else self.process.push(mu, CLEAN, s)
        return torch.where(possible, then / torch.where(possible, p_x_t, 1.0), 0.0)


@dataclass(frozen=True)
class Substituted(LeaveOneOut):
    """mu in the place of x_0 in q(x_s | x_t, x_0), and the last step a draw from mu itself: MDLM without SUBS.

    As `LeaveOneOut` except at s = CLEAN, where p(x_0 | x_t) = mu, restricted to tokens and normalised. So mu may have
    probability on the mask, and on tokens other than a visible x_t; the last step redraws those.
    """


@dataclass(frozen=True)
class Score:
    """v = p_t(.) / p_t(x_t), the concrete score, what SEDD predicts: ratio(s) = v Q_{s,t}^{-1} (its `staggered score`).

    Identified only where R_t(y, x_t) > 0. ratio(s) has the right sum but may be negative; `kernel` clips it.
    Un-pushing amplifies errors of v where alpha_t / alpha_s is small (uniform noise, the first steps).

    At PRIOR nothing can be un-pushed: p_t is the prior there, and its score carries no information. v is then the score
    at t = 1, where the schedule ends, and `reverse` takes the step from PRIOR through the corresponding clean
    posterior.
    """

    process: Process
    v: Tensor
    x_t: Tensor
    t: Tensor

    def ratio(self, s):
        return self.process.unpush(self.v.to(self.process.prior), s, _before_prior(self.t))


def _before_prior(t: Tensor) -> Tensor:
    """Times t (*), 1 at PRIOR."""
    return torch.where(t.isposinf(), 1.0, t)


@dataclass(frozen=True)
class Tilted:
    """A product of powers of predictions, times a weight of each state, for guidance: ratio(s) = prod_k
    ratio_k(s)^{a_k} w.

    With w_y = P(c | y, the other positions of x_t) / P(c | x_t) it is the prediction given c, exact at s = t. The
    reverse kernel has no fixed sum, and `kernel` normalises it; the rates are those of the product as they are.

    Args:
        parts: predictions for the same x_t and t, none of them a `Score` (a product of scores is a `Score`: see
            `combined`).
        powers: a_k of each.
        weight: w (*, K), 1 at x_t; None: 1 everywhere.
    """

    parts: tuple[Prediction, ...]
    powers: tuple[float, ...] = (1.0,)
    weight: Tensor | None = None

    @property
    def process(self) -> Process:
        return self.parts[0].process

    @property
    def x_t(self) -> Tensor:
        return self.parts[0].x_t

    @property
    def t(self) -> Tensor:
        return self.parts[0].t

    def ratio(self, s):
        ratio = maths.product([part.ratio(s) for part in self.parts], self.powers)
        return ratio if self.weight is None else ratio * self.weight


@dataclass(frozen=True)
class DataScore:
    """v = p(.) / p(x), (*, K), the concrete score of the data themselves at texts x (*), what CSM predicts.

    No `Prediction`: nothing was noised, so there is no process and nothing to go back to.
    """

    v: Tensor
    x: Tensor


# ---------------------------------------------------------------------------------- what follows from a ratio
def reverse(pred: Prediction, s: Tensor | float) -> Tensor:
    """Reverse kernel p(x_s | x_t), (*, K). A distribution for Mean and LeaveOneOut; for Score it sums to one but may be
    negative."""
    ratio = pred.ratio(s)
    if isinstance(pred, Score):  # other positions may have other times
        start = pred.t.isposinf()
        if fixed() or bool(start.any()):
            ratio = torch.where(start[..., None], _at_prior(pred).ratio(s), ratio)
    return pred.process.likelihood(pred.x_t, s, pred.t) * ratio  # D3PM eq. 4


def _at_prior(pred: Score) -> Mean:
    """The clean posterior of a score at PRIOR, which equals the score at t = 1."""
    process, end = pred.process, _before_prior(pred.t)
    ratio = process.unpush(pred.v.to(process.prior), CLEAN, end)
    clean = process.likelihood(pred.x_t, CLEAN, end) * ratio
    return restricted(process, maths.normalise(clean.clamp_min(0.0)), pred.x_t, pred.t)


def kernel(pred: Prediction, s: Tensor | float) -> Tensor:
    """The distribution from which a sampler draws x_s: `reverse`, clipped at zero and renormalised for a Score or a
    Tilted.

    At s = CLEAN theirs is also restricted to the clean states: a score's total may leave probability on the mask
    (SEDD's denoising step); that of a Substituted is mu itself (MDLM section 3.2.3). Where a LeaveOneOut gives x_t no
    probability (see `restricted`), all states that x_t can come from are alike.
    """
    p = reverse(pred, s)
    if isinstance(pred, Mean):
        return p
    possible = pred.process.clean | (as_time(s, p.device).to(p.device) > CLEAN)[..., None]
    if isinstance(pred, Substituted):
        last = maths.normalise(torch.where(pred.process.clean, pred.mu.to(p), 0.0))
        return torch.where(possible.all(-1, keepdim=True), p, last)
    if isinstance(pred, LeaveOneOut):
        q = torch.where(possible, pred.process.likelihood(pred.x_t, s, pred.t), 0.0)
        return torch.where(p.sum(-1, keepdim=True) > 0, p, maths.normalise(q))
    return maths.normalise(torch.where(possible, p.clamp_min(0.0), 0.0))


def total_score(pred: Score) -> Tensor:
    """M = sum_y v_y over the tokens y, (*) float64, of a score at masks."""
    mask = pred.process.mask_id
    # not all less the mask's 1, which may be far more than M
    before, behind = pred.v[..., :mask], pred.v[..., mask + 1 :]
    return before.sum(-1, dtype=torch.float64) + behind.sum(-1, dtype=torch.float64)


def revealed_probability(pred: Score, s: Tensor) -> Tensor:
    """P(a mask at t is a token at s), (*) float64: what `kernel` gives to the tokens in all, from one sum over them.

    Under absorbing noise with one alpha the token is then y with probability v_y / M, and nothing of (*, K) is needed.
    """
    alpha_t, alpha_s = (pred.process.schedule.alpha(time)[..., 0] for time in (pred.t, s))
    p = (total_score(pred) * (alpha_s - alpha_t) / alpha_t).clamp_max(1.0)  # the staggered score, clipped at the mask
    return torch.where(s == CLEAN, 1.0, torch.where(pred.t.isposinf(), alpha_s, p))


def score(pred: Prediction) -> Tensor:
    """p_t(.) / p_t(x_t), (*, K)."""
    return pred.ratio(pred.t)


def given_others(pred: Prediction) -> Tensor:
    """P(x_t at a position | x_t at the others), (*, K): `score`, normalised; of a LeaveOneOut mu Q_{0,t},
    without division."""
    if isinstance(pred, LeaveOneOut):
        return pred.process.push(pred.mu.to(pred.process.prior), CLEAN, pred.t)
    return maths.normalise(score(pred).double().clamp_min(0.0))


def reverse_rate(pred: Prediction) -> Tensor:
    """Rhat_t(x_t, .), (*, K), zero at x_t itself; times in the open interval (0, 1)."""
    return pred.process.rate_into(pred.x_t, pred.t) * score(pred)  # tauLDR proposition 1


def posterior(pred: Prediction) -> Tensor:
    """p(x_0 | x_t), the clean posterior, (*, K)."""
    return pred.mu if isinstance(pred, Mean) else kernel(pred, CLEAN)


# ---------------------------------------------------------------------------------- from one into another
def as_mean(pred: Prediction) -> Mean:
    """Convert a prediction to the mean parameterization, p(x_0 | x_t)."""
    return restricted(pred.process, reverse(pred, CLEAN), pred.x_t, pred.t)


def as_leave_one_out(pred: Prediction) -> LeaveOneOut:
    """Convert a prediction to p(x_0 | the other positions): ratio(CLEAN), normalised."""
    return LeaveOneOut(pred.process, maths.normalise(pred.ratio(CLEAN)), pred.x_t, pred.t)


def as_score(pred: Prediction) -> Score:
    """Convert a prediction to a concrete score."""
    return Score(pred.process, score(pred), pred.x_t, pred.t)


def truth(process: Process, x_0: Tensor, x_t: Tensor, t: Tensor) -> Mean:
    """Oracle prediction given x_0; the target of every bound."""
    possible = process.likelihood(x_t, CLEAN, t) > 0
    return Mean(process, torch.where(possible, process.one_hot(x_0), 0.0), x_t, t)


def score_given(process: Process, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """`score` of `truth` from one row of Q_{0,t}: q(. | x_0) / q(x_t | x_0), (*, K); 0 where x_t is impossible."""
    distribution = process.marginal(x_0, t)
    q_x_t = distribution.gather(-1, x_t[..., None])
    return distribution * torch.where(q_x_t > 0, 1 / q_x_t, 0.0)


# ---------------------------------------------------------------------------------- a product, and a weight
def combined(parts: Sequence[Prediction], powers: Sequence[float]) -> Prediction:
    """The product of powers of predictions for the same x_t and t.

    Of scores it is a score, of distributions at a mask the normalised distribution: the noise, not the product's total,
    then says when a token is revealed. Otherwise it is a `Tilted`. Predictions of several kinds are first converted to
    a mean.
    """
    first, kinds = _with_noise(parts[0]), {type(part) for part in parts}
    if len(kinds) > 1:
        parts = [Mean(part.process, posterior(part), part.x_t, part.t) for part in parts]
        first = parts[0]
    if isinstance(first, Score):
        return replace(first, v=maths.product([part.v for part in parts if isinstance(part, Score)], powers))
    if isinstance(first, Mean | LeaveOneOut) and first.process.mask is not None:
        mu = maths.product([part.mu for part in parts if isinstance(part, Mean | LeaveOneOut)], powers)
        return replace(first, mu=maths.normalise(mu))
    return Tilted(tuple(parts), tuple(powers))


def tilted(pred: Prediction, weight: Tensor) -> Prediction:
    """The prediction with its ratios times `weight` (*, K), which is 1 at x_t: of a score a score,
    otherwise a `Tilted`."""
    if isinstance(pred, Score):
        return replace(pred, v=pred.v.double() * weight)
    return Tilted((_with_noise(pred),), weight=weight)


def _with_noise(pred: Prediction) -> Prediction:
    """The prediction, if its kernel is one of ratios. Raises InputError for a Substituted, whose last step is not."""
    if isinstance(pred, Substituted):
        raise InputError("a model without carry-over or zero masking cannot be guided; leave guidance out")
    return pred


# ---------------------------------------------------------------------------------- a mean, on its support
def restricted(process: Process, mu: Tensor, x_t: Tensor, t: Tensor) -> Mean:
    """Restrict a distribution mu (*, K) to the clean states that x_t can come from, and renormalise it to a Mean.

    All of them are alike where mu has none: a softmax in float32 may round the probability of a visible token to 0.
    """
    possible = (process.likelihood(x_t, CLEAN, t) > 0) & process.clean
    mu = torch.where(possible, mu.to(process.prior), 0.0)
    return Mean(process, maths.normalise(torch.where(mu.sum(-1, keepdim=True) > 0, mu, possible.to(mu))), x_t, t)


def subs(process: Process, logits: Tensor, x_t: Tensor, t: Tensor) -> Mean:
    """`restricted` from logits (*, K): zero masking probability, and unmasked tokens are carried over.

    For the mask that is MDLM's SUBS (arXiv 2406.07524, section 3.2.3).
    """
    possible = (process.likelihood(x_t, CLEAN, t) > 0) & process.clean
    return Mean(process, logits.masked_fill(~possible, -torch.inf).softmax(-1), x_t, t)  # MDLM section 3.2.3
