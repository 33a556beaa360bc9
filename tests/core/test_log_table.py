"""exp(R h) by interpolated logarithms against exp(R h) by a series and squarings of its own."""

import math

import pytest
import torch

from zellige.core import matrices
from zellige.core.curves import Exponential, LinearSigma
from zellige.core.matrices import CTMC, ERROR, LogTable
from zellige.methods import tauldr_rates

D = torch.float64
K, LOW, HIGH = 96, 1e-3, 8.0


def gaussian() -> CTMC:
    R, distribution = tauldr_rates.gaussian(K, 6 * K / 256, 2.0 * K)
    return CTMC(R / tauldr_rates.gap(R, distribution), distribution, Exponential(1.0, 100.0, 0.001))


def by_squaring(P: CTMC, h: float) -> torch.Tensor:
    """exp(R h) of 40 terms in parts of 2^-7 of a jump: what it leaves out is below 1e-100 of any entry."""
    jumps, step = P.fastest * h, torch.eye(K, dtype=D) + P.R / P.fastest
    halvings = max(7, math.ceil(math.log2(jumps)) + 7)
    J = jumps / 2**halvings
    term = torch.eye(K, dtype=D) * math.exp(-J)
    Q = term.clone()
    for n in range(1, 40):
        term = term @ step * (J / n)
        Q += term
    for _ in range(halvings):
        Q = Q @ Q
    return Q / Q.sum(-1, keepdim=True)


def test_every_entry_has_its_digits_however_small():
    """From 1e-70 to 1, at times between the nodes: half of `ERROR` is for the logarithm of that number of jumps."""
    P = gaussian()
    table = LogTable(P, LOW, HIGH)
    assert table.whole
    h = torch.logspace(math.log10(LOW), math.log10(HIGH), 23, dtype=D)
    worst, least = 0.0, 1.0
    for one, Q in zip(h.tolist(), table.of(h)):
        digits = by_squaring(P, one)
        worst, least = max(worst, float((Q / digits - 1).abs().max())), min(least, float(digits.min()))
    assert least < 1e-40
    assert 1e-12 < worst < ERROR


def test_the_series_of_large_matrices_is_made_once_and_no_number_differs(monkeypatch):
    """On 1,024 states it is too large to keep, and was made for each of the first nodes: half the time of the table."""
    monkeypatch.setattr(matrices, "KEPT", 0)
    made, series = [], CTMC.series
    monkeypatch.setattr(CTMC, "series", lambda self: made.append(1) or series(self))
    P = gaussian()
    table = LogTable(P, LOW, HIGH)
    assert len(made) == 1
    i, j = torch.triu_indices(K, K)
    for n in range(matrices.OCTAVE):
        Q = P.uniformised(torch.tensor([table.first * 2 ** (n / matrices.OCTAVE)], dtype=D))[0]
        Q = Q / Q.sum(-1, keepdim=True)
        assert torch.equal(table.logs[n], (Q / table.tilt)[i, j].log())


@pytest.mark.parametrize("h", [LOW / 4, HIGH * 16])
def test_elsewhere_it_is_the_exact_one(h):
    P = gaussian()
    h = torch.tensor([h], dtype=D)
    assert torch.equal(LogTable(P, LOW, HIGH).of(h), P.exponential(h))


def test_no_table_where_an_entry_is_zero_or_the_chain_is_one_way():
    R, distribution = tauldr_rates.birth_death(256)
    assert not LogTable(CTMC(R, distribution, LinearSigma(0.0, 1.0)), LOW, HIGH).whole
    around = torch.eye(K, dtype=D).roll(1, 1) - torch.eye(K, dtype=D)
    assert not LogTable(CTMC(around, torch.full((K,), 1 / K, dtype=D), LinearSigma(0.0, 1.0)), LOW, HIGH).whole


def test_the_series_reaches_the_farthest_of_many_states():
    """Some twenty jumps lead from one end to the other at little noise; a sum of twenty terms lost half of them."""
    P = gaussian()
    for jumps in (0.1, 0.7, 1.3, 5.0, 90.0):
        h = jumps / P.fastest
        torch.testing.assert_close(P.uniformised(torch.tensor([h], dtype=D))[0], by_squaring(P, h), rtol=1e-11, atol=0)
