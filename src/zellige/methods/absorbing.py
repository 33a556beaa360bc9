"""The family of absorbing noise: a noised token becomes the mask, so only masks have a cost and the head is evaluated
only there.

`Masked` (MDLM, MD4, RADD, BD3-LM) adds the closed forms of one alpha for all tokens: its network is p(x_0 | x_t), its
bound a weighted cross-entropy at the masked positions, and without a time input it is an autoregressive model in any
order, whose likelihood in a given order is exact. GenMD4 has an alpha for each token, and D3PM's matrices absorb if its
`process` does.

Shapes: B sequences of L tokens, K states, the mask among them; G groups of positions in each sequence, which share a
time or a number of masks: one, or the blocks of BD3-LM.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..base.errors import InputError
from ..base.waiting import at_hand
from ..core import maths, random
from ..core.batch import Batch, Estimator
from ..core.positions import positions
from ..core.prediction import Mean, restricted
from ..core.process import absorbing
from ..core.random import Middle, Randomness
from ..core.schedule import PRIOR, Schedule
from ..nn.cross_entropy import cross_entropy
from . import diffusion
from .diffusion import Diffusion, per_position, places


def without_mask(vocabulary: int, mask: int | None) -> tuple[int, int | None]:
    """Number of tokens besides the mask, and the mask's id if it is one of the tokenizer's,
    from the number of all tokens."""
    if mask is None:
        return vocabulary, None
    if not 0 <= mask < vocabulary:
        raise InputError(f"`mask` is {mask}; it must be a token of 0 to {vocabulary - 1:,}")
    return vocabulary - 1, mask


class Absorbing(Diffusion):
    """Absorbing noise; the network parameterizes p(x_0 | x_t) by SUBS (MDLM, section 3.2.3) unless a subclass differs.

    SUBS is zero masking, no probability on the mask, and carry-over, all of it on a visible token. Samplers get both by
    `read`. A loss needs no prediction: in `cross_entropy` the mask has no logit, and a visible token costs nothing.

    A subclass may have other noise too, without an absorbing state (`process.mask` is None): it then overrides `read`
    and `cost`.
    """

    # mean of 1 - alpha over the times that are drawn, evenly or in the middle; None unless all tokens have one alpha
    mean_masked: float | None = None

    def read(self, logits, x_t, t):
        # MDLM section 3.2.3; carry-over holds already where all are masks
        make = restricted if not at_hand(x_t) or bool((x_t != self.process.mask).any()) else Mean
        return make(self.process, self.process.without_mask(logits).softmax(-1), x_t, t)

    def reveal_probability(self, t: Tensor | float, s: Tensor | float) -> Tensor:
        """P(a mask at t is a token at s), the same for all tokens: (*)."""
        return self.process.schedule.reveal_probability(t, s)[..., 0]

    def cross_entropy(
        self,
        batch: Batch,
        x_t: Tensor,
        t: Tensor | float | None,
        weight: Tensor | None = None,
        group: Tensor | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """Sum of -log mu(x_0) over the masks of each sequence, times `weight` (B,) or (B, L): (B,) nats.

        With `group` (B, L), the group of each position, the sum over each group: (B, groups). The head is evaluated at
        the masks only, or at other positions `at` (B, L) bool.
        """
        mask = self.process.mask
        if at is None:
            where = positions(x_t == mask, self._max_positions(batch), batch.spare)  # N of (B, L)
        else:
            where = positions(at)
        h = self.hidden(x_t, t, batch, self.clean(batch), where)  # (N, D)
        weights = where.weights(weight)  # (N,)
        weights = None if weights is None else weights.to(h.dtype if h.dtype == torch.float64 else torch.float32)
        ce = cross_entropy(self.network, h, where.of(batch.tokens), weight=weights, exclude=mask).double()  # (N,)
        if group is None:
            return where.sum(ce, weighted=True)
        total = torch.zeros(len(x_t), int(group.max()) + 1, dtype=torch.float64, device=x_t.device)
        return total.index_put((where.row, where.of(group)), ce, accumulate=True)

    def _max_positions(self, batch):
        # numbers of masks and times are spread evenly over the rows, so that their sum is within L of its mean, and
        # one more for each block; masks drawn at a time deviate from that by at most sqrt(B L)/2, and six times as
        # much has a chance of 1e-9
        if self.mean_masked is None:
            return None
        B, L = batch.tokens.shape
        blocks = -(-L // (self.block or L))
        return math.ceil(B * L * max(self.mean_masked, 0.5)) + L + B * blocks + math.ceil(3 * math.sqrt(B * L))

    def _max_examples(self, batch):
        if self.mean_masked is None:
            return None
        B, L = batch.tokens.shape
        p = 1 - self.process.schedule.clean_end**L
        return math.ceil(B * p + 6 * math.sqrt(B * p * (1 - p))) + 6

    def prior_term(self, batch, generator=None):
        """The jump PRIOR -> t = 1: alpha_1 times the cross-entropy of the input that is all masks, (B,) nats.

        MDLM eq. 8 from alpha = 0 to alpha_1.
        """
        if self.process.mask is None:
            return super().prior_term(batch, generator)
        x, alpha_1 = batch.tokens, self.process.schedule.alpha_1
        if alpha_1 == 0.0:
            return torch.zeros(len(x), dtype=torch.float64, device=x.device)
        x_t = self.process.sample_prior(x.shape)
        if any(field is not None for field in (batch.mask, batch.segments, batch.condition, self.clean(batch))):
            x_t = x_t if batch.mask is None else torch.where(batch.mask, x_t, x)
            return alpha_1 * self.cross_entropy(batch, x_t, PRIOR, at=batch.counted)  # MDLM eq. 8
        logits = self.process.without_mask(self.logits(self.hidden(x_t[:1], PRIOR)[0]))  # one row serves all: (L, K)
        position = torch.arange(x.shape[1], device=x.device)  # (L,)
        at_x_0 = logits[position, x]  # not of logits expanded: its gradient would be (B, L, K)
        return alpha_1 * (logits.logsumexp(-1) - at_x_0).double().sum(-1)  # MDLM eq. 8


TOKENS = 1 << 14  # of the inputs in one network evaluation, for a likelihood in an order


class Masked(Absorbing):
    """Absorbing noise with one alpha for all tokens; the network parameterizes p(x_0 | x_t) by SUBS
    (MDLM, section 3.2.3).

    At a mask the generic bounds become weighted cross-entropies (MDLM eq. 11 and 8, MD4 eq. 5 and section 3):

        continuous          -alpha'/(1 - alpha) * -log mu(x_0)                      `continuous_bound`
        a step t -> s       (alpha_s - alpha_t)/(1 - alpha_t) * -log mu(x_0)        `discrete_bound`, of jumps too

    A network without time conditioning admits an estimate of less variance. Given the number of masked positions, the
    positions are uniform. So k is sampled first, stratified over 1..L, and exactly k positions are masked; the weight
    of k is the integral of the weight against the distribution of k (a weight 1/t would have infinite variance):

        (1/k) [P(Bin(L, m_1) >= k) - P(Bin(L, m_0) >= k)],   m = 1 - alpha at the ends   (RADD's lambda-DCE by counts)

    With the terms of both ends the weights add up to 1/k, for every schedule. Training keeps the published ends, each
    one jump (`jump_terms`): cheaper for a time-conditioned network, and only another weight of the ends.

    In a method of blocks each block has its own time or number of masks: `groups` defines which positions share one.

    Args:
        schedule: one alpha for all tokens.
        mask: the mask's state; by default the last one, V.
    The others are those of `Method`.
    """

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Any,
        schedule: Schedule,
        timed: bool,
        steps: int = 0,
        mask: int | None = None,
    ):
        mask = vocabulary if mask is None else mask
        super().__init__(network, vocabulary, shape, config, absorbing(vocabulary + 1, schedule, mask), timed, steps)
        self.mask = mask
        self.mean_masked = self._mean_masked(0.0, 1.0)

    def _mean_masked(self, low: float, high: float) -> float | None:
        """Mean of 1 - alpha between two times, or over the steps of discrete time; in the middle, if that is more."""
        even = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
        u = torch.stack((even, Middle(0).place(even)))
        times = self.grid(self.steps)[(u * self.steps).long()] if self.steps else low + (high - low) * u
        noise = 1 - self.process.schedule.alpha(times)
        return None if noise.is_meta else float(noise.mean((1, 2)).max())

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 1

    @property
    def draws_mask_counts(self):
        return not (self.steps or self.time_conditioned)

    # ---------------------------------------------------------------------------------- from t, or k, to the loss
    def loss(self, batch, generator=None):
        """Training loss, (B,) nats: at k masks without a time input, else at a time t; of T steps, one of them."""
        if self.steps:
            return super().loss(batch, generator)
        if self.draws_mask_counts:
            group, n, k, x_t = self.mask_exactly_k(batch, generator)  # n, k (B, G); group, x_t (B, L)
            # (B, G); n, since k is one of n numbers, drawn evenly
            weight = n * sum(self._count_weights(n, k, jumps=True).values())
            return self.cross_entropy(batch, x_t, None, weight.gather(1, group))  # RADD eq. 3.7, by numbers of masks
        t = self.draw_times(batch, generator)  # (B,), of blocks (B, L)
        x_t = self.corrupt(batch, per_position(t), generator)  # (B, L)
        value = self.continuous_bound(batch, x_t, t)  # (B,)
        return value + diffusion.last_jump(self, batch, generator) + self.prior_term(batch, generator)

    def continuous_bound(self, batch, x_t, t, weight=None):
        rate = self.process.schedule.weight(t)[..., 0]  # -alpha'/(1 - alpha)
        rate = rate if weight is None else per_position(rate) * weight
        return self.cross_entropy(batch, x_t, per_position(t), rate)  # MDLM eq. 11

    def discrete_bound(self, batch, x_t, t, s, weight=None):
        reveal = self.reveal_probability(t, s)  # (alpha_s - alpha_t)/(1 - alpha_t)
        weight = reveal if weight is None else per_position(reveal) * weight
        return self.cross_entropy(batch, x_t, per_position(t), weight)  # MDLM eq. 8; MD4 section 3

    def _count_weights(self, n: Tensor, k: Tensor, jumps: bool) -> dict[str, Tensor]:
        """The weight of the cross-entropy with k masks of n in each term, (*); with a jump at each end, or not."""
        schedule = self.process.schedule
        m_0, m_1 = 1 - schedule.clean_end, 1 - schedule.alpha_1
        most = self.block or self.shape[0]
        before, after = (maths.binomial_tail(n, k, m, most) for m in (m_1, m_0))  # P(k or more masks)
        # MDLM eq. 11 given k, its weight integrated against the distribution of k
        if not jumps:
            return {"diffusion": (before - after) / k, "reconstruction": after / k, "prior": (1 - before) / k}
        last = maths.binomial_pmf(n, k, m_0) if m_0 > 0 else torch.zeros_like(after)
        prior = torch.where(k == n, schedule.alpha_1, 0.0)  # one more weight where all are masks
        return {"diffusion": (before - after) / k, "reconstruction": last, "prior": prior}

    # ---------------------------------------------------------------------------------- the terms
    def terms(self, batch, generator=None):
        if self.draws_mask_counts:
            return self._terms_by_count(batch, generator, jumps=False)
        return super().terms(batch, generator)

    def jump_terms(self, batch, generator=None):
        if self.draws_mask_counts:
            return self._terms_by_count(batch, generator, jumps=True)
        return super().jump_terms(batch, generator)

    def _terms_by_count(self, batch: Batch, generator: Randomness, jumps: bool) -> dict[str, Tensor]:
        group, n, k, x_t = self.mask_exactly_k(batch, generator)
        ce = self.cross_entropy(batch, x_t, None, group=group)  # RADD eq. 3.7, by numbers of masks: (B, G)
        return {name: (n * weight * ce).sum(-1) for name, weight in self._count_weights(n, k, jumps).items()}

    # ---------------------------------------------------------------------------------- orders
    def estimators(self):
        """Likelihoods in one order and averaged over orders, for a network without time conditioning.

        `forward` and `backward` are exact: -log p of the autoregressive model of that order. `random` and `any_order`
        sample the mean over orders of -log p(x in that order). By Jensen's inequality that is an upper bound for the
        model that samples its order first, the model of first_hitting and any_order. One order takes L network
        evaluations, `any_order` one.
        """
        if self.time_conditioned:
            return {}

        def along(batch: Batch, direction: int) -> Tensor:
            return self.in_order(batch, direction * torch.arange(batch.tokens.shape[1], device=batch.tokens.device))

        def at_random(batch: Batch, generator: Randomness = None) -> Tensor:
            return self.in_order(batch, random.uniform(batch.tokens.shape, generator, batch.tokens.device))

        prefix = "one token at a time, "
        return {
            "any_order": Estimator(self._any_order, "any order, exactly k masks", strata="numbers of masks"),
            "forward": Estimator(lambda batch, _=None: along(batch, 1), prefix + "left to right", exact=True),
            "backward": Estimator(lambda batch, _=None: along(batch, -1), prefix + "right to left", exact=True),
            "random": Estimator(at_random, prefix + "another order for each draw"),
        }

    def in_order(self, batch: Batch, when: Tensor) -> Tensor:
        """-log p(x) token by token, exactly: sum_i -log p(x_i | all x_j that come before), (B,) nats
        (RADD, section 3.3).

        For a network without time conditioning. In a method of blocks, earlier blocks come first, and `when` is the
        order within each. The inputs of several tokens and sequences share a network evaluation, and the head is
        evaluated at one position of each block.

        Args:
            when: (B, L) or (L,) distinct numbers; a position comes before those with larger ones. Given positions come
                first.
        """
        return self._in_order(batch, when, batch.tokens)[0].sum(-1)

    @property
    def reads_forward(self):
        return not self.time_conditioned

    def left_to_right(self, batch, *targets):
        if self.time_conditioned:
            return super().left_to_right(batch, *targets)
        L = batch.tokens.shape[1]
        more = (0, -L % (self.block or L))  # the rest of the last block, masked in all turns
        mask = None if batch.mask is None else pad(batch.mask, more, value=True)
        whole = replace(batch, tokens=pad(batch.tokens, more), mask=mask)
        return self._in_order(whole, torch.arange(L + more[1], device=batch.tokens.device), *targets)

    def _in_order(self, batch: Batch, when: Tensor, *targets: Tensor) -> Tensor:
        """-log p(target_i | all x_j that come before) at the positions of n targets (B, L), 0 where a token is given:
        (n, B, L) nats. The batch may be longer."""
        x, counted, L = batch.tokens, batch.counted, targets[0].shape[1]
        group, _ = self.groups(batch)  # (B, L)
        position = places(when.expand(x.shape).double().masked_fill(~counted, torch.inf), group)
        nats = torch.zeros(len(targets), len(x), L, dtype=torch.float64, device=x.device)
        last = position.masked_fill(~counted, -1)[:, :L].amax(-1, keepdim=True)  # (B, 1): its last turn
        turns = torch.arange(int(last.max()) + 1, device=x.device) <= last  # (B, largest block)
        for turn_chunk in turns.nonzero().split(max(len(x), TOKENS // x.shape[1])):
            row, turn = turn_chunk[:, 0], turn_chunk[:, 1:]
            batch_part, later = batch.take(row), counted[row] & (position[row] >= turn)
            at = (later & (position[row] == turn))[:, :L]  # (R, L): the token whose turn it is
            x_t = batch_part.tokens.masked_fill(later, self.mask)
            h = self.hidden(x_t, None, batch_part, self.clean(batch_part))[:, :L][at]  # (N, D)
            part, column = at.nonzero().unbind(-1)
            for number, target in enumerate(targets):  # RADD section 3.3
                nll = cross_entropy(self.network, h, target[row[part], column], exclude=self.mask)  # (N,)
                nats[number, row[part], column] = nll.double()
        return nats

    def terms_of_steps(self, batch: Batch, times: Tensor, generator: Randomness = None) -> dict[str, Tensor]:
        """The bound of the model that steps through `times` (n + 1,) by numbers of masks, for a network without time
        conditioning: (B,) nats.

        k is sampled as for the bound itself, so with one seed the network is evaluated at the same inputs for any
        times; its weight is the sum over the steps t -> s of P(a mask is revealed) P(k of the n positions are masked at
        t), both endpoint steps included.
        """
        group, n, k, x_t = self.mask_exactly_k(batch, generator)
        times = times.to(n.device)
        m = 1 - self.process.schedule.alpha(times[:-1])[..., 0]
        reveal = self.reveal_probability(times[:-1], times[1:])
        weight = (reveal * maths.binomial_pmf(n[..., None], k[..., None], m)).sum(-1)  # MDLM eq. 8
        return {"diffusion": (n * weight * self.cross_entropy(batch, x_t, None, group=group)).sum(-1)}

    def _any_order(self, batch: Batch, generator: Randomness = None) -> Tensor:
        group, n, k, x_t = self.mask_exactly_k(batch, generator)
        return self.cross_entropy(batch, x_t, None, (n / k).gather(1, group))  # RADD eq. 3.7
