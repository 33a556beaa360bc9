"""Self-speculative sampling with random numbers for a network and its head: every text of four tokens,
in any order of them."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from zellige.core import maths
from zellige.core.batch import Batch
from zellige.core.prediction import posterior
from zellige.exact import enumeration, script
from zellige.methods import build
from zellige.methods.diffusion import Diffusion
from zellige.nn.block import Net
from zellige.nn.speculative import CausalHead
from zellige.samplers import AnyOrder, Speculative
from zellige.samplers.speculative import OverOrders, in_order

from .check import Largest, numbers, shared

DECODERS = "decoders"
TOKENS, LENGTH = 2, 4
ORDER = (2, 0, 3, 1)
WAYS: tuple[dict[str, Any], ...] = (
    {"window": 1},
    {"window": 2},
    {"window": 3, "rounds": 2},
    {"cosine": 0.5},
    {"rounds": LENGTH},
    {},
)


@cache
def world(conv: int = 3) -> tuple[Diffusion, CausalHead]:
    """A small masked model with a head that changes its distributions much."""
    with torch.random.fork_rng(devices=[]):
        net = Net(layers=1, hidden=8, heads=2, length=LENGTH, conv=conv)
        method: Any = build("mdlm", TOKENS, net).double().eval()
        head = CausalHead(TOKENS + 1, 8, 2, conv).double()
    shift = 0
    for p in (*method.parameters(), *head.parameters()):
        p.requires_grad_(False).copy_(numbers(*p.shape, size=1.1, shift=shift))
        shift += p.numel()
    return method.verified_by(head.forward), head


def samples(sampler: Speculative, method: Diffusion, V: int = TOKENS, L: int = LENGTH) -> Tensor:
    """Distribution (V^L,) of the sampler's texts, over all drafts, acceptances and replacements."""
    X = enumeration.states(V + 1, L)
    state = replace(sampler.init(method, (len(X), L)), x=X)
    matrix, t = torch.zeros(len(X), len(X), dtype=torch.float64), torch.zeros(())
    for at, new, p in script.branches(lambda at, source: sampler.step(method, state.take(at), t, t, source), len(X)):
        matrix.index_put_((at, enumeration.index(new.x, V + 1)), p, accumulate=True)
    masks = enumeration.index(torch.full((L,), V), V + 1)
    return torch.linalg.matrix_power(matrix, L)[masks][(X < V).all(-1)]


def by_hand(sampler: Speculative, method: Diffusion, x: tuple[int, ...], order: tuple[int, ...]) -> float:
    """p(x | order) as the sum over what may happen to each draft; tokens that a draft must not see are masked."""

    @cache
    def both(begin: int, j: int) -> tuple[float, float]:
        """p and q of the text's token j of the order, in a pass that begins after token `begin`."""
        tokens = torch.full((1, LENGTH), TOKENS)
        tokens[0, list(order[:begin])] = torch.tensor(x)[list(order[:begin])]
        h = method.hidden(tokens, None)
        turn = torch.full((1, LENGTH), LENGTH)
        turn[0, list(order[begin : j + 1])] = torch.arange(j + 1 - begin)
        seen = torch.full((1, LENGTH), TOKENS)
        seen[0, list(order[begin:j])] = torch.tensor(x)[list(order[begin:j])]
        assert method.verifier is not None
        chances = []
        for features in (h, method.verifier(h, seen, turn)):
            logits = method.logits(features)[0, order[j], :TOKENS]
            chances.append(float(logits.softmax(-1)[x[order[j]]]))
        return chances[0], chances[1]

    def after(begin: int, j: int, replaced: int) -> float:
        """Probability of the rest of the text, in a pass that began after `begin`, before its token j."""
        if begin == LENGTH:
            return 1.0
        end = begin + int(sampler.size(torch.tensor([LENGTH - begin]), torch.tensor([LENGTH])))
        if j == end or replaced == sampler.rounds:
            return after(j, j, 0)
        p, q = both(begin, j)
        accepted = min(p, q) * after(begin, j + 1, replaced)
        return accepted + (max(q - p, 0.0) * after(begin, j + 1, replaced + 1) if q > p else 0.0)

    return after(0, 0, 0)


@shared("decoders.speculative")
@torch.no_grad()
def a_text_has_the_probability_of_its_passes():
    """Samples, by the sampler's own code; the recursion in `in_order`;
    and the sum over all that may happen to a draft."""
    method, _ = world()
    X, of_samples, of_recursion = enumeration.states(TOKENS, LENGTH), Largest(), Largest()
    for way in WAYS:
        sampler = Speculative(order=ORDER, **way)
        likelihood = in_order(sampler, method, Batch(X), sampler.when(torch.ones_like(X, dtype=torch.bool))).exp()
        definition = torch.tensor([by_hand(sampler, method, tuple(x), ORDER) for x in X.tolist()], dtype=torch.float64)
        of_recursion.see(likelihood, definition, f"{way}")
        of_samples.see(samples(sampler, method), likelihood, f"{way}")
    yield of_recursion.row(DECODERS, "speculative: recursion = sum over passes", 1e-12)
    yield of_samples.row(DECODERS, "speculative: samples = recursion, per order", 1e-12)


@shared("decoders.speculative-cases")
@torch.no_grad()
def what_its_passes_come_to():
    """A window of one is `any_order`; one pass is the head's own; without effect of the head nothing is replaced."""
    method, head = world()
    X, worst = enumeration.states(TOKENS, LENGTH), Largest()
    clean = (enumeration.states(TOKENS + 1, LENGTH) < TOKENS).all(-1)
    one = script.sample_distribution(AnyOrder(), method, LENGTH)[clean]
    worst.see(samples(Speculative(window=1), method), one, "window 1")
    for order, when in orders():
        h = method.hidden(torch.full_like(X, TOKENS), None)
        turn = when.long().expand(X.shape)
        logits = method.logits(head.forward(h, X, turn))[..., :TOKENS]
        q = logits.log_softmax(-1).gather(-1, X[..., None])[..., 0].sum(-1).exp()
        sampler = Speculative(rounds=LENGTH, order=order)
        worst.see(in_order(sampler, method, Batch(X), when.expand(X.shape)).exp(), q, f"one pass, order {order}")
    drafts = posterior(method.predict(torch.full((1, LENGTH), TOKENS), 1.0))[0].double()
    together = maths.normalise(drafts).expand(len(X), -1, -1).gather(-1, X[..., None]).prod(1)[:, 0]
    unchanged = method.verified_by(lambda h, x, turn: h)
    worst.see(samples(Speculative(order=ORDER), unchanged), together, "no effect of the head")
    yield worst.row(DECODERS, "speculative: window 1, one pass, no effect", 1e-12)


@shared("decoders.speculative-orders")
@torch.no_grad()
def an_order_is_drawn_for_each_text():
    """Random orders: the mean over them, which the weights of a two-sided bound have as their mean."""
    method, _ = world()
    X, worst, sampler = enumeration.states(TOKENS, LENGTH), Largest(), Speculative(window=2)
    each = [in_order(sampler, method, Batch(X), when.expand(X.shape)).exp() for _, when in orders()]
    mean = torch.stack(each).mean(0)
    worst.see(samples(sampler, method), mean, "samples")
    weights = torch.zeros_like(mean)
    for (_, log_w, _), p in script.scripts(lambda s: OverOrders(sampler)(method, Batch(X), None, s, False), len(X)):
        weights += p * log_w.exp()
    worst.see(weights, mean, "weights of a two-sided bound")
    yield worst.row(DECODERS, "speculative: mean over orders", 1e-12)
    own_samples, one = torch.zeros_like(mean), OverOrders(Speculative(window=1))
    draw = lambda rows, source: one(method, Batch(X[rows]), None, source, True)  # noqa: E731
    for _, (x, log_w, _), p in script.branches(draw, 1):
        own_samples.index_add_(0, enumeration.index(x, TOKENS), p * (-log_w).exp())
    worst = Largest()
    worst.see(own_samples, 1.0, "for each text")
    yield worst.row(DECODERS, "speculative: own samples have their order's weight", 1e-12)


def orders() -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """All orders of the positions, and when each position comes."""
    for order in itertools.permutations(range(LENGTH)):
        yield order, torch.tensor(order).argsort().double()[None]


@shared("decoders.speculative-head")
@torch.no_grad()
def a_head_reads_the_drafts_before():
    """Its output at a position changes with each token of an earlier turn, and with no other;
    the first is the network's own."""
    worst, L = Largest(), 6
    for conv in (0, 3):
        _, head = world(conv)
        h, turn = numbers(1, L, 8), torch.tensor([[3, 0, L, 1, 2, L]])
        x = torch.tensor([[0, 1, 0, 1, 1, 0]])
        base = head(h, x, turn)
        worst.see(base[0, 1], h[0, 1], "the first of a pass")
        for j in range(L):
            other = x.clone()
            other[0, j] = 1 - x[0, j]
            changed = (head(h, other, turn) != base)[0].any(-1)
            expected = turn[0, j] < turn[0]
            worst.see(changed[[0, 1, 3, 4]].double(), expected[[0, 1, 3, 4]].double(), f"conv {conv}, token {j}")
    yield worst.row(DECODERS, "speculative: the head reads earlier drafts only")
