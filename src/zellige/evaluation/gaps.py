"""-log p of a part of a row given the rest of it, bounded: what `zellige play` says of what was drawn."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..core.batch import Batch
from ..core.random import mix
from ..methods.method import Method
from .conditional import RowStreams


@torch.no_grad()
def bound_gaps(
    method: Method,
    tokens: Sequence[int],
    held: Sequence[bool],
    sets: int = 8,
    places: int = 4,
    seed: int = 0,
    condition: int | None = None,
) -> Iterator[float]:
    """A bound in nats from each of `sets` independent replicates, each of `places` stratified draws; their mean is the bound.

    Of a method with an exact likelihood one value. What is `held` is given: clean in every input, never counted (`conditional`).
    """
    exact = bool(method.exact)
    sets, places = (1, 1) if exact else (sets, places)
    device: Any = next((p.device for p in method.parameters()), torch.device("cpu"))
    x = torch.tensor([list(tokens)] * places, device=device)
    mask = ~torch.tensor([list(held)] * places, dtype=torch.bool, device=device)
    classes = None if condition is None else torch.full((places,), condition, device=device)
    batch = Batch(x, None if bool(mask.all()) else mask, condition=classes)
    key = mix(seed, *tokens)
    for replicate in range(sets):
        streams = None if exact else RowStreams([(key, replicate, place, places) for place in range(places)])
        yield float(torch.stack(list(method.terms(batch, streams).values())).sum(0).double().mean())
