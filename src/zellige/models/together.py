"""Texts that several processes draw together: each has its own of them, and the first one gets all.

A text is a function of its seed and of its number, so that who draws it changes nothing.
"""

from collections.abc import Sequence
from typing import Any

from ..launched import Place, join
from .frames import Drawn


def share(here: Place, count: int, seed: int, classes: Sequence[str]) -> dict[str, Any] | None:
    """What a process asks `watch` for in the place of `count`, `seed` and `classes`; None where nothing is left for it."""
    mine = range(here.rank, count * max(len(classes), 1), here.world)
    if not mine:
        return None
    one = (
        {"count": len(mine), "classes": None}
        if not classes
        else {"count": 1, "classes": [classes[n // count] for n in mine]}
    )
    return one | {"seed": [(seed, n) for n in mine]}


def gather_texts(here: Place, drawn: Drawn | None) -> Drawn:
    """What all have drawn, as if one had drawn it; every process must ask."""
    import torch

    join(here)
    every: list[Any] = [None] * here.world
    torch.distributed.all_gather_object(every, drawn)
    every = [each for each in every if each is not None]
    columns = {
        name: [
            getattr(each, name)[i] for i in range(len(every[0].texts)) for each in every if i < len(getattr(each, name))
        ]
        for name in ("texts", "tokens", "calls", "tries", "classes")
    }
    walks = [walk for each in every for walk in each.walks]
    return Drawn(
        steps=every[0].steps, seconds=max(each.seconds for each in every), walks=walks,
        expected_calls=every[0].expected_calls, repeating=sum(each.repeating for each in every), **columns,
    )  # fmt: skip
