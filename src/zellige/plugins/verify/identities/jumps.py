"""The jumps of a chain in continuous time: draws of a bound after one more jump,
and the distribution of whole paths."""

import torch
from torch import Tensor

from zellige.core import maths
from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN
from zellige.exact import bounds, distributions, enumeration
from zellige.methods.diffusion import Diffusion
from zellige.methods.tauldr import TauLDR

from .bound import BOUND
from .check import QUADRATURE, Largest, above, again, discrete, mild, numbers, own, some_texts
from .draw import nodes


# ---------------------------------------------------------------------------------- x~, the sequence after a jump
@own("bound.jumps", lambda method: isinstance(method, TauLDR))
def tauldr_losses_have_the_bound_as_expectation(method: TauLDR):
    """tauLDR, proposition 2: what is drawn at x_t and at x~, against the generic bound at x_t."""
    value, gradient, x_0 = Largest(), Largest(), some_texts()
    weights = 1.1 + numbers(len(x_0))
    for objective in method.choices["objective"]:
        if objective == "one-pass-biased":
            continue
        variant = again(method, objective=objective, auxiliary=0.0)
        expected = bounds.expectation(variant.loss, x_0, nodes(variant))  # tauLDR proposition 2
        whole = bounds.continuous_terms(variant, x_0)["diffusion"]
        value.see(expected, whole, objective)
        gradient.see_gradients((weights * expected).sum(), (weights * whole).sum(), (variant, variant), objective)
    yield value.row(BOUND, "generic, two-pass, one-pass: E of the loss", QUADRATURE)
    yield gradient.row(BOUND, "... its gradient", QUADRATURE)


@own("bound.published-pass", lambda method: isinstance(method, TauLDR))
@torch.no_grad()
def the_published_pass_is_biased(method: TauLDR):
    """One pass with the first term at x~ without its weight, as if x~ had the distribution of x_t."""
    if method.process.mask is not None:  # at a mask the first term is always 0
        return
    biased, x_0 = again(method, objective="one-pass-biased", auxiliary=0.0), some_texts()
    away = bounds.expectation(biased.loss, x_0, nodes(biased)) - bounds.continuous_terms(method, x_0)["diffusion"]
    where = "expected failure, as published: " + ", ".join(f"{float(a):.3f}" for a in away)
    yield above(BOUND, "one pass without the weight  is another number", float(away.abs().min()), 0.01, "≥ 0.01", where)


# ---------------------------------------------------------------------------------- the distribution of a path
def skeleton(method: Diffusion, x_0: Tensor, steps: int) -> Tensor:
    """KL of the distribution of the noise at the times i/steps, given x_0 and read backwards, from the model's: (M,)
    nats.

    The model's transition between two times is that of its jump process, positions together: the exponential of its
    rates, by Magnus' formula of order 4. Nothing of a bound is used.
    """
    context = method.clean(Batch(x_0))
    if context is not None and len(x_0) > 1:
        return torch.cat([skeleton(method, x, steps) for x in x_0.split(1)])
    P, total = method.process, torch.zeros(len(x_0), dtype=torch.float64)
    times, h = torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float64), 1 / steps
    early, late = (
        distributions.generator(method, times[1:] - h * (0.5 + c), context)
        for c in (-distributions.ROOT, distributions.ROOT)
    )
    backwards = distributions.magnus(early, late, h)  # in the order of the model
    q = enumeration.index(x_0, P.K)
    distribution = torch.kron(P.matrix(CLEAN, 0.0), P.matrix(CLEAN, 0.0))[q]
    for s, t, back in zip(times[:-1], times[1:], backwards):
        Q = P.matrix(s, t)
        joint = distribution[:, :, None] * torch.kron(Q, Q)  # of (x_s, x_t)
        distribution = joint.sum(1)
        forward = joint / torch.where(distribution > 0, distribution, 1.0)[:, None]
        total = total + (maths.xlogy(joint, forward) - maths.xlogy(joint, back.T)).sum((1, 2))
    return total


@own("bound.path")
@torch.no_grad()
def the_bound_is_a_divergence_of_paths(method: Diffusion):
    """The diffusion term is the KL of two path measures (Girsanov), the limit of that of ever finer skeletons."""
    if discrete(method):
        return
    method, worst, x_0 = mild(method), Largest(), some_texts()
    a, b, c = (skeleton(method, x_0, steps) for steps in (32, 64, 128))
    limit = (4 * (2 * c - b) - (2 * b - a)) / 3  # errors in 1/T cancelled, then those in 1/T^2
    worst.see(limit, bounds.continuous_terms(method, x_0)["diffusion"], "T = 32, 64, 128, x_0")
    yield worst.row(BOUND, "the same as KL of distributions of paths", QUADRATURE)
