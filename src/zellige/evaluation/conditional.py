"""Bound on -log p(continuation | context), to choose among answers and for language-model harnesses.

The context is never noised and never counted (`Batch.mask` is False there). The bound is that of the distribution from
which `infill` samples the continuation:

    absorbing     a given token is like one that is revealed already, as in training; with the exact network the bound equals
                  -log p(continuation | context)
    in blocks     each block given those before; in the block where the context ends, as above
    ar            -log p itself, by the chain rule; nothing is drawn
    other noise   a bound, too, but on another distribution than the model's conditional one: the network does not know that the
                  context is clean ("approximate"; `sampling.masked_text.approximate`)

The random numbers of a pair depend on the seed and its tokens alone. Its draws are R independent replicates, each
spread evenly over the strata; their spread gives the error.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
from ..methods.method import Method
from ..models.model import Model, ModelSource, as_model
from ..samplers.predict import clean_where_fixed, expected_time
from ..samplers.sampler import State
from ..sampling.masked_text import approximate
from ..show.kinds import of
from ..show.numbers import pm, quantity
from ..show.units import unit_of
from .interval import student
from .likelihood import device_of, evaluating

DRAWS = 32
BATCH = 64  # rows in one call of the network

Tokens = Sequence[int]


@dataclass(frozen=True)
class Conditional:
    """-log p(continuation | context) of P pairs.

    Attributes:
        table: (P, R) nats, float64: R independent replicates of each pair's draws.
        tokens: (P,) long, how many tokens the continuations have.
        kind: "bound" (the expectation is an upper bound) or "exact".
        draws: of each pair; 1 where nothing is drawn.
        note: where the bound is of another distribution than the model's own conditional: which.
    """

    table: Tensor
    tokens: Tensor
    kind: str
    draws: int
    note: str | None = None

    @property
    def nats(self) -> Tensor:
        """(P,) the mean over the draws."""
        return self.table.mean(1)

    @property
    def error(self) -> Tensor:
        """(P,) the standard error of `nats` over the draws; 0 where nothing is drawn, infinite of a single draw."""
        sets = self.table.shape[1]
        if self.kind == "exact":
            return torch.zeros_like(self.nats)
        return self.table.std(1) / sets**0.5 if sets > 1 else torch.full_like(self.nats, torch.inf)


# ---------------------------------------------------------------------------------------------------- text to tokens
def tokenize_pair(
    tokenizer: Tokenizer, context: str, continuation: str, prefix: bool = False
) -> tuple[list[int], list[int]]:
    """The tokens of the context and of the continuation.

    The whole text is tokenized. Where the tokens of the context alone differ from it, a token reaches over the border,
    and it and what follows count as continuation.

    Args:
        prefix: the token that ends documents stands before the text, given.

    Raises:
        InputError: nothing to judge; no such token; a character that the model does not know.
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
    """(begin, first, end) of windows that score a text of so many tokens: [first, end) given [begin, first).

    One window for what fits; of a longer context its end. A continuation longer than the network is cut end to end, and
    the last piece sees all the tokens before it that fit, as lm-eval's rolling windows do.

    >>> list(windows(3, 4, 8)), list(windows(6, 4, 8)), list(windows(0, 10, 4))
    ([(0, 3, 7)], [(2, 6, 10)], [(0, 0, 4), (4, 4, 8), (6, 8, 10)])
    """
    stop = context + continuation
    for first in range(context, stop, length):
        end = min(first + length, stop)
        yield max(end - length, 0), first, end


# ---------------------------------------------------------------------------------------------------- the drawing
class RowStreams:
    """Random numbers of rows that each have a stream of their own, and strata that they share with their replicate.

    rows: of each row its key, the number of its replicate, its place in it, and how many places that has.
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
    """Into how many independent sets the draws of a pair are split: at most 8, of four draws or more if that can be.

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
    """As `bound`, of pairs that are tokens.

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
    """-log p(continuation | context) of each pair (context, continuation) of texts, bounded or exact, in nats.

    Args:
        model: a `Model`, or a run, a saved folder or a hub id.
        draws: of each pair, stratified; where nothing is drawn (ar) it is asked once.
        seed: with the pair's own tokens it decides its random numbers.
        batch: rows (pairs x draws) in one call of the network; the numbers do not depend on it.
        prefix: the token that ends documents stands before each context.
        classes: (P,) the class of each pair for a class-conditional model, -1 for none; None: of no pair.
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
    note = approximate(model)
    return bounds if note is None else Conditional(bounds.table, bounds.tokens, bounds.kind, bounds.draws, note)


# ---------------------------------------------------------------------------------------------------- the greedy choice
@torch.no_grad()
def greedy(method: Method, pairs: Sequence[tuple[Tokens, Tokens]], batch: int = BATCH) -> list[bool]:
    """Return whether greedy decoding from left to right gives the continuation: each token is the likeliest given all
    before it.

    The tokens after it are masks. Noise without a mask has no such decoding: False.
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
    """The distributions of an autoregressive model at the places `at` of x: (N, V)."""
    batch = Batch(x)
    return method.next(method.hidden(method.inputs(batch), None, batch)[at])


def _at(method: Diffusion, x: Tensor, known: Tensor, at: Tensor) -> Tensor:
    """The clean posteriors at `at`, where everything but the `known` is masked: (N, K)."""
    mask = method.process.mask_id
    x_t = x.masked_fill(~known, mask)
    state = State(x_t, known, torch.zeros(len(x), dtype=torch.long, device=x.device))
    time = clean_where_fixed(method, state, expected_time(method, state))
    return posterior(method.predict(x_t, time, at=at, context=method.clean(Batch(x))))


@dataclass(frozen=True)
class TextScore:
    """-log p of one text, bounded or exact, as the model has it.

    Attributes:
        nats: of the whole text.
        half: half the width of its 95% interval over the draws, Student's; 0 where nothing is drawn.
        kind: "bound" (up to the interval, the text is at least as likely as this says) or "exact".
        tokens: how many there are.
        units: how many characters or tokens share it in `value`, whose `unit` is "bits/char", "bits/dim" ..., or
            "nats/token".
        note: where it is a bound of another distribution than the model's own: which; else None.
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
        """Of the whole text."""
        return self.nats / math.log(2)

    @property
    def scale(self) -> float:
        """From nats of the whole text to `unit`."""
        return 1 / self.units / unit_of(self.unit).scale

    @property
    def value(self) -> float:
        """In `unit`, as `zellige.evaluate` has it."""
        return self.nats * self.scale

    def __str__(self) -> str:
        """`≤ 2.269 ± 0.034 bits/char (95%), in all 28.3 ± 0.4 nats`."""
        in_all = f"{pm(self.nats, self.half)} nats"
        return f"{quantity(self.value, self.half * self.scale, unit_of(self.unit).title, self.kind)}, in all {in_all}"


def text_scores(model: Model, bounds: Conditional, tokens: Iterable[int], units: Iterable[int]) -> list[TextScore]:
    """The scores of texts of so many tokens, and units, that `conditional` has bounded."""
    is_bound = bounds.kind == "bound"
    halves = (student(bounds.table.shape[1] - 1) * bounds.error).tolist() if is_bound else [0.0] * len(bounds.table)
    values = zip(bounds.nats.tolist(), halves, tokens, units)
    note = approximate(model)
    return [TextScore(nats, half, bounds.kind, size, n, model.unit, note) for nats, half, size, n in values]
