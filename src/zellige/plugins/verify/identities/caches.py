"""Caches of bidirectional networks: a part read beside keys and values of the rest, and what is sampled with them.

A pass over a part is one dense pass over two texts side by side: the text as it was when it was read whole, whose
positions see one another, and the part as it is, which sees itself and the first text outside the part.
"""

import itertools
from typing import Any

import torch
from torch import Tensor

from zellige import methods
from zellige.exact import enumeration, script
from zellige.exact.script import Forced
from zellige.methods import MD4, MDLM
from zellige.methods.absorbing import Masked
from zellige.methods.method import Method
from zellige.plugins.published.nn.llama import Llama, LlamaNet
from zellige.samplers.semi_autoregressive import SemiAutoregressive

from .blocks import LONG, transformer
from .check import L, Largest, V, above, apart, data_distribution, own, shared, truth_of
from .llamas import defined
from .networks import SINGLE, with_numbers

CACHES = "caches: keys and values of earlier evaluations"
KINDS = ("prefix", "dual")
N, S = 6, 3  # positions of a text and of a block


def keeps(method: Method) -> bool:
    """Whether the method's transformer sees whole texts of masks, and no time."""
    return isinstance(method, Masked) and not method.block and not method.time_conditioned and method.pointwise


@own("caches.network", keeps)
@torch.no_grad()
def a_part_of_the_same_text_is_that_of_the_whole(method: Method):
    """Where nothing has changed, a part read beside the rest has the hidden states of the whole text; convolutions and
    classes among them."""
    worst, x = Largest(), enumeration.states(V + 1, LONG)[:: (V + 1) ** (LONG - 2) // 2]
    for classes in (0, 2):
        network: Any = transformer(method, 0, classes=classes).network
        if not hasattr(network, "reread"):  # a network of its own
            return
        condition = torch.arange(len(x)) % 2 if classes else None
        h, reading = network.read(x, condition)
        more = {} if condition is None else {"condition": condition}
        worst.see(h, network.features(x, **more), "whole")
        for start, end in ((0, 2), (2, 4), (3, 6), (0, LONG)):
            part = network.reread(x[:, start:end], start, reading, condition)
            worst.see(part, h[:, start:end], f"{classes} classes, {start} to {end}")
    yield worst.row(CACHES, "a part of the same text = of the whole", SINGLE)


def chances(method: Any, X: Tensor, cache: Any, refresh: int | None, inside: str = "fixed_order") -> Tensor:
    """The probabilities (B,) of texts X (B, N) as samples, by the sampler's code;
    its order is a function of the text."""
    sampler = SemiAutoregressive(inside, S, cache, refresh)
    p, times = torch.ones(len(X), dtype=torch.float64), sampler.times(method, S)
    state = sampler.init(method, (len(X), N))
    for t, s in itertools.pairwise(times):
        forced = Forced(X[:, state.memory.begin : state.memory.begin + S])
        state, p = sampler.step(method, state, t, s, forced), p * forced.probability
    assert state.x.equal(X)
    return p


@own("caches.fresh", keeps)
@torch.no_grad()
def with_a_refresh_at_each_step_nothing_changes(method: Method):
    """A cache that is read anew in each evaluation, against none: log p of texts as samples."""
    worst, X = Largest(), some_texts()
    method = methods.build(type(method), V, network_of(True), method.config, N).double()
    for inside in ("fixed_order", "confidence"):
        none = chances(method, X, "none", None, inside).log()
        for cache in KINDS:
            worst.see(chances(method, X, cache, 1, inside).log(), none, f"{cache}, {inside}")
    yield worst.row(CACHES, "a refresh at each step = no cache")


@own("caches.blocks", lambda method: isinstance(method, Masked) and SemiAutoregressive.reason_against(method) is None)
@torch.no_grad()
def blocks_of_a_text_are_the_data(method: Masked):
    """With the exact network, block after block inside a text, given a token on either side too:
    every outcome enumerated."""
    worst, data = Largest(), data_distribution()
    X = enumeration.states(V, L)
    for inside, fixed in itertools.product(("any_order", "first_hitting"), ((-1, -1), (1, -1), (-1, 2))):
        given = torch.tensor(fixed)
        p = script.run_distribution(SemiAutoregressive(inside, 1), truth_of(method), L, 2, given)
        conditional = data * ((given == X) | (given < 0)).all(-1)
        worst.see(p, conditional / conditional.sum(), f"{inside}, given {fixed}")
    yield worst.row(CACHES, "blocks inside a text, exact network = data")


def some_texts() -> Tensor:
    """Every ninth text."""
    return enumeration.states(V, N)[::9]


def network_of(shift: bool) -> Llama:
    """A bidirectional network of fixed numbers, for N positions."""
    net = LlamaNet(2, 8, 2, 1, 12, V + 1, N, base=50.0, shift=shift)
    network = with_numbers(Llama(net, V + 1))
    for p in network.parameters():
        p.mul_(1.8)  # so that what is out of date shows
    return network


def dense(network: Llama, x: Tensor, read: Tensor, start: int, end: int) -> Tensor:
    """Logits (B, N, K) of the part of x (B, N) from `start` to `end`, beside the rest as it was in `read` (B, N)."""
    inside = (torch.arange(N) >= start) & (torch.arange(N) < end)
    seen = torch.zeros(2 * N, 2 * N, dtype=torch.bool)
    seen[:N, :N], seen[N:, :N], seen[N:, N:] = True, ~inside, inside
    seen[N:][~inside] = True  # not read: whatever it sees
    h = defined(network, torch.cat((read, x), 1), seen, torch.arange(N).repeat(2))[:, N:]
    h = torch.cat((h[:, :1], h[:, :-1]), 1) if network.net.shift else h
    return h @ network.head.weight.mT


def recursion(network: Llama, X: Tensor, cache: str, refresh: int | None) -> Tensor:
    """log p(x) of texts (B, N), (B,): one token after the other, each from the reading that its evaluation has."""
    shift = int(network.net.shift)
    log_p = torch.zeros(len(X), dtype=torch.float64)
    for begin in range(0, N, S):
        read = X
        for i in range(begin, begin + S):
            x, count = torch.where(torch.arange(N) < i, X, V), i - begin
            whole = count == 0 or (refresh is not None and count % refresh == 0)
            read = x if whole else read
            start, end = max(begin - shift, 0), N if cache == "prefix" else begin + S
            logits = dense(network, x, read, *(0, N) if whole else (start, end))
            log_p = log_p + logits[:, i, :V].log_softmax(-1).gather(-1, X[:, i : i + 1])[:, 0]
    return log_p


@shared("caches.stale")
@torch.no_grad()
def what_is_out_of_date_is_stated():
    """log p of texts as samples, by the sampler's code, against the recursion; all texts: how far the distribution is
    from that without a cache."""
    worst, X, all_texts = Largest(), some_texts(), enumeration.states(V, N)
    models: list[tuple[bool, Any, Any]] = [
        (False, MD4, MD4.Config(time=False)),
        (False, MDLM, None),
        (True, MDLM, None),
    ]
    for shift, cls, config in models:
        network = network_of(shift)
        method: Any = cls(network, V, (N,), config).double()
        worst.see(chances(method, X, "none", None).log(), recursion(network, X, "none", 1), "no cache")
        for cache, refresh in itertools.product(KINDS, (None, 2)):
            got = chances(method, X, cache, refresh).log()
            where = f"{method.name}: {cache}, refresh {refresh}, shift {shift}"
            worst.see(got, recursion(network, X, cache, refresh), where)
    yield worst.row(CACHES, "log p of samples = their recursion", 1e-5)
    none, total = chances(method, all_texts, "none", None), Largest()
    for cache in KINDS:
        p = chances(method, all_texts, cache, None)
        total.see(p.sum(), 1.0, cache)
        yield above(CACHES, f"... {cache}: total variation to no cache", apart(p, none), 1e-4, "≥ 1e-04")
    yield total.row(CACHES, "... all texts sum to 1")
