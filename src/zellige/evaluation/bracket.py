"""Between which two numbers -log p of a text lies, and the exact values of the laws that have one: `zellige evaluate --bracket`.

The mathematics: `two_sides`; how a text is weighed by a sampler's own code: `samplers.replay`.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import torch

from ..arguments import checked
from ..data import Corpus
from ..errors import InputError, at_least, check_counts
from ..models.identity import fingerprint
from ..models.model import as_model
from ..samplers import Confidence, FixedOrder, Sampler
from ..samplers.pairing import of_length
from ..samplers.replay import Oracle, Path, Replayed, Trajectory, no_order, path_of
from . import workers
from .bracket_result import Bracket, BracketRow, BracketTable
from .bracket_work import GROUP, SETS, Work
from .corpus import corpus_of
from .evaluate import Asked, asked_of, evaluate_rows
from .likelihood import bounded

PROTOCOL = "zellige-bracket-1"
NUMBERS = (1, 8, 64, 512)
BOUND_DRAWS = 64
MEASURES = {"probability": "confidence", "margin": "margin", "entropy": "entropy"}


@checked
def bracket(
    model: Any,
    data: Any = None,
    split: str = "test",
    numbers: Sequence[int] = NUMBERS,
    seed: int = 0,
    limit: int | None = GROUP,
    batch: int = 64,
    *,
    orders: Sequence[str] = ("forward", "backward"),
    per_step: Sequence[int] = (1, 4),
    steps: int = 64,
    own: int = GROUP,
    processes: int = 1,
    keep: File | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Bracket:
    """Both sides of a model's -log p on a data set, and the exact values of the laws that have one, in one unit.

    Args:
        model: a `Model`, or a run folder, a saved folder or a hub id.
        data: a `Data`, the name of a data set, or a `Corpus` that `prepare` made; by default what it was trained on.
        numbers: of draws of one estimate; each divides the largest. Of each text SETS times the largest are drawn.
        limit: so many texts, evenly spaced.
        batch: rows in one call of the network; a matter of memory and speed only.
        orders: "forward", "backward" or positions such as "2,0,1".
        per_step: how many tokens the samplers of an order and the surest-first ones draw at once.
        steps: T of the chain of a method in continuous time whose law no order gives.
        own: how many samples of the model's own are weighed too; 0: none.
        processes, keep: see `evaluate_rows`.
        progress: called with (texts done, texts in all).

    Raises:
        InputError: the method has no bound; texts packed into rows; a number that is below 1 or no divisor.
    """
    began = time.perf_counter()
    model = as_model(model)
    numbers = _divisors(numbers)
    check_counts(batch=batch, steps=steps, processes=processes)
    at_least("own", own, 0)
    method = model.method
    if not bounded(method):
        raise InputError(
            f"{method.name} defines no likelihood bound, so there is nothing to bracket; use another model"
        )
    asked = asked_of(model, data if isinstance(data, Corpus) else corpus_of(model, data, split=split), split)
    made = bracket_rows(
        method, asked, numbers, seed, limit, batch, orders=orders, per_step=per_step, steps=steps, own=own,
        processes=processes, keep=keep, progress=progress,
    )  # fmt: skip
    return replace(made, seconds=time.perf_counter() - began)


def bracket_rows(
    method: Any,
    asked: Asked,
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
    progress: Callable[[int, int], None] | None = None,
) -> Bracket:
    """As `bracket`, of a method on the rows of `asked`."""
    if limit is not None and limit < 2:
        raise InputError(f"`limit` is {limit}; it must be 2 or more: an interval needs two texts")
    rows, numbers = asked.rows, _divisors(numbers)
    N = min(len(rows), limit or len(rows))
    chosen = [i * len(rows) // N for i in range(N)]
    if rows.collate([rows[chosen[0]]]).segments is not None:
        raise InputError("documents are packed into rows, which no sampler writes; use data with one text a row")
    device = next((p.device for p in method.parameters()), torch.device("cpu"))
    path = None if method.exact else path_of(method, steps)
    others, refused = exact_laws(method, orders, per_step)
    work = Work(method, rows, chosen, path, others, numbers, 0 if path is None else min(own, N), seed, batch, device)
    protocol = asked.protocol | {
        "name": PROTOCOL, "law": "its own, exact" if path is None else path.law, "numbers": [*numbers], "sets": SETS,
        "psi": "the mean of n draws, p of n others", "bound draws": bound_draws, "own samples": work.own,
        "texts": f"{N} of {len(rows)}, evenly spaced" if len(rows) > N else f"all {N}", "seed": seed, "device": device.type,
        "network": method.precision,
        "weights of draws": "float64",
    }  # fmt: skip
    training, done = method.training, [0]
    method.eval()

    def tell(index: int) -> None:
        done[0] += min(GROUP, N - index * GROUP)
        if progress:
            progress(done[0], N)

    key = ""
    if keep is not None:
        texts = vars(rows.collate([rows[i] for i in chosen])).values()
        key = fingerprint(protocol, method, repr(method.config), [*others], batch, *texts)
    cache = workers.ResultCache(keep, key)
    try:
        parts = workers.gather_results(work, len(work), processes=processes, cache=cache, device=device, progress=tell)
        judge = lambda T: evaluate_rows(  # noqa: E731
            method, rows, draws=bound_draws, seed=seed, limit=limit, batch=batch, characters=asked.characters,
            unit=asked.unit, steps=T,
        )  # fmt: skip
        bounds = [judge(0)]
        if isinstance(path, Trajectory) and not method.steps:
            bounds.append(judge(path.steps))
    finally:
        method.train(training)
    cache.remove()
    protocol["bound of"] = bounds[-1].protocol["law"]
    table = BracketTable(parts, bounds[0], asked, max(numbers))
    own_law = "its own" if path is None else path.law
    first = "continuous time" if len(bounds) > 1 else own_law
    lines = [BracketRow("bound", first, bounds[0].kind, bounds[0], bounds[0].draws, float(bounds[0].draws))]
    if path is None:
        refused = {"importance-weighted, TUBE": f"{method.name}'s -log p is exact", **refused}
    else:
        lines += [BracketRow("bound", path.law, "bound", r, r.draws, float(r.draws)) for r in bounds[1:]]
        lines += table.sides(path, numbers) + table.widths(path, numbers)
    lines += table.exact(others)
    lines += table.own(path, numbers) if path else []
    lines += [BracketRow(name, "", "none", why=why) for name, why in refused.items()]
    return Bracket(lines, bounds[0].unit, asked.about, protocol, seed)


def exact_laws(
    method: Any, orders: Sequence[str] = (), per_step: Sequence[int] = (1,)
) -> tuple[dict[str, Path], dict[str, str]]:
    """The laws whose -log p is exact, by name, the greedy order last; and those that this method has not, with the reason."""
    check_counts(per_step=min(per_step, default=1))
    made: dict[str, tuple[str, Callable[[int], Sampler]]] = {
        f"order {order}": (f"fixed_order {order}", functools.partial(FixedOrder, order)) for order in orders
    }
    made |= {name: (f"confidence by {of}", lambda _, of=of: Confidence(of)) for of, name in MEASURES.items()}
    if why := "its -log p is exact" if method.exact else no_order(method):
        return {}, dict.fromkeys([*made, "greedy order, an oracle"], why)
    block = method.block if 0 < method.block < method.shape[0] else method.shape[0]
    inside, paths, refused = of_length(method, block), dict[str, Path](), dict[str, str]()
    for name, (law, make) in made.items():
        for k in per_step:
            sampler, size = make(k), "one a step" if k == 1 else f"{k} a step"
            if why := sampler.refuse(inside):
                refused[name] = f"'{sampler.name}' {why}"
                continue
            where = f" in each block of {block}" if block < method.shape[0] else ""
            paths[f"{name}, {size}"] = Replayed(sampler, f"{law}, {size}{where}", -(-block // k))
    return paths | {"greedy order, an oracle": Oracle()}, refused


def _divisors(numbers: Sequence[int]) -> tuple[int, ...]:
    """The numbers of draws, each once, ascending."""
    wanted = tuple(sorted(set(numbers))) or NUMBERS
    check_counts(numbers=wanted[0])
    for n in wanted:
        if wanted[-1] % n:
            raise InputError(
                f"`numbers` has {n}, which does not divide {wanted[-1]}; each number must divide the largest"
            )
    return wanted
