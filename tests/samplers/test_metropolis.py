"""Metropolis-Hastings: what it keeps at other temperatures, what stays, and how slow it says that it is."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from testing.worlds import L, V, data_distribution, table
from zellige import InputError, exact
from zellige.exact import metropolis
from zellige.methods import CSM, MDLM
from zellige.methods.csm_neighbourhood import NEIGHBOURHOODS, Cycle, Grid, Hamming
from zellige.plugins.verify.identities.score import matrix
from zellige.samplers import Metropolis, choose_sampler, run
from zellige.samplers.metropolis import Walk, autocorrelation_time, report

close = torch.testing.assert_close
X = exact.states(V, L)


def truth(arrows=Hamming, distribution=None, length=L, size=V):
    return metropolis.Scores(
        arrows(size), data_distribution(size, length) if distribution is None else distribution, length
    )


@pytest.mark.parametrize("arrows", NEIGHBOURHOODS.values())
@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_a_temperature_is_that_of_the_distribution(arrows, temperature):
    kept = data_distribution() ** (1 / temperature)
    kept = kept / kept.sum()
    P = matrix(Metropolis(temperature), truth(arrows))
    close(kept @ P, kept, atol=1e-14, rtol=0)


def test_at_temperature_zero_it_only_climbs():
    distribution, P = data_distribution(), matrix(Metropolis(0.0), truth())
    assert (P[distribution[:, None] > distribution] == 0).all()
    assert float(P[0].sum()) == pytest.approx(1)


def test_a_score_below_zero_is_a_text_of_probability_zero():
    method = CSM(table(V, L), V, (L,)).double()
    with torch.no_grad():
        method.network.logits.fill_(-2.0)  # c = -2, v = -1
    P = matrix(Metropolis(), method)
    close(P, torch.eye(V**L).double())


@pytest.mark.parametrize("arrows", NEIGHBOURHOODS.values())
def test_the_distribution_of_many_chains(arrows):
    """Drawn, with one call for each proposal; the acceptance that is reported is that of the distribution."""
    N, steps = 20_000, 60
    *_, last = run(Metropolis(), truth(arrows), (N, L), steps, generator=torch.Generator().manual_seed(0))
    distribution = exact.sample_distribution(Metropolis(), truth(arrows), steps)
    seen = exact.index(last.x, V).bincount(minlength=V**L) / N
    chi = N * ((seen - distribution) ** 2 / distribution).sum()
    assert float(torch.special.gammaincc(torch.tensor((V**L - 1) / 2).double(), chi / 2)) > 1e-6
    assert (last.calls == steps).all()
    assert last.memory.proposed == steps
    assert last.memory.path().shape == (N, steps + 1)


def test_acceptance_is_counted():
    states = list(run(Metropolis(), truth(), (50, L), 40, generator=torch.Generator().manual_seed(0)))
    moved = torch.stack([(a.x != b.x).any(-1) for a, b in itertools.pairwise(states)], 1)
    assert (states[-1].memory.accepted == moved.sum(1)).all()
    close(states[-1].memory.path(), torch.stack([s.x.double().mean(-1) for s in states], 1))


def test_given_positions_stay():
    fixed = torch.tensor([[1, -1, 2], [-1, -1, -1], [0, 1, 2]])
    distribution = data_distribution(V, 3)
    states = list(run(Metropolis(), truth(distribution=distribution, length=3), (3, 3), 50, fixed=fixed))
    for state in states:
        assert (state.x[fixed >= 0] == fixed[fixed >= 0]).all()
    assert states[-1].memory.accepted[2] == 0  # nothing is free
    assert (states[-1].memory.accepted[:2] > 0).all()


# ---------------------------------------------------------------------------------- how slow it is
def exact_time(P, distribution, f):
    """1 + 2 sum of the autocorrelations of f: by the resolvent of the chain."""
    away = f - distribution @ f
    sums = torch.linalg.solve(torch.eye(len(P)).double() - P + distribution, P @ away)
    return float(1 + 2 * (distribution * away) @ sums / ((distribution * away) @ away))


@pytest.mark.parametrize("arrows", [Hamming, Cycle, Grid])
def test_the_autocorrelation_time_is_that_of_the_matrix(arrows):
    distribution, size = data_distribution(5, 1), 5
    method = truth(arrows, distribution, 1, size)
    P = torch.zeros(size, size, dtype=torch.float64).index_put(
        metropolis.transitions(method)[:2], metropolis.transitions(method)[2]
    )
    P.diagonal().add_(1 - P.sum(1))
    meant = exact_time(P, distribution, torch.arange(size).double())
    *_, last = run(Metropolis(), method, (256, 1), 1400, generator=torch.Generator().manual_seed(0))
    assert autocorrelation_time(last.memory.path()[:, 500:]) == pytest.approx(meant, rel=0.05)


def test_times_that_are_known():
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(20, 20_000, generator=g).double()
    assert autocorrelation_time(noise) == pytest.approx(1, abs=0.05)
    slow = [noise[:, 0]]
    for i in range(1, 20_000):
        slow.append(0.9 * slow[-1] + math.sqrt(1 - 0.81) * noise[:, i])
    assert autocorrelation_time(torch.stack(slow, 1)) == pytest.approx(19, rel=0.1)  # (1 + 0.9) / (1 - 0.9)
    assert math.isnan(autocorrelation_time(torch.ones(3, 10)))
    apart = torch.arange(2.0)[:, None].expand(2, 100)  # two chains that never meet
    assert autocorrelation_time(apart) > 20


def test_what_is_said():
    walk = Walk(torch.tensor([0]), torch.tensor([1.0]))
    for i in range(10):
        walk = Walk(walk.accepted, walk.value, i + 1, walk)
    assert report([walk]) == "0.0% of 10 proposals accepted, nothing moved"
    walk = replace(walk, accepted=torch.tensor([4]), value=torch.tensor([2.0]))
    assert report([walk, walk]).startswith("40.0% of 10 proposals accepted, autocorrelation time ")


# ---------------------------------------------------------------------------------- what it refuses
def test_only_where_the_ratios_of_the_data_are_known():
    method = MDLM(table(V + 1, L), V, (L,))
    line = "sampler 'metropolis' needs the ratios p\\(y\\)/p\\(x\\) of the data themselves; with mdlm use ancestral"
    with pytest.raises(InputError, match=line):
        Metropolis().init(method, (1, L))
    with pytest.raises(InputError, match="sampler 'metropolis' takes no `top_p`; it has no options of its own"):
        choose_sampler("metropolis", method, top_p=0.9)
    with pytest.raises(InputError, match="`steps` is 0; it must be 1 or more"):
        Metropolis().times(method, 0)
