"""Samplers on a method."""

import math
from typing import Any

import torch

from .. import exact
from ..method import Method
from ..samplers import Ancestral, FirstHitting
from .bound import grid
from .check import (
    L,
    Largest,
    Row,
    data_law,
    near,
    own,
)

SAMPLER = "sampler"


def distance(method: Method, sampler: Any, steps: int) -> float:
    """Total variation between the law of the sampler's samples and the data's, with the exact network."""
    denoiser = exact.Denoiser(method.process, data_law(), L, method.predicts)
    law = exact.sample_law(sampler, denoiser, steps)
    return float((law - exact.embed(method.process, data_law(), L)).abs().sum()) / 2


def _order(method: Method, sampler: Any, identity: str) -> Row:
    """The order in 1/T at which the law of the samples approaches the data's; the claim is 1."""
    a, b = (distance(method, sampler, T) for T in (128, 256))
    return near(SAMPLER, identity, math.log2(a / b), 1.0, 0.15, f"distance {a:.2e} at T = 128, {b:.2e} at T = 256")


GIVEN = torch.tensor([1, -1])


@own("sampler.ancestral")
def _(method: Method):
    yield _order(method, Ancestral(), "ancestral  order in 1/steps, claims 1")


@own("sampler.ancestral-cosine")
def _(method: Method):
    yield _order(method, Ancestral("cosine"), "ancestral, cosine grid  order, claims 1")


@own("sampler.choose")
@torch.no_grad()
def _(method: Method):
    if method.process.mask is None:
        return
    worst = Largest()
    for T in (1, 2, 5):
        chosen, plain = (exact.sample_law(Ancestral(choose=c), method, T) for c in (True, False))
        worst.see(chosen, plain, f"T = {T}")
        clean = plain[method.process.clean[exact.states(method.process.K, L)].all(-1)]
        worst.see(clean, exact.log_likelihood(method, grid(method, T)).exp(), f"T = {T}, and p(x) of the model")
    yield worst.row(SAMPLER, "choose-then-ask = the plain kernel = p(x)")


@own("sampler.first_hitting")
@torch.no_grad()
def _(method: Method):
    if method.process.mask is None:
        return
    worst, law = Largest(), exact.embed(method.process, data_law(), L)
    denoiser = exact.Denoiser(method.process, data_law(), L)
    worst.see(exact.sample_law(FirstHitting(), denoiser, L), law, "exact network")
    yield worst.row(SAMPLER, "first_hitting  law = the data's")


@own("sampler.infill")
@torch.no_grad()
def _(method: Method):
    if method.process.mask is None:
        return
    X, worst = exact.states(method.process.K, L), Largest()
    law = exact.embed(method.process, data_law(), L) * ((GIVEN == X) | (GIVEN < 0)).all(-1)
    denoiser = exact.Denoiser(method.process, data_law(), L)
    worst.see(exact.sample_law(FirstHitting(), denoiser, L, GIVEN), law / law.sum(), "given [1, _]")
    worst.see(exact.sample_law(Ancestral(), denoiser, 16, GIVEN), law / law.sum(), "one gap: ancestral, 16 steps")
    yield worst.row(SAMPLER, "infilling  law = the exact conditional law")
