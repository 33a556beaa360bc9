"""What must hold, each identity a function that returns its largest error. `verify` runs them and prints the table.

The space is small (3 tokens, length 2): every expectation is a sum, every integral a quadrature, and the law of a sampler a
product of transition matrices of its actual code (see `exact`). Networks and laws are fixed numbers, so nothing is random.
"""

from . import uniforms, process, prediction, bound, draw, sides, jumps, score, blocks, networks, sampler, leaps, laws  # isort: skip  (the order of the table)
from .check import OWN, SHARED, L, Row, V, variants
from .sampler import distance, drawn

__all__ = [
    "OWN",
    "SHARED",
    "L",
    "Row",
    "V",
    "blocks",
    "bound",
    "distance",
    "draw",
    "drawn",
    "jumps",
    "laws",
    "leaps",
    "networks",
    "prediction",
    "process",
    "sampler",
    "score",
    "sides",
    "uniforms",
    "variants",
]
