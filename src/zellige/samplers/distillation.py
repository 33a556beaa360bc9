"""Losses that teach a student to sample in few steps what a teacher samples in many: `zellige train distill`.

    sdtt    masked noise; along k steps t_0 > ... > t_k of the teacher, with its states z_0 = x_t, z_1, ..., z_k,

                L = sum over the masks of x_t of D( p_teacher(x_0^i | z_j), p_student(x_0^i | x_t) )

            j is the step that reveals position i, or the last one (Deschenaux and Gulcehre 2024, arXiv 2410.21035)

Of D = KL(teacher || student) the minimum over p_student(x_0^i | x_t), for positions that the k steps reveal, is the distribution
of the teacher's token there after k steps: its marginals, without their dependence.

What one step of a model without a latent can reach: from a deterministic start (all masks) it samples a product q of
distributions, and min over q of KL(p || q) is the total correlation of p, sum of H(p_i) - H(p).
"""

import itertools

import torch
from torch import Tensor

from ..core import maths, random
from ..core.batch import Batch
from ..core.positions import positions
from ..core.prediction import posterior
from ..core.random import Randomness
from ..methods.diffusion import Diffusion, where_noised


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
        alpha_t, alpha_s = (process.schedule.alpha(time)[..., 0] for time in (t, s))
        reveal = (alpha_s - alpha_t) / (1 - alpha_t)  # MDLM eq. 8
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
    """SDTT's loss for the first of `times` (B, k + 1), summed over the masks of each sequence: (B,) nats, but for tvd and mse.

    x_t is drawn from the batch.
    """
    t = times[:, :1]
    x_t = student.corrupt(batch, t, generator)
    goal, _ = goals(teacher, batch, x_t, times, generator)
    masks = student.process.movable(x_t) & batch.counted
    p = clean_posterior(student, batch, x_t, t, masks)
    return positions(masks).sum(maths.DIVERGENCES[divergence](goal, p))
