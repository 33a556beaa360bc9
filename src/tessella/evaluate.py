"""How good a model is: an upper bound on -log p, or -log p itself, with a 95% interval, and everything that was done to get it.

A text is one observation: the mean over its draws. With y_i its nats and n_i its units (characters or tokens), the number is
the ratio sum y / sum n, and its standard error that of the residuals y_i - (y/n) n_i (for texts of one length: that of the
mean). The interval is Student's, so it is honest for a handful of texts too. How much of it is the texts and how much the
draws is the analysis of variance of the table texts x draws.

Draws are stratified in two halves, independent of each other: the draws of one text in one half lie evenly spread over the
strata of its group, and how far the two halves differ is what the draws bring. (Among stratified draws themselves the
variance says nothing: they differ because their times do.) Groups, not batches, own the random numbers, so that the batch
size is a matter of memory only.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from . import maths
from ._module import callable_module
from .errors import InputError, unknown
from .generate import check, load, mix
from .method import Batch, Estimator, Method
from .terminal import dumps, number, pm, record

GROUP = 64  # rows (texts x draws) that share their strata
PROTOCOL = "tessella-1"
LEVEL = 0.95


# ---------------------------------------------------------------------------------------------------- the interval
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
        unit: "bits/char" or "nats/token".
        kind: "bound" (the number is an upper bound), "exact", or "difference".
        terms: nats a sequence of each term.
        between: share of the squared half-width that lies between the texts; the rest is the draws'.
        sequences, draws, units: how many texts, draws of each, characters (or tokens) in all.
        protocol: everything that was done, by name.
        about: what was evaluated: model, data, split, ...
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
        """What a perplexity is per: "character" or "token"."""
        return {"char": "character"}.get(self.unit.partition("/")[2], self.unit.partition("/")[2])

    @property
    def perplexity_text(self) -> str:
        """`≤ 2.661 ± 0.011 per character`; to first order in the interval."""
        return number(self.perplexity, self.perplexity * self.half * self.scale, f"per {self.per}", self.kind)

    def __str__(self) -> str:
        if self.kind == "difference":
            return f"{pm(self.value, self.half)} {self.unit} (95%)"
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
            low, high = (math.inf * s if v is None else v for s, v in ((-1, interval["low"]), (1, interval["high"])))
            return cls(
                result["value"], low, high, data["unit"], data["kind"], result["terms"], result["between"],
                result["sequences"], result["draws"], result["units"], data["seed"], data["protocol"],
                result.get("about", {}), data["seconds"],
            )  # fmt: skip
        except (KeyError, TypeError) as missing:
            raise InputError(
                f"'{source}' is not a result of tessella evaluate; give one of evaluate-*.json"
            ) from missing


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


# ---------------------------------------------------------------------------------------------------- the drawing
@torch.no_grad()
def evaluate_rows(
    method: Method,
    rows: Any,
    *,
    draws: int = 4,
    seed: int = 0,
    limit: int | None = None,
    batch: int = GROUP,
    characters: float | None = None,
    device: torch.device | str | None = None,
    estimator: str = "bound",
    progress: Callable[[int, int], None] | None = None,
    protocol: dict[str, Any] | None = None,
) -> Result:
    """The bound (or another estimator of the method) on the rows of a data set.

    An estimator that draws nothing (the exact likelihood in a given order) is asked once for each text, whatever `draws` says.

    Args:
        rows: a sequence of examples with `collate(list) -> Batch`.
        limit: so many of the rows, evenly spaced; all by default.
        batch: rows in one call of the network; the number does not depend on it.
        characters: how many characters all the rows hold: the number is then in bits per character; None: nats per token.
        progress: called with (texts done, texts in all).
        protocol: more entries for the protocol (packing, weights).
    """
    started = time.perf_counter()
    check(draws=draws, batch=batch)
    if limit is not None and limit < 2:
        raise InputError(f"--limit is {limit}; it must be 2 or more: an interval needs two texts")
    if len(rows) == 0:
        raise InputError("there are no texts to evaluate; give a data set that holds at least two")
    N = min(len(rows), limit or len(rows))
    chosen = [i * len(rows) // N for i in range(N)]
    other = _estimator(method, estimator)
    draws = 1 if other is not None and other.exact else draws
    estimate = method.terms if other is None else lambda batch, generator: {estimator: other(batch, generator)}
    device = torch.device(device) if device is not None else _device(method)
    found: dict[str, list[list[Tensor]]] = {}  # name -> half -> groups of texts
    counts: list[Tensor] = []
    training = method.training
    method.eval()
    try:
        texts = max(1, GROUP // draws)
        halves = 2 if draws % 2 == 0 else draws
        for first in range(0, N, texts):
            group = rows.collate([rows[i] for i in chosen[first : first + texts]])
            counts.append(_counted(group))
            for half in range(halves):
                key = mix(seed, first // texts, half)
                for name, value in _group(estimate, group, draws // halves, key, batch, device).items():
                    found.setdefault(name, [[] for _ in range(halves)])[half].append(value)
            if progress:
                progress(min(first + texts, N), N)
    finally:
        method.train(training)
    tables = {name: torch.stack([torch.cat(h) for h in each], 1) for name, each in found.items()}  # name -> (N, halves)
    tokens = torch.cat(counts)
    per_token = 1.0 if characters is None else characters / int(getattr(rows, "tokens_total", 0) or tokens.sum())
    strata = _strata(method) if other is None else other.strata
    dtype = str(next((p.dtype for p in method.parameters()), torch.float32)).removeprefix("torch.")
    said = {
        "name": PROTOCOL,
        "estimator": estimator,
        "time": _time(method) if other is None else other.about,
        "draws": draws,
        "strata": f"{halves} x {draws // halves} draws of {texts} texts at once, evenly spread over {strata}"
        if strata
        else "none",
        "network": dtype,
        "bound": "float64",
        "texts": f"{N} of {len(rows)}, evenly spaced" if len(rows) > N else f"all {N}",
        "seed": seed,
        "device": device.type,
    }
    return summarize(
        torch.stack(list(tables.values())).sum(0),
        tokens * per_token,
        "nats/token" if characters is None else "bits/char",
        "exact" if other is not None and other.exact else "bound",
        draws=draws,
        terms={name: float(table.mean()) for name, table in tables.items()},
        seed=seed,
        protocol=said | (protocol or {}),
        seconds=time.perf_counter() - started,
    )


def _estimator(method: Method, name: str) -> Estimator | None:
    """The estimator of that name; None for the bound."""
    if name == "bound":
        return None
    others = method.estimators()
    if name not in others:
        raise unknown("estimator", name, ["bound", *others], f"bound{''.join(', ' + n for n in others)}")
    return others[name]


def _group(
    estimate: Callable[..., dict[str, Tensor]], group: Batch, draws: int, seed: int, batch: int, device: torch.device
) -> dict[str, Tensor]:
    """Each term of each text, the mean over its draws: name -> (texts,) float64. Row d * texts + j is draw d of text j."""
    n = len(group.tokens)
    total = n * draws
    size = max(d for d in range(1, min(batch, total) + 1) if total % d == 0)
    found: dict[str, list[Tensor]] = {}
    for shard in range(total // size):
        rows = torch.arange(shard * size, (shard + 1) * size) % n
        part = group.take(rows).to(device)
        generator = torch.Generator().manual_seed(seed)  # the same for each part of the group: `Shard` takes its rows
        for name, value in estimate(part, maths.Shard(generator, shard, total // size)).items():
            found.setdefault(name, []).append(value.double().cpu())
    return {name: torch.cat(values).reshape(draws, n).mean(0) for name, values in found.items()}


def _counted(batch: Batch) -> Tensor:
    """(B,) tokens that count."""
    if batch.mask is not None:
        return batch.mask.sum(-1).double()
    return torch.full((len(batch.tokens),), float(batch.tokens.shape[1]), dtype=torch.float64)


def _device(method: Method) -> torch.device:
    return next((p.device for p in method.parameters()), torch.device("cpu"))


def _time(method: Method) -> str:
    steps = getattr(method, "steps", 0)
    return f"{steps} steps (stratified)" if steps else "whole of t in [0, 1] (stratified)"


def _strata(method: Method) -> str:
    """What the draws of the bound are spread evenly over."""
    timed = getattr(method, "time_conditioned", True) or getattr(method, "steps", 0)
    return "times" if timed else "numbers of masks"


def corpus_of(model: Any, data: Any = None, progress: Callable[[int, int], None] | None = None) -> Any:
    """The corpus that a model is judged on, in its own tokens: `data`, or what it was trained on.

    Raises:
        InputError: the data names a tokenizer that is not the model's.
    """
    from .data import Data, prepare, require_same

    own = model.config.data
    data = own if data is None else Data(data) if isinstance(data, str) else data
    named = data == own or bool(data.tokenizer) or hasattr(data, "_tokens")  # the data says its tokenizer itself
    corpus = prepare(data, int(model.method.shape[0]), tokenizer=None if named else model.tokenizer, progress=progress)
    require_same(model.tokenizer, corpus.tokenizer)
    return corpus


def evaluate(
    model: Any,
    data: Any = None,
    split: str = "test",
    draws: int = 4,
    seed: int = 0,
    limit: int | None = None,
    batch: int = GROUP,
    *,
    estimator: str = "bound",
    progress: Callable[[int, int], None] | None = None,
    reading: Callable[[int, int], None] | None = None,
) -> Result:
    """A model's -log p on a data set, bounded or (in a given order) exact, with a 95% interval.

    Args:
        model: a `Model`, or a run folder, a saved folder or a hub id.
        data: a `Data`, the name of a data set, or a `Corpus` that `prepare` made; by default what it was trained on.
        draws: how many draws of each text.
        limit: so many texts, evenly spaced; all by default.
        batch: rows in one call of the network; a matter of memory and speed only.
        estimator: "bound", or another likelihood that the method admits, by name: "forward" and "backward" are exact for
            the model of that order, "random" and "any_order" are averages over orders, which bound that of all orders.
        progress, reading: called with (done, total) while the texts are judged, and while the data is read.

    Returns:
        `Result`: `print(it)`, `.value .low .high .unit .kind .terms .perplexity .protocol`, `.to_json(path)`.
    """
    check(draws=draws, batch=batch)
    model = load(model)
    method, tokenizer = model.method, model.tokenizer
    corpus = data if hasattr(data, "rows") else corpus_of(model, data, reading)
    rows = corpus.split(split)
    about = {
        "method": getattr(method, "name", type(method).__name__),
        "parameters": sum(p.numel() for p in method.parameters()),
        "step": getattr(model, "about", {}).get("step"),
        "data": corpus.about["name"],
        "split": split,
        "length": int(method.shape[0]),
        "texts": len(rows),
        "tokenizer": tokenizer.name,
        "sha256": corpus.about.get("sha256"),
    }
    packed = (
        "wrapped"
        if corpus.about.get("pack") == "wrap"
        else f"one {corpus.about.get('pack')} a row".replace("rows a", "a")
    )
    separator = corpus.about.get("separator", "")
    said = {
        "packing": packed,
        "separators": f"{separator}, no BOS" if "after each document" in separator else "no BOS/EOS",
        "weights": "EMA",
    }
    characters = rows.characters if tokenizer.unit in ("char", "byte") else None
    result = evaluate_rows(
        method, rows, draws=draws, seed=seed, limit=limit, batch=batch, characters=characters, estimator=estimator,
        progress=progress, protocol=said,
    )  # fmt: skip
    return replace(result, about=about)


callable_module(__name__)
