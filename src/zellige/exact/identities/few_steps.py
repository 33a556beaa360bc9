"""What few steps can reach, and what the losses of `samplers.distillation` teach: networks that see the time, every outcome."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core import maths
from ...core.batch import Batch
from ...core.schedule import CLEAN, PRIOR
from ...methods import MD4, MDLM
from ...methods.diffusion import Diffusion
from ...samplers import Ancestral, State, distillation
from .. import enumeration, script
from .check import L, Largest, V, above, data_distribution, enumerable, numbers, shared, truth_of

FEW = "few steps: what they can reach, and what teaches them"
WINDOWS = {  # times of a teacher's steps
    "mdlm": ((PRIOR, 0.75, 0.4), (0.6, 0.3, CLEAN)),
    "md4": ((0.8, 0.5, 0.3, 0.1),),
}


def renumbered(method: Any, shift: int) -> Any:
    """The method with other numbers in its network."""
    with torch.no_grad():
        for p in method.network.parameters():
            p.copy_(numbers(p.numel() + shift, size=1.5)[shift:].reshape(p.shape))
    return method


def masked() -> Iterator[tuple[str, Diffusion, Diffusion]]:
    """Teachers and students of masked noise; the networks see the time."""
    for cls, changes in ((MDLM, {"time": True}), (MD4, {})):
        yield cls.name, enumerable(cls, **changes), renumbered(enumerable(cls, **changes), 7)  # pyright: ignore


def after(method: Diffusion, window: tuple[float, ...]) -> Tensor:
    """Distribution of the ancestral sampler's state after these steps, from each state: (K^L, K^L)."""
    X = enumeration.states(method.process.K, L)
    distribution = torch.eye(len(X), dtype=torch.float64)
    state = State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X), dtype=torch.long))
    for step in itertools.pairwise(torch.tensor(window, dtype=torch.float64)):
        distribution = distribution @ script.transition(
            Ancestral(), method, state, *(time.expand(len(X), 1) for time in step)
        )
    return distribution


def predicted(method: Diffusion, X: Tensor, t: float) -> Tensor:
    """p(x_0 | x) at every position of X (N, L), (N, L, K); what stands at a token is not asked for."""
    at = torch.ones_like(X, dtype=torch.bool)
    time = torch.full((len(X), 1), t, dtype=torch.float64)
    return distillation.clean_posterior(method, Batch(X), X, time, at).reshape(*X.shape, -1)


def noised(method: Diffusion, t: float) -> Tensor:
    """q(x_t | x_0) of every clean x_0 and every x_t: (V^L, K^L)."""
    X, x_0 = enumeration.states(method.process.K, L), enumeration.states(V, L)
    likelihood = method.process.likelihood(X, CLEAN, t)[None].expand(len(x_0), -1, -1, -1)
    return likelihood.gather(-1, x_0[:, None, :, None].expand(-1, len(X), -1, -1))[..., 0].prod(-1)


@shared("few-steps.sdtt")
@torch.no_grad()
def sdtt_learns_the_marginals_of_several_steps():
    """The mean of its goals at the positions that the steps reveal; its loss, as a sum over the steps that reveal a position."""
    targets, losses = Largest(), Largest()
    for name, teacher, student in masked():
        for window in WINDOWS[name]:
            targets.see(*_goals(teacher, window), f"{name}, {window}")
            losses.see(*_loss(teacher, student, window), f"{name}, {window}")
    yield targets.row(FEW, "SDTT: goals = the teacher's marginals in k steps")
    yield losses.row(FEW, "SDTT: loss = sum over the steps that reveal")


def _goals(teacher: Diffusion, window: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Mean goal at the masks that the steps reveal, (K^L, L, K) from each state; and the sampler's tokens there."""
    K, mask = teacher.process.K, teacher.process.mask
    X, times = enumeration.states(K, L), torch.tensor(window, dtype=torch.float64)
    masks, mean = mask == X, torch.zeros(len(X), L, K, dtype=torch.float64)

    def draw(at: Tensor, source: Any) -> tuple[Tensor, Tensor]:
        return distillation.goals(teacher, Batch(X[at]), X[at], times.expand(len(at), -1), source)

    for at, (goal, x), chance in script.branches(draw, len(X)):
        goals = torch.zeros(len(at), L, K, dtype=torch.float64).masked_scatter(masks[at][..., None], goal)
        mean.index_add_(0, at, chance[:, None, None] * goals * (x != mask)[..., None])
    tokens = F.one_hot(X, K).double() * ~masks[..., None]
    return mean, torch.einsum("xz,zlk->xlk", after(teacher, window), tokens) * masks[..., None]


def _loss(teacher: Diffusion, student: Diffusion, window: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Expected loss of each x_0, (V^L,): of its draws, and over the states in which a position is still a mask."""
    K, alpha = teacher.process.K, teacher.process.schedule.alpha
    X, x_0, times = enumeration.states(K, L), enumeration.states(V, L), torch.tensor(window, dtype=torch.float64)
    masks, drawn = teacher.process.mask == X, torch.zeros(len(x_0), dtype=torch.float64)

    def draw(at: Tensor, source: Any) -> Tensor:
        return distillation.sdtt(student, teacher, Batch(x_0[at]), times.expand(len(at), -1), "kl", source)

    for at, value, chance in script.branches(draw, len(x_0)):
        drawn.index_add_(0, at, chance * value)
    p, cost = predicted(student, X, window[0]), torch.zeros(len(X), L, dtype=torch.float64)
    for j, (t, s) in enumerate(itertools.pairwise(window)):
        before, goals = after(teacher, window[: j + 1]), predicted(teacher, X, t)
        last = j + 2 == len(window)
        reveal = 1.0 if last else float((alpha(s) - alpha(t)) / (1 - alpha(t)))
        both = masks[:, None] & masks  # (x_t, z_j, position)
        cost += reveal * torch.einsum("xz,xzl->xl", before, torch.where(both, maths.kl(goals, p[:, None]), 0.0))
    return drawn, noised(teacher, window[0]) @ cost.sum(-1)


@shared("few-steps.divergences")
def divergences_are_what_they_are_called():
    """Of distributions on four tokens: each by its definition; all of them finite where the student's is 0."""
    worst, n = Largest(), 8
    p, q = ((1.05 + numbers(8 * n)[4 * n * i : 4 * n * (i + 1)].reshape(n, 4)) for i in range(2))
    p, q = maths.normalise(p), maths.normalise(q)
    events = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 4)
    by_definition = {
        "kl": F.kl_div(q.log(), p, reduction="none").sum(-1),
        "reverse-kl": F.kl_div(p.log(), q, reduction="none").sum(-1),
        "tvd": ((p - q) @ events.T).amax(-1),
        "mse": ((p / q).log() ** 2).sum(-1) / 4,
    }
    for name, definition in by_definition.items():
        worst.see(maths.DIVERGENCES[name](p, q), definition, name)
        extreme = maths.DIVERGENCES[name](torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        worst.see(extreme.isfinite().double(), 1.0, f"{name}, the student's is 0")
    yield worst.row(FEW, "divergences: by their definitions", 1e-12)


@shared("few-steps.floor")
@torch.no_grad()
def one_step_from_masks_reaches_the_total_correlation():
    """KL(data || one factorised step): the total correlation of the exact network, no less of any other."""
    least, exact = float("inf"), Largest()
    for shift in (0, 5):
        p = data_distribution(shift=shift)
        floor = enumeration.total_correlation(p, V, L)
        for name, *methods in masked():
            truth = truth_of(methods[0], p)
            samples = script.sample_distribution(Ancestral(), truth, 1)
            clean = (enumeration.states(truth.process.K, L) < V).all(-1)
            exact.see(maths.kl(p, samples[clean]), floor, f"{name}, data {shift}")
            for method in methods:
                samples = script.sample_distribution(Ancestral(), method, 1)[clean]
                least = min(least, float(maths.kl(p, samples) - floor))
    yield exact.row(FEW, "one step, exact network: KL = total correlation")
    yield above(FEW, "one step, any network: KL - total correlation", least, 0.0, "≥ 0")
