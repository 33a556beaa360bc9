"""Exact sampling from any source of random numbers. All tokens are sampled by this module."""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.waiting import at_hand
from .counter_random import Counter, Independent, Middle, Streams
from .positions import positions


def mix(*numbers: int | str) -> int:
    """Hash numbers to one seed of 63 bits; different numbers have independent streams."""
    digest = hashlib.blake2b(",".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Source(Protocol):
    """Source of uniforms other than `torch.Generator`.

    `Shard` has the numbers of one rank. `exact.Script` enumerates the outcomes of a step of a sampler; it also has
    `bernoulli(p)` and `categorical(p, at)`.
    """

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor: ...


# The type of every argument `generator`: a `Counter` in training, a `Shard` in evaluation, `Streams` in sampling (one
# stream for each sequence), or a user's `torch.Generator`. None: the global generator of PyTorch.
Randomness = torch.Generator | Sequence[torch.Generator] | Source | None


def uniform(shape: Sequence[int], generator: Randomness = None, device: torch.device | None = None) -> Tensor:
    """Uniforms in [0, 1) with 53 random bits, float64.

    With a list of generators, generator b makes the numbers of index b of the first axis, so that these do not depend
    on the batch.

    Raises:
        InputError: the length of the list is not that of the first axis.
    """
    if generator is None or isinstance(generator, torch.Generator):
        where = generator.device if generator is not None else device
        return torch.rand(tuple(shape), generator=generator, device=where, dtype=torch.float64).to(device or where)
    if isinstance(generator, Sequence):
        if len(generator) != shape[0]:
            raise InputError(f"{len(generator)} generators for {shape[0]} rows; give one for each row")
        return torch.stack([uniform(shape[1:], row, device) for row in generator])
    return generator.uniform(shape, device)


def bernoulli(p: Tensor, generator: Randomness = None, at: Tensor | None = None) -> Tensor:
    """Sample True with probability p, elementwise, with 53 random bits. `at` as in `categorical`."""
    if (enumerated := getattr(generator, "bernoulli", None)) is not None:
        return enumerated(p, at)
    return _uniform_at(p.shape, generator, p.device, at) < p


def categorical(p: Tensor, generator: Randomness = None, at: Tensor | None = None) -> Tensor:
    """Sample from the distributions in the last axis of p by inverse CDF; they need not be normalised.

    Args:
        p: (*, K) non-negative weights; or (N, K), for the N positions where `at` is True.
        at: (B, L) bool. Each position of (B, L) has its own uniform, so that its sample does not depend on which other
            positions are sampled.

    Returns:
        (*) or (N,) long.

    The result is the first index whose cumulative sum, in float64 (relative error about K * 1e-16), exceeds u * total,
    u < 1. So an index of weight 0 is never sampled. Published code uses Gumbel noise in float32, which cannot represent
    the tail of the Gumbel distribution, and so lowers the temperature (Zheng et al. 2024).
    """
    if (enumerated := getattr(generator, "categorical", None)) is not None:
        return enumerated(p, at)
    u = _uniform_at(p.shape[:-1], generator, p.device, at)
    return _invert(p, u[..., None])[..., 0]


def truncated_gumbel(p: Tensor, bits: int) -> Tensor:
    """Distribution of argmax_i log p_i - log(-log u_i) if no uniform u_i exceeds 1 - 2^-bits: (*, K) -> (*, K).

    float32 has 24 bits. The argmax is argmin_i E_i / p_i with E_i = -log u_i = m + X_i, m = -log(1 - 2^-bits) and X_i
    exponential (Zheng et al. 2024 have a series for it). E_i / p_i is at least a_i = m / p_i. Let the states be in the
    order of a, S_k the sum of the first k probabilities, and a_{K+1} infinite:

        P(i) = p_i sum_{k >= i} [e^{k m - S_k a_k} - e^{k m - S_k a_{k+1}}] / S_k

    This is the effect of the truncation alone. Numbers of float32 also lie on a grid. Take a state of small probability
    p beside one of probability about 1, and x = m / p: to first order the truncation multiplies p by e^-x, truncation
    and grid together by x / (e^x - 1).
    """
    m, p = -math.log1p(-(2.0**-bits)), p.double()
    q, order = (p / p.sum(-1, keepdim=True)).sort(-1, descending=True)
    total, rank = q.cumsum(-1), torch.arange(1, q.shape[-1] + 1, dtype=q.dtype, device=p.device)
    start = torch.where(q > 0, m / q, torch.inf)
    wait = torch.nn.functional.pad(start[..., 1:], (0, 1), value=torch.inf) - start
    share = (rank * m - total * start).exp() * -torch.expm1(-total * wait) / total
    share = torch.where(q > 0, share, 0.0)
    later = share.flip(-1).cumsum(-1).flip(-1)
    return torch.zeros_like(q).scatter(-1, order, q * later)


def from_tables(distributions: Callable[[Tensor], Tensor], K: int, x: Tensor, generator: Randomness = None) -> Tensor:
    """Sample from distributions that depend on the sequence and on the state x (B, L): (B, L) long.

    `distributions` maps n states of each sequence, (B, n), to their distributions (B, n, K). It is called once: on a
    CPU with the states that occur, on a GPU with all states, since reading x there would synchronise.
    """
    states, position = torch.arange(K, device=x.device).expand(len(x), K), x
    if at_hand(x):
        present = torch.zeros(len(x), K, dtype=torch.bool).scatter_(1, x, True)
        position = (present.cumsum(1) - 1).gather(1, x)
        states = present.int().argsort(dim=1, descending=True, stable=True)[
            :, : int(present.sum(1).max()) if x.numel() else 0
        ]
    cumulative = distributions(states).cumsum(-1, dtype=torch.float64)
    return _pick_shared(cumulative, position, uniform(x.shape, generator, x.device))


def poisson(mean: Tensor, generator: Randomness = None, at: Tensor | None = None) -> Tensor:
    """Sample Poisson counts by inverse CDF, from one uniform each: means (*, K), or (N, K) with `at` -> float64.

    `at` as in `categorical`. The count is the smallest n with P(N <= n) = Gamma(n + 1, mean) / n! > u, the incomplete
    gamma function. It is 0 where u < e^-mean. P is exact to rounding up to 20 events, and to 1e-9 beyond (asymptotic
    series of PyTorch).
    """
    shape = mean.shape if at is None else (*at.shape, mean.shape[-1])
    u = uniform(shape, generator, mean.device)
    u, count = u if at is None else u[at], torch.zeros_like(mean, dtype=torch.float64)
    positive = u >= (-mean.double()).exp()
    u, mean = u[positive], mean[positive].double().clamp_max(1e12)
    low, high = torch.zeros_like(u), torch.ones_like(u)  # P(N <= low) <= u
    while (short := torch.special.gammaincc(high + 1, mean) <= u).any():
        low, high = torch.where(short, high, low), torch.where(short, 2 * high, high)
    while (high - low > 1).any():
        middle = ((low + high) / 2).floor()
        short = torch.special.gammaincc(middle + 1, mean) <= u
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return count.masked_scatter(positive, high)


def exponential(shape: Sequence[int], generator: Randomness = None, device: torch.device | None = None) -> Tensor:
    """Sample exponential waiting times of rate 1 by inverse CDF: float64."""
    return -(-uniform(shape, generator, device)).log1p()


def enumerates(generator: Randomness) -> bool:
    """Return whether a source enumerates the outcomes of `categorical` instead of sampling one (`exact.Script`)."""
    return hasattr(generator, "categorical")


def replace(x: Tensor, probability: Tensor | float, distribution: Tensor, generator: Randomness = None) -> Tensor:
    """Replace each entry of x (*), with `probability` (*), by a sample from `distribution` (K,): (*) long.

    One uniform u serves both: where u < probability, u / probability is uniform, with log2(1 / probability) bits fewer
    than 53.
    """
    if not isinstance(probability, Tensor):  # made on the device, since a copy would synchronise
        probability = torch.full((), probability, dtype=torch.float64, device=x.device)
    p = probability.to(x.device, torch.float64).expand(x.shape)
    if enumerates(generator):
        identity = torch.zeros(*x.shape, len(distribution), dtype=p.dtype, device=x.device).scatter(
            -1, x[..., None], 1.0
        )
        return categorical((1 - p)[..., None] * identity + p[..., None] * distribution, generator)
    u = uniform(x.shape, generator, x.device)
    redraw = u < p
    return torch.where(redraw, _invert(distribution, u / torch.where(redraw, p, 1.0)), x)


def _invert(p: Tensor, u: Tensor) -> Tensor:
    """Inverse CDF of weights p (*, K) at u (*, n), or of weights (K,) at u of any shape."""
    return _pick(p.cumsum(-1, dtype=torch.float64), u)


def _pick(cumulative: Tensor, u: Tensor) -> Tensor:
    """Inverse CDF at u, from the cumulative sums of the weights."""
    total = cumulative[..., -1:]
    below = torch.nextafter(total, torch.zeros_like(total))  # u * total may round up to total itself
    return torch.searchsorted(cumulative, torch.minimum(u * total, below), right=True)


def _pick_shared(cumulative: Tensor, position: Tensor, u: Tensor) -> Tensor:
    """`_pick` where positions share their sums: cumulative (B, n, K), index `position` into n and u (B, L) -> (B, L).

    By bisection, since `searchsorted` would need a copy of the sums for each position.
    """
    n, K = cumulative.shape[1:]
    start = (torch.arange(len(position), device=u.device)[:, None] * n + position) * K  # of a position's sums
    sums = cumulative.flatten()
    total = sums.take(start + (K - 1))
    u = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    index, width = torch.zeros_like(start), 1 << K.bit_length() - 1
    while width:  # at least `index` sums are at or below u
        more = index + width
        below = (sums.take(start + more.clamp_max(K) - 1) <= u) & (more <= K)
        index, width = torch.where(below, more, index), width // 2
    return index


def _uniform_at(shape: Sequence[int], generator: Randomness, device: torch.device, at: Tensor | None) -> Tensor:
    if at is None:
        return uniform(shape, generator, device)
    where = positions(at)
    if isinstance(generator, Streams):  # only the uniforms that are needed
        return generator.draw(where.row, where.index - where.row * at.shape[1])
    return where.of(uniform(at.shape, generator, device))


def of_rows(generator: Randomness, rows: Tensor, at: Tensor | None = None) -> Randomness:
    """Select the generators of these sequences (N,), if each sequence has its own.

    For `Streams`, calls do not count for the sequences where `at` (N,) is False (`Streams.of`).
    """
    if isinstance(generator, Streams):
        return generator.of(rows, at)
    return [generator[b] for b in rows.tolist()] if isinstance(generator, Sequence) else generator


def discard(shape: Sequence[int], generator: Randomness) -> None:
    """Skip uniforms that are not needed, so that the generators of all sequences stay in step."""
    if isinstance(generator, Streams):
        generator.count()
    elif isinstance(generator, Sequence):
        uniform(shape, generator)


def shared(generator: Randomness = None, device: torch.device | None = None) -> Tensor:
    """Uniform (1,) for the whole batch, the same on each rank."""
    if isinstance(generator, Counter):
        return generator.shared(device)
    return uniform((1,), generator.generator if isinstance(generator, Shard) else generator, device)


def stratified(n: int, generator: Randomness = None, device: torch.device | None = None) -> Tensor:
    """Sample n uniforms in [0, 1) that are together spread evenly: (n,) float64.

    u_b = frac(u + b / n) with one uniform u, the low-discrepancy sampler of VDM (arXiv 2107.00630, appendix I.1). With
    several ranks or parts, n and b count all examples. A source may have its own method `stratified`; those of `Middle`
    are placed in the middle.
    """
    return _placed(_strata(n, generator, device), generator)


def _strata(n: int, generator: Randomness, device: torch.device | None) -> Tensor:
    if (own_strata := getattr(generator, "stratified", None)) is not None:
        return own_strata(n, device)
    u = shared(generator, device)
    row, rows = _among(n, generator, u.device)
    return (u + row / rows) % 1.0


def spread(n: Tensor, generator: Randomness = None, placed: bool = True) -> Tensor:
    """Uniforms in [0, 1) for G groups of each example, with n (B, G) positions in each: (B, G) float64.

    They are spread evenly over the examples, and over the groups of each example that have a position. Those of
    `Middle` are placed in the middle, unless `placed` is False.
    """
    if isinstance(generator, Independent):
        return uniform(n.shape, generator, n.device)
    u = _strata(len(n), generator, n.device)[:, None]
    groups = (n > 0).sum(-1, keepdim=True).clamp_min(1)
    u = (u + torch.arange(n.shape[1], dtype=u.dtype, device=n.device) / groups) % 1.0
    return _placed(u, generator) if placed else u


def row_by_row(n: Tensor, generator: Randomness = None, placed: bool = True) -> Tensor:
    """As `spread`, with one stratum per group, in order: the groups of the first example have the largest uniforms."""
    if isinstance(generator, Independent):
        return uniform(n.shape, generator, n.device)
    row, rows = _among(len(n), generator, n.device)
    stratum = row[:, None] * n.shape[1] + torch.arange(n.shape[1], dtype=torch.float64, device=n.device)
    total = rows * n.shape[1]
    u = (total - 1 - stratum + uniform(n.shape, generator, n.device)) / total
    return _placed(u, generator) if placed else u


def _placed(u: Tensor, generator: Randomness) -> Tensor:
    return generator.place(u) if isinstance(generator, Middle) else u


def _among(n: int, generator: Randomness, device: torch.device | None) -> tuple[Tensor, int]:
    """Indices (n,) of n examples among those of all ranks or parts, and the number of all examples."""
    row = torch.arange(n, dtype=torch.float64, device=device)
    if isinstance(generator, Shard):
        return generator.rank * n + row, generator.world * n
    return (generator.part + generator.parts * row, generator.parts * n) if isinstance(generator, Counter) else (row, n)


class Shard:
    """Random numbers of one rank: those that a single process would draw for the same examples of the whole batch.

    So n ranks with B examples each compute the same as one process with n B examples, strata included. The generator
    must have the same state on every rank, and every rank must have the same number of examples.
    """

    def __init__(self, generator: torch.Generator, rank: int = 0, world: int = 1):
        self.generator, self.rank, self.world = generator, rank, world

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        rows = shape[0]
        draws = uniform((self.world * rows, *shape[1:]), self.generator, device)
        return draws[self.rank * rows : (self.rank + 1) * rows]
