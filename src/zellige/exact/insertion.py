"""Texts of unknown length by enumeration: the exact network of insertion, the model's distribution, and that of the
sampler.

The space is all texts of at most L tokens, and all states between: texts with masks. A text is a row of L positions,
with `method.padding` after its end, as `FlexMDM` has it; a distribution on texts is a vector over `texts(V, L)`.
"""

import itertools

import torch
from torch import Tensor, nn

from ..core.batch import Batch
from ..methods.flexmdm import FlexMDM, Span
from ..samplers.insertion import Inserted, Insertion
from ..samplers.sampler import State
from .distributions import ROOT, gauss, magnus
from .enumeration import index
from .script import Script, branches

EARLIEST = -34.0  # log of the time where the chain is left: what is masked or missing there has a probability of 1e-13
STEPS = 240  # from there to t = 1


def texts(symbols: int, L: int, padding: int | None = None) -> Tensor:
    """All texts of at most L of so many symbols, shortest first: (N, L); `padding` (V) after their ends."""
    padding = symbols if padding is None else padding
    rows = [row for n in range(L + 1) for row in itertools.product(range(symbols), repeat=n)]
    return torch.tensor([[*row, *([padding] * (L - len(row)))] for row in rows])


# ---------------------------------------------------------------------------------- every noisy text of every text
class Fates:
    """Every noisy text of every text: what becomes of each token, absent, masked or shown. Knows nothing of
    `FlexMDM.corrupt`.

    Attributes:
        text: (C,) the number of the text.
        x: (C, L) the noisy text; counts: (C, 3) of absent, masked and shown tokens.
        target: (C, L) the token at each position that is not padding; missing: (C, L + 1) tokens missing in each gap.
        absent, masked: (C, L) bool, by position in the text.
    """

    def __init__(self, V: int, L: int):
        columns: list[tuple] = []
        for number, row in enumerate(texts(V, L).tolist()):
            tokens = [token for token in row if token < V]
            for fates in itertools.product(range(3), repeat=len(tokens)):
                x, target, missing = [], [], [0]
                for token, fate in zip(tokens, fates):
                    if fate == 0:
                        missing[-1] += 1
                        continue
                    x, target, missing = [*x, V if fate == 1 else token], [*target, token], [*missing, 0]
                rest = L - len(x)
                more = [False] * (L - len(tokens))
                columns.append(
                    (
                        number,
                        x + [V + 1] * rest,
                        [fates.count(k) for k in range(3)],
                        target + [0] * rest,
                        missing + [0] * rest,
                        [f == 0 for f in fates] + more,
                        [f == 1 for f in fates] + more,
                    )
                )
        fields = (torch.tensor(column) for column in zip(*columns))
        self.text, self.x, self.counts, self.target, self.missing, self.absent, self.masked = fields


class Exact(nn.Module):
    """The exact network for a distribution on the texts: E[c_i | x_t] / t and p(token | x_t), as FlexMDM's network has
    them.

    With `sight` it sees which gaps are closed, that is, that nothing is missing there.
    """

    def __init__(self, V: int, L: int, distribution: Tensor, sight: bool = True):
        super().__init__()
        self.V, self.fates, self.p, self.sees_given = V, Fates(V, L), distribution, sight

    def features(self, x: Tensor, time: Tensor, given: Tensor | None = None, **_) -> Tensor:
        fates, L = self.fates, x.shape[1]
        t = (time / 1000).double().clamp_min(1e-30)[:, None]
        same = (index(x, self.V + 2)[:, None] == index(fates.x, self.V + 2)).double()
        if given is not None:
            same = same * ~(given[:, None] & (fates.missing[:, :L] > 0)).any(-1)
        weight = same * self.p[fates.text] * t ** fates.counts[:, 0]  # tokens masked or shown: as many in each
        weight = weight / weight.sum(-1, keepdim=True).clamp_min(1e-300)
        tokens = torch.einsum("bc,clv->blv", weight, nn.functional.one_hot(fates.target, self.V).double())
        rates = (weight @ fates.missing[:, :L].double()) / t
        return torch.cat((tokens, rates[..., None]), -1).log().clamp_min(-1e6)

    def head(self, h: Tensor) -> Tensor:
        return h


class Method(FlexMDM):
    """FlexMDM whose network is told the time in full precision."""

    def network_time(self, t):
        return 1000 * t


def exact_method(config: FlexMDM.Config, V: int, L: int, distribution: Tensor, sight: bool = True) -> Method:
    """The method with the exact network."""
    return Method(Exact(V, L, distribution, sight), V, (L,), config)


# ---------------------------------------------------------------------------------- the bound
def nodes() -> tuple[Tensor, Tensor]:
    """Nodes u in (0, 1) and weights of an integral whose integrand has a logarithm at 0."""
    x, w = gauss(24)
    return x**6, w * 6 * x**5


def expected_bound(method: FlexMDM, x_0: Tensor, span: Span | None = None) -> Tensor:
    """The bound that `FlexMDM.terms` samples (`span_terms`, of spans), of texts (N, L): every outcome of its noise, and
    quadrature in time. (N,)"""
    (u, w), N, V = nodes(), len(x_0), method.vocabulary
    rows, batch = torch.arange(N).repeat_interleave(len(u)), Batch(x_0.clamp_max(V - 1), x_0 < V)
    times, weights, total = u.repeat(N), w.repeat(N), torch.zeros(N, dtype=torch.float64)

    def draw(at: Tensor, script: Script) -> Tensor:
        some = batch.take(rows[at])
        if span is None:
            return method.bound(some, script)
        spans = Span(*(value[rows[at]] for value in (span.begin, span.end, span.known)))
        return sum(method.span_terms(some, spans, script).values())  # pyright: ignore

    for at, value, p in branches(draw, len(rows), times):
        total.index_add_(0, rows[at], weights[at] * p * value)
    return total


def by_definition(method: FlexMDM, span: Span | None = None) -> Tensor:
    """The bound (3) of every text from its noisy texts, written down without the method's code."""
    V, (L,), q = method.vocabulary, method.shape, method.config.unmasking
    fates, x_0 = Fates(V, L), texts(V, L)
    begin, end = (torch.zeros(len(x_0)), torch.full((len(x_0),), L)) if span is None else (span.begin, span.end)
    known = torch.zeros(len(x_0), dtype=torch.bool) if span is None else span.known
    place = torch.arange(L)
    outside = (place < begin[fates.text, None]) | (place >= end[fates.text, None])
    allowed = ~((fates.absent | fates.masked) & outside).any(-1) & ~(known[fates.text] & fates.absent.any(-1))
    inside = ((x_0 < V) & (place >= begin[:, None]) & (place < end[:, None])).sum(-1)[fates.text]
    shut = _shut(fates, begin, end, known, x_0 < V)
    total = torch.zeros(len(x_0), dtype=torch.float64)
    for u, w in zip(*nodes()):
        t = u * u
        M = -t * t.log() if q == 1 else (t**q - t) / (1 - q)
        absent, masked, _ = fates.counts.T
        shown = inside - absent - masked
        chance = t**absent * M**masked * (1 - t - M) ** shown
        chance = torch.where(known[fates.text], (t**q) ** masked * (1 - t**q) ** shown, chance) * allowed
        everywhere = torch.ones(len(absent), L, dtype=torch.bool)
        h = method.read(fates.x, t.expand(len(fates.x)), shut, everywhere).reshape(len(fates.x), L, -1)
        size = (fates.x <= V).sum(-1, keepdim=True)
        gaps = (place <= size) & ~shut & (size < L)
        rate, c = method.rates(h), fates.missing[:, :L]
        costs = rate - torch.where(c > 0, c / t * (1 + (t * rate).log()), 0.0)
        tokens = -q / t * method.next(h).gather(-1, fates.target[..., None])[..., 0].log()
        value = (costs * gaps).sum(-1) + torch.where(fates.x == V, tokens, 0.0).sum(-1)
        total.index_add_(0, fates.text, 2 * u * w * torch.where(chance > 0, chance * value, 0.0))
    return total


def _shut(fates: Fates, begin: Tensor, end: Tensor, known: Tensor, there: Tensor) -> Tensor:
    """The gaps (C, L) in which no token of the span can be missing."""
    shut = torch.zeros_like(fates.absent)
    for row, number in enumerate(fates.text.tolist()):
        left, size = -1, int((fates.x[row] < fates.x.max()).sum())
        kept = [i for i in range(int(there[number].sum())) if not fates.absent[row, i]]
        for gap in range(min(size + 1, shut.shape[1])):
            right = kept[gap] if gap < len(kept) else int(there[number].sum())
            inserted = range(left + 1, right + 1)  # where a token could stand between the two
            shut[row, gap] = bool(known[number]) or not any(begin[number] <= i <= end[number] for i in inserted)
            left = right
    return shut


# ---------------------------------------------------------------------------------- the model's distribution
def generator(method: FlexMDM, X: Tensor, t: Tensor) -> Tensor:
    """The model's rates backwards in time between the states X (N, L), times the time: times (n,) -> (n, N, N)."""
    V, L, n, N = method.vocabulary, X.shape[1], len(t), len(X)
    everywhere, closed = torch.ones(n * N, L, dtype=torch.bool), torch.zeros(n * N, L, dtype=torch.bool)
    h = method.read(X.repeat(n, 1), t.repeat_interleave(N), closed, everywhere)
    tokens, rates = method.next(h).reshape(n, N, L, V), method.rates(h).reshape(n, N, L)
    number = {tuple(row): i for i, row in enumerate(X.tolist())}
    G = torch.zeros(n, N, N, dtype=torch.float64)
    for i, row in enumerate(X.tolist()):
        symbols = [symbol for symbol in row if symbol != method.padding]
        more = [method.padding] * (L - len(symbols))
        for k, symbol in enumerate(symbols):
            for token in range(V if symbol == method.mask else 0):
                G[:, i, number[(*symbols[:k], token, *symbols[k + 1 :], *more)]] += (
                    method.config.unmasking * tokens[:, i, k, token]
                )
        for gap in range(len(symbols) + 1 if more else 0):
            longer = (*symbols[:gap], method.mask, *symbols[gap:], *more[1:])
            G[:, i, number[longer]] += t * rates[:, i, gap]
    return G - torch.diag_embed(G.sum(-1))


@torch.no_grad()
def chain_distribution(method: FlexMDM) -> Tensor:
    """Distribution of the model's texts, from its rates between all states, by Kolmogorov's equation in log t."""
    V, (L,) = method.vocabulary, method.shape
    X = texts(V + 1, L, method.padding)
    p = torch.zeros(len(X), dtype=torch.float64)
    p[0] = 1.0  # the empty text
    size = -EARLIEST / STEPS
    s = -size * torch.arange(STEPS, dtype=torch.float64)
    early, late = (generator(method, X, (s - size * (0.5 + c)).exp()) for c in (-ROOT, ROOT))
    for step in magnus(early, late, size):
        p = p @ step
    return p[~X.eq(method.mask).any(-1)]


# ---------------------------------------------------------------------------------- the sampler
States = dict[tuple[tuple[int, ...], tuple[bool, ...]], float]


def after(sampler: Insertion, method: FlexMDM, states: States, t: float, s: float) -> States:
    """The states after one step of the sampler's code, with their probabilities."""
    x, closed = (torch.tensor(column) for column in zip(*states))
    p = torch.tensor([*states.values()], dtype=torch.float64)
    memory = Inserted((x != method.padding).sum(-1), closed)
    state = State(x, torch.zeros_like(closed), torch.zeros_like(memory.ends), memory=memory)
    begin, end = (torch.full((len(x), 1), time, dtype=torch.float64) for time in (t, s))
    step = lambda at, script: sampler.step(method, state.take(at), begin[at], end[at], script)  # noqa: E731
    reached: States = {}
    for at, new, chance in branches(step, len(x)):
        rows = zip(new.x.tolist(), new.memory.closed.tolist(), (p[at] * chance).tolist())
        for tokens, gaps, value in rows:
            key = (tuple(tokens), tuple(gaps))
            reached[key] = reached.get(key, 0.0) + value
    return reached


@torch.no_grad()
def sampled_distribution(sampler: Insertion, method: FlexMDM, steps: int, fixed: Tensor | None = None) -> Tensor:
    """Distribution of the sampler's texts."""
    V, (L,) = method.vocabulary, method.shape
    begin = sampler.init(method, (1, L), fixed=None if fixed is None else fixed[None])
    states: States = {(tuple(begin.x[0].tolist()), tuple(begin.memory.closed[0].tolist())): 1.0}
    for t, s in itertools.pairwise(sampler.times(method, steps).tolist()):
        states = after(sampler, method, states, t, s)
    number = {tuple(row): i for i, row in enumerate(texts(V, L, method.padding).tolist())}
    p = torch.zeros(len(number), dtype=torch.float64)
    for (tokens, _), value in states.items():
        if tokens in number:  # no mask is left
            p[number[tokens]] += value
    return p


def lengths(distribution: Tensor, V: int, L: int) -> Tensor:
    """Distribution (L + 1,) of the length of the texts."""
    n = (texts(V, L) < V).sum(-1)
    return torch.zeros(L + 1, dtype=torch.float64).index_add(0, n, distribution)
