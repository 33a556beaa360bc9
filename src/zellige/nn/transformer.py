"""A transformer that reads a sequence of states and returns, per position, one logit per state: bidirectional, or in
blocks.

The blocks are the DiT blocks that SEDD (Lou et al. 2024), MDLM (Sahoo et al. 2024) and their successors share: rotary
positions, layer norms without bias, a tanh-GELU MLP four times as wide, and, only in a network that is conditioned on
time or class, adaptive layer norm (Peebles & Xie 2023). A time-free network has none of the adaptive part: it is not
fed a constant, but where its weights are published ones (`Net.constant`). Those load by renaming keys
(`zellige.plugins.published`).

`features` and `head` are apart so that the head, which is most of the work at 50,000 states, is paid only at the
positions that are read.

With `block` > 0 the sequence is cut into blocks, and a position sees its own and those before (`attention.py` says whom
exactly). Such a network can read two streams at once, noisy tokens and clean ones, as block diffusion is trained
(BD3-LM, Arriola et al. 2025), and it can remember what it has read (`attention.Cache`). Its weights are those of a
network without blocks.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..base.errors import InputError
from ..base.waiting import at_hand
from .attention import ALL, Cache, InParts, Reading, check_context, check_whole, remembered, sight
from .block import Block, Net
from .conv import ConvBlock, refuse_blocks
from .embedding import (
    Modulation,
    Places,
    TimeEmbedding,
    axial_table,
    both,
    check_inputs,
    chosen,
    embed_classes,
    modulate,
    rotary_at,
    rotary_table,
)
from .linear import Linear
from .patches import Patches

__all__ = ["Block", "DiT", "Net"]


class DiT(InParts, nn.Module):
    """States (B, L) -> hidden states (B, L, D) by `features`, -> logits (*, K) by `head`.

    `states` is K, the mask included. With `time` the network is conditioned on the time of each sequence or position.
    `bias` gives the layer norms a bias (RADD's checkpoints have one). `outputs` is what the head gives where that is
    not K logits. `block` is the length of a block (the last may be shorter); 0: every position sees every other; 1: a
    causal network. Without its `ends`, the last layer norm and the head, the features are what the last block leaves.
    On patches (`Net.patch`) D is the width of a pixel.
    """

    @property
    def sees_given(self) -> bool:
        """Whether the network sees which positions are given."""
        return self.given is not None

    @property
    def passes(self) -> int:
        """Number of times that an evaluation reads the text."""
        return 1 if self.estimates is None else 2

    def __init__(
        self,
        net: Net,
        states: int,
        time: bool = False,
        bias: bool = False,
        outputs: int | None = None,
        block: int = 0,
        ends: bool = True,
    ):
        super().__init__()
        if block < 0:
            raise InputError(f"`block` is {block}; it must be 1 or more, or 0 for none")
        if block and net.grid:
            shape = " x ".join(map(str, net.grid))
            raise InputError(f"blocks run along a line, not over a grid of {shape}; use a method without, such as mdlm")
        if net.self_condition and outputs not in (None, states):
            raise InputError(
                "`net.self_condition` reads a probability of each token; the head must give one: `head` logits"
            )
        if time and net.constant:
            raise InputError(
                "`net.constant` is for a method that tells its network no time; this one does: leave it out"
            )
        if net.latents and (net.classes or block):
            raise InputError(
                "a mixture over a latent is for networks without classes and blocks; leave `net.latents` out"
            )
        self.net, self.states, self.time_conditioned, self.block = net, states, time, block
        self.chooses = net.patch == 1  # whether `features` can be asked at some positions
        self.latents = net.latents
        D, W = net.hidden, net.hidden // net.patch
        adaptive = time or net.constant or net.classes > 0
        self.embedding = nn.Embedding(states, W)
        self.patches = Patches(net) if net.patch > 1 else None
        self.time = TimeEmbedding(net.condition) if time or net.constant else None
        self.classes = nn.Embedding(net.classes + 1, net.condition) if net.classes else None
        if net.kind == "conv":
            refuse_blocks(net, block)
            self.blocks = nn.ModuleList(ConvBlock(net, adaptive, bias, i) for i in range(net.layers))
        else:
            self.blocks = nn.ModuleList(Block(net, adaptive, bias) for _ in range(net.layers))
        self.norm = nn.LayerNorm(D, bias=bias) if ends else None
        self.modulation = Modulation(net.condition, D, 2) if ends and adaptive else None
        self.head = Linear(W, outputs or states) if ends else None
        width = D // net.heads
        rotary = axial_table(net.cells, width) if net.grid else rotary_table(net.length, width)
        self.places = nn.Parameter(torch.empty(math.prod(net.cells), D)) if net.grid else None
        self.given = nn.Parameter(torch.empty(W)) if net.given else None
        self.estimates = nn.Parameter(torch.empty(states, W)) if ends and net.self_condition else None
        self.latent = nn.Embedding(net.latents, D) if net.latents else None
        self.register_buffer("rotary", rotary, persistent=False)
        self.initialise()

    def initialise(self) -> None:
        """Head and adaLN start at zero, so that the first prediction is uniform. The branches add variance 1 in all;
        the convolutions multiply it by e^4 at most, however many there are."""
        for name, p in self.named_parameters():
            if name.endswith("dilated.weight"):
                nn.init.normal_(p, std=len(p) ** -0.5)
            elif name.endswith("conv.weight"):
                nn.init.normal_(p, std=2 / math.sqrt(len(p) * self.net.layers))
            elif p.ndim == 2 and not name.startswith("head") and "modulation" not in name:
                last = name.endswith(("out.weight", "mlp.2.weight"))  # of a residual branch
                std = 1.0 if name.startswith(("embedding", "places")) else p.shape[1] ** -0.5
                nn.init.normal_(p, std=std / math.sqrt(2 * self.net.layers) if last else std)
            elif not name.endswith("weight"):
                nn.init.zeros_(p)
        for weight in (self.estimates, None if self.head is None else self.head.weight):
            if weight is not None:
                nn.init.zeros_(weight)

    def features(
        self,
        x: Tensor,
        time: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        condition: Tensor | None = None,
        clean: Tensor | None = None,
        clean_time: Tensor | None = None,
        cache: Cache | None = None,
        at: Places | None = None,
        given: Tensor | None = None,
        estimate: Tensor | None = None,
    ) -> Tensor:
        """The hidden states (B, L, D) that `head` reads.

        x (B, L) states; time: a scalar, (B,) or (B, L), finite, for a network with time and only for one; segments
        (B, L): positions see only those of the same number (packed documents). L may not exceed `net.length`. condition
        (B,), for a network with classes: the class of each row, or -1 or the last (as None): it has none. at: the
        positions that are read, whose hidden states (N, D) it then gives; the last block looks at all, and ends at
        these. With `Net.latents` the condition is the value of the latent.
        given (B, L) bool, for a network that sees them (`Net.given`): the positions whose tokens carry no noise.

        With `Net.self_condition` x is read twice. The second pass sees, at each position, the probabilities that the
        first one gave; in training it sees them in half of the rows, drawn at random, and the first pass has no
        gradient (Analog Bits, Chen et al. 2022). In evaluation the network is a function of x and the time like any
        other, so bounds and samplers hold for it as they are; what they call an evaluation is two passes. With
        `estimate` (B, L, K) there is one pass, which sees these probabilities (zeros: none).

        For a network of blocks, one of these: clean (B, L), the tokens that stand in the blocks before (`clean_time`,
        like `time`, is their time input; None: the same); or cache, what was read before x, which begins a block.
        """
        self._check(x, time, segments, condition, clean, cache)
        read = partial(self._read, x, time, segments, condition, clean, clean_time, cache, given)
        if self.estimates is None or self.head is None:
            return read(None, at)
        if estimate is not None:
            return read(estimate.to(self.estimates.dtype) @ self.estimates, at)
        with torch.no_grad():
            first = self.head(read(None, None)).softmax(-1)
            if self.training:
                first = first * (torch.rand(len(x), 1, 1, device=x.device) < 0.5)
        return read(first @ self.estimates, at)

    def _read(
        self,
        x: Tensor,
        time: Tensor | None,
        segments: Tensor | None,
        condition: Tensor | None,
        clean: Tensor | None,
        clean_time: Tensor | None,
        cache: Cache | None,
        given: Tensor | None,
        beside: Tensor | None,
        at: Places | None,
    ) -> Tensor:
        """One pass of `features`; `beside` (B, L, D) is added to what the noisy tokens are embedded as."""
        B = len(x)
        clean = clean if x.shape[1] > self.block else None  # in a single block nothing stands before
        streams = 1 if clean is None else 2
        before, visible = (0, None) if cache is None else (len(cache), cache.seen)
        view = sight(self.block, streams, x, segments, before, visible)
        if clean is not None:
            x, time = torch.cat((x, clean)), None if time is None else both(time, clean_time, x)
            condition = None if condition is None else condition.repeat(2)
        c = self.conditioning(x, time, condition)
        h, rotary = self._embed(x), self._rotary(x, cache)
        if given is not None and self.given is not None:
            beside = given[..., None] * self.given + (0 if beside is None else beside)
        if beside is not None:
            h = h + (beside if streams == 1 else torch.cat((beside, torch.zeros_like(beside))))
        pixels = h
        if self.patches is not None:
            h = self._placed(self.patches.join(h))
        if self.latent is not None:
            h = h + self.latent(condition)[:, None]
        for i, block in enumerate(self.blocks):
            past = None if cache is None else cache.layer(i, x.shape[1])
            where_ = at if i + 1 == len(self.blocks) else None
            if self.net.checkpoint and torch.is_grad_enabled():
                h = checkpoint(block, h, rotary, c, view, past, where_, use_reentrant=False)
            else:
                h = block(h, rotary, c, view, past, where_)
        h = self._end(h[:B] if at is None else h, c, at)
        return h if self.patches is None else self.patches.part(h, pixels)

    def advance(
        self,
        cache: Cache | None,
        x: Tensor,
        time: Tensor | None = None,
        valid: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Read clean tokens x (B, n), whole blocks, after what the cache holds (None: nothing): their hidden states
        (B, n, D) and a cache that holds them too.

        In a first call rows may differ in length: valid (B, n) bool is then False at the positions that a shorter row
        begins with, whole blocks of them too, and what stands there means nothing.
        """
        self._check(x, time, None, condition, None, cache)
        check_whole(self.block, x, cache, valid)
        if self.net.kind == "conv" and valid is not None and not bool(valid.all()):
            raise InputError("a convolutional network begins all sequences at once; give prompts of one length")
        segments = None if valid is None else valid.long()
        before, visible = (0, None) if cache is None else (len(cache), cache.seen)
        view = sight(self.block, 1, x, segments, before, visible)
        c = self.conditioning(x, time, condition)
        h, rotary = self._embed(x), self._rotary(x, cache, valid)
        able = torch.ones_like(x, dtype=torch.bool) if valid is None else valid
        layers_ = []
        for i, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            past = None if cache is None else cache.layer(i, x.shape[1])
            reach = self.net.conv // 2 if block.conv else 0
            tail = h.new_zeros(len(x), reach, h.shape[-1]) if past is None else past[2]
            if tail.shape[1]:
                tail = torch.cat((tail, h * able[..., None]), 1)[:, x.shape[1] :].clone()
            h, k, v = block.remember(h, rotary, c, view, past)
            layers_.append((k, v, tail))
        return self._end(h, c), remembered(cache, layers_, x, valid, self.net.length, self.block)

    def _reading(
        self, x: Tensor, start: int, reading: Reading | None, condition: Tensor | None
    ) -> tuple[Tensor, Reading]:
        if (
            self.block
            or self.net.grid
            or self.net.kind == "conv"
            or self.estimates is not None
            or self.given is not None
        ):
            raise InputError("only a bidirectional transformer of texts, without self-conditioning, is read in parts")
        self._check(x, None, None, condition, None, None)
        c, h, layers = self.conditioning(x, None, condition), self._embed(x), []
        cos, sin = self.rotary[:, start : start + x.shape[1]]
        for i, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            stream = h if block.conv is not None else h[..., :0]
            h, k, v = block.remember(h, (cos, sin), c, ALL, None if reading is None else reading.beside(i, start))
            layers.append((k, v, stream))
        return self._end(h, c), Reading(x, *map(tuple, zip(*layers)))

    def _embed(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        return self._placed(h) if self.patches is None else h

    def _placed(self, h: Tensor) -> Tensor:
        return h if self.places is None else h + self.places

    def _rotary(self, x: Tensor, cache: Cache | None, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """cos and sin of the positions of x, (L, W / 2) or (B, L, W / 2):
        a row counts from its first valid position."""
        L = x.shape[1]
        if cache is not None:
            begin = cache.place
        elif valid is not None:
            begin = -(~valid).sum(-1)
        else:
            cos, sin = self.rotary[:, :L]
            return cos, sin
        position = begin[:, None] + torch.arange(L, device=x.device)
        cos, sin = rotary_at(position.clamp_min(0), self.net.hidden // self.net.heads)
        return cos, sin

    def _end(self, h: Tensor, c: tuple, at: Places | None = None) -> Tensor:
        if self.norm is None:
            return h
        if self.modulation is None:
            return self.norm(h)
        vector, where = c
        shift, scale = self.modulation(vector, where if where is None or at is not None else where[: len(h)])
        return modulate(self.norm, h, *chosen(at, shift, scale))

    def _check(self, x, time, segments, condition, clean, cache) -> None:
        """InputError for what does not fit this network."""
        length = x.shape[1]
        if cache is None and length > self.net.length:
            raise InputError(f"the input has {length} positions; the network was built for {self.net.length}")
        if self.net.grid and (length < self.net.length or segments is not None):
            shape = " x ".join(map(str, self.net.grid))
            raise InputError(
                f"a network on a grid of {shape} takes all its {self.net.length:,} positions, without segments"
            )
        if self.patches is not None and time is not None and time.ndim > 1:
            raise InputError(
                f"the time is {tuple(time.shape)}; a network on patches takes one for each row, ({len(x)},), or one for all"
            )
        check_inputs(self.time_conditioned, time, self.latent if self.latents else self.classes, condition)
        if self.latents and condition is None:
            raise InputError("this network is a mixture over a latent; give its value for each row as the condition")
        check_context(self.block, x, segments, clean, cache)

    def conditioning(self, x: Tensor, time: Tensor | None, condition: Tensor | None = None) -> tuple:
        """Input of `Modulation` for x (B, L): () without modulation, one vector if it is the same for all."""
        if self.time is None and self.classes is None:
            return ()
        if self.classes is None:
            return (self.time(self._never(x)), None) if time is None else self.embed_time(time)  # pyright: ignore
        c = embed_classes(self.classes.weight, condition, len(x))
        rows = torch.arange(len(x), device=x.device)[:, None]
        if time is None:
            return (c if self.time is None else c + self.time(self._never(x))), rows
        vector, where = self.embed_time(time)
        if where is None or where.shape[-1] == 1:
            return c + vector, rows
        return (c[:, None] + vector[where]).flatten(0, 1), torch.arange(x.numel(), device=x.device).view(x.shape)

    def _never(self, x: Tensor) -> Tensor:
        """The constant time input of a time-free network: sigma = 0."""
        return torch.zeros((), device=x.device)

    def embed_time(self, time: Tensor) -> tuple[Tensor, Tensor | None]:
        """The embeddings (U, condition) of the distinct times, and which of them each row or position has.

        Where nothing is learnt and all rows have one, as in sampling: the embedding (condition,), and None. Only on a
        CPU: a GPU would be waited for.
        """
        alike = time.ndim == 1 and len(time) > 0 and at_hand(time) and not torch.is_grad_enabled()
        assert self.time is not None
        if alike and bool((time == time[0]).all()):
            return self.time(time[0]), None
        if time.ndim == 2:
            distinct, where = time.unique(return_inverse=True)
        else:  # one per row: few enough, and `unique` would wait for the device
            distinct = time.reshape(-1)
            where = torch.arange(len(distinct), device=time.device)[:, None]
        return self.time(distinct), where

    def forward(self, x: Tensor, time: Tensor | None = None, **kwargs) -> Tensor:
        """Logits (B, L, K) at every position: for small K and for tests."""
        assert self.head is not None
        return self.head(self.features(x, time, **kwargs))
