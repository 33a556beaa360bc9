"""FlexMDM: masked diffusion of texts of any length, by insertion (Kim et al. 2025, arXiv 2509.01025); derived here.

The noise masks tokens and then deletes them. Time runs from t = 0, the text x_0 of n tokens, to t = 1, the empty text.
Sampling goes back in time: it inserts masks, and later turns them into tokens. q (`unmasking`): masks are revealed q
times as fast as they are inserted. L (`net.length`): the largest length.

    noise       each token, independently, is deleted at time u, uniform on (0, 1), and masked before, at u v, with
                v = (uniform)^{1/q}:
                P(deleted at t) = t,   P(masked at t) = (t^q - t) / (1 - q),  for q = 1: -t log t                   (1)
    state x_t   the tokens that are left, visible or masked, then padding up to L positions
    gaps        gap i is left of position i of x_t, the last gap right of all tokens. c_i tokens are missing in gap i
    reverse     from t to t - dt a missing token is inserted with probability dt / t, a mask revealed with q dt / t  (2)
    network     time-conditioned. At a mask: f, the distribution of its token. At a gap: log lambda_i, the log of the
                rate of insertion. The exact network has f = p(token | x_t) and lambda_i = E[c_i | x_t] / t.
                Nothing is inserted into a text of L tokens

    -log p(x_0) <= integral over t in (0, 1) of
        E [ sum_gaps (lambda_i - c_i / t (1 + log(t lambda_i))) + sum_masks q / t (-log f(clean token)) ]          (3)

Proof of (3). A path is the time and gap of each insertion, and the time and token of each unmasking. Q is the
distribution of paths given x_0, by (1); P is the model's. Then -log p(x_0) = -log E_Q[P/Q] <= E_Q[log Q/P]. For a jump
process log P is the sum of the log rates of its jumps, minus the integral of all rates. Under Q each missing token is
inserted at the rate 1/t. The rates q / t of unmasking are the same in P and Q and cancel. The mean over Q turns the sum
over the insertions in gap i into an integral with the rate c_i / t. This gives (3).

With the exact network the mean of (3) over the data is their entropy, because P = Q: given the path until t, a text x_0
has the weight p(x_0) t^{n - length of x_t}, so of the path only x_t matters. (The published loss is larger by
c_i log c_i / t, which depends on the data alone.)

The integral is sampled at t = u^2 with weight 2 u, u uniform and stratified. The variance is finite if q is above 1/2.
With t uniform it would be infinite.

**Infilling.** Given tokens are always visible, and nothing is inserted between two neighbouring given tokens. The network
sees these closed gaps (`Net.given`, at the position right of a gap). Over the open gaps and the masks, (3) is then a
bound on -log p(span | given tokens), and tight for the exact network.

To train this, only one span is noised in a fraction `spans` of the texts, with a tokens before and b after it. The pair
(a, b) is uniform over all a + b <= L. If it depended on n, the network would learn a wrong distribution of lengths. If
a text is shorter than a + b, a uniform span of it is masked but not deleted, which trains spans of known length.

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| deletion and masks | linear; unmasking q times as fast | tokens of masks, gap rates | continuous; spans | insertion |

Differences from the paper: the network gives lambda_i, not t lambda_i. The paper allows any two schedules for insertion
and unmasking; here insertion is linear, and q determines unmasking. A sequence holds one text. The network also reads its
padding.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import maths, random
from ..core.batch import Batch
from ..core.positions import positions
from ..core.random import Randomness
from ..nn.block import Net
from ..nn.chunks import each_position
from .method import Method

TINY = 1e-9  # the smallest u: 2 (q + n) u of the bound is not sampled


@dataclass(frozen=True)
class Noisy:
    """A noisy text and the targets of the network, (B, L) each.

    Attributes:
        x: tokens and masks, then padding.
        target: the clean token of each position that is not padding.
        missing: number of tokens missing left of each position; the first position of the padding is the last gap.
        open: gaps in which tokens may be missing.
        closed: gaps in which none can be, an input of the network.
    """

    x: Tensor
    target: Tensor
    missing: Tensor
    open: Tensor
    closed: Tensor


@dataclass(frozen=True)
class Span:
    """The part of each text that is noised, tokens `begin` to `end` - 1, (B,) each. `known`: its length is known, so
    its tokens are masked and never deleted."""

    begin: Tensor
    end: Tensor
    known: Tensor

    @classmethod
    def of(cls, begin: Tensor, end: Tensor) -> "Span":
        """Part of unknown length."""
        return cls(begin, end, torch.zeros_like(begin, dtype=torch.bool))


class FlexMDM(Method):
    """Masks are inserted, then become tokens; see the module for the equations."""

    name = "flexmdm"
    system, paper, noise = "FlexMDM", "2509.01025", "deletion and masks"
    parameterization = "insertion"
    sampler = "insertion"
    variants: ClassVar = ({}, {"unmasking": 3.0, "spans": 0.0})

    @declared
    class Config:
        """FlexMDM's options."""

        unmasking: float = option(
            "q: masks are revealed q times as fast as missing tokens are inserted",
            default=1.0,
            above=0.5,
            maximum=100,
        )
        spans: float = option(
            "fraction of the training texts in which only one span is noised, for infilling; 0: the loss is the bound",
            default=0.5,
            minimum=0,
            below=1,
        )

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        super().__init__(network, vocabulary, shape, self.checked(config), timed=True)
        self.loss_is_bound = not self.config.spans
        self.mask, self.padding = vocabulary, vocabulary + 1

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 2

    @classmethod
    def outputs(cls, vocabulary, config):
        return vocabulary + 1

    @classmethod
    def build_network(cls, net: Net, vocabulary: int, config: Any) -> nn.Module:
        if net.self_condition:
            raise InputError("`net.self_condition` is for texts of one length, and flexmdm inserts; leave it out")
        if net.grid:
            raise InputError("flexmdm inserts tokens into a line, and this data has a shape; use a method such as mdlm")
        return super().build_network(replace(net, given=True) if config.spans else net, vocabulary, config)

    # ---------------------------------------------------------------------------------- what the network says
    def predict(self, *_, **__):
        raise InputError(
            "flexmdm inserts tokens and predicts no text of one length; ask `next` for the tokens of masks, `rates` "
            "for the gaps"
        )

    def read(self, x: Tensor, t: Tensor, closed: Tensor, at: Tensor, condition: Tensor | None = None) -> Tensor:
        """Hidden states (N, D) at the positions `at` (B, L) of texts x (B, L) at times t (B,) with these closed gaps
        (B, L)."""
        return self.hidden(x, t, Batch(x, ~closed, None, condition), None, positions(at))

    def next(self, h: Tensor) -> Tensor:
        """Distribution f of the token of masks, from their hidden states (*, D): (*, V) float64."""
        return self.logits(h)[..., : self.vocabulary].double().softmax(-1)

    def rates(self, h: Tensor) -> Tensor:
        """Rates lambda of insertion into gaps, from the hidden states (*, D) right of them: (*) float64,
        per unit of time."""
        return self.logits(h)[..., self.vocabulary].double().exp()

    # ---------------------------------------------------------------------------------- the noise
    def masked_share(self, t: Tensor) -> Tensor:
        """M(t), the probability that a token is masked at time t."""
        x = (self.config.unmasking - 1) * t.log()
        return -maths.xlogy(t, t) * torch.where(x == 0, 1.0, torch.expm1(x) / torch.where(x == 0, 1.0, x))  # (1)

    def texts(self, batch: Batch) -> tuple[Batch, Span]:
        """Texts padded to the network's length, `mask` True at their tokens, and the span of each that is not given.

        Of the positions that do not count in the loss, those before the last counted one are given, and those after it
        are padding.

        Raises:
            InputError: several texts in a sequence; a given part that is not the beginning.
        """
        tokens, counted = (pad(values, (0, self.window - values.shape[1])) for values in (batch.tokens, batch.counted))
        there = counted.flip(1).cummax(1).values.flip(1)
        begin, lengths = (there & ~counted).sum(-1), there.sum(-1)
        if not torch.compiler.is_compiling():
            several = batch.segments is not None and bool(
                (batch.segments != batch.segments[:, :1])[batch.counted].any()
            )
            if several or bool((counted[:, :-1] & ~counted[:, 1:] & there[:, 1:]).any()):
                raise InputError(
                    "flexmdm reads one text a row, of which the beginning may be given; use `data.pack` document or "
                    "wrap"
                )
        return Batch(tokens, there, None, batch.condition), Span.of(begin, lengths)

    def corrupt(self, batch: Batch, t: Tensor, span: Span, generator: Randomness = None) -> Noisy:
        """Add noise to texts (`texts`) at times t (B,), in the `span` only."""
        x_0, counted = batch.tokens, batch.counted
        (B, L), device = x_0.shape, x_0.device
        place, lengths = torch.arange(L, device=device), counted.sum(-1)
        begin, end, known = (value[:, None] for value in (span.begin, span.end, span.known))
        t = t[:, None]
        absent = torch.where(known, 0.0, t)
        masked = torch.where(known, t**self.config.unmasking, self.masked_share(t))
        noised = (place >= begin) & (place < end)
        absent, masked = torch.where(noised, absent, 0.0), torch.where(noised, masked, 0.0)
        chances = torch.stack((absent, masked, 1 - absent - masked), -1).clamp_min(0.0)
        fate = random.categorical(chances, generator)
        kept = counted & (fate > 0)
        size = kept.sum(-1, keepdim=True)
        source = (~kept).long().argsort(dim=-1, stable=True)  # of each position of x_t, where it stands in x_0
        target = x_0.gather(1, source)
        x = torch.where(fate.gather(1, source) == 1, self.mask, target)
        x = torch.where(place < size, x, self.padding)
        gap = kept.long().cumsum(-1) - kept.long()  # of a token of x_0, how many before it are kept
        missing = x_0.new_zeros(B, L + 1).scatter_add(1, gap, (counted & ~kept).long())[:, :L]
        right = torch.where(place < size, source, lengths[:, None])  # of a gap, the token of x_0
        left = torch.cat((right.new_full((B, 1), -1), right[:, :-1]), 1)
        shut = known | (left >= end) | (right < begin)
        gaps = place <= size
        return Noisy(x, target, missing, gaps & ~shut & (size < L), gaps & shut)

    def spans(self, whole: Span, generator: Randomness = None) -> Span:
        """Sample the span that training noises in each text: a part in a fraction `spans` of the texts without a
        given part, else the `whole`."""
        lengths, device = whole.end, whole.end.device
        B, L = len(lengths), self.window
        alone = random.bernoulli(torch.full((B,), self.config.spans, device=device), generator) & (whole.begin == 0)
        before, rest = pair(random.uniform((B,), generator, device), torch.full_like(lengths, L))
        after = L - rest  # uniform over all before + after <= L, whatever n
        begin, end = pair(random.uniform((B,), generator, device), lengths)
        known = alone & (before + after > lengths)
        begin, end = torch.where(known, begin, before), torch.where(known, end, lengths - after)
        return Span(torch.where(alone, begin, whole.begin), torch.where(alone, end, lengths), known)

    # ---------------------------------------------------------------------------------- the bound
    def terms(self, batch, generator=None):
        return self.span_terms(*self.texts(batch), generator)

    def loss(self, batch, generator=None):
        texts, span = self.texts(batch)
        span = self.spans(span, generator) if self.config.spans else span
        return sum(self.span_terms(texts, span, generator).values())

    def span_terms(self, batch: Batch, span: Span, generator: Randomness = None) -> dict[str, Tensor]:
        """The two sums of (3) for -log p(span | the other tokens) of texts (`texts`), sampled at one time each:
        (B,) nats."""
        u = random.stratified(len(batch), generator, batch.tokens.device).clamp_min(TINY)
        t = u.square()
        noisy = self.corrupt(batch, t, span, generator)
        at = noisy.open | (noisy.x == self.mask)
        where = positions(at)
        values = (noisy.x == self.mask, noisy.open, noisy.target, noisy.missing, t, 2 * u)
        masks, gaps, targets, missing, times, weights = (where.of(value) for value in values)

        def insertion(logits: Tensor, i: slice) -> Tensor:
            log_rate, c, t = logits[:, self.vocabulary].double(), missing[i], times[i]
            inserted = torch.where(c > 0, c / t * (1 + t.log() + log_rate), 0.0)  # nothing, where the rate is 0, too
            return torch.where(gaps[i], weights[i] * (log_rate.exp() - inserted), 0.0)  # (3)

        def unmasking(logits: Tensor, i: slice) -> Tensor:
            log_f = logits[:, : self.vocabulary].double().log_softmax(-1).gather(-1, targets[i, None])[:, 0]
            return torch.where(masks[i], -weights[i] * self.config.unmasking / times[i] * log_f, 0.0)  # (3)

        h, size = self.read(noisy.x, t, noisy.closed, at, batch.condition), self.vocabulary + 1
        sums = (where.sum(each_position(self.network.head, h, size, f)) for f in (insertion, unmasking))
        return dict(zip(("insertion", "unmasking"), sums))


def pair(u: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
    """One of the pairs 0 <= a <= b <= `most` (B,), uniformly, from uniforms u (B,)."""
    k = (u * ((most + 1) * (most + 2) // 2)).long()
    b = (((8 * k + 1).double().sqrt() - 1) / 2).long()
    return k - b * (b + 1) // 2, b
