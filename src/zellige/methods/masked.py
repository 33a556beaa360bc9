"""The family that reads its network as p(x_0 | x_t) under absorbing noise with one alpha for all tokens: MDLM, MD4, RADD.

Its bound is a weighted cross-entropy at the masked positions. Without a time input the network is an autoregressive model in any
order, whose likelihood in a given order is exact. The functions before the class serve other methods with a mask too.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import maths, random
from ..core.batch import Batch, Estimator
from ..core.prediction import Mean
from ..core.process import absorbing
from ..core.random import Randomness
from ..core.schedule import PRIOR, Schedule
from ..nn.cross_entropy import cross_entropy
from .method import Method, per_position

Form = TypeVar("Form", bound=Callable)
TOKENS = 1 << 14  # of the inputs in one network call, where an order is followed


def without_mask(method: Method, logits: Tensor) -> Tensor:
    """Logits (*, K) with no mass on the mask; themselves where every state is a token."""
    if method.process.blank is None:
        return logits
    masks = torch.arange(logits.shape[-1], device=logits.device) == method.process.blank
    return logits.masked_fill(masks, -torch.inf)


def subs(method: Method, logits: Tensor, x_t: Tensor, t: Tensor) -> Mean:
    """Logits (*, K) as p(x_0 | x_t): zero masking probability and carry-over (SUBS; MDLM, section 3.2.3)."""
    # carry-over is Mean's support, and holds already where all are masks
    supported = bool((x_t == method.process.mask).all())
    return Mean(method.process, without_mask(method, logits).softmax(-1), x_t, t, supported)


def at_masks(
    method: Method,
    batch: Batch,
    x_t: Tensor,
    t: Tensor | float | None,
    weight: Tensor | None = None,
    group: Tensor | None = None,
    at: Tensor | None = None,
) -> Tensor:
    """The sum over the masks of each row of -log mu(x_0), times `weight` (B,) or (B, L): (B,) nats.

    With `group` (B, L), which of its row's groups a position is in, the sum over each of them: (B, groups). The head is
    computed at the masks only, or at other positions `at` (B, L) bool.
    """
    masked = x_t == method.process.mask if at is None else at
    h = method._features(x_t, t, batch, method.clean(batch))[masked]
    row = masked.nonzero()[:, 0]
    each = None
    if weight is not None:
        each = weight[masked if weight.ndim == 2 else row].to(h.dtype if h.dtype == torch.float64 else torch.float32)
    ce = cross_entropy(method.network, h, batch.tokens[masked], weight=each, exclude=method.process.mask).double()
    if group is None:
        return torch.zeros(len(x_t), dtype=torch.float64, device=x_t.device).index_add(0, row, ce)
    total = torch.zeros(len(x_t), int(group.max()) + 1, dtype=torch.float64, device=x_t.device)
    return total.index_put((row, group[masked]), ce, accumulate=True)


def first_jump(method: Method, batch: Batch) -> Tensor:
    """The jump PRIOR -> t = 1: alpha_1 times the cross-entropy of the input that is all masks. (B,) nats."""
    x, alpha_1 = batch.tokens, method.process.schedule.alpha_1
    if alpha_1 == 0.0:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    if any(part is not None for part in (batch.mask, batch.segments, batch.condition, method.clean(batch))):
        x_t = method.process.sample_prior(x.shape)
        return alpha_1 * at_masks(method, batch, x_t if batch.mask is None else torch.where(batch.mask, x_t, x), PRIOR)
    h = method._features(method.process.sample_prior(x[:1].shape), PRIOR)[0]
    logits = without_mask(method, method._logits(h))  # one row serves all: (L, K)
    place = torch.arange(x.shape[1], device=x.device)
    given = logits[place, x]  # not of logits expanded: its gradient would be (B, L, K)
    return alpha_1 * (logits.logsumexp(-1) - given).double().sum(-1)


def reveal(schedule: Schedule, t: Tensor | float, s: Tensor | float) -> Tensor:
    """P(a mask at t is a token at s): (alpha_s - alpha_t)/(1 - alpha_t), (*)."""
    alpha_t, alpha_s = schedule.alpha(t)[..., 0], schedule.alpha(s)[..., 0]
    return (alpha_s - alpha_t) / (1 - alpha_t)


def spread(n: Tensor, generator: Randomness = None) -> Tensor:
    """A uniform in [0, 1) for each group of each row, n (B, G) positions in each: (B, G) float64.

    Evenly spread over the rows, and over the groups of each row that have a position.
    """
    u = random.stratified(len(n), generator, n.device)[:, None]
    groups = (n > 0).sum(-1, keepdim=True).clamp_min(1)
    return (u + torch.arange(n.shape[1], dtype=u.dtype, device=n.device) / groups) % 1.0


def places(order: Tensor, group: Tensor) -> Tensor:
    """The place of each position in its group when that is sorted by `order`, (B, L), (B, L) -> (B, L) long."""
    sorted_by = lambda values: values.argsort(-1).argsort(-1)  # noqa: E731
    first = F.pad(group[:, 1:] != group[:, :-1], (1, 0), value=True)
    start = torch.where(first, torch.arange(group.shape[1], device=group.device), 0).cummax(-1).values
    return sorted_by(group * group.shape[1] + sorted_by(order)) - start


def of_mean(closed: Form) -> Form:
    """A closed form of `Masked` for a network that is read as a mean; one that is read as a score has `Method`'s definition."""
    definition = getattr(Method, closed.__name__)

    @wraps(closed)
    def either(self, *given, **named):
        return (closed if self.predicts == "mean" else definition)(self, *given, **named)

    return either  # pyright: ignore[reportReturnType]


class Masked(Method):
    """Absorbing noise, one alpha for all tokens, the network read as p(x_0 | x_t) through SUBS (MDLM, section 3.2.3).

    At a mask the generic bounds become weighted cross-entropies (MDLM eq. 11 and 8, MD4 eq. 5 and section 3):

        continuous          -alpha'/(1 - alpha) * -log mu(x_0)                      `diffusion`
        a step t -> s       (alpha_s - alpha_t)/(1 - alpha_t) * -log mu(x_0)        `step`; jumps are steps too

    A network that does not see the time admits a better draw. Given how many positions are masked, which ones is uniform,
    so k is drawn first, stratified over 1..L, and exactly k positions are masked; the weight of k is the integral of the
    weight against the law of k (a weight 1/t would have infinite variance):

        (1/k) P(m_0 < the k-th smallest of L uniforms < m_1),   m = 1 - alpha at the ends   (RADD's lambda-DCE by counts)

    In a method of blocks each block has a time, or a number of masks, of its own: `groups` says which positions share one.
    Where it `predicts` a score instead (BD3-LM with SEDD inside) these closed forms stand back (`of_mean`).

    Args:
        schedule: one alpha for all tokens.
        mask: the mask's state; the last one, V, unless said.
    The others are those of `Method`.
    """

    def __init__(
        self,
        network: Any,
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

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 1

    def read(self, logits, x_t, t):
        return subs(self, logits, x_t, t)

    @property
    def by_counts(self):
        return self.predicts == "mean" and not (self.steps or self.time_conditioned)

    def groups(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Positions that share a time, or a number of masks: all of a row, but in a method of blocks.

        Which group a position is in (B, L), and how many positions that count each group has (B, G); groups follow one another.
        """
        x = batch.tokens
        n = x.new_full((len(x), 1), x.shape[1]) if batch.mask is None else batch.mask.sum(-1, keepdim=True)
        return torch.zeros_like(x), n

    def cross_entropy(
        self, batch: Batch, x_t: Tensor, t: Tensor | float | None, weight: Tensor | None = None
    ) -> Tensor:
        """The sum over the masks of each row of -log mu(x_0), times `weight` (B,) or (B, L): (B,) nats."""
        return at_masks(self, batch, x_t, t, weight)

    # ---------------------------------------------------------------------------------- the closed forms
    @of_mean
    def diffusion(self, batch, x_t, t):
        return self.cross_entropy(batch, x_t, per_position(t), self.process.schedule.weight(t)[..., 0])

    def reveal(self, t: Tensor | float, s: Tensor | float) -> Tensor:
        """P(a mask at t is a token at s): (alpha_s - alpha_t)/(1 - alpha_t), (*)."""
        return reveal(self.process.schedule, t, s)

    @of_mean
    def step(self, batch, x_t, t, s):
        return self.cross_entropy(batch, x_t, per_position(t), self.reveal(t, s))

    def draw_times(self, batch, generator=None):
        group, n = self.groups(batch)
        t = 1 - spread(n, generator)
        return t[:, 0] if t.shape[1] == 1 else t.gather(1, group)

    def terms(self, batch, generator=None):
        if not self.by_counts:
            return super().terms(batch, generator)
        group, n, k, x_t = self.mask_some(batch, generator)
        ce = at_masks(self, batch, x_t, None, group=group)
        diffusion, reconstruction = self._count_weights(n, k)
        return {
            "diffusion": (n * diffusion * ce).sum(-1),
            "reconstruction": (n * reconstruction * ce).sum(-1),
            "prior": self._prior(batch, generator),
        }

    def loss(self, batch, generator=None):
        if not self.by_counts:
            return self.bound(batch, generator)
        # All three terms are weights on the cross-entropy with k masks: the jump from PRIOR is one more weight on k = n.
        group, n, k, x_t = self.mask_some(batch, generator)
        diffusion, reconstruction = self._count_weights(n, k)
        prior = torch.where(k == n, self.process.schedule.alpha_1, 0.0)
        return self.cross_entropy(batch, x_t, None, (n * (diffusion + reconstruction + prior)).gather(1, group))

    # ---------------------------------------------------------------------------------- orders
    @of_mean
    def estimators(self):
        """For a network that does not see the time, p(x) in one order, and its average over orders.

        `forward` and `backward` are exact: -log p of the autoregressive model of that order. `random` and `any_order` are draws
        of E over orders of -log p(x in that order), which by Jensen's inequality bounds -log of the model that draws its
        order first, that of first_hitting and any_order, from above; one order takes L network calls, `any_order` one.
        """
        if self.time_conditioned:
            return {}
        place = lambda batch: torch.arange(batch.tokens.shape[1], device=batch.tokens.device)  # noqa: E731
        draw = lambda batch, generator: random.uniform(batch.tokens.shape, generator, batch.tokens.device)  # noqa: E731
        one = "one token at a time, "
        return {
            "any_order": Estimator(self._any_order, "any order, exactly k masks", strata="numbers of masks"),
            "forward": Estimator(lambda b, _=None: self.in_order(b, place(b)), one + "left to right", exact=True),
            "backward": Estimator(lambda b, _=None: self.in_order(b, -place(b)), one + "right to left", exact=True),
            "random": Estimator(lambda b, g=None: self.in_order(b, draw(b, g)), one + "another order for each draw"),
        }

    def in_order(self, batch: Batch, when: Tensor) -> Tensor:
        """-log p(x) token by token, exactly: sum_i -log p(x_i | all x_j that come before), (B,) nats (RADD, section 3.3).

        For a network that does not see the time. In a method of blocks, earlier blocks come first, and `when` is the order
        within each. The inputs of several tokens and rows share a network call, and the head is computed at one position of
        each block.

        Args:
            when: (B, L) or (L,) distinct numbers; a position comes before those with larger ones. Given positions come first.
        """
        x, counted, device = batch.tokens, batch.counted, batch.tokens.device
        group, n = self.groups(batch)
        place = places(when.expand(x.shape).double().masked_fill(~counted, torch.inf), group)
        total = torch.zeros(len(x), dtype=torch.float64, device=device)
        turns = torch.arange(int(n.max()), device=device) < n.amax(-1, keepdim=True)  # (B, largest block)
        for part in turns.nonzero().split(max(len(x), TOKENS // x.shape[1])):
            row, turn = part[:, 0], part[:, 1:]
            here, later = batch.take(row), counted[row] & (place[row] >= turn)
            at = later & (place[row] == turn)
            x_t = here.tokens.masked_fill(later, self.mask)
            h = self._features(x_t, None, here, self.clean(here))[at]
            nll = cross_entropy(self.network, h, here.tokens[at], exclude=self.mask)
            total = total.index_add(0, row[at.nonzero()[:, 0]], nll.double())
        return total

    def _any_order(self, batch: Batch, generator: Randomness = None) -> Tensor:
        group, n, k, x_t = self.mask_some(batch, generator)
        return self.cross_entropy(batch, x_t, None, (n / k).gather(1, group))

    # ---------------------------------------------------------------------------------- exactly k masks
    def mask_some(self, batch: Batch, generator: Randomness = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw k in 1..n for each group, stratified, and mask exactly k of its n positions.

        The group of each position (B, L), n and k (B, G), and x_t (B, L); k is 1 where n is 0.
        """
        group, n = self.groups(batch)
        order = random.uniform(batch.tokens.shape, generator, batch.tokens.device)
        if batch.mask is not None:
            order = order.masked_fill(~batch.mask, 2.0)  # given positions come last
        k = 1 + (spread(n, generator) * n).long().clamp_max(n - 1)
        k = torch.where(n > 0, k, 0)
        x_t = batch.tokens.masked_fill(places(order, group) < k.gather(1, group), self.mask)
        return group, n, k.clamp_min(1), x_t

    def _count_weights(self, n: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """The weight that diffusion and reconstruction give to the cross-entropy with k masks of n: two (*) float64."""
        schedule = self.process.schedule
        m_0, m_1 = 1 - schedule.alpha_0, 1 - schedule.alpha_1
        diffusion = (maths.binomial_tail(n, k, m_1) - maths.binomial_tail(n, k, m_0)) / k
        return diffusion, maths.binomial_pmf(n, k, m_0) if m_0 > 0 else torch.zeros_like(diffusion)

    @of_mean
    def _prior(self, batch, generator=None):
        return first_jump(self, batch)
