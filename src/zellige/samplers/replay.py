"""log p(x) under a sampler's distribution: its own code runs, with the text in place of its sampled tokens.

A sampler's distribution is p(x) = sum over z of p(z, x), with z all random choices on its way: positions, times, noisy
states. Here one z is sampled with a weight w, E w = p(x), so that n of them bound -log p(x) from both sides
(`bracket`). Three ways to write a text:

    Replayed    a sampler that chooses positions and draws a token there once: positions are drawn as it draws them, the tokens
                are the text's, and w is the product of their probabilities. Where the choice is deterministic (a fixed order;
                most confident first) there is one z, and w = p(x) itself: DUEL, arXiv 2603.01367, parallel steps included
    Trajectory  x_T, ..., x_1 from q( . | x_0), and w = prior(x_T) prod p(x_s | x_t) / q(x_T, ..., x_1 | x_0); E_q -log w is
                the T-step bound (D3PM eq. 1)
    Oracle      at each step the position where the text's own token is likeliest, a choice that needs the text: a value that
                an order reaches, and of no sampler's distribution

With `draw` a text is sampled instead, with the w of its z: an exact sample from p(z | x). In a network of blocks each
block is written in this way, given those before, and has its own w; p(x) is the product.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core import maths, random
from ..core.batch import Batch
from ..core.prediction import kernel, posterior, truth
from ..core.random import Randomness
from ..core.schedule import PRIOR
from ..methods.diffusion import Diffusion, where_noised
from ..methods.method import Method
from .ancestral import Ancestral
from .any_order import AnyOrder
from .first_hitting import FirstHitting
from .pairing import BLOCKS, CONTINUOUS, Distribution, can_choose_first, of_length, one_alpha, steps_distribution
from .predict import expected_time, fill, free, hides, predict_at
from .sampler import Sampler, State, start_distribution

LEAST = -1e300  # nats, of a token that the network excludes: still likelier than a position that is no mask


@dataclass(frozen=True)
class Written:
    """Texts with one z each: x (B, L), log_w (B, G) of each of G blocks (one without blocks), calls (B,)."""

    x: Tensor
    log_w: Tensor
    calls: Tensor


class Path(Protocol):
    """A way to write a text, or a block after its `context`: x (B, L), log w (B,) float64, network evaluations (B,).

    Given tokens (`Batch.mask` False) stay. With `draw` the other tokens of the batch are not read.
    """

    @property
    def distribution(self) -> Distribution: ...
    def calls(self, method: Method) -> int: ...  # of the network for a text, or a block, at most
    def __call__(
        self, method: Method, batch: Batch, context: Any, generator: Randomness, draw: bool
    ) -> tuple[Tensor, Tensor, Tensor]: ...


@torch.no_grad()
def weigh(method: Method, batch: Batch, path: Path, generator: Randomness = None, draw: bool = False) -> Written:
    """Sample one z of each text and its w, block by block if the network reads blocks; with `draw` the texts are
    sampled too.

    Args:
        generator: one, or one for each text: then its random numbers do not depend on the batch.
    """
    length = batch.tokens.shape[1]
    block = method.block if 0 < method.block < length else length
    inside, context, pieces = of_length(method, block), None, []
    for begin in range(0, length, block):
        span = slice(begin, begin + block)
        mask = None if batch.mask is None else batch.mask[:, span]
        block_batch = Batch(batch.tokens[:, span], mask, None, batch.condition)
        x, log_w, calls = path(inside, block_batch, context, generator, draw)
        read = begin + block < length
        pieces.append((x, log_w, calls + read))
        if read:
            context = method.extend(context, x, condition=batch.condition)
    x, log_w, calls = zip(*pieces)
    return Written(torch.cat(x, 1), torch.stack(log_w, 1), method.passes * torch.stack(calls).sum(0))


# ---------------------------------------------------------------------------------- a sampler's own code
class Replay:
    """A source of randomness that returns the tokens of given texts where a sampler samples a token, and random numbers
    elsewhere.

    Args:
        source: what is drawn comes from here.
        texts: (B, L); None: their tokens are drawn too.

    Attributes:
        log_w: (B,) float64, log of the product of the probabilities of the tokens so far.
    """

    def __init__(self, source: Randomness, rows: int, device: torch.device, texts: Tensor | None = None):
        self.source, self.texts = source, texts
        self.log_w = torch.zeros(rows, dtype=torch.float64, device=device)

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        return random.uniform(shape, self.source).to(self.log_w.device)

    def bernoulli(self, p: Tensor, at: Tensor | None = None) -> Tensor:
        return random.bernoulli(p.cpu(), self.source, None if at is None else at.cpu()).to(p.device)

    def categorical(self, p: Tensor, at: Tensor | None = None) -> Tensor:
        if at is None:  # a choice, and no token
            return random.categorical(p.cpu(), self.source).to(p.device)
        x = random.categorical(p.cpu(), self.source, at.cpu()).to(p.device) if self.texts is None else self.texts[at]
        self.log_w = self.log_w.index_add(0, at.nonzero()[:, 0], _log(maths.normalise(p.double()), x))
        return x


@dataclass(frozen=True)
class Replayed:
    """A sampler that samples the token of each position once (absorbing noise, choose then predict), replayed."""

    sampler: Sampler
    distribution: Distribution
    steps: int | None = None

    def calls(self, method):
        return self.sampler.most_calls(method, self.sampler.times(method, self.steps))

    def __call__(self, method, batch, context, generator, draw):
        x = batch.tokens
        source = Replay(generator, len(x), x.device, None if draw else x)
        fixed = None if batch.mask is None else torch.where(batch.mask, -1, x)
        state = self.sampler.init(method, (x.shape[0], x.shape[1]), fixed=fixed, generator=source)
        state = replace(state, context=context, condition=batch.condition)
        for t, s in itertools.pairwise(self.sampler.times(method, self.steps).to(start_distribution(method))):
            state = self.sampler.step(method, state, t, s, source)
        return state.x, source.log_w, state.calls


ORACLE = Distribution("oracle", "none: the order is chosen by the text itself")


@dataclass(frozen=True)
class Oracle:
    """The greedy order given the text: the position of the likeliest token comes next, ties from the left."""

    distribution: Distribution = ORACLE

    def calls(self, method):
        return method.shape[0]

    def __call__(self, method, batch, context, generator, draw):
        x, counted = batch.tokens, batch.counted
        start = torch.where(counted, method.process.mask_id, x)
        calls = torch.zeros(len(x), dtype=torch.long, device=x.device)
        state = State(start, ~counted, calls, context, None, batch.condition)
        log_w = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        while (masks := free(method, state)).any():
            pred = predict_at(method, state, masks, expected_time(method, state))
            assert pred is not None
            log_p = _log(posterior(pred).double(), x[masks]).clamp_min(LEAST)
            log_p_at = torch.full(x.shape, -math.inf, dtype=torch.float64, device=x.device).masked_scatter(masks, log_p)
            best, unfinished = log_p_at.max(-1), masks.any(-1)
            log_w = log_w + torch.where(unfinished, best.values, 0.0)
            at = torch.zeros_like(masks).scatter(1, best.indices[:, None], unfinished[:, None])
            state = fill(state, at, x[at], unfinished)
        return state.x, log_w, state.calls


# ---------------------------------------------------------------------------------------------------- the T-step chain
@dataclass(frozen=True)
class Trajectory:
    """The reverse chain of the T-step model, for any process and prediction: noisy states from q given the text."""

    steps: int

    @property
    def distribution(self) -> Distribution:
        return replace(steps_distribution(self.steps, 0), text=f"ancestral, T = {self.steps:,}")

    def calls(self, method):
        return self.steps

    def __call__(self, method, batch, context, generator, draw):
        process, counted = method.process, batch.counted
        times = method.grid(self.steps).to(start_distribution(method))
        log_w = torch.zeros(len(batch), dtype=torch.float64, device=times.device)
        if draw:
            prior = process.sample_prior(batch.tokens.shape, generator)
            x = torch.where(counted, prior, batch.tokens)
        else:
            x = method.corrupt(batch, times[0], generator)
        chain, calls = [x], torch.zeros(len(x), dtype=torch.long, device=x.device)
        for t, s in itertools.pairwise(times):
            at = process.movable(x) & counted
            if not at.any():
                random.discard(at.shape, generator)
                chain.append(x)
                continue
            rows = at.any(-1).nonzero()[:, 0]
            times_t = where_noised(batch, t)[rows]
            condition = None if batch.condition is None else batch.condition[rows]
            cache = None if context is None else context.take(rows)
            pred = method.predict(x[rows], times_t, at=at[rows], condition=condition, context=cache)
            distribution = kernel(pred, s.expand(int(at.sum())))
            proposal = distribution if draw else _backward(method, batch.tokens[at], x[at], t, s)
            new = random.categorical(proposal, generator, at)
            row = at.nonzero()[:, 0]
            log_w = log_w.index_add(0, row, _log(distribution.double(), new))
            x = x.masked_scatter(at, new)
            chain.append(x)
            calls = calls + at.any(-1)
        log_w = log_w + self._of_noise(method, Batch(x, batch.mask), chain, times)
        return x, log_w, calls

    def _of_noise(self, method: Diffusion, batch: Batch, chain: list[Tensor], times: Tensor) -> Tensor:
        """log prior(x_T) - log q(x_T, ..., x_1 | x_0): (B,)."""
        process, x_0, counted, x_T = method.process, batch.tokens, batch.counted, chain[0]
        if times[0] == PRIOR:  # q is the prior there
            total = torch.zeros(len(x_0), dtype=torch.float64, device=x_0.device)
        else:
            q = process.marginal(x_0, times[0].expand(x_0.shape))
            ratio = _log(process.prior.expand(q.shape), x_T) - _log(q, x_T)
            total = torch.where(counted, ratio, 0.0).sum(-1)
        for (x_t, x_s), (t, s) in zip(itertools.pairwise(chain), itertools.pairwise(times)):
            at = process.movable(x_t) & counted
            q = _log(_backward(method, x_0[at], x_t[at], t, s), x_s[at])
            total = total.index_add(0, at.nonzero()[:, 0], -q)
        return total


def _backward(method: Diffusion, x_0: Tensor, x_t: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """q(x_s | x_t, x_0) at N positions: (N, K) float64."""
    target = truth(method.process, x_0, x_t, t.expand(x_0.shape))
    return kernel(target, s.expand(x_0.shape)).double()


def _log(distribution: Tensor, x: Tensor) -> Tensor:
    """log distribution[x] at each position, (*, K), (*) -> (*) float64; -infinite where it is zero."""
    p = distribution.gather(-1, x[..., None])[..., 0].double()
    return maths.xlogy(torch.ones_like(p), p)


# ---------------------------------------------------------------------------------------------------- which one
def path_of(method: Method, steps: int) -> Path:
    """The path that samples from the method's own distribution: in any order if that is exact, else the T-step chain.

    Args:
        steps: T of a method in continuous time whose distribution no replayed sampler has.

    Raises:
        InputError: the model has paths that no noise has.
    """
    if not hasattr(method, "grid"):
        raise InputError(
            f"both sides of -log p need noise that changes tokens alone, and that of {method.name} is another; leave "
            "them out for its bound"
        )
    inside, blocks = _one_block(method), 0 < method.block < method.shape[0]
    T = method.steps
    if isinstance(method, Diffusion) and not method.retraces:
        raise InputError(
            "both sides of -log p need paths that the noise has, and this model's last step draws visible tokens anew; "
            "leave them out for its bound"
        )
    if not (hides(inside) and can_choose_first(inside) and one_alpha(inside.process)):
        return Trajectory(T or steps)
    sampler = Ancestral("uniform") if T else FirstHitting() if method.time_conditioned else AnyOrder()
    distribution = steps_distribution(T, T) if T else CONTINUOUS
    distribution = distribution.changed(*BLOCKS) if blocks else distribution
    text = f"ancestral, T = {T:,}" if T else sampler.name
    text += f" in each block of {method.block}" if blocks else ""
    return Replayed(sampler, replace(distribution, text=text), T or None)


def no_order(method: Method) -> str | None:
    """Reason why no sampler that chooses positions can write this method's texts; None if one can."""
    if method.process is None:
        return "it has no noise to reverse"
    if not hides(_one_block(method)):
        return "needs noise that is a mask: with other noise every position is drawn in every step"
    return None


def _one_block(method: Method) -> Any:
    return of_length(method, method.block) if 0 < method.block < method.shape[0] else method
