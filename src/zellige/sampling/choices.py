"""The arguments of `zellige.sample` and `zellige.infill` by name, for type checkers; written by docs/_tools/lists.py from what
the samplers and the requests declare."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict


class SamplerChoices(TypedDict, total=False):
    """Options of the samplers (`zellige list samplers`)."""

    drop_crossing: bool  # all but metropolis
    grid: str  # ancestral, euler, remasking, psi, informed, smc, tau_leaping
    argmax: str  # ancestral, remasking, psi, informed, tau_leaping
    gumbel_bits: int  # ancestral, informed
    estimate: str  # ancestral, informed
    per_step: int  # any_order, fixed_order, confidence
    order: Any  # fixed_order, speculative
    given: str  # fixed_order
    confidence: str  # confidence
    threshold: float | None  # confidence, klass
    factor: float | None  # confidence
    entropy_bound: float | None  # confidence
    kl: float  # klass
    history: int  # klass
    window: int | None  # speculative, blockwise, left_to_right
    cosine: float | None  # speculative
    rounds: int  # speculative
    remasking: str  # remasking
    eta: float  # remasking
    t_on: float  # remasking, psi
    t_off: float  # remasking, psi
    alpha_on: float  # remasking
    strictness: float  # p2
    kappa: str  # psi
    kappa_early: str  # psi
    kappa_late: str  # psi
    pause: float | None  # psi
    corrections: int  # informed
    resample: int  # informed
    pick: str  # informed
    pick_temperature: float  # informed
    revise: int  # informed
    revise_time: float  # informed
    revise_temperature: float  # informed
    particles: int | None  # smc
    anneal: float  # smc
    resample_below: float  # smc
    lookahead: int  # smc
    jumps: str  # tau_leaping
    corrector: int  # tau_leaping
    corrector_step: float  # tau_leaping
    corrector_from: float  # tau_leaping
    end: int | None  # blockwise, left_to_right
    entropy: float | None  # blockwise, left_to_right
    redraw: int  # blockwise, left_to_right
    block_sampler: Any  # blockwise, semi_autoregressive
    stride: int | None  # blockwise
    block_length: int | None  # semi_autoregressive
    cache: str  # semi_autoregressive
    refresh: int | None  # semi_autoregressive


class SamplingChoices(SamplerChoices, total=False):
    """The fields of `Sampling`."""

    steps: int | None
    sampler: Any
    temperature: float | None
    top_p: float | None
    top_k: int | None
    guidance: float | None
    symmetries: int | None
    best_of: int | None
    around: Callable[[Any], Any] | None
    count: int
    seed: int | Sequence[tuple[int, int]]
    length: int | None
    classes: Any
    classifier: Any
    first_order: bool
    reward: Any
    batch: int
    defaults: bool


class SampleChoices(SamplingChoices, total=False):
    """The fields of `Sample`."""

    prompt: str | Sequence[str] | None
    chat: bool
    fixed: Any
    reconstruct: Any
    noise: float
    alone: bool


class InfillChoices(SamplingChoices, total=False):
    """The fields of `Infill` beside the text."""

    mask_token: str
