"""The transition matrices of D3PM (Austin et al. 2021, arXiv 2107.03006, appendix A.2), and their strengths.

Rows are the source state: Q[i, j] = q(x_i = j | x_{i-1} = i). Each is a function of K and of one number beta, its
strength: 0 changes nothing. All without a mask are doubly stochastic, so that their stationary distribution is uniform.

    uniform      (1 - beta) I + beta 1 1'/K                                          (A.2.1, eq. 6)
    absorbing    (1 - beta) I + beta 1 e_m'; m the mask or a state of the data       (A.2.2, eq. 7)
    both         (1 - beta) I + beta w 1 e_m' + beta (1 - w) 1 1'/K                  (A.2.6)
    gaussian     ~ exp(-4 (i - j)^2 / ((K - 1)^2 beta)) off the diagonal             (A.2.3, eq. 8)
    nearest      exp(beta R), R the rates of a k-nearest-neighbour graph             (A.2.4, eq. 9)
                 with a mask beside it, to which every token has the same rate       (A.2.6)
    band         beta/K where 0 < |i - j| <= width                                   (A.2.5, eq. 10)

The first three are mixtures, which need no matrix (`process.Mixture`): with the same w in each step, the third has the
prior w e_m + (1 - w) 1/K. `levels` makes a `Chain` of the kernels for ordered states, `graph` a process of the nearest
neighbours: its matrices commute, so it is a `CTMC` at the times i/T (A.4, eq. 16); `graph_steps` is that of the
published text code. By their names: `d3pm_noise`.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base.errors import InputError
from ..core import maths
from ..core.matrices import CTMC, THIN, Chain, Kernels, afford
from ..core.schedule import Schedule, Tabulated

D = torch.float64
FORGOTTEN = 6.0  # -log of what T steps must leave of the slowest mode; the paper's betas on many levels: 6.2
STRONGEST = 1e4  # beyond it a Gaussian kernel hardly changes


# ---------------------------------------------------------------------------------- one matrix
def uniform(K: int, beta: float) -> Tensor:
    """Redrawn uniformly with probability beta (eq. 6): (K, K)."""
    return (1 - beta) * torch.eye(K, dtype=D) + beta / K  # D3PM eq. 6


def absorbing(K: int, beta: float, state: int) -> Tensor:
    """Lost to `state`, the mask or a state of the data, with probability beta (eq. 7): (K, K)."""
    Q = (1 - beta) * torch.eye(K, dtype=D)
    Q[:, state] += beta  # D3PM eq. 7
    return Q


def gaussian(K: int, beta: float, width: int = 0) -> Tensor:
    """The discretised Gaussian (eq. 8), cut off at jumps of more than `width` levels if that is not 0: (K, K)."""
    return _jumps(gaussian_jumps(K, torch.tensor([float(beta)], dtype=D), width))[0]


def band(K: int, beta: float, width: int) -> Tensor:
    """beta/K to each of the `width` levels on either side (eq. 10), for beta up to K/(2 width): (K, K)."""
    return _jumps(band_jumps(K, torch.tensor([float(beta)], dtype=D), width))[0]


def gaussian_jumps(K: int, beta: Tensor, width: int = 0) -> Tensor:
    """The probability of a jump by n = 0..K-1 levels, the same up and down: (T,) -> (T, K)."""
    n, reach = torch.arange(K, dtype=D, device=beta.device), width or K - 1
    weight = torch.exp(-4 * n**2 / (max(K - 1, 1) ** 2 * beta[:, None])).masked_fill(n > reach, 0.0)
    weight = weight / (2 * weight.sum(-1, keepdim=True) - 1)  # D3PM eq. 8: over n = -reach..reach
    return weight.masked_fill(weight < 1e-60, 0.0)  # a ratio of two entries must not overflow


def band_jumps(K: int, beta: Tensor, width: int) -> Tensor:
    """The probability of a jump by n = 0..K-1 levels, up or down: beta/K for 1 to `width`, else 0; (T,) -> (T, K)."""
    n = torch.arange(K, dtype=D, device=beta.device)
    return beta[:, None] / K * ((n > 0) & (n <= width))  # D3PM eq. 10


def _jumps(probability: Tensor) -> Tensor:
    """The matrices (U, K, K) of jumps (U, K) over a line of K levels; the diagonal takes what would leave the line, so
    columns sum to 1 too."""
    U, K = probability.shape
    line = torch.cat((probability.flip(1), probability[:, 1:]), 1)  # n = 1-K..K-1: row i is K of them, from n = -i on
    Q = line.as_strided((U, K, K), (2 * K - 1, 1, 1)).flip(1)
    diagonal = Q.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.copy_(1 - Q.sum(-1))
    return Q


# ---------------------------------------------------------------------------------- nearest neighbours
def neighbours(embedding: Tensor, k: int) -> Tensor:
    """The k tokens nearest to each of N, by Euclidean distance, ties to the lower index: (N, d) -> (N, k) long."""
    if not 1 <= k < len(embedding):
        raise InputError(
            f"`neighbours` is {k}; with {len(embedding):,} tokens it must be from 1 to {len(embedding) - 1:,}"
        )
    parts = embedding.to(D).split(4096)
    apart = torch.cat(
        [torch.cdist(piece, embedding.to(D), compute_mode="donot_use_mm_for_euclid_dist") for piece in parts]
    )
    return apart.fill_diagonal_(math.inf).sort(dim=-1, stable=True).indices[:, :k]


def nearest(embedding: Tensor, k: int, weights: str = "equal") -> Tensor:
    """The rates R of eq. 9: A = (G + G')/(2 k) off the diagonal, G the graph of the k nearest; rows sum to zero.
    (N, N).

    Args:
        weights: of an edge to the neighbour of rank r = 0..k-1: 1 ("equal"), or k softmax(-2 r^2/k)_r as the published
            text code can have it ("rank").
    """
    near = neighbours(embedding, k)
    rank = torch.arange(k, dtype=D)
    edge = k * (-2 * rank**2 / k).softmax(0) if weights == "rank" else torch.ones_like(rank)
    G = torch.zeros(len(near), len(near), dtype=D).scatter_(1, near, edge.expand_as(near))
    A = (G + G.mT) / (2 * k)
    return A - torch.diag(A.sum(-1))  # D3PM eq. 9


def masked(R: Tensor, rate: float) -> Tensor:
    """Rates (N, N) with a mask as the last of N + 1 states,
    which every token enters at `rate` and none leaves (A.2.6)."""
    more = F.pad(R - rate * torch.eye(len(R), dtype=R.dtype), (0, 1, 0, 1))
    more[:-1, -1] = rate
    return more


def neighbour_matrix(embedding: Tensor, k: int, scaling: str, beta: float = 0.0) -> Tensor:
    """M of the published text code, of the graph G + G' of eq. 9: to a token (rows) from a token (columns), (N, N).

    "sinkhorn": rows and columns are divided by their sums in turn, 50 times, columns last; "expm":
    exp(beta (G + G' - D)), D the sums of its rows, beta that of the first step.
    """
    R = 2 * k * nearest(embedding, k)
    if scaling == "expm":
        return torch.linalg.matrix_exp(beta * R)
    A = R.fill_diagonal_(0.0)
    for _ in range(50):
        A = A / A.sum(1, keepdim=True)
        A = A / A.sum(0, keepdim=True)
    return A


def stationary(M: Tensor) -> Tensor:
    """The distribution (V,) that a transition matrix (V, V) keeps.

    Raises:
        InputError: there are several, so that the noise does not forget where it began.
    """
    V = len(M)
    _, size, rows = torch.linalg.svd((M - torch.eye(V, dtype=D)).mT)
    if V > 1 and size[-2] < 1e-9:
        raise InputError(
            "the noise of `matrix` never leaves some of its states; every token must be reached from every other"
        )
    kept = rows[-1] / rows[-1].sum()
    return kept.clamp_min(0.0) / kept.clamp_min(0.0).sum()


def of_matrix(M: Tensor, T: int, schedule: str) -> CTMC:
    """Noise by a transition matrix of one's own, in T steps: Q_{s,t} = exp((a_t - a_s) (M - I)), rows of M from token
    to token.

    `schedule`, "linear" or "cosine", says what is left of the slowest mode, as alpha does of a mixture's token.
    """
    V = len(M)
    afford(V)
    R, prior = M - torch.eye(V, dtype=D), stationary(M)
    slowest = -float(torch.linalg.eigvals(R).real.sort().values[-2]) if V > 1 else 1.0
    return CTMC(R / slowest, prior, Tabulated(table(schedule, T, V, absorbing=False)))  # D3PM eq. 16


# ---------------------------------------------------------------------------------- how much noise
TABLES = ("linear", "linear-to-one", "cosine", "even", "mutual-information")


def table(
    name: str, T: int, V: int, absorbing: bool, redrawn: float | None = None, unigrams: Tensor | None = None
) -> Tensor:
    """alpha_i, i = 0..T, of D3PM's noise schedules for V tokens (arXiv 2107.03006, section 3.2): (T + 1,) float64.

    Args:
        redrawn: the probability that a lost token becomes this or that token: 1/V by default, where nothing absorbs.
        unigrams: (V,) the distribution of x_0 for "mutual-information"; uniform by default.
    """
    left = 1 - torch.arange(T + 1, dtype=D) / T
    if name == "even":  # beta_i = 1/(T - i + 1) whatever the noise (D3PM, table 6)
        return left
    if name == "mutual-information":  # at the mask beta_i = 1/(T - i + 1)
        if not absorbing and V == 1:
            raise InputError("`schedule` mutual-information needs two tokens or more; use `schedule` cosine")
        return left if absorbing else _informed(left, V, 1 / V if redrawn is None else redrawn, unigrams)
    if name == "linear":  # DDPM's 1e-4 to 0.02 at T = 1000, scaled so that alpha_T hardly depends on T
        last = min(20 / T, 0.999)
        beta = torch.linspace(0.1 / T if T > 1 else last, last, T, dtype=D)
    elif name == "linear-to-one":  # D3PM table 4; of a long chain alpha is below any float64 long before T
        beta = torch.linspace(0.02, 1.0, T, dtype=D)
        kept = torch.cat((torch.ones_like(beta[:1]), (1 - beta[:-1]).cumprod(0), torch.zeros_like(beta[:1])))
        return torch.maximum(kept, 1e-300 * left)  # it decreases all the way, to 0
    else:  # f(i) = cos(pi/2 (i/T + 0.008)/1.008), not squared
        f = torch.cos(math.pi / 2 * (1.008 - left) / 1.008)  # D3PM eq. 18
        beta = (1 - f[1:] / f[:-1]).clamp_max(0.999)
    return torch.cat((torch.ones_like(beta[:1]), (1 - beta).cumprod(0)))


def _informed(left: Tensor, V: int, redrawn: float, unigrams: Tensor | None = None) -> Tensor:
    """alpha at which I(x_t; x_0)/H(x_0) is `left`, noise as in `table`, by bisection; x_0 uniform unless `unigrams`.

    Given x_0 the distribution of x_t is alpha + (1 - alpha) redrawn at x_0, (1 - alpha) redrawn at the V - 1 other
    tokens, and without x_0 their mean at each token; at a mask the two agree.
    """
    p = None if unigrams is None else unigrams[unigrams > 0]
    entropy = math.log(V) if p is None else -float(maths.xlogy(p, p).sum())
    low, high = torch.zeros_like(left), torch.ones_like(left)
    for _ in range(60):
        alpha = (low + high) / 2
        off_diagonal = (1 - alpha) * redrawn
        if p is None:
            mean = alpha / V + off_diagonal
            # D3PM eq. 17
            information = maths.xlogy(alpha + off_diagonal, (alpha + off_diagonal) / mean) + (V - 1) * maths.xlogy(
                off_diagonal, off_diagonal / mean
            )
        else:
            kept, lost = (alpha + off_diagonal)[:, None], off_diagonal[:, None]
            mean = alpha[:, None] * p + lost
            # D3PM eq. 17, the sum over x_0 and x_t
            information = (p * maths.xlogy(kept, kept / mean) + (1 - p) * maths.xlogy(lost, lost / mean)).sum(-1)
        more = information > left * entropy
        low, high = torch.where(more, low, alpha), torch.where(more, alpha, high)
    return torch.where(left % 1 == 0, left, low)


def betas(name: str, T: int) -> Tensor:
    """beta_1..beta_T, (T,): "linear" (DDPM's), "cosine", or "mutual-information",
    which is 1/(T - i + 1) at the mask."""
    alpha = table(name, T, 2, absorbing=True)
    return 1 - alpha[1:] / alpha[:-1]


def left(jumps: Tensor) -> Tensor:
    """Factor by which one step shrinks the slowest mode on a line, cos(pi (i + 1/2)/K), nearly the second eigenvalue:
    (T, K) -> (T,)."""
    K = jumps.shape[-1]
    mode = torch.cos(math.pi * (torch.arange(K, dtype=D) + 0.5) / K)
    change = torch.stack([(mode[n:] - mode[: K - n]).square().sum() for n in range(K)]) / mode.square().sum()
    return 1 - jumps @ change


def forgets(jumps: Tensor) -> bool:
    """Return whether T steps with these jumps (T, K) leave e^-6 or less of the slowest mode."""
    return float(left(jumps).log().sum()) <= -FORGOTTEN


def strengths(jumps: Callable[[Tensor], Tensor], beta: Tensor, most: float = STRONGEST) -> Tensor:
    """Strength (T,) of each step, such that it shrinks the slowest mode as Gaussian noise with these betas (T,) does on
    many levels.

    That is a factor exp(-pi^2 beta/16). Where levels are many, a Gaussian kernel needs beta itself (0.8% more at 256
    levels); where they are few, it needs more: the paper's betas hardly ever reach the next one (of 8 levels, 65% of
    the slowest mode would be left at T), and what is not forgotten is paid for in the bound. Betas of which T steps
    would leave more than e^-6 are multiplied by a number first. No step is stronger than `most`; where all are and it
    is not enough, the prior's term of the bound says so.
    """
    decay, top = math.pi**2 / 16 * beta, -float(left(jumps(torch.tensor([most], dtype=D))).log())
    low, high = 0.0, math.log(max(top / float(decay.min()), 1.0))
    for _ in range(50):
        middle = (low + high) / 2
        enough = (decay * math.exp(middle)).clamp_max(top).sum() >= FORGOTTEN
        low, high = (low, middle) if enough else (middle, high)
    target = torch.exp(-(decay * math.exp(high)).clamp_max(top))
    low, high = torch.full_like(beta, math.log(1e-9)), torch.full_like(beta, math.log(most))
    for _ in range(50):
        middle = (low + high) / 2
        enough = left(jumps(middle.exp())) <= target
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high.exp()


def kept(Q: Tensor, distribution: Tensor) -> Tensor:
    """I(x_t; x_0) / H(x_0) of x_0 with this distribution (K,) and x_t from it by Q (K, K): a number (A.7, eq. 17)."""
    information = (distribution * maths.kl(Q, distribution @ Q)).sum()
    return information / -maths.xlogy(distribution, distribution).sum()  # D3PM eq. 17


def informed(kernel: Callable[[float], Tensor], distribution: Tensor, removed: Tensor, points: int = 512) -> Tensor:
    """The strengths at which `removed` (n,), in (0, 1), of the information about x_0 is lost: (n,) (A.7).

    As in the paper the information is computed at geometrically spaced strengths and interpolated, linearly in their
    log.
    """
    log_strength = torch.linspace(math.log(1e-6), math.log(1e5), points, dtype=D)
    loss = torch.stack([1 - kept(kernel(float(s)), distribution) for s in log_strength.exp()]).cummax(0).values
    i = torch.searchsorted(loss, removed).clamp(1, points - 1)
    share = (removed - loss[i - 1]) / (loss[i] - loss[i - 1]).clamp_min(1e-300)
    return torch.lerp(log_strength[i - 1], log_strength[i], share.clamp(0.0, 1.0)).exp()


# ---------------------------------------------------------------------------------- processes
def levels(kind: str, K: int, T: int, schedule: str, width: int = 0, strength: str = "paper") -> Chain:
    """The chain of a kernel for K ordered states, "gaussian" or "band"; its width is a quarter of the levels if it is
    0.

    `schedule`, "linear" or "cosine", gives the betas. With `strength` "paper" a Gaussian kernel has them as they are,
    if it forgets x_0 (`forgets`); otherwise, and with "matched", each step is as strong as on many levels
    (`strengths`).
    """
    afford(K, -(-T // THIN))
    if not 0 <= width < K:
        raise InputError(f"`width` is {width}; with {K} levels it must be from 0 to {K - 1}")
    if kind == "band":
        width = width or max(K // 4, 1)
        jumps, limit = band_jumps, K / (2 * width + 1)
    else:
        jumps, limit = gaussian_jumps, STRONGEST
    beta = betas(schedule, T)
    if kind == "band" or strength == "matched" or not forgets(jumps(K, beta, width)):
        beta = strengths(lambda b: jumps(K, b, width), beta, limit)
    steps = Kernels(lambda b: _jumps(jumps(K, b, width)), beta)
    return Chain(steps, torch.full((K,), 1 / K, dtype=D))


def graph(
    embedding: Tensor,
    k: int,
    T: int,
    schedule: str,
    distribution: Tensor | None = None,
    weights: str = "equal",
    mask_rate: float = 0.0,
) -> CTMC:
    """Noise that moves a token to one of its k nearest in an embedding (N, d), in T steps: Q_{s,t} = exp((a_t - a_s)
    R).

    Args:
        schedule: "linear" and "cosine" say what is left of the slowest mode, as alpha does of a mixture's token;
            "mutual-information" loses i/T of the information about x_0 by step i.
        distribution: (N,) of x_0 for the latter, the frequencies of the tokens; uniform by default.
        weights: of the edges, see `nearest`.
        mask_rate: the rate into a mask, state N, beside a rate of about 1 to all neighbours; 0 is no mask. With a mask
            the slowest mode is that of not being masked, exp(-mask_rate a).
    """
    N = len(embedding)
    afford(N + bool(mask_rate))
    R = nearest(embedding, k, weights)
    values, vectors = torch.linalg.eigh(R)
    slowest = mask_rate or -float(values[-2])
    if slowest < 1e-9:
        parts = int((values > -1e-9).sum())
        raise InputError(f"the graph of the {k} nearest tokens falls into {parts} parts; give more `neighbours`")
    prior = torch.full((N,), 1 / N, dtype=D)
    if schedule == "mutual-information":

        def moved(a: float) -> Tensor:
            """q(x | x_0) at the exponent a, (N, N) or with a mask (N, N + 1)."""
            Q = ((vectors * (a * values).exp()) @ vectors.mT).clamp_min(0.0)
            if not mask_rate:
                return Q
            left = math.exp(-mask_rate * a)
            return torch.cat((left * Q, torch.full((N, 1), 1 - left, dtype=D)), 1)

        loss = torch.arange(1, T, dtype=D) / T
        exponents = informed(moved, prior if distribution is None else distribution, loss)
        alpha = torch.cat((torch.ones(1, dtype=D), torch.exp(-slowest * exponents), torch.zeros(1, dtype=D)))
    else:
        alpha = table(schedule, T, N, absorbing=bool(mask_rate))
    if not mask_rate:
        return CTMC(R / slowest, prior, Tabulated(alpha))  # D3PM eq. 16
    return MovesAndMasks(masked(R, mask_rate) / slowest, Tabulated(alpha))


class MovesAndMasks(CTMC):
    """A chain whose tokens become one another, and in the end the last state, a mask: no clean token.

    Args:
        R: (N + 1, N + 1) rates; those from the mask are zero.
    """

    def __init__(self, R: Tensor, schedule: Schedule):
        mask = torch.arange(len(R)) == len(R) - 1
        super().__init__(R, mask.to(R), schedule, clean=~mask)
        self.blank = len(R) - 1


def graph_steps(embedding: Tensor, k: int, T: int, schedule: str, scaling: str) -> Chain:
    """Nearest neighbours as in the published text code: Q_i = (1 - beta_i) I + beta_i M, `neighbour_matrix`,
    not exp(a_t R)."""
    N, beta = len(embedding), betas(schedule, T)
    afford(N, -(-T // THIN))
    M = neighbour_matrix(embedding, k, scaling, float(beta[0])).mT

    def kernel(b: Tensor) -> Tensor:
        b = b[:, None, None]
        return (1 - b) * torch.eye(N, dtype=D, device=b.device) + b * M.to(b.device)

    steps = Kernels(kernel, beta)
    return Chain(steps, torch.full((N,), 1 / N, dtype=D))
