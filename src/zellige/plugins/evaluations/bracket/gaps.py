"""Bounds on -log p of a part of a text given the rest of it, from above or from both sides."""

import math
from collections.abc import Iterator, Sequence

import torch

from zellige.core.batch import Batch
from zellige.core.random import mix
from zellige.evaluation.conditional import RowStreams
from zellige.evaluation.interval import SKEWED, skewness
from zellige.methods.method import Method, device_of
from zellige.samplers.pairing import of_length
from zellige.samplers.replay import path_of, weigh

from .two_sides import effective, from_above, from_below

GAP_SETS, GAP_PLACES = 8, 4  # replicates, and draws of each of a bound
GAP_DRAWS, GAP_STEPS = 8, 64  # of each side of a bracket, and T of its chain where the method has none
GAP_TERMS = 3  # network evaluations of a draw of a bound: the diffusion term, and the two ends


def gaps_work(method: Method, length: int, both: bool, steps: int) -> int:
    """Network evaluations times positions of `bound_gaps` at most, or (`both`) of `bracket_gaps`, by their defaults."""
    if not both:
        return GAP_SETS * GAP_PLACES * GAP_TERMS * length
    inside = of_length(method, min(method.block or length, length))
    return GAP_SETS * 2 * GAP_DRAWS * path_of(method, steps).calls(inside) * length


@torch.no_grad()
def bound_gaps(
    method: Method,
    tokens: Sequence[int],
    held: Sequence[bool],
    sets: int = GAP_SETS,
    seed: int = 0,
    condition: int | None = None,
) -> Iterator[float]:
    """A bound in nats from each of `sets` independent replicates of a few stratified draws; their mean is the bound.

    Of a method with an exact likelihood one value. What is `held` is given: clean in every input, never counted
    (`conditional`).
    """
    exact = bool(method.exact)
    sets, places = (1, 1) if exact else (sets, GAP_PLACES)
    batch, key = _copies(method, tokens, held, places, condition), mix(seed, *tokens)
    for replicate in range(sets):
        streams = None if exact else RowStreams([(key, replicate, place, places) for place in range(places)])
        yield float(torch.stack(list(method.terms(batch, streams).values())).sum(0).double().mean())


@torch.no_grad()
def bracket_gaps(
    method: Method,
    tokens: Sequence[int],
    held: Sequence[bool],
    sets: int = GAP_SETS,
    n: int = GAP_DRAWS,
    steps: int = GAP_STEPS,
    seed: int = 0,
    condition: int | None = None,
) -> Iterator[tuple[float, float, bool]]:
    """Both sides in nats, above and below, from each of `sets` independent replicates, each of 2n draws (`two_sides`),
    and whether all draws so far determine the mean of the lower one (as of `BracketRow`).

    The distribution is that of `path_of(method, steps)`. A side to which no draw gave any probability is infinite.
    """
    batch, key = _copies(method, tokens, held, 2 * n, condition), mix(seed, *tokens)
    path, drawn = path_of(method, steps), torch.empty(0)
    for replicate in range(sets):
        streams = [torch.Generator().manual_seed(mix(key, "bracket", replicate, draw)) for draw in range(2 * n)]
        log_w = weigh(method, batch, path, streams).log_w.cpu()
        above, below = float(from_above(log_w, n).mean()), float(from_below(log_w, n).mean())
        drawn = torch.cat((drawn, log_w))
        determined = skewness(float(effective(drawn)), len(drawn)) <= SKEWED
        yield above, below if math.isfinite(below) else -math.inf, determined


def _copies(method: Method, tokens: Sequence[int], held: Sequence[bool], count: int, condition: int | None) -> Batch:
    """The row so many times, what is held outside the mask."""
    device = device_of(method)
    x = torch.tensor([list(tokens)] * count, device=device)
    mask = ~torch.tensor([list(held)] * count, dtype=torch.bool, device=device)
    classes = None if condition is None else torch.full((count,), condition, device=device)
    return Batch(x, None if bool(mask.all()) else mask, condition=classes)
