"""Coarse chains: a model of T steps in fewer of them, evenly spaced or not, whether they divide T or not.

T is 7 here, and the networks see the time. A method without steps of its own is the chain of whatever grid it is
sampled on. The distribution is the sum over all paths of the product of the kernels. It does not come from the bound,
nor the bound from it. How the bound changes with the number of steps is not an identity: it may rise or fall.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.prediction import kernel, truth
from zellige.core.schedule import CLEAN
from zellige.exact import bounds, enumeration, script
from zellige.methods.absorbing import Masked
from zellige.methods.diffusion import Diffusion, between, elbo
from zellige.samplers import Ancestral

from .bound import BOUND
from .check import EXACT, L, Largest, V, above, again, end_at, even, of_clean, one_alpha, own

OWN, EVEN, UNEVEN = 7, 2, 3  # steps: of the whole chain, of an even coarse one, of uneven ones
DENSE = {
    "clean": (1.0, 0.1, 0.05, 0.02, 0.0),
    "noisy": (1.0, 0.98, 0.95, 0.0),
}  # times whose nearest ones in the chain are too few


def chain_of(method: Diffusion) -> Diffusion:
    """The method with `OWN` steps, time-conditioned, if it can have steps of its own; else in continuous time."""
    names = {field.name for field in dataclasses.fields(method.config)}  # pyright: ignore[reportArgumentType]
    if "diffusion_steps" not in names:
        end_at(method, 0.1)
        return method
    return again(method, diffusion_steps=OWN, **({"time": True} if "time" in names else {}))  # pyright: ignore


def coarse_chains(method: Diffusion) -> Iterator[tuple[str, Tensor]]:
    """Times of coarse chains, with their names."""
    yield f"{EVEN} even steps", Ancestral("uniform").times(method, EVEN)
    yield f"{UNEVEN} steps of the cosine grid", Ancestral("cosine").times(method, UNEVEN)
    if method.steps:
        for tokens, dense in DENSE.items():
            times = method.coarse(torch.tensor(dense, dtype=torch.float64))
            times[0], times[-1] = method.start_time, CLEAN
            yield f"steps that are dense near {tokens} tokens", times
    elif one_alpha(method):
        yield f"{UNEVEN} steps of the log-snr grid", Ancestral("log-snr").times(method, UNEVEN)


@own("bound.coarse")
@torch.no_grad()
def a_coarse_chain_is_a_chain(method: Diffusion):
    method = chain_of(method)
    x_0, samples = enumeration.states(V, L), Ancestral.reason_against(method) is None
    gap, where, sums, drawn, sampled = math.inf, "", Largest(), Largest(), Largest()
    for name, times in coarse_chains(method):
        log_p, bound = bounds.log_likelihood(method, times), bounds.step_bound(method, x_0, times)
        sums.see(log_p.exp().sum(), 1.0, name)
        gaps = torch.where(bound.isinf(), math.inf, bound + log_p)  # a clipped score may exclude a text
        if float(gaps.min()) < gap:
            gap, where = float(gaps.min()), f"{name}, x_0 = {x_0[int(gaps.argmin())].tolist()}"
        some = [1, 3, 8]  # with each token at each position
        for words, value in _draws(method, x_0[some], times):
            drawn.see(value, bound[some], f"{name}, {words}")
        if samples and len(times) > EVEN + 1:
            sampled.see(of_clean(method, script.sample_distribution(Ancestral(), method, times)), log_p.exp(), name)
    yield above(BOUND, "coarse chains: bound ≥ -log p, smallest gap", gap, -EXACT, "≥ 0", where)
    yield sums.row(BOUND, "... p(x) over all x sums to 1")
    yield drawn.row(BOUND, "... E over the draws of its terms = the bound")
    if samples:
        yield sampled.row(BOUND, "... ancestral samples from p")


def _draws(method: Diffusion, x_0: Tensor, times: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The expectation (M,) of each estimate of the bound over everything that it draws."""
    nodes = even(n := max(1, len(between(method, len(times) - 1))))

    def drawn(batch: Batch, generator: script.Script) -> Tensor:
        return sum(elbo(method, batch, generator, times).values())  # pyright: ignore

    yield "one step drawn", bounds.expectation(drawn, x_0, nodes)
    if n == 1:
        every = lambda batch, generator: sum(elbo(method, batch, generator, times, every=True).values())  # noqa: E731
        yield "every step", bounds.expectation(every, x_0, nodes)  # pyright: ignore[reportArgumentType]
    if isinstance(method, Masked) and method.draws_mask_counts:
        counts = lambda batch, generator: method.terms_of_steps(batch, times, generator)["diffusion"]  # noqa: E731
        yield "numbers of masks", bounds.expectation(counts, x_0)


@own("bound.coarse-times", lambda method: method.process is not None)
@torch.no_grad()
def a_coarse_chain_has_times_of_its_own(method: Diffusion):
    """Distinct ones, the even ones as near to even as they can be. Given x_0 its steps are those between,
    one after another."""
    method = chain_of(method)
    if not method.steps:
        return
    T, apart, even, steps = method.steps, Largest(), Largest(), Largest()
    whole = method.grid(T)
    for name, times in coarse_chains(method):
        index = [int(i[0]) if len(i) else T + 1 for i in ((whole == time).nonzero() for time in times)]
        apart.see(torch.tensor([float(0 <= a < b <= T) for a, b in itertools.pairwise(index)]), 1.0, name)
    for n in range(1, T + 1):
        rest = (method.grid(n)[1:-1] - torch.linspace(1, 0, n + 1, dtype=torch.float64)[1:-1]).abs() * T
        even.see((rest - 0.5 - EXACT).clamp_min(0.0).sum(), 0.0, f"{n} of {T} steps")
    yield apart.row(BOUND, "coarse chains: times of the whole, falling")
    yield even.row(BOUND, "... even: each within half a step of T")
    process, index = method.process, [0, T // 2, T - 1]  # pyright: ignore[reportAttributeAccessIssue]
    x_0 = torch.arange(process.K)[process.clean]
    for i, j in itertools.combinations(index, 2):
        t, x_t = whole[i], torch.arange(process.K)
        possible = (process.likelihood(x_t, CLEAN, t)[:, x_0] > 0).T[..., None]  # (V, K, 1)
        at_once = _given(method, x_0, whole[i], whole[j])
        one_by_one = torch.eye(process.K, dtype=torch.float64).expand(len(x_0), -1, -1)
        for a, b in itertools.pairwise(whole[i : j + 1]):
            one_by_one = one_by_one @ _given(method, x_0, a, b)
        steps.see(one_by_one * possible, at_once * possible, f"from step {i} to {j}")
    yield steps.row(BOUND, "... given x_0, its step = those between")


def _given(method: Diffusion, x_0: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """q(x_s | x_t, x_0) of one position: (V, K, K), from x_t to x_s; rows of an impossible x_t are 0."""
    process = method.process
    clean, noisy = x_0[:, None].expand(-1, process.K), torch.arange(process.K).expand(len(x_0), -1)
    target = truth(process, clean, noisy, t.expand(noisy.shape))
    return kernel(target, s.expand(noisy.shape))
