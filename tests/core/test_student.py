"""Student's t against its density, integrated."""

import math

import numpy as np
import pytest

from zellige.core.student import half, student


def mass(t: float, freedom: int) -> float:
    """P(|T| <= t), by Gauss-Legendre quadrature of the density."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = t * (nodes + 1) / 2
    log_c = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    return float(t * weights @ np.exp(log_c - (freedom + 1) / 2 * np.log1p(x * x / freedom)))


@pytest.mark.parametrize("level", [0.95, 0.9])
@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 399, 400, 401, 402, 1000, 100_000])
def test_it_holds_its_share_of_the_density(freedom, level):
    close = 1.5e-11 if freedom < 1000 else 1e-10  # the series' next term is 7e-12 at 401; beyond, lgamma rounds
    assert mass(student(freedom, level), freedom) == pytest.approx(level, abs=close)


def test_one_value_has_no_interval():
    assert half(0.3, 1) == math.inf
    assert half(0.3, 4) == pytest.approx(0.3 * student(3), abs=0)
