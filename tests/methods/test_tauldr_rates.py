"""Rates: their definitions entry by entry, their distributions, and how fast they forget."""

import math

import pytest
import torch

from zellige.base.errors import InputError
from zellige.methods import tauldr_rates

D = torch.float64
ALL = {
    "uniform": tauldr_rates.uniform,
    "birth-death": tauldr_rates.birth_death,
    "gaussian": lambda K: tauldr_rates.gaussian(K, 1.5, 2.5),
    "gaussian, narrow": lambda K: tauldr_rates.gaussian(K, 0.7, 0.4),
    "gaussian, wide": lambda K: tauldr_rates.gaussian(K, 6.0, 512.0),
    "absorbing": tauldr_rates.absorbing,
}
REVERSIBLE = [name for name in ALL if name != "absorbing"]
close = torch.testing.assert_close


@pytest.mark.parametrize("K", [2, 3, 8, 9, 40])
@pytest.mark.parametrize("name", ALL)
def test_generators_and_their_distributions(name, K):
    R, distribution = ALL[name](K)
    assert R.dtype == distribution.dtype == D
    close(R.sum(-1), torch.zeros(K, dtype=D), rtol=0, atol=1e-12)
    assert (R - torch.diag(R.diagonal()) >= 0).all()
    close(distribution.sum(), torch.ones((), dtype=D))
    close(distribution @ R, torch.zeros(K, dtype=D), rtol=0, atol=1e-12 * float(R.abs().max()))
    if name in REVERSIBLE:
        close(distribution[:, None] * R, (distribution[:, None] * R).T, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", [n for n in ALL if n != "gaussian, narrow"])  # which takes long
def test_the_distribution_is_where_it_ends(name):
    R, distribution = ALL[name](7)
    close(torch.linalg.matrix_exp(R * 2000), distribution.expand(7, 7), rtol=0, atol=1e-9)


@pytest.mark.parametrize("K", [6, 7])
def test_gaussian_entry_by_entry(K):
    """Ends to middle: exp(-(d - 1)^2 / r^2); middle to ends: so that law_i R_ij = law_j R_ji."""
    r, s = 1.5, 2.5
    R, distribution = tauldr_rates.gaussian(K, r, s)
    weight = [math.exp(-((k + 1 - K / 2) ** 2) / (2 * s**2)) for k in range(K)]
    assert distribution.tolist() == pytest.approx([w / sum(weight) for w in weight])
    for i in range(K):
        for j in range(i + 1, K):
            there, back = (i, j) if i <= K - 1 - j else (j, i)  # from the one nearer to an end
            assert float(R[there, back]) == pytest.approx(math.exp(-((j - i - 1) ** 2) / r**2))
            assert float(R[back, there]) == pytest.approx(float(R[there, back]) * weight[there] / weight[back])


def test_how_fast_the_slowest_mode_decays():
    for K in (2, 5, 12):
        assert tauldr_rates.gap(*tauldr_rates.uniform(K)) == pytest.approx(K)
        assert tauldr_rates.gap(*tauldr_rates.birth_death(K)) == pytest.approx(2 - 2 * math.cos(math.pi / K))
    R, distribution = tauldr_rates.gaussian(9, 1.5, 2.5)
    left = [(torch.linalg.matrix_exp(R * h) - distribution).abs().max() for h in (20.0, 21.0)]
    assert float((left[0] / left[1]).log()) == pytest.approx(tauldr_rates.gap(R, distribution), rel=1e-4)


@pytest.mark.parametrize("given", [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, float("nan"))])
def test_widths_must_be_positive(given):
    with pytest.raises(InputError, match=r"`(rate|target)_sigma` is .*; it must be above 0"):
        tauldr_rates.gaussian(5, *given)
