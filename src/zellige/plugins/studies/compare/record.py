"""Findings of a comparison, as types: the numbers of each method, the judge of its samples, and which methods differ.

compare.json holds `Findings`; measured.json a `Measurement` of each method, whose bound has the nats of each text, so
that paired differences can be taken later.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from zellige.base.schema import HIGH, LOW
from zellige.evaluation.interval import Interval, Number
from zellige.evaluation.result import Result
from zellige.plugins.evaluations.generate.sample_sets import Way
from zellige.samplers.choice import PLAIN

COSTS = ("evaluations", "time")  # of a sample


@dataclass(frozen=True, kw_only=True)
class Score(Interval):
    """A judge's number of rows, with its 95% interval.

    Attributes:
        value, low, high: nats or bits by n-grams; total variation from a known distribution.
        entropy: by n-grams, unigram entropy within a row in nats, mean over the rows.
        inside: by a distribution, fraction of the rows that lie in its support.
        reached: by a distribution, probability of the part of its support that the rows reach.
    """

    value: float
    low: float
    high: float
    entropy: float | None = None
    inside: float | None = None
    reached: float | None = None


@dataclass(frozen=True, kw_only=True)
class Quality(Score):
    """The score of a method's samples at one number of steps.

    Attributes:
        asked, steps: steps that the comparison asks for, and those that the sampler takes, of each block.
        calls: network evaluations of a sample, mean.
        samples: their number.
        example: the first of them.
    """

    asked: int
    steps: int
    calls: float
    samples: int
    example: str = ""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The judge's number of the data itself.

    Attributes:
        value: of real rows; of a distribution, what as many exact samples of it are expected to score.
        band: where the score of exact samples lies with 95%.
        rows: how many real rows, or rows of the distribution.
        low, high, entropy: by n-grams, as in `Score`.
        bound: of a distribution, its entropy in the unit of the bounds.
    """

    value: float
    band: tuple[float, float]
    rows: int
    low: float | None = None
    high: float | None = None
    entropy: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Judge:
    """The judge of the samples: "n-gram", or "law" for the data's own distribution; its name,
    and the unit of its numbers."""

    kind: str
    name: str
    unit: str

    @property
    def grams(self) -> bool:
        """Return whether it is an n-gram model."""
        return self.kind == "n-gram"


@dataclass(frozen=True)
class Bound(Interval):
    """The bound of one method; `nats` and `sizes` are those of each text, and stand in measured.json alone."""

    value: float = field(metadata=HIGH)
    low: float = field(metadata=LOW)
    high: float = field(metadata=HIGH)
    unit: str
    kind: str
    draws: int = 1
    terms: dict[str, float] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    nats: list[float] | None = field(default=None, repr=False)
    sizes: list[float] | None = field(default=None, repr=False)
    undetermined: str = ""

    @classmethod
    def of(cls, result: Result) -> "Bound":
        """A result of `evaluate`."""
        assert result.nats is not None
        assert result.sizes is not None
        return cls(
            result.value, result.low, result.high, result.unit, result.kind, result.draws, result.terms, result.protocol,
            result.nats.tolist(), result.sizes.tolist(), result.undetermined,
        )  # fmt: skip

    def result(self) -> Result:
        """The result that it is of, as far as a paired difference needs it."""
        nats = torch.tensor(self.nats, dtype=torch.float64).nan_to_num(math.inf)  # a file has null for infinite
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        return Result(
            self.value, self.low, self.high, self.unit, self.kind, protocol=self.protocol, nats=nats, sizes=sizes,
            undetermined=self.undetermined,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BySampler:
    """The scores of a method's samples by one sampler, `psi:kappa=0.9`, at each number of network evaluations."""

    sampler: str
    quality: tuple[Quality, ...]


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The numbers of one trained method; `by_sampler`: of those samplers that the comparison names and the method
    supports."""

    parameters: int
    sampler: str
    bound: Bound | None
    quality: tuple[Quality, ...]
    tokens_per_second: float | None
    by_sampler: tuple[BySampler, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measurement(Numbers):
    """The same as measured.json keeps them; `key` is all that they depend on."""

    key: dict[str, Any]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class DataMeasurement:
    """Contents of measured.json about the data: its judge, and that judge's number of it;
    `key` is all that these depend on."""

    key: dict[str, Any]
    judge: Judge
    reference: Reference


@dataclass(frozen=True, kw_only=True)
class Row(Numbers):
    """A method in the table; two methods share a letter if they are not told apart.

    Attributes:
        seeds: where it was trained with several seeds, the bound of each run; the other numbers are then means over
            them.
    """

    method: str
    variant: str
    label: str
    folder: str
    letters: str = ""
    steps: int | None = None
    seeds: tuple[float, ...] = ()


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table: its name, what the paper reports, the recipe, and the folder of the run that stands for
    it.

    note: why no run does, or which other row's run it is.
    """

    name: str
    published: tuple[str, ...]
    recipe: str
    folder: str
    note: str


@dataclass(frozen=True)
class Paper:
    """The table of a paper whose rows were compared on other data: its name, title, protocol and columns.

    substitute: the data in the place of the paper's; minutes: of training for each row.
    """

    name: str
    title: str
    protocol: str
    columns: tuple[str, ...]
    substitute: str
    minutes: float
    rows: tuple[PaperRow, ...]


@dataclass(frozen=True)
class Difference(Interval):
    """The bound of one method minus that of another on the same texts, with its 95% interval; `same`:
    not told apart."""

    method: str
    minus: str
    value: float
    low: float = field(metadata=LOW)
    high: float = field(metadata=HIGH)
    same: bool


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The table of a comparison.

    Attributes:
        data: the data set's name; `rows`: what its rows are called, "text" or "data".
        unit: of the bounds.
        steps: of training, the most where the methods take other numbers of them.
        partial: `4 of 76, evenly spaced` where not all texts of the test split were evaluated.
        calls: numbers of steps that samples were drawn with.
        methods: best first.
        differences: of each pair of methods with a bound.
        command: the command line that made it, if any.
        paper: the table whose rows they are, if they are.
        seeds: those that each method was trained with, where they are several.
    """

    data: str
    rows: str
    unit: str
    steps: int
    partial: str | None
    calls: tuple[int, ...]
    judge: Judge
    reference: Reference
    methods: tuple[Row, ...]
    differences: tuple[Difference, ...]
    command: str | None
    paper: Paper | None = None
    seeds: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """Number of samples per number of steps."""
        return self.methods[0].quality[0].samples


# ---------------------------------------------------------------------------------------------------- samplers of one model
@dataclass(frozen=True, kw_only=True)
class SamplerPoint:
    """One sampler at one number of steps.

    Attributes:
        samples: their number; calls: network evaluations of one, mean; seconds: that sampling all of them took.
        tokens: of all samples, what was given included.
        measures: by name; exact: -log p of held-out data in nats per token, where the sampler has it.
        unbeaten: costs, of COSTS, in which no other point beats it; close: those in which one does, within the
            intervals.
    """

    way: Way
    samples: int
    calls: float
    seconds: float
    tokens: int
    measures: dict[str, Number]
    exact: Number | None = None
    example: str = ""
    unbeaten: tuple[str, ...] = ()
    close: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The sampler with its options: "confidence temperature=0"."""
        way = self.way
        changed = {name: getattr(way, name) for name in PLAIN if getattr(way, name) != 1}
        return " ".join([way.name, *(f"{name}={value:g}" for name, value in changed.items())])

    def cost(self, kind: str) -> float:
        """Network evaluations of a sample, or its seconds."""
        return self.calls if kind == COSTS[0] else self.seconds / self.samples

    @property
    def per_second(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds if self.seconds else math.inf


@dataclass(frozen=True, kw_only=True)
class SamplerFindings:
    """The points of a comparison, in the order in which they were asked for.

    Attributes:
        data: the data set's name; `kind`: of the quality, "puzzles", "enumerable", "molecules" or "data".
        quality, beside: names of the two measures that are shown; `higher`: whether more of the first is better.
        real: the measures of held-out data against other held-out data, where there are any.
    """

    data: str
    kind: str
    quality: str
    beside: str
    higher: bool
    points: tuple[SamplerPoint, ...]
    real: dict[str, Number] = field(default_factory=dict)
