"""Groups of sequences with their positions, so that one batched product takes the tables of many sequences."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

PART, PART_GPU = 1 << 17, 1 << 24  # numbers in an array (m, n, K) of several sequences; 2^24: 128 MiB


def part(device: torch.device) -> int:
    """Return the largest size of one array, in numbers; on a CPU it fits into the cache."""
    return PART if device.type == "cpu" else PART_GPU


def by_row(row: Tensor, K: int, kinds: Sequence[object]) -> Iterator[tuple[list[int], Tensor]]:
    """Yield groups of sequences of one kind: the indices of m sequences, and those of their positions, (m, n).

    Every sequence comes once. One with fewer than n positions is padded with the index N: read with `clamp_max(N - 1)`
    and write to N + 1 entries. An array (m, n, K) has at most `part` numbers, so the number of groups depends on N K
    and on the kinds, not on the batch size.

    Args:
        row: (N,) the sequence of each position, in rising order.
        kinds: the kind of each sequence of the batch; a group has one kind.
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
