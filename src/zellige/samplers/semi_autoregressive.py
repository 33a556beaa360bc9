"""Block after block inside a text, with a cache of keys and values (LLaDA, arXiv 2502.09992; Fast-dLLM, arXiv
2505.22618).

    p(x) = prod over blocks of p(block | the blocks before, masks after)

For networks without a time input in which every position sees every other: those of mdlm and radd, md4 with `time` off,
LLaDA, Dream. The text is cut into blocks of `block_length` positions, and another sampler writes them from left to
right. Each evaluation sees the whole text, so positions to the right of a block may be given. The distribution is the
product of the inner sampler's distributions, with its error. With the exact network it is that of the data.

**Caches.** Most of what an evaluation computes changes little within a block. So some evaluations read the whole text
and keep the keys and values of all layers: the first of each block, or every `refresh`-th. The others compute only a
part of the text, and use the kept keys and values of the remainder:

    prefix    the part is the block and all that follows it
    dual      the part is the block alone

**This is an approximation.** The kept keys and values depend on the tokens of the block, which have changed since
(except in the first layer). With `refresh` 1 every evaluation reads the whole text, and a cache changes nothing.
`zellige verify --only caches` computes the total variation on a small space; in general no bound on it is known.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.errors import InputError
from ..base.requests import TOKENS, declared, option
from ..core.positions import positions
from ..core.prediction import Prediction
from ..core.schedule import as_time
from ..methods.diffusion import Diffusion
from ..nn.attention import Reading
from .guide import Truncated, Wrapper
from .in_blocks import InBlocks
from .pairing import BLOCKS, not_absorbing, of_length
from .sampler import Exactness, Memory, State

Kind = Literal["none", "prefix", "dual"]
TIMED = (
    "needs a network without a time input (`time` off): masks and keys outside the block would be those of other times"
)
WRITES = (
    "ancestral",
    "first_hitting",
    "any_order",
    "fixed_order",
    "confidence",
    "klass",
    "euler",
)  # one evaluation a step


@dataclass(frozen=True)
class Around:
    """The texts that a block stands in, and what the network kept of them: the context of the sampler inside.

    Attributes:
        x: (B, N) the texts.
        start: the first position of the block.
        due: (B,) bool, whether the next evaluation of a row reads its whole text.
        reading: the last whole reading of each row; None before the first.
        rows: (B,) which of the sampler's rows these are.
        news: what evaluations found, for rows: filled by `Inside`, read by the sampler after the step.
    """

    x: Tensor
    start: int
    due: Tensor
    reading: Reading | None
    rows: Tensor
    news: list[tuple[Tensor, Reading]]

    def take(self, rows: Tensor) -> "Around":
        """These rows (N,)."""
        reading = None if self.reading is None else self.reading.take(rows)
        return replace(self, x=self.x[rows], due=self.due[rows], reading=reading, rows=self.rows[rows])

    def updated(self) -> Reading | None:
        """The last whole reading of each row, the new ones among them."""
        reading = self.reading
        for rows, new in self.news:
            reading = new.into(reading, rows, len(self.x))
        return reading


class Inside(Wrapper):
    """A method for one block (B, S) of longer texts, which come as the context, an `Around`."""

    changes = "a cache"

    def __init__(self, method: Any, length: int, cache: str):
        super().__init__(method)
        self.shape, self.cache = (length,), cache

    def of_length(self, length: int) -> "Inside":
        """For blocks of another length."""
        return Inside(self.method, length, self.cache)

    def predict(
        self,
        x_t: Tensor,
        t: Tensor | float,
        *,
        at: Tensor | None = None,
        condition: Tensor | None = None,
        context: Any = None,
        segments: Tensor | None = None,
    ) -> Prediction:
        """The prediction at positions `at` (B, S) of the blocks x_t (B, S); see `Diffusion.predict`."""
        around: Around = context
        begin, end = around.start, around.start + x_t.shape[1]
        at = torch.ones_like(x_t, dtype=torch.bool) if at is None else at
        x = torch.cat((around.x[:, :begin], x_t, around.x[:, end:]), 1)
        time = as_time(t, x.device).to(x.device, torch.float64).expand(x_t.shape)
        if self.cache == "none":
            latest = time.amax(-1, keepdim=True)  # of a mask after the block, too
            times = torch.cat((latest.expand(-1, begin), time, latest.expand(-1, x.shape[1] - end)), 1)
            places = pad(at, (begin, x.shape[1] - end))
            return self.method.predict(x, times, at=places, condition=condition)
        h = self._hidden(x, x_t, around, condition)
        where = positions(at)
        return self.method.read(self.method.logits(where.of(h)), where.of(x_t), where.of(time))

    def _hidden(self, x: Tensor, x_t: Tensor, around: Around, condition: Tensor | None) -> Tensor:
        """Hidden states (B, S, D) of the blocks: of a whole reading where it is due,
        else of a part beside the last one."""
        (begin, size), parts = (around.start, x_t.shape[1]), []
        shifts = begin > 0 and getattr(getattr(self.method.network, "net", None), "shift", False)
        shift = int(shifts)  # of the position that the first one is read from
        for rows in (around.due.nonzero()[:, 0], (~around.due).nonzero()[:, 0]):
            if len(rows) == 0:
                continue
            classes = None if condition is None else condition[rows]
            if around.due[rows[0]]:
                h, reading = self.method.read_whole(x[rows], classes)
                around.news.append((around.rows[rows], reading))
                h = h[:, begin : begin + size]
            else:
                assert around.reading is not None
                end = x.shape[1] if self.cache == "prefix" else begin + size
                part = x[rows, begin - shift : end]
                h = self.method.reread(part, begin - shift, around.reading.take(rows), classes)[:, shift : shift + size]
            parts.append((rows, h))
        rows, h = (torch.cat(of) for of in zip(*parts))
        return h[rows.argsort()]


@dataclass(frozen=True)
class Progress(Memory):
    """Progress of B texts.

    Attributes:
        begin: the first position of the block that is being written.
        inner: the state of the sampler inside the block.
        reading: the last whole reading of each row; None before the first.
    """

    begin: int
    inner: State
    reading: Reading | None = None


@declared
class SemiAutoregressive(InBlocks):
    """One block of a text after another, each written by another sampler, whose steps are per block."""

    block_length: int | None = option(
        "tokens of a block, from the beginning of the text (default: a quarter of the text, 32 at most)",
        default=None,
        minimum=1,
        maximum=TOKENS,
    )
    cache: Kind = option(
        "cache keys and values: none, prefix (those before the block), or dual (those on both sides of it)",
        default="none",
    )
    refresh: int | None = option(
        "with `cache`: read the whole text in every N-th evaluation of a block (default: only in the first)",
        default=None,
        minimum=1,
        maximum=TOKENS,
    )

    name: ClassVar[str] = "semi_autoregressive"
    label: ClassVar[str] = "Block after block inside the text"
    sentence: ClassVar[str] = "Each block is written by the block sampler under More options, from left to right."
    exactness: ClassVar[Exactness] = "inner"
    claim: ClassVar[str] = "as exact as the block sampler and the cache"

    def __post_init__(self):
        super().__post_init__()
        if self.inner.name not in WRITES:
            raise InputError(f"sampler '{self.inner.name}' writes no block of a text; inside use {', '.join(WRITES)}")
        if self.cache == "none" and self.refresh is not None:
            raise InputError("`refresh` says how long a cache is kept; give `cache` prefix or dual, or leave it out")

    @classmethod
    def reason_against(cls, method):
        if method.block:
            return "is for networks that see whole texts, and this one has blocks"
        return not_absorbing(method) or (TIMED if method.time_conditioned else None)

    def admit(self, method: Diffusion, fixed: Tensor | None):
        """InputError where a cache is asked of what keeps none."""
        if self.cache == "none":
            return
        inner = method.method if isinstance(method, Truncated) else method
        if not isinstance(inner, Diffusion):
            raise InputError("a cache keeps what the network computes, and guidance evaluates more; use `cache` none")
        if not hasattr(inner.network, "reread") or not inner.pointwise:
            raise InputError(f"{inner.name} has no network whose keys and values can be kept; use `cache` none")
        inner.read_whole(torch.zeros(1, 1, dtype=torch.long, device=next(inner.parameters()).device))  # what else not

    def distribution(self, method: Diffusion, steps):
        sizes = self._sizes(method.shape[0])
        distribution = self.inner.distribution(of_length(method, sizes[0]), steps)
        if self.cache != "none" and self.refresh != 1:
            cached = f"with keys and values out of date (cache {self.cache})"
            return distribution.changed(*BLOCKS).changed(f"cache {self.cache} {self.refresh}", cached)
        if len(sizes) == 1:
            return self.inner.distribution(method, steps)
        return distribution.changed(*BLOCKS)

    def _sizes(self, length: int) -> list[int]:
        """Lengths of the blocks of a text."""
        size = self.block_length or min(-(-length // 4), 32)
        return [min(size, length - i) for i in range(0, length, size)]

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """Lines of `times_of_blocks`."""
        return self.times_of_blocks(method, self._sizes(method.shape[0]), steps)

    def most_calls(self, method, times):
        return self.inner.most_calls(method, times)

    def init(self, method: Diffusion, shape, *, fixed=None, generator=None):
        state = super().init(method, shape, fixed=fixed, generator=generator)
        return self._begin(method, state, 0, None, generator)

    def _begin(self, method: Any, state: State, begin: int, reading: Reading | None, generator: Any) -> State:
        """Begin the block at `begin`."""
        length = min(self._sizes(state.x.shape[1])[0], state.x.shape[1] - begin)
        part = slice(begin, begin + length)
        fixed = torch.where(state.fixed[:, part], state.x[:, part], -1)
        inside: Any = Inside(method.method if isinstance(method, Truncated) else method, length, self.cache)
        inner = self.inner.init(inside, (len(state.x), length), fixed=fixed, generator=generator)
        inner = replace(inner, x=state.x[:, part], condition=state.condition)
        return replace(state, memory=Progress(begin, inner, reading))

    def step(self, method: Diffusion, state, t, s, generator=None):
        memory, left, last = state.memory, int(t[0]), bool(s[0] != t[0])
        inner: State = memory.inner
        due = inner.calls == 0 if self.refresh is None else inner.calls % self.refresh == 0
        rows = torch.arange(len(state.x), device=state.x.device)
        around = Around(state.x, memory.begin, due, memory.reading, rows, [])
        raw = method.method if isinstance(method, Truncated) else method
        inside: Any = Inside(raw, inner.x.shape[1], self.cache)
        inside = Truncated(inside, *method.how) if isinstance(method, Truncated) else inside
        inner = replace(inner, context=around, condition=state.condition)
        new = self.step_inside(inside, inner, t, generator)
        x = state.x.clone()
        x[:, memory.begin : memory.begin + new.x.shape[1]] = new.x
        reading, new = around.updated(), replace(new, context=None)
        calls = state.calls + new.calls - memory.inner.calls
        state = replace(state, x=x, calls=calls, memory=replace(memory, inner=new, reading=reading))
        if not last or left == 1:
            return state
        return self._begin(method, state, memory.begin + new.x.shape[1], reading, generator)
