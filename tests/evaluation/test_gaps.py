"""-log p of a part of a text given the rest: both sides hold the exact value between them."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from evaluation.test_bracket import classes, table
from zellige.core.batch import Batch
from zellige.evaluation.interval import skewness
from zellige.plugins.evaluations.bracket import gaps, two_sides
from zellige.plugins.evaluations.bracket.bracket import BracketRow
from zellige.plugins.evaluations.bracket.gaps import bound_gaps, bracket_gaps
from zellige.samplers import Distribution, FixedOrder
from zellige.samplers.replay import Replayed, weigh

TEXT = [0, 2, 1, 0]


@pytest.mark.parametrize("held", [[False] * 4, [True, False, False, True], [False, True, True, True]])
def test_the_exact_value_lies_between_the_two_sides(held):
    """Of any order: p is the mean over all orders of the product of the tokens' probabilities; what is given has none."""
    method = table("mdlm", {}, 4)
    batch = Batch(torch.tensor([TEXT]), None if not any(held) else ~torch.tensor([held]))
    orders = [
        Replayed(FixedOrder(order), Distribution("order", "an order")) for order in itertools.permutations(range(4))
    ]
    p = sum(math.exp(float(weigh(method, batch, path).log_w.sum())) for path in orders) / len(orders)
    sides = torch.tensor(list(bracket_gaps(method, TEXT, held, sets=20, n=64)), dtype=torch.float64)[:, :2]
    above, below = sides.mean(0).tolist()
    five_sigma = 5 * sides.std(0) / math.sqrt(len(sides))
    assert above > -math.log(p) - float(five_sigma[0]) - 1e-9
    assert below < -math.log(p) + float(five_sigma[1]) + 1e-9
    assert above - below < 0.2
    bound = torch.tensor(list(bound_gaps(method, TEXT, held, sets=40)))
    assert float(bound.mean()) > -math.log(p) - 5 * float(bound.std()) / math.sqrt(40)


@pytest.mark.parametrize("condition", [0, 1])
def test_a_part_has_the_sides_of_the_class_it_is_told(condition):
    """Those of a network whose row for "no class" is that of the class; told none, they are others."""
    method, held = classes("mdlm", {}, 4, 0), [True, False, False, True]
    told = [list(sides(method, TEXT, held, sets=2, condition=condition)) for sides in (bound_gaps, bracket_gaps)]
    unaware = list(bound_gaps(method, TEXT, held, sets=2))
    with torch.no_grad():
        method.network.classes.weight[-1] = method.network.classes.weight[condition]
    assert told == [list(sides(method, TEXT, held, sets=2)) for sides in (bound_gaps, bracket_gaps)]
    assert told[0] != pytest.approx(unaware, abs=1e-3)


@pytest.mark.parametrize("sides", [bound_gaps, bracket_gaps])
def test_each_seed_has_draws_of_its_own(sides):
    method, held = table("mdlm", {}, 4), [False] * 4
    found = [[*sides(method, TEXT, held, sets=2, seed=seed)] for seed in (3, 3, 4)]
    assert found[0] == found[1] != found[2]


def test_above_comes_before_below(monkeypatch):
    """By hand, of two draws whose weights are 1/2 and 1/4: from above log 8 / 2, from below the tangent at the first."""
    log_w = torch.tensor([[0.5], [0.25]]).double().log()
    monkeypatch.setattr(gaps, "weigh", lambda *_: SimpleNamespace(log_w=log_w))
    ((above, below, determined),) = bracket_gaps(table("mdlm", {}, 4), TEXT, [False] * 4, sets=1, n=1)
    assert not determined
    assert (above, below) == pytest.approx((1.5 * math.log(2), math.log(2) + 0.5))


def test_the_lower_side_is_determined_by_the_rule_of_the_bracket(monkeypatch):
    """Of equal weights at once; of weights that differ by many nats never, as none of their means is known."""
    for spread, expected in ((0.0, True), (3.0, False)):
        log_w = spread * torch.randn(16, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        monkeypatch.setattr(gaps, "weigh", lambda *_, log_w=log_w: SimpleNamespace(log_w=log_w))
        told = [last for *_, last in bracket_gaps(table("mdlm", {}, 4), TEXT, [False] * 4)]
        assert told == [expected] * 8
        share = float(two_sides.effective(log_w))
        assert BracketRow("TUBE", None, "lower", skewness=skewness(share, 8 * 16)).determined == expected
