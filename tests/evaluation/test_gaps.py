"""-log p of a part of a text given the rest: both sides hold the exact value between them."""

import itertools
import math

import pytest
import torch
from test_bracket import table

from zellige.core.batch import Batch
from zellige.evaluation.gaps import bound_gaps, bracket_gaps
from zellige.samplers import FixedOrder
from zellige.samplers.replay import Replayed, weigh

TEXT = [0, 2, 1, 0]


@pytest.mark.parametrize("held", [[False] * 4, [True, False, False, True], [False, True, True, True]])
def test_the_exact_value_lies_between_the_two_sides(held):
    """Of any order: p is the mean over all orders of the product of the tokens' probabilities; what is given has none."""
    method = table("mdlm", {}, 4)
    batch = Batch(torch.tensor([TEXT]), None if not any(held) else ~torch.tensor([held]))
    orders = [Replayed(FixedOrder(order), "an order") for order in itertools.permutations(range(4))]
    p = sum(math.exp(float(weigh(method, batch, path).log_w.sum())) for path in orders) / len(orders)
    sides = torch.tensor(list(bracket_gaps(method, TEXT, held, sets=20, n=64)), dtype=torch.float64)
    above, below = sides.mean(0).tolist()
    five_sigma = 5 * sides.std(0) / math.sqrt(len(sides))
    assert above > -math.log(p) - float(five_sigma[0]) - 1e-9
    assert below < -math.log(p) + float(five_sigma[1]) + 1e-9
    assert above - below < 0.2
    bound = torch.tensor(list(bound_gaps(method, TEXT, held, sets=40)))
    assert float(bound.mean()) > -math.log(p) - 5 * float(bound.std()) / math.sqrt(40)
