"""A method that undoes noise: a process, a network's time, and what they mean together.

A paper is one file in `methods/`: a process, a time for the network, and `read`, which makes a prediction of its logits.
Predictions, bounds and samples follow (`terms` assembles the ELBO). Only where the paper differs it gives `cost` (its closed
form of the bound at one position), `corrupt`, `terms`, `loss` or `estimators`.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import arguments
from ..core import bound, random
from ..core.batch import Batch
from ..core.positions import positions
from ..core.prediction import Prediction, truth
from ..core.process import Process
from ..core.random import Randomness
from ..core.schedule import CLEAN, as_time
from ..errors import InputError
from . import checks, terms
from .method import Method


class Diffusion(Method):
    """One paper: a network read through a parameterization, on a process.

    Class attributes, beside those of `Method`:
        sampling_grid: how the times of a sampler's steps lie unless it is told (`samplers.grid`); an instance may say otherwise.
        published_end: the time at which the steps of its authors' sampler end; None where that is not known, or not in time.
        published_fills: whether one more step, to clean tokens, follows there; else the last step goes to them.
        time_input: what a network that is conditioned on time is told: "t", in units of 1/1000, or "sigma" = -log alpha.
        pointwise: whether its positions are independent, so that `read` says all; a class with a `predict` of its own is not.
    """

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
                "`alpha_1` 0 is noise without end at t = 1, which no network can be told; use 1e-3, or another above 0"
            )

    def __init_subclass__(cls, **more: Any) -> None:
        """Check what a `predict` of its own is given, as what every method is asked from outside."""
        super().__init_subclass__(**more)
        if "predict" in vars(cls):
            cls.pointwise = False
            cls.predict = arguments.checked(vars(cls)["predict"], like=Diffusion.predict)

    # ---------------------------------------------------------------------------------- what a paper says
    def network_time(self, t: Tensor) -> Tensor:
        """What the network is told at time t in [0, 1]: as `time_input` says."""
        return self.process.schedule.sigma(t)[..., 0].float() if self.time_input == "sigma" else super().network_time(t)

    def read(self, logits: Tensor, x_t: Tensor, t: Tensor) -> Prediction:
        """What logits (*, K) at noisy tokens x_t (*) and times t (*) say. Positions are independent.

        A method may give `predict` whole instead, without closed forms and chunks.
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
        """Ask the network about x_t (B, L) at times t (broadcast to (B, L)).

        Args:
            at: (B, L) bool; the prediction then has the leading shape (N,) of the positions where it is True, and the
                head, and of a transformer the end of its last block, is computed there only.
            context: for a network of blocks, the clean tokens (B, L) of earlier blocks, or a cache of what stands
                before x_t.
        """
        beside = Batch(x_t, None, segments, condition)
        checks.refuse_times(self, x_t, t, at)
        checks.refuse_tokens(x_t, self.process.K)
        chosen = None if at is None else positions(at)
        h = self.hidden(x_t, t, beside, context, chosen)
        t = as_time(t, x_t.device).to(x_t.device, torch.float64).expand(x_t.shape)
        if chosen is not None:
            x_t, t = chosen.of(x_t), chosen.of(t)
        return self.read(self.logits(h), x_t, t)

    def clean(self, batch: Batch) -> Tensor | None:
        """The tokens (B, L) that the network reads beside x_t when x_0 is known: none, but for a method of blocks."""
        return None

    @arguments.checked
    def corrupt(self, batch: Batch, t: Tensor | float, generator: Randomness = None) -> Tensor:
        """x_t ~ q(. | x_0), (B, L); given positions stay clean."""
        checks.refuse_times(self, batch.tokens, t)
        return self.process.sample(batch.tokens, terms.where_noised(batch, t), generator)

    def cost(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, s: Tensor | None = None) -> Tensor:
        """The bound at N positions from their logits (N, K): (N,) nats.

        For the step from t to s; per unit of time where s is None. Here the definition; a method may give a closed form.
        """
        pred, target = self.read(logits, x_t, t), truth(self.process, x_0, x_t, t)
        return bound.continuous(target, pred) if s is None else bound.discrete(target, pred, s)

    # ---------------------------------------------------------------------------------- its bound
    @property
    def by_counts(self) -> bool:
        """Whether a draw of its bound draws numbers of masks, not times."""
        return False

    def diffusion(self, batch: Batch, x_t: Tensor, t: Tensor) -> Tensor:
        """The continuous bound at times t given x_t, summed over the sequence: (B,) nats per unit of time.

        A row has one time, (B,); in a method of blocks each position may have its own, (B, L).
        """
        if not self.pointwise:
            return terms.from_prediction(self, batch, x_t, t)
        return terms.summed(self, self.cost, batch, x_t, t)

    def step(self, batch: Batch, x_t: Tensor, t: Tensor, s: Tensor, weight: Tensor | None = None) -> Tensor:
        """The discrete bound of the step from t to s given x_t, summed over the sequence; times as there: (B,) nats.

        With `weight` (B, L), that of each position in the sum.
        """
        if not self.pointwise:
            return terms.from_prediction(self, batch, x_t, t, s, weight)
        return terms.summed(self, self.cost, batch, x_t, t, s, weight=weight)

    @property
    def span(self) -> tuple[float, float]:
        """The times between which its model passes continuously; a model of T steps has jumps at the ends of [0, 1]."""
        return (0.0, 1.0) if self.steps else self.process.span

    def prior_term(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """KL(q(x | x_0) || prior) where sampling starts, and the jump PRIOR -> t = 1 if it starts there: (B,) nats."""
        return terms.prior(self, batch, generator)

    def most(self, batch: Batch) -> int | None:
        """How many positions of a batch one draw of the noise can have the head asked about; None: all of them."""
        return None

    def costly(self, x_t: Tensor) -> Tensor:
        """Rows of x_t (B, L) in which a step back can cost anything: (B,) bool."""
        return self.process.movable(x_t).any(-1)

    def most_rows(self, batch: Batch) -> int | None:
        """In how many rows something can be left to say at t = 0; None: in all."""
        return None

    def groups(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Positions that share a time, or a number of masks: all of a row, but in a method of blocks.

        Which group a position is in (B, L), and how many positions that count each group has (B, G); groups follow one another.
        """
        x = batch.tokens
        n = x.new_full((len(x), 1), x.shape[1]) if batch.mask is None else batch.mask.sum(-1, keepdim=True)
        return torch.zeros_like(x), n

    def spread(self, n: Tensor, generator: Randomness = None) -> Tensor:
        """A uniform in [0, 1) for each group of each row, n (B, G) positions in each, evenly spread: (B, G) float64."""
        return random.spread(n, generator)

    def draw_times(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """Times in (0, 1], stratified: one for each row (B,); in a method of blocks one for each block, (B, L).

        At 0 a rate may be infinite.
        """
        group, n = self.groups(batch)
        t = 1 - self.spread(n, generator)
        return t[:, 0] if t.shape[1] == 1 else t.gather(1, group)

    def terms(self, batch, generator=None):
        """One unbiased draw of each term of an upper bound on -log p(x_0): (B,) nats, float64.

        Keys: "diffusion", "reconstruction", "prior". Times are stratified over the rows; of T steps the last one, and the
        first where it is a jump, are of every row.
        """
        return (terms.discrete_time if self.steps else terms.continuous_time)(self, batch, generator)

    def loss(self, batch, generator=None):
        """What training minimises, the bound unless the paper differs; of T steps from one of them for each row: (B,) nats."""
        return terms.one_step(self, batch, generator) if self.steps else self.bound(batch, generator)

    def as_published(self) -> "Diffusion | None":
        """The method whose `terms` are those of `published`; None where they are computed otherwise."""
        return None

    def published(self, batch: Batch, generator: Randomness = None, steps: int = 0) -> dict[str, Tensor]:
        """One draw of each term as the paper's own code prints it, of `steps` steps unless 0: (B,) nats, and no bound.

        Only where that code has terms at the ends of time that are not the model's; where it has none, they are left out.
        """
        if (other := self.as_published()) is not None:
            return other.terms(batch, generator)
        raise NotImplementedError

    def jump_terms(self, batch: Batch, generator: Randomness = None) -> dict[str, Tensor]:
        """The same for a model that passes each end of a published schedule in one jump, all its tokens at once."""
        if self.steps:
            return terms.discrete_time(self, batch, generator)
        return terms.continuous_time(self, batch, generator, jumps=True)

    @property
    def start(self) -> float:
        """Where the T-step model starts."""
        return self.process.start

    def grid(self, steps: int, device: torch.device | None = None) -> Tensor:
        """The T + 1 times of the T-step model, from where sampling starts to CLEAN, even over the `span`.

        What lies beyond them is part of the first or last step, so the T discrete bounds (and the prior's KL, if the start is
        t = 1) are the whole -ELBO (D3PM eq. 1, MD4 section 3).
        """
        low, high = self.span
        times = torch.linspace(high, low, steps + 1, dtype=torch.float64, device=device)
        times[0], times[-1] = self.start, CLEAN
        return times
