"""What few steps can reach, and what the losses of `samplers.distillation` teach: networks that see the time,
every outcome."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.core import gaussian, maths
from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN, PRIOR
from zellige.exact import enumeration, script
from zellige.methods import MD4, MDLM, UDLM, build
from zellige.methods.diffusion import Diffusion
from zellige.nn.table import Table
from zellige.samplers import Ancestral, distillation

from .check import (
    L,
    Largest,
    V,
    above,
    below,
    data_distribution,
    enumerable,
    numbers,
    of_clean,
    shared,
    state_of,
    truth_of,
)

FEW = "few steps: what they can reach, and what teaches them"
WINDOWS = {  # times of a teacher's steps
    "mdlm": ((PRIOR, 0.75, 0.4), (0.6, 0.3, CLEAN)),
    "md4": ((0.8, 0.5, 0.3, 0.1),),
}


def renumbered(method: Any, shift: int) -> Any:
    """The method with other numbers in its network."""
    with torch.no_grad():
        for p in method.network.parameters():
            p.copy_(numbers(*p.shape, size=1.5, shift=shift))
    return method


def masked() -> Iterator[tuple[str, Diffusion, Diffusion]]:
    """Teachers and students of masked noise; the networks see the time."""
    for cls, changes in ((MDLM, {"time": True}), (MD4, {})):
        yield cls.name, enumerable(cls, **changes), renumbered(enumerable(cls, **changes), 7)  # pyright: ignore


def after(method: Diffusion, window: tuple[float, ...]) -> Tensor:
    """Distribution of the ancestral sampler's state after these steps, from each state: (K^L, K^L)."""
    X = enumeration.states(method.process.K, L)
    distribution = torch.eye(len(X), dtype=torch.float64)
    for t, s in itertools.pairwise(window):
        matrix = torch.zeros_like(distribution)

        def step(at: Tensor, source: Any, t: float = t, s: float = s) -> Tensor:
            before, behind = (torch.full((len(at), 1), time, dtype=torch.float64) for time in (t, s))
            return Ancestral().step(method, state_of(X[at]), before, behind, source).x

        for at, x, chance in script.branches(step, len(X)):
            matrix.index_put_((at, enumeration.index(x, method.process.K)), chance, accumulate=True)
        distribution = distribution @ matrix
    return distribution


def in_one_step(method: Diffusion) -> Tensor:
    """Distribution of the clean texts that one step from the prior samples, (V^L,)."""
    X = enumeration.states(method.process.K, L)
    return of_clean(method, method.process.prior[X].prod(-1) @ after(method, (PRIOR, CLEAN)))


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
    """The mean of its goals at the positions that the steps reveal; its loss,
    as a sum over the steps that reveal a position."""
    targets, losses = Largest(), Largest()
    for name, teacher, student in masked():
        for window in WINDOWS[name]:
            targets.see(*_goals(teacher, window), f"{name}, {window}")
            losses.see(*_loss(teacher, student, window), f"{name}, {window}")
    yield targets.row(FEW, "SDTT: goals where revealed = teacher's marginals")
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
            exact.see(maths.kl(p, in_one_step(truth)), floor, f"{name}, data {shift}")
            least = min(least, *(float(maths.kl(p, in_one_step(method)) - floor) for method in methods))
    yield exact.row(FEW, "one step, exact network: KL = total correlation")
    yield above(FEW, "one step, any network: KL - total correlation", least, 0.0, "≥ 0")


# ---------------------------------------------------------------------------------- paths of uniform noise
ALPHAS = ((0.0, 0.3), (0.2, 0.9), (0.55, 1.0))  # of t and of s <= t


@shared("few-steps.paths")
def tokens_of_a_path_leave_once():
    """The largest entry under Gaussian noise at many levels, by where its path leaves x_0;
    the chances of two of its tokens."""
    entries, pairs, K = Largest(), Largest(), 4
    noise, gamma = numbers(60, K, size=2.0), torch.linspace(-8, 8, 81, dtype=torch.float64)
    for token in range(K):
        x_0 = torch.full((len(noise),), token)
        ratio, other = gaussian.leaves(x_0, noise)
        for level in gamma:
            x = gaussian.tokens_at(x_0, level.expand(len(noise)), noise)
            entries.see(x.double(), torch.where((-level / 2).exp() > ratio, x_0, other).double(), f"gamma {level:g}")
    yield entries.row(FEW, "path: the largest entry leaves x_0 once")
    for alphas in ALPHAS:
        q_t, q_s = (alpha * torch.eye(K, dtype=torch.float64) + (1 - alpha) / K for alpha in alphas)
        for token in range(K):
            x_0, joint = torch.full((1, 1), token), torch.zeros(K, K, dtype=torch.float64)
            alpha_t, alpha_s = (torch.full((1, 1), alpha, dtype=torch.float64) for alpha in alphas)
            draw = lambda source, a=alpha_t, b=alpha_s, x=x_0: gaussian.on_path(x, a, b, K, source)  # noqa: E731
            for (x_t, x_s), chance in script.scripts(draw, 1):
                joint[x_s[0, 0], x_t[0, 0]] += chance[0]
            expected = torch.diag(q_s[token])  # who has left stays where it is
            expected[token] = q_t[token] - q_s[token]
            expected[token, token] = q_t[token, token]
            pairs.see(joint, expected, f"alpha {alphas}, x_0 = {token}")
    yield pairs.row(FEW, "path: two of its tokens have their chances")


@shared("few-steps.consistency")
@torch.no_grad()
def consistency_is_zero_where_student_and_teacher_agree_on_paths():
    """Its mean over all pairs of tokens of paths; 0 of a student that is constant;
    above 0 where it differs anywhere."""
    worst, zero, least = Largest(), Largest(), float("inf")
    process, X = enumerable(UDLM).process, enumeration.states(V, L)
    for t, s in ((PRIOR, 0.5), (0.7, 0.2)):
        teacher: Any = enumerable(UDLM)
        student: Any = renumbered(enumerable(UDLM), 7)
        P = _paths(process, t, s)
        q, p = (_others(method, X, time) for method, time in ((teacher, s), (student, t)))
        expected = torch.einsum("xst,stl->x", P, maths.kl(q[:, None], p))
        value = _mean_consistency(student, teacher, t, s)
        worst.see(value, expected, f"t = {t}, s = {s}")
        for method in (teacher, student):
            method.network.logits[:] = numbers(L * V).reshape(L, V)  # one distribution, whatever x and t are
            method.network.logits[1:] = 0
        zero.see(_mean_consistency(student, teacher, t, s), 0.0, f"t = {t}, s = {s}")
        for row in range(len(X)):
            student.network.logits[0, row, 0, 0] += 1.0
            least = min(least, float(_mean_consistency(student, teacher, t, s).amax()))
            student.network.logits[0, row, 0, 0] -= 1.0
    yield worst.row(FEW, "consistency: loss = mean over pairs of a path")
    yield zero.row(FEW, "consistency: 0 where they agree on all paths")
    yield above(FEW, "consistency: its value where they do not", least, 1e-6, "> 0")


def _paths(process: Any, t: float, s: float) -> Tensor:
    """P(x_s, x_t | x_0) of paths, (V^L, V^L, V^L): position by position, as a token leaves x_0 once and for good."""
    one = torch.zeros(V, V, V, dtype=torch.float64)
    q_t, q_s = (process.matrix(CLEAN, time) for time in (t, s))
    for token in range(V):
        one[token] = torch.diag(q_s[token])
        one[token, token] = q_t[token] - q_s[token]
        one[token, token, token] = q_t[token, token]
    X = enumeration.states(V, L)
    return one[X[:, None, None], X[None, :, None], X].prod(-1)


def _others(method: Diffusion, X: Tensor, t: float) -> Tensor:
    """The network's softmax at all positions of X (N, L): (N, L, V)."""
    time = torch.full(X.shape, t, dtype=torch.float64)
    return method.logits(method.hidden(X, time)).softmax(-1)


def _mean_consistency(student: Diffusion, teacher: Diffusion, t: float, s: float) -> Tensor:
    """Expected loss of each x_0, (V^L,), over the draws of two tokens of a path."""
    x_0, mean = enumeration.states(V, L), torch.zeros(V**L, dtype=torch.float64)

    def draw(at: Tensor, source: Any) -> Tensor:
        times = [torch.full((len(at), 1), time, dtype=torch.float64) for time in (t, s)]
        alpha_t, alpha_s = (student.process.schedule.alpha(time)[..., 0] for time in times)
        x_t, x_s = gaussian.on_path(x_0[at], alpha_t, alpha_s, V, source)
        return distillation.consistency(student, teacher, Batch(x_0[at]), x_t, x_s, times[0], times[1]).sum(-1)

    for at, value, chance in script.branches(draw, len(x_0)):
        mean.index_add_(0, at, chance * value)
    return mean


# ---------------------------------------------------------------------------------- mixtures
M = 3  # values of the latent


def mixtures() -> Iterator[tuple[str, Diffusion]]:
    """Models with a latent, of masked and of uniform noise; the networks see the time."""
    for cls, config in ((MDLM, MDLM.Config(time=True)), (UDLM, UDLM.Config())):
        network = Table(cls.states(V, config), L, time=True, latents=M).double()
        yield cls.name, renumbered(build(cls, V, network, config, length=L).double(), 0)


def component(method: Any, latent: int) -> Any:
    """The model with one value of the latent, which has none itself."""
    table = method.network
    rows = method.process.K**L
    network = Table(method.process.K, L, time=True).double()
    with torch.no_grad():
        network.logits.copy_(table.logits[:, latent * rows : (latent + 1) * rows])
    return build(type(method), V, network, method.config, length=L).double()


@shared("few-steps.mixture")
@torch.no_grad()
def a_step_of_a_mixture_is_the_mixture_of_steps():
    """The sampler's own distribution, against the mean over the latent of the component's;
    and what its loss comes to."""
    worst, losses = Largest(), Largest()
    for name, method in mixtures():
        components = [component(method, latent) for latent in range(M)]
        for window in ((PRIOR, CLEAN), (0.8, 0.3)):
            step = after(method, window)
            mean = torch.stack([after(each, window) for each in components]).mean(0)
            worst.see(step, mean, f"{name}, {window}")
            worst.see(step.sum(-1), 1.0, f"{name}, {window}, the sum")
        teacher, window, x_0 = components[0], (0.8, 0.5, 0.3), enumeration.states(V, L)
        drawn, times = torch.zeros(len(x_0), dtype=torch.float64), torch.tensor(window, dtype=torch.float64)

        def draw(at: Tensor, source: Any, method: Any = method, teacher: Any = teacher) -> Tensor:
            return distillation.mixture(method, teacher, Batch(x_0[at]), times.expand(len(at), -1), source)  # noqa: B023

        for at, value, chance in script.branches(draw, len(x_0)):
            drawn.index_add_(0, at, chance * value)
        goal, p = after(teacher, window), after(method, (0.8, 0.3))
        losses.see(drawn, noised(teacher, 0.8) @ -maths.xlogy(goal, p).sum(-1), name)
    yield worst.row(FEW, "a step of a mixture = the mean over its latents")
    yield losses.row(FEW, "mixture: loss = cross-entropy of the teacher's steps")


@shared("few-steps.passed")
@torch.no_grad()
def mixtures_and_random_starts_pass_the_total_correlation():
    """KL(data || one step) less the total correlation: of a mixture with a latent for each text,
    and of a random start."""
    texts = (torch.arange(V**L) ** 2) % 5  # that of each latent, and of each beginning
    even = torch.full((V**L,), 1 / V**L, dtype=torch.float64)
    p = torch.zeros(V**L, dtype=torch.float64).index_add(0, texts, even)
    logits = 60.0 * F.one_hot(enumeration.states(V, L)[texts], V).double()  # (texts, L, V), all but certain
    floor = enumeration.total_correlation(p, V, L)

    config: Any = MDLM.Config(time=True)
    network = Table(V + 1, L, time=True, latents=V**L).double()
    network.logits[:] = 0.0
    network.logits[0].view(V**L, -1, L, V + 1)[..., :V] = logits[:, None]
    mixture: Any = build(MDLM, V, network, config, length=L).double()
    gap = float(maths.kl(p, in_one_step(mixture)) - floor)
    yield below(FEW, "mixture, one step: KL - total correlation", gap, -0.1, "< 0")

    uniform: Any = enumerable(UDLM)
    uniform.network.logits[:] = 0.0
    uniform.network.logits[0] = logits
    gap = float(maths.kl(p, in_one_step(uniform)) - floor)
    yield below(FEW, "random start, one step: KL - total correlation", gap, -0.1, "< 0")
