"""Bound on -log p(continuation | context), to choose among answers and for language-model harnesses.

The context is never noised, and only the continuation counts (`Batch.mask`). The bound is that of the distribution from
which `infill` samples the continuation:

    absorbing     a given token is like one that is already revealed, as in training; with the exact network the bound equals
                  -log p(continuation | context)
    in blocks     each block given those before it; the block in which the context ends, as above
    ar            -log p itself, by the chain rule, without random draws
    other noise   a bound, but of another distribution than the model's conditional one, since the network does not know that
                  the context is clean ("approximate"; `sampling.masked_text.approximate`)

The random numbers of a pair depend only on the seed and its tokens. Its draws are R independent replicates, each evenly
spread over the strata; the error is estimated from the differences of the replicates.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ..base.errors import InputError, check_counts
from ..base.requests import Progress
from ..core import random
from ..core.batch import Batch, by_length
from ..core.prediction import posterior
from ..core.random import mix
from ..data.tokenizer_base import Tokenizer
from ..methods.ar import AR
from ..methods.diffusion import Diffusion
from ..methods.method import Method, device_of
from ..models.model import Model, ModelSource, as_model
from ..samplers.predict import clean_where_fixed, expected_time
from ..samplers.sampler import State
from ..sampling.masked_text import approximate
from ..show.kinds import of
from ..show.numbers import pm, quantity
from ..show.units import unit_of
from .interval import student
from .likelihood import evaluating

DRAWS = 32
BATCH = 64  # rows in one call of the network

Tokens = Sequence[int]


@dataclass(frozen=True)
class Conditional:
    """-log p(continuation | context) of P pairs.

    Attributes:
        table: (P, R) nats, float64: R independent replicates of each pair's draws.
        tokens: (P,) long, number of tokens of each continuation.
        kind: "bound" (the expectation is an upper bound) or "exact".
        draws: draws of each pair; 1 if nothing is random.
        note: if the bound is of another distribution than the model's conditional one: which.
    """

    table: Tensor
    tokens: Tensor
    kind: str
    draws: int
    note: str | None = None

    @property
    def nats(self) -> Tensor:
        """(P,) mean over the draws."""
        return self.table.mean(1)

    @property
    def error(self) -> Tensor:
        """(P,) standard error of `nats` over the draws; 0 if nothing is random, infinite with one draw."""
        sets = self.table.shape[1]
        if self.kind == "exact":
            return torch.zeros_like(self.nats)
        return self.table.std(1) / sets**0.5 if sets > 1 else torch.full_like(self.nats, torch.inf)


# ---------------------------------------------------------------------------------------------------- text to tokens
def tokenize_pair(
    tokenizer: Tokenizer, context: str, continuation: str, prefix: bool = False
) -> tuple[list[int], list[int]]:
    """Tokenize a context and its continuation.

    The whole text is tokenized. If a token crosses the border, it and all that follows count as continuation.

    Args:
        prefix: put the token that ends documents before the text, as given.

    Raises:
        InputError: an empty continuation; no such token; a character that the model does not know.
    """
    if not continuation:
        raise InputError("a continuation is empty; give the text whose probability is asked for")
    if prefix and tokenizer.separator is None:
        raise InputError(f"'{tokenizer.name}' has no token that ends documents; leave `prefix` out")
    whole = tokenizer.encode(context + continuation, "the pair")
    before = tokenizer.encode(context, "the context") if context else []
    same = next((i for i, (a, b) in enumerate(zip(before, whole)) if a != b), min(len(before), len(whole) - 1))
    begin = [tokenizer.separator] if prefix and tokenizer.separator is not None else []
    return begin + whole[:same], whole[same:]


def windows(context: int, continuation: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Windows (begin, first, end) that score a text: tokens [first, end) given [begin, first).

    A text that fits has one window. A context that is too long loses its beginning. A continuation longer than the network
    is cut into pieces; the last piece sees all earlier tokens that fit, as in lm-eval's rolling windows.

    >>> list(windows(3, 4, 8)), list(windows(6, 4, 8)), list(windows(0, 10, 4))
    ([(0, 3, 7)], [(2, 6, 10)], [(0, 0, 4), (4, 4, 8), (6, 8, 10)])
    """
    stop = context + continuation
    for first in range(context, stop, length):
        end = min(first + length, stop)
        yield max(end - length, 0), first, end


# ---------------------------------------------------------------------------------------------------- the drawing
class RowStreams:
    """Random numbers in which each row has its own stream, and shares its strata with its replicate.

    rows: for each row its key, the number of its replicate, its position in the replicate, and the size of the replicate.
    """

    def __init__(self, rows: Sequence[tuple[int, int, int, int]]):
        stream = lambda *numbers: torch.Generator().manual_seed(mix(*numbers))  # noqa: E731
        self.own = [stream(key, replicate, place) for key, replicate, place, _ in rows]
        self.shared = [stream(key, replicate) for key, replicate, _, _ in rows]
        self.offset = torch.tensor([place / places for _, _, place, places in rows], dtype=torch.float64)

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        return random.uniform(shape, self.own, device)

    def stratified(self, n: int, device: torch.device | None) -> Tensor:
        u = torch.cat([torch.rand(1, generator=g, dtype=torch.float64) for g in self.shared])
        return ((u + self.offset) % 1.0).to(device)


def replicates(draws: int) -> int:
    """Number of independent sets into which the draws of a pair are split: at most 8, if possible of 4 draws or more.

    >>> [replicates(draws) for draws in (1, 2, 4, 7, 8, 32, 64, 100)]
    [1, 2, 2, 7, 2, 8, 8, 5]
    """
    divisors = [r for r in range(2, min(draws, 8) + 1) if draws % r == 0]
    return max([r for r in divisors if draws // r >= 4], default=min(divisors, default=draws))


@torch.no_grad()
def bound_tokens(
    method: Method,
    pairs: Sequence[tuple[Tokens, Tokens]],
    draws: int = DRAWS,
    seed: int = 0,
    batch: int = BATCH,
    progress: Progress | None = None,
    classes: Tensor | None = None,
) -> Conditional:
    """Compute `bound` for pairs of tokens.

    Raises:
        InputError: the method has no bound.
    """
    check_counts(draws=draws, batch=batch)
    if not method.bounded:
        raise InputError(
            f"{method.name} defines no likelihood bound, so no pair can be judged by it; use another model"
        )
    exact = bool(method.exact)
    draws = 1 if exact else draws
    sets = replicates(draws)
    places = draws // sets
    length, device = int(method.shape[0]), device_of(method)
    rows: list[tuple[int, tuple[int, int, int, int], list[int], int]] = []  # pair, numbers, tokens, how many are given
    for number, (context, continuation) in enumerate(pairs):
        text = [*context, *continuation]
        for begin, first, end in windows(len(context), len(continuation), length):
            window, context_size = text[begin:end], first - begin
            key = 0 if exact else mix(seed, context_size, *window)
            for replicate in range(sets):
                for place in range(places):
                    rows.append((number, (key, replicate, place, places), window, context_size))
    table = torch.zeros(len(pairs), sets, dtype=torch.float64)
    count = 0
    with evaluating(method):
        for group in by_length([len(tokens) for _, _, tokens, _ in rows], batch):
            part = [rows[i] for i in group]
            number = torch.tensor([n for n, _, _, _ in part])
            numbers = [n for _, n, _, _ in part]
            tokens = torch.tensor([t for _, _, t, _ in part])
            context_size = torch.tensor([g for _, _, _, g in part])
            mask = torch.arange(tokens.shape[1]) >= context_size[:, None]
            condition = None if classes is None else classes[number]
            inputs = Batch(tokens, None if bool(mask.all()) else mask, condition=condition).to(device)
            terms = method.terms(inputs, None if exact else RowStreams(numbers))
            value = torch.stack(list(terms.values())).sum(0).double().cpu()
            table.index_put_((number, torch.tensor([n[1] for n in numbers])), value / places, accumulate=True)
            count += len(group)
            if progress:
                progress(count, len(rows))
    sizes = torch.tensor([len(continuation) for _, continuation in pairs])
    return Conditional(table, sizes, "exact" if exact else "bound", draws)


def bound(
    model: ModelSource,
    pairs: Sequence[tuple[str, str]],
    draws: int = DRAWS,
    seed: int = 0,
    batch: int = BATCH,
    *,
    prefix: bool = False,
    classes: Tensor | None = None,
    progress: Progress | None = None,
) -> Conditional:
    """-log p(continuation | context) of each pair of texts (context, continuation), bounded or exact, in nats.

    Args:
        model: a `Model`, or a run, a saved folder or a hub id.
        draws: stratified draws of each pair; one evaluation if nothing is random (ar).
        seed: with the tokens of a pair it determines the random numbers of this pair.
        batch: rows (pairs x draws) per network evaluation; the numbers do not depend on it.
        prefix: put the token that ends documents before each context.
        classes: (P,) class of each pair for a class-conditional model, -1 for none; None: no classes.
        progress: called with (rows done, rows in all).

    Raises:
        InputError: the method has no bound; the model makes no text; an empty continuation; an unknown character.
    """
    model = as_model(model)
    kind = of(model.tokenizer)
    if not kind.running:
        raise InputError(f"pairs are texts, and this model makes {kind.many}; use a model of text")
    tokens = [tokenize_pair(model.tokenizer, *pair, prefix) for pair in pairs]
    bounds = bound_tokens(model.method, tokens, draws, seed, batch, progress, classes)
    return replace(bounds, note=approximate(model))


# ---------------------------------------------------------------------------------------------------- the greedy choice
@torch.no_grad()
def greedy(method: Method, pairs: Sequence[tuple[Tokens, Tokens]], batch: int = BATCH) -> list[bool]:
    """Return whether greedy decoding from left to right gives the continuation.

    Each token must be the most likely one given all tokens before it; the tokens after it are masks. False for noise
    without a mask, which has no such decoding.
    """
    length, device = int(method.shape[0]), device_of(method)
    causal, diffusion = method.parameterization == "next", method if isinstance(method, Diffusion) else None
    if not causal and (diffusion is None or diffusion.process.mask is None):
        return [False] * len(pairs)
    rows: list[tuple[int, list[int], int, int]] = []  # pair, tokens, first place that is asked, one after the last
    for number, (context, continuation) in enumerate(pairs):
        text = [*context, *continuation]
        for begin, first, end in windows(len(context), len(continuation), length):
            spans = [(first, end)] if causal else [(i, i + 1) for i in range(first, end)]
            rows += [(number, text[begin:end], i - begin, j - begin) for i, j in spans]
    same = [True] * len(pairs)
    with evaluating(method):
        for group in by_length([len(tokens) for _, tokens, _, _ in rows], batch):
            part = [rows[i] for i in group if same[rows[i][0]]]  # of a pair that has failed no more is asked
            if not part:
                continue
            x = torch.tensor([t for _, t, _, _ in part], device=device)
            first, end = (torch.tensor([row[k] for row in part], device=device)[:, None] for k in (2, 3))
            place = torch.arange(x.shape[1], device=device)
            at = (place >= first) & (place < end)
            probabilities = _at(diffusion, x, place < first, at) if diffusion else _next(cast(AR, method), x, at)
            row = at.nonzero()[:, 0]
            for i in row[probabilities.argmax(-1) != x[at]].unique().tolist():
                same[part[i][0]] = False
    return same


def _next(method: AR, x: Tensor, at: Tensor) -> Tensor:
    """Distributions of an autoregressive model at the positions `at` of x: (N, V)."""
    batch = Batch(x)
    return method.next(method.hidden(method.inputs(batch), None, batch)[at])


def _at(method: Diffusion, x: Tensor, known: Tensor, at: Tensor) -> Tensor:
    """Clean posteriors at `at` if everything but the `known` positions is masked: (N, K)."""
    mask = method.process.mask_id
    x_t = x.masked_fill(~known, mask)
    state = State(x_t, known, torch.zeros(len(x), dtype=torch.long, device=x.device))
    time = clean_where_fixed(method, state, expected_time(method, state))
    return posterior(method.predict(x_t, time, at=at, context=method.clean(Batch(x))))


@dataclass(frozen=True)
class TextScore:
    """-log p of one text under the model, bounded or exact.

    Attributes:
        nats: of the whole text.
        half: half the width of its 95% interval over the draws (Student's t); 0 if nothing is random.
        kind: "bound" (an upper bound, up to the interval) or "exact".
        tokens: number of tokens.
        units: number of characters or tokens by which `value` is divided.
        unit: unit of `value`: "bits/char", "bits/dim", ..., or "nats/token".
        note: if the bound is of another distribution than the model's: which; else None.
    """

    nats: float
    half: float
    kind: str
    tokens: int
    units: int
    unit: str
    note: str | None = None

    @property
    def bits(self) -> float:
        """Bits of the whole text."""
        return self.nats / math.log(2)

    @property
    def scale(self) -> float:
        """Factor from nats of the whole text to `unit`."""
        return 1 / self.units / unit_of(self.unit).scale

    @property
    def value(self) -> float:
        """The number in `unit`, as in `zellige.evaluate`."""
        return self.nats * self.scale

    def __str__(self) -> str:
        """Text such as `≤ 2.269 ± 0.034 bits/char (95%), in all 28.3 ± 0.4 nats`."""
        in_all = f"{pm(self.nats, self.half)} nats"
        return f"{quantity(self.value, self.half * self.scale, unit_of(self.unit).title, self.kind)}, in all {in_all}"


def text_scores(model: Model, bounds: Conditional, tokens: Iterable[int], units: Iterable[int]) -> list[TextScore]:
    """Scores of texts with these numbers of tokens and units, from the bounds of `conditional`."""
    is_bound = bounds.kind == "bound"
    halves = (student(bounds.table.shape[1] - 1) * bounds.error).tolist() if is_bound else [0.0] * len(bounds.table)
    values = zip(bounds.nats.tolist(), halves, tokens, units)
    note = approximate(model)
    return [TextScore(nats, half, bounds.kind, size, n, model.unit, note) for nats, half, size, n in values]
