"""Noising processes: a Markov chain on K states, the same at every position and independent between positions.

Rows are the source state: Q_{s,t}[i, j] = q(x_t = j | x_s = i). A distribution v, a row vector, becomes v Q_{s,t}. R_t
is the generator, d/dt Q_{s,t} = Q_{s,t} R_t. Times s <= t are in [0, 1], in the ends of the schedule beyond it
(`core.schedule`), or CLEAN and PRIOR. They broadcast to the shape (*) of the states or distributions, so each position
may have its own time.

`matrix` and `rate` are the definition; the other operations follow from it. A subclass may have closed forms of them,
and tests compare these with the definition.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from . import maths, random
from .random import Randomness
from .schedule import CLEAN, PRIOR, Schedule, as_time


class Process(nn.Module):
    """The noise at one position: a Markov chain on K states.

    Args:
        prior: (K,) the distribution at PRIOR.
        schedule: alpha_t; None for a chain given by its matrices.
        mask: the absorbing state, in which sampling starts; None if no state absorbs.
        clean: (K,) bool, the states that clean data can take; all by default.

    Attributes:
        T: the number of steps of discrete time, i/T; 0 for continuous time.
        start_time: the time at which sampling starts: PRIOR if the prior excludes a state (absorbing), else t = 1, with
            samples of the prior.
        hides: whether `mask` is not a clean state. Then a mask carries no information about its clean token.
        blank: the state that is not a token, an absorbing mask or another one; None if every state is a token.
    """

    prior: Tensor
    clean: Tensor

    def __init__(
        self, prior: Tensor, schedule: Schedule | None = None, mask: int | None = None, clean: Tensor | None = None
    ):
        super().__init__()
        self.K, self.mask, self.blank, self.T = len(prior), mask, mask, getattr(schedule, "T", 0)
        if schedule is not None:
            self.schedule = schedule
        self.register_buffer("prior", prior, persistent=False)
        clean = torch.ones(self.K, dtype=torch.bool) if clean is None else clean
        self.register_buffer("clean", clean, persistent=False)
        readable = not prior.is_meta  # read once: on a GPU reading a value would synchronise
        self.start_time = PRIOR if readable and bool((prior == 0).any()) else 1.0
        self.hides = mask is not None and readable and not bool(clean[mask])

    # ---------------------------------------------------------------------------------- the definition
    def matrix(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """Transition matrix Q_{s,t}, (*) -> (*, K, K)."""
        raise NotImplementedError(f"{type(self).__name__} defines no transition matrix")

    def rate(self, t: Tensor | float) -> Tensor:
        """Generator R_t, (*) -> (*, K, K), for t in the open interval (0, 1)."""
        raise NotImplementedError(f"{type(self).__name__} has discrete time: it has no rate; use the discrete bound")

    # ---------------------------------------------------------------------------------- computed from the definition
    @property
    def mask_id(self) -> int:
        """Return `mask` of a process that has one."""
        assert self.mask is not None, "this noise has no mask"
        return self.mask

    def as_time(self, t: Tensor | float) -> Tensor:
        """Convert a time to a tensor on the prior's device."""
        return as_time(t, self.prior.device)

    def _keep(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """Return alpha_t / alpha_s, (*, 1) or (*, K); 1 where alpha_s is 0."""
        alpha_s, alpha_t = self.schedule.alpha(self.as_time(s)), self.schedule.alpha(self.as_time(t))
        alpha_t, alpha_s = torch.broadcast_tensors(alpha_t.to(self.prior), alpha_s.to(self.prior))
        left = alpha_s > 0
        return torch.where(left, alpha_t / torch.where(left, alpha_s, 1.0), 1.0)

    @property
    def span(self) -> tuple[float, float]:
        """First and last time of the continuous part of a continuous-time model.

        With a mask it goes from alpha = 1 to alpha = 0 (`Schedule.span`). Otherwise it is [0, 1]: sampling starts at
        t = 1 from the prior, and the prior term is the cost of this. The last step, from t = 0 to clean tokens, is one
        jump, since the rates of a mean to clean tokens have no bound.
        """
        return self.schedule.span if self.mask is not None and not self.T else (0.0, 1.0)

    def push(self, v: Tensor, s: Tensor | float, t: Tensor | float) -> Tensor:
        """Multiply distributions by a matrix: v Q_{s,t}, (*, K) -> (*, K)."""
        return (v[..., None, :] @ self.matrix(s, t).to(v))[..., 0, :]

    def unpush(self, v: Tensor, s: Tensor | float, t: Tensor | float) -> Tensor:
        """Multiply by an inverse: v Q_{s,t}^{-1}, (*, K) -> (*, K)."""
        Q = self.matrix(s, t).to(v).expand(*v.shape, self.K)
        return torch.linalg.solve(Q.mT, v[..., None])[..., 0]

    def likelihood(self, x_t: Tensor, s: Tensor | float, t: Tensor | float) -> Tensor:
        """Likelihood q(x_t | x_s = .), a column of Q_{s,t}: (*) -> (*, K)."""
        return self._column(self.matrix(s, t), x_t)

    def rate_into(self, x_t: Tensor, t: Tensor | float) -> Tensor:
        """Rates R_t(., x_t), a column of R_t with 0 at x_t itself: (*) -> (*, K)."""
        return self._column(self.rate(t), x_t).scatter(-1, x_t[..., None], 0.0)

    def rate_from(self, x_t: Tensor, t: Tensor | float) -> Tensor:
        """Rates R_t(x_t, .), a row of R_t with 0 at x_t itself: (*) -> (*, K)."""
        return self._column(self.rate(t).mT, x_t).scatter(-1, x_t[..., None], 0.0)

    def _column(self, matrix: Tensor, x: Tensor) -> Tensor:
        index = x[..., None, None].expand(*x.shape, self.K, 1)
        return matrix.expand(*x.shape, self.K, self.K).gather(-1, index)[..., 0]

    def marginal(self, x_0: Tensor, t: Tensor | float) -> Tensor:
        """Distribution q(x_t = . | x_0), a row of Q_{0,t}: (*) -> (*, K)."""
        return self.push(self.one_hot(x_0), CLEAN, t)

    def sample(self, x_0: Tensor, t: Tensor | float, generator: Randomness = None) -> Tensor:
        """Sample x_t ~ q(. | x_0), (*) -> (*)."""
        return random.categorical(self.marginal(x_0, t), generator)

    def divergence(self, x_0: Tensor, t: Tensor | float) -> Tensor:
        """Prior term KL( q(x_t | x_0) || prior ), (*) -> (*) nats."""
        return maths.kl(self.marginal(x_0, t), self.prior)  # D3PM eq. 1, its first term

    def sample_prior(self, shape: tuple[int, ...], generator: Randomness = None) -> Tensor:
        """Sample x ~ prior at every position of a shape."""
        if self.mask is not None:
            return torch.full(shape, self.mask, device=self.prior.device)
        return random.replace(
            torch.zeros(shape, dtype=torch.long, device=self.prior.device), 1.0, self.prior, generator
        )

    def movable(self, x_t: Tensor) -> Tensor:
        """Positions that a reverse step may change, (*) -> (*) bool: the masks if a mask absorbs, else all."""
        return torch.ones_like(x_t, dtype=torch.bool) if self.mask is None else x_t == self.mask

    def without_mask(self, logits: Tensor) -> Tensor:
        """Set the logit of `blank` to -inf, (*, K); unchanged if every state is a token."""
        if self.blank is None:
            return logits
        return logits.masked_fill(torch.arange(logits.shape[-1], device=logits.device) == self.blank, -torch.inf)

    def one_hot(self, x: Tensor) -> Tensor:
        """One-hot distribution at x, (*) -> (*, K), in the dtype of the prior."""
        return torch.zeros(*x.shape, self.K, dtype=self.prior.dtype, device=x.device).scatter(-1, x[..., None], 1.0)


class Mixture(Process):
    """Noise that keeps a token with probability a = alpha_t / alpha_s, and otherwise samples it from the prior.

    Q_{s,t} = diag(a) + (1 - a) prior^T. `absorbing` and `uniform` make the two processes of the papers. The schedule
    may have one alpha for each state (GenMD4) if the prior is a single state. With several states in the prior, these Q
    would not be a Markov chain, since a sampled token would be noised again at its own rate.

    Raises:
        InputError: one alpha for each state, and a prior with several states.
    """

    def __init__(self, prior: Tensor, schedule: Schedule, mask: int | None = None, clean: Tensor | None = None):
        super().__init__(prior, schedule, mask, clean)
        if schedule.alpha(1.0).shape[-1] > 1 and bool((prior > 0).sum() > 1):
            raise InputError("one alpha for each state needs a prior that is a single state, such as the mask")

    def matrix(self, s, t):
        a = self._keep(s, t)
        a = a.expand(*a.shape[:-1], self.K)
        return torch.diag_embed(a) + (1 - a)[..., None] * self.prior  # D3PM eq. 6 and 7, of all steps from s to t

    def rate(self, t):
        b = self.schedule.beta(self.as_time(t)).to(self.prior)
        b = b.expand(*b.shape[:-1], self.K)
        return b[..., None] * self.prior - torch.diag_embed(b)  # d/dt of the matrix at s = t

    def push(self, v, s, t):
        a = self._keep(s, t)
        return a * v + ((1 - a) * v).sum(-1, keepdim=True) * self.prior

    def unpush(self, v, s, t):
        # w Q = v reads w a + c prior = v with c = <w, 1 - a>; solve for the number c (Sherman-Morrison)
        a = self._keep(s, t)
        odds = (1 - a) / a
        c = (v * odds).sum(-1, keepdim=True) / (1 + (self.prior * odds).sum(-1, keepdim=True))
        return (v - c * self.prior) / a

    def likelihood(self, x_t, s, t):
        x, a = x_t[..., None], self._keep(s, t)
        redraw = ((1 - a) * self.prior[x]).expand(*x_t.shape, self.K)
        return redraw.scatter_add(-1, x, a.expand(redraw.shape).gather(-1, x))

    def rate_into(self, x_t, t):
        r = (self.schedule.beta(self.as_time(t)).to(self.prior) * self.prior[x_t][..., None]).expand(*x_t.shape, self.K)
        return r.scatter(-1, x_t[..., None], 0.0)

    def rate_from(self, x_t, t):
        b = self.schedule.beta(self.as_time(t)).to(self.prior)
        b = b.expand(*b.shape[:-1], self.K).expand(*x_t.shape, self.K).gather(-1, x_t[..., None])
        return (b * self.prior).scatter(-1, x_t[..., None], 0.0)

    def sample(self, x_0, t, generator=None):
        alpha = self._alpha_of(x_0, t)
        if self.mask is None:
            return random.replace(x_0, 1 - alpha, self.prior, generator)  # D3PM eq. 3
        return torch.where(random.bernoulli(1 - alpha, generator), self.mask, x_0)  # MDLM eq. 4

    def _alpha_of(self, x_0: Tensor, t: Tensor | float) -> Tensor:
        """Return alpha_t of the tokens x_0, (*) -> (*)."""
        return self.schedule.alpha_of(x_0, self.as_time(t)).to(self.prior)

    def divergence(self, x_0, t):
        # q is (1 - alpha) prior except at x_0, so the divergence is that of two outcomes: x_0 or not
        alpha, prior = self._alpha_of(x_0, t), self.prior[x_0]
        return maths.kl(*(torch.stack([p, 1 - p], -1) for p in (alpha + (1 - alpha) * prior, prior)))


def absorbing(K: int, schedule: Schedule, mask: int | None = None) -> Mixture:
    """Absorbing noise: a noised token becomes the mask, one of the K states (the last by default).

    Clean data never contains the mask. To absorb into a state of the data (D3PM's grey pixel), make a `Mixture` with
    that prior and no `clean` argument.
    """
    mask = K - 1 if mask is None else mask
    prior = F.one_hot(torch.tensor(mask), K).double()
    return Mixture(prior, schedule, mask=mask, clean=prior == 0)  # D3PM eq. 7


def absorbing_uniform(K: int, schedule: Schedule, proportion: float) -> Mixture:
    """Noise by masks and random states: a noised token becomes the mask with probability `proportion`, else any state.

    The mask is the last of the K states. It does not absorb: it is noised like any other state. Clean data never
    contains it.
    """
    prior = torch.full((K,), (1 - proportion) / K, dtype=torch.float64)
    prior[-1] += proportion  # D3PM appendix A.2.6
    process = Mixture(prior, schedule, clean=torch.arange(K) < K - 1)
    process.blank = K - 1
    return process


def uniform(K: int, schedule: Schedule) -> Mixture:
    """Uniform noise on K states: a noised token becomes any state with probability 1/K, itself included."""
    return Mixture(torch.full((K,), 1 / K, dtype=torch.float64), schedule)  # D3PM eq. 6
