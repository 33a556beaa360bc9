"""Frames of a sampling trajectory, and the samples at its end."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.files import write_file
from ..base.launched import Place, join
from ..base.schema import structure
from ..samplers import State
from ..samplers.growing import Ending, Growth, again
from ..samplers.insertion import Inserted
from ..samplers.metropolis import Walk, report
from ..samplers.pairing import Distribution
from ..samplers.smc import Constant, Particles
from ..samplers.tau_leaping import Leap, Leaps, describe_leaps, joined_leaps
from ..show.numbers import count, counted, duration, pm, token_rate
from ..show.record import Record, json_record
from ..show.style import Mark
from .sampling import Sampling

S = TypeVar("S", bound=Sampling)
NAMED = 20  # numbers of samples in a line


@dataclass(frozen=True)
class Frame:
    """The state of a batch after `step` of `steps` sampling steps.

    Attributes:
        state: the sampler's state.
        t: its time, 1 before the first step, 0 after the last.
        before: (B, L) the tokens one step earlier.
        first: the number of the first sample in it (of `count`), or how many were finished before it.
        seconds: time spent sampling this batch so far, without the time spent on the frames.
        tokenizer, mask: of the model; the mask's token or None.
        end: the token that ends a text, of a model trained on documents; else None.
        classes: the name of the class of each sample; () without classes.
        expected_calls: network evaluations of a sample in expectation, the mean of all samples; None where unknown.
        passes: of the network in one step's evaluation; a pass is what counts as an evaluation.
        numbers: of the samples in it, where they do not follow each other; else ().
    """

    state: State
    step: int
    steps: int
    t: float
    before: Tensor
    first: int
    count: int
    seconds: float
    tokenizer: Any
    mask: int | None
    end: int | None = None
    expected_calls: float | None = None
    classes: tuple[str, ...] = ()
    passes: int = 1
    numbers: tuple[int, ...] = ()

    @property
    def x(self) -> Tensor:
        """(B, L) tokens."""
        return self.state.x

    @property
    def fixed(self) -> Tensor:
        """(B, L) bool, the given tokens."""
        return self.state.fixed

    @property
    def calls(self) -> Tensor:
        """(B,) network evaluations so far."""
        return self.state.calls * self.passes

    @property
    def masked(self) -> Tensor:
        """(B, L) bool, masked tokens. Noise that absorbs into a token of the data leaves none at the end."""
        at_end = self.step == self.steps and self.mask is not None and self.mask < self.tokenizer.size
        return torch.zeros_like(self.fixed) if self.mask is None or at_end else self.x == self.mask

    @property
    def new(self) -> Tensor:
        """(B, L) bool, tokens that took their value in this step."""
        return (self.x != self.before) & ~self.masked

    @property
    def ends(self) -> list[int]:
        """Tokens of each text: all, or fewer where it ended. Sampled in any order, a text does not end before the last step."""
        memory = self.state.memory
        if isinstance(memory, Growth):
            return memory.ends.tolist()
        end = self.end if self.step == self.steps else None
        ends = Ending(end).find(self.x, self.fixed, 0, self.x.shape[1])
        return (ends.minimum(memory.ends) if isinstance(memory, Inserted) else ends).tolist()

    @property
    def reached(self) -> list[int]:
        """The end of what is given or being written of each text; a sampler that writes left to right is not at the end of it."""
        memory = self.state.memory
        if not isinstance(memory, Growth):
            return self.ends
        prefixes = self.fixed.long().cumprod(-1).sum(-1).tolist()
        return [min(end, max(memory.end, first)) for end, first in zip(self.ends, prefixes)]

    @cached_property
    def text(self) -> list[str]:
        """The texts; a masked token is `·`."""
        return [self.tokenizer.decode(row[:end]) for row, end in zip(self.x.tolist(), self.ends)]

    def marks(self, row: int) -> list[Mark]:
        """The state of each token of a sample, as `show.style` names it."""
        was_token = torch.zeros_like(self.fixed) if self.mask is None else self.before != self.mask
        codes = torch.full_like(self.x, 2)
        codes[self.x != self.before] = 4  # another token than before
        codes[self.new & ~was_token & (self.mask is not None)] = 1
        codes[self.masked] = 0
        codes[self.masked & was_token] = 5  # a token before, masked again
        codes[self.fixed] = 3
        names: tuple[Mark, ...] = ("masked", "new", "shown", "given", "changed", "again")
        return [names[code] for code in codes[row].tolist()]


@dataclass(frozen=True)
class Group:
    """The weighted particles of one sample (`samplers.smc`), the sample itself the first of them.

    Attributes:
        log_z: logarithm of the estimate of the normalising constant.
        ess: the smallest effective sample size of any step; 0 where the reward forbids every particle.
        resampled: how often the particles were drawn anew.
        weights, tokens: of each particle at the end; the weights sum to 1.
    """

    log_z: float
    ess: float
    resampled: int
    weights: list[float]
    tokens: list[list[int]]


class _Line(TypedDict):
    text: str
    tokens: list[int]
    calls: int


class _Result(TypedDict):
    samples: list[_Line]
    steps: int
    expected_calls: float | None
    sampling_seconds: float


class _Document(TypedDict):
    result: _Result


@dataclass(frozen=True)
class Samples(Record):
    """Finished samples and their cost: the record of `zellige.Sample` and `zellige.Infill`.

    Attributes:
        texts, tokens: of each sample.
        calls: network evaluations of each.
        steps: sampling steps; seconds: of all batches.
        walks: where the samples are ends of Markov chains: a `Walk` for each batch.
        expected_calls: network evaluations of a sample in expectation; None where unknown.
        tries: how often each sample was drawn again since it repeated itself.
        ended: whether a token ended each sample before its length; False of a sampler that does not write left to right.
        repeating: samples that still repeat themselves.
        classes: the class of each sample, or None.
        groups: the weighted particles of each sample, or None.
        forbidden: whether the reward forbids each sample, -inf for all of its particles.
        leaps: of tau-leaping, what fraction of the positions jumped, was clipped and was rejected in each step.
        distribution: the one that the samples are drawn from; None where something is given.
        request: the request, with the model's defaults filled in.
    """

    texts: list[str]
    tokens: list[list[int]]
    calls: list[int]
    steps: int
    seconds: float
    walks: list[Walk] = field(default_factory=list)
    expected_calls: float | None = None
    tries: list[int] = field(default_factory=list)
    ended: list[bool] = field(default_factory=list)
    repeating: int = 0
    classes: list[str | None] = field(default_factory=list)
    distribution: Distribution | None = None
    groups: list[Group | None] = field(default_factory=list)
    leaps: list[Leap] = field(default_factory=list)
    forbidden: list[bool] = field(default_factory=list)

    @property
    def idle(self) -> list[int]:
        """Steps of each sample without a network evaluation, since nothing moved (other steps may evaluate it twice)."""
        return [max(self.steps - calls, 0) for calls in self.calls]

    @property
    def speed(self) -> float:
        """Tokens a second, all samples together."""
        return sum(map(len, self.tokens)) / self.seconds if self.seconds else 0.0

    def lines(self) -> list[dict[str, Any]]:
        """Each sample as JSON has it: {text, tokens, seed, calls, prompt}, with its class where it has one.

        A sample that the reward forbids also has `"forbidden": true`.
        """
        request = self.request if isinstance(self.request, Sampling) else None
        prompts = [None] * len(self.texts) if request is None else request.prompts(len(self.texts))
        return [
            {"text": text, "tokens": tokens, "seed": None if request is None else request.seed, "calls": calls, "prompt": prompt}
            | ({} if label is None else {"class": label})
            | ({} if group is None else {"particles": asdict(group)})
            | ({"forbidden": True} if forbidden else {})
            for text, tokens, calls, prompt, label, group, forbidden in zip(
                self.texts, self.tokens, self.calls, prompts, self.classes, self.groups or [None] * len(self.texts),
                self.forbidden or [False] * len(self.texts),
            )
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        request = self.request if isinstance(self.request, Sampling) else None
        distribution = self.distribution
        result = {
            "samples": self.lines(), "steps": self.steps, "expected_calls": self.expected_calls,
            "sampling_seconds": self.seconds,
        } | ({"leaps": [asdict(leap) for leap in self.leaps]} if self.leaps else {})  # fmt: skip
        return json_record(
            None if request is None else type(request).__name__.lower(), self.arguments, result,
            protocol=None if distribution is None else distribution.protocol | {"bounded by": distribution.number},
            seed=request.seed if request is not None and isinstance(request.seed, int) else None,
            seconds=self.seconds, request=request,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "it") -> "Samples":
        result = structure(dict(document), _Document, f"'{source}'")["result"]
        lines, protocol = result["samples"], document.get("protocol") or {}
        classes = [line.get("class") for line in document["result"]["samples"]]
        groups = [line.get("particles") for line in document["result"]["samples"]]
        return cls(
            [line["text"] for line in lines], [line["tokens"] for line in lines], [line["calls"] for line in lines],
            result["steps"], result["sampling_seconds"], expected_calls=result["expected_calls"],
            tries=[0] * len(lines), classes=classes,
            distribution=Distribution.of_protocol(protocol, protocol.get("bounded by")),
            groups=[None if group is None else Group(**group) for group in groups],
            leaps=[Leap(**leap) for leap in document["result"].get("leaps") or ()],
            forbidden=[line.get("forbidden", False) for line in document["result"]["samples"]],
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the samples: as JSON lines (.jsonl), one text a line (.txt), or as the JSON of a record."""
        path = Path(path)
        if path.suffix == ".jsonl":
            write_file(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines()))
        elif path.suffix == ".txt":
            write_file(path, "".join(f"{text}\n" for text in self.texts))
        else:
            super().save(path)

    def __str__(self) -> str:
        """`2 samples, 512 tokens, 0.9 s, 569 tokens/s`; `63 network evaluations each (1 of 64 steps changed nothing)`.

        Of chains also `38.2% of 1,000 proposals accepted, autocorrelation time 21 proposals`, of tau-leaping what its leaps
        came to.
        """
        number = f"{counted(len(self.texts), 'sample')}, {counted(sum(map(len, self.tokens)), 'token')}"
        calls = f"{_range(self.calls)} network evaluation{'' if set(self.calls) == {1} else 's'} each"
        notes = [] if self.expected_calls is None else [f"{self.expected_calls:,.1f} expected"]
        if any(self.idle):
            notes.append(f"{_range(self.idle)} of {counted(self.steps, 'step')} changed nothing")
        steps = (f" ({'; '.join(notes)})" if notes else "") + (
            "" if any(self.idle) else f" in {counted(self.steps, 'step')}"
        )
        walks = f"\n  {report(self.walks)}" if self.walks else ""
        first = f"{number}, {duration(self.seconds)}, {token_rate(self.speed)}\n  {calls}{steps}"
        leaps = f"\n  {describe_leaps(self.leaps)}" if self.leaps else ""
        return f"{first}{walks}{leaps}{self._redrawn()}{self._weighed()}{self._forbidden()}"

    def _weighed(self) -> str:
        """`8 particles each: log Z -1.234 ± 0.120, effective sample size at least 3.2, resampled 0 to 2 times`; "" without.

        The interval (95%) is that of the mean of Z over the samples, where they have one target (`samplers.smc.Constant`).
        """
        groups = [group for group in self.groups if group is not None]
        if not groups:
            return ""
        sizes, request = [len(group.weights) for group in groups], self.request
        one_target = len(set(self.classes)) < 2 and len(set(getattr(request, "given_texts", list)())) < 2
        one_target = one_target and getattr(request, "fixed", None) is None
        log_z, notes = torch.tensor([group.log_z for group in groups], dtype=torch.float64), ""
        if len(groups) == 1:
            value = f"{groups[0].log_z:.3f}"
        elif one_target:
            constant = Constant.of(log_z)
            value = pm(constant.value, constant.half)
            if math.isinf(constant.half):
                notes = f"\n  {constant.why}; take more samples or particles, or a weaker reward"
        else:
            allowed = log_z[log_z > -math.inf]
            value = f"{float(allowed.min()):.3f} to {float(allowed.max()):.3f}"
        least = min(group.ess for group in groups)
        times = _range([group.resampled for group in groups])
        return (
            f"\n  {_range(sizes)} particle{'' if set(sizes) == {1} else 's'} each: log Z {value}, effective sample size at "
            f"least {least:.1f}, resampled {times} time{'' if times == '1' else 's'}{notes}"
        )

    def _forbidden(self) -> str:
        """`the reward forbids 2 of 8 samples (-inf): 1, 5`, the first one being 1; "" where it forbids none."""
        numbers = [number for number, forbidden in enumerate(self.forbidden, 1) if forbidden]
        if not numbers:
            return ""
        more = f" and {count(len(numbers) - NAMED)} more" if len(numbers) > NAMED else ""
        return (
            f"\n  the reward forbids {count(len(numbers))} of {counted(len(self.texts), 'sample')} (-inf): "
            f"{', '.join(map(count, numbers[:NAMED]))}{more}"
        )

    def some_allowed(self) -> "Samples":
        """The samples themselves; InputError where the reward forbids all of them."""
        if self.forbidden and all(self.forbidden):
            raise InputError(
                f"`reward` forbids {'the sample' if len(self.texts) == 1 else f'all {count(len(self.texts))} samples'} (-inf for "
                "every particle); take more `particles` or another seed, or a reward that allows more"
            )
        return self

    def _redrawn(self) -> str:
        """`3 samples drawn again, 5 times in all; 1 sample still below entropy` on its own line; "" where there are none."""
        redrawn = sum(tries > 0 for tries in self.tries)
        if not redrawn:
            return ""
        still = f"; {counted(self.repeating, 'sample')} still below `entropy`" if self.repeating else ""
        return f"\n  {counted(redrawn, 'sample')} drawn again, {counted(sum(self.tries), 'time')} in all{still}"


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def collect(frames: Iterable[Frame], see: Callable[[Frame], None] | None = None) -> Samples:
    """Return the samples at the end of a trajectory; each frame is shown to `see`."""
    batches, numbers = list[Samples](), list[int]()
    for frame in frames:
        if see:
            see(frame)
        if frame.step == frame.steps:
            batches.append(_finished(frame))
            numbers += frame.numbers or range(frame.first, frame.first + len(frame.x))
    return joined(batches, numbers)


def _finished(frame: Frame) -> Samples:
    """The samples of a batch's last frame."""
    memory = frame.state.memory
    tries = memory.tries if isinstance(memory, Growth) else None
    return Samples(
        texts=frame.text,
        tokens=[row[:end] for row, end in zip(frame.x.tolist(), frame.ends)],
        calls=frame.calls.tolist(),
        steps=frame.steps,
        seconds=frame.seconds,
        walks=[memory] if isinstance(memory, Walk) else [],
        expected_calls=frame.expected_calls,
        tries=[0] * len(frame.x) if tries is None else tries.tolist(),
        ended=_ended(frame),
        repeating=len(again(frame.state)),
        classes=list(frame.classes) or [None] * len(frame.x),
        groups=_groups(frame),
        forbidden=_forbidden(frame),
        leaps=memory.fractions() if isinstance(memory, Leaps) else [],
    )


def _ended(frame: Frame) -> list[bool]:
    """Whether a token ended each text of a batch's last frame; one that was stopped since it repeats itself has not ended."""
    memory = frame.state.memory
    if not isinstance(memory, Growth):
        return [False] * len(frame.x)
    repeats = torch.zeros_like(memory.ends, dtype=torch.bool) if memory.repeats is None else memory.repeats
    ended = (memory.ends < frame.x.shape[1]) & ~repeats
    return ended.tolist()


def _groups(frame: Frame) -> list[Group | None]:
    """The weighted particles of each sample of a batch's last frame; None where there are none."""
    memory = frame.state.memory
    if not isinstance(memory, Particles) or memory.log_weights.shape[1] == 1:
        return [None] * len(frame.x)
    tokens = torch.cat((frame.x[:, None], memory.others), 1).tolist()
    values: list[list[Any]] = [v.tolist() for v in (memory.log_z, memory.ess, memory.resampled, memory.weights)]
    return [Group(*group) for group in zip(*values, tokens, strict=True)]


def _forbidden(frame: Frame) -> list[bool]:
    """Whether the reward forbids all particles of each sample of a batch's last frame."""
    memory = frame.state.memory
    return (memory.log_z == -math.inf).tolist() if isinstance(memory, Particles) else [False] * len(frame.x)


def joined(parts: Sequence[Samples], numbers: Sequence[int] | None = None) -> Samples:
    """Join sets of samples into one; `numbers` has the place of each sample of the parts in it, in their order by default."""
    total = sum(len(part.texts) for part in parts)
    places = sorted(range(total), key=range(total).__getitem__ if numbers is None else numbers.__getitem__)

    def column(name: str) -> list[Any]:
        values = [value for part in parts for value in getattr(part, name)]
        return [values[place] for place in places]

    return Samples(
        texts=column("texts"),
        tokens=column("tokens"),
        calls=column("calls"),
        steps=parts[-1].steps if parts else 0,
        seconds=sum(part.seconds for part in parts),
        walks=[walk for part in parts for walk in part.walks],
        expected_calls=parts[-1].expected_calls if parts else None,
        tries=column("tries"),
        ended=column("ended"),
        repeating=sum(part.repeating for part in parts),
        classes=column("classes"),
        distribution=parts[-1].distribution if parts else None,
        groups=column("groups"),
        leaps=joined_leaps([part.leaps for part in parts]),
        forbidden=column("forbidden"),
    )


# ---------------------------------------------------------------------------------------------------- several processes
def share(here: Place, request: S) -> S | None:
    """The part of a request that a process draws: every sample whose number leaves its rank; None where none is left for it."""
    classes = request.labels or ()
    numbers = range(here.rank, request.count * max(len(classes), 1), here.world)
    if not numbers:
        return None
    seed = [(request.seed, number) for number in numbers]
    if not classes:
        return replace(request, count=len(numbers), seed=seed)
    return replace(request, count=1, classes=[classes[number // request.count] for number in numbers], seed=seed)


def gather(here: Place, samples: Samples | None) -> Samples:
    """Join what all processes have drawn, as if one had; every process must call it."""
    join(here)
    parts: list[Any] = [None] * here.world
    torch.distributed.all_gather_object(parts, samples)
    parts = [part for part in parts if part is not None]
    numbers = [rank + here.world * row for rank, part in enumerate(parts) for row in range(len(part.texts))]
    return replace(joined(parts, numbers), seconds=max(part.seconds for part in parts)).some_allowed()
