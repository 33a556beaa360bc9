"""The options of all samplers by name: what `sample(model, sampler=..., here)` may hold, for editors and type checkers."""

from collections.abc import Sequence
from typing import Any, TypedDict


class SamplerChoices(TypedDict, total=False):
    """Those of one sampler or another, as its constructor has them; what is left out is as that sampler has it.

    Each sampler says what they mean: `zellige list samplers`, and `zellige.SAMPLERS`.
    """

    top_k: int | None
    drop_crossing: bool
    grid: str  # ancestral, euler, tau_leaping
    argmax: str  # ancestral, tau_leaping
    per_step: int  # any_order, fixed_order
    order: str | Sequence[int]  # fixed_order
    confidence: str  # confidence
    threshold: float | None
    remasking: str  # remasking
    eta: float
    t_on: float
    t_off: float
    alpha_on: float
    jumps: str  # tau_leaping
    corrector: int
    corrector_step: float
    corrector_from: float
    block_sampler: Any  # blockwise
    stride: int | None
    window: int | None  # blockwise, left_to_right
    end: int | None
    entropy: float | None
    redraw: int
