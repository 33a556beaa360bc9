"""Block after block: text of any length, with any sampler of masked models inside (BD3-LM, arXiv 2503.09573, algorithm
2).

    p(x) = prod over blocks of p(block | the blocks before)

This is the outer loop of block diffusion. In each block another sampler runs from masks to tokens. Then the block is
read once: its keys and values are the context (`State.context`) of the later blocks. The distribution is the product of
the inner sampler's distributions, with the inner sampler's error. Given tokens are read in the same way, so a prompt
within the window costs one network evaluation.

**Two kinds of networks.** A network of blocks (bd3lm) reads one block of `method.block` tokens after another, from a
cache. A network of whole texts (mdlm, md4) writes semi-autoregressively (MDLM, arXiv 2406.07524): first a text of its
own length L, then `stride` tokens at a time, given the last L - stride tokens. It has no cache, because its hidden
states of earlier tokens depend on the later ones.

**Any length.** In a text longer than the network's length L, the network sees a window of L tokens that ends with the
current block. The last block is always sampled whole, and cut where the text ends. So a shorter text with the same seed
is the beginning of the longer one.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.errors import InputError
from ..base.requests import TOKENS, declared, option
from ..base.waiting import fixed
from ..core import random
from ..core.random import Randomness
from ..methods.diffusion import Diffusion
from .captured import captures
from .growing import Ending, Growing, Growth, begin, close, pieces, window_of
from .in_blocks import InBlocks
from .pairing import BLOCKS, continuous_distribution, irreversible, not_absorbing, of_length
from .sampler import LOOK, State


@declared
class Blockwise(InBlocks, Growing):
    """One block after another, each written by another sampler, whose steps are per block. `state.memory` is a
    `Growth`."""

    stride: int | None = option(
        "tokens of each later block, for a network without blocks (default: half its length)",
        default=None,
        minimum=1,
        maximum=TOKENS,
    )

    name: ClassVar[str] = "blockwise"
    label: ClassVar[str] = "Block after block"
    sentence: ClassVar[str] = "Each block is written by the block sampler under More options."
    grows: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.inner.grows:
            raise InputError(f"sampler '{self.inner.name}' writes no block; inside use ancestral or first_hitting")

    @classmethod
    def reason_against(cls, method):
        inside = of_length(method, 1)  # a text of one token is in one block
        return not_absorbing(inside) if method.block == 0 else irreversible(inside)

    def layout(self, method: Diffusion) -> tuple[int, int, int]:
        """Tokens of the first block, tokens of each later block, and the window: how many tokens the network sees, the
        block included."""
        block, limit, window = method.block, method.window, window_of(method, self.window)
        if not 0 < block < limit:
            stride = self.stride or max(window // 2, 1)
            if stride > window:
                raise InputError(f"`stride` is {stride:,}, the window has {window:,} tokens; give {window:,} or less")
            return window, stride, window
        if self.stride not in (None, block):
            raise InputError(f"`stride` is {self.stride:,}, this network has blocks of {block:,}; leave it out")
        if self.window is None:
            return block, block, limit - limit % block
        if window % block:
            below, above = window - window % block, window + -window % block
            near = f"{below:,} or {above:,}" if below and above <= limit else f"{below or above:,}"
            raise InputError(f"`window` {window:,} is not a multiple of block {block:,}; nearest: {near}")
        return block, block, window

    def distribution(self, method: Diffusion, steps):
        first_block, *_ = self.layout(method)
        distribution = self.inner.distribution(of_length(method, first_block), steps)
        if self.window not in (None, method.window) or self.ending.entropy is not None:
            return super().distribution(method, steps)
        if method.exact and distribution.number is not None:  # a token a block: steps draw none together
            distribution = continuous_distribution(method)
        return distribution if first_block == method.shape[0] else distribution.changed(*BLOCKS, distribution.number)

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """Lines of `times_of_blocks`."""
        first_block, stride, _ = self.layout(method)
        later = max(-(-(method.shape[0] - first_block) // stride), 0)
        return self.times_of_blocks(method, [first_block] + [stride] * later, steps)

    def expected_calls(self, method: Diffusion, times, free):
        """Expected evaluations of the inner sampler in each block, and those that read the context; None if texts may
        end early."""
        if self.ending != Ending() or self.ahead:
            return None
        first_block, stride, window = self.layout(method)
        has_cache, N, read, total = 0 < method.block < method.window, method.shape[0], 0, 0.0
        inside = of_length(method, method.block if has_cache else window)
        for left in range(int(times[0, 0]), 0, -1):
            block_times = times[times[:, 0] == left]
            end = first_block + (int(times[0, 0]) - left) * stride
            begin = 0 if end == first_block else end - stride
            count = min(free - max(N - end, 0), min(end, N) - begin)  # all later ones are free: see `check_given`
            if count <= 0:
                continue
            if has_cache:
                total += sum(1 for _ in pieces(read, begin, min(read, window - method.block), window, method.block))
                read = begin
            grid = torch.cat((block_times[:, 1], block_times[-1:, 2]))
            evaluations = self.inner.expected_calls(
                inside, grid, count + max(end - N, 0)
            )  # the last block is drawn whole
            if evaluations is None:
                return None
            total += evaluations
        return total

    def most_calls(self, method, times):
        """Evaluations of the inner sampler, and one for each block that reads the context."""
        return (self.inner.most_calls(method, times) + int(times[0, 0])) * (1 + self.redraw)

    def has_fixed_shape(self, method: Diffusion, shape):
        first_block, *_ = self.layout(method)
        inside = of_length(method, first_block)
        return self.ending.entropy is None and self.inner.has_fixed_shape(inside, (shape[0], first_block))

    def admit(self, method: Diffusion, fixed):
        first_block, stride, _ = self.layout(method)
        self.check_given(method, fixed, first_block, stride)

    def init(self, method: Diffusion, shape, *, fixed=None, generator=None):
        state, (first_block, _, _) = super().init(method, shape, fixed=fixed, generator=generator), self.layout(method)
        rows = torch.arange(shape[0], device=state.x.device)
        memory = Growth(0, 0, torch.full_like(rows, shape[1]), rows)
        return self._begin(method, replace(state, memory=memory), first_block, generator)

    def step(self, method: Diffusion, state, t, s, generator=None):
        memory, left, last = state.memory, int(t[0]), int(s[0]) != int(t[0])
        if len(memory.rows):
            inner = memory.inner
            inside, streams = of_length(method, inner.x.shape[1]), random.of_rows(generator, memory.rows, memory.open)
            if state.condition is not None:
                inner = replace(inner, condition=state.condition[memory.rows])
            state = self._put(state, self.step_inside(inside, inner, t, streams))
        if not last:
            return state
        state = close(state, self.ending)
        return state if left == 1 else self._begin(method, state, self.layout(method)[1], generator)

    def _put(self, state: State, inner: State) -> State:
        """Copy the inner sampler's block into the state."""
        memory: Growth = state.memory
        rows, start = memory.rows, memory.end - inner.x.shape[1]
        x, calls = state.x.clone(), inner.calls - memory.inner.calls  # pyright: ignore[reportOptionalMemberAccess]
        written = inner.x[:, : x.shape[1] - start]
        if memory.open is not None:
            calls = calls * memory.open
            written = torch.where(memory.open[:, None], written, x[rows, start : memory.end])
        x[rows, start : memory.end] = written
        memory = replace(memory, inner=inner, steps=memory.steps + 1)
        return replace(state, x=x, calls=state.calls.index_add(0, rows, calls), memory=memory)

    def _begin(self, method: Diffusion, state: State, new: int, generator: Randomness) -> State:
        """Start the block of the next `new` tokens. Its context is read, unless it is given in all texts."""
        look = not fixed() or state.memory.steps >= LOOK
        graph = captures(method)
        state, (_, _, window) = begin(state, new, look, all_rows=graph), self.layout(method)
        memory: Growth = state.memory
        rows, end = memory.rows, memory.end
        if len(rows) == 0:
            return state
        has_cache, N = 0 < method.block < method.window, state.x.shape[1]
        if has_cache and memory.free < end:
            state = self._read(method, state, window)
        start = memory.begin if has_cache else end - window
        position = torch.arange(start, min(end, N), device=state.x.device)
        given_at = state.fixed[rows, start:end] | (position < memory.begin)
        given = pad(torch.where(given_at, state.x[rows, start:end], -1), (0, end - start - len(position)), value=-1)
        shape = (len(rows), end - start)
        inside, streams = of_length(method, shape[1]), random.of_rows(generator, rows, memory.open)
        context = state.context
        if context is not None and graph:  # which reads one size, for all blocks
            context = context.padded(min(window, -(-N // method.block) * method.block) - method.block)
        inner = replace(self.inner.init(inside, shape, fixed=given, generator=streams), context=context)
        return replace(state, memory=replace(state.memory, inner=inner))

    def _read(self, method: Diffusion, state: State, window: int) -> State:
        """Extend the context by everything before the block, for the texts that are still being written."""
        memory, context, calls = state.memory, state.context, state.calls
        x = state.x[memory.rows]
        ones = memory.written
        length = 0 if context is None else len(context)
        more = {} if state.condition is None else {"condition": state.condition[memory.rows]}
        for piece in pieces(memory.read, memory.begin, length, window, method.block):
            context = method.extend(context, x[:, piece], **more).last(window - method.block)  # BD3-LM algorithm 2
            calls = calls.index_add(0, memory.rows, ones)
        return replace(state, context=context, calls=calls, memory=replace(memory, read=memory.begin))
