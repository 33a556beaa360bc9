"""A carried estimate: the chain of a network with self-conditioning that reads what it said in the step before."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zellige import methods
from zellige.core.batch import Batch, Estimate
from zellige.core.maths import kl, log
from zellige.core.prediction import kernel, truth
from zellige.core.schedule import CLEAN
from zellige.exact import enumeration, script
from zellige.methods.diffusion import Diffusion
from zellige.nn.block import Net
from zellige.samplers import Ancestral, carried

from .check import EXACT, INSIDE, L, Largest, V, above, apart, end_at, numbers, own, state_of
from .networks import SINGLE, takes_classes, with_numbers

CARRIED, STEPS = "a carried estimate", 2


def conditioned(method: Diffusion) -> Any:
    """The method with a transformer that reads its own prediction, with fixed numbers for weights;
    None if it has another."""
    net = Net(layers=1, hidden=12, heads=3, length=L, condition=8, self_condition=True)
    try:
        return with_numbers(methods.build(type(method), V, net, method.config, ordered=True))
    except methods.InputError:
        return None


def says(model: Any, x: Tensor, estimate: Tensor, t: Tensor) -> Tensor:
    """Logits (B, L, K) of one pass, by definition: of the same network without self-conditioning, whose embeddings have
    the estimate (B, L, K) added in the basis of its weights."""
    network, weight, embed = model.network, model.network.estimates, model.network.embedding
    network.estimates, network._embed = None, lambda tokens: embed(tokens) + estimate @ weight
    try:
        return model.logits(model.hidden(x, t, Batch(x)))
    finally:
        network.estimates = weight
        del network._embed


def distribution(model: Any, sampler: Ancestral, times: Tensor) -> Tensor:
    """Distribution of the samples, (K^L,): the sum over all paths, each with its own estimate,
    of the sampler's steps."""
    X, K = enumeration.states(model.process.K, L), model.process.K
    state = replace(sampler.init(model, (len(X), L)), x=X)
    p = model.process.prior[X].prod(-1)
    for t, s in pairwise(times):
        possible = p > 0
        state, p = state.take(possible), p[possible]
        time, later = (u.expand(len(p), 1) for u in (t, s))
        matrix = script.transition(sampler, model, state, time, later)
        after = sampler.step(model, state, time, later, torch.Generator().manual_seed(0)).context
        again = torch.arange(len(p)).repeat_interleave(len(X))
        state = replace(replace(state, context=after).take(again), x=X.repeat(len(p), 1))
        p = (p[:, None] * matrix).flatten()
    return torch.zeros(K**L, dtype=torch.float64).index_add(0, enumeration.index(state.x, K), p)


def defined(model: Any, times: Tensor) -> Tensor:
    """The bound of each clean text, (N,) nats: over all paths of q, step by step, by the definition of one pass."""
    X, K = enumeration.states(model.process.K, L), model.process.K
    tokens = X[enumeration.is_clean(model.process, L)]
    row, x = torch.arange(len(tokens)).repeat_interleave(len(X)), X.repeat(len(tokens), 1)
    p = model.process.likelihood(x, CLEAN, times[0].expand(x.shape)).gather(-1, tokens[row][..., None])[..., 0].prod(-1)
    estimate = torch.zeros(*x.shape, K, dtype=torch.float64)
    first = model.process.marginal(tokens, times[0].expand(tokens.shape))
    total = kl(first, model.process.prior.expand(first.shape)).sum(-1)
    for t, s in pairwise(times):
        row, x, p, estimate = (value[p > 0] for value in (row, x, p, estimate))
        time, later = t.expand(x.shape), s.expand(x.shape)
        logits, target = says(model, x, estimate, time), truth(model.process, tokens[row], x, time)
        q = kernel(target, later)
        total.index_add_(0, row, p * kl(q, kernel(model.read(logits, x, time), later)).sum(-1))
        chance = q[:, torch.arange(L), X].prod(-1)
        p, estimate = (p[:, None] * chance).flatten(), logits.softmax(-1).repeat_interleave(len(X), 0)
        row, x = row.repeat_interleave(len(X)), X.repeat(len(x), 1)
    return total


def plain(method: Any) -> bool:
    """Whether the method has its own transformer and reverse kernels, and no choice but those of noise and time."""
    if not (isinstance(method, Diffusion) and takes_classes(method) and Ancestral.reason_against(method) is None):
        return False
    usual: Any = vars(type(method).Config())
    return {name for name, value in vars(method.config).items() if value != usual[name]} <= {"process", "time"}


@own("networks.carried", plain)
@torch.no_grad()
def a_carried_estimate(method: Diffusion):
    """A step and the next estimate, for estimates of all kinds; the bound of each text, over all paths, against -log p
    of its chain; and how far this chain is from that of two passes."""
    if method.block or not (model := conditioned(method)):
        return
    sampler, X, K = Ancestral(estimate="carried"), enumeration.states(method.process.K, L), method.process.K
    step, times = Largest(), sampler.times(model, STEPS)
    for number, t in enumerate((*INSIDE[1:], float(times[0]))):
        estimate = numbers(*X.shape, K, shift=number).softmax(-1) if number else None
        state = state_of(X, context=None if estimate is None else Estimate(estimate))
        time = torch.full((len(X), 1), t, dtype=torch.float64)
        added = torch.zeros(*X.shape, K).double() if estimate is None else estimate
        logits = says(model, X, added, time.expand(X.shape))
        free = torch.ones_like(X, dtype=torch.bool) if method.process.mask is None else method.process.mask == X
        wanted = kernel(model.read(logits, X, time.expand(X.shape)), torch.full_like(time, INSIDE[0]).expand(X.shape))
        wanted = torch.where(free[..., None], wanted, F.one_hot(X, K).double())
        joint = wanted[:, torch.arange(L), X].prod(-1)
        later = torch.full_like(time, INSIDE[0])
        step.see(script.transition(sampler, model, state, time, later), joint, f"t = {t:g}")
        after = sampler.step(model, state, time, later, torch.Generator().manual_seed(0)).context
        step.see(after.p, logits.softmax(-1), f"the estimate after t = {t:g}")
    yield step.row(CARRIED, "a step = one pass that reads the estimate", SINGLE)

    end_at(model, 0.05)  # so that x_T is not from the prior
    tokens = X[enumeration.is_clean(method.process, L)]
    p = distribution(model, sampler, times)
    bound = torch.zeros(len(tokens), dtype=torch.float64)
    for rows, nats, chance in script.branches(
        lambda rows, draws: carried.bound(model, tokens[rows], times, draws), len(tokens)
    ):
        bound.index_add_(0, rows, nats * chance)
    drawn = Largest()
    drawn.see(bound, defined(model, times))
    yield drawn.row(CARRIED, "E of the drawn bound = its sum over all paths", SINGLE)
    gap = bound + log(p[enumeration.index(tokens, K)])
    yield above(CARRIED, "bound of all paths ≥ -log p, smallest gap", float(gap.min()), -EXACT, "≥ 0")
    two = script.sample_distribution(Ancestral(), model, STEPS)
    yield above(CARRIED, "... another chain than that of two passes", apart(two, p), 1e-6, "≥ 1e-06")
