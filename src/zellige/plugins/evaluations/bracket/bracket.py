"""Two-sided bound on -log p of a text, and the exact values of the distributions that have one: `zellige evaluate
--bracket`.

The mathematics: `two_sides`; how a text is weighed by a sampler's own code: `samplers.replay`. `Work` weighs groups of
texts, `Bracket` and its rows are the result.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any, ClassVar

import torch
from torch import Tensor

from zellige.base.errors import InputError, check_counts
from zellige.base.requests import Progress
from zellige.core.batch import Batch
from zellige.core.random import mix
from zellige.data.losses import LOSSLESS
from zellige.evaluation import workers
from zellige.evaluation.evaluate import EvaluationRows, evaluate_rows, evenly_chosen
from zellige.evaluation.interval import FREEDOM, LEVEL, OVER_TEXTS, SKEWED, skewness
from zellige.evaluation.likelihood import evaluating, number_of_tokens
from zellige.evaluation.result import Result, summarize
from zellige.methods.method import Method, device_of
from zellige.models.model import fingerprint
from zellige.samplers import Confidence, FixedOrder, Sampler
from zellige.samplers.confidence import Measure
from zellige.samplers.pairing import CONTINUOUS, OWN, Distribution, of_length
from zellige.samplers.replay import Oracle, Path, Replayed, Trajectory, no_order, path_of, weigh
from zellige.show.record import Figure, Record

from .two_sides import bidirectional, effective, from_above, from_below, replicates, width

GROUP = 16  # texts that are asked at once
SETS = 4  # so many times the largest n are drawn of each text: two pairs of psi and p


@dataclass
class Work:
    """Weighs groups of texts, by their number: plain lists, so that it may be asked in another process.

    Attributes:
        rows, chosen: the data set, and the rows of it that are judged.
        path: what brackets the method's own distribution; None: its -log p is exact.
        others: by name, the distributions that have an exact value.
        numbers: n of the bounds, each a divisor of the largest.
        own: how many samples of the model's own.
        batch: rows (texts x draws) in one call of the network.
    """

    method: Any
    rows: Any
    chosen: list[int]
    path: Path | None
    others: dict[str, Path]
    numbers: tuple[int, ...]
    own: int
    seed: int
    batch: int
    device: torch.device

    def __len__(self) -> int:
        return -(-len(self.chosen) // GROUP)

    def __call__(self, index: int) -> dict[str, Any]:
        """Nats of each text of a group: {"exact": name -> (texts), "above", "below", "apart": n -> (texts,
        replicates)}.

        "apart" is the difference of the two, paired. "own above" and so on: of its own samples, a mean each. "calls" of
        the network by name, of one draw under "draw"; "tokens" (texts); "effective" (texts), the share of draws that
        count.
        """
        places = self.chosen[index * GROUP : (index + 1) * GROUP]
        texts = self.rows.collate([self.rows[i] for i in places])
        tokens, texts = number_of_tokens(texts), texts.to(self.device)
        result: dict[str, Any] = {"exact": {}, "calls": {}, "tokens": tokens.tolist()}
        for name, path in self.others.items():
            weighted_texts = weigh(self.method, texts, path)
            result["exact"][name] = (-weighted_texts.log_w.sum(-1)).tolist()
            result["calls"][name] = weighted_texts.calls.double().tolist()
        if self.path is None:
            return result
        most = max(self.numbers)
        log_w, result["calls"]["draw"] = self._draws(texts, places, SETS * most, "text")
        result["effective"] = effective(log_w).tolist()
        for n in self.numbers:
            for name, estimate in (("above", from_above), ("below", from_below), ("apart", width)):
                result.setdefault(name, {})[n] = replicates(estimate, log_w, n).tolist()
        own_positions = places[: max(self.own - index * GROUP, 0)]
        if own_positions:
            result |= self._own(texts.take(torch.arange(len(own_positions), device=self.device)), own_positions, most)
        return result

    def _own(self, texts: Batch, places: list[int], most: int) -> dict[str, Any]:
        """Both sides on samples of the model itself, one for each of these texts, with its class where it has one."""
        assert self.path is not None
        streams = [self._stream("own", place, 0) for place in places]
        wrote = weigh(self.method, Batch(texts.tokens, None, None, texts.condition), self.path, streams, draw=True)
        samples = Batch(wrote.x, None, None, texts.condition)
        log_w, _ = self._draws(samples, places, 2 * most, "sample")
        (half_above, half_below), first = log_w.unflatten(1, (2, most)).unbind(1), wrote.log_w.cpu()
        result: dict[str, Any] = {}
        for n in self.numbers:  # a text has one z that wrote it: no replicates
            above, below = (
                v.mean(1, keepdim=True) for v in (from_above(half_above, n), bidirectional(first, half_below, n))
            )
            for name, values in (("own above", above), ("own below", below), ("own apart", above - below)):
                result.setdefault(name, {})[n] = values.tolist()
        return result

    def _draws(self, texts: Batch, places: list[int], draws: int, purpose: str) -> tuple[Tensor, list[float]]:
        """log w of so many z of each text, (texts, draws, G) float64, and the network evaluations of a draw of each."""
        assert self.path is not None
        of = [(row, draw) for draw in range(draws) for row in range(len(places))]
        parts, calls = [], torch.zeros(len(places), dtype=torch.float64)
        for begin in range(0, len(of), self.batch):
            part = of[begin : begin + self.batch]
            rows = torch.tensor([row for row, _ in part])
            streams = [self._stream(purpose, places[row], draw) for row, draw in part]
            weighted_texts = weigh(self.method, texts.take(rows.to(self.device)), self.path, streams)
            parts.append(weighted_texts.log_w.cpu())
            calls.index_add_(0, rows, weighted_texts.calls.double().cpu())
        log_w = torch.cat(parts).unflatten(0, (draws, len(places))).transpose(0, 1)
        return log_w, (calls / draws).tolist()

    def _stream(self, purpose: str, place: int, draw: int) -> torch.Generator:
        return torch.Generator().manual_seed(mix(self.seed, purpose, place, draw))


OVER_DRAWS = (
    "Student's t over independent values of each text, or over the jackknife of its draws; none of an undetermined mean"
)


@dataclass(frozen=True)
class BracketRow:
    """One line: a value of the texts, or why there is none.

    Attributes:
        side: "bound" (from above, in expectation), "lower" (from below), "difference" of the two on the same texts,
            "exact", "oracle" (exact, and no sampler's distribution), or "none".
        n: draws of one estimate; 0 where nothing is drawn.
        calls: of the network for one estimate of a text, a mean; None where nobody counts.
        own: about the model's own samples, and not the texts.
        effective: of the tangent bound and the width: so many of n draws count, of the text where they are fewest.
        skewness: of the mean of all that is drawn of that text, as `two_sides` expects it. Above SKEWED these draws do
            not determine the mean: there is a value then, and no interval.
    """

    name: str
    distribution: Distribution | None
    side: str
    result: Result | None = None
    n: int = 0
    calls: float | None = None
    own: bool = False
    why: str | None = None
    effective: float | None = None
    skewness: float | None = None

    PLAIN: ClassVar = ("name", "side", "n", "calls", "own", "why", "effective", "skewness")  # as in JSON

    @property
    def determined(self) -> bool:
        return self.skewness is None or self.skewness <= SKEWED

    def to_dict(self) -> dict[str, Any]:
        r = self.result
        entries = {name: getattr(self, name) for name in self.PLAIN}
        entries |= {"distribution": ""} if self.distribution is None else self.distribution.protocol
        if r is None:
            return entries | {"value": None}
        ends = {"low": r.low, "high": r.high} if self.determined else {"low": None, "high": None}
        over_draws = {"low": r.draws_low, "high": r.draws_high} if self.determined else ends
        nats = None if r.nats is None else r.nats.tolist()
        return entries | {"value": r.value, **ends, "over_draws": over_draws | {"freedom": r.freedom}, "nats": nats}

    @classmethod
    def values(cls, row: Mapping[str, Any], unit: str) -> dict[str, Any]:
        """The values of its fields in what `to_dict` gave; sides that are exact are so of their result, too."""
        drawn, key = row.get("over_draws") or {}, row.get("distribution_key")
        result = {
            **row,
            "unit": unit,
            "kind": "exact" if row["side"] == "oracle" else row["side"],
            "draws": row["n"],
            "draws_low": drawn.get("low"),
            "draws_high": drawn.get("high"),
            "freedom": drawn.get("freedom"),
        }
        return {
            **row,
            "distribution": None if key is None else {"key": key, "text": row["distribution"]},
            "result": None if row["value"] is None else result,
        }


@dataclass(frozen=True)
class Bracket(Record):
    """Both sides of -log p of one model on one set of texts, and how they were computed.

    Attributes:
        rows: in the order in which they are shown.
    """

    advice: ClassVar = "give one of bracket-*.json"
    kind: ClassVar = "bracket"
    interval: ClassVar = {"level": LEVEL, "over_texts": OVER_TEXTS, "over_draws": OVER_DRAWS}
    rows: list[BracketRow]
    unit: str
    about: dict[str, Any]
    protocol: dict[str, Any]
    seed: int
    seconds: float = 0.0

    def named(self, name: str, own: bool = False) -> BracketRow:
        return next(row for row in self.rows if row.name == name and row.own == own)

    def figures(self) -> list[Figure]:
        size = max((abs(row.result.value) for row in self.rows if row.result is not None), default=0.0)
        return [
            Figure(
                f"{row.name}{' of its own samples' * row.own}: {self.unit}",
                row.result.value,
                row.result.half if row.determined else math.inf,
                self.unit,
                row.side,
                row.distribution and row.distribution.key,
                size if row.side == "difference" else 0.0,
            )
            for row in self.rows
            if row.result is not None
        ]

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        values = super().values(document)
        return values | {"rows": [BracketRow.values(row, values["unit"]) for row in values["rows"]]}


class BracketTable:
    """Results of the groups, in the unit of the bound."""

    def __init__(self, parts: list[dict[str, Any]], bound: Result, data: EvaluationRows, most: int = 1):
        self.parts, self.unit, self.draws = parts, bound.unit, SETS * most
        self.tokens = torch.tensor([n for part in parts for n in part["tokens"]], dtype=torch.float64)
        self.per_token = bound.units / float(self.tokens.sum())
        self.length = data.about.get("length", 0) or float(self.tokens.max())

    def values(self, name: str, key: int | str | None = None) -> Tensor:
        """(texts, ...) of every group; JSON turns a number that is a key into text."""
        parts = [part[name] for part in self.parts if name in part]
        groups = parts if key is None else [part.get(key, part.get(str(key))) for part in parts]
        return torch.cat([torch.tensor(e, dtype=torch.float64) for e in groups])

    def result(self, table: Tensor, kind: str, draws: int, own: bool = False) -> Result | None:
        """None where a number is infinite."""
        if not table.isfinite().all():
            return None
        sizes = torch.full((len(table),), float(self.length), dtype=torch.float64) if own else self.tokens
        text_index = torch.arange(len(table))
        result = summarize(table, sizes * self.per_token, self.unit, kind, group=text_index, draws=draws)
        # so few that one text's spread can rule, and be small by chance
        few = kind != "exact" and table.shape[1] <= FREEDOM
        if own:  # rare samples carry much of their mean, and few samples do not know of them (studies/coverage)
            result = replace(result, low=-math.inf, high=math.inf)
        return replace(result, draws_low=-math.inf, draws_high=math.inf) if few else result

    def calls(self, name: str) -> float:
        return float(self.values("calls", name).mean())

    def row(
        self, name: str, distribution: Distribution, side: str, table: Tensor, n: int, calls: float, own: bool = False
    ) -> BracketRow:
        result = self.result(table, "exact" if side == "oracle" else side, n, own)
        why = None if result else "infinite: no draw comes near the text; more draws of one estimate"
        row = BracketRow(name, distribution, side, result, n, calls, own, why)
        if side not in ("lower", "difference") or own:
            return row
        share = float(self.values("effective").min())
        row = replace(row, effective=n * share, skewness=skewness(share, self.draws))
        why = (
            f"undetermined: a few draws carry nearly all of the weight; for the worst text the {self.draws:,} draws "
            f"are worth only {self.draws * share:.3g} of equal weight, too few for an interval. A larger n or shorter "
            "texts may help"
        )
        return row if row.determined else replace(row, why=row.why or why)

    def drawn(
        self, title: str, name: str, path: Path, side: str, numbers: Sequence[int], draws: int, own: bool = False
    ) -> list[BracketRow]:
        """A row for each n of the values called `name`, an estimate of which takes `draws` times n draws."""
        evaluations = self.calls("draw")
        return [
            self.row(
                f"{title}, n = {n}", path.distribution, side, self.values(name, n), n, draws * n * evaluations, own
            )
            for n in numbers
        ]

    def sides(self, path: Path, numbers: Sequence[int]) -> list[BracketRow]:
        return [
            *self.drawn("importance-weighted", "above", path, "bound", numbers, 1),
            *self.drawn("TUBE", "below", path, "lower", numbers[::-1], 2),
            *self.drawn("width", "apart", path, "difference", numbers, 2),
        ]

    def exact(self, others: dict[str, Path]) -> list[BracketRow]:
        side = lambda path: "oracle" if isinstance(path, Oracle) else "exact"  # noqa: E731
        return [
            self.row(name, path.distribution, side(path), self.values("exact", name)[:, None], 0, self.calls(name))
            for name, path in others.items()
        ]

    def own(self, path: Path, numbers: Sequence[int]) -> list[BracketRow]:
        if not any("own above" in part for part in self.parts):
            return []
        return [
            *self.drawn("importance-weighted", "own above", path, "bound", numbers, 1, own=True),
            *self.drawn("bidirectional", "own below", path, "lower", numbers, 1, own=True),
            *self.drawn("width", "own apart", path, "difference", numbers, 1, own=True),
        ]


PROTOCOL = "zellige-bracket-1"
NUMBERS = (1, 8, 64, 512)
BOUND_DRAWS = 64
MEASURES: dict[Measure, str] = {"probability": "confidence", "margin": "margin", "entropy": "entropy"}


def bracket_rows(
    method: Method,
    data: EvaluationRows,
    numbers: Sequence[int] = NUMBERS,
    seed: int = 0,
    limit: int | None = GROUP,
    batch: int = 64,
    *,
    orders: Sequence[str] = (),
    per_step: Sequence[int] = (1,),
    steps: int = 64,
    own: int = 0,
    bound_draws: int = BOUND_DRAWS,
    processes: int = 1,
    keep: File | None = None,
    progress: Progress | None = None,
) -> Bracket:
    """Both sides of a method's -log p on the rows of `data`, and the exact values of the distributions that have one.

    Args:
        numbers: ascending; each divides the largest, of which SETS times as many are drawn of each text.
        bound_draws: draws of the bound that stands beside them.
        keep: see `evaluate_rows`; the others: see `request.EvaluateBracket`.
    """
    rows, numbers = data.rows, tuple(numbers)
    indices, chosen = evenly_chosen(len(rows), limit)
    N = len(indices)
    if rows.collate([rows[indices[0]]]).segments is not None:
        raise InputError("documents are packed into rows, which no sampler writes; use data with one text a row")
    device = device_of(method)
    path = None if method.exact else path_of(method, steps)
    exact_paths, reasons = exact_distributions(method, orders, per_step)
    work = Work(
        method, rows, indices, path, exact_paths, numbers, 0 if path is None else min(own, N), seed, batch, device
    )
    protocol = data.protocol | getattr(rows, "losses", LOSSLESS).protocol | {
        "name": PROTOCOL, **(replace(OWN, text="its own, exact") if path is None else path.distribution).protocol,
        "numbers": [*numbers], "sets": SETS,
        "psi": "the mean of n draws, p of n others", "bound draws": bound_draws, "own samples": work.own,
        "texts": chosen, "seed": seed, "device": device.type,
        "network": method.precision,
        "weights of draws": "float64",
    }  # fmt: skip
    key = ""
    if keep is not None:
        texts = vars(rows.collate([rows[i] for i in indices])).values()
        key = fingerprint(protocol, method, repr(method.config), [*exact_paths], batch, *texts)
    cache = workers.ResultCache(keep, key)
    with evaluating(method):
        tell = workers.by_texts(progress, N, GROUP)
        parts = workers.gather_results(work, len(work), processes=processes, cache=cache, device=device, progress=tell)
        judge = lambda T: evaluate_rows(  # noqa: E731
            method,
            rows,
            draws=bound_draws,
            seed=seed,
            limit=limit,
            batch=batch,
            characters=data.characters,
            unit=data.unit,
            steps=T,
        )
        bounds = [judge(0)]
        if isinstance(path, Trajectory) and not method.steps:
            bounds.append(judge(path.steps))
    cache.remove()
    protocol["bound of"] = bounds[-1].protocol["distribution"]
    table = BracketTable(parts, bounds[0], data, max(numbers))
    own_distribution = OWN if path is None else path.distribution
    first = replace(CONTINUOUS, text="continuous time") if len(bounds) > 1 else own_distribution
    lines = [BracketRow("bound", first, bounds[0].kind, bounds[0], bounds[0].draws, float(bounds[0].draws))]
    if path is None:
        reasons = {"importance-weighted, TUBE": f"{method.name}'s -log p is exact", **reasons}
    else:
        lines += [BracketRow("bound", path.distribution, "bound", r, r.draws, float(r.draws)) for r in bounds[1:]]
        lines += table.sides(path, numbers)
    lines += table.exact(exact_paths)
    lines += table.own(path, numbers) if path else []
    lines += [BracketRow(name, None, "none", why=why) for name, why in reasons.items()]
    return Bracket(lines, bounds[0].unit, data.about, protocol, seed)


def exact_distributions(
    method: Method, orders: Sequence[str] = (), per_step: Sequence[int] = (1,)
) -> tuple[dict[str, Path], dict[str, str]]:
    """The distributions whose -log p is exact, by name, the greedy order last; and those it lacks, with the reason."""
    check_counts(per_step=min(per_step, default=1))
    makers: dict[str, tuple[str, Callable[[int], Sampler]]] = {
        f"order {order}": (f"fixed_order {order}", lambda k, order=order: FixedOrder(order, per_step=k))
        for order in orders
    }
    makers |= {name: (f"confidence by {of}", lambda _, of=of: Confidence(of)) for of, name in MEASURES.items()}
    if why := "its -log p is exact" if method.exact else no_order(method):
        return {}, dict.fromkeys([*makers, "greedy order, an oracle"], why)
    block = method.block if 0 < method.block < method.shape[0] else method.shape[0]
    inside, paths, reasons = of_length(method, block), dict[str, Path](), dict[str, str]()
    for name, (text, make) in makers.items():
        for k in per_step:
            sampler, size = make(k), "one a step" if k == 1 else f"{k} a step"
            if why := sampler.reason_against(inside):
                reasons[name] = f"'{sampler.name}' {why}"
                continue
            where = f" in each block of {block}" if block < method.shape[0] else ""
            own_distribution = Distribution(f"{name}, {size}", f"{text}, {size}{where}")
            paths[f"{name}, {size}"] = Replayed(sampler, own_distribution, -(-block // k))
    return paths | {"greedy order, an oracle": Oracle()}, reasons
