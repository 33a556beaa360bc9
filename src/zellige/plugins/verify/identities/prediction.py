"""Predictions: the same checks for every method."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zellige.core.prediction import (
    LeaveOneOut,
    as_leave_one_out,
    as_mean,
    as_score,
    kernel,
    posterior,
    restricted,
    reverse,
    reverse_rate,
    score,
)
from zellige.core.process import Process
from zellige.core.schedule import CLEAN
from zellige.exact import enumeration
from zellige.methods.diffusion import Diffusion

from .check import INSIDE, L, Largest, data_distribution, marginal, own, processes, reachable, shared

PREDICTION = "prediction: mean, leave-one-out, score at the exact network"


def _three(P: Process, X: Tensor, time: Tensor) -> dict[str, Any]:
    return {
        k: enumeration.Denoiser(P, data_distribution(), L, k).predict(X, time)
        for k in ("mean", "leave_one_out", "score")
    }


def _same(worst: Largest, of: Callable[[Any], Tensor], convert: bool = False) -> None:
    for (name, P), t in itertools.product(processes().items(), INSIDE):
        X, time, _ = reachable(P, t)
        three = _three(P, X, time)
        reference = of(three["mean"])
        for kind, pred in three.items():
            forms = [f(pred) for f in (as_mean, as_leave_one_out, as_score)] if convert else [pred]
            for form in forms:
                worst.see(of(form), reference, f"{name}, t = {t}: {kind}")


@shared("prediction.bayes")
def reverse_kernel_is_bayes_rule():
    worst = Largest()
    for (name, P), t, s in itertools.product(processes().items(), INSIDE, [CLEAN, 0.0625]):
        X, time, p_t = reachable(P, t)
        p_s = marginal(P, s)
        Q = torch.kron(P.matrix(s, t), P.matrix(s, t))[:, enumeration.index(X, P.K)]
        whole = (p_s[:, None] * Q / p_t).T.reshape(-1, P.K, P.K)  # p(x_s | x_t) on K^L
        kernels = reverse(enumeration.Denoiser(P, data_distribution(), L).predict(X, time), s)
        worst.see(kernels, torch.stack([whole.sum(2), whole.sum(1)], 1), f"{name}, {t} to {s}")
    yield worst.row(PREDICTION, "reverse kernel = Bayes' rule on K^L")


@shared("prediction.kernel")
def parameterizations_have_one_kernel():
    worst = Largest()
    for s in (CLEAN, 0.0, 0.0625):
        _same(worst, lambda pred, s=s: reverse(pred, s))
    yield worst.row(PREDICTION, "same reverse kernel p(x_s | x_t)")


@shared("prediction.rate")
def parameterizations_have_one_rate():
    worst = Largest()
    _same(worst, reverse_rate)
    yield worst.row(PREDICTION, "same reverse rate")


@shared("prediction.convert")
def parameterizations_convert():
    worst = Largest()
    _same(worst, lambda pred: reverse(pred, 0.0625), convert=True)
    _same(worst, reverse_rate, convert=True)
    yield worst.row(PREDICTION, "each converts into each: same kernel and rate")


@shared("prediction.mask")
def score_at_a_mask_sums_to_the_odds():
    worst = Largest()
    for name in ("absorbing, linear", "absorbing, cosine"):
        P = processes()[name]
        for t in INSIDE:
            X, time, _ = reachable(P, t)
            odds = P.schedule.alpha(t) / (1 - P.schedule.alpha(t))
            for kind, pred in _three(P, X, time).items():
                v = score(pred)[P.mask == X]
                worst.see(v[:, P.clean].sum(-1), odds, f"{name}, t = {t}: {kind}")
    yield worst.row(PREDICTION, "score at a mask sums to alpha/(1 - alpha)")


@shared("prediction.underflow")
def a_token_that_is_seen_is_possible():
    """Of absorbing noise, by a network that rounds the probability of a visible token to 0: it stays."""
    worst, P = Largest(), processes()["absorbing, linear"]
    x_t = torch.arange(P.K)[P.clean]
    mu, time = torch.nn.functional.one_hot(x_t.roll(1), P.K).double(), torch.full(x_t.shape, 0.6, dtype=torch.float64)
    for (kind, make), s in itertools.product({"mean": restricted, "leave-one-out": LeaveOneOut}.items(), [CLEAN, 0.2]):
        worst.see(kernel(make(P, mu, x_t, time), s), P.one_hot(x_t).double(), f"{kind}, to {s}")
    yield worst.row(PREDICTION, "a visible token of probability 0 stays")


@own("prediction.clean")
@torch.no_grad()
def what_is_no_data_has_no_probability(method: Diffusion):
    """At every x_t, of the method's own network: no probability of the mask."""
    if bool(method.process.clean.all()):
        return
    worst = Largest()
    for t in INSIDE:
        X, time, _ = reachable(method.process, t)
        worst.see(posterior(method.predict(X, time))[..., ~method.process.clean], 0.0, f"t = {t}")
        worst.see(posterior(method.predict(X, time)).sum(-1), 1.0, f"t = {t}, the sum")
    yield worst.row(PREDICTION, "p(x_0 | x_t) of the mask is 0")
