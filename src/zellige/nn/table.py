"""A network with a free logit for everything: for spaces K^L that can be enumerated, and for exact checks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from .attention import Cache


class Table(nn.Module):
    """One logit per (x_t, position, state): any function of x_t (K^L * L * K numbers), behind the same methods as DiT.

    With `block`, a network of blocks: any function of what a position sees, its own block and those before; what comes
    later is looked up as zeros. Its cache holds the tokens themselves.

    With `latents` it is any function of a latent's value too, which is the condition of each row.
    With `given` it is any function of which positions are given, too. With `time` the logits also depend smoothly on
    it: a sum of three tables times 1, exp(-time) and time exp(-time), bounded for every finite time in [0, inf).
    `outputs` numbers a position where those are not K. Starts at random, from torch's own generator; `.double()` for
    float64.

    >>> Table(states=3, length=2)(torch.tensor([[0, 2]])).shape
    torch.Size([1, 2, 3])
    """

    place: Tensor

    def __init__(
        self,
        states: int,
        length: int,
        time: bool = False,
        outputs: int | None = None,
        block: int = 0,
        given: bool = False,
        latents: int = 0,
    ):
        super().__init__()
        self.states, self.length, self.time_conditioned, self.block = states, length, time, block
        self.sees_given, self.latents = given, latents
        rows = states**length * (2**length if given else 1) * max(latents, 1)
        self.logits = nn.Parameter(torch.randn(3 if time else 1, rows, length, outputs or states))
        self.register_buffer("place", states ** torch.arange(length - 1, -1, -1), persistent=False)

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
        given: Tensor | None = None,
    ) -> Tensor:
        """The logits themselves, (B, L, K): x (B, L) states; time a scalar, (B,) or (B, L), if the table has it;
        `clean`, `cache` and `given` as in DiT."""
        if self.latents and condition is not None:
            rows = self.logits[:, (x * self.place).sum(-1) + self.states**self.length * condition]
        elif self.sees_given and given is not None:
            pattern = (given * 2 ** torch.arange(self.length)).sum(-1)
            rows = self.logits[:, (x * self.place).sum(-1) + self.states**self.length * pattern]
        else:
            rows = self._rows(x, x if clean is None else clean, cache)
        if not self.time_conditioned:
            return rows[0]
        if time is None:
            raise InputError("this table is conditioned on the time; give it one")
        t = time[..., None, None] if time.ndim < 2 else time[..., None]
        return rows[0] + torch.exp(-t) * rows[1] + t * torch.exp(-t) * rows[2]

    def _rows(self, x: Tensor, clean: Tensor, cache: Cache | None) -> Tensor:
        """The entries (tables, B, L, K) for x (B, L)."""
        L = x.shape[1]
        if not self.block:
            return self.logits[:, (x * self.place).sum(-1)]
        entries = []
        for start in range(0, L, self.block):
            end = min(start + self.block, L)
            tokens = self._whole(cache, torch.cat((clean[:, :start], x[:, start:end]), 1))
            begin = start if cache is None else start + cache.place[:, None]
            at = (begin + torch.arange(end - start, device=x.device)).expand(len(x), -1)
            rows = self.logits[:, (tokens * self.place).sum(-1)]
            entries.append(rows[:, torch.arange(len(x), device=x.device)[:, None], at])
        return torch.cat(entries, 2)

    def _whole(self, cache: Cache | None, x: Tensor) -> Tensor:
        """The tokens of the cache, then x (B, n), then zeros: (B, length)."""
        if cache is None:
            return F.pad(x, (0, self.length - x.shape[1]))
        at = cache.place[:, None] + torch.arange(-len(cache), x.shape[1], device=x.device)
        tokens = torch.cat((cache.keys[0][:, 0, :, 0], x), 1)
        whole = x.new_zeros(len(x), 1 + self.length)  # positions that are not valid come first, and are dropped
        return whole.scatter(1, (at + 1).clamp_min(0), tokens)[:, 1:]

    def advance(
        self,
        cache: Cache | None,
        x: Tensor,
        time: Tensor | None = None,
        valid: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """The logits of x (B, n), and a cache that holds it too; see `DiT.advance`."""
        return self.features(x, time, cache=cache), self.extend(cache, x, time, valid)

    def extend(
        self,
        cache: Cache | None,
        x: Tensor,
        time: Tensor | None = None,
        valid: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> Cache:
        """The cache of `advance` alone."""
        valid_ = torch.ones_like(x, dtype=torch.bool) if valid is None else valid
        position = valid_.sum(-1)
        if cache is not None:
            x, position = torch.cat((cache.keys[0][:, 0, :, 0], x), 1), cache.place + position
            valid_ = torch.cat((cache.valid, valid_), 1)
        return Cache((x[:, None, :, None],), (), (), valid_, position, ragged=not bool(valid_.all()))

    def head(self, h: Tensor) -> Tensor:
        return h

    def forward(self, x: Tensor, time: Tensor | None = None, **kwargs) -> Tensor:
        return self.head(self.features(x, time, **kwargs))
