"""Samplers: any of them on any method that admits it. SAMPLERS is the only table of their names."""

import inspect

from ..arguments import checked
from ..errors import unknown
from .ancestral import Ancestral
from .any_order import AnyOrder
from .blockwise import Blockwise
from .confidence import Confidence
from .euler import Euler
from .first_hitting import FirstHitting
from .fixed_order import FixedOrder
from .left_to_right import LeftToRight
from .metropolis import Metropolis
from .remasking import Remasking
from .sampler import Sampler, State, ask, blank, check, of_length, run
from .tau_leaping import TauLeaping
from .uniformisation import Uniformisation

SAMPLERS: dict[str, type[Sampler]] = {
    "ancestral": Ancestral,
    "euler": Euler,
    "first_hitting": FirstHitting,
    "any_order": AnyOrder,
    "fixed_order": FixedOrder,
    "confidence": Confidence,
    "remasking": Remasking,
    "metropolis": Metropolis,
    "tau_leaping": TauLeaping,
    "uniformisation": Uniformisation,
    "blockwise": Blockwise,
    "left_to_right": LeftToRight,
}
ALIASES = {  # another name: the sampler, and why they are one
    "analytic": ("ancestral", "SEDD: analytic, RADD: Tweedie, MDLM: ddpm: one kernel"),
    "mean": ("ancestral", "MD4: positions first, then tokens, which is choose-then-ask"),
}


@checked
def find(name: str) -> type[Sampler]:
    """The class of a sampler, by its name or an alias. Raises InputError for an unknown name."""
    if name not in SAMPLERS and name not in ALIASES:
        raise unknown("sampler", name, [*SAMPLERS, *ALIASES], "zellige list samplers")
    return SAMPLERS[ALIASES[name][0] if name in ALIASES else name]


def options(sampler: type[Sampler]) -> list[str]:
    """The options that belong to this sampler: the arguments of its `__init__` but those that all have."""
    return [name for name in inspect.signature(sampler).parameters if name not in ("temperature", "top_p", "choose")]


__all__ = [
    "ALIASES",
    "SAMPLERS",
    "Ancestral",
    "AnyOrder",
    "Blockwise",
    "Confidence",
    "Euler",
    "FirstHitting",
    "FixedOrder",
    "LeftToRight",
    "Metropolis",
    "Remasking",
    "Sampler",
    "State",
    "TauLeaping",
    "Uniformisation",
    "ask",
    "blank",
    "check",
    "find",
    "of_length",
    "options",
    "run",
]
