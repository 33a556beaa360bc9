"""The distributions of samplers and bounds, for a network that is not exact and is time-conditioned.

With coarse ends, alpha from 0.7 to 0.3, so that what becomes of them is seen; all of it enumerated or integrated.
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.curves import Polynomial
from zellige.exact import bounds, distributions, enumeration, script
from zellige.methods.absorbing import Masked
from zellige.methods.diffusion import Diffusion
from zellige.samplers import AnyOrder, FirstHitting

from .bound import total
from .check import (
    EXACT,
    QUADRATURE,
    L,
    Largest,
    Row,
    V,
    above,
    below,
    data_distribution,
    discrete,
    end_at,
    of_clean,
    one_alpha,
    own,
    truth_of,
)
from .sampler import SAMPLER

PRECISE = 1e-6
ENDS = (0.3, 0.7)  # alpha(1), alpha(0)
TIMES = 16  # a multiple of it has the times 0 and 1, where the model's rates bend, on its grid over the span


def coarse(method: Diffusion, alpha_1: float = ENDS[0], alpha_0: float = ENDS[1]) -> bool:
    """Return whether the continuous-time distribution can be enumerated; move the ends of alpha far from 1 and 0."""
    if discrete(method) or method.steps or method.clean(Batch(enumeration.states(V, L))) is not None:
        return False
    schedule = getattr(method.process, "schedule", None)
    if isinstance(schedule, Polynomial):
        schedule.begin = 0.1  # t^w, and the time at which alpha has a value, are not smooth at 0
    return end_at(method, alpha_1, alpha_0)


def refined(values: list[Tensor]) -> Tensor:
    """Richardson's value of a sequence with ever half the step: errors of order 1, 2, ... cancelled."""
    for order in range(1, len(values)):
        values = [(2**order * b - a) / (2**order - 1) for a, b in itertools.pairwise(values)]
    return values[0]


@own("sampler.distribution")
@torch.no_grad()
def samplers_have_the_distribution_they_claim(method: Diffusion) -> Iterator[Row]:
    """Against Kolmogorov's equation of the model's rates."""
    if not coarse(method):
        return
    p, limit = of_clean(method, distributions.continuous_distribution(method)), Largest()
    steps = [bounds.log_likelihood(method, method.grid(n * TIMES)).exp() for n in (2, 4, 8, 16)]
    limit.see(refined(steps), p, f"T = {2 * TIMES} to {16 * TIMES}, x_0")
    absorbs = method.process.mask is not None  # else the rates are steep near t = 0
    yield limit.row(SAMPLER, "ancestral, T without end = continuous time", PRECISE if absorbs else QUADRATURE)
    if FirstHitting.reason_against(method) is None and one_alpha(method):
        hitting = Largest()
        hitting.see(of_clean(method, distributions.event_distribution(FirstHitting(), method)), p, "x_0")
        yield hitting.row(SAMPLER, "first_hitting = continuous time", PRECISE)
    if AnyOrder.reason_against(method) is None:
        orders = Largest()
        orders.see(of_clean(method, script.sample_distribution(AnyOrder(), method, L)), p, "x_0")
        yield orders.row(SAMPLER, "any_order = continuous time", PRECISE)


@own("bound.distribution")
@torch.no_grad()
def the_bound_is_one_of_that_distribution(method: Diffusion) -> Iterator[Row]:
    """H + KL <= E of -log p <= E of the bound, and for each text by itself."""
    if not coarse(method):
        return
    x_0, p = enumeration.states(V, L), of_clean(method, distributions.continuous_distribution(method))
    gap = total(method, x_0) + p.log()
    where = f"alpha from {ENDS[1]} to {ENDS[0]}, x_0 = {x_0[int(gap.argmin())].tolist()}"
    yield above("bound", "continuous time: bound ≥ -log p, smallest gap", float(gap.min()), -EXACT, "≥ 0", where)
    if isinstance(method, Masked):
        gap = total(method, x_0, jumps=True) + p.log()
        where = f"expected failure: x_0 = {x_0[int(gap.argmin())].tolist()}"
        yield below("bound", "with a jump at each end: below -log p of it", float(gap.min()), -1e-3, "< 0", where)
    truth, distribution = truth_of(method), data_distribution()
    few = -(distribution * bounds.log_likelihood(truth, truth.grid(1))).sum()
    away = float(few - (distribution * total(truth, truth.x_0)).sum())
    if method.process.mask is not None:
        where = "expected failure: E of -log p of one step, less E of the bound of continuous time, exact network"
        yield above("bound", "continuous time: no bound of one step", away, 1e-3, "≥ 1e-03", where)
