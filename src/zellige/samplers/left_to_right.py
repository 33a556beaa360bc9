"""Left to right: one token after another from an autoregressive model, each sampled given those before.

    p(x) = prod_i p(x_i | x_1 .. x_{i-1})

No error: the samples have the model's own distribution, whose likelihood is exact. The context (`State.context`) has
the network's keys and values of the tokens before. So a token costs one network evaluation at one position, and a
prompt one evaluation in all. In a text longer than the network's length L, the network sees the last L tokens.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.requests import declared
from ..base.waiting import fixed
from ..core import random
from ..core.random import Randomness
from ..methods.ar import AR
from ..methods.method import Method
from ..nn.attention import Cache
from .captured import captured, captures
from .growing import Growing, Growth, begin, close, pieces, window_of
from .pairing import AUTOREGRESSION
from .sampler import LOOK, Exactness, State, check


@declared
class LeftToRight(Growing):
    """One token a step. `state.memory` is a `Growth`; positions without a token hold the begin token."""

    name: ClassVar[str] = "left_to_right"
    label: ClassVar[str] = "Left to right"
    sentence: ClassVar[str] = "One token after another, as autoregressive models do."
    exactness: ClassVar[Exactness] = "exact"
    samples_from: ClassVar[str] = "autoregression"
    claim: ClassVar[str] = "exact"
    needs: ClassVar[str] = "the next token: ar"
    calls: ClassVar[str] = "one per token"
    grows: ClassVar[bool] = True

    @classmethod
    def reason_against(cls, method):
        return None if method.parameterization == "next" else "needs a network that says the next token"

    def distribution(self, method, steps):
        unchanged_model = self.window in (None, method.window) and self.ending.entropy is None
        return replace(AUTOREGRESSION, number={}) if unchanged_model else super().distribution(method, steps)

    def times(self, method: Method, steps: int | None) -> Tensor:
        """A counter of the tokens left, whatever `steps` is."""
        (length,) = method.shape
        return torch.arange(length, -1, -1, dtype=torch.float64)

    def has_fixed_shape(self, method, shape):
        return self.ending.entropy is None

    def admit(self, method, fixed):
        window_of(method, self.window)
        self.check_given(method, fixed, 1, 1)

    def init(self, method, shape, *, fixed=None, generator=None):
        check(self, method)
        self.admit(method, fixed)
        rows = torch.arange(shape[0], device=next(method.parameters()).device)
        fixed = torch.full(shape, -1) if fixed is None else fixed.expand(shape)
        fixed = fixed.to(rows.device)
        x = torch.where(fixed >= 0, fixed, method.vocabulary)
        memory = Growth(0, 0, torch.full_like(rows, shape[1]), rows)
        return begin(State(x, fixed >= 0, torch.zeros_like(rows), memory=memory), 1)

    def step(self, method: AR, state, t, s, generator=None):
        memory: Growth = state.memory
        if memory.begin >= memory.free:
            part, calls = self._read(method, state)
            streams = random.of_rows(generator, memory.rows, ~part.fixed[:, 0] if fixed() else None)
            one = part.context is not None and part.x.shape[1] == 1  # not where texts begin
            part = (captured(self._next, method) if one else self._next)(method, part, t, s, streams)
            x = state.x.clone()
            x[memory.rows, memory.begin] = part.memory
            memory = replace(memory, read=memory.end)
            state = replace(state, x=x, context=part.context, calls=calls, memory=memory)
        follows = self.ending.token is not None and method.begin < method.vocabulary
        state = close(state, replace(self.ending, next_text=method.begin if follows else None))
        return begin(state, 1, look=not fixed() or memory.end % LOOK == 0, all_rows=captures(method))

    def _read(self, method: AR, state: State) -> tuple[State, Tensor]:
        """Read the tokens so far, all but the last (R, n), and count the calls (B,) of all.

        The result is what `_next` takes: these last tokens, the context, as memory the token (R,) that comes next, and
        where it is given (`fixed`, (R, 1)).
        """
        memory, context, calls = state.memory, state.context, state.calls
        rows, window = memory.rows, window_of(method, self.window)
        x = pad(state.x[rows], (1, 0), value=method.begin)
        given = state.fixed[rows, memory.begin]
        given = given if memory.open is None else given | ~memory.open
        condition = None if state.condition is None else state.condition[rows]
        part = State(x, given[:, None], torch.zeros_like(rows), context, state.x[rows, memory.begin], condition)
        for piece in pieces(memory.read, memory.end, 0 if context is None else len(context), window, 1):
            asked = ~state.fixed[rows, piece.stop - 1] | (piece.stop >= window)  # given ones are read with it
            calls = calls.index_add(0, rows, memory.written * asked)
            part = replace(part, x=x[:, piece])
            if piece.stop < memory.end:
                part = replace(part, context=self._advance(method, part)[1])
        return part, calls

    def _advance(self, method: AR, part: State) -> tuple[Tensor, Cache]:
        """Hidden states (R, D) after the last token of x (R, n), and the context with these tokens."""
        more, window = {} if part.condition is None else {"condition": part.condition}, window_of(method, self.window)
        h, context = method.advance(part.context, part.x, **more)
        if captures(method):  # a graph reads one size
            size = min(window, method.shape[0]) - 1
            return h[:, -1], context.last(size).padded(size)
        return h[:, -1], context.last(window - 1)

    def _next(self, method: AR, part: State, t: Tensor, s: Tensor, generator: Randomness) -> State:
        """Read x (R, n), and draw the token after it where it is not given; t and s are those of a step, not used."""
        h, context = self._advance(method, part)
        token, at = part.memory, ~part.fixed[:, 0]
        if fixed():
            token = torch.where(at, random.categorical(method.next(h), generator), token)
        else:
            rows = at.nonzero()[:, 0]
            token = token.index_copy(0, rows, random.categorical(method.next(h[at]), random.of_rows(generator, rows)))
        return replace(part, context=context, memory=token)
