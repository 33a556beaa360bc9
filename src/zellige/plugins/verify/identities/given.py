"""Given parts: positions that are never noised and never counted, in the bound and in the samples.

The networks see the time and, under noise without a mask, which positions are given: a token that is given and one that
the noise left or made look alike. The distribution given a part is found by the kernels of the other positions, summed
over all paths.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from zellige.core import bound as step
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.prediction import Prediction, kernel, truth
from zellige.core.process import uniform
from zellige.core.schedule import CLEAN
from zellige.exact import bounds, enumeration, script
from zellige.methods.diffusion import Diffusion, between, elbo
from zellige.methods.method import Method
from zellige.samplers import Ancestral

from .check import (
    EXACT,
    QUADRATURE,
    L,
    Largest,
    V,
    above,
    apart,
    below,
    end_at,
    even,
    own,
    shared,
    some_texts,
    with_table,
)
from .coarse import chain_of
from .draw import nodes

GIVEN = "given parts"
STEPS = 3
Predict = Callable[[Tensor, Tensor], Prediction]  # of x_t and the times


def seeing_given(method: Diffusion) -> Diffusion:
    """The method with a network that is any function of which positions are given,
    if the noise does not tell them apart."""
    if method.process.hides:
        return method
    old = method.network
    new = with_table(type(old)(method.process.K, L, old.time_conditioned, old.logits.shape[-1], given=True))
    new.unit, method.network = old.unit, new
    return method


def patterns(method: Method) -> list[list[bool]]:
    """Which positions count: those of a part that may be given. What is written from left to right takes a prefix."""
    return [[False, True]] if method.block else [[False, True], [True, False]]


def given_distribution(process, predict: Predict, times: Tensor, x_0: Tensor, counted: Tensor) -> Tensor:
    """p(the counted positions | the others as in x_0) of the chain: over all X that agree with x_0 (L,) there, (N,)."""
    X = agreeing(process.K, x_0, counted)
    p = process.prior[X[:, counted]].prod(-1)
    for t, s in itertools.pairwise(times):
        kernels = kernel(predict(X, torch.where(counted, t, CLEAN).expand(X.shape)), s.expand(X.shape))
        at = torch.arange(X.shape[1])[counted]
        p = p @ kernels[:, at[None], X[:, counted]].prod(-1)
    return p


def agreeing(K: int, x_0: Tensor, counted: Tensor) -> Tensor:
    """All sequences that agree with x_0 (L,) where they are not counted, (N, L)."""
    X = x_0.repeat(K ** int(counted.sum()), 1)
    X[:, counted] = enumeration.states(K, int(counted.sum()))
    return X


def given_bound(method: Diffusion, times: Tensor, x_0: Tensor, counted: Tensor) -> Tensor:
    """The bound of the same chain at x_0 itself, expectations enumerated: () nats."""
    process, X = method.process, agreeing(method.process.K, x_0, counted)
    clean, total = x_0.expand(X.shape), step.prior(process, x_0, times[0])[counted].sum()
    for t, s in itertools.pairwise(times):
        time = torch.where(counted, t, CLEAN).expand(X.shape)
        q = process.likelihood(X, CLEAN, time).gather(-1, clean[..., None])[..., 0][:, counted].prod(-1)
        cost = step.discrete(truth(process, clean, X, time), method.predict(X, time), s.expand(X.shape))
        total = total + torch.where(q > 0, q * cost[:, counted].sum(-1), 0.0).sum()
    return total


@own("given.chain", lambda method: method.process is not None and not method.block)
@torch.no_grad()
def the_bound_given_a_part(method: Diffusion):
    method = seeing_given(chain_of(method))
    times, x_0 = method.grid(STEPS), some_texts()
    steps = even(max(1, len(between(method, STEPS))))
    drawn, sampled, seen, gap = Largest(), Largest(), Largest(), math.inf
    for counted in torch.tensor(patterns(method)):
        where = f"counted {counted.tolist()}"
        if getattr(method.network, "sees_given", False):
            X = agreeing(method.process.K, x_0[0], counted)
            t = torch.where(counted, times[1], CLEAN).expand(X.shape)
            direct = method.network.features(X, method.input_times(X, t, None), given=(~counted).expand(X.shape))
            seen.see(method.hidden(X, t, Batch(X)), direct, where)

        def draw(batch: Batch, generator: script.Script, counted: Tensor = counted) -> Tensor:
            batch = Batch(batch.tokens, counted.expand(batch.tokens.shape))
            return sum(elbo(method, batch, generator, times).values())  # pyright: ignore[reportReturnType]

        value = torch.stack([given_bound(method, times, x, counted) for x in x_0])
        drawn.see(bounds.expectation(draw, x_0, steps), value, where)
        for x, b in zip(x_0, value):
            X = agreeing(method.process.K, x, counted)
            p = given_distribution(method.process, method.predict, times, x, counted)
            gap = min(gap, float(b + p[(x == X).all(-1)].log()) if b < math.inf else math.inf)
            fixed = torch.where(counted, -1, x)
            samples = script.sample_distribution(Ancestral(), method, times, fixed=fixed)
            sampled.see(samples[enumeration.index(X, method.process.K)], p, where)
    yield above(GIVEN, "given a part: bound ≥ -log p, smallest gap", gap, -EXACT, "≥ 0")
    yield drawn.row(GIVEN, "E over the draws of its terms = the bound")
    yield sampled.row(GIVEN, "ancestral with that part fixed samples from p")
    if getattr(method.network, "sees_given", False):
        yield seen.row(GIVEN, "the network sees which positions are given")


@own("given.sum", lambda method: method.bounded and method.parameterization != "insertion")
@torch.no_grad()
def the_bound_leaves_probability_given_a_part(method: Method):
    """Of continuous time, of steps and of autoregression: the texts with a given part have probability 1 at most."""
    if method.process is not None:
        end_at(method, 0.1)
        if not method.block and isinstance(method, Diffusion):
            method = seeing_given(method)
    worst, whole = math.inf, Largest()
    for counted in torch.tensor(patterns(method)):
        x_0 = agreeing(V, torch.ones(L, dtype=torch.long), counted)
        draw = lambda b, g, c=counted: method.bound(Batch(b.tokens, c.expand(b.tokens.shape)), g)  # noqa: E731
        few = nodes(method, loss=False) if isinstance(method, Diffusion) else None
        p = (-bounds.expectation(draw, x_0, few)).exp().sum()
        worst = min(worst, 1 - float(p))
        if method.exact or (isinstance(method, Diffusion) and method.draws_mask_counts):
            whole.see(p, 1.0, f"counted {counted.tolist()}")
    yield above(GIVEN, "given a part: 1 - sum of exp(-bound)", worst, -QUADRATURE, "≥ 0")
    if method.exact or (isinstance(method, Diffusion) and method.draws_mask_counts):
        yield whole.row(GIVEN, "... 0 if one token is left and time is not seen", QUADRATURE)


@shared("given.exact")
@torch.no_grad()
def clamping_is_wrong_and_the_given_time_is_right():
    """3^4 under uniform noise, tokens that agree with their neighbours; exact networks that see which are given,
    or not."""
    length, T = 4, 256
    X = enumeration.states(3, length)
    weights = (2.5 * (X[:, 1:] == X[:, :-1]).sum(-1)).exp()
    exact = enumeration.Denoiser(uniform(3, Linear(1e-4)), weights / weights.sum(), length)
    counted, x_0 = torch.tensor([False, True, True, False]), torch.tensor([0, 0, 0, 1])
    p = exact.distribution[enumeration.index(agreeing(3, x_0, counted), 3)]
    times, clamped = exact.grid(T), lambda x, t: exact.predict(x, t.amax(-1, keepdim=True).expand(t.shape))
    right, wrong = (
        apart(given_distribution(exact.process, predict, times, x_0, counted), p / p.sum())
        for predict in (exact.predict, clamped)
    )
    where = f"{length} tokens of 3, first and last given, {T} steps"
    yield below(GIVEN, "uniform noise: distance from p(rest | given)", right, 0.01, "< 0.01", where)
    yield above(GIVEN, "... of tokens that are only clamped", wrong, 0.1, "> 0.1", f"expected failure; {where}")
