"""The K^L texts of a small space, and what is known of them exactly: their order, the exact denoiser, marginals,
entropy."""

import torch
from torch import Tensor

from ..base.arguments import checked
from ..base.errors import InputError, at_least
from ..core import maths
from ..core.prediction import LeaveOneOut, Score, restricted
from ..core.process import Process
from ..core.schedule import CLEAN, PRIOR
from ..methods.diffusion import Diffusion


# ---------------------------------------------------------------------------------- the space
def states(K: int, L: int) -> Tensor:
    """All K^L sequences, (K^L, L) long."""
    at_least("K", K, 1)
    at_least("L", L, 0)
    return of_index(torch.arange(K**L), K, L)


def index(x: Tensor, K: int) -> Tensor:
    """The row of `states` that x is, (*, L) -> (*)."""
    L = x.shape[-1]
    return (x * K ** torch.arange(L - 1, -1, -1)).sum(-1)


def of_index(rows: Tensor, K: int, L: int) -> Tensor:
    """The sequences in these rows of `states`, (*) -> (*, L)."""
    return rows[..., None] // K ** torch.arange(L - 1, -1, -1) % K


def is_clean(process: Process, L: int) -> Tensor:
    """Whether each sequence has clean tokens alone, (K^L,) bool."""
    return process.clean[states(process.K, L)].all(-1)


def embed(process: Process, distribution: Tensor, L: int) -> Tensor:
    """Embed a distribution on the clean sequences (V^L,) in all sequences (K^L,)."""
    clean = is_clean(process, L)
    if int(clean.sum()) != len(distribution):
        raise InputError(f"the distribution has {len(distribution)} entries; {int(clean.sum())} sequences are clean")
    return torch.zeros(len(clean), dtype=distribution.dtype).masked_scatter(clean, distribution)


def marginal(process: Process, distribution: Tensor, L: int, t: Tensor | float, s: Tensor | float = CLEAN) -> Tensor:
    """Distribution of x_t if x_s has `distribution`: (K^L,) -> (K^L,)."""
    if distribution.numel() != process.K**L:
        raise InputError(f"the distribution has {distribution.numel():,} entries; there are {process.K**L:,} sequences")
    Q = process.matrix(s, t)
    p = distribution.reshape([process.K] * L)
    for axis in range(L):
        p = torch.tensordot(p, Q, dims=([axis], [0])).movedim(-1, axis)  # pyright: ignore
    return p.reshape(-1)


def entropy(distribution: Tensor) -> Tensor:
    """Entropy in nats."""
    return -maths.xlogy(distribution, distribution).sum()


def total_correlation(distribution: Tensor, K: int, L: int) -> Tensor:
    """sum of H(p_i) - H(p) of a distribution (K^L,), nats: the least KL(p || q) of any product q of distributions."""
    X = states(K, L)
    marginals = torch.stack([torch.zeros(K, dtype=distribution.dtype).index_add(0, x, distribution) for x in X.T])
    return -maths.xlogy(marginals, marginals).sum() - entropy(distribution)


# ---------------------------------------------------------------------------------- the exact denoiser
class Denoiser(Diffusion):
    """A method with the exact network for a known data distribution.

    Args:
        distribution: (V^L,) over the clean sequences.
        predicts: what it gives: "mean", "leave_one_out" or "score".
    """

    name = "exact"

    @checked
    def __init__(self, process: Process, distribution: Tensor, length: int, predicts: str = "mean"):
        at_least("length", length, 1)
        super().__init__(vocabulary=int(process.clean.sum()), shape=(length,), process=process)
        self.parameterization = predicts  # pyright: ignore[reportAttributeAccessIssue]
        self.x_0, self.distribution = states(process.K, length)[is_clean(process, length)], distribution

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        t = torch.as_tensor(t, dtype=torch.float64).expand(x_t.shape)
        likelihoods = self.process.likelihood(x_t, CLEAN, t)  # (B, L, K)
        likelihoods = likelihoods[:, torch.arange(x_t.shape[1]), self.x_0].movedim(
            -1, 1
        )  # (B, L, M): q(x_t^i | x_0^i) for each x_0
        L = range(x_t.shape[1])
        product = torch.stack([likelihoods[:, [j for j in L if j != i]].prod(1) for i in L], 1)
        joint = self.distribution * (product * likelihoods if self.parameterization == "mean" else product)
        ratio = torch.zeros(*x_t.shape, self.process.K, dtype=joint.dtype)
        for i in range(x_t.shape[1]):  # sum over x_0 by its token at i
            ratio[:, i] = ratio[:, i].index_add(-1, self.x_0[:, i], joint[:, i])
        if at is not None:
            ratio, x_t, t = ratio[at], x_t[at], t[at]
        if self.parameterization == "score":
            v = self.process.push(ratio, CLEAN, torch.where(t == PRIOR, 1.0, t))  # at PRIOR a Score is that of t = 1
            return Score(self.process, v / v.gather(-1, x_t[..., None]), x_t, t)
        kind = restricted if self.parameterization == "mean" else LeaveOneOut
        return kind(self.process, maths.normalise(ratio), x_t, t)
