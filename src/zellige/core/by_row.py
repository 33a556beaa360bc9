"""Positions grouped by sequence, so that the tables of many sequences take part in one batched product."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

PART, PART_GPU = 1 << 17, 1 << 24  # numbers in one array (m, n, K), unless a single row has more: 128 MiB in float64


def part(device: torch.device) -> int:
    """Return how many numbers one array may hold: few on a CPU, where they stay in its cache."""
    return PART if device.type == "cpu" else PART_GPU


def by_row(row: Tensor, K: int, kinds: Sequence[object]) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the indices of some sequences of one kind, m of them, and of their positions (m, n), until all have come.

    A sequence with fewer than n positions is padded with the index N: read with `clamp_max(N - 1)` and write to N + 1
    entries. (m, n, K) has at most `part` numbers, so the number of yields depends on N K and on the kinds, not on the
    batch size.

    Args:
        row: the sequence of each position (N,), in order.
        kinds: of each sequence of the batch; sequences of different kinds are never grouped.
    """
    ends, limit = 0, part(row.device)
    spans: dict[object, list[tuple[int, int, int]]] = {}
    for b, n in zip(*(group.tolist() for group in row.unique_consecutive(return_counts=True))):
        spans.setdefault(kinds[b], []).append((b, ends, n))
        ends += n
    for group in spans.values():
        while group:
            longest = m = 0
            for m, (_, _, n) in enumerate([*group, (0, 0, ends + limit)]):
                if m and (m + 1) * max(longest, n) * K > limit:
                    break
                longest = max(longest, n)
            members, group = group[:m], group[m:]
            rows, starts, count = zip(*members)
            starts, count = torch.tensor([starts, count], device=row.device)[..., None]
            n = torch.arange(longest, device=row.device)
            yield list(rows), torch.where(n < count, starts + n, ends)
