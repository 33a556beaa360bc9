"""Self-speculative sampling: tokens drafted together, verified one after another (Campbell et al. 2025, arXiv
2510.03929).

A pass evaluates the network once, with the first i tokens of an order revealed. It drafts the next m tokens together,
each from the network's own p. In the same evaluation a causal head (`nn.speculative`) gives each its distribution q
given the drafts before it. In their order, a draft x is

    accepted        with probability min(1, q(x) / p(x))
    else replaced   by a token of max(0, q - p), normalised, which ends the pass

so each token has the distribution q. The drafts after a replaced one are masked again. The first token of a pass has q
= p, and is always accepted.

**Distribution.** The next pass evaluates the network with more tokens revealed, so it has another q. The probability of
a text is therefore a sum over all places where passes can begin. Take the order as given. In a pass that begins after
token i, m_i tokens are drafted; the text's token j has the probabilities p_ij by the network and q_ij by the head. Let
P_i be the probability that the first i tokens are the text's and that a pass begins after them. Then P_0 = 1, and a
pass that begins after token i

    ends by replacing token j    P_j      gets  P_i prod_{i < l < j} min(p_il, q_il) max(0, q_ij - p_ij),   i < j <= i + m_i
    ends with all accepted       P_{i+m}  gets  P_i prod_{i < l <= i + m} min(p_il, q_il)

and p(x | order) = P_L. `in_order` computes it in L evaluations. A random order, the default, gives the mean over
orders, of which `OverOrders` makes a two-sided bound (`replay.weigh`, `evaluations.bracket.two_sides`).

**Options.** With `rounds` n a pass goes on after a replaced token: the drafts after it are verified again given the new
token, with the same hidden states of the network, up to n times. With as many rounds as tokens and no window there is
one pass, and a text has the head's own distribution, prod_l q(x_l | x_<l). With `window` 1 every token is the first of
a pass: the distribution of `any_order`. `cosine` 0.05 makes passes as large as the steps of a cosine schedule in 20
steps. Temperature, top-p and top-k apply to p and q.

Each pass draws the order of its masks anew. One order for all passes would give the same distribution, because what a
pass accepts does not depend on the order of the later tokens. Works with absorbing noise, and a network of p(x_0 | x_t)
that has a head (`zellige train speculative`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import TOKENS, declared, option
from ..core import maths, random
from ..core.batch import Batch
from ..core.positions import positions
from ..core.prediction import posterior
from ..core.random import Randomness
from ..methods.diffusion import Diffusion
from .fixed_order import permutation
from .guide import truncated_as
from .pairing import Distribution
from .predict import as_masks, free, hidden_at, reads_tokens
from .sampler import Exactness, Sampler, State

NAMED = ("random", "forward", "backward")  # orders
HEADLESS = "needs a causal head: train one with zellige train speculative RUN, and give its folder as `head`"


@declared
class Speculative(Sampler):
    """Tokens drafted together by the network, verified one after another by its causal head."""

    order: str | Sequence[int] = option(
        "order in which positions are drafted: random, forward, backward, or a list of positions from 0, such as 2,0,1",
        default="random",
    )
    window: int | None = option(
        "largest number of tokens drafted in a pass (default: all masks)", default=None, minimum=1, maximum=TOKENS
    )
    cosine: float | None = option(
        "draft few tokens at first and then more: each pass takes this fraction of a cosine schedule; 0.05: about 20 passes",
        default=None,
        above=0,
        maximum=1,
    )
    rounds: int = option(
        "verifications per pass; each one after the first verifies again the drafts after a replaced token",
        default=1,
        minimum=1,
        maximum=TOKENS,
    )

    name: ClassVar[str] = "speculative"
    label: ClassVar[str] = "Draft several, then verify"
    sentence: ClassVar[str] = "Tokens are drafted together and verified one after another in the same evaluation."
    exactness: ClassVar[Exactness] = "heuristic"
    samples_from: ClassVar[str] = "its passes"
    claim: ClassVar[str] = "not the model's distribution"
    needs: ClassVar[str] = "absorbing, a causal head"
    calls: ClassVar[str] = "≤ one per token"

    def __post_init__(self):
        super().__post_init__()
        if self.window is not None and self.cosine is not None:
            raise InputError("`window` and `cosine` both say how many tokens a pass drafts; give one of them")
        if self.order not in NAMED:
            permutation(self.order)

    @classmethod
    def reason_against(cls, method):
        if why := reads_tokens(method):
            return why
        return HEADLESS if method.verifier is None else None

    def distribution(self, method, steps):
        return Distribution(self.name, "its passes, verified by its head")

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A counter of the passes left, as many as tokens, most of which may evaluate nothing."""
        return torch.arange(method.shape[0], -1, -1, dtype=torch.float64)

    def init(self, method, shape, *, fixed=None, generator=None):
        if self.order not in NAMED and (count := len(permutation(self.order))) != shape[1]:
            raise InputError(f"the order has {count} positions, the text {shape[1]}; name each one once")
        return super().init(method, shape, fixed=fixed, generator=generator)

    def size(self, masks: Tensor, length: Tensor) -> Tensor:
        """Number of tokens (B,) that a pass drafts of so many masks (B,); `length` positions are not given, (B,)."""
        if self.window is not None:
            return masks.clamp_max(self.window)
        if self.cosine is None:
            return masks
        time = (masks / length.clamp_min(1)).clamp_max(1).double().acos() * 2 / math.pi  # masks = length cos(pi/2 time)
        left = (length * ((time + self.cosine).clamp_max(1) * math.pi / 2).cos()).round().long()
        return torch.minimum((masks - left).clamp_min(1), masks)

    def when(self, masks: Tensor, generator: Randomness = None) -> Tensor:
        """A number (B, L) for each position; those with smaller ones are drafted first."""
        L = masks.shape[1]
        if self.order == "random":
            return random.uniform(masks.shape, generator, masks.device)
        order = torch.arange(L, device=masks.device)
        if self.order == "backward":
            order = order.flip(0)
        elif self.order != "forward":
            order = torch.tensor(permutation(self.order), device=masks.device)
        return order.argsort().double().expand(masks.shape)

    def step(self, method: Diffusion, state, t, s, generator=None):
        return self.advance(method, state, self.when(free(method, state), generator), generator)

    def advance(self, method: Diffusion, state: State, when: Tensor, generator: Randomness = None) -> State:
        """One pass, in the order of `when` (B, L)."""
        drafting = Pass.of(self, method, state, when)
        if drafting is None:
            for _ in range(1 + 2 * self.rounds):
                random.discard(when.shape, generator)
            return state
        at, turn, size = drafting.at, drafting.turn, drafting.size
        p = drafting.draft()  # (N, K)
        x = positions(at).put(state.x, random.categorical(p, generator, at))
        final = torch.zeros_like(size)  # tokens of the pass that stay
        for _ in range(self.rounds):
            unverified = at & (turn >= final[:, None])
            if not unverified.any():
                for _ in range(2):
                    random.discard(when.shape, generator)
                continue
            draft, target, token = p[unverified[at]], drafting.target(x, unverified), x[unverified][:, None]
            ratio = target.gather(-1, token) / draft.gather(-1, token)  # (n, 1): q / p of the drafts
            accepted = random.bernoulli(ratio[:, 0].clamp_max(1), generator, unverified)
            rejected = torch.zeros_like(at).masked_scatter(unverified, ~accepted)
            first = torch.where(rejected, turn, size[:, None]).amin(-1)  # (B,): the first rejected draft
            here = rejected & (turn == first[:, None])
            residual = (target - draft).clamp_min(0)[here[unverified]]
            residual = torch.where(residual.any(-1, keepdim=True), residual, target[here[unverified]])  # rounding
            x = positions(here).put(x, random.categorical(residual, generator, here))
            final = torch.minimum(first + 1, size)
        x = torch.where(turn < final[:, None], x, state.x)
        return replace(state, x=x, calls=state.calls + at.any(-1))


@dataclass(frozen=True)
class Pass:
    """One evaluation of the network, and what its head reads of it.

    Attributes:
        at: (B, L) bool, the positions that are drafted.
        turn: (B, L) when each is, from 0; L elsewhere.
        size: (B,) how many they are.
        rows: (R,) the sequences with any.
        h: (R, L, D) hidden states at those positions, zeros elsewhere; time: (B, L).
    """

    sampler: Speculative
    method: Diffusion
    at: Tensor
    turn: Tensor
    size: Tensor
    rows: Tensor
    h: Tensor
    time: Tensor

    @classmethod
    def of(cls, sampler: Speculative, method: Diffusion, state: State, when: Tensor) -> "Pass | None":
        """Evaluate the network; None where no sequence has masks."""
        masks = free(method, state)
        turn = when.masked_fill(~masks, math.inf).argsort(dim=-1, stable=True).argsort(-1)
        size = sampler.size(masks.sum(-1), (~state.fixed).sum(-1))
        at = turn < size[:, None]
        rows = at.any(-1).nonzero()[:, 0]
        if not len(rows):
            return None
        h, time = hidden_at(method, state, at)
        h = h.new_zeros(len(rows), at.shape[1], h.shape[-1]).masked_scatter(at[rows][..., None], h)
        return cls(sampler, method, at, turn.masked_fill(~at, at.shape[1]), size, rows, h, time)

    def draft(self) -> Tensor:
        """p (N, K) float64 of the drafted positions."""
        return self._distribution(self.h[self.at[self.rows]], self.at)

    def target(self, x: Tensor, at: Tensor) -> Tensor:
        """q (N, K) float64 at some drafted positions `at` (B, L) bool, given the drafts x (B, L) before each."""
        wanted = at[self.rows].any(-1)
        rows = self.rows[wanted]
        assert self.method.verifier is not None
        h = self.method.verifier(self.h[wanted], x[rows], self.turn[rows])
        return self._distribution(h[at[rows]], at)

    def _distribution(self, h: Tensor, at: Tensor) -> Tensor:
        pred = truncated_as(self.method, as_masks(self.method, h, self.time[at]))
        return maths.normalise(posterior(pred).double())


# ---------------------------------------------------------------------------------- its likelihood
@torch.no_grad()
def in_order(sampler: Speculative, method: Diffusion, batch: Batch, when: Tensor, most: int = 256) -> Tensor:
    """log p(x | order), (B,) float64, by the recursion of the module: an evaluation for each token.

    Args:
        when: (B, L), as `Speculative.when` gives it. Given positions (`Batch.mask` False) stay.
        most: sequences of one evaluation.
    """
    x, counted, method = batch.tokens, batch.counted, sampler.truncated(method)
    B, L = x.shape
    turn = when.masked_fill(~counted, math.inf).argsort(dim=-1, stable=True).argsort(-1)
    n = counted.sum(-1)
    starts = (torch.arange(L, device=x.device) < n[:, None]).nonzero()  # (text, tokens revealed before the pass)
    both, above, sizes = (
        torch.full((B, L, L), value, dtype=torch.float64, device=x.device) for value in (-math.inf,) * 3
    )
    for row, begin in (part.unbind(-1) for part in starts.split(most)):
        masked = counted[row] & (turn[row] >= begin[:, None])
        state = State(
            torch.where(masked, method.process.mask_id, x[row]),
            ~counted[row],
            torch.zeros_like(row),
            condition=None if batch.condition is None else batch.condition[row],
        )
        drafting = Pass.of(sampler, method, state, when[row])
        assert drafting is not None
        token = x[row][drafting.at][:, None]
        p, q = (d.gather(-1, token)[:, 0] for d in (drafting.draft(), drafting.target(x[row], drafting.at)))
        which, place = drafting.at.nonzero()[:, 0], drafting.turn[drafting.at]
        both[row[which], begin[which], place] = torch.minimum(p, q).log()
        above[row[which], begin[which], place] = (q - p).clamp_min(0).log()
        sizes[row, begin, 0] = drafting.size.double()
    return _passes(both, above, sizes[..., 0].nan_to_num(neginf=0).long(), n, sampler.rounds)


def _passes(both: Tensor, above: Tensor, sizes: Tensor, n: Tensor, rounds: int) -> Tensor:
    """log P_n (B,) of the recursion.

    Args:
        both, above: (B, start, turn) log min(p, q) and log max(0, q - p) of the text's tokens.
        sizes: (B, start) tokens that are drafted; n: (B,) tokens in all.
    """
    B, L, _ = both.shape
    log_P = both.new_full((B, L + 1), -math.inf)  # a pass begins after so many tokens
    log_P[:, 0] = 0.0
    for i in range(L):
        alive = both.new_full((B, min(rounds, L)), -math.inf)  # by the number of replaced tokens
        alive[:, 0] = log_P[:, i]
        for j in range(L - i):
            inside = j < sizes[:, i]
            replaced = alive + above[:, i, j, None]
            ended = torch.where(inside, replaced[:, -1], -math.inf)
            log_P[:, i + j + 1] = torch.logaddexp(log_P[:, i + j + 1], ended)
            goes_on = torch.nn.functional.pad(replaced[:, :-1], (1, 0), value=-math.inf)
            alive = torch.where(inside[:, None], torch.logaddexp(alive + both[:, i, j, None], goes_on), alive)
        end = (i + sizes[:, i]).clamp_max(L)[:, None]
        accepted = torch.logaddexp(log_P.gather(1, end), alive.logsumexp(-1, keepdim=True))
        log_P = torch.where(sizes[:, i, None] > 0, log_P.scatter(1, end, accepted), log_P)
    return log_P.gather(1, n[:, None])[:, 0]


@dataclass(frozen=True)
class OverOrders:
    """A `replay.Path`: an order is drawn for each text, and w = p(x | order), whose mean over orders is p(x)."""

    sampler: Speculative

    @property
    def distribution(self) -> str:
        return f"speculative, {self.sampler.order} order"

    def calls(self, method):
        return method.shape[0]

    def __call__(self, method, batch, context, generator, draw):
        x, counted = batch.tokens, batch.counted
        when = self.sampler.when(counted, generator)
        if draw:
            state = self.sampler.init(method, (len(x), x.shape[1]), fixed=torch.where(counted, -1, x))
            state, inside = replace(state, condition=batch.condition), self.sampler.truncated(method)
            while free(method, state).any():
                state = self.sampler.advance(inside, state, when, generator)
            x = state.x
        log_w = in_order(self.sampler, method, Batch(x, batch.mask, None, batch.condition), when)
        return x, log_w, counted.sum(-1)
