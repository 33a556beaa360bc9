"""The identities, each a function that yields its largest error. `verify` runs them and prints the table.

The space is small (3 tokens, length 2): every expectation is a sum, every integral a quadrature, and the distribution
of a sampler a product of transition matrices of its actual code (see `exact`). Networks and distributions are fixed
numbers, so nothing is random.
"""
# ruff: noqa: F401

# The order is that of the table.
# isort: off
# fmt: off
from . import (
    blocks, bound, caches, carry, distributions, coarse, convolutions, correctors, d3pm, decoders, draw, few_steps, given,
    guidance, insertion, jumps, leaps, llamas, networks, options, prediction, process, sampler, score, sides, smc, special,
    speculative, symmetries, uniforms,
)
# fmt: on
# isort: on
from .check import OWN, SHARED, WHOLE, L, Row, V, variants, worst_of
from .sampler import distance, drawn
