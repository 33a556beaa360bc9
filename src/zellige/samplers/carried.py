"""A carried estimate: a network with self-conditioning reads its prediction of the step before, not that of a first
pass in the same step.

This saves one of two passes, as the code of Analog Bits does (Chen et al. 2022, arXiv 2208.04202). In the first step
the network reads no estimate, as for half of the texts in training.

**Another model.** The distribution of a step depends on x_t and on the estimate e_t, which is a function of the path
x_T, ..., x_t so far. So the texts alone are no Markov chain. With the noise q, the T-step model has the bound

    -log p(x_0) <= KL( q(x_T | x_0) || prior )
                   + E_q(path | x_0) sum over steps of KL( q(x_s | x_t, x_0) || p(x_s | x_T, ..., x_t) )                  (1)

by Jensen's inequality over whole paths, since p(path, x_0) is the product of its steps. A path is drawn backwards, x_T
~ q(x_T | x_0) and x_s ~ q(x_s | x_t, x_0), because the noise of a position is a Markov chain. `zellige evaluate` bounds
another model, that of two passes.
"""

from dataclasses import replace

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core import bound as kl
from ..core import random
from ..core.batch import Batch, Estimate
from ..core.positions import Positions, positions
from ..core.prediction import Prediction, kernel, truth
from ..core.random import Randomness
from ..methods.diffusion import Diffusion
from .guide import Truncated, Wrapper, truncated_as
from .predict import clean_where_fixed
from .sampler import State


def admits(method: Diffusion) -> None:
    """Raise InputError if the method has no estimate that could be carried."""
    if getattr(method.network, "estimates", None) is None:
        raise InputError(
            "`estimate` 'carried' needs a network that was trained with self-conditioning, and this one was not"
        )
    if method.block or method.latents:
        raise InputError(
            "`estimate` 'carried' is for networks that read a whole text at once, without a latent; leave it out"
        )
    if isinstance(method, Wrapper) and not isinstance(method, Truncated):
        raise InputError("`estimate` 'carried' works without guidance; leave one of the two out")


def look(method: Diffusion, state: State, t: Tensor, where: Positions) -> tuple[Prediction, Estimate]:
    """One pass: the prediction (N,) at some positions given the estimate in `state.context` (None: none),
    and the next one."""
    time = clean_where_fixed(method, state, t)
    before = state.context or Estimate(torch.zeros(*state.x.shape, method.process.K, device=state.x.device))
    logits = method.logits(method.hidden(state.x, time, Batch(state.x, condition=state.condition), before))
    pred = method.read(where.of(logits), where.of(state.x), where.of(time))
    return truncated_as(method, pred), Estimate(logits.softmax(-1))


def cost(method: Diffusion, x_0: Tensor, state: State, t: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Estimate]:
    """A step's term of (1), (B,) nats; q(x_s | x_t, x_0), (B, L, K); the next estimate. t and s are (B, 1)."""
    where = positions(torch.ones_like(state.x, dtype=torch.bool))
    pred, estimate = look(method, state, t, where)
    t, s = (where.of(time.expand(x_0.shape)) for time in (t, s))
    target = truth(method.process, where.of(x_0), where.of(state.x), t)
    nats, q = kl.discrete(target, pred, s), kernel(target, s)
    return nats.view(x_0.shape).sum(-1), q.view(*x_0.shape, -1), estimate


@torch.no_grad()
def bound(method: Diffusion, x_0: Tensor, times: Tensor, generator: Randomness = None) -> Tensor:
    """The bound (1) of texts x_0 (B, L) on these times (T + 1,), from one path each: (B,) nats; unbiased.

    Raises:
        InputError: the network has no self-conditioning.
    """
    admits(method)
    fixed, zeros = torch.zeros_like(x_0, dtype=torch.bool), torch.zeros_like(x_0[:, 0])
    state = State(method.corrupt(Batch(x_0), times[0], generator), fixed, zeros)
    nats = kl.prior(method.process, x_0, times[0]).sum(-1)
    for t, s in zip(times[:-1].view(-1, 1, 1), times[1:].view(-1, 1, 1)):
        step, q, estimate = cost(method, x_0, state, t.expand(len(x_0), 1), s.expand(len(x_0), 1))
        nats = nats + step
        state = replace(state, x=random.categorical(q, generator), context=estimate)
    return nats
