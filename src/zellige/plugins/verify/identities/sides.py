"""Both sides of -log p: what the draws that weigh a text (`samplers.replay`) make of its probability, and of its bound.

A model of T steps of its own is one chain: the same T steps are what its bound counts, what weighs its texts, what
draws them where nobody says how many, and the only times that its network is asked at. Here it has three, and it sees
the time.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from zellige.core.batch import Batch
from zellige.exact import bounds, distributions, enumeration, script
from zellige.methods.diffusion import Diffusion
from zellige.samplers import Ancestral
from zellige.samplers.first_hitting import FirstHitting
from zellige.samplers.pairing import not_absorbing
from zellige.samplers.predict import expected_time
from zellige.samplers.replay import Path, Replayed, Trajectory, path_of, weigh

from .bound import BOUND, total
from .check import EXACT, L, Largest, Row, V, above, again, mild, of_clean, own, state_of
from .distributions import PRECISE

STEPS = 3  # of the chain


def few_steps(method: Diffusion) -> Diffusion:
    """The method with `STEPS` steps, time-conditioned, if it has steps of its own; else with coarse ends (`mild`)."""
    if method.steps:
        more = {"time": True} if hasattr(method.config, "time") else {}
        return again(method, diffusion_steps=STEPS, **more)  # pyright: ignore[reportReturnType]
    return mild(method)


def expected(method: Diffusion, path: Path, x_0: Tensor) -> Tensor:
    """E of w, -log w and 1/w over all that the path draws for each text (M, L): (3, M) float64."""
    u, share = hits(method, path)
    x, u = x_0.repeat_interleave(len(share), 0), 1 - u.repeat(len(x_0), 1)
    mean = torch.zeros(3, len(x), dtype=torch.float64)
    draw = lambda rows, source: weigh(method, Batch(x[rows]), path, source).log_w.sum(-1)  # noqa: E731
    for rows, log_w, p in script.branches(draw, len(x), uniforms=u):
        mean.index_add_(1, rows, p * torch.stack((log_w.exp(), -log_w, (-log_w).exp())))
    return (mean.reshape(3, len(x_0), -1) * share).sum(-1)


def hits(method: Diffusion, path: Path) -> tuple[Tensor, Tensor]:
    """Uniforms (N, n) that give a path the times of its tokens, and the weight of each, (N,): a quadrature,
    or nothing."""
    u, share = torch.zeros(1, 0).double(), torch.ones(1).double()
    if isinstance(path, Replayed) and isinstance(path.sampler, FirstHitting):
        block = min(method.block or L, L)
        for _ in range(0, L, block):
            more, weight = distributions.hits(method, block, 24)
            u = torch.cat((u.repeat_interleave(len(more), 0), more.repeat(len(u), 1)), 1)
            share = (share[:, None] * weight).reshape(-1)
    return u, share


def of_own_samples(method: Diffusion, path: Path) -> Tensor:
    """The sum of 1/w over the samples that are this text, for each text, (M,):
    1 if w is that of the z that was drawn."""
    u, share = hits(method, path)
    total, K = torch.zeros(method.process.K**L, dtype=torch.float64), method.process.K

    def draw(rows: Tensor, source: Any) -> tuple[Tensor, Tensor]:
        written = weigh(method, Batch(torch.zeros(len(rows), L, dtype=torch.long)), path, source, draw=True)
        return written.x, written.log_w.sum(-1)

    for rows, (x, log_w), p in script.branches(draw, len(share), uniforms=1 - u):
        total.index_add_(0, enumeration.index(x, K), p * share[rows] * (-log_w).exp())
    return of_clean(method, total)


@own("bound.sides")
@torch.no_grad()
def the_two_sides_are_those_of_the_bound(method: Diffusion) -> Iterator[Row]:
    """The distribution is found without the path: of T steps by the kernels,
    of continuous time by Kolmogorov's equation."""
    if method.exact:
        return
    method = few_steps(method)
    x_0, path = enumeration.states(V, L), path_of(method, STEPS)
    times = method.grid(method.steps or STEPS)
    of_steps = bool(method.steps) or isinstance(path, Trajectory)
    w, minus_log, inverse = expected(method, path, x_0)
    integrated = isinstance(path, Replayed) and isinstance(path.sampler, FirstHitting)  # integrated, not summed
    samples = Largest()
    samples.see(of_own_samples(method, path), 1.0, path.distribution.text)
    yield samples.row(BOUND, "own samples: sum of 1/w = 1 for each text", PRECISE if integrated else EXACT)
    bound = Largest()
    if not method.approximate:
        its_bound = bounds.step_bound(method, x_0, times) if of_steps else total(method, x_0)
        bound.see(minus_log, its_bound, path.distribution.text)
        yield bound.row(BOUND, "E -log w (n = 1) = the bound of it", PRECISE)
    if of_steps or method.clean(Batch(x_0)) is None:
        distribution = Largest()
        if of_steps:
            p = bounds.log_likelihood(method, times).exp()
        else:
            p = of_clean(method, distributions.continuous_distribution(method))
        distribution.see(w, p, path.distribution.text)
        tolerance = PRECISE if integrated or not of_steps else EXACT
        yield distribution.row(BOUND, "E w = p(x) of the bounded distribution", tolerance)
        below = minus_log + 1 - p * inverse  # the tangent at one draw, E p/psi = p E 1/w (TUBE)
        gap = float(torch.minimum(minus_log + p.log(), -p.log() - below).min())
        where = path.distribution.text
        yield above(BOUND, "-log p lies between both sides, smallest gap", gap, -PRECISE, "≥ 0", where)


@own("bound.own-chain", lambda method: method.steps > 0)
@torch.no_grad()
def a_model_of_steps_is_drawn_by_its_own_chain(method: Diffusion) -> Iterator[Row]:
    """By default; and the time of a number of masks is a time of that chain."""
    method, ancestral = few_steps(method), Ancestral()
    p, worst = bounds.log_likelihood(method, method.grid(method.steps)).exp(), Largest()
    samples = script.sample_distribution(ancestral, method, ancestral.times(method, None))
    worst.see(of_clean(method, samples), p, "no `steps`")
    yield worst.row(BOUND, "ancestral without steps = p(x) of its T steps")
    if not_absorbing(method, one=True) is None:
        worst, grid_times = Largest(), method.grid(method.steps)[:-1].clamp_max(1.0)
        x = torch.tensor([*itertools.product((0, method.process.mask), repeat=L)])[1:]
        away = (expected_time(method, state_of(x)).clamp_max(1.0) - grid_times).abs().amin(-1)
        worst.see(away, 0.0, "masks")
        yield worst.row(BOUND, "the time of a number of masks is on its grid")
