"""The interface of a method: a network and what a paper computes with it.

`Method` is what trainers and evaluators use of every paper: its construction, loss, bound, other likelihoods, and the
network's inputs. A paper with a noise process is a `Diffusion` (`diffusion`).

Public methods check their arguments: sequences must fit the method, and times and positions must have the shape of the
batch.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from ..base import arguments
from ..base.errors import InputError, unknown
from ..base.requests import check_fields
from ..base.waiting import at_hand
from ..core.batch import Batch, Estimate, Estimator, tensor
from ..core.positions import Positions
from ..core.process import Process
from ..core.random import Counter, Randomness, uniform
from ..core.schedule import CLEAN, as_time
from ..nn.attention import documents
from ..nn.block import Net
from ..nn.compiler import require_compiler
from ..nn.int8 import count_weights, is_quantized, quantize
from ..nn.network import build_network
from ..nn.precision import PRECISIONS, lower, products

ROUNDING = 1e-6  # of a time that was computed, such as that at which alpha has a value


def checks_rows(function: Callable[..., Any], like: Callable[..., Any]) -> Any:
    """Wrap `terms`, `bound` or `loss` of a method: reject sequences that do not fit it, and compute in its precision.

    `Method.__init_subclass__` wraps those of a subclass, the last lines of this file those of `Method` itself. In a
    compiled step the batch gets its `spare` uniform instead.
    """

    @functools.wraps(function)
    def checked(self: "Method", batch: Batch, generator: Randomness = None) -> Any:
        refuse_rows(self, batch)
        if self.latents:
            raise InputError(MIXTURE)
        if torch.compiler.is_compiling():
            device = batch.tokens.device
            counted = isinstance(generator, Counter)
            spare = generator.spare(device) if counted else uniform((len(batch),), generator, device)[0]
            return function(self, replace(batch, spare=spare), generator)
        with self._in_precision(batch.tokens.device):
            return function(self, batch, generator)

    return arguments.checked(checked, like=like)


def device_of(method: nn.Module) -> torch.device:
    """Where a method computes."""
    return next((p.device for p in method.parameters()), torch.device("cpu"))


def refuse_rows(method: "Method", batch: Batch) -> None:
    """Raise InputError unless the batch fits the method's length and vocabulary; skipped in a compiled step."""
    if torch.compiler.is_compiling():
        return
    rows, length = batch.tokens.shape
    if not rows or not 0 < length <= method.shape[0]:
        raise InputError(
            f"tokens are {tensor(batch.tokens)}; they must be one row or more, of 1 to {method.shape[0]:,} tokens"
        )
    states, process = method.vocabulary, method.process
    if process is not None and process.blank is not None and process.blank < states:
        states = process.K  # the mask is among the tokens, those after it are numbered one further
    refuse_tokens(batch.tokens, states)


def refuse_tokens(x: Tensor, states: int) -> None:
    """Raise InputError unless tokens are 0 to `states` - 1, if they can be read."""
    if not at_hand(x) or not x.numel():
        return
    low, high = (int(value) for value in x.aminmax())
    if low < 0 or high >= states:
        raise InputError(f"tokens hold {low if low < 0 else high:,}; they must be 0 to {states - 1:,}")


def refuse_times(method: "Method", x: Tensor, t: Tensor | float, at: Tensor | None = None) -> None:
    """Raise InputError unless times t broadcast to the tokens x (B, L) and `at` is (B, L) bool."""
    if isinstance(t, Tensor) and (
        t.ndim > x.ndim or any(a not in (1, b) for a, b in zip(t.shape[::-1], x.shape[::-1]))
    ):
        raise InputError(f"`t` is {tensor(t)}; it must be a time, or times that broadcast to {tuple(x.shape)}")
    if at is not None and (at.shape != x.shape or at.dtype != torch.bool):
        raise InputError(f"`at` is {tensor(at)}; it must be True and False, of the shape {tuple(x.shape)}")
    if method.process is None or not at_hand(t := as_time(t)) or not t.numel():
        return
    low, high = method.process.span
    earliest, latest = (float(value) for value in torch.where(t.isinf(), low, t.detach().double()).aminmax())
    if not low - ROUNDING <= earliest <= latest <= high + ROUNDING:  # so of nan
        wrong = latest if low <= earliest else earliest
        raise InputError(f"`t` is {wrong:g}; it must be from {low:g} to {high:g}, CLEAN or PRIOR")


C = TypeVar("C")  # a method's own Config
N = TypeVar("N", bound=nn.Module)


MIXTURE = "a mixture over a latent has no bound and no loss of its own; judge its samples, or evaluate its teacher"


class NoBound(TypeError):
    """The method defines no likelihood bound."""


class Method(nn.Module):
    """A paper's method: a network, and the distribution or score that it parameterizes.

    Class attributes:
        name: on the command line.
        system, paper, noise: what its authors call it, the arXiv number of their paper, and its noise in a few words.
        Config: a frozen dataclass of the method's options.
        choices: the allowed names of a field of Config; `checked` rejects others.
        of_levels: of a field of Config, the values that need ordered tokens.
        parameterization: of the network's output: "mean", "leave_one_out", "score" or "next" (an instance may differ).
        loss_is_bound: whether `loss` is a sample of `bound`; training then shows its unit, unless times are `middle`.
        bounded: whether it has a likelihood bound; `bound` raises NoBound where it has none.
        approximate: whether its terms follow published code and are no bound; a result is then an estimate.
        exact: whether `bound` is -log p itself, without sampling.
        learns_in_the_middle: whether `train.times` middle helps: a time is a share of noise, only the network learns.
        adapts: number of examples for `adapt` at each validation in training; 0: it is not called.
        sampler: the default sampler.
        variants: the models that its paper reports, as changes of Config; `verify` checks each.
        ordered: whether tokens are ordered, such as pixel values or pitches; `methods.build` sets it on an instance.
        verifier: a causal head for the sampler `speculative`, (h, x, turn) -> h; `verified_by` gives an instance one.

    Args:
        network: features and head (see `nn.network`); the head has K logits.
        vocabulary: V, the number of data tokens.
        shape: (L,).
        config: the method's own choices.
        process: the noise; None where there is none (CSM, AR).
        timed: whether the network is time-conditioned.
        steps: 0 for continuous time; T for a T-step model, used by its chain, its bound and its samplers (the option
            `diffusion_steps`); a process in discrete time sets it itself. The steps of a sample may be fewer, and those
            of a training (`Train.steps`) are another thing.
    """

    name: ClassVar[str]
    system: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    noise: ClassVar[str] = "-"
    Config: ClassVar[type]
    choices: ClassVar[Mapping[str, Collection[str]]] = {}
    of_levels: ClassVar[Mapping[str, Collection[Any]]] = {}
    parameterization: str = "mean"
    loss_is_bound: bool = True
    bounded: bool = True
    approximate: bool = False
    exact: bool = False
    learns_in_the_middle: ClassVar[bool] = False
    adapts: int = 0
    sampler: str = "ancestral"
    variants: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    ordered: bool = False
    verifier: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None

    network: Any  # with `features` and `head`; see `nn.network.Network`
    process: Process | None
    _precision: str | None = None  # `compute_in`: of the network's matrix products; None: the caller's
    compiles: bool = False  # the network where it is evaluated: for a loop that compiles no whole step

    def __init_subclass__(cls, **more: Any) -> None:
        """Add the checks of arguments to the public methods that a subclass overrides (`checks_rows`)."""
        super().__init_subclass__(**more)
        if "Config" in vars(cls):
            check_fields(cls.Config, kinds=False)
        for name in ("terms", "bound", "loss"):
            if name in vars(cls):
                setattr(cls, name, checks_rows(vars(cls)[name], getattr(Method, name)))

    @arguments.checked
    def __init__(
        self,
        network: nn.Module | None = None,
        vocabulary: int = 0,
        shape: tuple[int, ...] = (),
        config: Any = None,
        process: Process | None = None,
        timed: bool = False,
        steps: int = 0,
    ):
        super().__init__()
        self.network, self.vocabulary, self.shape, self.config = network, vocabulary, tuple(shape), config
        # the length of the network; `of_length` changes that of the texts
        self.window = self.shape[0] if self.shape else 0
        # entry points of the network, shared by methods of all lengths
        self._compiled: dict[str, Callable[..., Any]] = {}
        self.process = process
        self.bounded = self.bounded and not self.latents
        self.time_conditioned, self.steps = timed, steps or getattr(process, "T", 0)

    @property
    def block(self) -> int:
        """Block length of the network; 0 if every position sees every other."""
        return getattr(self.network, "block", 0)

    @property
    def latents(self) -> int:
        """Number of values of the network's latent, where the model is a mixture over one (Di4C); else 0."""
        return getattr(self.network, "latents", 0)

    @property
    def parameter_count(self) -> int:
        """Number of parameters, those that are rounded to int8 among them."""
        return count_weights(self)

    @property
    def passes(self) -> int:
        """Number of passes of the network in one evaluation: two with self-conditioning, else one."""
        return getattr(self.network, "passes", 1)

    @arguments.checked
    def of_length(self, length: int) -> Self:
        """The same method for sequences of `length` tokens. It shares the network,
        whose own length stays the `window`."""
        copied = copy_of(self)
        copied.shape = (length,)
        return copied

    @arguments.checked
    def of_network(self, network: nn.Module) -> Self:
        """The same method with another network."""
        copied = copy_of(self)
        copied._modules, copied._compiled = self._modules | {"network": network}, {}
        return copied

    def verified_by(self, head: Callable[[Tensor, Tensor, Tensor], Tensor] | None) -> Self:
        """The same method with a causal head, which is no part of its weights, or with none."""
        copied = copy_of(self)
        object.__setattr__(copied, "verifier", head)  # a module, too, is no part of it
        return copied

    # ---------------------------------------------------------------------------------- how it is made
    @classmethod
    def checked(cls, config: C | None) -> C:
        """Return the config, the default one for None. Raises InputError if one of its `choices` is unknown. For a
        constructor."""
        checked_config: Any = cls.Config() if config is None else config
        for field, names in cls.choices.items():
            if (name := getattr(checked_config, field)) not in names:
                raise unknown(field, name, names, f"zellige train {cls.name} --help")
        return checked_config

    @classmethod
    def resolve(cls, config: Any) -> "type[Method]":
        """Return the class for a config: this one, unless the file has another for one of its choices
        (BD3-LM's score)."""
        return cls

    @classmethod
    def states(cls, vocabulary: int, config: Any) -> int:
        """Number K of states of the process, and of logits of the network's head."""
        raise NotImplementedError

    @classmethod
    def timed(cls, config: Any) -> bool:
        """Return whether the network is time-conditioned: `time` of the config, True by default."""
        return getattr(config, "time", True)

    @classmethod
    def outputs(cls, vocabulary: int, config: Any) -> int:
        """Number of outputs of the network's head per position: K logits,
        or two if `head` of the config is logistic."""
        return 2 if getattr(config, "head", "logits").startswith("logistic") else cls.states(vocabulary, config)

    @classmethod
    def block_size(cls, config: Any) -> int:
        """Length of the blocks that the network reads one after another; 0 if it reads the whole sequence at once."""
        return 0

    @classmethod
    def needs_order(cls, config: Any) -> str | None:
        """The choice that needs ordered tokens, as an error names it ("`process` gaussian"); None if there is none."""
        for field, names in cls.of_levels.items():
            if (name := getattr(config, field)) in names:
                return f"`{field}` {name}"
        return None

    @classmethod
    def build_network(cls, net: Net, vocabulary: int, config: Any) -> nn.Module:
        """Create a fresh network. Noise that needs ordered tokens makes a U-Net read pixel values as numbers."""
        states, outputs = cls.states(vocabulary, config), cls.outputs(vocabulary, config)
        levels = cls.needs_order(config) is not None
        return build_network(net, states, cls.timed(config), outputs, cls.block_size(config), levels=levels)

    # ---------------------------------------------------------------------------------- what a paper says
    def terms(self, batch: Batch, generator: Randomness = None) -> dict[str, Tensor]:
        """One unbiased sample of each term of an upper bound on -log p(x_0), by name: (B,) nats, float64."""
        raise NotImplementedError

    def bound(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """One unbiased sample of an upper bound on -log p(x_0), the sum of all terms: (B,) nats."""
        return torch.stack(list(self.terms(batch, generator).values())).sum(0)

    def loss(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """Training loss, summed over the sequence: (B,) nats. The bound, unless the paper differs.

        A call of this, `bound` or `terms` checks the batch first (`checks_rows`).
        """
        return self.bound(batch, generator)

    def for_step(self, generator: Randomness = None) -> Self:
        """The method whose loss a training step computes: itself, unless the step draws another configuration of it.

        A compiled step calls it outside of its graph.
        """
        return self

    def prepare(self) -> None:
        """Compute in advance what the first loss would compute and no batch changes, such as a table of matrices."""

    def adapt(self, batch: Batch, generator: Randomness = None) -> str:
        """Tune a buffer on `adapts` examples of the validation split, and describe the result in words."""
        raise NotImplementedError

    def estimators(self) -> dict[str, Estimator]:
        """Other estimators of -log p, by name; each gives (B,) nats."""
        return {}

    @property
    def reads_forward(self) -> bool:
        """Whether the method has `left_to_right`."""
        return False

    def left_to_right(self, batch: Batch, *targets: Tensor) -> Tensor:
        """-log p(target_i | x_1 .. x_{i-1}) of each position, 0 where it is given: (n, B, L) nats of n targets, exact.

        In a method of blocks the tokens after i in its block are masked. No texts are packed.

        Args:
            targets: (B, L) tokens each, those of the batch or others in their place.
        """
        raise InputError(f"{self.name} has no likelihood of a token given those on its left")

    def learned_quantities(self) -> dict[str, Tensor]:
        """Learned quantities of each token other than the network's, by name, (V,) each; empty for most methods.

        The first one distinguishes tokens; a token with a larger value appears earlier in generation.
        """
        return {}

    @property
    def discrete_time(self) -> str:
        """`discrete time, T = 64`; "" in continuous time or without time."""
        return f"discrete time, T = {self.steps:,}" if self.steps else ""

    # ---------------------------------------------------------------------------------- asking the network
    @arguments.checked
    def compute_in(self, precision: str, compile: bool = False) -> Self:
        """Set the precision of the network's matrix products; `compile` compiles the network.

        For sampling and evaluation; training has `train.precision` and `train.compile`. Computations on the network's
        outputs stay in float64.

        Args:
            precision: "float32" is that of the weights, and no less; "tf32", on a GPU, has 10 bits of mantissa and sums
                in float32 (elsewhere it is float32); "bfloat16" rounds the weights; "int8", on a CPU, rounds those of
                linear layers, and each row of their inputs, for good.
            compile: by torch.compile, and on a GPU whole steps of sampling (`samplers.captured`). The first of each
                kind take a minute or so.
        """
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        if precision == "int8" or is_quantized(self):
            self._round_to_int8(precision, compile)
        if compile:
            require_compiler()
        if (dtype := PRECISIONS[precision]) is not None:
            lower(self.network, dtype)
        self._precision, self.compiles = precision, compile
        return self

    def _round_to_int8(self, precision: str, compile: bool) -> None:
        device, rounds = next(self.parameters()).device.type, precision == "int8"
        if device != "cpu":
            use = "`device` cpu" if is_quantized(self) else "bfloat16"
            raise InputError(f"`precision` int8 is for a CPU, and the model is on {device}; use {use}")
        if compile:
            raise InputError("`precision` int8 is not compiled; leave `compile` out")
        if not rounds and precision != "float32":
            raise InputError(f"`precision` is {precision}, and the weights are rounded to int8; leave it out")
        quantize(self.eval().network)

    @property
    def precision(self) -> str:
        """Precision of the network: "float32", "tf32", "bfloat16" or "int8"; else the dtype of its weights."""
        if is_quantized(self):
            return "int8"
        weights = next(self.parameters(), torch.empty(0))
        if self._precision == "tf32" and weights.device.type == "cuda" and weights.dtype == torch.float32:
            return "tf32"
        return str(self._dtype or weights.dtype).removeprefix("torch.")

    @property
    def _dtype(self) -> torch.dtype | None:
        """dtype of the hidden states, if it differs from that of the weights."""
        return None if self._precision is None else PRECISIONS[self._precision]

    def _in_precision(self, device: torch.device) -> contextlib.AbstractContextManager[None]:
        """Context in which float32 products on a GPU use the precision of `compute_in`,
        also outside the hidden states."""
        return products(device, None if self._dtype is not None else self._precision)

    def _evaluate(self, entry: str) -> Callable[..., Any]:
        """An entry point of the network, compiled if requested: first for the given sizes, then for sizes that vary.

        What reads behind a cache is compiled for all sizes at once, since they differ from call to call.
        """
        function = getattr(self.network, entry)
        if not self.compiles or torch.compiler.is_compiling():
            return function
        if entry not in self._compiled:
            self._compiled[entry] = torch.compile(function, dynamic=None if entry == "features" else True)
        if entry == "features" or torch.is_grad_enabled():
            return self._compiled[entry]
        return functools.partial(_recorded, self._compiled[entry])

    def __getstate__(self) -> dict[str, Any]:
        """State for a copy or another process, without compiled functions."""
        return vars(self) | {"_compiled": {}}

    def hidden(
        self,
        x: Tensor,
        t: Tensor | float | None,
        batch: Batch | None = None,
        context: Any = None,
        at: Positions | None = None,
    ) -> Tensor:
        """Hidden states (B, L, D) of the network, or (N, D) at the positions `at`.

        Given positions are CLEAN; the time input is that of the others: one time for each sequence, or for each block
        of a network of blocks if t is (B, L). `context`: the other input of a network of blocks, clean tokens (B, L) or
        a cache; or an `Estimate` that a network with self-conditioning reads.
        """
        more: dict[str, Any] = {}
        if batch is not None and not (batch.segments is None and batch.condition is None):
            more = {"segments": batch.segments, "condition": batch.condition}
        if isinstance(context, Tensor):
            more["clean"] = context
            if self.time_conditioned:  # the time input of a cache of these tokens, which is made before there is a time
                more["clean_time"] = self.input_times(x, CLEAN, None)
        elif isinstance(context, Estimate):
            more["estimate"] = context.p
        elif context is not None:
            more["cache"] = context
        if getattr(self.network, "sees_given", False):
            more["given"] = clean_positions(x, t, batch)
        subset = at is not None and len(at.index) < x.numel()  # if all positions are read, nothing is left out
        if subset and getattr(self.network, "chooses", False):
            more["at"] = at
        times = self.input_times(x, t, more.get("segments"))
        with products(x.device, self._precision):
            h = self._evaluate("features")(x, times, **more)
        h = h if at is None or "at" in more else at.of(h)
        return h if self._dtype is None else h.to(self._dtype)

    def extend(self, cache: Any, x: Tensor, valid: Tensor | None = None, condition: Tensor | None = None) -> Any:
        """Extend a cache (None: empty) of a network of blocks by clean tokens x (B, n); see `DiT.advance`."""
        more = {} if condition is None else {"condition": condition}
        with products(x.device, self._precision):
            return self._evaluate("extend")(cache, x, self.input_times(x, CLEAN, None), valid, **more)

    def advance(self, cache: Any, x: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Any]:
        """Hidden states (B, n, D) of clean tokens x (B, n) behind a cache (None: empty), and the extended cache."""
        more = {} if condition is None else {"condition": condition}
        with products(x.device, self._precision):
            h, cache = self._evaluate("advance")(cache, x, **more)
        return h if self._dtype is None else h.to(self._dtype), cache

    def read_whole(self, x: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Any]:
        """Hidden states (B, L, D) of whole texts x (B, L), and the `Reading` beside which a part is read again."""
        with products(x.device, self._precision):
            h, reading = self.network.read(x, condition)
        return h if self._dtype is None else h.to(self._dtype), reading

    def reread(self, x: Tensor, start: int, reading: Any, condition: Tensor | None = None) -> Tensor:
        """Hidden states (B, n, D) of x (B, n), the texts from `start` on; the others are as in `reading`."""
        with products(x.device, self._precision):
            h = self.network.reread(x, start, reading, condition)
        return h if self._dtype is None else h.to(self._dtype)

    def input_times(self, x: Tensor, t: Tensor | float | None, segments: Tensor | None) -> Tensor | None:
        """The network's time input at times t: (B,), or (B, L) if blocks have their own times."""
        if not self.time_conditioned:
            return None
        assert t is not None, "a time-conditioned network reads a time"
        t, L = as_time(t, x.device).to(x.device, torch.float64), x.shape[1]
        if t.ndim == 2 and t.shape[1] > 1 and (segments is not None or 0 < self.block < L):
            t = largest(t, self.block or L, segments)
        else:
            t = (t.amax(-1) if t.ndim == 2 else t).expand(len(x))
        return self.network_time(t.clamp(0.0, 1.0))

    def network_time(self, t: Tensor) -> Tensor:
        """The network's time input at t in [0, 1]: 1000 t, the unit of the published embeddings."""
        return (1000 * t).float()

    def logits(self, h: Tensor) -> Tensor:
        """Logits of the head in float32 at least, (*, D) -> (*, K)."""
        with self._in_precision(h.device):
            logits = self.network.head(h)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def copy_of(module: N) -> N:
    """A copy of a module that shares its weights, buffers and modules."""
    copied = object.__new__(type(module))  # copy.copy would call the class, of a module that FSDP shards
    copied.__setstate__(vars(module))
    return copied


def _recorded(function: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Call a compiled function of sizes that vary, with gradients: without,
    PyTorch 2.13 fails to compile it for new sizes."""
    with torch.enable_grad():
        return function(*args, **more)


def clean_positions(x: Tensor, t: Tensor | float | None, batch: Batch | None) -> Tensor:
    """Positions of x (B, L) whose tokens carry no noise: those at time CLEAN, and those that the batch does not count.
    (B, L) bool."""
    given = torch.zeros_like(x, dtype=torch.bool) if batch is None or batch.mask is None else ~batch.mask
    return given | t.isneginf() if isinstance(t, Tensor) and t.shape == x.shape else given


def largest(t: Tensor, block: int, segments: Tensor | None = None) -> Tensor:
    """Largest time of each block, times (B, L) -> (B, L): given tokens in a block are CLEAN.

    With packed documents, `segments` (B, L), blocks are counted from the first position of each.
    """
    start, position = documents(torch.zeros_like(t, dtype=torch.long) if segments is None else segments)
    start_of_block = start + position // block * block
    return torch.full_like(t, CLEAN).scatter_reduce(1, start_of_block, t, "amax").gather(1, start_of_block)


for _name in ("terms", "bound", "loss"):  # of Method itself; those of a subclass: `__init_subclass__`
    setattr(Method, _name, checks_rows(vars(Method)[_name], vars(Method)[_name]))
