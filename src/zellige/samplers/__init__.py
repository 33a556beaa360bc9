"""Samplers, one algorithm a file; each works with every method that it supports.

SAMPLERS is the table of their names, in the order in which they are listed. After a new name or option run `make
generate`: the command line reads them from `cli/lists.json`, so that help imports no torch.

sampler                         what a sampler is, and the only loop, `run`
pairing, choice                 which sampler fits which method; a sampler from its name and options
grid, predict                   times of the steps; the network evaluated where the state may change
growing, in_blocks, carried     what several samplers share
guide, guidance                 truncation, and guidance: wrappers of a method
replay, distillation            log p of a sampler's own distribution; the losses of students
every other file                a sampler
"""

from ..base.requests import Option, options_of
from .ancestral import Ancestral
from .any_order import AnyOrder
from .blockwise import Blockwise
from .choice import choose_sampler, every_option
from .confidence import Confidence
from .euler import Euler
from .first_hitting import FirstHitting
from .fixed_order import FixedOrder
from .guide import Truncated, Truncation
from .informed import Informed
from .insertion import Insertion
from .klass import Klass
from .left_to_right import LeftToRight
from .metropolis import Metropolis
from .p2 import P2
from .pairing import Distribution, blank, of_length
from .predict import predict_at
from .psi import Psi
from .remasking import Remasking
from .sampler import ALIASES, SAMPLERS, Sampler, State, check, distribution_of, distributions, find, run
from .semi_autoregressive import SemiAutoregressive
from .smc import Rewarded, Smc
from .speculative import Speculative
from .tau_leaping import TauLeaping
from .uniformisation import Uniformisation

SAMPLERS |= {
    "ancestral": Ancestral,
    "euler": Euler,
    "first_hitting": FirstHitting,
    "any_order": AnyOrder,
    "fixed_order": FixedOrder,
    "confidence": Confidence,
    "klass": Klass,
    "speculative": Speculative,
    "remasking": Remasking,
    "p2": P2,
    "psi": Psi,
    "informed": Informed,
    "smc": Smc,
    "metropolis": Metropolis,
    "tau_leaping": TauLeaping,
    "uniformisation": Uniformisation,
    "blockwise": Blockwise,
    "semi_autoregressive": SemiAutoregressive,
    "left_to_right": LeftToRight,
    "insertion": Insertion,
}


def options(sampler: type[Sampler]) -> dict[str, Option]:
    """Return a sampler's own options: all but those of the truncation, which every sampler has."""
    return {name: option for name, option in options_of(sampler).items() if name not in options_of(Truncation)}


__all__ = [
    "ALIASES",
    "P2",
    "SAMPLERS",
    "Ancestral",
    "AnyOrder",
    "Blockwise",
    "Confidence",
    "Distribution",
    "Euler",
    "FirstHitting",
    "FixedOrder",
    "Informed",
    "Insertion",
    "Klass",
    "LeftToRight",
    "Metropolis",
    "Psi",
    "Remasking",
    "Rewarded",
    "Sampler",
    "SemiAutoregressive",
    "Smc",
    "Speculative",
    "State",
    "TauLeaping",
    "Truncated",
    "Truncation",
    "Uniformisation",
    "blank",
    "check",
    "choose_sampler",
    "distribution_of",
    "distributions",
    "every_option",
    "find",
    "of_length",
    "options",
    "options_of",
    "predict_at",
    "run",
]
