"""Fill a gap of any length (`__*`) by a model that writes from left to right: `ar`, or `bd3lm` of masks.

Such a model does not see what stands after a gap. So it writes N candidates (`best_of`) of SPAN tokens y after the text b
before the gap. Each candidate is cut in CUTS places, those k >= 1 after which the text s after the gap is likeliest to begin,
by

    log p(s_1 | b, y_1 .. y_k)                                                                      (1)

Of these fillings the KEPT with the largest

    log p(y_1 .. y_k, s_1 | b)                                                                      (2)

are compared by the whole text after the gap: the one is chosen that is likeliest together with it, by

    log p(y_1 .. y_k, s | b)                                                                        (3)

All three are products of the model's predictions from left to right, inside a block too, so they are exact
(`Method.left_to_right`). The choice prefers short and usual fillings; it is no draw from p(y | b, s).
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..core.batch import Batch, by_length, padded
from ..methods.method import Method, device_of
from ..models.ends import end_token, trained_on_documents
from ..models.model import Model
from ..samplers.sampler import GAP
from .sample import Sample
from .samples import Samples, collect
from .trajectory import Frame, Trajectory

SPAN = 32  # tokens of a gap at most
CUTS = 2  # of a candidate
KEPT = 32  # fillings that are compared by the whole text


def fill_gap(request: Sample, model: Model, see: Callable[[Frame], None] | None = None) -> Samples:
    """Fill the GAP of the one row of `fixed`, in which tokens are given after it, in each sample.

    Raises:
        InputError: as `Sample.trajectory`.
    """
    (row,), number, method = request.fixed, request.best_of or 1, model.method
    at = row.index(GAP)
    before, after = row[:at], row[at + 1 :]
    room = min(SPAN, min(method.window, request.length or method.window) - len(before) - len(after))
    trajectory = replace(request, fixed=[*before, *[-1] * room], length=None).trajectory(model, number)
    candidates = collect(trajectory.frames(), see)
    began = time.perf_counter()
    cuts = _cuts(trajectory, candidates.tokens, len(before), after[0])
    tokens, numbers, calls = list[list[int]](), list[int](), list[int]()
    for first in range(0, len(cuts), number):
        group = range(first, first + number)
        nats = {cut: value for k in group for cut, value in cuts[k].items()}
        kept = sorted(nats, key=nats.__getitem__)[:KEPT]  # (2)
        kept = [cut for cut in kept if nats[cut] < torch.inf] or kept[:1]
        rows = [[*cut, *after] for cut in kept]
        best = _likeliest(trajectory, first, rows, len(before))
        tokens.append(rows[best])
        numbers.append(next(k for k in group if kept[best] in cuts[k]))
        passes = number * _turns(method, len(before), len(before) + room)
        passes += sum(_turns(method, len(before), len(row)) for row in rows)
        calls.append(sum(candidates.calls[k] for k in group) + passes)
    return replace(
        candidates.take(numbers),
        tokens=tokens,
        calls=calls,
        expected_calls=None,
        seconds=candidates.seconds + time.perf_counter() - began,
    )


@torch.no_grad()
def _cuts(trajectory: Trajectory, rows: list[list[int]], begin: int, token: int) -> list[dict[tuple[int, ...], float]]:
    """The CUTS ends of each candidate, whose gap begins at `begin`: where `token` is likeliest to follow (1); with the nats
    of (2).

    No end is behind a token that ends a text. A candidate that begins with one is cut before it, with infinite nats.
    """
    model = trajectory.model
    x, there = padded(rows)
    x = torch.cat((x, torch.full_like(x[:, :1], token)), 1)
    own, next_one = _left_to_right(trajectory, x, begin, range(len(x)), x, torch.full_like(x, token))
    total = own.cumsum(-1)[:, begin:-1] + next_one[:, begin + 1 :]  # (N, room)
    ends = [end_token(model.tokenizer, trained_on_documents(model)), getattr(model.method, "begin", None)]
    ended = torch.isin(x[:, begin:-1], torch.tensor([end for end in ends if end is not None], dtype=torch.long))
    ended = (ended | ~there[:, begin:]).cummax(-1).values
    best = next_one[:, begin + 1 :].masked_fill(ended, torch.inf).topk(min(CUTS, ended.shape[1]), largest=False)
    cuts = []
    for row, sizes, values, nats in zip(rows, best.indices.tolist(), best.values.tolist(), total.tolist()):
        of = {tuple(row[: begin + k + 1]): nats[k] for k, value in zip(sizes, values) if value < torch.inf}
        cuts.append(of or {tuple(row[:begin]): torch.inf})
    return cuts


@torch.no_grad()
def _likeliest(trajectory: Trajectory, number: int, rows: list[list[int]], begin: int) -> int:
    """Which filling of sample `number` is the likeliest, from position `begin` on (3)."""
    nats = [0.0] * len(rows)
    for group in by_length([len(row) for row in rows], len(rows)):
        x = torch.tensor([rows[k] for k in group])
        values = _left_to_right(trajectory, x, begin, [number] * len(group), x)[0].sum(-1).tolist()
        for k, value in zip(group, values):
            nats[k] = value
    return min(range(len(rows)), key=nats.__getitem__)


def _turns(method: Method, begin: int, end: int) -> int:
    """Network evaluations of `left_to_right` for a text of `end` tokens from `begin` on: the most in one block."""
    return max(Counter(place // method.block for place in range(begin, end)).values()) * method.passes


def _left_to_right(trajectory: Trajectory, x: Tensor, begin: int, numbers: Sequence[int], *targets: Tensor) -> Tensor:
    """-log p(target_i | x_1 .. x_{i-1}) of texts of the samples `numbers`, 0 before position `begin`: (n, B, L) nats."""
    method, label = trajectory.model.method, trajectory.condition
    device, counted, parts = device_of(method), torch.arange(x.shape[1]) >= begin, []
    for rows in torch.arange(len(x)).split(trajectory.batch):
        condition = None if label is None else label[torch.tensor(numbers)[rows]]
        batch = Batch(x[rows], counted.expand(len(rows), -1), condition=condition)
        parts.append(method.left_to_right(batch.to(device), *(target[rows].to(device) for target in targets)).cpu())
    return torch.cat(parts, 1)
