"""Who sees whom, and attention that computes only that.

The sequence is cut into blocks of b positions (in packed documents, each document from its own first position).

    one stream      a position sees its own block and those before
    two streams     a noisy position sees the noisy positions of its own block and the clean ones of the blocks before;
                    a clean position is in one stream with the clean ones     (BD3-LM, arXiv 2503.09573, section 3.3)

Two streams are twice as many rows: the noisy ones, then the clean ones. So both share positions, and what is done at each
position (matrix products, norms) knows nothing of streams.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 128  # queries at one time, or one block if that is longer


class Part(NamedTuple):
    """Queries and the keys that they see, as indices of (rows, heads, positions), and which see which: (1 or B, 1, q, k)
    bool, or None for all."""

    queries: tuple[slice, ...]
    keys: tuple[tuple[slice, ...], ...]
    mask: Tensor | None


@dataclass(frozen=True)
class Sight:
    """What the positions of one call of the network see; made once for all layers.

    Attributes:
        block: b; 0 where every position sees every other.
        streams: 1 or 2.
        document: (B, L) which document a position belongs to, or None.
        order: (B, L) which block of its document, or None where there are no documents, or no blocks.
        plan: what `attend` takes.
    """

    block: int = 0
    streams: int = 1
    document: Tensor | None = None
    order: Tensor | None = None
    plan: Any = None


ALL = Sight()


def sight(block: int, streams: int, x: Tensor, segments: Tensor | None, valid: Tensor | None) -> Sight:
    """What is seen by x (B, L), one stream's tokens: in blocks (0 = none) and documents `segments` (B, L), after the
    remembered places of which `valid` (B, P) can be seen."""
    B, L = x.shape
    document = order = None
    if segments is not None and not block:
        return Sight(document=segments, plan=(segments[:, :, None] == segments[:, None, :])[:, None])
    if segments is not None:
        document, place = documents(segments)
        order = place // block
    before = 0 if valid is None else valid.shape[1]
    valid = None if valid is None or bool(valid.all()) else valid
    if not block or (block >= L and document is None and valid is None):
        return Sight(block, streams)
    plan = parts(L, block, B if streams == 2 else 0, document, order, before, valid, x.device)
    return Sight(block, streams, document, order, plan)


def documents(segments: Tensor) -> tuple[Tensor, Tensor]:
    """Of packed documents (B, L), each in one piece: where the document of a position begins, and its place in it."""
    place = torch.arange(segments.shape[1], device=segments.device).expand(segments.shape)
    first = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)
    start = torch.where(first, place, 0).cummax(-1).values
    return start, place - start


def parts(
    L: int,
    block: int,
    noisy: int,
    document: Tensor | None,
    order: Tensor | None,
    before: int,
    valid: Tensor | None,
    device: torch.device,
) -> list[Part]:
    """Chunks of queries with the keys up to where they reach; `noisy` of the rows are noisy, and as many clean.

    A chunk holds whole blocks; with documents, where a block may begin anywhere, blocks reach out of it by up to b - 1."""
    regular, size = document is None, block * max(1, CHUNK // block)
    spill = 0 if regular else block - 1
    if order is None or document is None:
        order = torch.arange(L, device=device)[None] // block
        document = torch.zeros_like(order)
    # what is remembered is of the same document, and of earlier blocks
    seen_order, seen_document = F.pad(order, (before, 0), value=-1), F.pad(document, (before, 0))
    able = None if valid is None else F.pad(valid, (0, L), value=True)

    def part(rows: slice, i: int, j: int, keys: list[tuple[slice, int, int, str]]) -> Part:
        single = regular and j - i <= block and able is None
        masks = [] if single else [visible(i, j, first, last, how) for _, first, last, how in keys]
        index = tuple((where, slice(None), slice(first, last)) for where, first, last, _ in keys)
        return Part((rows, slice(None), slice(i, j)), index, torch.cat(masks, -1)[:, None] if masks else None)

    def visible(i: int, j: int, first: int, last: int, how: str) -> Tensor:
        mine, theirs = order[:, i:j, None], seen_order[:, None, first:last]
        seen = {"own": theirs == mine, "earlier": theirs < mine, "until": theirs <= mine}[how]
        seen = seen & (document[:, i:j, None] == seen_document[:, None, first:last])
        return seen if able is None else seen & able[:, None, first:last]

    made: list[Part] = []
    for i in range(0, L, size):
        j = min(i + size, L)
        reach = before + min(j + spill, L)
        if noisy:
            own = (slice(0, noisy), max(i - spill, 0), min(j + spill, L), "own")
            until = (j - 1) // block * block if regular else j
            past = (slice(noisy, None), 0, until, "earlier")
            made.append(part(slice(0, noisy), i, j, [own, past] if until else [own]))
        made.append(part(slice(noisy, None), i, j, [(slice(noisy, None), 0, reach, "until")]))
    return made


def attend(q: Tensor, k: Tensor, v: Tensor, plan: Any) -> Tensor:
    """Softmax attention: q (B, H, L, W), k and v (B, H, P + L, W) -> (B, H, L, W)."""
    if not isinstance(plan, list):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=plan)
    out = torch.empty_like(q)
    for queries, keys, mask in plan:
        out[queries] = F.scaled_dot_product_attention(q[queries], gather(k, keys), gather(v, keys), attn_mask=mask)
    return out


def gather(x: Tensor, pieces: tuple[tuple[slice, ...], ...]) -> Tensor:
    """Pieces of x (B, H, K, W), one after another."""
    return x[pieces[0]] if len(pieces) == 1 else torch.cat([x[piece] for piece in pieces], 2)
