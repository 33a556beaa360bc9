"""Distribution of the T-step model on a large space: the kernel of a step stays a product over the positions.

A step is p_s(x_s) = sum over x_t of p_t(x_t) prod_i k_i(x_s^i | x_t). The matrix of all pairs of K^L sequences is never
formed: the product over the first half of the positions has K^(L/2) entries for each x_t, that over the others as many,
and the sum over x_t is a product of these two matrices, a part of the rows at a time. Memory is a few numbers for each
sequence.
"""

import functools
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..base.errors import InputError
from ..core.prediction import kernel
from ..methods.diffusion import Diffusion
from .enumeration import of_index

MEMORY = 1 << 30  # bytes
ROWS = 1 << 13  # that the network reads at once, at most
VECTORS = 3  # of K^L numbers: a distribution, the next one, a product on its way there


@torch.no_grad()
def model_distribution(
    method: Diffusion, times: Tensor, *, context: Tensor | None = None, memory: int = MEMORY, trust: bool = True
) -> Tensor:
    """Distribution of x at the end of the reverse kernels between `times` (T + 1,), from the prior: (K^L,), float64.

    Args:
        method: a diffusion method, or one that is changed by guidance.
        context: (L,) clean tokens that a network of blocks reads beside each x_t.
        memory: bytes that the enumeration may take, beside what the network takes for 8,192 sequences.
        trust: that a token which can no longer move stays; False: the method is evaluated there, too.

    Raises:
        InputError: the space is too large for `memory`.
    """
    process, (L,) = method.process, method.shape
    K, half = process.K, L // 2
    each = 8 * (2 * L * K + 2 * K**half + 2 * K ** (L - half))  # bytes of a row
    free = memory - 8 * VECTORS * K**L
    if free < each:
        raise InputError(
            f"{K}^{L} = {K**L:,} sequences need {8 * VECTORS * K**L + each:,} bytes, and `memory` is {memory:,}; give "
            "more, or a shorter length"
        )
    p = functools.reduce(torch.kron, [process.prior.double()] * L)
    for t, s in itertools.pairwise(times):
        p = _after(method, p, t, s, context, min(free // each, ROWS), trust)
    return p


def _after(method: Any, p: Tensor, t: Tensor, s: Tensor, context: Tensor | None, size: int, trust: bool) -> Tensor:
    """Distribution after the step from t to s, `size` sequences at a time."""
    process, (L,) = method.process, method.shape
    after = torch.zeros_like(p)
    for rows in p.nonzero()[:, 0].split(size):
        x = of_index(rows, process.K, L)
        at = process.movable(x) if trust else torch.ones_like(x, dtype=torch.bool)
        moves = at.any(-1)
        after[rows[~moves]] += p[rows[~moves]]
        rows, x, at = rows[moves], x[moves], at[moves]
        if len(rows):
            beside = None if context is None else context.expand(x.shape)
            pred = method.predict(x, t.expand(x.shape), at=at, context=beside)
            kernels = one_hot(x, process.K).double()
            kernels[at] = kernel(pred, s.expand(len(pred.x_t))).double()
            first, second = (_product(part) for part in kernels.split((L // 2, L - L // 2), 1))
            after += ((p[rows, None] * first).T @ second).flatten()
    return after


def _product(kernels: Tensor) -> Tensor:
    """The probability of each of the K^l sequences at l independent positions, (n, l, K) -> (n, K^l)."""
    n, start = len(kernels), torch.ones(len(kernels), 1, dtype=kernels.dtype)
    return functools.reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(n, -1), kernels.unbind(1), start)
