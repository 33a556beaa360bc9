"""A number with its 95% interval: what `evaluate` returns, how it is made of the nats of each text, and its JSON.

A text is one observation: the mean over its draws. With y_i its nats and n_i its units (characters or tokens), the number is
the ratio sum y / sum n, and its standard error that of the residuals y_i - (y/n) n_i (for texts of one length: that of the
mean). The interval is Student's, so it is honest for a handful of texts too. How much of it is the texts and how much the
draws is the analysis of variance of the table texts x draws.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from .errors import InputError
from .terminal import dumps, number, pm, record

LEVEL = 0.95


def student(freedom: int, level: float = LEVEL) -> float:
    """The half-width of Student's t in standard errors: P(|T| <= it) = level.

    By bisection of the closed form of the distribution function for whole degrees of freedom (Abramowitz and Stegun
    26.7.3 and 26.7.4); above 400 by the expansion 26.7.5, whose error is then below 1e-9.
    """
    if freedom < 1:
        return math.inf
    if freedom > 400:
        z = NormalDist().inv_cdf((1 + level) / 2)
        g1, g2 = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + g1 / freedom + g2 / freedom**2 + g3 / freedom**3

    def within(t: float) -> float:
        angle = math.atan(t / math.sqrt(freedom))
        sine, square = math.sin(angle), math.cos(angle) ** 2
        odd = freedom % 2
        term = math.cos(angle) if odd else 1.0
        total = term if freedom > 1 else 0.0
        for k in range(2 + odd, freedom - 1, 2):
            term *= (k - 1) / k * square
            total += term
        return 2 / math.pi * (angle + sine * total) if odd else sine * total

    low, high = 0.0, 1e3
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < level else (low, middle)
    return high


@dataclass(frozen=True)
class Result:
    """A number with its interval, in bits per character or nats per token, and what it was made of.

    Attributes:
        value, low, high: the number and the ends of its 95% interval, unrounded.
        unit: "bits/char", "bits/dim", "bits/note", "bits/cell" or "nats/token".
        kind: "bound" (the number is an upper bound), "exact", "difference", or "loss" (no likelihood).
        terms: nats a sequence of each term.
        between: share of the squared half-width that lies between the texts; the rest is the draws'.
        sequences, draws, units: how many texts, draws of each, characters (or tokens) in all.
        protocol: everything that was done, by name.
        about: what was evaluated: model, data, split, ...
        document: the same number in nats per document, where rows hold documents; a row is still one observation.
        nats, sizes: (N,) float64 of each text, the mean over its draws and its number of units; not in the JSON.
    """

    value: float
    low: float
    high: float
    unit: str
    kind: str = "bound"
    terms: dict[str, float] = field(default_factory=dict)
    between: float = 1.0
    sequences: int = 0
    draws: int = 1
    units: float = 0.0
    seed: int | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    document: "Result | None" = None
    nats: Tensor | None = field(default=None, repr=False, compare=False)
    sizes: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2

    @property
    def floor(self) -> float:
        """What `half` would come down to with ever more draws of the same texts."""
        return self.half * math.sqrt(self.between)

    @property
    def scale(self) -> float:
        """Nats in one of the number's information units."""
        return math.log(2) if self.unit.startswith("bits") else 1.0

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
        """What a perplexity is per: "character", "token", "dimension", "note", "cell" or "document"."""
        return {"char": "character", "dim": "dimension"}.get(self.unit.partition("/")[2], self.unit.partition("/")[2])

    @property
    def perplexity_text(self) -> str:
        """`≤ 2.661 ± 0.011 per character`; to first order in the interval."""
        return number(self.perplexity, self.perplexity * self.half * self.scale, f"per {self.per}", self.kind)

    def __str__(self) -> str:
        if self.kind == "difference":
            return f"{pm(self.value, self.half)} {self.unit} (95%)"
        if self.kind == "loss":
            return f"loss {pm(self.value, self.half)} per {self.per} (95%), not a bound"
        return number(self.value, self.half, self.unit, self.kind)

    def to_dict(self, command: str | None = "evaluate", arguments: Any = None) -> dict[str, Any]:
        """As JSON has it; the same keys as every command's."""
        result = {
            "value": self.value,
            "terms": self.terms,
            "perplexity": {
                "value": self.perplexity, "low": self.perplexity_low, "high": self.perplexity_high, "per": self.per,
            },
            "sequences": self.sequences, "draws": self.draws, "units": self.units, "between": self.between,
            "about": self.about,
        }  # fmt: skip
        if self.document is not None:
            of = self.document
            result["document"] = {
                "value": of.value,
                "low": of.low,
                "high": of.high,
                "number": of.units,
                "unit": of.unit,
            }
        return record(
            command, self.about.get("arguments") if arguments is None else arguments, result,
            interval={"low": self.low, "high": self.high, "level": LEVEL, "method": "Student's t over texts"},
            unit=self.unit, kind=self.kind, protocol=self.protocol, seed=self.seed, seconds=self.seconds,
        )  # fmt: skip

    def to_json(self, path: str | Path, command: str | None = "evaluate", arguments: Any = None) -> None:
        """Write the number, its interval and the whole protocol."""
        Path(path).write_text(dumps(self.to_dict(command, arguments)) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | Path) -> "Result":
        """Read what `to_json` wrote (without the numbers of each text)."""
        return cls.from_dict(read(path), str(path))

    @classmethod
    def from_dict(cls, data: dict[str, Any], source: str = "it") -> "Result":
        try:
            result, interval = data["result"], data["interval"]
            of, document = result.get("document"), None
            if of is not None:
                document = cls(of["value"], *_ends(of), of["unit"], data["kind"], units=of["number"])
            return cls(
                result["value"], *_ends(interval), data["unit"], data["kind"], result["terms"], result["between"],
                result["sequences"], result["draws"], result["units"], data["seed"], data["protocol"],
                result.get("about", {}), data["seconds"], document,
            )  # fmt: skip
        except (KeyError, TypeError) as missing:
            raise InputError(
                f"'{source}' is not a result of tessella evaluate; give one of evaluate-*.json"
            ) from missing


def _ends(interval: dict[str, Any]) -> tuple[float, float]:
    low, high = interval["low"], interval["high"]  # JSON has no infinity
    return -math.inf if low is None else low, math.inf if high is None else high


def read(path: str | Path) -> dict[str, Any]:
    """The JSON of a result that was written before."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file at '{path}'; give one that tessella evaluate wrote")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as broken:
        raise InputError(f"'{path}' is not JSON; give a file that tessella evaluate wrote") from broken


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def summarize(nats: Tensor, sizes: Tensor, unit: str, kind: str = "bound", **more: Any) -> Result:
    """The number, its interval and the split of its variance.

    Args:
        nats: (N, R) of each text and of each of R independent sets of draws, or (N,) where nothing is drawn.
        sizes: (N,) units (characters or tokens) of each text.
        unit: "bits/char", "nats/token", ...: whether the nats are shown as bits.
        more: the other fields of `Result`.
    """
    table = nats.double().reshape(len(nats), -1)
    sizes = sizes.double()
    (N, sets), scale = table.shape, math.log(2) if unit.startswith("bits") else 1.0
    mean, total = table.mean(1), float(sizes.sum())
    value = float(mean.sum()) / total
    spread = float((mean - value * sizes).square().sum() / (N - 1)) if N > 1 else math.inf  # of one text's mean
    within = float(table.var(1).mean()) / sets if sets > 1 else 0.0  # of it, what the draws bring
    between = 1.0 if spread in (0.0, math.inf) else min(max(1 - within / spread, 0.0), 1.0)
    half = student(N - 1) * math.sqrt(N * spread) / total if N > 1 else math.inf
    return Result(
        value / scale, (value - half) / scale, (value + half) / scale, unit, kind, between=between, sequences=N,
        units=total, nats=mean, sizes=sizes, **more,
    )  # fmt: skip


def difference(a: Result, b: Result) -> Result:
    """a - b on the same texts, paired: its interval is that of the differences, far narrower than either's own."""
    if a.nats is None or b.nats is None or a.sizes is None or b.sizes is None:
        raise ValueError("a paired difference needs the numbers of each text; results read from a file have none")
    if a.unit != b.unit or len(a.nats) != len(b.nats) or not torch.allclose(a.sizes, b.sizes):
        raise ValueError("a paired difference needs two results in one unit on the same texts")
    return summarize(a.nats - b.nats, a.sizes, a.unit, "difference")
