"""Samplers: any of them on any method that admits it. SAMPLERS is the only table of their names."""

from .ancestral import Ancestral
from .first_hitting import FirstHitting
from .sampler import Sampler, State, run

SAMPLERS: dict[str, type] = {"ancestral": Ancestral, "first_hitting": FirstHitting}

__all__ = ["SAMPLERS", "Ancestral", "FirstHitting", "Sampler", "State", "run"]
