"""Samplers: any of them on any method that admits it. SAMPLERS is the only table of their names."""

import inspect

from .ancestral import Ancestral
from .any_order import AnyOrder
from .ask import ask
from .blockwise import Blockwise
from .confidence import Confidence
from .euler import Euler
from .first_hitting import FirstHitting
from .fixed_order import FixedOrder
from .guide import Guided
from .left_to_right import LeftToRight
from .metropolis import Metropolis
from .pairing import Law, blank, law_of, of_length
from .remasking import Remasking
from .sampler import ALIASES, SAMPLERS, Sampler, State, check, find, laws, run
from .tau_leaping import TauLeaping
from .uniformisation import Uniformisation

SAMPLERS |= {
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


def takes(sampler: type[Sampler]) -> list[str]:
    """The arguments of its `__init__` that are options."""
    return [name for name in inspect.signature(sampler).parameters if name != "choose"]


def options(sampler: type[Sampler]) -> list[str]:
    """The options that belong to this sampler: all but those that every one has."""
    return [name for name in takes(sampler) if name not in takes(Sampler)]  # pyright: ignore[reportArgumentType]


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
    "Guided",
    "Law",
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
    "law_of",
    "laws",
    "of_length",
    "options",
    "run",
    "takes",
]
