"""Exact quantities by enumeration of K^L: distributions, denoisers, transition matrices, -log p_theta and bounds. No
Monte Carlo.

For small spaces everything that the library estimates can be computed: the distribution of x_t, p(x_0 | x_t), the whole
transition matrix of a sampler's step (of its actual code: `Script` forces every outcome of its random draws and
multiplies their probabilities), the distribution of its samples, the T-step bound and the three terms of the continuous
one.

A distribution on the space is a vector (K^L,) over `states(K, L)`, the last position running fastest.
"""

from ..base.arguments import check_functions
from .bounds import any_order, continuous_terms, expectation, expected, log_likelihood, parts, quadrature, step_bound
from .chain import model_distribution
from .enumeration import Denoiser, embed, entropy, index, marginal, states
from .script import Script, run_calls, run_distribution, sample_distribution, sample_distributions, scripts, transition

__all__ = [
    "Denoiser",
    "Script",
    "any_order",
    "continuous_terms",
    "embed",
    "entropy",
    "expectation",
    "expected",
    "index",
    "log_likelihood",
    "marginal",
    "model_distribution",
    "parts",
    "quadrature",
    "run_calls",
    "run_distribution",
    "sample_distribution",
    "sample_distributions",
    "scripts",
    "states",
    "step_bound",
    "transition",
]
check_functions(__name__)
