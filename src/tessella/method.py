"""A method: a network, a process, and what they mean together.

`Method` says what trainers, evaluators and samplers may ask. A method of a paper is one file in `methods/`; it gives
`predict` and, only where its paper differs, `corrupt`, `terms`, `loss` and `estimators`. `Masked` is the family that reads its
network as p(x_0 | x_t) under absorbing noise with one alpha for all tokens (MDLM, MD4): its bound is a weighted
cross-entropy at the masked positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from . import bound, maths
from .maths import Randomness
from .nn.cross_entropy import cross_entropy
from .prediction import Mean, Prediction, truth
from .process import Process, absorbing
from .schedule import CLEAN, PRIOR, Schedule


@dataclass(frozen=True)
class Batch:
    """What data gives and losses take.

    Attributes:
        tokens: (B, L) long.
        mask: (B, L) bool or None; False where a token is given (padding): it is never noised and never counted.
        segments: (B, L) long or None; which packed document a position belongs to.
        condition: labels or anything else that the network takes.
    """

    tokens: Tensor
    mask: Tensor | None = None
    segments: Tensor | None = None
    condition: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        fields = (self.tokens, self.mask, self.segments, self.condition)
        return Batch(*[None if f is None else f.to(device, non_blocking=True) for f in fields])  # pyright: ignore

    def __len__(self) -> int:
        return len(self.tokens)


class Network(Protocol):
    """Hidden states and head apart, so that the head is paid only where it is read."""

    def features(
        self, x: Tensor, time: Tensor | None = None, *, segments: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """(B, L) tokens, time (B,) or (B, L) -> (B, L, D)."""
        ...

    def head(self, h: Tensor) -> Tensor:
        """(*, D) -> (*, K) logits."""
        ...


class NoBound(TypeError):
    """The method defines no likelihood bound."""


class Method(nn.Module):
    """One paper: a network read through a parameterization, on a process.

    Class attributes:
        name: how the command line calls it.
        Config: a frozen dataclass with the method's own choices.
        predicts: what the network gives: "mean", "leave_one_out" or "score".
        loss_is_bound: whether `loss` is a draw of `bound` (its unit is then shown in training).
    """

    name: ClassVar[str]
    Config: ClassVar[type]
    predicts: ClassVar[str] = "mean"
    loss_is_bound: ClassVar[bool] = True

    network: Any
    process: Process
    shape: tuple[int, ...]
    vocabulary: int
    config: Any

    # ---------------------------------------------------------------------------------- how it is made
    @classmethod
    def states(cls, vocabulary: int, config: Any) -> int:
        """K, the number of states of the process: what the network's head must give."""
        raise NotImplementedError

    @classmethod
    def timed(cls, config: Any) -> bool:
        """Whether the network takes a time."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------- what a paper says
    def predict(
        self,
        x_t: Tensor,
        t: Tensor | float,
        *,
        at: Tensor | None = None,
        condition: Tensor | None = None,
        context: Any = None,
        segments: Tensor | None = None,
    ) -> Prediction:
        """Ask the network about x_t (B, L) at times t (broadcast to (B, L)).

        Args:
            at: (B, L) bool; the prediction then has the leading shape (N,) of the positions where it is True, and the
                head is computed there only.
        """
        raise NotImplementedError

    def corrupt(self, batch: Batch, t: Tensor | float, generator: Randomness = None) -> Tensor:
        """x_t ~ q(. | x_0), (B, L); given positions stay clean."""
        t = torch.as_tensor(t, dtype=torch.float64, device=batch.tokens.device).expand(batch.tokens.shape)
        if batch.mask is not None:
            t = torch.where(batch.mask, t, CLEAN)
        return self.process.sample(batch.tokens, t, generator)

    def terms(self, batch: Batch, generator: Randomness = None) -> dict[str, Tensor]:
        """One unbiased draw of each term of an upper bound on -log p(x_0): (B,) nats, float64.

        Keys: "diffusion", "reconstruction", "prior". Times are stratified over the rows. Here by the generic bounds; a
        method may give a closed form.
        """
        B, L = batch.tokens.shape
        counted = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask

        def jump(t: float, s: float) -> Tensor:
            x_t = self.corrupt(batch, t, generator)
            time = torch.full((B, L), t, dtype=torch.float64, device=x_t.device)
            return self._generic(batch, x_t, time, s, counted)

        t = (1 - maths.stratified(B, generator, batch.tokens.device))[:, None].expand(B, L)
        x_t = self.corrupt(batch, t, generator)
        start = self.process.start
        prior = (bound.prior(self.process, batch.tokens, start) * counted).sum(-1)
        return {
            "diffusion": self._generic(batch, x_t, t, None, counted),
            "reconstruction": jump(0.0, CLEAN),
            "prior": prior + jump(PRIOR, 1.0) if start == PRIOR else prior,
        }

    def _generic(self, batch: Batch, x_t: Tensor, t: Tensor, s: float | None, counted: Tensor) -> Tensor:
        """The continuous bound at t, or the discrete one of the step t -> s, summed over the counted positions."""
        pred = self.predict(x_t, t, condition=batch.condition, segments=batch.segments)
        target = truth(self.process, batch.tokens, x_t, t)
        value = bound.continuous(target, pred) if s is None else bound.discrete(target, pred, s)
        return (value * counted).sum(-1)

    def bound(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """One unbiased draw of an upper bound on -log p(x_0), all its terms: (B,) nats."""
        return torch.stack(list(self.terms(batch, generator).values())).sum(0)

    def loss(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """What training minimises: (B,) nats, summed over the sequence; the bound unless the paper differs."""
        return self.bound(batch, generator)

    def estimators(self) -> dict[str, Callable[[Batch, Randomness], Tensor]]:
        """Other likelihoods that the method admits, by name; each gives (B,) nats."""
        return {}


class Masked(Method):
    """Absorbing noise, one alpha for all tokens, the network read as p(x_0 | x_t) through SUBS (MDLM, section 3.2.3).

    At a mask the generic bounds become weighted cross-entropies (MDLM eq. 10, MD4 eq. 4):

        continuous          -alpha'/(1 - alpha) * -log mu(x_0)                      `diffusion`
        a step t -> s       (alpha_s - alpha_t)/(1 - alpha_t) * -log mu(x_0)        `step`; jumps are steps too

    A network that does not see the time admits a better draw. Given how many positions are masked, which ones is uniform,
    so k is drawn first, stratified over 1..L, and exactly k positions are masked; the weight of k is the integral of the
    weight against the law of k (a weight 1/t would have infinite variance):

        (1/k) P(m_0 < the k-th smallest of L uniforms < m_1),   m = 1 - alpha at the ends   (RADD's lambda-DCE by counts)

    Args:
        network: features and head (see `Network`); K = vocabulary + 1 logits, the mask last.
        vocabulary: V, the number of data tokens.
        shape: (L,).
        schedule: one alpha for all tokens.
        timed: whether the network takes a time.
        steps: 0 for continuous time; T for a T-step model on `grid(T)`.
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
        super().__init__()
        self.network, self.vocabulary, self.shape, self.config = network, vocabulary, tuple(shape), config
        self.mask = vocabulary if mask is None else mask
        self.process = absorbing(vocabulary + 1, schedule, self.mask)
        self.time_conditioned, self.steps = timed, steps

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 1

    def network_time(self, t: Tensor) -> Tensor:
        """What the network is told at time t in [0, 1]; a method that is conditioned on time says it."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------- asking the network
    def _features(self, x: Tensor, t: Tensor | float | None, batch: Batch | None = None) -> Tensor:
        time = None
        if self.time_conditioned:
            t = torch.as_tensor(t, dtype=torch.float64, device=x.device)
            t = (
                t.amax(-1) if t.ndim == 2 else t
            )  # given positions are CLEAN; the network is told the time of the others
            time = self.network_time(t.expand(len(x)).clamp(0.0, 1.0))
        if batch is None or (batch.segments is None and batch.condition is None):
            return self.network.features(x, time)
        return self.network.features(x, time, segments=batch.segments, condition=batch.condition)

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        h = self._features(x_t, t, Batch(x_t, None, segments, condition))
        t = torch.as_tensor(t, dtype=torch.float64, device=x_t.device).expand(x_t.shape)
        if at is not None:
            h, x_t, t = h[at], x_t[at], t[at]
        logits = self._no_mask(self.network.head(h))  # zero masking probability; carry-over is Mean's support
        supported = at is not None and bool((x_t == self.mask).all())
        return Mean(self.process, logits.softmax(-1), x_t, t, supported)

    def _no_mask(self, logits: Tensor) -> Tensor:
        """The logits, at least float32, with no mass on the mask."""
        masks = torch.arange(logits.shape[-1], device=logits.device) == self.mask
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).masked_fill(masks, -torch.inf)

    def cross_entropy(
        self, batch: Batch, x_t: Tensor, t: Tensor | float | None, weight: Tensor | None = None
    ) -> Tensor:
        """weight_b times the sum over the masks of row b of -log mu(x_0): (B,) nats. The head is computed there only."""
        masked = x_t == self.mask
        h = self._features(x_t, t, batch)[masked]
        row = masked.nonzero()[:, 0]
        each = None if weight is None else weight[row].to(h.dtype if h.dtype == torch.float64 else torch.float32)
        ce = cross_entropy(self.network, h, batch.tokens[masked], weight=each, exclude=self.mask)
        return torch.zeros(len(x_t), dtype=torch.float64, device=x_t.device).index_add(0, row, ce.double())

    # ---------------------------------------------------------------------------------- the closed forms
    def diffusion(self, batch: Batch, x_t: Tensor, t: Tensor) -> Tensor:
        """The continuous bound at times t (B,) given x_t, summed over the sequence: (B,) nats per unit of time."""
        return self.cross_entropy(batch, x_t, t[:, None], self.process.schedule.weight(t)[:, 0])

    def reveal(self, t: Tensor | float, s: Tensor | float) -> Tensor:
        """P(a mask at t is a token at s): (alpha_s - alpha_t)/(1 - alpha_t), (*)."""
        alpha_t, alpha_s = self.process.schedule.alpha(t)[..., 0], self.process.schedule.alpha(s)[..., 0]
        return (alpha_s - alpha_t) / (1 - alpha_t)

    def step(self, batch: Batch, x_t: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """The discrete bound of the step from t to s (B,) given x_t, summed over the sequence: (B,) nats."""
        return self.cross_entropy(batch, x_t, t[:, None], self.reveal(t, s))

    def terms(self, batch, generator=None):
        if self.steps:
            return self._step_terms(batch, generator)
        B, device = len(batch), batch.tokens.device
        prior = self._prior(batch)
        if not self.time_conditioned:
            n, k, ce = self._by_count(batch, generator)
            diffusion, reconstruction = self._count_weights(n, k)
            return {"diffusion": n * diffusion * ce, "reconstruction": n * reconstruction * ce, "prior": prior}
        t = 1 - maths.stratified(
            B, generator, device
        )  # in (0, 1]: the weight is infinite at 0, where nothing is masked
        diffusion = self.diffusion(batch, self.corrupt(batch, t[:, None], generator), t)
        return {"diffusion": diffusion, "reconstruction": self._reconstruction(batch, generator), "prior": prior}

    def loss(self, batch, generator=None):
        if self.time_conditioned or self.steps:
            return self.bound(batch, generator)
        # All three terms are weights on the cross-entropy with k masks: the jump from PRIOR is one more weight on k = n.
        return self._by_count(batch, generator, weigh=True)[2]

    def estimators(self):
        if self.time_conditioned:
            return {}
        return {"any_order": self._any_order}

    def _any_order(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """E over orders of the autoregressive -log p (RADD, section 3.3): alpha from exactly 1 to exactly 0. (B,) nats."""
        n, k, ce = self._by_count(batch, generator)
        return n / k * ce

    # ---------------------------------------------------------------------------------- T steps
    def grid(self, steps: int) -> Tensor:
        """The T + 1 times of the T-step model, from PRIOR to CLEAN: the end points are the jumps' far sides, so the T
        discrete bounds alone are the whole -ELBO (MD4 eq. 3)."""
        times = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
        times[0], times[-1] = PRIOR, CLEAN
        return times

    def _step_terms(self, batch: Batch, generator: Randomness) -> dict[str, Tensor]:
        T, device = self.steps, batch.tokens.device
        i = (
            (maths.stratified(len(batch), generator, device) * T).long().clamp_max(T - 1)
        )  # step i is grid[i] -> grid[i + 1]
        times = self.grid(T).to(device)
        t, s = times[i], times[i + 1]
        value = T * self.step(batch, self.corrupt(batch, t[:, None], generator), t, s)
        last, first = i == T - 1, (i == 0) & (T > 1)
        return {
            "diffusion": value.masked_fill(first | last, 0.0),
            "reconstruction": value.masked_fill(~last, 0.0),
            "prior": value.masked_fill(~first, 0.0),
        }

    # ---------------------------------------------------------------------------------- exactly k masks
    def _by_count(self, batch: Batch, generator: Randomness, weigh: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Draw k in 1..n for each row, stratified; mask exactly k of its n positions; sum the cross-entropy there."""
        device = batch.tokens.device
        order = maths.uniform(batch.tokens.shape, generator, device)
        if batch.mask is None:
            n = torch.full((len(batch),), batch.tokens.shape[1], device=device)
        else:
            n, order = batch.mask.sum(-1), order.masked_fill(~batch.mask, 2.0)  # given positions come last
        k = 1 + (maths.stratified(len(batch), generator, device) * n).long().clamp_max(n - 1)
        k = torch.where(n > 0, k, 0)
        x_t = batch.tokens.masked_fill(order.argsort(-1).argsort(-1) < k[:, None], self.mask)
        weight = None
        if weigh:
            diffusion, reconstruction = self._count_weights(n, k)
            prior = torch.where(k == n, self.process.schedule.alpha_1, 0.0)
            weight = n * (diffusion + reconstruction + prior)
        return n, k.clamp_min(1), self.cross_entropy(batch, x_t, None, weight)

    def _count_weights(self, n: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """The weight that diffusion and reconstruction give to the cross-entropy with k masks of n: two (B,) float64."""
        schedule = self.process.schedule
        m_0, m_1 = 1 - schedule.alpha_0, 1 - schedule.alpha_1
        k = k.clamp_min(1)
        diffusion = (maths.binomial_tail(n, k, m_1) - maths.binomial_tail(n, k, m_0)) / k
        return diffusion, maths.binomial_pmf(n, k, m_0) if m_0 > 0 else torch.zeros_like(diffusion)

    # ---------------------------------------------------------------------------------- the jumps at the ends
    def _prior(self, batch: Batch) -> Tensor:
        """The jump PRIOR -> t = 1: alpha_1 times the cross-entropy of the input that is all masks. (B,) nats."""
        x, mask = batch.tokens, self.mask
        alpha_1 = self.process.schedule.alpha_1
        if alpha_1 == 0.0:
            return torch.zeros(len(x), dtype=torch.float64, device=x.device)
        if batch.mask is not None or batch.segments is not None or batch.condition is not None:
            x_t = x.masked_fill(batch.mask, mask) if batch.mask is not None else torch.full_like(x, mask)
            return alpha_1 * self.cross_entropy(batch, x_t, PRIOR)
        h = self._features(torch.full_like(x[:1], mask), PRIOR)[0]
        logits = self._no_mask(self.network.head(h))  # one row serves all: (L, K)
        given = logits.expand(len(x), -1, -1).gather(-1, x[..., None])[..., 0]
        return alpha_1 * (logits.logsumexp(-1) - given).double().sum(-1)

    def _reconstruction(self, batch: Batch, generator: Randomness) -> Tensor:
        """The jump t = 0 -> CLEAN: the cross-entropy of what is masked at t = 0; rows with nothing masked ask nothing."""
        value = torch.zeros(len(batch), dtype=torch.float64, device=batch.tokens.device)
        if self.process.schedule.alpha_0 == 1.0:
            return value
        x_t = self.corrupt(batch, 0.0, generator)
        rows = (x_t == self.mask).any(-1).nonzero()[:, 0]
        if len(rows) == 0:
            return value
        take = lambda f: None if f is None else f[rows]  # noqa: E731
        some = Batch(batch.tokens[rows], take(batch.mask), take(batch.segments), take(batch.condition))
        return value.index_add(0, rows, self.cross_entropy(some, x_t[rows], 0.0))
