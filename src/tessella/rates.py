"""Generators of the noise of continuous-time chains (tauLDR, arXiv 2205.14987, section 4.1 and its appendix on rates).

Each gives R (K, K) float64, rates from row to column with rows that sum to zero, and its stationary law (K,). All but
`absorbing` are reversible: law_i R_ij = law_j R_ji. A process multiplies R by beta_t (`chains.CTMC`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import InputError


def uniform(K: int) -> tuple[Tensor, Tensor]:
    """Rate 1 between any two states."""
    return _generator(torch.ones(K, K, dtype=torch.float64)), torch.full((K,), 1 / K, dtype=torch.float64)


def birth_death(K: int) -> tuple[Tensor, Tensor]:
    """Rate 1 to each neighbour on the line 0..K-1; the law is uniform."""
    return _generator(_distance(K) == 1), torch.full((K,), 1 / K, dtype=torch.float64)


def gaussian(K: int, rate_sigma: float, target_sigma: float) -> tuple[Tensor, Tensor]:
    """Towards a discretised Gaussian: of two states the one nearer to an end goes to the other with the rate

        exp(-(d - 1)^2 / rate_sigma^2),   d their distance (two at the same distance from the ends: the lower one)

    and the way back has the rate that detailed balance asks for. Units: states.

    Args:
        rate_sigma: how far a jump goes.
        target_sigma: of the law, exp(-(k - K/2 + 1)^2 / (2 target_sigma^2)); large against K, it is nearly uniform.
    """
    for name, sigma in (("rate-sigma", rate_sigma), ("target-sigma", target_sigma)):
        if not sigma > 0:
            raise InputError(f"--{name} is {sigma:g}; it must be above 0")
    k, d = torch.arange(K, dtype=torch.float64), _distance(K)
    log_law = -((k - K / 2 + 1) ** 2) / (2 * target_sigma**2)
    out = (k - (K - 1) / 2).abs()  # how far from the middle
    inward = (out[:, None] > out) | ((out[:, None] == out) & (k[:, None] < k))
    back = torch.where(inward, 0.0, log_law - log_law[:, None])
    rate = torch.exp(back - (d - 1) ** 2 / rate_sigma**2)
    return _generator(rate), log_law.softmax(0)


def absorbing(K: int, mask: int | None = None) -> tuple[Tensor, Tensor]:
    """Rate 1 from every state into the mask, the last state unless said."""
    law = F.one_hot(torch.tensor(K - 1 if mask is None else mask), K).double()
    return _generator(law.expand(K, K)), law


def gap(R: Tensor, law: Tensor) -> float:
    """The rate at which the slowest mode of a reversible R decays: its smallest eigenvalue but 0, as a positive number.

    >>> round(gap(*uniform(5)), 9)
    5.0
    """
    root = law.sqrt()
    S = root[:, None] * R / root
    return float(-torch.linalg.eigvalsh((S + S.mT) / 2)[-2])


def _distance(K: int) -> Tensor:
    k = torch.arange(K, dtype=torch.float64)
    return (k[:, None] - k).abs()


def _generator(rate: Tensor) -> Tensor:
    """Rates off the diagonal as a generator."""
    rate = rate.double().clone().fill_diagonal_(0.0)
    return rate - torch.diag(rate.sum(-1))
