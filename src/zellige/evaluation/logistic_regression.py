"""Multinomial logistic regression, on vectors and on bags of tokens: what a linear probe is."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

PENALTIES = tuple(10.0**k for k in range(-6, 0))


def regress(
    apply: Callable[[Tensor], Tensor],
    width: int,
    labels: Tensor,
    classes: int,
    penalty: float,
    start: Tensor | None = None,
):
    """The weights (width + 1, classes) of a regression with an L2 penalty on all but the last row, the bias. Convex; by L-BFGS.

    apply: weights (width, classes) -> logits (N, classes).
    """
    weights = torch.zeros(width + 1, classes, dtype=torch.float64) if start is None else start.clone()
    weights.requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=200, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits = apply(weights[:-1]) + weights[-1]
        loss = F.cross_entropy(logits, labels) + penalty / 2 * weights[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    return weights.detach()


def linear(features: Sequence[Any], labels: Sequence[Tensor], classes: int) -> tuple[Tensor, float]:
    """Which texts of the third part a regression on the first gets right, (N,) bool, with the penalty that the second chose.

    features: of the three parts, (N, D) each, dense or sparse, float64.
    """
    multiply = lambda x: lambda w: torch.sparse.mm(x, w) if x.is_sparse else x @ w  # noqa: E731
    correct = lambda x, w, y: (multiply(x)(w[:-1]) + w[-1]).argmax(-1) == y  # noqa: E731
    best, weights = (-1, math.inf, None), None
    for penalty in reversed(PENALTIES):  # each starts from the one before, which is smoother
        weights = regress(multiply(features[0]), features[0].shape[1], labels[0], classes, penalty, weights)
        right = int(correct(features[1], weights, labels[1]).sum())
        if right > best[0]:
            best = (right, penalty, weights)
    return correct(features[2], best[2], labels[2]), best[1]


def standardized(parts: Sequence[Tensor]) -> list[Tensor]:
    """Features with mean 0 and variance 1 on the first part, float64."""
    parts = [part.double() for part in parts]
    mean, scale = parts[0].mean(0), parts[0].std(0).clamp_min(1e-8)
    return [(part - mean) / scale for part in parts]


def bags(parts: Sequence[Sequence[Sequence[int]]], vocabulary: int) -> list[Tensor]:
    """tf-idf counts of tokens, each text of norm 1: (1 + log count) (1 + log N/n), for n of the first part's N texts with it."""
    counted = []
    for texts in parts:
        rows = torch.cat([torch.full((len(text),), i) for i, text in enumerate(texts)])
        columns = torch.cat([torch.tensor([*text], dtype=torch.long) for text in texts])
        ones = torch.ones(len(rows), dtype=torch.float64)
        counted.append(
            torch.sparse_coo_tensor(
                torch.stack((rows, columns)), ones, (len(texts), vocabulary), check_invariants=False
            ).coalesce()
        )
    seen = torch.bincount(counted[0].indices()[1], minlength=vocabulary).double()
    weight = (len(parts[0]) / seen.clamp_min(1)).log() + 1
    weighted = []
    for counts in counted:
        index = counts.indices()
        values = (1 + counts.values().log()) * weight[index[1]]
        norm = torch.zeros(counts.shape[0], dtype=torch.float64).index_add(0, index[0], values.square()).sqrt()
        weighted.append(
            torch.sparse_coo_tensor(index, values / norm[index[0]], counts.shape, check_invariants=False).coalesce()
        )
    return weighted
