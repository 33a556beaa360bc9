"""Any order and fixed order: their distributions by enumeration of the orders."""

import itertools
import math

import pytest
import torch

from testing.pairs import close, denoiser, mdlm
from testing.worlds import L, V, data_distribution
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.curves import Linear
from zellige.core.prediction import posterior
from zellige.core.process import absorbing
from zellige.samplers import AnyOrder, FixedOrder

THREE = 3


def distribution_of(method, groups, given=None):
    """The distribution of drawing groups of positions one after the other, each group independently: (K^L,)."""
    length = method.shape[0]
    p, X = torch.zeros((V + 1) ** length, dtype=torch.float64), exact.states(V, length)
    for x in X if given is None else X[((given == X) | (given < 0)).all(-1)]:
        seen, chance = torch.full((1, length), V), 1.0
        if given is not None:
            seen[0, given >= 0] = given[given >= 0]
        for group in groups:
            distribution = posterior(method.predict(seen, 0.5))[0]
            for i in group:
                chance = chance * distribution[i, x[i]]
                seen[0, i] = x[i]
        p[exact.index(x, V + 1)] += chance
    return p


@pytest.mark.parametrize("given", [None, [-1, 1, -1]])
@torch.no_grad()
def test_any_order_is_the_average_over_orders(given):
    method = mdlm(length=THREE)
    given = None if given is None else torch.tensor(given)
    free = [i for i in range(THREE) if given is None or given[i] < 0]
    expected = sum(distribution_of(method, [[i] for i in order], given) for order in itertools.permutations(free))
    distribution = exact.sample_distribution(AnyOrder(), method, THREE, given)
    close(distribution, expected / math.factorial(len(free)), rtol=0, atol=1e-12)
    if given is None:
        clean = (exact.states(V + 1, THREE) < V).all(-1)
        likelihood = distribution[clean].log()
        assert (likelihood >= -exact.any_order(method, exact.states(V, THREE)) - 1e-12).all()  # Jensen


@torch.no_grad()
def test_several_a_step():
    method = mdlm(length=THREE)
    pairs = [([i, j], [k]) for i, j, k in itertools.permutations(range(THREE))]
    expected = sum(distribution_of(method, groups) for groups in pairs) / len(pairs)
    close(exact.sample_distribution(AnyOrder(2), method, 1), expected, rtol=0, atol=1e-12)
    close(
        exact.sample_distribution(FixedOrder("backward", per_step=2), method, 1),
        distribution_of(method, [[2, 1], [0]]),
        rtol=0,
        atol=1e-12,
    )
    close(
        exact.sample_distribution(FixedOrder("forward", per_step=7), method, 1),
        distribution_of(method, [[0, 1, 2]]),
        rtol=0,
        atol=1e-12,
    )
    with pytest.raises(InputError, match="`per_step` is 0; it must be 1 or more"):
        AnyOrder(0)


ORDERS = {"forward": [0, 1, 2], "backward": [2, 1, 0], "2,0,1": [2, 0, 1], (1, 2, 0): [1, 2, 0]}


@pytest.mark.parametrize("order", ORDERS)
@torch.no_grad()
def test_fixed_order_is_autoregressive(order):
    method = mdlm(length=THREE)
    sampler, steps = FixedOrder(order), [[i] for i in ORDERS[order]]
    close(exact.sample_distribution(sampler, method, THREE), distribution_of(method, steps), rtol=0, atol=1e-12)
    given = torch.tensor([-1, 1, -1])
    expected = distribution_of(method, [[i] for i in ORDERS[order] if i != 1], given)
    close(exact.sample_distribution(sampler, method, THREE, given), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_exact_network_has_the_distribution_of_the_data_in_any_order():
    method = denoiser(absorbing(V + 1, Linear()))
    data = exact.embed(method.process, data_distribution(), L)
    for sampler in (AnyOrder(), FixedOrder(), FixedOrder("backward")):
        close(exact.sample_distribution(sampler, method, L), data, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("upward", "unknown order 'upward'; forward, backward, or positions such as 2,0,1"),
        ("0,0,1", "order 0,0,1 is not a permutation; name each position from 0 to 2 once"),
        ([1, 2], "order 1,2 is not a permutation; name each position from 0 to 1 once"),
    ],
)
def test_an_order_that_is_none(order, message):
    with pytest.raises(InputError) as error:
        FixedOrder(order)
    assert str(error.value) == message
    with pytest.raises(InputError, match="the order has 2 positions, the text 3; name each one once"):
        FixedOrder([1, 0]).init(mdlm(length=THREE), (1, THREE))
