"""A method: a network, a process, and what they mean together.

`Method` says what trainers, evaluators and samplers may ask. A method of a paper is one file in `methods/`: a process, a time
for the network, and `read`, which makes a prediction of its logits. Predictions, bounds and samples follow (`terms` assembles
the ELBO). Only where the paper differs it gives `cost` (its closed form of the bound at one position), `corrupt`, `terms`,
`loss` or `estimators`.
"""

import copy
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from .. import arguments
from ..core import bound, random
from ..core.batch import Batch, Estimator
from ..core.prediction import Prediction, truth
from ..core.process import Process
from ..core.random import Randomness
from ..core.schedule import CLEAN
from ..errors import unknown
from ..nn.attention import documents
from ..nn.block import Net
from ..nn.kinds import build_network
from . import checks, terms

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
        time_input: what a network that is conditioned on time is told: "t", in units of 1/1000, or "sigma" = -log alpha.
        parameterization: what the network gives: "mean", "leave_one_out", "score" or "next" (an instance may say otherwise).
        loss_is_bound: whether `loss` is a draw of `bound` (its unit is then shown in training).
        bounded: whether it has a likelihood bound; `bound` raises NoBound where it has none.
        exact: whether `bound` is -log p itself, with nothing drawn.
        adapts: how many rows `adapt` asks for at each validation of a training; 0: it is not called.
        sampler: the sampler it is drawn with unless another is asked for.
        variants: what its paper reports, as changes of Config; `verify` checks each.
        pointwise: whether its positions are independent, so that `read` says all; a class with a `predict` of its own is not.
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
    time_input: str = "t"
    parameterization: str = "mean"
    loss_is_bound: bool = True
    bounded: bool = True
    exact: bool = False
    adapts: int = 0
    sampler: str = "ancestral"
    variants: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    pointwise: bool = True
    ordered: bool = False

    process: Process
    _window: int | None = None  # where `of_length` made it: the length of its network

    def __init_subclass__(cls, **more: Any) -> None:
        """What is asked of a method from outside checks what it is given, also where a class has its own."""
        super().__init_subclass__(**more)
        for name in ("terms", "bound", "loss"):
            if name in vars(cls):
                setattr(cls, name, checks.of_rows(vars(cls)[name], getattr(Method, name)))
        if "predict" in vars(cls):
            cls.pointwise = False
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
        chosen: Any = cls.Config() if config is None else config
        for field, known in cls.choices.items():
            if (name := getattr(chosen, field)) not in known:
                raise unknown(field, name, known, f"zellige train {cls.name} --help")
        return chosen

    @classmethod
    def resolve(cls, config: Any) -> "type[Method]":
        """The class that a config asks for: itself, unless the file has another for one of its choices (BD3-LM's score)."""
        return cls

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
        """The choice that makes sense only where tokens are ordered, as errors say it: "`process` gaussian"; or None."""
        for field, names in cls.of_levels.items():
            if (name := getattr(config, field)) in names:
                return f"`{field}` {name}"
        return None

    @classmethod
    def build_network(cls, net: Net, vocabulary: int, config: Any) -> nn.Module:
        """A fresh network for this method; noise that needs an order tells a U-Net to read levels as numbers."""
        states, outputs, levels = (
            cls.states(vocabulary, config),
            cls.outputs(vocabulary, config),
            cls.needs_order(config),
        )
        return build_network(net, states, cls.timed(config), outputs, cls.blocks(config), levels=levels is not None)

    @property
    def by_counts(self) -> bool:
        """Whether a draw of its bound draws numbers of masks, not times."""
        return False

    # ---------------------------------------------------------------------------------- what a paper says
    def network_time(self, t: Tensor) -> Tensor:
        """What the network is told at time t in [0, 1]: 1000 t, the unit in which the published code embeds it, or sigma."""
        return (self.process.schedule.sigma(t)[..., 0] if self.time_input == "sigma" else 1000 * t).float()

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
        beside = Batch(x_t, None, segments, condition)
        checks.refuse_times(x_t, t, at)
        K = self.states(self.vocabulary, self.config) if self.process is None else self.process.K
        checks.refuse_tokens(x_t, K)
        h = self.hidden(x_t, t, beside, context)
        t = torch.as_tensor(t, dtype=torch.float64, device=x_t.device).expand(x_t.shape)
        if at is not None:
            h, x_t, t = h[at], x_t[at], t[at]
        return self.read(self.logits(h), x_t, t)

    def clean(self, batch: Batch) -> Tensor | None:
        """The tokens (B, L) that the network reads beside x_t when x_0 is known: none, but for a method of blocks."""
        return None

    @arguments.checked
    def corrupt(self, batch: Batch, t: Tensor | float, generator: Randomness = None) -> Tensor:
        """x_t ~ q(. | x_0), (B, L); given positions stay clean."""
        checks.refuse_times(batch.tokens, t, None)
        return self.process.sample(batch.tokens, terms.where_noised(batch, t), generator)

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
        if not self.pointwise:
            return terms.from_prediction(self, batch, x_t, t)
        return terms.summed(self, self.cost, batch, x_t, t)

    def step(self, batch: Batch, x_t: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """The discrete bound of the step from t to s given x_t, summed over the sequence; times as there: (B,) nats."""
        if not self.pointwise:
            return terms.from_prediction(self, batch, x_t, t, s)
        return terms.summed(self, self.cost, batch, x_t, t, s)

    def prior_term(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """KL(q(x | x_0) || prior) where sampling starts, and the jump PRIOR -> t = 1 if it starts there: (B,) nats."""
        return terms.prior(self, batch, generator)

    def groups(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Positions that share a time, or a number of masks: all of a row, but in a method of blocks.

        Which group a position is in (B, L), and how many positions that count each group has (B, G); groups follow one another.
        """
        x = batch.tokens
        n = x.new_full((len(x), 1), x.shape[1]) if batch.mask is None else batch.mask.sum(-1, keepdim=True)
        return torch.zeros_like(x), n

    def draw_times(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """Times in (0, 1], stratified: one for each row (B,); in a method of blocks one for each block, (B, L).

        At 0 a rate may be infinite.
        """
        group, n = self.groups(batch)
        t = 1 - random.spread(n, generator)
        return t[:, 0] if t.shape[1] == 1 else t.gather(1, group)

    def terms(self, batch: Batch, generator: Randomness = None) -> dict[str, Tensor]:
        """One unbiased draw of each term of an upper bound on -log p(x_0): (B,) nats, float64.

        Keys: "diffusion", "reconstruction", "prior". Times are stratified over the rows.
        """
        return (terms.discrete_time if self.steps else terms.continuous_time)(self, batch, generator)

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

    def learned_quantities(self) -> dict[str, Tensor]:
        """What it learned about each token beside its network, by name: (V,) each; nothing for most methods.

        Tokens are told apart by the first; a token with a larger value appears earlier in generation.
        """
        return {}

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

    # ---------------------------------------------------------------------------------- asking the network
    def hidden(self, x: Tensor, t: Tensor | float | None, batch: Batch | None = None, context: Any = None) -> Tensor:
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
                more["clean_time"] = self.input_times(x, CLEAN, None)
        elif context is not None:
            more["cache"] = context
        return self.network.features(x, self.input_times(x, t, more.get("segments")), **more)

    def extend(self, cache: Any, x: Tensor, valid: Tensor | None = None, condition: Tensor | None = None) -> Any:
        """A network of blocks' cache (None: nothing yet) once it has read clean tokens x (B, n) too; see `DiT.advance`."""
        more = {} if condition is None else {"condition": condition}
        return self.network.extend(cache, x, self.input_times(x, CLEAN, None), valid, **more)  # pyright: ignore

    def input_times(self, x: Tensor, t: Tensor | float | None, segments: Tensor | None) -> Tensor | None:
        """What the network is told at times t: (B,), or (B, L) where blocks have their own."""
        if not self.time_conditioned:
            return None
        t, L = torch.as_tensor(t, dtype=torch.float64, device=x.device), x.shape[1]
        if t.ndim == 2 and t.shape[1] > 1 and (segments is not None or 0 < self.block < L):
            t = largest(t, self.block or L, segments)
        else:
            t = (t.amax(-1) if t.ndim == 2 else t).expand(len(x))
        return self.network_time(t.clamp(0.0, 1.0))

    def logits(self, h: Tensor) -> Tensor:
        """The head's logits in float32 at least, (*, D) -> (*, K)."""
        logits = self.network.head(h)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def largest(t: Tensor, block: int, segments: Tensor | None = None) -> Tensor:
    """Times (B, L) -> (B, L): at each position the largest of its block, since the given ones in it are CLEAN.

    With packed documents, `segments` (B, L), blocks are counted from the first position of each.
    """
    start, place = documents(torch.zeros_like(t, dtype=torch.long) if segments is None else segments)
    first = start + place // block * block
    return torch.full_like(t, CLEAN).scatter_reduce(1, first, t, "amax").gather(1, first)


for _name in ("terms", "bound", "loss"):  # of Method itself; a class that has its own: `__init_subclass__`
    setattr(Method, _name, checks.of_rows(vars(Method)[_name], vars(Method)[_name]))
