"""Diffusion methods: a noise process, a network, and the bound that follows from them.

A paper is one file in `methods/`: a process, the network's time input, and `read`, which turns logits into a
prediction. Predictions, bounds and samples follow. Where the paper differs it overrides `cost` (its closed form of the
bound at one position), `corrupt`, `terms`, `loss` or `estimators`. Who calls what:

    loss         training: the bound, unless the paper differs; of T steps one (`one_step`)
    terms        evaluation, and `bound`, their sum: prior, diffusion and reconstruction
    jump_terms   evaluation with `ends` jumps: the same with each end in one jump, as schedules are published
    published    evaluation with `ends` published: as the paper's code prints them, and no bound

    predict      samplers: `read`, of the network's logits. A loss calls `read` only through the generic `cost`
    mask_exactly_k   a loss or term that draws numbers of masks in the place of times (`draws_mask_counts`), the default
                 of masked methods whose network sees no time (`absorbing.Masked`)
    cost         the bound at one position; its sums over a sequence are `continuous_bound`, per unit of time, and
                 `discrete_bound`, of a step from t to s

`elbo` is the bound of a method, its three terms in continuous time and in T steps; the functions after it give each
term, and sums over positions. Their values are nats, float64, one for each example of the batch, (B,).

    prior            KL( q(x | x_0) || prior ) where sampling starts, and the end PRIOR -> t = 1 if it starts there
    diffusion        E over t in (0, 1] of `continuous_bound`; or the sum of the steps of a chain between the ends
    reconstruction   the end t = 0 -> CLEAN; the last step of the chain

A sample of the bound includes both endpoint terms of every example. The times between are sampled, one for each
example, uniformly or by a `Proposal`; of the steps of a chain all may be taken instead. Training samples one of all T
steps (`one_step`): one network evaluation, and more variance.

An end is passed continuously if the `span` extends beyond [0, 1] (absorbing noise): one token at a time (`one_by_one`).
It is a jump, all its tokens at once, in discrete time, without a mask (only the last end is left), and with `jumps`, as
published.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base import arguments
from ..base.errors import InputError
from ..core import bound, random
from ..core.batch import Batch
from ..core.positions import Positions, positions
from ..core.prediction import Prediction, truth
from ..core.process import Process
from ..core.proposal import Proposal
from ..core.random import Randomness
from ..core.schedule import CLEAN, PRIOR, as_time, coarse
from ..nn.chunks import each_position
from .method import Method, refuse_times, refuse_tokens


# ---------------------------------------------------------------------------------- the three terms
def elbo(
    method: "Diffusion",
    batch: Batch,
    generator: Randomness = None,
    times: Tensor | None = None,
    *,
    proposal: Proposal | None = None,
    every: bool = False,
    jumps: bool = False,
) -> dict[str, Tensor]:
    """One sample of each term of -log p(x_0) <= prior + diffusion + reconstruction (D3PM eq. 1): (B,) nats each.

        prior            L_T      KL( q(x_T | x_0) || p(x_T) )
        diffusion        L_t-1    sum over the steps of KL( q(x_s | x_t, x_0) || p(x_s | x_t) ), one sampled for each
                                  example; as T grows, an integral over t in (0, 1) (SEDD eq. 10, MDLM eq. 10, MD4
                                  eq. 4), at one t
        reconstruction   L_0      -log p(x_0 | x_1)

    Args:
        times: (n + 1,) those that the chain steps through: of coarse chains, or of another grid. None: the method's own
            T steps, or continuous time where it has none.
        proposal: of the sampled step or time; None: even.
        every: all steps in place of a sampled one.
        jumps: in continuous time, pass each end in one jump, as published; else as the `span` has it.
    """
    if times is None and method.steps:
        times = method.grid(method.steps, batch.tokens.device)
    if times is None:
        diffusion = inside(method, batch, generator, proposal)
        reconstruction = clean_end(method, batch, generator, jumps)
        prior = noisy_end(method, batch, generator, jumps)
    else:
        times = times.to(batch.tokens.device)
        if every:
            diffusion = all_steps(method, batch, times, generator)
        else:
            diffusion = sampled_step(method, batch, times, generator, proposal)
        reconstruction = jump(method, batch, times[-2], times[-1], generator)
        if method.start_time != PRIOR:
            prior = method.prior_term(batch, generator)
        elif len(times) > 2:
            prior = jump(method, batch, times[0], times[1], generator)
        else:  # the one step is the last, too
            prior = torch.zeros_like(reconstruction)
    return {"diffusion": diffusion, "reconstruction": reconstruction, "prior": prior}


def clean_end(method: "Diffusion", batch: Batch, generator: Randomness = None, jumps: bool = False) -> Tensor:
    """Reconstruction term of continuous time: t = 0 -> CLEAN, continuously where the `span` extends beyond 0."""
    continues = method.span[0] < 0 and not jumps
    return (one_by_one if continues else last_jump)(method, batch, generator)


def noisy_end(method: "Diffusion", batch: Batch, generator: Randomness = None, jumps: bool = False) -> Tensor:
    """Prior term of continuous time, with PRIOR -> t = 1, continuously where the `span` extends beyond 1."""
    continues = method.span[1] > 1 and not jumps
    return one_by_one(method, batch, generator, 1.0) if continues else method.prior_term(batch, generator)


def inside(
    method: "Diffusion",
    batch: Batch,
    generator: Randomness = None,
    proposal: Proposal | None = None,
    low: float = 0.0,
) -> Tensor:
    """One sample of the mean of the diffusion term over t in (low, 1]: (B,) nats."""
    t, weight = method.draw_times(batch, generator), None
    if proposal is not None:
        t, weight = proposal.times(1 - t)
        t = 1 - t
    t = t if low == 0 else low + (1 - low) * t
    x_t = method.corrupt(batch, per_position(t), generator)
    if weight is not None and weight.ndim == 2:  # blocks have their own times
        return method.continuous_bound(batch, x_t, t, weight)
    value = method.continuous_bound(batch, x_t, t)
    return value if weight is None else weight * value


def between(method: "Diffusion", steps: int) -> range:
    """The steps of the T-step model other than the last one and a jump from PRIOR."""
    return range(int(method.start_time == PRIOR), steps - 1)


def all_steps(method: "Diffusion", batch: Batch, times: Tensor, generator: Randomness = None) -> Tensor:
    """The sum of the steps `between`, each sampled: (B,) nats."""
    values = (jump(method, batch, times[i], times[i + 1], generator) for i in between(method, len(times) - 1))
    return sum(values, torch.zeros(len(batch), dtype=torch.float64, device=times.device))


def sampled_step(
    method: "Diffusion",
    batch: Batch,
    times: Tensor,
    generator: Randomness = None,
    proposal: Proposal | None = None,
) -> Tensor:
    """The sum of the steps `between`, estimated from one stratified step for each example: (B,) nats."""
    steps_between = between(method, len(times) - 1)
    if len(steps_between) == 0:
        return torch.zeros(len(batch), dtype=torch.float64, device=times.device)
    u = random.stratified(len(batch), generator, times.device)
    i, weight = (proposal or Proposal.even(len(steps_between))).steps(u)
    t, s = times[steps_between.start + i], times[steps_between.start + i + 1]
    return weight * method.discrete_bound(batch, method.corrupt(batch, t[:, None], generator), t, s)


def one_step(method: "Diffusion", batch: Batch, generator: Randomness = None) -> Tensor:
    """The bound of the T-step model, estimated as T times one stratified step for each example: (B,) nats."""
    _, t, s = draw_step(method, batch, generator)
    x_t = method.corrupt(batch, t[:, None], generator)  # (B, L)
    value = method.steps * method.discrete_bound(batch, x_t, t, s)  # D3PM eq. 1
    return value if method.start_time == PRIOR else value + method.prior_term(batch, generator)


def jump(
    method: "Diffusion", batch: Batch, t: Tensor, s: Tensor, generator: Randomness = None, most: int | None = None
) -> Tensor:
    """The bound of the step from time t to s, () each: (B,) nats.
    Examples in which nothing can change are not evaluated."""
    x_t = method.corrupt(batch, t, generator)
    rows = positions(method._may_cost(x_t)[:, None], most, batch.spare)
    if len(rows.index) == 0:
        return torch.zeros(len(batch), dtype=torch.float64, device=x_t.device)
    t, s = (time.expand(len(rows.index)) for time in (t, s))
    return rows.sum(method.discrete_bound(batch.take(rows.index), x_t[rows.index], t, s))


def prior(method: "Diffusion", batch: Batch, generator: Randomness = None) -> Tensor:
    """Prior term: KL(q(x | x_0) || prior) where sampling starts, and the jump PRIOR -> t = 1 if it starts there."""
    x_0, start = batch.tokens, method.process.start_time
    if start != PRIOR:
        divergence = bound.prior(method.process, x_0, start)  # D3PM eq. 1, its first term
        return (divergence if batch.mask is None else divergence * batch.mask).sum(-1)
    if not jumps_at(method.process, 1):
        return torch.zeros(len(x_0), dtype=torch.float64, device=x_0.device)
    t = torch.full((len(x_0),), PRIOR, dtype=torch.float64, device=x_0.device)
    return method.discrete_bound(batch, method.corrupt(batch, t[:, None], generator), t, torch.ones_like(t))


def last_jump(method: "Diffusion", batch: Batch, generator: Randomness = None) -> Tensor:
    """Reconstruction term as the jump t = 0 -> CLEAN."""
    if not jumps_at(method.process, 0):
        return torch.zeros(len(batch), dtype=torch.float64, device=batch.tokens.device)
    t = torch.zeros((), dtype=torch.float64, device=batch.tokens.device)
    return jump(method, batch, t, torch.full_like(t, CLEAN), generator, method._max_examples(batch))


def one_by_one(method: "Diffusion", batch: Batch, generator: Randomness = None, end: float = 0.0) -> Tensor:
    """Endpoint term beyond t = 0 or t = 1 under absorbing noise, its tokens revealed one by one in a random order: (B,)
    nats.

    Of its r tokens c = 1..r are still to come; with the m masks in the input each costs r/m of their sum. Examples
    without such tokens are not evaluated.
    """
    masks = method.process.movable(method.corrupt(batch, end, generator)) & batch.counted
    revealed = masks if end == 0.0 else batch.counted & ~masks  # what is revealed in this end
    group, r, c, x_t = method.mask_exactly_k(replace(batch, mask=revealed), generator)
    mask_count = c
    if end == 1.0:  # what is no part of this end is masked still
        masked = batch.counted & ~revealed
        mask_count = c + torch.zeros_like(c).scatter_add(1, group, masked.long())
        x_t = x_t.masked_fill(masked, method.process.mask_id)
    value = torch.zeros(len(batch), dtype=torch.float64, device=x_t.device)
    rows = revealed.any(-1).nonzero()[:, 0]
    if len(rows) == 0:
        return value
    t = torch.full((len(rows),), end, dtype=torch.float64, device=x_t.device)
    weight = (r.double() / mask_count).gather(1, group)[rows]
    clean = torch.full_like(t, CLEAN)
    return value.index_add(0, rows, method.discrete_bound(batch.take(rows), x_t[rows], t, clean, weight))


def jumps_at(process: Process, end: int) -> bool:
    """Return whether alpha at t = `end` (0 or 1) differs from 1 or 0, or is unknown for lack of a schedule."""
    schedule = getattr(process, "schedule", None)
    return schedule is None or not schedule.whole[end]


def draw_step(method: "Diffusion", batch: Batch, generator: Randomness = None) -> tuple[Tensor, Tensor, Tensor]:
    """Sample a stratified step i in 0..T-1 for each example, with its times grid[i] -> grid[i + 1]: (B,) each."""
    T, device = method.steps, batch.tokens.device
    i = (random.stratified(len(batch), generator, device) * T).long().clamp_max(T - 1)
    times = method.grid(T, device)
    return i, times[i], times[i + 1]


# ---------------------------------------------------------------------------------- sums over positions
def summed(
    method: "Diffusion",
    f: Callable[..., Tensor],
    batch: Batch,
    x_t: Tensor,
    t: Tensor,
    *per_row: Tensor,
    at: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Sum f(logits (N, K), x_0, x_t, t, *per_row) (N,) over each sequence, in chunks of positions.

    At the counted positions that can change, unless `at` (B, L) bool selects others.

    Args:
        f: treats positions independently, e.g. `method.cost`.
        t: a time for each example (B,) or each position (B, L).
        per_row: other arguments of f, e.g. the end of a step; for each example or position, as t.
        weight: (B, L), that of each position in the sum.
    """
    where, values = _chosen(method, batch, x_t, t, per_row, at)
    share = None if weight is None else where.of(weight)

    def here(logits: Tensor, i: slice) -> Tensor:
        value = f(logits, *(value[i] for value in values)).double()
        return value if share is None else share[i] * value

    h = method.hidden(x_t, per_position(t), batch, method.clean(batch), where)
    inside = {*method.network.parameters()}  # of which the head alone is used behind the hidden states
    learnt = [p for p in method.parameters() if p not in inside]
    return where.sum(each_position(method.network.head, h, method.process.K, here, learnt))


def from_prediction(
    method: "Diffusion",
    batch: Batch,
    x_t: Tensor,
    t: Tensor,
    s: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The generic bound of `predict`, summed over the sequence: of the step to s, or per unit of time if s is None.

    For a method with its own `predict`, whose positions are not independent.
    """
    where, (x_0, x, time, *later) = _chosen(method, batch, x_t, t, () if s is None else (s,), None)
    at = method.process.movable(x_t) & batch.counted
    inputs = {"condition": batch.condition, "segments": batch.segments, "context": method.clean(batch)}
    pred = method.predict(x_t, where_noised(batch, per_position(t)), at=at, **inputs)
    target = truth(method.process, x_0, x, time)
    value = bound.discrete(target, pred, later[0]) if later else bound.continuous(target, pred)
    value = value if weight is None else where.of(weight) * value
    return where.sum(value.double())


def _chosen(
    method: "Diffusion", batch: Batch, x_t: Tensor, t: Tensor, per_row: tuple[Tensor, ...], at: Tensor | None
) -> tuple[Positions, list[Tensor]]:
    """The positions, and x_0, x_t, t and `per_row` at them."""
    limit = None if at is not None else method._max_positions(batch)
    if at is None:
        at = method.process.movable(x_t) if batch.mask is None else method.process.movable(x_t) & batch.mask
    where = positions(at, limit, batch.spare)
    return where, [where.of(value) for value in (batch.tokens, x_t, t, *per_row)]


# ---------------------------------------------------------------------------------- places and times
def places(order: Tensor, group: Tensor) -> Tensor:
    """Rank of each position within its group when sorted by `order`, (B, L), (B, L) -> (B, L) long."""

    def rank(values: Tensor) -> Tensor:
        return values.argsort(-1).argsort(-1)

    starts = F.pad(group[:, 1:] != group[:, :-1], (1, 0), value=True)
    start = torch.where(starts, torch.arange(group.shape[1], device=group.device), 0).cummax(-1).values
    return rank(group * group.shape[1] + rank(order)) - start


def per_position(t: Tensor) -> Tensor:
    """Times (B,) of sequences or (B, L) of positions, with a shape that broadcasts to (B, L)."""
    return t if t.ndim == 2 else t[:, None]


def where_noised(batch: Batch, t: Tensor | float) -> Tensor:
    """Times (B, L), CLEAN at given tokens."""
    device = batch.tokens.device
    t = as_time(t, device).to(device, torch.float64).expand(batch.tokens.shape)
    return t if batch.mask is None else torch.where(batch.mask, t, CLEAN)


class Diffusion(Method):
    """A diffusion method: a process, and a network with a parameterization on it.

    Class attributes, beside those of `Method`:
        sampling_grid: default grid of a sampler's times (`samplers.grid`); an instance may differ.
        published_end: the last time of its authors' sampler; None if unknown, or if it has no times.
        published_fills: whether one more step, to clean tokens, follows; else the last step goes to clean tokens.
        time_input: the input of a time-conditioned network: "t", in units of 1/1000, or "sigma" = -log alpha.
        pointwise: whether positions are independent, so that `read` is enough; else the class has its own `predict`.
    """

    learns_in_the_middle = True
    sampling_grid: str = "uniform"
    published_end: ClassVar[float | None] = None
    published_fills: ClassVar[bool] = True
    time_input: str = "t"
    pointwise: bool = True

    process: Process

    def __init__(self, *rest: Any, **more: Any):
        super().__init__(*rest, **more)
        sees_sigma = self.parameterization == "score" or (self.time_conditioned and self.time_input == "sigma")
        if sees_sigma and getattr(getattr(self.process, "schedule", None), "alpha_1", 1.0) == 0.0:
            raise InputError(
                "`alpha_1` 0 is noise without end at t = 1, which no network can take as input; use 1e-3, or another "
                "above 0"
            )

    def __init_subclass__(cls, **more: Any) -> None:
        """Add the checks of arguments to a subclass's own `predict`."""
        super().__init_subclass__(**more)
        if "predict" in vars(cls):
            cls.pointwise = False
            cls.predict = arguments.checked(vars(cls)["predict"], like=Diffusion.predict)

    # ---------------------------------------------------------------------------------- what a paper says
    def network_time(self, t: Tensor) -> Tensor:
        """The network's time input at t in [0, 1], as `time_input` defines it."""
        return self.process.schedule.sigma(t)[..., 0].float() if self.time_input == "sigma" else super().network_time(t)

    def read(self, logits: Tensor, x_t: Tensor, t: Tensor) -> Prediction:
        """Prediction from logits (*, K) at noisy tokens x_t (*) and times t (*). Positions are independent.

        A method may override `predict` instead, without closed forms and chunks.
        """
        raise NotImplementedError

    @arguments.checked
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
        """Evaluate the network on x_t (B, L) at times t (broadcast to (B, L)).

        Args:
            at: (B, L) bool; the prediction then has the leading shape (N,) of the positions where it is True, and the
                head, and of a transformer the end of its last block, is computed there only.
            context: for a network of blocks, the clean tokens (B, L) of earlier blocks, or a cache of the tokens before
                x_t.
        """
        inputs = Batch(x_t, None, segments, condition)
        refuse_times(self, x_t, t, at)
        refuse_tokens(x_t, self.process.K)
        where = None if at is None else positions(at)
        h = self.hidden(x_t, t, inputs, context, where)
        t = as_time(t, x_t.device).to(x_t.device, torch.float64).expand(x_t.shape)
        if where is not None:
            x_t, t = where.of(x_t), where.of(t)
        return self.read(self.logits(h), x_t, t)

    def clean(self, batch: Batch) -> Tensor | None:
        """Clean tokens (B, L) that the network reads beside x_t when x_0 is known;
        None except for a method of blocks."""
        return None

    def mask_exactly_k(self, batch: Batch, generator: Randomness = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sample k in 1..n for each group, stratified, and mask exactly k of its n positions.

        The group of each position (B, L), n and k (B, G), and x_t (B, L); k is 1 where n is 0.
        """
        group, n = self.groups(batch)
        order = random.uniform(batch.tokens.shape, generator, batch.tokens.device)
        if batch.mask is not None:
            order = order.masked_fill(~batch.mask, 2.0)  # given positions come last
        k = 1 + (self.spread(n, generator) * n).long().clamp_max(n - 1)
        k = torch.where(n > 0, k, 0)
        masks = places(order, group) < k.gather(1, group)
        return group, n, k.clamp_min(1), batch.tokens.masked_fill(masks, self.process.mask_id)

    @arguments.checked
    def corrupt(self, batch: Batch, t: Tensor | float, generator: Randomness = None) -> Tensor:
        """x_t ~ q(. | x_0), (B, L); given positions stay clean."""
        refuse_times(self, batch.tokens, t)
        return self.process.sample(batch.tokens, where_noised(batch, t), generator)

    def cost(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, s: Tensor | None = None) -> Tensor:
        """The bound at N positions from their logits (N, K): (N,) nats.

        For the step from t to s; per unit of time if s is None. This is the definition; a method may override it with a
        closed form.
        """
        pred, target = self.read(logits, x_t, t), truth(self.process, x_0, x_t, t)
        return bound.continuous(target, pred) if s is None else bound.discrete(target, pred, s)

    # ---------------------------------------------------------------------------------- its bound
    @property
    def draws_mask_counts(self) -> bool:
        """Whether a sample of the bound draws numbers of masks instead of times."""
        return False

    def continuous_bound(self, batch: Batch, x_t: Tensor, t: Tensor, weight: Tensor | None = None) -> Tensor:
        """The continuous bound at times t given x_t, summed over the sequence: (B,) nats per unit of time.

        An example has one time, (B,); in a method of blocks each position may have its own, (B, L).

        Args:
            weight: (B, L), that of each position in the sum.
        """
        if not self.pointwise:
            return from_prediction(self, batch, x_t, t, weight=weight)
        return summed(self, self.cost, batch, x_t, t, weight=weight)

    def discrete_bound(self, batch: Batch, x_t: Tensor, t: Tensor, s: Tensor, weight: Tensor | None = None) -> Tensor:
        """The discrete bound of the step from t to s given x_t, summed over the sequence: (B,) nats.

        Times and `weight` as in `continuous_bound`.
        """
        if not self.pointwise:
            return from_prediction(self, batch, x_t, t, s, weight)
        return summed(self, self.cost, batch, x_t, t, s, weight=weight)

    @property
    def span(self) -> tuple[float, float]:
        """First and last time that the model passes continuously; [0, 1] for a T-step model, with jumps at its ends."""
        return (0.0, 1.0) if self.steps else self.process.span

    def prior_term(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """Prior term, KL(q(x | x_0) || prior) where sampling starts, and the jump PRIOR -> t = 1 if it starts there:
        (B,) nats."""
        return prior(self, batch, generator)

    def _max_positions(self, batch: Batch) -> int | None:
        """Largest number of positions at which one sample of the noise needs the head; None for all positions."""
        return None

    def _may_cost(self, x_t: Tensor) -> Tensor:
        """Sequences of x_t (B, L) in which a reverse step can have a cost: (B,) bool."""
        return self.process.movable(x_t).any(-1)

    def _max_examples(self, batch: Batch) -> int | None:
        """Largest number of sequences with a reconstruction cost at t = 0; None for all."""
        return None

    def groups(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Positions that share a time or a number of masks: the whole sequence, except in a method of blocks.

        Returns the group of each position (B, L), and the number of counted positions of each group (B, G); groups are
        contiguous.
        """
        x = batch.tokens
        n = x.new_full((len(x), 1), x.shape[1]) if batch.mask is None else batch.mask.sum(-1, keepdim=True)
        return torch.zeros_like(x), n

    def spread(self, n: Tensor, generator: Randomness = None) -> Tensor:
        """An evenly spread uniform in [0, 1) for each group of each example, n (B, G) positions in each: (B, G)
        float64."""
        return random.spread(n, generator)

    def draw_times(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """Stratified times in (0, 1]: one for each example (B,); in a method of blocks one for each block, (B, L).

        At 0 a rate may be infinite.
        """
        group, n = self.groups(batch)
        t = 1 - self.spread(n, generator)
        return t[:, 0] if t.shape[1] == 1 else t.gather(1, group)

    def terms(self, batch, generator=None):
        """One unbiased sample of each term of an upper bound on -log p(x_0): (B,) nats, float64.

        Keys: "diffusion", "reconstruction", "prior". Times are stratified over the examples; of T steps the last one,
            and the first if it is a jump, are computed for every example.
        """
        return elbo(self, batch, generator)

    def loss(self, batch, generator=None):
        """Training loss: the bound unless the paper differs; with T steps, one of them for each example. (B,) nats."""
        return one_step(self, batch, generator) if self.steps else self.bound(batch, generator)

    def as_published(self) -> "Diffusion | None":
        """The method whose `terms` are those of `published`; None if they are computed otherwise."""
        return None

    def published(self, batch: Batch, generator: Randomness = None, steps: int = 0) -> dict[str, Tensor]:
        """One sample of each term as the paper's code prints it, with `steps` steps unless 0: (B,) nats. Not a bound.

        Only if that code has endpoint terms that are not the model's; if it has none, they are left out.
        """
        if (variant := self.as_published()) is not None:
            return variant.terms(batch, generator)
        raise NotImplementedError

    def jump_terms(self, batch: Batch, generator: Randomness = None) -> dict[str, Tensor]:
        """One sample of each term if each end of a published schedule is passed in one jump, all its tokens at once."""
        return elbo(self, batch, generator, jumps=True)

    @property
    def retraces(self) -> bool:
        """Whether noise can lead from a text to each x_t that the model writes it from;
        what weighs a text needs that."""
        return True

    @property
    def start_time(self) -> float:
        """The time at which the T-step model starts."""
        return self.process.start_time

    def grid(self, steps: int, device: torch.device | None = None) -> Tensor:
        """The T + 1 times of the T-step model, from where sampling starts to CLEAN, even over the `span`.

        Times beyond them are part of the first or last step, so the T discrete bounds (and the prior's KL, if the start
        is t = 1) are the whole -ELBO (D3PM eq. 1, MD4 section 3). If the model has steps of its own and these are
        fewer, they are some of its own times (`coarse`).
        """
        low, high = self.span
        times = torch.linspace(high, low, steps + 1, dtype=torch.float64, device=device)
        times = self.coarse(times) if steps < self.steps else times
        times[0].fill_(self.start_time)  # which copies no number to a device
        times[-1].fill_(CLEAN)
        return times

    def coarse(self, times: Tensor) -> Tensor:
        """Coarse chain: of the model's own T + 1 times those next to `times` (n + 1,), n <= T, which fall from 1 to 0.

        Its kernel p(x_s | x_t) skips the steps between: D3PM section 3.3, p(x_{t-k} | x_t).
        """
        own = torch.linspace(1.0, 0.0, self.steps + 1, dtype=torch.float64, device=times.device)
        return own[self.steps - coarse(times, self.steps)]
