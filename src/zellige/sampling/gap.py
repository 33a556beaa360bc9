"""Fill a gap of any length (`__*`) by a model that writes from left to right: `ar`, or `bd3lm` of masks.

Such a model does not see what stands after a gap. So it writes N candidates (`best_of`) of SPAN tokens y after the text b
before the gap. A candidate may end where the text s after the gap is likeliest to begin: of the k >= 1 the CUTS with the
largest

    log p(s_1 | b, y_1 .. y_k)                                                                      (1)

Of all these fillings the one is chosen that is likeliest together with the text after the gap, by

    log p(y_1 .. y_k, s | b)                                                                        (2)

Both are products of the model's predictions from left to right, inside a block too, so they are exact (RADD, arXiv
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


def fill_gap(request: Sample, model: Model, see: Callable[[Frame], None] | None = None) -> Samples:
    """Fill the GAP of the one row of `fixed` in each sample.

    Raises:
        InputError: as `Sample.trajectory`; nothing stands after the gap, or there is only one candidate to choose from.
    """
    (row,), number = request.fixed, request.best_of or 1
    at = row.index(GAP)
    before, after = row[:at], row[at + 1 :]
    if not after:
        raise InputError("nothing stands after the span of any length; to continue a text, sample with `prompt`")
    if number == 1:
        raise InputError(
            "a span of any length is chosen among candidates by what stands after it; give `best_of`, e.g. 32"
        )
    room = min(SPAN, model.method.window - len(before) - len(after))
    trajectory = replace(request, fixed=[*before, *[-1] * room]).trajectory(model, number)
    candidates = collect(trajectory.frames(), see)
    began = time.perf_counter()
    cuts = _cut(trajectory, candidates.tokens, len(before), after[0])
    groups = [range(first, first + number) for first in range(0, len(cuts), number)]
    fillings = [list(dict.fromkeys((*cut, *after) for k in group for cut in cuts[k])) for group in groups]
    chosen = [_likeliest(trajectory, group[0], rows, len(before)) for group, rows in zip(groups, fillings)]
    return replace(
        candidates.take([group[0] for group in groups]),
        tokens=[[*row] for row in chosen],
        calls=[
            sum(candidates.calls[k] for k in group) + (number + len(rows)) * model.method.turns * model.method.passes
            for group, rows in zip(groups, fillings)
        ],
        expected_calls=None,
        seconds=candidates.seconds + time.perf_counter() - began,
    )


@torch.no_grad()
def _cut(trajectory: Trajectory, rows: list[list[int]], begin: int, token: int) -> list[list[tuple[int, ...]]]:
    """The ends of each candidate, whose gap begins at `begin`: up to where `token` is likeliest to follow (1).

    None has a token that ends a text; a candidate that begins with it fills in nothing.
    """
    x = torch.tensor([[*row, token] for row in rows])
    nats = _left_to_right(trajectory, x, begin, torch.full_like(x, token), range(len(x)))[:, begin + 1 :]
    end = end_token(trajectory.model.tokenizer, True)
    ended = torch.zeros_like(nats, dtype=torch.bool) if end is None else x[:, begin:-1] == end
    nats = nats.masked_fill(ended.cummax(-1).values, torch.inf)
    best = nats.topk(min(CUTS, nats.shape[1]), largest=False)
    sizes = [
        [k + 1 for k, value in zip(*pair) if value < torch.inf] or [0]
        for pair in zip(best.indices.tolist(), best.values.tolist())
    ]
    return [[tuple(row[: begin + k]) for k in of] for row, of in zip(rows, sizes)]


@torch.no_grad()
def _likeliest(trajectory: Trajectory, number: int, rows: list[tuple[int, ...]], begin: int) -> tuple[int, ...]:
    """The likeliest of the fillings of sample `number`, from position `begin` on (2)."""
    nats = [0.0] * len(rows)
    for group in by_length([len(row) for row in rows], len(rows)):
        x = torch.tensor([rows[k] for k in group])
        values = _left_to_right(trajectory, x, begin, x, [number] * len(group)).sum(-1).tolist()
        for k, value in zip(group, values):
            nats[k] = value
    return rows[min(range(len(rows)), key=nats.__getitem__)]


def _left_to_right(trajectory: Trajectory, x: Tensor, begin: int, target: Tensor, numbers: Sequence[int]) -> Tensor:
    """-log p(target_i | x_1 .. x_{i-1}) of samples `numbers` from position `begin` on, 0 before: (B, L) nats."""
    method, label = trajectory.model.method, trajectory.condition
    counted = (torch.arange(x.shape[1]) >= begin).expand(x.shape)
    batch = Batch(x, counted, condition=None if label is None else label[list(numbers)])
    return method.left_to_right(batch.to(device_of(method)), target.to(device_of(method))).cpu()
