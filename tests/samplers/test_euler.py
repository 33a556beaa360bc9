"""Euler: 1 + h R at the point, position by position; its order; where it is the reverse kernel."""

import math

import pytest
import torch

from testing.pairs import close, denoiser, distance, genmd4, md4, mdlm, sedd
from testing.worlds import CTMC, L, V, data_distribution, generator_matrix, per_token
from zellige import exact
from zellige.core.curves import Cosine, Linear, Polynomial
from zellige.core.prediction import kernel, reverse_rate
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.samplers import Ancestral, Euler, State

METHODS = {
    "md4": md4,
    "genmd4": genmd4,
    "sedd, absorbing": sedd,
    "sedd, uniform": lambda: sedd(True),
    "ctmc": lambda: denoiser(CTMC(generator_matrix(V))),
}


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_a_step_is_a_product_of_one_plus_h_R(name):
    """Also where that is chosen first and asked later, and where entries are clipped."""
    method = METHODS[name]()
    K = method.process.K
    X = exact.states(K, L)
    state = State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X)))
    for t, s in ((0.6, 0.5), (0.9, 0.1), (1.0, 0.8), (0.3, CLEAN), *([(PRIOR, 0.7)] if method.process.mask else [])):
        time, later = (torch.full((len(X), 1), u, dtype=torch.float64) for u in (t, s))
        pred = method.predict(X, time)
        if t >= 1 or s == CLEAN:
            each = kernel(pred, later.expand(X.shape))
        else:
            h_R = (t - s) * reverse_rate(pred)
            each = (torch.nn.functional.one_hot(X, K) * (1 - h_R.sum(-1, keepdim=True)) + h_R).clamp_min(0.0)
            each = each / each.sum(-1, keepdim=True)
        expected = torch.stack([each[:, i, X[:, i]] for i in range(L)]).prod(0)
        possible = expected.sum(-1) > 0.5  # from the prior only masks, from a clean end what has a distribution
        possible &= (method.process.mask == X).all(-1) if t == PRIOR else torch.ones_like(possible)
        for choose in (True, False):
            ours = exact.transition(Euler(choose=choose), method, state, time, later)
            close(ours[possible], expected[possible], rtol=0, atol=1e-10)


PROCESSES = {
    "absorbing, cosine": absorbing(V + 1, Cosine(1e-3)),
    "an exponent per token": absorbing(V + 1, Polynomial(per_token(1.0, 1.3, 2.5, 1.0))),
    "uniform": uniform(V, Linear()),
    "ctmc": CTMC(4 * generator_matrix(V)),
}


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("predicts", ["mean", "score"])
@torch.no_grad()
def test_euler_converges_with_order_1(name, predicts):
    P = PROCESSES[name]
    method, data = denoiser(P, predicts), exact.embed(P, data_distribution(), L)
    a, b = (distance(exact.sample_distribution(Euler(), method, T), data) for T in (128, 256))
    assert math.log2(a / b) == pytest.approx(1.0, abs=0.15)
    assert b < 0.02


@torch.no_grad()
def test_for_loglinear_masks_it_is_the_reverse_kernel():
    """h weight(t) = (t - s)/t = (alpha_s - alpha_t)/(1 - alpha_t): the Euler and analytic samplers of RADD and SEDD are one."""
    for T in (1, 2, 5):
        euler, ancestral = (exact.sample_distribution(sampler, mdlm(), T) for sampler in (Euler(), Ancestral()))
        close(euler, ancestral, rtol=0, atol=1e-12)
