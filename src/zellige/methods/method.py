"""A method: a network, a process, and what they mean together.

`Method` says what trainers, evaluators and samplers may ask. A method of a paper is one file in `methods/`: a process, a time
for the network, and `read`, which makes a prediction of its logits. Predictions, bounds and samples follow. Only where the
paper differs it gives `cost` (its closed form of the bound at one position), `corrupt`, `terms`, `loss` or `estimators`.
"""

import copy
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from .. import arguments
from ..core import bound, random
from ..core.batch import Batch, Estimator, tensor
from ..core.prediction import Prediction, truth
from ..core.process import Process
from ..core.random import Randomness
from ..core.schedule import CLEAN, PRIOR
from ..errors import InputError, unknown
from ..nn.attention import documents
from ..nn.block import Net
from ..nn.chunks import each_position
from ..nn.transformer import DiT

C = TypeVar("C")  # a method's own Config


class NoBound(TypeError):
    """The method defines no likelihood bound."""


class Method(nn.Module):
    """One paper: a network read through a parameterization, on a process.

    Class attributes:
        name: how the command line calls it.
        Config: a frozen dataclass with the method's own choices.
        choices: the names that a field of Config may be, where it is one of several; `checked` refuses others.
        of_levels: those of them that make sense only where tokens are ordered.
        tells: what a network that is conditioned on time is told: "t", in units of 1/1000, or "sigma" = -log alpha.
        predicts: what the network gives: "mean", "leave_one_out" or "score" (an instance may say otherwise).
        loss_is_bound: whether `loss` is a draw of `bound` (its unit is then shown in training).
        bounded: whether it has a likelihood bound; `bound` raises NoBound where it has none.
        exact: whether `bound` is -log p itself, with nothing drawn.
        adapts: how many rows `adapt` asks for at each validation of a training; 0: it is not called.
        sampler: the sampler it is drawn with unless another is asked for.
        variants: what its paper reports, as changes of Config; `verify` checks each.
        ordered: whether tokens are levels of something, such as pixels or pitches; `methods.build` says so of an instance.

    Args:
        network: features and head (see `nn.network`); the head gives K logits.
        vocabulary: V, the number of data tokens.
        shape: (L,).
        config: the method's own choices.
        process: the noise.
        timed: whether the network takes a time.
        steps: 0 for continuous time; T for a T-step model on `grid(T)`. An option for it is called `diffusion_steps`.
    """

    name: ClassVar[str]
    Config: ClassVar[type]
    choices: ClassVar[Mapping[str, Collection[str]]] = {}
    of_levels: ClassVar[Mapping[str, Collection[str]]] = {}
    tells: str = "t"
    predicts: str = "mean"
    loss_is_bound: bool = True
    bounded: bool = True
    exact: bool = False
    adapts: int = 0
    sampler: str = "ancestral"
    variants: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    ordered: bool = False

    process: Process
    _window: int | None = None  # where `of_length` made it: the length of its network

    def __init_subclass__(cls, **more: Any) -> None:
        """What is asked of a method from outside checks what it is given, also where a class has its own."""
        super().__init_subclass__(**more)
        for name in ("terms", "bound", "loss"):
            if name in vars(cls):
                setattr(cls, name, _of_rows(vars(cls)[name], getattr(Method, name)))
        if "predict" in vars(cls):
            cls.predict = arguments.checked(vars(cls)["predict"], like=Method.predict)

    def __init__(
        self,
        network: Any = None,
        vocabulary: int = 0,
        shape: tuple[int, ...] = (),
        config: Any = None,
        process: Process | None = None,
        timed: bool = False,
        steps: int = 0,
    ):
        super().__init__()
        self.network, self.vocabulary, self.shape, self.config = network, vocabulary, tuple(shape), config
        if process is not None:
            self.process = process
        self.time_conditioned, self.steps = timed, steps

    @property
    def block(self) -> int:
        """Tokens of a block of its network; 0 where every position sees every other."""
        return getattr(self.network, "block", 0)

    @property
    def window(self) -> int:
        """How many tokens its network was built for: L, also where `shape` is that of other texts (`of_length`)."""
        return self.shape[0] if self._window is None else self._window

    def of_length(self, length: int) -> "Method":
        """The same method for texts of `length` tokens. They share the network, whose own length stays the `window`."""
        other = copy.copy(self)
        other._window, other.shape = self.window, (length,)
        return other

    # ---------------------------------------------------------------------------------- how it is made
    @classmethod
    def checked(cls, config: C | None) -> C:
        """The config, the default one for None; InputError where one of its `choices` is unknown. A constructor begins so."""
        found: Any = cls.Config() if config is None else config
        for field, known in cls.choices.items():
            if (name := getattr(found, field)) not in known:
                raise unknown(field, name, known, f"zellige train {cls.name} --help")
        return found

    @classmethod
    def states(cls, vocabulary: int, config: Any) -> int:
        """K, the number of states of the process: what the network's head must give."""
        raise NotImplementedError

    @classmethod
    def timed(cls, config: Any) -> bool:
        """Whether the network takes a time."""
        return True

    @classmethod
    def outputs(cls, vocabulary: int, config: Any) -> int:
        """How many numbers the network's head gives a position: K logits unless the method reads something else."""
        return cls.states(vocabulary, config)

    @classmethod
    def blocks(cls, config: Any) -> int:
        """The length of the blocks that its network reads one after another; 0: it reads all of a sequence at once."""
        return 0

    @classmethod
    def needs_order(cls, config: Any) -> str | None:
        """The choice that makes sense only where tokens are ordered, as it is typed: "--process gaussian"; or None."""
        for field, names in cls.of_levels.items():
            if (name := getattr(config, field)) in names:
                return f"--{field} {name}"
        return None

    @classmethod
    def build_network(cls, net: Net, vocabulary: int, config: Any) -> nn.Module:
        """A fresh transformer for this method."""
        states, outputs = cls.states(vocabulary, config), cls.outputs(vocabulary, config)
        return DiT(net, states, time=cls.timed(config), outputs=outputs, block=cls.blocks(config))

    @property
    def by_counts(self) -> bool:
        """Whether a draw of its bound draws numbers of masks, not times."""
        return False

    # ---------------------------------------------------------------------------------- what a paper says
    def network_time(self, t: Tensor) -> Tensor:
        """What the network is told at time t in [0, 1]: 1000 t, the unit in which the published code embeds it, or sigma."""
        return (self.process.schedule.sigma(t)[..., 0] if self.tells == "sigma" else 1000 * t).float()

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
                head is computed there only.
            context: for a network of blocks, the clean tokens (B, L) of earlier blocks, or a cache of what stands
                before x_t.
        """
        asked = Batch(x_t, None, segments, condition)
        _same_rows(x_t, t, at)
        K = self.states(self.vocabulary, self.config) if self.process is None else self.process.K
        self._refuse_tokens(x_t, K)
        h = self._features(x_t, t, asked, context)
        t = torch.as_tensor(t, dtype=torch.float64, device=x_t.device).expand(x_t.shape)
        if at is not None:
            h, x_t, t = h[at], x_t[at], t[at]
        return self.read(self._logits(h), x_t, t)

    def clean(self, batch: Batch) -> Tensor | None:
        """The tokens (B, L) that the network reads beside x_t when x_0 is known: none, but for a method of blocks."""
        return None

    @arguments.checked
    def corrupt(self, batch: Batch, t: Tensor | float, generator: Randomness = None) -> Tensor:
        """x_t ~ q(. | x_0), (B, L); given positions stay clean."""
        _same_rows(batch.tokens, t, None)
        return self.process.sample(batch.tokens, _times(batch, t), generator)

    def cost(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, s: Tensor | None = None) -> Tensor:
        """The bound at N positions from their logits (N, K): (N,) nats.

        For the step from t to s; per unit of time where s is None. Here the definition; a method may give a closed form.
        """
        pred, target = self.read(logits, x_t, t), truth(self.process, x_0, x_t, t)
        return bound.continuous(target, pred) if s is None else bound.discrete(target, pred, s)

    # ---------------------------------------------------------------------------------- its bound
    def diffusion(self, batch: Batch, x_t: Tensor, t: Tensor) -> Tensor:
        """The continuous bound at times t given x_t, summed over the sequence: (B,) nats per unit of time.

        A row has one time, (B,); in a method of blocks each position may have its own, (B, L).
        """
        return self._cost(batch, x_t, t)

    def step(self, batch: Batch, x_t: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """The discrete bound of the step from t to s given x_t, summed over the sequence; times as there: (B,) nats."""
        return self._cost(batch, x_t, t, s)

    def _cost(
        self,
        batch: Batch,
        x_t: Tensor,
        t: Tensor,
        s: Tensor | None = None,
        each: Callable[..., Tensor] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """`cost` at the positions that count and can move, summed over each row, in chunks that are never held together.

        Something else of the logits, with the arguments of `cost`, where `each` is given; at other positions, where `at` (B, L)
        is.
        """
        each = each or self.cost
        if at is None:
            at = self.process.movable(x_t) if batch.mask is None else self.process.movable(x_t) & batch.mask
        row = at.nonzero()[:, 0]
        here = at if t.ndim == 2 else row
        x_0, noisy, time, later = batch.tokens[at], x_t[at], t[here], None if s is None else s[here]
        total = torch.zeros(len(x_t), dtype=torch.float64, device=x_t.device)
        if type(self).read is Method.read:  # a method that gives `predict` whole
            beside = {"condition": batch.condition, "segments": batch.segments, "context": self.clean(batch)}
            pred = self.predict(x_t, per_position(t), at=at, **beside)
            target = truth(self.process, x_0, noisy, time)
            value = bound.continuous(target, pred) if later is None else bound.discrete(target, pred, later)
            return total.index_add(0, row, value.double())

        def f(logits: Tensor, i: slice) -> Tensor:
            return each(logits, x_0[i], noisy[i], time[i], None if later is None else later[i]).double()

        h = self._features(x_t, per_position(t), batch, self.clean(batch))[at]
        value = each_position(self.network.head, h, self.process.K, f, self.process.parameters())  # pyright: ignore
        return total.index_add(0, row, value)

    def draw_times(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """Times in (0, 1], stratified: one for each row (B,); in a method of blocks one for each block, (B, L).

        At 0 a rate may be infinite.
        """
        return 1 - random.stratified(len(batch), generator, batch.tokens.device)

    def terms(self, batch: Batch, generator: Randomness = None) -> dict[str, Tensor]:
        """One unbiased draw of each term of an upper bound on -log p(x_0): (B,) nats, float64.

        Keys: "diffusion", "reconstruction", "prior". Times are stratified over the rows.
        """
        if self.steps:
            return self._step_terms(batch, generator)
        t = self.draw_times(batch, generator)
        x_t = self.corrupt(batch, per_position(t), generator)
        diffusion = self.diffusion(batch, x_t, t)
        return {
            "diffusion": diffusion,
            "reconstruction": self._reconstruction(batch, generator),
            "prior": self._prior(batch, generator),
        }

    def bound(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """One unbiased draw of an upper bound on -log p(x_0), all its terms: (B,) nats."""
        return torch.stack(list(self.terms(batch, generator).values())).sum(0)

    def loss(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """What training minimises: (B,) nats, summed over the sequence; the bound unless the paper differs."""
        return self.bound(batch, generator)

    def adapt(self, batch: Batch, generator: Randomness = None) -> str:
        """Set what training tunes beside the weights, a buffer, from `adapts` rows of the validation split; in words."""
        raise NotImplementedError

    def estimators(self) -> dict[str, Estimator]:
        """Other likelihoods that the method admits, by name; each gives (B,) nats."""
        return {}

    def learnt(self) -> dict[str, Tensor]:
        """What it learnt about each token beside its network, by name: (V,) each; nothing for most methods.

        Tokens are told apart by the first; a token with a larger value appears earlier in generation.
        """
        return {}

    # ---------------------------------------------------------------------------------- what it may be asked
    def _texts(self, batch: Batch) -> "Method":
        """Itself; InputError unless the batch holds rows of its own length and vocabulary."""
        rows, length = batch.tokens.shape
        if not rows or not 0 < length <= self.shape[0]:
            raise InputError(
                f"tokens are {tensor(batch.tokens)}; they must be one row or more, of 1 to {self.shape[0]:,} tokens"
            )
        mask = getattr(self.process, "mask", None)  # among the tokens, those after it are numbered one further
        self._refuse_tokens(
            batch.tokens, self.vocabulary if mask is None or mask >= self.vocabulary else self.process.K
        )
        return self

    def _refuse_tokens(self, x: Tensor, states: int) -> None:
        """InputError where tokens are not 0 to `states` - 1; not looked for on a GPU, which would have to wait for the answer."""
        if x.is_cuda or not x.numel():
            return
        low, high = (int(value) for value in x.aminmax())
        if low < 0 or high >= states:
            raise InputError(f"tokens hold {low if low < 0 else high:,}; they must be 0 to {states - 1:,}")

    # ---------------------------------------------------------------------------------- the jumps at the ends
    def _prior(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """KL(q(x | x_0) || prior) where sampling starts, and the jump PRIOR -> t = 1 if it starts there: (B,) nats."""
        x_0, start = batch.tokens, self.process.start
        if start != PRIOR:
            each = bound.prior(self.process, x_0, start)
            return (each if batch.mask is None else each * batch.mask).sum(-1)
        if not self._jumps(1.0, 0.0):
            return torch.zeros(len(x_0), dtype=torch.float64, device=x_0.device)
        t = torch.full((len(x_0),), PRIOR, dtype=torch.float64, device=x_0.device)
        return self.step(batch, self.corrupt(batch, t[:, None], generator), t, torch.ones_like(t))

    def _jumps(self, t: float, alpha: float) -> bool:
        """Whether the schedule ends at t elsewhere than at alpha; a process without a schedule may."""
        schedule = getattr(self.process, "schedule", None)
        return schedule is None or bool((schedule.alpha(t) != alpha).any())

    def _reconstruction(self, batch: Batch, generator: Randomness) -> Tensor:
        """The jump t = 0 -> CLEAN; rows in which nothing can move ask nothing. (B,) nats."""
        value = torch.zeros(len(batch), dtype=torch.float64, device=batch.tokens.device)
        if not self._jumps(0.0, 1.0):
            return value
        x_t = self.corrupt(batch, 0.0, generator)
        rows = self.process.movable(x_t).any(-1).nonzero()[:, 0]
        if len(rows) == 0:
            return value
        t = torch.zeros(len(rows), dtype=torch.float64, device=value.device)
        return value.index_add(0, rows, self.step(batch.take(rows), x_t[rows], t, torch.full_like(t, CLEAN)))

    # ---------------------------------------------------------------------------------- T steps
    @property
    def discrete_time(self) -> str:
        """`discrete time, T = 64`, as a person reads it; "" where time is continuous or there is none."""
        return f"discrete time, T = {self.steps:,}" if self.steps else ""

    def grid(self, steps: int) -> Tensor:
        """The T + 1 times of the T-step model, from where sampling starts to CLEAN.

        A jump at an end is part of the first or last step, so the T discrete bounds (and the prior's KL, if the start is
        t = 1) are the whole -ELBO (D3PM eq. 1, MD4 section 3).
        """
        times = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
        times[0], times[-1] = self.process.start, CLEAN
        return times

    def _draw_step(self, batch: Batch, generator: Randomness) -> tuple[Tensor, Tensor, Tensor]:
        """Steps i in 0..T-1, one for each row, stratified, and their times grid[i] -> grid[i + 1]: (B,) each."""
        T, device = self.steps, batch.tokens.device
        i = (random.stratified(len(batch), generator, device) * T).long().clamp_max(T - 1)
        times = self.grid(T).to(device)
        return i, times[i], times[i + 1]

    def _step_terms(self, batch: Batch, generator: Randomness) -> dict[str, Tensor]:
        T, jumps = self.steps, self.process.start == PRIOR
        i, t, s = self._draw_step(batch, generator)
        value = T * self.step(batch, self.corrupt(batch, t[:, None], generator), t, s)
        last, first = i == T - 1, (i == 0) & (T > 1) & jumps
        prior = value.masked_fill(~first, 0.0) if jumps else self._prior(batch, generator)
        return {
            "diffusion": value.masked_fill(first | last, 0.0),
            "reconstruction": value.masked_fill(~last, 0.0),
            "prior": prior,
        }

    # ---------------------------------------------------------------------------------- asking the network
    def _features(self, x: Tensor, t: Tensor | float | None, batch: Batch | None = None, context: Any = None) -> Tensor:
        """The hidden states (B, L, D). Given positions are CLEAN; the network is told the time of the others.

        One time for each row; for a network of blocks one for each block, if t is (B, L). `context`: what a network of blocks
        reads beside x, clean tokens (B, L) or a cache.
        """
        more: dict[str, Any] = {}
        if batch is not None and not (batch.segments is None and batch.condition is None):
            more = {"segments": batch.segments, "condition": batch.condition}
        if isinstance(context, Tensor):
            more["clean"] = context
            if self.time_conditioned:  # what a cache of these tokens is told: it is made before there is a time
                more["clean_time"] = self._told(x, CLEAN, None)
        elif context is not None:
            more["cache"] = context
        return self.network.features(x, self._told(x, t, more.get("segments")), **more)

    def extend(self, cache: Any, x: Tensor, valid: Tensor | None = None) -> Any:
        """A network of blocks' cache (None: nothing yet) once it has read clean tokens x (B, n) too; see `DiT.advance`."""
        return self.network.extend(cache, x, self._told(x, CLEAN, None), valid)  # pyright: ignore

    def _told(self, x: Tensor, t: Tensor | float | None, segments: Tensor | None) -> Tensor | None:
        """What the network is told at times t: (B,), or (B, L) where blocks have their own."""
        if not self.time_conditioned:
            return None
        t, L = torch.as_tensor(t, dtype=torch.float64, device=x.device), x.shape[1]
        if t.ndim == 2 and t.shape[1] > 1 and (segments is not None or 0 < self.block < L):
            t = largest(t, self.block or L, segments)
        else:
            t = (t.amax(-1) if t.ndim == 2 else t).expand(len(x))
        return self.network_time(t.clamp(0.0, 1.0))

    def _logits(self, h: Tensor) -> Tensor:
        """The head's logits in float32 at least, (*, D) -> (*, K)."""
        logits = self.network.head(h)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _of_rows(function: Any, like: Any) -> Any:
    """`terms`, `bound` or `loss` of a method, which asks whether the rows are texts of this method."""

    @functools.wraps(function)
    def ask(self: Method, batch: Batch, generator: Randomness = None) -> Any:
        return function(self._texts(batch), batch, generator)

    return arguments.checked(ask, like=like)


def _same_rows(x: Tensor, t: Tensor | float, at: Tensor | None) -> None:
    """InputError unless times t broadcast to the tokens x (B, L), and `at` says True or False of each."""
    if isinstance(t, Tensor) and (
        t.ndim > x.ndim or any(a not in (1, b) for a, b in zip(t.shape[::-1], x.shape[::-1]))
    ):
        raise InputError(f"t is {tensor(t)}; it must be a time, or times that broadcast to {tuple(x.shape)}")
    if at is not None and (at.shape != x.shape or at.dtype != torch.bool):
        raise InputError(f"at is {tensor(at)}; it must be True and False, of the shape {tuple(x.shape)}")


def _times(batch: Batch, t: Tensor | float) -> Tensor:
    """Times (B, L), CLEAN where a token is given."""
    t = torch.as_tensor(t, dtype=torch.float64, device=batch.tokens.device).expand(batch.tokens.shape)
    return t if batch.mask is None else torch.where(batch.mask, t, CLEAN)


def per_position(t: Tensor) -> Tensor:
    """Times (B,) of rows or (B, L) of positions, as they broadcast to (B, L)."""
    return t if t.ndim == 2 else t[:, None]


def largest(t: Tensor, block: int, segments: Tensor | None = None) -> Tensor:
    """Times (B, L) -> (B, L): at each position the largest of its block, since the given ones in it are CLEAN.

    With packed documents, `segments` (B, L), blocks are counted from the first position of each.
    """
    start, place = documents(torch.zeros_like(t, dtype=torch.long) if segments is None else segments)
    first = start + place // block * block
    return torch.full_like(t, CLEAN).scatter_reduce(1, first, t, "amax").gather(1, first)


for _name in ("terms", "bound", "loss"):  # of Method itself; a class that has its own: `__init_subclass__`
    setattr(Method, _name, _of_rows(vars(Method)[_name], vars(Method)[_name]))
