"""The options of samplers, as they are declared to every command that draws, and to the page of `zellige play`."""

from dataclasses import dataclass

from ..arguments import checked
from ..errors import InputError


@checked
@dataclass(frozen=True)
class SamplerOptions:
    """Those of one sampler or another; a sampler's own default stands where none is given."""

    block_sampler: str | None = None
    """write block after block, text of any length, with this sampler inside; its options are given as always"""
    stride: int | None = None
    """blockwise: tokens of a block, where the network has none of its own"""
    window: int | None = None
    """blockwise, left_to_right: how many tokens the network sees at most; its own length if not given"""
    end: int | None = None
    """blockwise, left_to_right: the token that ends a text, the tokenizer's if it has one; -1: none"""
    entropy: float | None = None
    """blockwise, left_to_right: end where the last 256 tokens repeat themselves, in nats per token"""
    redraw: int | None = None
    """blockwise, left_to_right: draw a text that entropy would end again instead, at most so often (9 in BD3-LM's code)"""
    top_k: int | None = None
    """all but metropolis: keep so many of the likeliest tokens, before top-p"""
    drop_crossing: bool | None = None
    """with top-p: drop the token that crosses it, too, as the code of BD3-LM and ReMDM does"""
    grid: str | None = None
    """ancestral, euler, tau_leaping, remasking: uniform, cosine, log-snr, published (its authors'), or the size of a step;
    auto: MD4's cosine with its linear schedule, else uniform"""
    argmax: str | None = None
    """ancestral, tau_leaping, remasking: the likeliest state instead of a draw: last (in the step to clean tokens) or every
    (ancestral)"""
    per_step: int | None = None
    """any_order, fixed_order: tokens a step"""
    order: str | None = None
    """fixed_order: forward, backward, or positions such as 2,0,1"""
    confidence: str | None = None
    """confidence: probability, margin or entropy"""
    threshold: float | None = None
    """confidence: reveal all that are so sure"""
    remasking: str | None = None
    """remasking: cap, rescale, conf or loop"""
    eta: float | None = None
    """remasking: how much"""
    t_on: float | None = None
    """remasking, loop: where it begins"""
    t_off: float | None = None
    """remasking, loop: where it ends"""
    alpha_on: float | None = None
    """remasking, loop: the share of tokens within it"""
    jumps: str | None = None
    """tau_leaping: sum (ordered tokens), one or auto"""
    corrector: int | None = None
    """tau_leaping: corrector steps after each step"""
    corrector_step: float | None = None
    """tau_leaping: their size, in steps of the grid"""
    corrector_from: float | None = None
    """tau_leaping: the time from which on they are made"""

    def __post_init__(self):
        """The samplers check all other ranges themselves."""
        if self.per_step is not None and self.per_step < 1:
            raise InputError(f"`per_step` is {self.per_step}; it must be 1 or more")
