"""Attention masks of networks of blocks, and attention that computes only their visible part.

The sequence is cut into blocks of b positions (in packed documents, each document from its own first position).

    one stream      a position sees its own block and those before
    two streams     a noisy position sees the noisy positions of its own block and the clean ones of the blocks before;
                    the clean ones are one stream          (BD3-LM, Arriola et al. 2025, arXiv 2503.09573, section 3.2)

Two streams are twice as many rows, the noisy ones before the clean ones. So both have the same positions, and what is
done at each position (matrix products, norms) knows nothing of streams.

The mask of two streams, 2L x 2L, is three quarters empty, and that of packed documents is emptier. Here queries come in
chunks whose keys begin and end where the chunk's sight does. On CUDA (`FUSED`) FlexAttention leaves out empty tiles, and
a causal network takes PyTorch's causal kernel. Tests force both on a CPU, and compare a GPU's with a CPU's.

A `Cache` is what such a network remembers of the tokens that it has read: `DiT.extend` makes it, `DiT.features` reads
it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..base.errors import InputError
from ..base.waiting import at_hand, fixed

CHUNK = 128  # queries at one time, or one block if that is longer
TILE = 128  # queries and keys that FlexAttention leaves out together; streams are padded to whole ones
SCORES = 1 << 20  # that attention by matrix products has at one time: they stay in a CPU's cache
PRODUCTS = (torch.bfloat16,)  # on a CPU, attention of these types is by matrix products
FUSED = ("cuda",)  # devices whose attention is one fused kernel, not parts of queries
CAUSAL = "causal"  # the plan of one stream in blocks of one position

ALL_HEADS = slice(None)
Piece = tuple[slice, slice, slice]  # of (rows, heads, positions)


class Part(NamedTuple):
    """Queries and the keys that they see, some of them hidden: (1 or B, 1, queries, keys), 0 or -inf; None:
    all are seen."""

    queries: Piece
    keys: tuple[Piece, ...]
    hidden: Tensor | None


@dataclass(frozen=True)
class Sight:
    """Attention mask of one network evaluation, made once for all layers.

    Attributes:
        block: b; 0 where every position sees every other.
        streams: 1 or 2.
        document: (B, L) which document a position belongs to, or None.
        order: (B, L) which block of its document; None without documents or without blocks.
        plan: what `attend` takes.
    """

    block: int = 0
    streams: int = 1
    document: Tensor | None = None
    order: Tensor | None = None
    plan: Any = None


ALL = Sight()


def sight(
    block: int,
    streams: int,
    x: Tensor,
    segments: Tensor | None = None,
    before: int = 0,
    valid: Tensor | None = None,
) -> Sight:
    """Attention mask of the tokens x (B, L) of each stream, in blocks (0: none) and in documents `segments` (B, L).

    They follow `before` remembered positions, of which `valid` (B, before) can be seen; None: all.
    """
    if segments is not None and not block:
        if at_hand(x):
            plan = parts(0, 0, torch.zeros_like(segments), documents(segments)[0])
        else:
            plan = (segments[:, :, None] == segments[:, None, :])[:, None]
        return Sight(document=segments, plan=plan)
    length = x.shape[1]
    if not block or (block >= length and segments is None and valid is None):
        return Sight(block, streams)
    noisy = len(x) if streams == 2 else 0
    if segments is not None:
        document, position = documents(segments)
        order = position // block
        return Sight(block, streams, document, order, parts(block, noisy, order, document))
    if x.device.type in FUSED and not before:
        if block == streams == 1:
            return Sight(block, streams, plan=CAUSAL)
        make = tiles if torch.compiler.is_compiling() else kept_tiles
        return Sight(block, streams, plan=make(length, block, streams, x.device))
    order = torch.arange(length, device=x.device)[None] // block
    return Sight(block, streams, plan=parts(block, noisy, order, None, before, valid))


def documents(segments: Tensor) -> tuple[Tensor, Tensor]:
    """Start of each position's document, and its index in it, for packed documents (B, L)."""
    position = torch.arange(segments.shape[1], device=segments.device).expand(segments.shape)
    starts = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)
    start = torch.where(starts, position, 0).cummax(-1).values
    return start, position - start


def parts(
    block: int,
    noisy: int,
    order: Tensor,
    document: Tensor | None = None,
    before: int = 0,
    valid: Tensor | None = None,
) -> list[Part]:
    """Chunks of queries, each with the keys that its sight spans.

    Args:
        block: b, or 0: a position sees all of its document.
        noisy: how many of the rows are noisy, and as many clean; 0 for one stream.
        order: (1 or B, L) which block a position is in, within its document.
        document: (B, L), where each position's document starts, or None for one.
        before: P, the number of remembered positions; they are in earlier blocks.
        valid: (B, P) which of them can be seen, or None for all.
    """
    length = order.shape[1]
    size = block * max(1, CHUNK // block) if block else CHUNK
    # how far a block may reach out of a chunk: documents begin anywhere
    spill = 0 if document is None else block - 1 if block else length
    chunks = [(i, min(i + size, length)) for i in range(0, length, size)]
    spans = [(0, length)] * len(chunks)  # of the documents that a chunk touches
    if document is not None and at_hand(document) and len(document):
        starts = [int(document[:, i].min()) for i, _ in chunks]
        spans = [(a, int((document <= document[:, j - 1 : j]).sum(1).max())) for a, (_, j) in zip(starts, chunks)]
    orders = F.pad(order, (before, 0), value=-1)
    valid = None if valid is None else F.pad(valid, (0, length), value=True)

    def part(rows: slice, i: int, j: int, *keys: tuple[slice, int, int, Callable[..., Tensor]]) -> Part:
        queries, pieces = (rows, ALL_HEADS, slice(i, j)), tuple((of, ALL_HEADS, slice(a, b)) for of, a, b, _ in keys)
        if document is None and valid is None and j - i <= block:
            return Part(queries, pieces, None)
        sight_of = torch.cat([visible(i, j, a, b, relation) for _, a, b, relation in keys], -1)
        return Part(queries, pieces, torch.where(sight_of[:, None], 0.0, -torch.inf))

    def visible(i: int, j: int, a: int, b: int, relation: Callable[..., Tensor]) -> Tensor:
        sight_of = relation(orders[:, None, a:b], order[:, i:j, None])
        if document is not None:
            sight_of = sight_of & (document[:, None, a:b] == document[:, i:j, None])
        return sight_of if valid is None else sight_of & valid[:, None, a:b]

    plan, clean = [], slice(noisy, None)
    for (i, j), (first, end) in zip(chunks, spans):
        if noisy:
            own_block = (slice(0, noisy), max(i - spill, first), min(j + spill, end), torch.eq)
            earlier = (clean, first, j if spill else (j - 1) // block * block, torch.lt)
            plan.append(part(slice(0, noisy), i, j, own_block, *[earlier] * (earlier[2] > first)))
        plan.append(part(clean, i, j, (clean, first, before + min(j + spill, end), torch.le)))
    return plan


class Tiles(NamedTuple):
    """FlexAttention's mask, and the length to which each stream is padded."""

    mask: Any
    padded: int


def tiles(length: int, block: int, streams: int, device: torch.device) -> Tiles:
    """The mask of `length` positions in each stream; the noisy stream comes first.

    The mask reads its sizes from tensors, and there are two tiles at least: so one compiled kernel serves all lengths
    and blocks, one stream and two.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    padded_length = max(-(-length // TILE), 3 - streams) * TILE
    with torch.inference_mode(False):  # the mask may be kept for a training
        real, b, noisy = (torch.full((), n, device=device) for n in (length, block, padded_length * (streams - 1)))

        def sees(row, head, q, k):
            clean_q, clean_k = q >= noisy, k >= noisy
            q, k = torch.where(clean_q, q - noisy, q), torch.where(clean_k, k - noisy, k)
            earlier, same_block = k // b < q // b, k // b == q // b
            return (k < real) & torch.where(clean_k, earlier | (same_block & clean_q), same_block & ~clean_q)

        n = padded_length * streams
        return Tiles(create_block_mask(sees, None, None, n, n, device=device, BLOCK_SIZE=TILE), padded_length)


kept_tiles = lru_cache(maxsize=64)(tiles)


@lru_cache(maxsize=2)
def compiled(fixed: bool) -> Callable[..., Any]:
    """FlexAttention compiled for all sizes, or, if they are fixed,
    for the first ones and again where they change after all."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=None if fixed else True)


# ---------------------------------------------------------------------------------- attention itself
def attend(q: Tensor, k: Tensor, v: Tensor, plan: Any) -> Tensor:
    """Softmax attention: q (B, H, L, W), k and v (B, H / n, P + L, W) -> (B, H, L, W); rows of two streams are 2B.

    n heads of queries share those of keys and values, each n neighbours the same.
    """
    share = q.shape[1] // k.shape[1]
    if plan is CAUSAL:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=share > 1)
    products = q.dtype in PRODUCTS and q.device.type == "cpu"
    if products and plan is None:
        plan = whole(len(q), q.shape[2], k.shape[2])
    if not isinstance(plan, (Tiles, list)):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=plan, enable_gqa=share > 1)
    if share > 1:
        k, v = (y.repeat_interleave(share, 1) for y in (k, v))
    if isinstance(plan, Tiles):
        return flexible(q, k, v, plan)
    if q.device.type == "cpu" and (products or (FORWARD and BACKWARD)):
        return Chunks.apply(q, k, v, plan)
    out = like(q, q.shape[2])
    for queries, keys, hidden in plan:
        mask = None if hidden is None else hidden.to(q.dtype)
        out[queries] = F.scaled_dot_product_attention(q[queries], gather(k, keys), gather(v, keys), attn_mask=mask)
    return out


def flexible(q: Tensor, k: Tensor, v: Tensor, plan: Tiles) -> Tensor:
    """The same by FlexAttention: streams one after another along the sequence, every head a row of its own.

    So neither the number of rows nor that of heads is a size that a kernel is compiled for.
    """
    from torch.nn.attention.flex_attention import flex_attention  # with the compiler, which takes two seconds

    (_, H, L, W), streams = q.shape, plan.mask.shape[-1] // plan.padded

    def lined(y: Tensor) -> Tensor:
        y = F.pad(y, (0, 0, 0, plan.padded - L)).unflatten(0, (streams, -1))  # (streams, B, H, padded, W)
        return y.permute(1, 2, 0, 3, 4).reshape(-1, 1, streams * plan.padded, W).contiguous()

    whole = torch.compiler.is_compiling()
    flex = flex_attention if whole else compiled(fixed=torch.is_grad_enabled())  # as sizes are in training
    out = flex(lined(q), lined(k), lined(v), block_mask=plan.mask)
    return out.reshape(-1, H, streams, plan.padded, W).permute(2, 0, 1, 3, 4).flatten(0, 1)[:, :, :L]


def whole(rows: int, length: int, keys: int) -> list[Part]:
    """The plan of queries that see all keys."""
    of = slice(0, rows)
    chunks = [(of, ALL_HEADS, slice(i, min(i + CHUNK, length))) for i in range(0, length, CHUNK)]
    return [Part(chunk, ((of, ALL_HEADS, slice(0, keys)),), None) for chunk in chunks]


def few_heads(plan: list[Part], rows: int, heads: int) -> Iterator[Part]:
    """The same plan, with fewer heads at a time where there are many scores."""
    for part in plan:
        (of, _, queries), keys = part.queries, part.keys
        scores = len(range(rows)[of]) * (queries.stop - queries.start) * sum(p.stop - p.start for *_, p in keys)
        few = max(1, SCORES // max(1, scores))
        for head in range(0, heads, few):
            some = slice(head, head + few) if few < heads else ALL_HEADS
            yield Part((of, some, queries), tuple((of, some, p) for of, _, p in keys), part.hidden)


def weights(q: Tensor, k: Tensor, hidden: Tensor | None) -> Tensor:
    """Attention weights (B, H, queries, keys)."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return (scores if hidden is None else scores.add_(hidden)).softmax(-1)


class Chunks(torch.autograd.Function):
    """Part after part, by the kernels that `scaled_dot_product_attention` calls on a CPU; in bfloat16 by matrix
    products, which take a third of the time of those kernels.

    What a part gathers is gathered again in the backward pass, not kept: only q, k, v, the result and one number for
    each query and head (the logarithm of its sum) are. Matrix products keep q, k and v.
    """

    @staticmethod
    def forward(ctx, q, k, v, plan):
        products, out = q.dtype in PRODUCTS, like(q, q.shape[2])
        sums = q.new_empty(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))
        ctx.plan = list(few_heads(plan, *q.shape[:2])) if products else plan
        for queries, keys, hidden in ctx.plan:
            mask = None if hidden is None else hidden.to(q.dtype)
            q_part, k_part, v_part = q[queries], gather(k, keys), gather(v, keys)
            if products:
                out[queries] = weights(q_part, k_part, mask) @ v_part
            else:
                out[queries], sums[queries] = FORWARD(q_part, k_part, v_part, attn_mask=mask)
        ctx.save_for_backward(q, k, v, *(() if products else (out, sums)))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, *more = ctx.saved_tensors
        dq, dk, dv = like(q, q.shape[2]), like(k, k.shape[2]).zero_(), like(v, v.shape[2]).zero_()
        for queries, keys, hidden in ctx.plan:
            mask = None if hidden is None else hidden.to(q.dtype)
            inputs = (grad[queries], q[queries], gather(k, keys), gather(v, keys))
            if more:
                kept = (y[queries] for y in more)
                dq[queries], *gradients = BACKWARD(*inputs, *kept, 0.0, False, attn_mask=mask)
            else:
                dq[queries], *gradients = gradients_of_products(*inputs, mask)
            sizes = [positions.stop - positions.start for *_, positions in keys]
            for total, whole in zip((dk, dv), gradients):
                for piece, slice_ in zip(keys, whole.split(sizes, 2)):
                    total[piece] += slice_
        return dq, dk, dv, None


def gradients_of_products(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for q, k and v of `weights(q, k, hidden) @ v`."""
    p, scale = weights(q, k, hidden), q.shape[-1] ** -0.5
    scores = torch._softmax_backward_data(grad @ v.transpose(-1, -2), p, -1, p.dtype) * scale
    return scores @ k, scores.transpose(-1, -2) @ q, p.transpose(-1, -2) @ grad


# of no public interface; a torch without them takes the plain loop of `attend`
FORWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
BACKWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def gather(x: Tensor, pieces: tuple[Piece, ...]) -> Tensor:
    """Pieces of x (B, H, K, W), one after another."""
    return x[pieces[0]] if len(pieces) == 1 else torch.cat([x[piece] for piece in pieces], 2)


def like(x: Tensor, length: int) -> Tensor:
    """Room for (B, H, length, W), the positions outside the heads in memory, as the projections have them."""
    B, H, _, W = x.shape
    return x.new_empty(B, length, H, W).transpose(1, 2)


@dataclass
class Room:
    """Memory for the keys and values of one layer, more than are there yet: what comes next is written into it, not all
    copied.

    Attributes:
        keys, values: (B, H, C, W).
        used: how many of the C positions belong to a cache; only the newest cache, which ends there, may write behind
            them.
    """

    keys: Tensor
    values: Tensor
    used: int

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, size: int) -> "Room":
        """Room for `size` positions, which begins with these."""
        B, H, P, W = keys.shape
        room = cls(keys.new_empty(B, H, size, W), values.new_empty(B, H, size, values.shape[3]), P)
        room.keys[:, :, :P], room.values[:, :, :P] = keys, values
        return room


class Past(NamedTuple):
    """Memory of one layer: keys and values (B, H, P, W), its tail, and the buffer where they stand from `start` to
    `end`, if there is room behind them."""

    keys: Tensor
    values: Tensor
    tail: Tensor
    room: Room | None = None
    start: int = 0
    end: int = 0

    def followed(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, those of the next positions (B, H, n, W) last."""
        if self.room is None:
            pairs = zip((self.keys, self.values), (keys, values))
            k, v = (torch.cat((old.to(new.dtype), new), 2) for old, new in pairs)
            return k, v
        end = self.end + keys.shape[2]
        self.room.keys[:, :, self.end : end], self.room.values[:, :, self.end : end] = keys, values
        k, v = (y[:, :, self.start : end] for y in (self.room.keys, self.room.values))
        return k.to(keys.dtype), v.to(values.dtype)


@dataclass(frozen=True)
class Cache:
    """The keys and values of P positions for each of B sequences; immutable.

    Sequences of different length end together: the shorter ones begin with positions that are not `valid`.

    Attributes:
        keys: (B, H, P, W) for each layer, rotated to where they stand; H are the heads of keys.
        values: (B, H, P, W) for each layer.
        tails: (B, kernel // 2, D) for each layer, the end of the residual stream, which the short convolution of the
            next positions reads (nothing where there is none: the kernel is 0). Of a network that shifts, the last one
            ends with the hidden state (B, 1, D) from which the next position is read.
        valid: (B, P) bool.
        place: (B,) long, the position that comes next.
        rooms: of each layer, a buffer with its positions and room behind them; none if gradients are taken.
        end: the end of the positions in the rooms.
        ragged: whether some positions are not valid, known without reading them.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    tails: tuple[Tensor, ...]
    valid: Tensor
    place: Tensor
    rooms: tuple[Room, ...] = ()
    end: int = 0
    ragged: bool = False

    def __len__(self) -> int:
        return self.valid.shape[1]

    @property
    def rows(self) -> int:
        """B."""
        return len(self.place)

    @property
    def empty(self) -> bool:
        """Return whether no sequence has remembered positions."""
        return not bool(self.valid.any())

    def take(self, rows: Tensor) -> "Cache":
        """These rows (N,) of it, in this order; all of them cost nothing."""
        if torch.equal(rows, torch.arange(self.rows, device=rows.device)):
            return self
        layers = ([y[rows] for y in of] for of in (self.keys, self.values, self.tails))
        keys, values, tails = map(tuple, layers)
        valid = self.valid[rows]
        return Cache(keys, values, tails, valid, self.place[rows], ragged=self.ragged and has_gaps(valid))

    def last(self, count: int) -> "Cache":
        """Only the last positions: the window of a text that passes the trained length. Positions go on counting."""
        start = max(len(self) - count, 0)
        keys, values = (tuple(y[:, :, start:] for y in of) for of in (self.keys, self.values))
        valid = self.valid[:, start:].contiguous()
        return replace(self, keys=keys, values=values, valid=valid, ragged=self.ragged and has_gaps(valid))

    def padded(self, count: int) -> "Cache":
        """Padded in front to `count` positions, the new ones not valid; so a growing cache keeps one size. It has no rooms
        and no gradients; itself if all of this holds already."""
        if len(self) == count and not self.rooms and self.ragged and not self.keys[0].requires_grad:
            return self
        new = count - len(self)
        keys, values = (tuple(F.pad(y, (0, 0, new, 0)).contiguous() for y in of) for of in (self.keys, self.values))
        tails = tuple(y.detach().contiguous() for y in self.tails)
        return Cache(keys, values, tails, F.pad(self.valid, (new, 0)), self.place, ragged=True)

    @property
    def seen(self) -> Tensor | None:
        """The places that can be seen, (B, P) bool; None: all."""
        return self.valid if self.ragged else None

    def free(self, n: int) -> bool:
        """Return whether the buffer has room for n more positions, and this cache is the one that may write there."""
        if not self.rooms or torch.is_grad_enabled():
            return False
        room = self.rooms[0]  # all layers have as much
        # `used` is `end` or more; asked whether they are equal, the compiler would take them for one number
        return room.used <= self.end and self.end + n <= room.keys.shape[2]

    def layer(self, i: int, n: int) -> Past:
        """Memory of one layer, before n new positions."""
        room = self.rooms[i] if self.free(n) else None
        return Past(self.keys[i], self.values[i], self.tails[i], room, self.end - len(self), self.end)


def has_gaps(valid: Tensor) -> bool:
    """Return whether some positions are not `valid` (B, P), or may be, where no value is read."""
    return fixed() or not bool(valid.all())


@dataclass(frozen=True)
class Reading:
    """Keys, values and streams of a bidirectional network at whole texts x (B, L), for a later pass over a part.

    Such a pass (`reread`) computes the part anew, beside keys and values of the other positions that may be out of
    date: they are those of x (Fast-dLLM, arXiv 2505.22618).

    Attributes:
        x: (B, L), the texts.
        keys, values: (B, H, L, W) for each layer.
        streams: (B, L, D) for each layer, the residual stream that its short convolution read; (B, L, 0) where there is
            none.
    """

    x: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    streams: tuple[Tensor, ...]

    def take(self, rows: Tensor) -> "Reading":
        """These rows (N,) of it; all of them cost nothing."""
        if torch.equal(rows, torch.arange(len(self.x), device=rows.device)):
            return self
        return Reading(self.x[rows], *(tuple(y[rows] for y in of) for of in (self.keys, self.values, self.streams)))

    def into(self, before: "Reading | None", rows: Tensor, count: int) -> "Reading":
        """Reading of `count` texts: these in the rows (N,), the others as they were `before`; None: never read."""
        if len(rows) == count:
            return self.take(rows.argsort())

        def put(old: Tensor | None, new: Tensor) -> Tensor:
            old = new.new_zeros(count, *new.shape[1:]) if old is None else old
            return old.index_copy(0, rows, new)

        layers = (
            tuple(put(None if before is None else getattr(before, of)[i], y) for i, y in enumerate(getattr(self, of)))
            for of in ("keys", "values", "streams")
        )
        return Reading(put(None if before is None else before.x, self.x), *layers)

    def beside(self, layer: int, start: int) -> "Beside":
        """Memory of one layer, for a part that begins at `start`."""
        return Beside(self.keys[layer], self.values[layer], self.streams[layer], start)


class Beside(NamedTuple):
    """Keys and values (B, H, L, W) of whole texts in one layer, and the stream (B, L, D) before its convolution; for a
    part from `start` on."""

    keys: Tensor
    values: Tensor
    stream: Tensor
    start: int

    def followed(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, those of the part (B, H, n, W) in their place."""
        k, v = (
            torch.cat((old[:, :, : self.start], new, old[:, :, self.start + new.shape[2] :]), 2)
            for old, new in zip((self.keys, self.values), (keys, values))
        )
        return k, v

    def around(self, x: Tensor, reach: int) -> tuple[Tensor, int]:
        """The stream x (B, n, D) of the part, with up to `reach` positions on either side,
        and how many stand before it."""
        before = self.stream[:, max(self.start - reach, 0) : self.start]
        after = self.stream[:, self.start + x.shape[1] : self.start + x.shape[1] + reach]
        return torch.cat((before, x, after), 1), before.shape[1]


class InParts:
    """A transformer that reads a text in parts: block after block with a `Cache`,
    or a part of it beside a `Reading`."""

    def advance(
        self,
        cache: Cache | None,
        x: Tensor,
        time: Tensor | None = None,
        valid: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Hidden states (B, n, D) of clean tokens x (B, n) after what the cache holds,
        and a cache that holds them too."""
        raise NotImplementedError

    def _reading(
        self, x: Tensor, start: int, reading: Reading | None, condition: Tensor | None
    ) -> tuple[Tensor, Reading]:
        """Hidden states of x, the texts from `start` on, beside a reading of them if there is one;
        and the reading of x."""
        raise NotImplementedError

    def extend(self, cache: Cache | None, x: Tensor, *args: Tensor | None, **kwargs: Tensor | None) -> Cache:
        """The cache of `advance`, which takes the same."""
        return self.advance(cache, x, *args, **kwargs)[1]

    def read(self, x: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Reading]:
        """Read whole texts x (B, L): hidden states (B, L, D),
        and what a later pass over a part of them reads beside it."""
        return self._reading(x, 0, None, condition)

    def reread(self, x: Tensor, start: int, reading: Reading, condition: Tensor | None = None) -> Tensor:
        """Hidden states (B, n, D) of x (B, n), the texts from `start` on;
        the other positions are as they were in `reading`."""
        return self._reading(x, start, reading, condition)[0]


def remembered(
    cache: Cache | None,
    layers: list[tuple[Tensor, Tensor, Tensor]],
    x: Tensor,
    valid: Tensor | None,
    length: int,
    block: int,
) -> Cache:
    """The cache that holds the positions of x (B, n), too: of each layer all keys and values (B, H, P + n, W), those of
    `cache` first, and the tail of the residual stream.

    Args:
        valid: (B, n), which of the new positions can be seen; None: all.
        length, block: of the network; there is room for as much as it reads, and a block; where that is full for as
            much again.
    """
    n, ragged = x.shape[1], valid is not None and not bool(valid.all())
    valid = torch.ones_like(x, dtype=torch.bool) if valid is None else valid
    place = valid.sum(-1)
    if cache is not None:
        valid, place, ragged = torch.cat((cache.valid, valid), 1), place + cache.place, cache.ragged
    keys, values, tails = zip(*layers)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return Cache(keys, values, tails, valid, place, ragged=ragged)
    if cache is not None and cache.free(n):
        rooms, end = cache.rooms, cache.end + n
        for room in rooms:
            room.used = end
    else:
        end = keys[0].shape[2]
        capacity = length + block if end < length else 2 * end
        rooms = tuple(Room.of(k, v, capacity) for k, v in zip(keys, values))
        keys, values = zip(*((room.keys[:, :, :end], room.values[:, :, :end]) for room in rooms))
    return Cache(keys, values, tails, valid, place, rooms, end, ragged)


def check_context(block: int, x: Tensor, segments: Tensor | None, clean: Tensor | None, cache: Cache | None) -> None:
    """InputError where clean tokens or a cache do not fit x (B, L), or a network in blocks of `block` (0: none)."""
    if clean is None and cache is None:
        return
    if not block:
        raise InputError("this network has no blocks, so it reads nothing but x; build it with block=16 or so")
    if clean is not None and clean.shape != x.shape:
        raise InputError(f"the clean tokens are {tuple(clean.shape)}, the noisy ones {tuple(x.shape)}; give as many")
    if cache is None:
        return
    if clean is not None or segments is not None:
        raise InputError("a cache comes without clean tokens and without segments; give one of them")
    if cache.rows != len(x):
        raise InputError(f"the cache is of {cache.rows} rows and the input of {len(x)}; use cache.take(rows)")


def check_whole(block: int, x: Tensor, cache: Cache | None, valid: Tensor | None) -> None:
    """InputError for what a cache cannot hold."""
    if not block:
        raise InputError("this network has no blocks, so it remembers nothing; build it with block=16 or so")
    lengths = [x.shape[1]] if valid is None else valid.sum(-1).tolist()
    cut = next((length for length in lengths if length % block), None)
    if cut is not None:
        raise InputError(f"{cut} tokens are not whole blocks of {block}; give whole ones")
    if valid is not None and (cache is not None or (valid[:, :-1] & ~valid[:, 1:]).any()):
        raise InputError("valid is for the first tokens of a cache, and shorter rows begin with what is not valid")
