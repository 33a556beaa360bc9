"""Insertion (FlexMDM) on all texts of 0 to 3 tokens: the noise, the bound, the chain, its sampler and infilling,
enumerated."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from zellige.core.batch import Batch
from zellige.exact import insertion
from zellige.exact.distributions import gauss
from zellige.exact.enumeration import entropy
from zellige.exact.script import Script, branches
from zellige.methods.flexmdm import FlexMDM, Noisy, Span, pair
from zellige.nn.table import Table
from zellige.samplers.insertion import Insertion
from zellige.samplers.sampler import GAP, HIDDEN

from .check import Largest, above, apart, numbers, of_order, own, with_table

GROUP = "insertion"
TOKENS, LONGEST = 2, 3
STEPS = 10, 20
inserts = lambda method: isinstance(method, FlexMDM)  # noqa: E731


def data() -> Tensor:
    """A distribution on all texts of 0 to 3 tokens."""
    weights = (1.05 + numbers(len(insertion.texts(TOKENS, LONGEST)))) ** 2
    return weights / weights.sum()


def any_network(method: FlexMDM, unmasking: float | None = None) -> FlexMDM:
    """The variant, or another q, with a network of fixed numbers, which sees the time and the closed gaps."""
    network = with_table(Table(TOKENS + 2, LONGEST, time=True, outputs=TOKENS + 1, given=True), size=1.0)
    config = method.config if unmasking is None else FlexMDM.Config(unmasking)
    return _Plain(network, TOKENS, (LONGEST,), config)


class _Plain(insertion.Method):
    """Its table is smooth in t itself."""

    def network_time(self, t):
        return t


def exact(method: FlexMDM, sight: bool = True) -> FlexMDM:
    """The variant with the exact network for `data`."""
    return insertion.exact_method(method.config, TOKENS, LONGEST, data(), sight)


def spans(known: bool) -> Iterator[tuple[str, Span, Tensor]]:
    """Spans of every text: with one token before it, or one after it, or both; and which texts have as many, (N,)."""
    n = (insertion.texts(TOKENS, LONGEST) < TOKENS).sum(-1)
    flag = torch.full_like(n, known, dtype=torch.bool)
    for a, b in ((1, 0), (0, 1), (1, 1)):
        span = Span((n * 0 + a).minimum(n), (n - b).maximum(n.clamp_max(a)), flag)
        yield f"{a} before, {b} after, length {'known' if known else 'unknown'}", span, n >= a + b


# ---------------------------------------------------------------------------------- noise and bound
@own("insertion.noise", inserts)
def tokens_are_masked_as_their_times_say(method: FlexMDM):
    """P(masked) = integral over the time u of insertion of P(u v <= t), v = uniform^(1/q):
    of the code that draws it."""
    worst, q, (x, w) = Largest(), method.config.unmasking, gauss(24)
    for t in (0.03, 0.4, 0.9):
        u = t ** (1 - x)  # even in log u
        masked = float((w * u * (t / u) ** q).sum()) * -math.log(t)
        found: dict[str, float] = dict.fromkeys(("absent", "masked", "shown"), 0.0)
        draw = lambda at, script, t=t: _noisy(method, t, len(at), script)  # noqa: E731
        for _, noisy, p in branches(draw, 1):
            for state, chance in zip(noisy.x[:, 0].tolist(), p.tolist()):
                name = {method.padding: "absent", method.mask: "masked"}.get(state, "shown")
                found[name] += chance
        expected = {"absent": t, "masked": masked, "shown": 1 - t - masked}
        for name, value in found.items():
            worst.see(value, expected[name], f"{name} at t = {t}")
    yield worst.row(GROUP, "noise  chances of a token = its two times")


def _noisy(method: FlexMDM, t: float, rows: int, script: Script) -> Noisy:
    """Texts of one token at time t."""
    texts, span = method.texts(Batch(torch.ones(rows, 1, dtype=torch.long)))
    return method.corrupt(texts, torch.full((rows,), t, dtype=torch.float64), span, script)


@own("insertion.definition", inserts)
@torch.no_grad()
def the_bound_is_its_definition(method: FlexMDM):
    worst, model, x_0 = Largest(), any_network(method), insertion.texts(TOKENS, LONGEST)
    worst.see(insertion.expected_bound(model, x_0), insertion.by_definition(model))
    yield worst.row(GROUP, "bound  its samples = the sum over the noise")


@own("insertion.entropy", inserts)
@torch.no_grad()
def the_exact_network_is_tight(method: FlexMDM):
    worst, p = Largest(), data()
    bound = insertion.expected_bound(exact(method), insertion.texts(TOKENS, LONGEST))
    worst.see((p * bound).sum(), entropy(p), "mean of the bound")
    yield worst.row(GROUP, "bound  exact network = entropy of the texts", 1e-7)


@own("insertion.bound", inserts)
@torch.no_grad()
def the_bound_is_one(method: FlexMDM):
    """Of every text, against the chain's own -log p; of the empty text, which one path leads to, it is that."""
    worst, model = Largest(), any_network(method)
    bound = insertion.expected_bound(model, insertion.texts(TOKENS, LONGEST))
    nll = -insertion.chain_distribution(model).log()
    gap = bound - nll
    where = f"smallest at text {int(gap[1:].argmin()) + 1}, mean {float(gap.mean()):.3f} nats"
    yield above(GROUP, "bound  any network ≥ -log p of its chain", float(gap[1:].min()), 0.0, "≥ 0", where)
    worst.see(bound[:1], nll[:1])
    yield worst.row(GROUP, "bound  of the empty text = its -log p", 1e-6)


@own("insertion.conditional", inserts)
@torch.no_grad()
def bounds_of_spans_are_tight(method: FlexMDM):
    """Given the tokens around a span, of unknown or known length: any network against the definition, the exact one
    against the conditional entropy."""
    definition, tight, p, x_0 = Largest(), Largest(), data(), insertion.texts(TOKENS, LONGEST)
    model, truth = any_network(method), exact(method)
    for known in (False, True):
        for where, span, long in spans(known):
            definition.see(insertion.expected_bound(model, x_0, span), insertion.by_definition(model, span), where)
            bound = insertion.expected_bound(truth, x_0, span)
            kept = [
                (tuple(row[:a]), tuple(row[b:]) if known else tuple(token for token in row[b:] if token < TOKENS))
                for row, a, b in zip(x_0.tolist(), span.begin.tolist(), span.end.tolist())
            ]
            given = torch.stack([p[[j for j, other in enumerate(kept) if other == k]].sum() for k in kept])
            tight.see((p * bound)[long].sum(), -(p * (p / given).log())[long].sum(), where)
    yield definition.row(GROUP, "spans  bound's samples = the sum over the noise")
    yield tight.row(GROUP, "spans  exact network = conditional entropy", 1e-7)


@own("insertion.spans", inserts)
def the_given_part_tells_nothing_of_the_length(method: FlexMDM):
    """Of training: P(a tokens before, b after | n tokens) is the same for every n of a + b or more;
    pairs are uniform."""
    L = 5
    model = FlexMDM(None, TOKENS, (L,), FlexMDM.Config(spans=0.5))
    count = (L + 1) * (L + 2) // 2
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    worst, seen = Largest(), Largest()
    shares = torch.zeros(L + 1, L + 1, L + 1, dtype=torch.float64)
    for n in range(L + 1):
        whole = Span.of(torch.zeros(count).long(), torch.full((count,), n))
        uniforms = torch.stack((grid, grid.flip(0)), 1)
        draw = lambda at, script, whole=whole: model.spans(Span.of(whole.begin[at], whole.end[at]), script)  # noqa: E731
        for _, span, p in branches(draw, count, None, uniforms):
            alone = (span.begin > 0) | (span.end < n)
            for a, b, known, part in zip(
                span.begin.tolist(), (n - span.end).tolist(), span.known.tolist(), (p * alone).tolist()
            ):
                shares[n, a, b] += 0.0 if known else part / count
        some = (torch.arange(100 * (n + 1) * (n + 2) // 2) + 0.5).double() / (100 * (n + 1) * (n + 2) // 2)
        a, b = pair(some, torch.full((len(some),), n))
        uniform = torch.zeros(n + 1, n + 1, dtype=torch.float64).index_put(
            (a, b), torch.ones(1).double(), accumulate=True
        )
        worst.see(uniform / len(some), torch.ones(n + 1, n + 1).triu().double() * 2 / ((n + 1) * (n + 2)), f"n = {n}")
    for n in range(L + 1):
        for a in range(n + 1):
            for b in range(1 if a == 0 else 0, n + 1 - a):
                seen.see(shares[n, a, b], shares[L, a, b], f"{a} before, {b} after, n = {n}")
    yield worst.row(GROUP, "spans  pairs of ends are uniform")
    yield seen.row(GROUP, "spans  what is given tells no length")


# ---------------------------------------------------------------------------------- chain and sampler
@own("insertion.chain", inserts)
@torch.no_grad()
def the_exact_chain_draws_the_data(method: FlexMDM):
    worst, p = Largest(), data()
    found = insertion.chain_distribution(exact(method))
    worst.see(found, p, "text")
    worst.see(insertion.lengths(found, TOKENS, LONGEST), insertion.lengths(p, TOKENS, LONGEST), "length")
    yield worst.row(GROUP, "chain  exact network = data, lengths too", 1e-6)


@own("sampler.insertion-step", inserts)
@torch.no_grad()
def a_step_is_its_definition(method: FlexMDM):
    """Unmask, then Poisson numbers of masks: a mixture of all states, with any network, against the formula."""
    worst, t, s = Largest(), 0.7, 0.3
    for q in (1.0, 3.0):
        model = any_network(method, q)
        worst.see(*_step_and_definition(model, t, s), f"q = {q}")
    yield worst.row(GROUP, "sampler  a step = its definition")


def _step_and_definition(model: FlexMDM, t: float, s: float) -> tuple[Tensor, Tensor]:
    X = insertion.texts(TOKENS + 1, LONGEST, model.padding)
    number = {tuple(row): i for i, row in enumerate(X.tolist())}
    open_: tuple[bool, ...] = (False,) * LONGEST
    weights = (1.05 + numbers(len(X))) ** 2
    states: insertion.States = {(tuple(row), open_): float(p) for row, p in zip(X.tolist(), weights)}
    found, expected = torch.zeros(len(X)).double(), torch.zeros(len(X)).double()
    for (tokens, _), p in insertion.after(Insertion(), model, states, t, s).items():
        found[number[tokens]] += p
    for (row, _), p in states.items():
        for tokens, chance in _stepped(model, [*row], t, s).items():
            expected[number[tokens]] += p * chance
    return found, expected


def _stepped(model: FlexMDM, row: list[int], t: float, s: float) -> dict[tuple[int, ...], float]:
    """The distribution after one step from a state, by its definition; the step does not go to s = 0."""
    L, x = LONGEST, torch.tensor([row])
    h = model.read(x, torch.tensor([t], dtype=torch.float64), torch.zeros(1, L).bool(), torch.ones(1, L).bool())
    f, rates = model.next(h), model.rates(h)
    symbols = [symbol for symbol in row if symbol != model.padding]
    room, shown = L - len(symbols), 1 - (s / t) ** model.config.unmasking
    texts = {(): 1.0}
    for i, symbol in enumerate(symbols):
        outcomes = {symbol: 1.0}
        if symbol == model.mask:
            outcomes = {symbol: 1 - shown} | {v: shown * float(f[i, v]) for v in range(TOKENS)}
        texts = {(*text, v): p * share for text, p in texts.items() for v, share in outcomes.items()}
    rate = rates[: len(symbols) + 1] if room else rates[:0]
    mean, chances, beyond = (t - s) * float(rate.sum()), [], 1.0
    for n in range(room):
        chances.append(math.exp(-mean) * mean**n / math.factorial(n))
        beyond -= chances[-1]
    placed = {(0,) * (len(symbols) + 1): 1.0}  # numbers of masks by gap
    after: dict[tuple[int, ...], float] = {}
    for chance in [*chances, beyond]:
        for text, p in texts.items():
            for counts, share in placed.items():
                longer = [*_with_masks(text, counts, model.mask)]
                key = (*longer, *([model.padding] * (L - len(longer))))
                after[key] = after.get(key, 0.0) + chance * p * share
        more: dict[tuple[int, ...], float] = {}
        for counts, share in placed.items():
            for gap in range(len(rate)):
                key = (*counts[:gap], counts[gap] + 1, *counts[gap + 1 :])
                more[key] = more.get(key, 0.0) + share * float(rate[gap] / rate.sum())
        placed = more
    return after


def _with_masks(text: tuple[int, ...], counts: tuple[int, ...], mask: int) -> list[int]:
    """The text with so many masks before each of its symbols, and at its end."""
    out: list[int] = []
    for count, symbol in zip(counts, [*text, None]):
        out += [mask] * count + ([] if symbol is None else [symbol])
    return out


@own("sampler.insertion-order", inserts)
@torch.no_grad()
def samples_tend_to_the_model(method: FlexMDM):
    p, model = data(), exact(method)
    a, b = (insertion.sampled_distribution(Insertion(), model, steps) for steps in STEPS)
    tv = [apart(insertion.lengths(q, TOKENS, LONGEST), insertion.lengths(p, TOKENS, LONGEST)) for q in (a, b)]
    where = f"distance {apart(a, p):.2e}, {apart(b, p):.2e} at {STEPS[0]}, {STEPS[1]} steps"
    yield of_order(GROUP, "sampler  exact network: the data, order 1", apart(a, p), apart(b, p), 1.0, where=where)
    yield of_order(
        GROUP, "sampler  ... and its lengths, order 1", tv[0], tv[1], 1.0, where=f"distance {tv[0]:.2e}, {tv[1]:.2e}"
    )
    model = any_network(method)
    p = insertion.chain_distribution(model)
    away = [apart(insertion.sampled_distribution(Insertion(), model, steps), p) for steps in STEPS]
    where = f"distance {away[0]:.2e}, {away[1]:.2e}"
    yield of_order(GROUP, "sampler  any network: its chain, order 1", away[0], away[1], 1.0, where=where)


@own("sampler.insertion-infill", inserts)
@torch.no_grad()
def infilling_tends_to_the_conditional(method: FlexMDM):
    """__* 1: with a network that sees the closed gaps; with one that does not, the distance stays."""
    fixed, x_0 = torch.tensor([GAP, 1, HIDDEN]), insertion.texts(TOKENS, LONGEST)
    inside = [[token for token in row if token < TOKENS][-1:] == [1] for row in x_0.tolist()]
    p = data() * torch.tensor(inside)
    p = p / p.sum()
    away = [apart(insertion.sampled_distribution(Insertion(), exact(method), steps, fixed), p) for steps in STEPS]
    where = f"distance {away[0]:.2e}, {away[1]:.2e} at {STEPS[0]}, {STEPS[1]} steps"
    yield of_order(GROUP, "infill  to the conditional, order 1", away[0], away[1], 1.0, where=where)
    blind = apart(insertion.sampled_distribution(Insertion(), exact(method, False), STEPS[1], fixed), p)
    identity = f"infill  not if blind to closed gaps, {STEPS[1]} steps"
    yield above(GROUP, identity, blind, 2 * away[1], f"≥ {2 * away[1]:.3f}", where)
    yield from _masks_and_prompts(method)


def _masks_and_prompts(method: FlexMDM):
    """A given number of masks (0 _), and a prompt (0), of the same network."""
    x_0, p, worst = insertion.texts(TOKENS, LONGEST), data(), Largest()
    n, first = (x_0 < TOKENS).sum(-1), x_0[:, 0] == 0
    pair_ = p * (first & (n == 2))
    found = insertion.sampled_distribution(Insertion(), exact(method), 4, torch.tensor([0, -1, HIDDEN]))
    worst.see(found, pair_ / pair_.sum(), "0 _")
    yield worst.row(GROUP, "infill  one mask: its conditional, any steps", 1e-9)
    prompted = p * first
    prompted = prompted / prompted.sum()
    away = [
        apart(insertion.sampled_distribution(Insertion(), exact(method), steps, torch.tensor([0, -1, -1])), prompted)
        for steps in STEPS
    ]
    yield of_order(
        GROUP, "prompt  to the conditional, order 1", away[0], away[1], 1.0, where=f"{away[0]:.2e}, {away[1]:.2e}"
    )
