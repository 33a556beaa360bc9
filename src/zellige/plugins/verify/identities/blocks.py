"""Networks that read block after block: two streams, caches, and what is at the two ends, autoregression and MDLM."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zellige import methods
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.prediction import Score, posterior
from zellige.core.schedule import CLEAN, PRIOR
from zellige.exact import bounds, enumeration
from zellige.exact.script import scripts
from zellige.methods import AR, BD3LM, MDLM, UDLM
from zellige.methods.bd3lm import BD3LMUniform, Blocks
from zellige.methods.diffusion import Diffusion
from zellige.methods.method import Method
from zellige.nn.attention import documents
from zellige.nn.block import Net

from .check import QUADRATURE, L, Largest, V, again, numbers, own, some_texts

BLOCKS, LONG = "blocks: one after another, each beside the clean ones before", 6
TIMES = (0.3, 0.9, 0.6, 0.2, 0.7, 0.5)  # of the blocks


def by_blocks(method: Method) -> bool:
    """Return whether the network reads block after block."""
    return method.block_size(method.config) > 0


def transformer(method: Method, block: int, **more: Any) -> Any:
    """A method like this one on a transformer whose weights are fixed numbers, for texts of length 6 in blocks; `more`
    of its `Net`."""
    config = dataclasses.replace(method.config, block=block) if "block" in vars(method.config) else method.config
    net = Net(layers=2, hidden=12, heads=3, length=LONG, conv=3, condition=8, **more)
    instance = methods.build(type(method), V, net, config).double().eval()
    with torch.no_grad():
        for i, p in enumerate(instance.parameters()):
            p.copy_(numbers(*p.shape, shift=i) * 2 / p.shape[-1] ** 0.5)
    return instance


def noisy(method: Method, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Texts x_0, what the network reads of each block x_t, and the time t of each position, (B, L) each."""
    x_0 = enumeration.states(V, LONG)[:: V ** (LONG - 2) // 2]
    t = torch.tensor(TIMES, dtype=torch.float64).repeat_interleave(block)[:LONG].expand(x_0.shape)
    if method.process is None:
        return x_0, method.inputs(Batch(x_0)), t  # pyright: ignore
    noise = (x_0 + 1) % V if method.process.mask is None else torch.full_like(x_0, method.process.mask_id)
    return x_0, torch.where((x_0 + torch.arange(LONG)) % 2 == 0, noise, x_0), t


def lengths(method: Method) -> tuple[int, ...]:
    """Those of blocks that a method is checked with; 0 of one that reads whole texts."""
    return (1, 2, 3) if "block" in vars(method.config) else (method.block_size(method.config),)


@own("blocks.streams", by_blocks)
@torch.no_grad()
def two_streams_are_block_by_block(method: Method):
    """All blocks in one pass beside the clean tokens, against a pass for each block behind the clean ones before."""
    if method.process is None:
        return
    worst = Largest()
    for block in lengths(method):
        model = transformer(method, block)
        x_0, x_t, t = noisy(model, block)
        streams = model.hidden(x_t, t, Batch(x_0), model.clean(Batch(x_0)))
        for i in range(0, LONG, block):
            inputs, time = torch.cat((x_0[:, :i], x_t[:, i : i + block]), 1), torch.full_like(t, CLEAN)
            time[:, i : i + block] = t[:, i : i + block]
            times = model.input_times(inputs, time[:, : i + block], None)
            alone = model.network.features(inputs, times)[:, i:]
            worst.see(streams[:, i : i + block], alone, f"L' = {block}, block {i // block}")
    yield worst.row(BLOCKS, "two streams at once = block by block")


@own("blocks.cache", by_blocks)
@torch.no_grad()
def a_cache_changes_nothing(method: Method):
    """A block behind remembered keys and values, read at once or block by block, against a pass over all before it."""
    worst = Largest()
    for block in lengths(method):
        model, cache = transformer(method, block), None
        x_0, x_t, t = noisy(model, block)
        read = x_t if model.process is None else x_0  # what stands before
        for i in range(block, LONG, block):
            cache = model.extend(cache, read[:, i - block : i])
            block_tokens, time = x_t[:, i : i + block], torch.full_like(t, CLEAN)
            time[:, i : i + block] = t[:, i : i + block]
            times = model.input_times(x_t, time[:, : i + block], None)
            whole = model.network.features(torch.cat((read[:, :i], block_tokens), 1), times)[:, i:]
            for kind, memory in (("block by block", cache), ("at once", model.extend(None, read[:, :i]))):
                hidden = model.hidden(block_tokens, t[:, i : i + block], None, memory)
                worst.see(hidden, whole, f"L' = {block}, {i} read {kind}")
    yield worst.row(BLOCKS, "with a cache = without one")


DOCUMENTS = (1, 3, 2)  # the lengths of those that a row packs


@own("blocks.documents", lambda m: by_blocks(m) or isinstance(m, MDLM))
@torch.no_grad()
def packed_documents_are_each_alone(method: Method):
    """A row of several documents, against each in a row of its own: inputs and hidden states."""
    worst = Largest()
    segments = torch.arange(len(DOCUMENTS)).repeat_interleave(torch.tensor(DOCUMENTS))
    for block in lengths(method):
        model = transformer(method, block)
        x_0, x_t, t = noisy(model, max(block, 1))
        block_times = t.gather(1, _firsts(segments, block)[None].expand(t.shape))  # one time for each block
        packed_batch = Batch(x_0, segments=segments.expand(x_0.shape))
        reads = model.inputs(packed_batch) if isinstance(model, AR) else x_t
        whole, begin = model.hidden(reads, block_times, packed_batch, _beside(model, packed_batch)), 0
        for length in DOCUMENTS:
            at = slice(begin, begin + length)
            alone = Batch(x_0[:, at])
            inputs = model.inputs(alone) if isinstance(model, AR) else x_t[:, at]
            hidden = model.hidden(inputs, block_times[:, at], alone, _beside(model, alone))
            worst.see(whole[:, at], hidden, f"L' = {block}, positions {begin} to {begin + length - 1}")
            begin += length
    yield worst.row(BLOCKS, "packed documents = each of them alone", 1e-6)  # rotary angles are float32


def _beside(method: Method, batch: Batch) -> Tensor | None:
    """The clean tokens that it reads beside."""
    return method.clean(batch) if isinstance(method, Diffusion) else None


def _firsts(segments: Tensor, block: int) -> Tensor:
    """For each position the first of its block in its document (L,), or 0 where there are no blocks."""
    if not block:
        return torch.zeros_like(segments)
    start, position = documents(segments[None])
    return (start + position // block * block)[0]


# ---------------------------------------------------------------------------------- the two ends
def next_distributions(method: Any, x: Tensor, condition: Tensor | None = None) -> Tensor:
    """The distribution of each token of x (B, L) given those before, by autoregression or masks in blocks of one: (B, L, V).

    One network evaluation for each. Scores are those at a mask, not normalised.
    """
    distributions = []
    for i in range(x.shape[1]):
        if method.process is None:
            before = torch.cat((torch.full_like(x[:, :1], method.begin), x[:, :i]), 1)
            distributions.append(method.next(method.network.features(before, condition=condition)[:, -1]))
            continue
        cache = method.extend(None, x[:, :i], condition=condition) if i else None
        blank = torch.full_like(x[:, :1], method.process.mask_id)
        pred = method.predict(blank, PRIOR, context=cache, condition=condition)
        distributions.append((pred.v if isinstance(pred, Score) else posterior(pred)).double()[:, 0, :V])
    return torch.stack(distributions, 1)


def of_tokens(distributions: Tensor, x: Tensor) -> Tensor:
    """The probability of each token of x (B, L) by its distribution (B, L, V): (B, L)."""
    return distributions.gather(-1, x[..., None])[..., 0]


@own("blocks.one", lambda m: isinstance(m, BD3LM) and m.exact)
@torch.no_grad()
def blocks_of_one_are_autoregression(method: BD3LM):
    """L' = 1 is autoregression: by counts in each draw, by times in expectation if alpha runs from 1 to 0."""
    draws, mean, total, X = Largest(), Largest(), Largest(), enumeration.states(V, L)
    nll = -of_tokens(next_distributions(method, X), X).log().sum(-1)
    for seed in range(4):
        draws.see(method.bound(Batch(X), torch.Generator().manual_seed(seed)), nll, f"draw {seed}")
    total.see((-nll).exp().sum(), 1.0, "all x")
    method.process.schedule = Linear(0.0)
    mean.see(bounds.continuous_terms(method, X)["diffusion"], nll, "x_0")
    yield draws.row(BLOCKS, "L' = 1: the bound = -log p, token by token")
    yield total.row(BLOCKS, "... and p(x) over all x sums to 1")
    yield mean.row(BLOCKS, "... E over t, where alpha runs from 1 to 0", QUADRATURE)


def in_one_block(method: Method) -> bool:
    alone = isinstance(method, BD3LM) and method.clean(Batch(enumeration.states(V, L))) is None
    return alone or isinstance(method, BD3LMUniform)


@own("blocks.whole", in_one_block)
def one_block_is_no_block(method: Method):
    """L' = L is MDLM, with uniform noise UDLM: the same weights and random numbers, value and gradient."""
    alone = UDLM if isinstance(method, BD3LMUniform) else MDLM
    value, gradient, batch = Largest(), Largest(), Batch(enumeration.states(V, LONG)[::50])
    for time in (False, True):
        config = dataclasses.replace(method.config, time=time)
        blocks = transformer(type(method)(method.network, V, (L,), config), LONG)
        whole: Any = methods.build(alone, V, blocks.network.net, alone.Config(config.schedule, time)).double().eval()
        whole.load_state_dict(blocks.state_dict())
        for of in ("loss", "bound"):
            a, b = (getattr(m, of)(batch, torch.Generator().manual_seed(1)).sum() for m in (blocks, whole))
            value.see(a, b, of)
            gradient.see_gradients(a, b, (blocks, whole), of)
    yield value.row(BLOCKS, f"L' = L: loss and bound of {alone.name}, value")
    yield gradient.row(BLOCKS, "... and gradient")


class Always:
    """Randomness whose every uniform is u."""

    def __init__(self, u: float):
        self.u = u

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        return torch.full(tuple(shape), self.u, dtype=torch.float64, device=device)


@own("blocks.mixed", lambda m: isinstance(m, Blocks))
def one_network_reads_blocks_of_any_size_that_it_was_trained_with(method: Blocks):
    """Trained with `blocks` 1, 2 and 3, against a method of each size alone that has the same weights (arXiv
    2606.02241)."""
    loss, drawn, gap = Largest(), Largest(), Largest()
    batch, sizes = Batch(enumeration.states(V, LONG)[::90]), (1, 2, 3)
    config = dataclasses.replace(method.config, block=2, blocks=sizes)
    mixed = transformer(type(method)(method.network, V, (L,), config), 2)
    for i, block in enumerate(sizes):
        alone = transformer(method, block)
        for u in (0.1, 0.9):  # within the third of the uniforms that draws this size
            source = Always((i + u) / len(sizes))
            a, b = (m.loss(batch, source) for m in (mixed, alone))
            loss.see(a, b, f"L' = {block}")
            drawn.see_gradients(a.sum(), b.sum(), (mixed, alone), f"L' = {block}")
    yield loss.row(BLOCKS, "mixed L': the loss of the one that is drawn")
    yield drawn.row(BLOCKS, "... and its gradient")
    for block in (1, L):
        alone = method.of_block(block)
        times, X = alone.grid(3), enumeration.states(V, L)
        with torch.no_grad():
            above = bounds.step_bound(alone, X, times) + bounds.log_likelihood(alone, times)
        gap.see(above.clamp_max(0.0), 0.0, f"L' = {block}")
    yield gap.row(BLOCKS, "... the bound of each is at least its -log p")


@own("blocks.ar", lambda m: isinstance(m, AR))
@torch.no_grad()
def the_bound_of_ar_is_its_likelihood(method: Method):
    """Its likelihood, against the distributions of the next tokens by growing inputs."""
    same, total, X = Largest(), Largest(), enumeration.states(V, L)
    bound = method.bound(Batch(X))
    same.see(bound, -of_tokens(next_distributions(method, X), X).log().sum(-1), "x")
    total.see((-bound).exp().sum(), 1.0, "all x")
    yield same.row(BLOCKS, "the bound = -log p, token by token")
    yield total.row(BLOCKS, "... and p(x) over all x sums to 1")


@own("blocks.batch", lambda m: isinstance(m, AR))
@torch.no_grad()
def a_random_batch_is_unbiased(method: Method):
    """`token_share`: over every draw of the tokens that count, the mean of their costs, times how many may be drawn;
    its expectation is the bound times the chance that any is drawn."""
    worst, share = Largest(), 0.25
    method = again(method, token_share=share)
    for x in some_texts():
        for mask in enumeration.states(2, L)[1:].bool():
            batch, expected = Batch(x[None], mask[None]), torch.zeros(1, dtype=torch.float64)
            for loss, p in scripts(lambda source: method.loss(batch, source), 1):  # noqa: B023
                expected += p * loss
            whole = method.bound(batch) * (1 - (1 - share) ** int(mask.sum()))
            worst.see(expected, whole, f"x = {x.tolist()}, counted {mask.tolist()}")
    yield worst.row(BLOCKS, "random batch: E of the loss = share of bound")


@own("blocks.clipped", lambda m: isinstance(m, BD3LM))
@torch.no_grad()
def clipped_times_are_uniform_in_their_interval(method: BD3LM):
    """E of what is drawn is the mean over [0.3, 0.8] of the bound's integrand."""
    worst, x_0, ends = Largest(), some_texts(), torch.tensor([0.3, 0.8], dtype=torch.float64)
    drawn = bounds.expectation(lambda batch, source: method.clipped(batch, ends, source), x_0, bounds.parts(L))
    low, high = ends.tolist()
    worst.see(drawn, bounds.integral(method, x_0, low, high) / (high - low), "x_0")
    yield worst.row(BLOCKS, "clipped times: E of the loss = mean integrand", QUADRATURE)
