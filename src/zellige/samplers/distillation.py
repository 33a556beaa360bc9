"""Losses that teach a student to sample in few steps what a teacher samples in many: `zellige train distill`.

    sdtt    masked noise; along k steps t_0 > ... > t_k of the teacher, with its states z_0 = x_t, z_1, ..., z_k,

                L = sum over the masks of x_t of D( p_teacher(x_0^i | z_j), p_student(x_0^i | x_t) )

            j is the step that reveals position i, or the last one (Deschenaux and Gulcehre 2024, arXiv 2410.21035)

    consistency    uniform noise; x_t and x_s are tokens of one path of a Gaussian (`core.gaussian`), s the earlier time

                L = sum over the positions of D( mu_teacher(x_s), mu_student(x_t) )          (Duo, arXiv 2506.10892)

    mixture    a student with a latent of M values, which conditions its network; x_s is the teacher's state k steps after x_t

                L = -log p_student(x_s | x_t),    p(x_s | x_t) = 1/M sum over latents of prod over i of p_i(x_s^i | x_t, latent)

            the model of Di4C (arXiv 2410.08709), trained by maximum likelihood: the mean of L, less the entropy of the
            teacher's x_s, is KL(teacher's k steps || student's step). The paper's two losses, distillation near the
            clean end and consistency, are estimates over samples of a continuous latent; of M values the sum is exact.

With D = KL(teacher || student) the minimum over p_student(x_0^i | x_t) is the mean of the teacher's p(x_0^i | z_j).
Over the paths that reveal position i, this mean is the distribution of the teacher's token there. So in a window that
ends at clean tokens, where each path reveals all, the best student has the teacher's marginals, without their
dependence. In any other, the teacher's last prediction at positions that stay masks is mixed in.

What one step can reach: from a deterministic start (all masks) and without a latent it samples a product q of
distributions, and min over q of KL(p || q) is the total correlation of p, sum of H(p_i) - H(p). A random start (uniform
noise) is a mixture over what it begins with.
"""

import itertools
import math

import torch
from torch import Tensor

from ..core import maths, random
from ..core.batch import Batch
from ..core.positions import positions
from ..core.prediction import LeaveOneOut, as_leave_one_out, kernel, posterior
from ..core.random import Randomness
from ..methods.diffusion import Diffusion, where_noised
from .ancestral import Ancestral
from .sampler import State


def clean_posterior(method: Diffusion, batch: Batch, x: Tensor, t: Tensor, at: Tensor) -> Tensor:
    """p(x_0 | x) at the positions `at` (B, L) bool of x (B, L) at times t (B, 1): (N, K) float64."""
    time = where_noised(batch, t)
    pred = method.predict(x, time, at=at, condition=batch.condition, segments=batch.segments)
    return posterior(pred).double()


@torch.no_grad()
def goals(
    teacher: Diffusion, batch: Batch, x_t: Tensor, times: Tensor, generator: Randomness = None
) -> tuple[Tensor, Tensor]:
    """What SDTT's student learns at the N masks of x_t (B, L), and the teacher's state after its k steps.

    Args:
        times: (B, k + 1), decreasing, those of x_t and of each state after it.

    Returns:
        At each mask the teacher's last prediction while it was one, (N, K) float64; and z_k (B, L).
    """
    process = teacher.process
    masks, x = process.movable(x_t) & batch.counted, x_t
    goal = torch.zeros(int(masks.sum()), process.K, dtype=torch.float64, device=x.device)
    for t, s in itertools.pairwise(times.split(1, -1)):
        left = process.movable(x) & batch.counted
        p = clean_posterior(teacher, batch, x, t, left)
        goal[left[masks]] = p
        reveal = process.schedule.reveal_probability(t, s)[..., 0]
        revealed = random.bernoulli(positions(left).of(reveal), generator, left)
        at = torch.zeros_like(left).masked_scatter(left, revealed)
        x = positions(at).put(x, random.categorical(p[revealed], generator, at))
    return goal, x


def sdtt(
    student: Diffusion,
    teacher: Diffusion,
    batch: Batch,
    times: Tensor,
    divergence: str = "kl",
    generator: Randomness = None,
) -> Tensor:
    """SDTT's loss for the first of `times` (B, k + 1), summed over the masks of each sequence: (B,) nats, but for tvd
    and mse.

    x_t is drawn from the batch.
    """
    t = times[:, :1]
    x_t = student.corrupt(batch, t, generator)
    goal, _ = goals(teacher, batch, x_t, times, generator)
    masks = student.process.movable(x_t) & batch.counted
    p = clean_posterior(student, batch, x_t, t, masks)
    return positions(masks).sum(maths.DIVERGENCES[divergence](goal, p))


def consistency(
    student: Diffusion,
    teacher: Diffusion,
    batch: Batch,
    x_t: Tensor,
    x_s: Tensor,
    t: Tensor,
    s: Tensor,
    divergence: str = "kl",
) -> Tensor:
    """Divergence at each position of the student's distribution at x_t from the teacher's at x_s: (B, L), 0 where not
    counted.

    Of both p(x_0 | the other positions). x_t, x_s (B, L) are tokens of one path, t and s (B, 1) their times.
    """
    with torch.no_grad():
        goal = _given_others(teacher, batch, x_s, s)
    apart = maths.DIVERGENCES[divergence](goal, _given_others(student, batch, x_t, t))
    return torch.where(batch.counted, apart, 0.0)


def _given_others(method: Diffusion, batch: Batch, x: Tensor, t: Tensor) -> Tensor:
    """p(x_0 | the other positions of x) for x (B, L) at times t (B, 1): (B, L, K) float64."""
    pred = method.predict(x, where_noised(batch, t), condition=batch.condition, segments=batch.segments)
    return (pred if isinstance(pred, LeaveOneOut) else as_leave_one_out(pred)).mu.double()


def mixture(
    student: Diffusion, teacher: Diffusion, batch: Batch, times: Tensor, generator: Randomness = None
) -> Tensor:
    """-log p of the teacher's state after the steps through `times` (B, k + 1) by one step of the student: (B,) nats.

    x_t is drawn from the batch, and the teacher may have a latent, too.
    """
    t, s = times[:, :1], times[:, -1:]
    x_t = student.corrupt(batch, t, generator)
    state = State(x_t, ~batch.counted, torch.zeros_like(x_t[:, 0]), segments=batch.segments)
    with torch.no_grad():
        for step in itertools.pairwise(times.split(1, -1)):
            state = Ancestral().step(teacher, state, *step, generator)
    at = student.process.movable(x_t) & batch.counted
    where, time = positions(at), where_noised(batch, t)
    later, tokens = where.of(s.expand(x_t.shape)), where.of(state.x)[:, None]
    log_p = []
    for latent in range(student.latents):
        condition = torch.full_like(x_t[:, 0], latent)
        p = kernel(student.predict(x_t, time, at=at, condition=condition, segments=batch.segments), later)
        log_p.append(where.sum(maths.log(p.gather(-1, tokens)[:, 0])))
    return math.log(student.latents) - torch.stack(log_p).logsumexp(0)
