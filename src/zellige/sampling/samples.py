"""The samples at the end of a sampling trajectory."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import torch

from ..base.files import write_file
from ..base.processes import Place, join
from ..base.schema import structure
from ..samplers import SAMPLERS
from ..samplers.pairing import Distribution
from ..samplers.sampler import Summary, extent, ordered
from ..show.numbers import counted, duration, pm, token_rate
from ..show.record import Record, json_record
from .request import Sampling
from .trajectory import Frame


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
        expected_calls: network evaluations of a sample in expectation; None where unknown.
        classes: the class of each sample, or None.
        summary: what the sampler reports beside the tokens, such as weighted particles; None: nothing.
        distribution: the one that the samples are drawn from; None where something is given.
        request: the request, with the model's defaults filled in.
    """

    texts: list[str]
    tokens: list[list[int]]
    calls: list[int]
    steps: int
    seconds: float
    expected_calls: float | None = None
    classes: list[str | None] = field(default_factory=list)
    distribution: Distribution | None = None
    summary: Summary | None = None

    @property
    def speed(self) -> float:
        """Tokens a second, all samples together."""
        return sum(map(len, self.tokens)) / self.seconds if self.seconds else 0.0

    def lines(self) -> list[dict[str, Any]]:
        """Each sample as JSON has it: {text, tokens, seed, calls, prompt},
        with its class and what the sampler reports of it."""
        request = self.request if isinstance(self.request, Sampling) else None
        prompts = [None] * len(self.texts) if request is None else request.prompts(len(self.texts))
        seed, lines = None if request is None else request.seed, list[dict[str, Any]]()
        for number, (text, tokens, calls, prompt) in enumerate(zip(self.texts, self.tokens, self.calls, prompts)):
            line = {"text": text, "tokens": tokens, "seed": seed, "calls": calls, "prompt": prompt}
            label = self.classes[number] if self.classes else None
            line |= {} if label is None else {"class": label}
            lines.append(line | ({} if self.summary is None else self.summary.of_sample(number)))
        return lines

    def to_dict(self) -> dict[str, Any]:
        request = self.request if isinstance(self.request, Sampling) else None
        distribution = self.distribution
        result = {
            "samples": self.lines(),
            "steps": self.steps,
            "expected_calls": self.expected_calls,
            "sampling_seconds": self.seconds,
        } | ({} if self.summary is None else self.summary.of_all())
        return json_record(
            None if request is None else type(request).__name__.lower(),
            self.arguments,
            result,
            protocol=None if distribution is None else distribution.protocol | {"bounded by": distribution.number},
            seed=request.seed if request is not None and isinstance(request.seed, int) else None,
            seconds=self.seconds,
            request=request,
        )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "it") -> "Samples":
        result = structure(dict(document), _Document, f"'{source}'")["result"]
        lines, protocol = result["samples"], document.get("protocol") or {}
        kinds = dict.fromkeys(sampler.report for sampler in SAMPLERS.values() if sampler.report is not None)
        summaries = (kind.read(document["result"]) for kind in kinds)
        return cls(
            [line["text"] for line in lines],
            [line["tokens"] for line in lines],
            [line["calls"] for line in lines],
            result["steps"],
            result["sampling_seconds"],
            expected_calls=result["expected_calls"],
            classes=[line.get("class") for line in document["result"]["samples"]],
            distribution=Distribution.of_protocol(protocol, protocol.get("bounded by")),
            summary=next((summary for summary in summaries if summary is not None), None),
        )

    def take(self, numbers: Sequence[int]) -> "Samples":
        """Select samples, in this order."""
        parts = {name: ordered(numbers, getattr(self, name)) for name in ("texts", "tokens", "calls", "classes")}
        summary = None if self.summary is None else type(self.summary).joined([self.summary], numbers)
        return replace(self, **parts, summary=summary)

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
        """`2 samples, 512 tokens, 0.9 s, 569 tokens/s`; `63 network evaluations each in 64 steps`.

        Below that, what the sampler reports.
        """
        number = f"{counted(len(self.texts), 'sample')}, {counted(sum(map(len, self.tokens)), 'token')}"
        calls = f"{extent(self.calls)} network evaluation{'' if set(self.calls) == {1} else 's'} each"
        expected = "" if self.expected_calls is None else f" ({self.expected_calls:,.1f} expected)"
        steps = f"{expected} in {counted(self.steps, 'step')}"
        first = f"{number}, {duration(self.seconds)}, {token_rate(self.speed)}\n  {calls}{steps}"
        more = "" if self.summary is None else self.summary.describe(pm, self._one_target)
        return f"{first}\n  {more}" if more else first

    @property
    def _one_target(self) -> bool:
        """Whether all samples have one distribution: one class, one prompt, nothing else given."""
        prompts = getattr(self.request, "given_texts", list)()
        return max(len({*self.classes}), len({*prompts})) < 2 and getattr(self.request, "fixed", None) is None

    def some_allowed(self) -> "Samples":
        """The samples themselves; InputError where the reward forbids all of them."""
        if self.summary is not None:
            self.summary.refuse()
        return self


def collect(frames: Iterable[Frame], see: Callable[[Frame], None] | None = None) -> Samples:
    """Return the samples at the end of a trajectory; each frame is shown to `see`."""
    batches, numbers = list[Samples](), list[int]()
    for frame in frames:
        if see:
            see(frame)
        if frame.is_last:
            batches.append(_finished(frame))
            numbers += frame.numbers
    return joined(batches, numbers)


def _finished(frame: Frame) -> Samples:
    """The samples of a batch's last frame."""
    return Samples(
        texts=frame.text,
        tokens=frame.tokens,
        calls=frame.calls.tolist(),
        steps=frame.steps,
        seconds=frame.seconds,
        expected_calls=frame.trajectory.expected_calls,
        classes=list(frame.classes) or [None] * len(frame.x),
        summary=frame.state.notes.summary(frame.state),
    )


def joined(parts: Sequence[Samples], numbers: Sequence[int] | None = None) -> Samples:
    """Join sets of samples into one; `numbers` has the place of each sample of the parts in it,
    in their order by default."""
    total = sum(len(part.texts) for part in parts)
    places = sorted(range(total), key=range(total).__getitem__ if numbers is None else numbers.__getitem__)

    def column(name: str) -> list[Any]:
        return ordered(places, *(getattr(part, name) for part in parts))

    summaries = [part.summary for part in parts if part.summary is not None]
    return Samples(
        texts=column("texts"),
        tokens=column("tokens"),
        calls=column("calls"),
        steps=parts[-1].steps if parts else 0,
        seconds=sum(part.seconds for part in parts),
        expected_calls=parts[-1].expected_calls if parts else None,
        classes=column("classes"),
        distribution=parts[-1].distribution if parts else None,
        summary=type(summaries[0]).joined(summaries, places) if summaries else None,
    )


# ---------------------------------------------------------------------------------------------------- several processes
def gather(here: Place, samples: Samples | None) -> Samples:
    """Join what all processes have drawn, as if one had; every process must call it."""
    join(here)
    parts: list[Any] = [None] * here.world
    torch.distributed.all_gather_object(parts, samples)
    parts = [part for part in parts if part is not None]
    numbers = [rank + here.world * row for rank, part in enumerate(parts) for row in range(len(part.texts))]
    return replace(joined(parts, numbers), seconds=max(part.seconds for part in parts)).some_allowed()
