"""A number with its two 95% intervals: the result of `evaluate`, how it is computed, and its JSON.

With y_i the nats of a text (the mean over its draws) and n_i its units (characters or tokens), the number is the ratio
sum y / sum n. It has two intervals, both by Student's t:

    population   for other texts of the same kind. A text is one observation; the error is that of the residuals
                 y_i - (y/n) n_i. The interval includes the draws, so it is never the narrower one.
    draws        for other draws on the same texts. The draws of a group of texts are stratified together, so their errors
                 partly cancel, and s/sqrt(n) would be far too wide. Instead each group has R independent replicates of its
                 whole stratified set; the variance of its mean is that of the R sums, divided by R. The variances of the
                 groups add. Welch's rule (1947) gives the degrees of freedom, (R + 1) (sum v)^2 / sum v^2 - 2, at most
                 R - 1 per group. With fewer than 8 in all, the interval is unknown.

The fraction of the variance that comes from the draws is the ratio of the squared half-widths; the texts have the other part.

There are two perplexities: that of the corpus, exp(sum y / sum n), and the mean over texts of exp(y_i / n_i), which some
papers print. Since exp is convex, the noise of the draws makes the second larger (its `lift`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.schema import HIGH, LOW, UNREAD, entries_of, read_by
from ..models.class_names import WITHOUT_CLASS
from ..nn.precision import PRECISIONS
from ..show.numbers import perplexity, pm, quantity
from ..show.record import Figure, Record
from ..show.units import unit_of
from .interval import LEVEL, OVER_DRAWS, OVER_TEXTS, SKEWED, Interval, Proportion, over_draws, over_texts, skewness


def numbers(values: Sequence[float | None] | None) -> Tensor | None:
    """Numbers of each text from a file, float64; JSON has null for infinite."""
    return None if values is None else torch.tensor([math.inf if x is None else x for x in values], dtype=torch.float64)


@dataclass(frozen=True)
class PerSequence(Interval):
    """Mean over texts of the perplexity of each text, exp(nats / units).

    Attributes:
        value, low, high: the mean and its 95% interval over the population of texts.
        draws_low, draws_high: 95% interval over the draws, for the same texts.
        lift: part of the value that comes from the noise of the draws, to second order; None if unknown.
    """

    value: float = field(metadata=HIGH)
    low: float = field(metadata=LOW)
    high: float = field(metadata=HIGH)
    draws_low: float = field(metadata=LOW)
    draws_high: float = field(metadata=HIGH)
    lift: float | None


def per_sequence_perplexity(table: Tensor, sizes: Tensor, group: Tensor, equal: Tensor, kind: str) -> PerSequence:
    """Mean over texts of exp(nats / units); over the draws to first order, the lift to second."""
    has_units = sizes > 0
    table, sizes, group, equal = (x[has_units] for x in (table, sizes, group, equal))
    N, sets = table.shape
    perplexities = (table.mean(1) / sizes).exp()
    value = float(perplexities.mean())
    if not math.isfinite(value):
        return PerSequence(math.inf, -math.inf, math.inf, -math.inf, math.inf, None)
    draws_half, _ = over_draws(table * (perplexities / sizes)[:, None], group, kind)
    half, draws_half = over_texts(perplexities - value, draws_half, equal) / N, draws_half / N
    lift = 0.0 if kind == "exact" else None
    if kind != "exact" and sets > 1:
        lift = float((perplexities * table.var(1) / sets / sizes**2).mean()) / 2
    return PerSequence(value, value - half, value + half, value - draws_half, value + draws_half, lift)


DRAWS = 4  # of each text, where nobody says how many


@dataclass(frozen=True)
class Result(Interval, Record):
    """A number with its two intervals, in bits per character or nats per token, and what it was computed from.

    Attributes:
        value, low, high: the number and the ends of its 95% interval over the population of texts, unrounded.
        unit: key of its unit in `show.units`: "bits/char", "bits/dim", "bits/note", "bits/cell" or "nats/token".
        kind: "bound" (an upper bound), "exact", "estimate" (a bound without some of its terms, as in papers), "difference",
            or "loss" (no likelihood).
        terms: nats per sequence of each term.
        sequences, draws, units: numbers of texts, of draws of each, and of characters (or tokens) in all.
        protocol: all choices behind the number, by name.
        about: what was evaluated: model, data, split, ...
        document: the same number in nats per document, if rows hold documents; a row is still one observation.
        draws_low, draws_high: 95% interval over the draws, for the same texts; infinite if unknown.
        freedom: degrees of freedom of this interval; None if nothing is drawn.
        per_sequence: mean of the texts' perplexities; None if the number is no likelihood.
        undetermined: reason why there are no intervals, if the draws are too few; else "".
        tasks: results of the data's task (`tasks`), by name, such as the fraction of solved puzzles.
        partial: whether only some texts of the split were evaluated.
        nats, sizes: (N,) float64 for each text: the mean over its draws, and its number of units; not in the JSON.
    """

    advice: ClassVar = "give one of evaluate-*.json"
    value: float
    low: float = field(metadata=LOW)
    high: float = field(metadata=HIGH)
    unit: str
    kind: str = "bound"
    terms: dict[str, float] = field(default_factory=dict)
    sequences: int = 0
    draws: int = 1
    units: float = 0.0
    seed: int | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    document: "Result | None" = None
    draws_low: float = field(default=-math.inf, metadata=LOW)
    draws_high: float = field(default=math.inf, metadata=HIGH)
    freedom: int | None = None
    per_sequence: PerSequence | None = None
    undetermined: str = ""
    tasks: dict[str, Proportion] = field(default_factory=dict)
    partial: bool = False
    nats: Tensor | None = field(default=None, repr=False, compare=False, metadata=read_by(numbers))
    sizes: Tensor | None = field(default=None, repr=False, compare=False, metadata=UNREAD)

    @property
    def judged(self) -> str:
        """Description of the evaluated texts: `4 of 76, evenly spaced`."""
        return str(self.protocol.get("texts", "all"))

    @property
    def file_name(self) -> str:
        """`evaluate-SET-SPLIT.json`, with every choice that is not the default, so that no result replaces another.

        SET has a tag of its content if it is not the run's own data. `-limit-N` is a partial result; `-draws-N` and `-seed-N`
        have other draws; `-steps-4` and `-grid-cosine` have other steps than the model's; `-ends-none` and so on have other
        endpoint terms; `-terms-all` has all steps; `-unconditional` is a class-conditional model without a class; `-block-4`
        has this block size, for a model that was trained with several; `-precision-bfloat16` is less precise than float32;
        `-symmetries-8` is the average over 8 symmetric copies.
        """
        estimator = str(self.protocol.get("estimator", "bound"))
        parts = [self.about.get("data", "data"), self.about.get("other"), self.about.get("split", "test")]
        parts += [estimator if estimator not in ("bound", "divergence") else None]
        parts += [f"{name}-{self.protocol[name]}" for name in ("steps", "grid") if name in self.protocol]
        parts += [f"ends-{self.protocol['ends']}" if self.protocol.get("ends", "model") != "model" else None]
        parts += ["terms-all" if self.protocol.get("terms") == "all" else None]
        parts += ["unconditional" if self.protocol.get("class") == WITHOUT_CLASS else None]
        parts += [f"symmetries-{self.protocol['symmetries']}" if "symmetries" in self.protocol else None]
        parts += [f"{name}-{value}" for name, value in loaded(self.about, self.protocol).items()]
        parts += [f"limit-{self.sequences}" if self.partial else None]
        parts += [f"draws-{self.draws}" if self.draws != DRAWS and self.kind != "exact" else None]
        parts += [f"seed-{self.seed}" if self.seed and self.kind != "exact" else None]
        return "-".join(["evaluate", *(str(part).replace("/", "-") for part in parts if part)]) + ".json"

    @property
    def draws_half(self) -> float:
        """Half the width of the interval over the draws."""
        return (self.draws_high - self.draws_low) / 2

    @property
    def between(self) -> float | None:
        """Fraction of the squared `half` that comes from the texts, not from the draws; None if unknown."""
        if not self.draws_half <= self.half < math.inf:
            return None
        return 1 - (self.draws_half / self.half) ** 2 if self.half else 1.0

    @property
    def floor(self) -> float:
        """Approximate limit of `half` for infinitely many draws of the same texts; nan if unknown."""
        return math.nan if self.between is None else self.half * math.sqrt(self.between)

    @property
    def scale(self) -> float:
        """Nats in one information unit of the number."""
        return unit_of(self.unit).scale

    @property
    def perplexity(self) -> float:
        """exp of the nats per character (or token)."""
        return _exp(self.value * self.scale)

    @property
    def perplexity_low(self) -> float:
        return _exp(self.low * self.scale)

    @property
    def perplexity_high(self) -> float:
        return _exp(self.high * self.scale)

    @property
    def per(self) -> str:
        """Unit of the perplexity: "character", "token", "dimension", "note", "cell" or "document"."""
        return unit_of(self.unit).per

    @property
    def perplexity_text(self) -> str:
        """Text such as `≤ 2.661 ± 0.011 per character`; to first order in the interval."""
        return perplexity(self.perplexity, self.perplexity * self.half * self.scale, self.per, self.kind)

    def __str__(self) -> str:
        if self.kind == "difference":
            return f"{pm(self.value, self.half)} {unit_of(self.unit).title} (95%)"
        if self.kind == "loss":
            return f"loss {pm(self.value, self.half)} per {self.per} (95%), not a bound"
        return quantity(self.value, self.half, unit_of(self.unit).title, self.kind)

    def figures(self, where: str = "") -> list[Figure]:
        """The number and its perplexity; `where` is put before their names."""
        half = 0.0 if self.kind == "exact" else min(self.half, self.draws_half)  # exact: for these very texts
        distribution = self.protocol.get("distribution_key")
        number = Figure(f"{where}{self.unit}", self.value, half, self.unit, self.kind, distribution)
        p = _exp(self.value * self.scale)
        if self.kind == "loss" or not math.isfinite(p):
            return [number]
        return [number, Figure(f"{where}perplexity", p, p * half * self.scale, "perplexity", self.kind, distribution)]

    @property
    def per_character(self) -> Figure | None:
        """Bits per character, to compare models with different tokens on the same text.

        None for a loss, and if a text cannot be recovered from its tokens (`data.losses`): then the likelihood of the tokens
        does not bound that of the text.
        """
        return self._bits("char", self.about.get("characters_per_token"))

    @property
    def per_word(self) -> Figure | None:
        """Bits per word; 2 to this power is the perplexity per word.

        None if the data is no text, and as for `per_character`.
        """
        return self._bits("word", self.about.get("words_per_unit"))

    def _bits(self, noun: str, per_unit: float | None) -> Figure | None:
        """The number in bits per something, of which each unit has `per_unit`."""
        if not per_unit or self.kind == "loss":
            return None
        value, half = (number * self.scale / math.log(2) / per_unit for number in (self.value, self.half))
        return replace(self.figures()[0], name=f"bits/{noun}", unit=f"bits/{noun}", value=value, half=half)

    def claimable(self) -> list[Figure]:
        """`figures`, bits per character and per word, and the results of the data's task."""
        number, *others = self.figures()
        others += filter(None, [self.per_character, self.per_word])
        tasks = [Figure(name, task.value, task.half, "share", "estimate") for name, task in self.tasks.items()]
        return [number, *others, *tasks]

    @property
    def interval(self) -> dict[str, Any]:
        """The interval over the population, for the JSON."""
        why = {"why": self.undetermined} if self.undetermined else {}
        return {"low": self.low, "high": self.high, "level": LEVEL, "method": OVER_TEXTS} | why

    def content(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "value": self.value,
            "terms": self.terms,
            "perplexity": {
                "value": self.perplexity, "low": self.perplexity_low, "high": self.perplexity_high, "per": self.per,
                "average": "corpus", "per_sequence": None if self.per_sequence is None else asdict(self.per_sequence),
            },
            "over_draws": {
                "low": self.draws_low, "high": self.draws_high, "level": LEVEL, "method": OVER_DRAWS, "freedom": self.freedom,
            },
            "partial": self.judged if self.partial else None,
            "sequences": self.sequences, "draws": self.draws, "units": self.units, "between": self.between,
            "about": self.about,
        }  # fmt: skip
        if (word := self.per_word) is not None:
            result["per_word"] = {
                "value": word.value,
                "low": word.value - word.half,
                "high": word.value + word.half,
                "unit": word.unit,
            }
        if self.tasks:
            result["tasks"] = entries_of(self.tasks)
        if (of := self.document) is not None:
            result["document"] = {
                "value": of.value,
                "low": of.low,
                "high": of.high,
                "number": of.units,
                "unit": of.unit,
            }
        return result

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        result, interval = document["result"], document["interval"]
        drawn, whole = result.get("over_draws") or {}, result.get("document")
        return {
            **document,
            **result,
            "low": interval["low"],
            "high": interval["high"],
            "undetermined": interval.get("why", ""),
            "draws_low": drawn.get("low"),
            "draws_high": drawn.get("high"),
            "freedom": drawn.get("freedom"),
            "per_sequence": result["perplexity"]["per_sequence"],
            "partial": result.get("partial") is not None,
            "document": None if whole is None else {**whole, "units": whole["number"], "kind": document["kind"]},
        }


def loaded(about: Mapping[str, Any], protocol: Mapping[str, Any]) -> dict[str, Any]:
    """What the name of a result's file says of its model: the block size, of several; a precision below float32."""
    network = protocol.get("network")
    choices = {"precision": network} if network in PRECISIONS.keys() - {"float32"} else {}
    return {"block": about["block"], **choices} if "block" in about else choices


def fullest(results: Iterable[Result], data: str, block: int | None = None) -> Result | None:
    """Return the result that represents a model.

    It is on the test split of the model's own `data`; the number that `evaluate` gives without options comes before all
    others (`_is_standard`), all texts before a part, then most draws, then seed 0.

    Args:
        block: the model's own block size, if it was trained with several.
    """
    own_results = [
        r
        for r in results
        if r.about.get("data", data) == data and r.about.get("split", "test") == "test" and not r.about.get("other")
    ]
    standard = [r for r in own_results if _is_standard(r, block)]
    return max(
        standard or own_results, key=lambda r: (not r.partial, r.sequences, r.draws, -(r.seed or 0)), default=None
    )


def _is_standard(result: Result, block: int | None) -> bool:
    """Return whether it is the method's own number of the model as it is: no other ends, steps, class, block or
    precision, and no average over symmetries."""
    protocol = result.protocol
    own_number = (
        protocol.get("estimator", "bound") in ("bound", "divergence") and protocol.get("ends", "model") == "model"
    )
    same_model = protocol.get("class") != WITHOUT_CLASS and protocol.keys().isdisjoint(("steps", "symmetries"))
    return own_number and same_model and loaded(result.about, protocol).items() <= {"block": block}.items()


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def summarize(
    nats: Tensor,
    sizes: Tensor,
    unit: str,
    kind: str = "bound",
    *,
    group: Tensor | None = None,
    equal: Tensor | None = None,
    **more: Any,
) -> Result:
    """Compute the number, its two intervals, the split of its variance, and the mean perplexity per text.

    Args:
        nats: (N, R) of each text in each of R independent replicates of the draws, or (N,) if nothing is drawn.
        sizes: (N,) units (characters or tokens) of each text.
        unit: "bits/char", "nats/token", ...: determines whether nats are shown as bits.
        group: (N,) long, number of the group with which a text shares the strata of its draws; default: that of `equal`.
        equal: (N,) long, the same number for equal texts with the same draws; default: all are different.
        more: the other fields of `Result`.
    """
    table = nats.double().reshape(len(nats), -1)
    sizes = sizes.double()
    N, scale = len(table), unit_of(unit).scale
    mean, total = table.mean(1), float(sizes.sum())
    value = float(mean.sum()) / total
    equal = torch.arange(N) if equal is None else equal
    group = equal if group is None else group
    draws_half, freedom = over_draws(table, group, kind)
    half = over_texts(mean - value * sizes, draws_half, equal) / total
    draws_half /= total
    is_likelihood = kind in ("bound", "exact", "estimate") and unit != "nats/document"
    return Result(
        value / scale, (value - half) / scale, (value + half) / scale, unit, kind, sequences=N, units=total,
        freedom=int(freedom) if freedom < math.inf else None,
        draws_low=(value - draws_half) / scale, draws_high=(value + draws_half) / scale,
        per_sequence=per_sequence_perplexity(table, sizes, group, equal, kind) if is_likelihood else None,
        nats=mean, sizes=sizes, **more,
    )  # fmt: skip


def determined(result: Result, squares: Tensor) -> Result:
    """Return the result itself, or without intervals if too few of its draws are effective.

    Of the draws v, (sum v)^2 / sum v^2 are effective (Kish). If they are lognormal, this number determines the skewness of
    their mean; above SKEWED, Student's interval begins to miss (`interval.skewness`).

    Args:
        squares: (N,) for each text, the mean over its draws of the squared nats.
    """
    assert result.nats is not None
    assert result.sizes is not None
    has_units = result.sizes > 0
    size, n = result.sizes[has_units], int(has_units.sum()) * result.draws
    mean, square = float((result.nats[has_units] / size).mean()), float((squares[has_units] / size**2).mean())
    share = mean**2 / square if square > 0 else 1.0
    if not math.isfinite(mean) or skewness(share, 2 * n) <= SKEWED:
        return result
    return opened(
        result,
        f"not determined: a few large values dominate, so the {n:,} draws are worth only {n * share:.3g}; "
        "use more texts or more draws",
    )


def opened(result: Result, why: str) -> Result:
    """Return the result without intervals, which are undetermined; itself if `why` is ""."""
    if not why:
        return result
    open_ended = {"low": -math.inf, "high": math.inf, "draws_low": -math.inf, "draws_high": math.inf}
    per_sequence, document = result.per_sequence, result.document
    return replace(
        result,
        **open_ended,
        undetermined=why,
        per_sequence=None if per_sequence is None else replace(per_sequence, **open_ended),
        document=None if document is None else replace(document, **open_ended, undetermined=why),
    )


def difference(a: Result, b: Result) -> Result:
    """Paired difference a - b on the same texts; its interval is far narrower than those of a and b.

    If a or b is undetermined, so is the difference.
    """
    if a.nats is None or b.nats is None or a.sizes is None or b.sizes is None:
        raise InputError("a paired difference needs the numbers of each text; results read from a file have none")
    if a.unit != b.unit or len(a.nats) != len(b.nats) or not torch.allclose(a.sizes, b.sizes):
        raise InputError("a paired difference needs two results in one unit on the same texts")
    return opened(summarize(a.nats - b.nats, a.sizes, a.unit, "difference"), a.undetermined or b.undetermined)
