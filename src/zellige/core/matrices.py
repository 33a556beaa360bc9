"""Processes given by matrices: a generator R in continuous time (tauLDR), or a list of Q_i in discrete time (D3PM).

One matrix is computed for each distinct pair of times, not for each position. The matrices of the papers are in
`methods/tauldr_rates.py` and `methods/d3pm_transitions.py`.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..base.errors import InputError
from . import maths
from .process import Process
from .schedule import CLEAN, Schedule, on_grid


class MatrixCache:
    """Cache of the latest matrices of a process: at most MANY of them and KEPT bytes, unless one call needs more.

    It is not part of the state of the process: a copied or unpickled process has an empty cache.
    """

    def __init__(self):
        self.kind: tuple[torch.device, torch.dtype] | None = None  # of keys and matrices
        self.matrices: dict[float, Tensor] = {}  # (K, K) of each key
        self.terms: Tensor | None = None  # of `CTMC`, (21, K, K)
        self.logs: LogTable | None = None  # of `CTMC`
        self.eigen: tuple[Tensor, ...] | None = None  # of `CTMC`, its eigenbasis on another device

    def __reduce__(self) -> tuple[type["MatrixCache"], tuple[()]]:
        return MatrixCache, ()

    def of(self, keys: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the matrices (U, K, K) of distinct keys (U,); `make` computes those that are missing."""
        if self.kind != (kind := (keys.device, keys.dtype)):
            self.kind, self.matrices, self.terms = kind, {}, None
        key_list = keys.tolist()
        new = [key not in self.matrices for key in key_list]
        if self.matrices and any(new):
            sample_matrix = next(iter(self.matrices.values()))
            if len(self.matrices) + sum(new) > min(MANY, KEPT // (8 * sample_matrix.numel())):
                self.matrices, new = {}, [True] * len(key_list)
        if any(new):
            fresh = make(keys[torch.tensor(new, device=keys.device)])
            self.matrices.update(zip(itertools.compress(key_list, new), fresh))
        return torch.stack([self.matrices[key] for key in key_list])


class Dense(Process):
    """Process given by one matrix for each distinct pair of times.

    A subclass defines `_key`, from a pair of times to the key of its matrix, and `_of`, from keys to matrices. `cache`
    keeps the latest matrices, since a bound uses the same times again.
    """

    def __init__(
        self, prior: Tensor, schedule: Schedule | None = None, mask: int | None = None, clean: Tensor | None = None
    ):
        super().__init__(prior, schedule, mask, clean)
        self.cache = MatrixCache()

    def _key(self, s: Tensor, t: Tensor) -> Tensor:
        """Key of Q_{s,t}, (*), (*) -> (*) float64; equal keys mean equal matrices."""
        raise NotImplementedError

    def _of(self, keys: Tensor) -> Tensor:
        """Matrices (U, K, K) of distinct keys (U,)."""
        raise NotImplementedError

    def _keys(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        s, t = (torch.as_tensor(u, dtype=self.prior.dtype, device=self.prior.device) for u in (s, t))
        return self._key(*torch.broadcast_tensors(s, t))

    def _matrices(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Distinct matrices (U, K, K), and the index (*) of the matrix of each pair of times."""
        keys, where = self._keys(s, t).unique(return_inverse=True)
        return self.cache.of(keys, self._of) if len(keys) else self.prior.new_empty(0, self.K, self.K), where

    def _apart(self, v: Tensor, s: Tensor | float, t: Tensor | float, f) -> Tensor:
        """Apply f(v (n, K), matrix) to the positions that share a matrix: (*, K) -> (*, K)."""
        Q, where = self._matrices(s, t)
        Q, where = Q.to(torch.promote_types(v.dtype, Q.dtype)), where.expand(v.shape[:-1]).reshape(-1)
        flat = v.reshape(-1, self.K).to(Q)
        if len(Q) == 1:
            return f(flat, Q[0]).reshape(v.shape)
        if 2 * len(Q) >= len(flat):  # nearly as many matrices as distributions: one for each is no larger
            return f(flat[:, None], Q[where])[:, 0].reshape(v.shape)
        order = where.argsort(stable=True)
        parts = flat[order].split(where.bincount(minlength=len(Q)).tolist())
        out = torch.cat([f(piece, matrix) for piece, matrix in zip(parts, Q)])
        return out[order.argsort()].reshape(v.shape)

    def matrix(self, s, t):
        keys = self._keys(s, t)
        return self._of(keys.reshape(-1)).reshape(*keys.shape, self.K, self.K)

    def push(self, v, s, t):
        return self._apart(v, s, t, torch.matmul)

    def unpush(self, v, s, t):
        return self._apart(v, s, t, lambda v, Q: torch.linalg.solve(Q, v, left=False))

    def likelihood(self, x_t, s, t):
        Q, where = self._matrices(s, t)
        return Q.mT[where, x_t]

    def marginal(self, x_0, t):
        Q, where = self._matrices(CLEAN, t)
        return Q[where, x_0]

    def divergence(self, x_0, t):
        Q, where = self._matrices(CLEAN, t)
        if Q[..., 0].numel() >= x_0.numel():
            return super().divergence(x_0, t)
        return maths.kl(Q, self.prior)[where, x_0]  # computed once for each state


class CTMC(Dense):
    """Continuous-time chain R_t = beta_t R with any generator R: Q_{s,t} = exp(R (sigma_t - sigma_s)).

    sigma = -log alpha of the schedule. exp(R h) is computed by uniformisation and squaring:

        exp(R h) = sum_n Poisson(n; r h) (I + R/r)^n,   r the largest exit rate

    All terms are 0 or more, so no entry is negative, and small entries have the same relative precision as large ones;
    ratios need this. For a reversible R, an eigenbasis (`eigh` of the symmetrised R) is cheaper, and is used where Q
    has no small entries.

    Source: tauLDR (arXiv 2205.14987), section 4.1.

    Args:
        R: (K, K) rates from row to column; rows sum to zero.
        prior: (K,) the stationary distribution of R, and the distribution at PRIOR.

    Raises:
        InputError: a negative rate, rows that do not sum to zero, or a prior that is not stationary under R.
    """

    R: Tensor

    def __init__(
        self,
        R: Tensor,
        prior: Tensor,
        schedule: Schedule,
        mask: int | None = None,
        clean: Tensor | None = None,
    ):
        R = _square(R.double(), "R")
        off = R - torch.diag_embed(R.diagonal())
        if (off < 0).any():
            i, j = (off < 0).nonzero()[0].tolist()
            raise InputError(f"the rate from state {i} to {j} is {float(off[i, j]):g}; rates must be 0 or more")
        size = float(off.sum(-1).max())
        if not R.sum(-1).abs().max() <= 1e-9 * max(size, 1.0):
            raise InputError(f"rows of R must sum to 0; row {int(R.sum(-1).abs().argmax())} does not")
        if not (prior.double() @ R).abs().max() <= 1e-9 * max(size, 1.0):
            raise InputError("the prior is not stationary: prior R must be 0; give the stationary distribution of R")
        super().__init__(prior.double(), schedule, mask, clean)
        self.register_buffer("R", off - torch.diag_embed(off.sum(-1)), persistent=False)
        self.fastest, self._eigen = size, self._symmetrised()  # no buffers: they stay float64 if the module is cast

    def _symmetrised(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Eigenvalues and eigenvectors of the symmetrised R, and square roots of the prior.

        None without detailed balance, prior_i R_ij = prior_j R_ji, or with a prior that is 0 somewhere.
        """
        flow = self.prior[:, None] * self.R
        if not (self.prior > 0).all() or not torch.allclose(flow, flow.mT, rtol=1e-10, atol=0):
            return None
        root = self.prior.sqrt()
        S = root[:, None] * self.R / root
        return (*torch.linalg.eigh((S + S.mT) / 2), root)

    def extra_repr(self) -> str:
        leave = -self.R.diagonal()
        return f"{self.K} states, exit rates {float(leave.min()):.4g} to {float(leave.max()):.4g}"

    def rate(self, t):
        return self.schedule.beta(t).to(self.prior)[..., None] * self.R  # tauLDR section 4.1

    def rate_into(self, x_t, t):
        return self._rates(self.R.mT, x_t, t)

    def rate_from(self, x_t, t):
        return self._rates(self.R, x_t, t)

    def _rates(self, R: Tensor, x_t: Tensor, t: Tensor | float) -> Tensor:
        return (self.schedule.beta(t).to(R) * R[x_t]).scatter(-1, x_t[..., None], 0.0)

    def _key(self, s, t):
        # the integral of beta, tauLDR section 4.1; 0 between two infinite sigmas
        left = self.schedule.sigma(t)[..., 0] - self.schedule.sigma(s)[..., 0]
        return torch.where((s == t) | left.isnan(), 0.0, left).to(self.prior)

    def _of(self, keys):
        ends = keys.isinf()
        Q = self.exponential(torch.where(ends, 0.0, keys))
        return torch.where(ends[:, None, None], self.prior, Q)

    def exponential(self, h: Tensor) -> Tensor:
        """exp(R h), (U,) -> (U, K, K)."""
        Q, todo = torch.zeros(len(h), self.K, self.K).to(self.prior), torch.ones_like(h, dtype=torch.bool)
        if self._eigen is not None:
            basis = self._eigen
            if basis[0].device != h.device:  # copied once to a device
                if self.cache.eigen is None or self.cache.eigen[0].device != h.device:
                    self.cache.eigen = tuple(e.to(h.device) for e in basis)
                basis = self.cache.eigen
            values, vectors, root = (e.to(h.dtype) for e in basis)
            symmetric = (vectors * (h[:, None, None] * values).exp()) @ vectors.mT
            # eigh has an absolute error of about K eps: use it only if all entries are right to nine digits
            todo = symmetric.amin((-2, -1)) < 1e9 * self.K * torch.finfo(h.dtype).eps
            Q = symmetric / root[:, None] * root
        if todo.any():
            Q = Q.index_copy(0, todo.nonzero()[:, 0], self.uniformised(h[todo]))
        return Q / Q.sum(-1, keepdim=True)

    def uniformised(self, h: Tensor, terms: Tensor | None = None) -> Tensor:
        """exp(R h), (U,) -> (U, K, K), by uniformisation and squaring; `terms`: the result of `series`, if known."""
        jumps = self.fastest * h
        parts = self.K / 4 if self.K > 12 else 1.0  # so that the farthest state is fewer than 20 jumps away
        halvings = (jumps.clamp_min(1.0) * parts).log2().ceil()
        jumps = (jumps / 2**halvings)[:, None]  # at most 1, so the sum may stop at 1/20!
        n = torch.arange(21).to(jumps)
        terms = self.series() if terms is None else terms
        Q = torch.tensordot(jumps**n * (-jumps).exp(), terms.to(jumps), 1)
        for n in range(int(halvings.max())):
            more = halvings > n
            Q = Q.index_copy(0, more.nonzero()[:, 0], Q[more] @ Q[more])
        return Q

    def series(self) -> Tensor:
        """Matrices (I + R/r)^n / n!, n = 0..20: (21, K, K); cached unless they are large."""
        if self.cache.terms is not None:
            return self.cache.terms
        terms, P = [torch.eye(self.K).to(self.R)], torch.eye(self.K).to(self.R) + self.R / max(self.fastest, 1e-300)
        for n in range(1, 21):
            terms.append(terms[-1] @ P / n)
        stack = torch.stack(terms)
        if stack.numel() * 8 <= KEPT:
            self.cache.terms = stack
        return stack


class Kernels(Sequence[Tensor]):
    """Sequence Q_1..Q_T, computed on access: `kernel` maps noise strengths (U,) to matrices (U, K, K)."""

    def __init__(self, kernel: Callable[[Tensor], Tensor], strengths: Tensor):
        self.kernel, self.strengths = kernel, strengths.cpu()

    def __len__(self) -> int:
        return len(self.strengths)

    def __getitem__(self, i: int) -> Tensor:
        return self.kernel(self.strengths[i][None])[0]

    def of(self, numbers: list[int], device: torch.device) -> Tensor:
        """Compute the matrices with these indices on a device: (U, K, K)."""
        return self.kernel(self.strengths[numbers].to(device))


class Chain(Dense):
    """Chain in discrete time i/T with any matrices Q_1..Q_T (D3PM, arXiv 2107.03006).

    Q_{s,t} is their product from s to t; they need not commute. Every row of Q_{s,PRIOR} is the prior, while Q_{s,1} is
    the product itself. There is no rate. If the products from 0 take more than 64 MiB, at most every third is stored,
    and the others are computed on demand.

    Args:
        steps: Q_1..Q_T, (T, K, K), or a sequence that computes them on access.
        prior: (K,) the distribution at PRIOR.

    Raises:
        InputError: a negative entry, or a row that does not sum to one.
    """

    products: Tensor

    def __init__(
        self,
        steps: Tensor | Sequence[Tensor],
        prior: Tensor,
        mask: int | None = None,
        clean: Tensor | None = None,
    ):
        super().__init__(prior.double(), None, mask, clean)
        self.steps, self.T = steps, len(steps)
        afford(self.K, -(-self.T // THIN))
        size = 8 * self.K**2 * self.T
        self.every = max(-(-size // MOST), 3 if size > KEPT else 1)
        products = torch.empty(self.T // self.every + 1, self.K, self.K, dtype=torch.float64)
        products[0] = last = torch.eye(self.K, dtype=torch.float64)
        for i, Q in enumerate(steps, 1):
            Q = _square(Q.double(), f"Q_{i}")
            if len(Q) != self.K:
                raise InputError(f"Q_{i} has {len(Q)} states and the prior {self.K}; they must be the same")
            if (Q < 0).any():
                raise InputError(f"Q_{i} has an entry {float(Q.min()):g}; probabilities must be 0 or more")
            if not (Q.sum(-1) - 1).abs().max() <= 1e-9:
                row = int((Q.sum(-1) - 1).abs().argmax())
                raise InputError(f"row {row} of Q_{i} sums to {float(Q[row].sum()):.6g}; every row must sum to 1")
            last = last @ Q  # D3PM eq. 3
            if i % self.every == 0:
                products[i // self.every] = last
        self.register_buffer("products", products, persistent=False)

    def _index(self, t: Tensor) -> Tensor:
        """Index i of t = i/T; 0 at CLEAN, T + 1 at PRIOR."""
        inside = ~t.isinf()
        i = on_grid(torch.where(inside, t, 0.0), self.T)
        return torch.where(inside, i, torch.where(t > 0, self.T + 1, 0))

    def _key(self, s, t):
        return (self._index(s) * (self.T + 2) + self._index(t)).to(self.prior)

    def _of(self, keys):
        """Start from the last stored product, or from step i itself, and multiply by one step at a time."""
        pairs = [divmod(int(key), self.T + 2) for key in keys.tolist()]
        reached = [j if j > self.T else i or j // self.every * self.every for i, j in pairs]
        Q = self.products[self._at([0 if i or j > self.T else n // self.every for n, (i, j) in zip(reached, pairs)])]
        if at_prior := [u for u, (i, j) in enumerate(pairs) if i < j > self.T]:
            Q[self._at(at_prior)] = self.prior
        while unfinished := [u for u, (_, j) in enumerate(pairs) if reached[u] < j]:
            new = [u for u in unfinished if reached[u] in (0, pairs[u][0])]  # no factor yet
            more = [u for u in unfinished if u not in new]
            if new:
                Q[self._at(new)] = self._steps([reached[u] for u in new])
            if more:
                at = self._at(more)
                Q[at] = Q[at] @ self._steps([reached[u] for u in more])
            for u in unfinished:
                reached[u] += 1
        return Q

    def _at(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.prior.device)

    def _steps(self, numbers: list[int]) -> Tensor:
        """Q_{n + 1} for each n, (U, K, K)."""
        steps = self.steps
        if isinstance(steps, Tensor):
            return steps.to(self.prior)[self._at(numbers)]
        if isinstance(steps, Kernels):
            return steps.of(numbers, self.prior.device).to(self.prior)
        return torch.stack([steps[n].to(self.prior) for n in numbers])


MOST = 4 << 30  # bytes of the matrices of a process
THIN = 16  # largest number of steps between two stored products of a chain
KEPT = 64 << 20  # bytes of matrices in a cache
MANY = 1024  # matrices in a cache; with more a look-up costs more than the computation


def afford(K: int, T: int = 1) -> None:
    """Raise InputError if T matrices of K x K are too large to store."""
    if (size := 8 * K * K * T) > MOST:
        of = f"{T:,} matrices" if T > 1 else "a matrix"
        raise InputError(
            f"{of} of {K:,} x {K:,} would take {size / (1 << 30):,.0f} GiB; use uniform or absorbing noise, which "
            "needs none"
        )


def _square(matrix: Tensor, name: str) -> Tensor:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{name} has shape {tuple(matrix.shape)}; it must be square, (K, K)")
    return matrix


OCTAVE = 6  # nodes per octave: h, h 2^(1/6), h 2^(2/6), ...
NODES = 12  # nodes of a polynomial
ERROR = 5e-8  # relative error of an entry
LEAST = 1e-290  # an entry below which a float64 loses digits


class LogTable:
    """Table of exp(R h) for a reversible R: it interpolates the logarithms of the entries, in float64.

    The nodes h reach from below `low` to beyond `high`. `CTMC` needs about ten products of K x K for each time, this
    table one polynomial in log h for each entry. An error e of a logarithm is a relative error e of the probability,
    however small that is, so ratios keep their digits.

    As a function of u = log h, the logarithm of an entry is first a line, whose slope is the number of jumps that lead
    there, then like -A e^-u, with A e^-u <= 700 (a float64 is at least e^-708), and at last that of the prior. Its
    singularities are about pi/2 or more away from the real line. With six nodes per octave and twelve per polynomial
    the error is below `ERROR`.

    prior_i exp(R h)_ij is symmetric, so one triangle of each of J matrices is stored, (J, K (K + 1)/2).

    Attributes:
        whole: False if there is no table: R is not reversible, or an entry is too small (birth-death on many states).
    """

    def __init__(self, process: CTMC, low: float, high: float):
        self.process, K, before = process, process.K, NODES // 2 - 1
        flow, root = process.prior[:, None] * process.R, process.prior.sqrt()
        i, j = torch.triu_indices(K, K, device=flow.device)
        self.place = torch.empty(K, K, dtype=torch.long, device=flow.device)  # index of an entry in its triangle
        self.place[i, j] = self.place[j, i] = torch.arange(len(i), device=flow.device)
        self.tilt = root / root[:, None]  # from the symmetric form to exp(R h)
        self.first = 0.99 * low * 2 ** (-before / OCTAVE)
        count = math.ceil(OCTAVE * math.log2(high / low)) + NODES + 1
        self.last = self.first * 2 ** ((count - NODES + before) / OCTAVE)
        self.logs, octave = flow.new_empty(count, len(i)), []
        self.whole = torch.allclose(flow, flow.mT, rtol=1e-10, atol=LEAST)
        terms = process.series() if self.whole else None  # once: 20 products of K x K
        for n in range(count if self.whole else 0):
            if n < OCTAVE:
                Q = process.uniformised(flow.new_tensor([self.first * 2 ** (n / OCTAVE)]), terms)[0]
            else:
                Q = octave.pop(0)
                Q = Q @ Q  # one octave further
            octave.append(Q / Q.sum(-1, keepdim=True))
            self.logs[n] = (octave[-1] / self.tilt)[i, j].log()
            if octave[-1].min() < LEAST:
                self.whole = False
                break

    def of(self, h: Tensor) -> Tensor:
        """exp(R h), (U,) -> (U, K, K)."""
        u = (h / self.first).log2() * OCTAVE
        i = u.floor() - (NODES // 2 - 1)
        beyond = (i < 0) | (h > self.last)
        i = i.clamp(0, len(self.logs) - NODES)
        weights = _lagrange(u - i)
        triangle = h.new_zeros(len(h), self.logs.shape[1])
        for n in range(NODES):  # for all times at once
            triangle.addcmul_(weights[n][:, None], self.logs[i.long() + n])
        Q = triangle.exp_()[:, self.place].mul_(self.tilt)
        Q.div_(Q.sum(-1, keepdim=True))
        if beyond.any():
            Q[beyond] = self.process.exponential(h[beyond])
        return Q


def _lagrange(u: Tensor) -> Tensor:
    """Lagrange weights at u of values at 0, 1, .., NODES - 1: (U,) -> (NODES, U)."""
    n = torch.arange(NODES, dtype=u.dtype, device=u.device)
    itself = torch.eye(NODES, dtype=torch.bool, device=u.device)
    factors = (u[:, None, None] - n) / (n[:, None] - n)  # (U, i, j)
    return torch.where(itself, 1.0, factors).prod(-1).mT
