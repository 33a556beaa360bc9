"""Methods without a process: the concrete score, what its losses draw,
and the chain that keeps a distribution by it."""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from zellige.core import maths
from zellige.exact import bounds, enumeration, metropolis, script
from zellige.methods.csm import BASELINES
from zellige.methods.csm_neighbourhood import Neighbourhood
from zellige.methods.method import Method
from zellige.samplers import Metropolis, Sampler
from zellige.samplers.metropolis import OverNeighbours

from .check import L, Largest, V, above, apart, data_distribution, even, of_order, own

SCORE = "score: no process, neighbours of a text"


def concrete(method: Method) -> bool:
    """Return whether the method has a score over a neighbourhood, without a process."""
    return method.process is None and method.parameterization == "score"


# ---------------------------------------------------------------------------------- the score
def _density(z: Tensor) -> Tensor:
    """A density on the plane, (*, 2) -> (*), not normalised."""
    a, b = z.unbind(-1)
    return torch.exp(-((a - b**2 / 4) ** 2) / 2 - b**2 / 3) + 0.3 * torch.exp(-((a + 1) ** 2 + (b - 1) ** 2) / 2)


def _gap(neighbourhood: type[Neighbourhood], size: int) -> float:
    """The largest |c / delta - d log p| in a window of the plane, cut into size x size cells of width delta."""
    delta = 4 / (size - 1)
    X = enumeration.states(size, 2)
    z = -2 + delta * X.double()
    pred = metropolis.Scores(neighbourhood(size), _density(z), 2).predict(X, 0.0)
    c = pred.v - 1
    gradient = torch.func.vmap(torch.func.grad(lambda z: _density(z).log()))(z)
    inner = ((X > 0) & (size - 1 > X)).all(-1)
    up = c.gather(-1, (X + 1).clamp_max(size - 1)[..., None])[..., 0] / delta
    return float((up - gradient)[inner].abs().max())


@own("score.gradient", concrete)
@torch.no_grad()
def score_is_the_gradient_of_a_density(method: Method):
    """For tokens that are the cells of a discretised density."""
    arrows: Any = method.neighbourhood
    if not bool(arrows.of(torch.tensor(0))[1]):
        return  # no arrow to the next cell
    gaps = [_gap(type(arrows), size) for size in (65, 129)]
    where = f"largest error {gaps[0]:.3f} for 64 cells a side, {gaps[1]:.3f} for 128"
    yield of_order(SCORE, "c / delta = grad log p, its order in delta", gaps[0], gaps[1], 1.0, 0.1, where)


# ---------------------------------------------------------------------------------- its losses
def explicit(method: Method, distribution: Tensor) -> tuple[Tensor, Tensor]:
    """Quantity that the loss estimates, from the true scores of `distribution`, for each text (V^L,); and the constant
    that the loss leaves out.

    The square of the difference of the scores, or the score entropy, over the neighbours; both 0 at the true scores.
    """
    chain = cast(OverNeighbours, method)
    arrows = chain.neighbourhood
    X = enumeration.states(arrows.size, method.shape[0])
    prediction, true = chain.predict(X, 0.0), metropolis.Scores(arrows, distribution, method.shape[0]).predict(X, 0.0)
    u, v, at = true.v, prediction.v, arrows.of(X)
    if method.config.objective == "score-entropy":
        terms, constant = maths.score_entropy(u, v), maths.xlogy(u, u) - u
    else:
        terms, constant = (u - v).square(), (u - 1).square()
    return ((terms * at).sum((1, 2)), (distribution * (constant * at).sum((1, 2))).sum())


def forecasts(method: Method, distribution: Tensor) -> tuple[Tensor, Tensor]:
    """What ratio matching and marginalisation estimate, over all texts, and the constant that is in the loss beside it.

    From p(y | the other tokens), and from the network's at each text; a text is read with p(the other tokens) / V, its
    own token at i drawn anew.
    """
    chain = cast(OverNeighbours, method)
    X = enumeration.states(V, L)
    u, v = (m.predict(X, 0.0).v for m in (metropolis.Scores(chain.neighbourhood, distribution, L), chain))
    p, q = (w / w.sum(-1, keepdim=True) for w in (u, v))
    weight = distribution[:, None] * u.sum(-1) / V  # p(x_-i) / V, (V^L, L)
    if method.config.objective == "ratio-matching":
        terms, constant = (p - q).square().sum(-1) / 2, (1 - p.square().sum(-1)) / 2
    else:
        terms, constant = (p * (1 / p - 1 / q).square()).sum(-1), -(1 / p).sum(-1)
    return (weight * terms).sum(), (weight * constant).sum()


def noised(distribution: Tensor, noise: float) -> Tensor:
    """q(z | x) of one noise step, (V^L, V^L): with chance `noise` a token is drawn anew."""
    single = (1 - noise) * torch.eye(V, dtype=distribution.dtype) + noise / V
    whole = torch.ones(1, 1, dtype=distribution.dtype)
    for _ in range(L):
        whole = torch.kron(whole, single)
    return whole


@own("score.objective", concrete)
def losses_are_the_explicit_ones(method: Method):
    value, gradient, distribution, X = Largest(), Largest(), data_distribution(), enumeration.states(V, L)
    expected = (distribution * bounds.expectation(method.loss, X, even(1))).sum()
    if method.config.objective == "denoising":
        q = noised(distribution, method.config.noise)
        whole, left_out = explicit(method, distribution @ q)
        arrows: Any = method.neighbourhood
        ratio = q[:, metropolis.moved(X, V)] / q[:, :, None, None]  # q(y | x) / q(z | x): (x, z, L, V)
        squares = ((ratio - 1).square() * arrows.of(X)).sum((2, 3))
        true, constant = ((distribution @ q) * whole).sum(), (distribution[:, None] * q * squares).sum() - left_out
    elif method.config.objective in BASELINES:
        true, constant = forecasts(method, distribution)
    else:
        whole, left_out = explicit(method, distribution)
        true, constant = (distribution * whole).sum(), -left_out
    value.see(expected, true + constant, "the data's distribution")
    yield value.row(SCORE, "E of the loss = the explicit one + a constant")
    gradient.see_gradients(expected, true, (method, method), "the data's distribution")
    yield gradient.row(SCORE, "... its gradient")


# ---------------------------------------------------------------------------------- along a path
@own("score.path", concrete)
@torch.no_grad()
def ratios_multiply_along_any_path(method: Method):
    """p(x) / p(x') from the ratios of neighbours, from each text to each, and with the positions in either order."""
    worst, distribution, X, truth = Largest(), data_distribution(), enumeration.states(V, L), true_scores(method)
    x, y = X.repeat_interleave(len(X), 0), X.repeat(len(X), 1)
    ratio = (distribution.repeat_interleave(len(X)) / distribution.repeat(len(X))).log()
    for order in (range(L), range(L - 1, -1, -1)):
        worst.see(metropolis.log_ratio(truth, x, y, order), ratio, f"positions {list(order)}")
        worst.see(metropolis.path_distribution(truth, order), distribution, f"all texts, positions {list(order)}")
    yield worst.row(SCORE, "true scores: p(x)/p(x') along any path")
    if method.positive:
        sums = [metropolis.log_ratio(method, x, y, order) for order in (range(L), range(L - 1, -1, -1))]
        gap, where = float((sums[0] - sums[1]).abs().max()), "expected failure: scores of no distribution"
        yield above(SCORE, "a network's scores: two paths differ, nats", gap, 0.01, "≥ 0.01", where)


# ---------------------------------------------------------------------------------- the chain
def matrix(sampler: Sampler, method: Method, fixed: Tensor | None = None) -> Tensor:
    """The transition matrix of one proposal, by enumeration of the sampler's own draws: (V^L, V^L)."""
    X = enumeration.states(V, L)
    state = sampler.init(method, (len(X), L), fixed=fixed)
    zero = torch.zeros(len(X), 1, dtype=torch.float64)
    return script.transition(sampler, method, replace(state, x=X), zero, zero)


def true_scores(method: Method) -> Method:
    return metropolis.Scores(method.neighbourhood, data_distribution(), L)


@own("score.invariant", concrete)
@torch.no_grad()
def scores_keep_their_distribution(method: Method):
    """The matrix that `exact.metropolis` makes of the scores at once, and the one of the sampler's code."""
    worst, zero = Largest(), Largest()
    x, y, chance = metropolis.transitions(method)
    P = torch.zeros(V**L, V**L, dtype=torch.float64).index_put((x, y), chance)
    P.diagonal().add_(1 - P.sum(-1))
    worst.see(matrix(Metropolis(), method), P, "from, to")
    distribution = metropolis.invariant(method)
    worst.see(distribution @ P, distribution, "the distribution that it keeps")
    yield worst.row(SCORE, "invariant p = that of the sampler's matrix")
    zero.see(metropolis.divergence(data_distribution(), true_scores(method)), 0.0, "the data's distribution")
    yield zero.row(SCORE, "true scores: KL(data || invariant) = 0")


class _NoFactor(Metropolis):
    """Without the Hastings factor."""

    def hastings(self, d_x, d_y):
        return torch.ones_like(d_x)


@own("sampler.metropolis", concrete)
@torch.no_grad()
def metropolis_keeps_the_data_distribution(method: Method):
    distribution, truth = data_distribution(), true_scores(method)
    P, stationary, balance = matrix(Metropolis(), truth), Largest(), Largest()
    stationary.see(distribution @ P, distribution, "the data's distribution")
    flow = distribution[:, None] * P
    balance.see(flow, flow.T, "from, to")
    yield stationary.row("sampler", "metropolis  keeps the data's p: p P = p")
    yield balance.row("sampler", "... in detailed balance with it")
    fixed = torch.tensor([1, -1])
    joint = torch.where((enumeration.states(V, L)[:, 0] == 1), distribution, 0.0)
    conditional = Largest()
    conditional.see(joint @ matrix(Metropolis(), truth, fixed), joint, "given [1, _]")
    yield conditional.row("sampler", "metropolis, infilling  keeps the conditional")


@own("sampler.metropolis-hastings", concrete)
@torch.no_grad()
def without_the_hastings_factor_it_is_wrong(method: Method):
    arrows: Any = method.neighbourhood
    degree = arrows.degree
    if bool((degree == degree[0]).all()):
        return  # the factor is 1
    P, distribution = matrix(_NoFactor(), true_scores(method)), data_distribution()
    where = "expected failure: |p P - p|, where texts have different numbers of neighbours"
    away = apart(distribution @ P, distribution)
    yield above("sampler", "metropolis without the Hastings factor  wrong", away, 0.01, "≥ 0.01", where)
