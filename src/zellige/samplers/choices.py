"""The options of all samplers by name, for type checkers; written by `cli.help.write` from what the samplers declare."""

from typing import Any, TypedDict


class SamplerChoices(TypedDict, total=False):
    """The options of one sampler or another; what is left out is as that sampler has it (`zellige list samplers`)."""

    top_k: int | None  # all but metropolis
    drop_crossing: bool  # all but metropolis
    grid: str  # ancestral, euler, remasking, tau_leaping
    argmax: str  # ancestral, remasking, tau_leaping
    per_step: int  # any_order, fixed_order
    order: Any  # fixed_order
    confidence: str  # confidence
    threshold: float | None  # confidence
    remasking: str  # remasking
    eta: float  # remasking
    t_on: float  # remasking
    t_off: float  # remasking
    alpha_on: float  # remasking
    jumps: str  # tau_leaping
    corrector: int  # tau_leaping
    corrector_step: float  # tau_leaping
    corrector_from: float  # tau_leaping
    window: int | None  # blockwise, left_to_right
    end: int | None  # blockwise, left_to_right
    entropy: float | None  # blockwise, left_to_right
    redraw: int  # blockwise, left_to_right
    block_sampler: Any  # blockwise
    stride: int | None  # blockwise
