"""The distribution that a chain keeps: solved for, iterated, and as the eigenvector of the matrix of the sampler's own code."""

import pytest
import torch

from testing.worlds import L, V, data_distribution, numbers, table
from zellige import InputError, exact
from zellige.exact import metropolis
from zellige.methods import CSM
from zellige.methods.csm_neighbourhood import NEIGHBOURHOODS, Grid, Hamming
from zellige.plugins.verify.identities.score import matrix
from zellige.samplers import Metropolis

close = torch.testing.assert_close


@pytest.mark.parametrize("name", NEIGHBOURHOODS)
def test_three_ways_to_one_distribution(name, monkeypatch):
    """With scores that are those of no distribution."""
    method = CSM(table(V, L), V, (L,), CSM.Config(neighbourhood=name, positive=True)).double()
    values, vectors = torch.linalg.eig(matrix(Metropolis(), method).T)
    (one,) = (values - 1).abs().argsort()[:1]
    eigenvector = vectors[:, one].real
    solved = metropolis.invariant(method)
    close(solved, eigenvector / eigenvector.sum(), atol=1e-10, rtol=0)
    monkeypatch.setattr(metropolis, "DENSE", 0)
    close(metropolis.invariant(method), solved, atol=1e-10, rtol=0)


@pytest.mark.parametrize("dense", [0, 4096])
def test_true_scores_of_a_larger_space(dense, monkeypatch):
    monkeypatch.setattr(metropolis, "DENSE", dense)
    distribution = data_distribution(2, 9)
    truth = metropolis.Scores(Hamming(2), distribution, 9)
    close(metropolis.invariant(truth), distribution, atol=1e-9, rtol=0)
    assert abs(float(metropolis.divergence(distribution, truth))) < 1e-8
    other = data_distribution(2, 9, seed=4)
    kl = (other * (other / distribution).log()).sum()
    assert float(metropolis.divergence(other, truth)) == pytest.approx(float(kl), abs=1e-7)


def test_a_steep_distribution_is_solved_for_to_many_digits():
    """Entries of 1e-13 that only a path of 60 cells joins."""
    distribution = torch.exp(-0.5 * torch.linspace(-8, 8, 60, dtype=torch.float64) ** 2)
    distribution = distribution / distribution.sum()
    close(metropolis.invariant(metropolis.Scores(Grid(60), distribution, 1)), distribution, rtol=1e-6, atol=0)


def test_two_classes_that_no_step_joins():
    """Of six cells in a row the middle two have probability zero: half of the starts end on either side."""
    distribution = torch.tensor([1.0, 3.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64) / 6
    method = CSM(torch.nn.Identity(), 6, (1,), CSM.Config(neighbourhood="grid"))
    v = torch.ones(6, 6, dtype=torch.float64)
    v[0, 1], v[1, 0], v[1, 2], v[4, 3] = 3.0, 1 / 3, 0.0, 0.0
    method.predict = lambda x, t, **_: type("Said", (), {"v": v[x]})()
    kept = metropolis.invariant(method)
    close(kept, torch.tensor([0.125, 0.375, 0.0, 0.0, 0.25, 0.25]).double(), atol=1e-7, rtol=0)
    assert float(metropolis.divergence(distribution, method)) == pytest.approx(
        float((distribution * (distribution / kept).log()).nansum())
    )
    assert float(metropolis.divergence(torch.full((6,), 1 / 6).double(), method)) > 3  # or infinite


def test_scores_are_ratios():
    distribution = numbers(V**3)
    truth = metropolis.Scores(Hamming(V), distribution, 3)
    x = torch.tensor([[0, 2, 1], [1, 1, 1]])
    v = truth.predict(x, 0.0).v
    assert float(v[0, 1, 0]) == pytest.approx(float(distribution[0 * 9 + 0 * 3 + 1] / distribution[0 * 9 + 2 * 3 + 1]))
    assert float(v[1, 2, 2]) == pytest.approx(float(distribution[9 + 3 + 2] / distribution[9 + 3 + 1]))
    at = torch.tensor([[False, True, False], [True, False, True]])
    close(truth.predict(x, 0.0, at=at).v, v[at])


def test_too_many_texts():
    method = CSM(torch.nn.Identity(), 27, (8,))
    assert metropolis.enumerable(method) == "27^8 texts are too many to enumerate"
    with pytest.raises(InputError, match=r"27\^8 texts are too many to enumerate; at most 100,000 are"):
        metropolis.invariant(method)
    assert metropolis.enumerable(CSM(torch.nn.Identity(), 2, (16,))) is None
    assert len(exact.states(2, 16)) == 65_536
