"""Fill a gap of any length (`__*`) by a model that writes from left to right: `ar`, or `bd3lm` of masks.

Such a model does not see what stands after a gap. So it writes N candidates (`best_of`) of SPAN tokens y after the text b
before the gap. A candidate may end where the text s after the gap is likeliest to begin: of the k >= 1 the CUTS with the
largest

    log p(s_1 | b, y_1 .. y_k)                                                                      (1)

Of these fillings the KEPT with the largest

    log p(y_1 .. y_k, s_1 | b)                                                                      (2)

are compared by the whole text after the gap: the one is chosen that is likeliest together with it, by

    log p(y_1 .. y_k, s | b)                                                                        (3)

All three are products of the model's predictions from left to right, inside a block too, so they are exact (RADD, arXiv
2406.03736, section 3.3). The choice prefers short and usual fillings; it is no draw from p(y | b, s).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core.batch import Batch, by_length
from ..methods.method import device_of
from ..models.ends import end_token
from ..models.model import Model
from ..samplers.sampler import GAP
from .sample import Sample
from .samples import Samples, collect
from .trajectory import Frame, Trajectory

SPAN = 32  # tokens of a gap at most
CUTS = 2  # of a candidate
KEPT = 32  # fillings that are compared by the whole text


def fill_gap(request: Sample, model: Model, see: Callable[[Frame], None] | None = None) -> Samples:
    """Fill the GAP of the one row of `fixed` in each sample.

    Raises:
        InputError: as `Sample.trajectory`; nothing stands after the gap, or there is only one candidate to choose from.
    """
    (row,), number = request.fixed, request.best_of or 1
    at = row.index(GAP)
    before, after = row[:at], row[at + 1 :]
    if not after:
        raise InputError("nothing stands after the span of any length; to continue a text, use zellige sample")
    if number == 1:
        raise InputError(
            "a span of any length is chosen among candidates by what stands after it; give `best_of`, e.g. 32"
        )
    room = min(SPAN, model.method.window - len(before) - len(after))
    trajectory = replace(request, fixed=[*before, *[-1] * room], length=None).trajectory(model, number)
    candidates = collect(trajectory.frames(), see)
    began = time.perf_counter()
    cuts = _cuts(trajectory, candidates.tokens, len(before), after[0])
    groups = [range(first, first + number) for first in range(0, len(cuts), number)]
    kept = [_kept([cuts[k] for k in group]) for group in groups]
    fillings = [[(*cut, *after) for cut in of] for of in kept]
    chosen = [_likeliest(trajectory, group[0], rows, len(before)) for group, rows in zip(groups, fillings)]
    evaluations = model.method.turns * model.method.passes
    return replace(
        candidates.take([group[0] for group in groups]),
        tokens=[[*row] for row in chosen],
        calls=[
            sum(candidates.calls[k] for k in group) + (number + len(rows)) * evaluations
            for group, rows in zip(groups, fillings)
        ],
        expected_calls=None,
        seconds=candidates.seconds + time.perf_counter() - began,
    )


@torch.no_grad()
def _cuts(trajectory: Trajectory, rows: list[list[int]], begin: int, token: int) -> list[dict[tuple[int, ...], float]]:
    """The ends of each candidate, whose gap begins at `begin`: up to where `token` is likeliest to follow (1); with the
    nats of (2).

    None has a token that ends a text; a candidate that begins with it fills in nothing.
    """
    x = torch.tensor([[*row, token] for row in rows])
    own, next_one = _left_to_right(trajectory, x, begin, range(len(x)), x, torch.full_like(x, token))
    total = own.cumsum(-1)[:, begin:-1] + next_one[:, begin + 1 :]  # (N, room)
    end = end_token(trajectory.model.tokenizer, True)
    ended = torch.zeros_like(total, dtype=torch.bool) if end is None else x[:, begin:-1] == end
    next_one = next_one[:, begin + 1 :].masked_fill(ended.cummax(-1).values, torch.inf)
    best = next_one.topk(min(CUTS, next_one.shape[1]), largest=False)
    cuts = []
    for row, sizes, values, nats in zip(rows, best.indices.tolist(), best.values.tolist(), total.tolist()):
        of = {tuple(row[: begin + k + 1]): nats[k] for k, value in zip(sizes, values) if value < torch.inf}
        cuts.append(of or {tuple(row[:begin]): torch.inf})
    return cuts


def _kept(cuts: list[dict[tuple[int, ...], float]]) -> list[tuple[int, ...]]:
    """The likeliest ends of all candidates of a sample, by (2)."""
    nats = {cut: value for of in cuts for cut, value in of.items()}
    return sorted(nats, key=nats.__getitem__)[:KEPT]


@torch.no_grad()
def _likeliest(trajectory: Trajectory, number: int, rows: list[tuple[int, ...]], begin: int) -> tuple[int, ...]:
    """The likeliest of the fillings of sample `number`, from position `begin` on (3)."""
    nats = [0.0] * len(rows)
    for group in by_length([len(row) for row in rows], len(rows)):
        x = torch.tensor([rows[k] for k in group])
        values = _left_to_right(trajectory, x, begin, [number] * len(group), x)[0].sum(-1).tolist()
        for k, value in zip(group, values):
            nats[k] = value
    return rows[min(range(len(rows)), key=nats.__getitem__)]


def _left_to_right(trajectory: Trajectory, x: Tensor, begin: int, numbers: Sequence[int], *targets: Tensor) -> Tensor:
    """-log p(target_i | x_1 .. x_{i-1}) of texts of the samples `numbers`, 0 before position `begin`: (n, B, L) nats."""
    method, label = trajectory.model.method, trajectory.condition
    device, counted, parts = device_of(method), torch.arange(x.shape[1]) >= begin, []
    for rows in torch.arange(len(x)).split(trajectory.batch):
        condition = None if label is None else label[torch.tensor(numbers)[rows]]
        batch = Batch(x[rows], counted.expand(len(rows), -1), condition=condition)
        parts.append(method.left_to_right(batch.to(device), *(target[rows].to(device) for target in targets)).cpu())
    return torch.cat(parts, 1)
