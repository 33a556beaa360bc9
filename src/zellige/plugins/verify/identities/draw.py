"""Expectations over all that a method draws: of its terms, losses and estimators."""

import torch
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.prediction import posterior, score, score_given
from zellige.core.schedule import CLEAN
from zellige.exact import bounds, enumeration
from zellige.methods import MD4, SEDD, UDLM
from zellige.methods.diffusion import Diffusion, between
from zellige.methods.score import Scored

from .bound import BOUND, free_of_time, total
from .check import (
    EXACT,
    INSIDE,
    QUADRATURE,
    L,
    Largest,
    V,
    above,
    again,
    data_distribution,
    end_at,
    even,
    numbers,
    own,
    pairs,
    some_texts,
)


def nodes(method: Diffusion, loss: bool = True) -> tuple[Tensor, Tensor]:
    """For `exact.expectation`: the T steps, or a quadrature with a part for each number of masks where that is drawn.

    A loss draws one of all steps, a bound one of those between the ends.
    """
    if not method.steps:
        if method.process.mask is not None and not method.block:  # of what is revealed in an end a number stays masked
            return bounds.parts(L)
        blocks = 1 if method.clean(Batch(enumeration.states(V, L))) is None else L  # their times are spread over (0, 1)
        return bounds.parts(L) if method.draws_mask_counts else bounds.parts(blocks, 72)
    n = method.steps if loss else max(1, len(between(method, method.steps)))
    return even(n)


def total_of_loss(method: Diffusion, x_0: Tensor) -> Tensor:
    """The bound that a loss which is one has as its expectation: with jumps at its ends, if it has ends."""
    has_none = getattr(method.config, "loss", "").endswith("dce") and method.config.loss != "t-dce"
    return total(method, x_0, jumps=not has_none)


@own("bound.draws")
def draws_have_the_bound_as_expectation(method: Diffusion):
    """Draws are enumerated: times by quadrature, tokens one by one."""
    value, gradient, x_0 = Largest(), Largest(), some_texts()
    end_at(method, 0.1)  # so that the ends are seen, which are of order alpha(1)^2
    with torch.set_grad_enabled(not method.loss_is_bound):
        expected = bounds.expectation(method.bound, x_0, nodes(method, loss=False))
        bound = total(method, x_0)
    value.see(expected.detach(), bound.detach(), "x_0")
    if not method.steps and method.span != (0.0, 1.0):  # else it has no ends that are passed otherwise
        with torch.no_grad():
            jumps = bounds.expectation(lambda *draw: sum(method.jump_terms(*draw).values()), x_0, nodes(method))  # pyright: ignore
            value.see(jumps, total(method, x_0, jumps=True), "x_0, with a jump at each end")
    yield value.row(BOUND, "E over the draws of its terms = the bound", QUADRATURE)
    if method.loss_is_bound:
        expected, bound = bounds.expectation(method.loss, x_0, nodes(method)), total_of_loss(method, x_0)
    weights, of = 1.1 + numbers(len(x_0)), "the loss" if method.loss_is_bound else "the bound"
    gradient.see_gradients((weights * expected).sum(), (weights * bound).sum(), (method, method), of)
    yield gradient.row(BOUND, "E of the drawn gradient = its gradient", QUADRATURE)


@own("bound.losses")
@torch.no_grad()
def losses_are_any_order_likelihoods(method: Diffusion):
    """RADD's four losses have one expectation when alpha runs from 1 to 0;
    so has the loss of every time-free method."""
    free = free_of_time(method, Linear(0.0))
    if free is None or not free.loss_is_bound or method.time_conditioned:
        return
    worst, x_0 = Largest(), enumeration.states(V, L)
    worst.see(bounds.expectation(free.loss, x_0), bounds.any_order(free, x_0), "x_0")
    yield worst.row(BOUND, "alpha from 1 to 0: E of the loss = any order", QUADRATURE)


@own("bound.losses-term", lambda m: isinstance(m, Scored))
@torch.no_grad()
def the_loss_of_scores_is_one_term(method: Diffusion):
    """SEDD's loss is the diffusion term alone."""
    worst, x_0 = Largest(), some_texts()
    term = bounds.continuous_terms(method, x_0)["diffusion"]
    worst.see(bounds.expectation(method.loss, x_0, nodes(method)), term, "x_0")
    yield worst.row(BOUND, "E of the loss = the diffusion term", QUADRATURE)


@own("bound.estimators")
@torch.no_grad()
def estimators_are_likelihoods_or_bounds(method: Diffusion):
    x_0 = enumeration.states(V, L)
    for name, estimator in method.estimators().items():
        p = (-bounds.expectation(estimator, x_0)).exp().sum()
        if estimator.exact:
            worst = Largest()
            worst.see(p, 1.0, "the sum")
            yield worst.row(BOUND, f"estimator {name}: exp(-it) sums to 1")
        else:
            yield above(BOUND, f"1 - sum of exp(-E), estimator {name}", 1 - float(p), -EXACT, "≥ 0")


@own("bound.squared-loss", lambda m: isinstance(m, SEDD))
@torch.no_grad()
def the_squared_loss_leads_to_the_true_score(method: SEDD):
    """Over x_0 given x_t it is the squared error from the true score, and the variance of u,
    which no network changes."""
    mean, drawn, p_0 = Largest(), Largest(), data_distribution()
    squared, exact = again(method, loss="squared"), enumeration.Denoiser(method.process, p_0, L, "score")
    for t in INSIDE:
        x_0, x_t, time, q = pairs(method.process, t)
        inputs = squared.logits(squared.hidden(x_t, time)).flatten(0, 1), x_0.flatten(), x_t.flatten(), time.flatten()
        values = squared.squared(*inputs).reshape(x_t.shape).sum(-1)
        v, w = (score(of.predict(x_t, time)) for of in (squared, exact))
        u, rates = score_given(method.process, x_0, x_t, time), method.process.rate_into(x_t, time)
        joint = p_0[enumeration.index(x_0, V)] * q
        errors = (rates * ((v - w).square() + (u - w).square())).sum((-1, -2)) / 2
        mean.see(joint @ values, joint @ errors, f"t = {t}")
        drawn.see(
            bounds.expectation(squared.loss, enumeration.states(V, L), _node(t)), _by_text(x_0, q * values), f"t = {t}"
        )
    yield mean.row(BOUND, "squared loss = (v - true score)^2 + a constant")
    yield drawn.row(BOUND, "... E of what is drawn at a time")


def _by_text(x_0: Tensor, values: Tensor) -> Tensor:
    """The sum of values (N,) for each text of x_0 (N, L), (V^L,)."""
    return torch.zeros(V**L, dtype=torch.float64).index_add(0, enumeration.index(x_0, V), values)


def _nll(mean: Tensor, x_0: Tensor) -> Tensor:
    """-log of the probability of x_0 (N, L) by a mean (N, L, K) at each position: (N, L)."""
    return -mean.gather(-1, x_0[..., None])[..., 0].log()


def _node(t: float) -> tuple[Tensor, Tensor]:
    """A quadrature of one time, as a loss draws it."""
    return torch.tensor([1 - t]).double(), torch.ones(1).double()


@own("bound.unweighted-loss", lambda m: type(m) is MD4 and not m.steps)
@torch.no_grad()
def the_unweighted_loss_leads_to_the_true_posterior(method: MD4):
    """MaskGIT's: the cross-entropy at the masks; over x_0 given x_t it is a divergence from the truth,
    and an entropy."""
    mean, drawn, p_0, X = Largest(), Largest(), data_distribution(), enumeration.states(V, L)
    loss, exact = again(method, loss="maskgit"), enumeration.Denoiser(method.process, p_0, L)
    drawn.see(float(loss.loss_is_bound), 0.0, "it is no bound")
    for t in INSIDE:
        x_0, x_t, time, q = pairs(method.process, t)
        mu, w = (posterior(of.predict(x_t, time)).double() for of in (loss, exact))
        masks = x_t == method.process.mask
        values = torch.where(masks, _nll(mu, x_0), 0.0).sum(-1)
        cross = -torch.where(w > 0, w * mu.log(), 0.0).sum(-1)
        joint = p_0[enumeration.index(x_0, V)] * q
        mean.see(joint @ values, joint @ torch.where(masks, cross, 0.0).sum(-1), f"t = {t}")
        drawn.see(bounds.expectation(loss.loss, X, _node(t)), _by_text(x_0, q * values), f"t = {t}")
    yield mean.row(BOUND, "MaskGIT's loss = cross-entropy from the truth")
    yield drawn.row(BOUND, "... E of what is drawn at a time")


@own("bound.unrolled-loss", lambda m: type(m) is UDLM and not m.steps)
@torch.no_grad()
def the_unrolled_loss_is_its_definition(method: UDLM):
    """SUNDAE's, both texts followed; and with the first token given, which is neither noised, drawn nor counted."""
    drawn, X, position = Largest(), enumeration.states(V, L), torch.arange(L)
    loss = again(method, loss="sundae")
    drawn.see(float(loss.loss_is_bound), 0.0, "it is no bound")
    for t, given in ((INSIDE[0], False), (INSIDE[1], False), (INSIDE[1], True)):
        free, where = torch.tensor([not given, True]), f"t = {t}, {'the first token' if given else 'nothing'} given"
        time = torch.where(free, t, CLEAN).double().expand(len(X), L)
        mean = posterior(loss.predict(X, time)).double()
        to = mean[:, position, X]  # (N, N, L): from each text to each
        noise = method.process.likelihood(X, CLEAN, torch.full((len(X), L), t, dtype=torch.float64))
        for x_0 in some_texts():
            same, missed = (x_0 == X).double(), torch.where(free, _nll(mean, x_0.expand(len(X), L)), 0.0).sum(-1)
            q = torch.where(free, noise[:, position, x_0], same).prod(-1)
            expected = (q @ missed + q @ torch.where(free, to, same).prod(-1) @ missed) / 2
            draw = lambda b, script: loss.loss(Batch(b.tokens, free.expand(b.tokens.shape)), script)  # noqa: B023, E731
            drawn.see(bounds.expectation(draw, x_0[None], _node(t)), expected, where)
    yield drawn.row(BOUND, "SUNDAE's loss: E of what is drawn at a time")
