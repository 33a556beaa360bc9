"""D3PM's noise and loss (arXiv 2107.03006): schedules, frequencies of tokens, a matrix of one's own, and the auxiliary
cross-entropy, each written a second time as the paper has it."""

import math
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F

from zellige.core import maths
from zellige.core.process import Process
from zellige.core.schedule import CLEAN
from zellige.exact import bounds, enumeration
from zellige.methods import D3PM
from zellige.methods.d3pm_noise import noise_of
from zellige.methods.d3pm_transitions import table
from zellige.methods.method import Method

from .bound import BOUND
from .check import L, Largest, V, again, own, pairs, shared, some_texts
from .draw import nodes
from .process import PROCESS

D = torch.float64
COUNTS = (5, 3, 0, 1, 11, 2)  # of six tokens, one of which never occurs
MATRIX = ((0.5, 0.5, 0.0), (0.1, 0.6, 0.3), (0.2, 0.2, 0.6))
STEPS, INTERPOLATED = 5, 1e-3  # steps of the noise; graphs find their strengths between those of a table


def noise(kind: str, schedule: str, tokens: int = V, **files: Any) -> Process:
    """D3PM's noise in `STEPS` steps. `files` are given by their rows of numbers."""
    with TemporaryDirectory() as folder:
        paths = {}
        for name, rows in files.items():
            paths[name] = str(Path(folder) / f"{name}.csv")
            Path(paths[name]).write_text("\n".join(",".join(map(str, row)) for row in rows))
        return noise_of(D3PM.Config(kind, schedule, STEPS, neighbours=2, mask_proportion=0.3, **paths), tokens)


@shared("process.betas")
def schedules_are_those_of_the_tables():
    """beta_i of tables 4 and 6: from 0.02 to 1 in even steps; and 1/(T - i + 1), whatever the noise."""
    worst = Largest()
    for T in (2, STEPS):
        i = torch.arange(1, T + 1, dtype=D)
        betas = {"linear-to-one": 0.02 + 0.98 * (i - 1) / (T - 1), "even": 1 / (T - i + 1)}
        for name, beta in betas.items():
            for absorbing in (False, True):
                left = torch.cat((torch.ones(1, dtype=D), (1 - beta).cumprod(0)))
                worst.see(table(name, T, V, absorbing), left, f"{name}, T = {T}")
    yield worst.row(PROCESS, "D3PM: linear-to-one and even = its tables")


@shared("process.both")
def masks_and_random_tokens_are_their_matrix():
    """A.2.6: each step is (1 - b) I + b w 1 e_m' + b (1 - w) 1 1'/K, w the fraction of masks."""
    worst, K, w = Largest(), V + 1, 0.3
    process = noise("absorbing-uniform", "even")
    for i in range(1, STEPS + 1):
        b, mask = 1 / (STEPS - i + 1), F.one_hot(torch.tensor(V), K).to(D)
        step = (1 - b) * torch.eye(K, dtype=D) + b * w * mask + b * (1 - w) / K
        worst.see(process.matrix((i - 1) / STEPS, i / STEPS), step, f"step {i}")
    yield worst.row(PROCESS, "D3PM: absorbing-uniform = its matrices")


@shared("process.unigrams")
def information_is_lost_evenly():
    """A.7: with x_0 of the given frequencies I(x_i; x_0) / H(x_0) is 1 - i/T, summed over all x_0 and x_i."""
    mixtures, graphs, V = Largest(), Largest(), len(COUNTS)
    for kind in ("uniform", "absorbing-uniform", "nearest", "absorbing-nearest"):
        for counts in (COUNTS, (1,) * V):
            process = noise(kind, "mutual-information", V, unigrams=[[n] for n in counts])
            p = torch.tensor(counts).to(D) / sum(counts)
            for i in range(1, STEPS):
                joint = p[:, None] * process.matrix(CLEAN, i / STEPS)[:V]
                apart = p[:, None] * joint.sum(0)
                information = (maths.xlogy(joint, joint) - maths.xlogy(joint, apart)).sum()
                left = information / -maths.xlogy(p, p).sum()
                worst = graphs if "nearest" in kind else mixtures
                worst.see(left, 1 - i / STEPS, f"{kind}, counts {counts}, step {i}")
    yield mixtures.row(PROCESS, "D3PM, unigrams: step i loses i/T of I(x_0)")
    yield graphs.row(PROCESS, "... of graphs, interpolated", INTERPOLATED)


@shared("process.matrix")
def a_matrix_of_ones_own_is_its_exponential():
    """q(x_i | x_0) = exp(a_i (M - I)): a_i leaves alpha_i of the slowest mode (A.4, eq. 16). M^n tends to the prior."""
    worst, M = Largest(), torch.tensor(MATRIX, dtype=D)
    process, R = noise("matrix", "cosine", len(M), matrix=MATRIX), M - torch.eye(len(M), dtype=D)
    slowest = -sorted(torch.linalg.eigvals(R).real.tolist())[-2]
    angle = [(i / STEPS + 0.008) / 1.008 * math.pi / 2 for i in range(STEPS)]
    for i in range(1, STEPS):
        a = -math.log(math.cos(angle[i]) / math.cos(angle[0])) / slowest
        worst.see(process.matrix(CLEAN, i / STEPS), torch.linalg.matrix_exp(a * R), f"step {i}")
    worst.see(process.prior.expand(len(M), -1), torch.linalg.matrix_power(M, 400), "the prior")
    yield worst.row(PROCESS, "D3PM: a matrix of one's own = exp(a (M - I))")


@own("bound.hybrid", lambda method: isinstance(method, D3PM))
@torch.no_grad()
def the_loss_adds_a_cross_entropy(method: Method):
    """Eq. 5: the bound, and lambda times the mean over the steps of E[-log p~(x_0 | x_t)] at the positions that
    move."""
    worst, weight, T = Largest(), 0.7, 3
    x_0 = some_texts()
    hybrid: Any = again(method, diffusion_steps=T, auxiliary=weight)
    times = hybrid.grid(T)
    expected = bounds.step_bound(hybrid, x_0, times)
    for t, _ in pairwise(times):
        clean, x_t, time, q = pairs(hybrid.process, float(t))
        logits = hybrid._clean(hybrid.logits(hybrid.hidden(x_t, time)), x_t).double()
        ce = -logits.log_softmax(-1).gather(-1, clean[..., None])[..., 0]
        values = q * torch.where(hybrid.process.movable(x_t), ce, 0.0).sum(-1)
        total = torch.zeros(V**L, dtype=D).index_add(0, enumeration.index(clean, V), values)
        expected = expected + weight / T * total[enumeration.index(x_0, V)]
    worst.see(bounds.expectation(hybrid.loss, x_0, nodes(hybrid)), expected, "x_0")
    yield worst.row(BOUND, "E of the loss = bound + its cross-entropy")
