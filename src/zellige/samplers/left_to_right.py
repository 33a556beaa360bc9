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
from .growing import Growing, Growth, begin, check_given, close, pieces, window_of
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
        if not self.ahead:
            check_given(method, fixed, 1, 1)

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
            state, h = self._read(method, state)
            state = replace(state, x=self._written(method, state, h, generator))
        follows = self.ending.token is not None and method.begin < method.vocabulary
        state = close(state, replace(self.ending, next_text=method.begin if follows else None))
        return begin(state, 1, look=not fixed() or memory.end % LOOK == 0)

    def _written(self, method: AR, state: State, h: Tensor, generator: Randomness) -> Tensor:
        """The texts (B, N) with their next token, drawn from the hidden states h (R, D) where it is free."""
        memory, x = state.memory, state.x.clone()
        rows, at = memory.rows, ~state.fixed[memory.rows, memory.begin]
        if not fixed():
            rows = rows[at]
            x[rows, memory.begin] = random.categorical(method.next(h[at]), random.of_rows(generator, rows))
            return x
        at = at if memory.open is None else at & memory.open
        token = random.categorical(method.next(h), random.of_rows(generator, rows, at))
        x[rows, memory.begin] = torch.where(at, token, x[rows, memory.begin])
        return x

    def _read(self, method: AR, state: State) -> tuple[State, Tensor]:
        """Extend the context by all tokens so far, and return the hidden states (R, D) after the last of them."""
        memory, context, calls, h = state.memory, state.context, state.calls, torch.empty(0)
        x = pad(state.x[memory.rows], (1, 0), value=method.begin)
        window = window_of(method, self.window)
        more = {} if state.condition is None else {"condition": state.condition[memory.rows]}
        for piece in pieces(memory.read, memory.end, 0 if context is None else len(context), window, 1):
            h, context = method.advance(context, x[:, piece], **more)
            asked = ~state.fixed[memory.rows, piece.stop - 1] | (piece.stop >= window)  # given ones are read with it
            context, calls = context.last(window - 1), calls.index_add(0, memory.rows, memory.written * asked)
        return replace(state, context=context, calls=calls, memory=replace(memory, read=memory.end)), h[:, -1]
