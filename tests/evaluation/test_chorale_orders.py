"""Which numbers of `studies/chorales/chorale_orders.py` are likelihoods: all texts of two frames of two voices sum to one."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import zellige
from zellige import exact
from zellige.methods import build
from zellige.nn import Net

BENCHMARK = runpy.run_path(str(Path(__file__).resolve().parents[2] / "studies" / "chorales" / "chorale_orders.py"))
ORDERS = [np.array([[1, 0], [2, 3]]), np.array([[3, 2], [0, 1]])]


@pytest.fixture(scope="module")
def log_p():
    """log p of the frames of each of 16 texts, (orders, 16, frames), of true and of own voices; the network is random."""
    torch.manual_seed(1)
    cls = zellige.METHODS["mdlm"]
    method = build(cls, 2, Net(layers=1, hidden=8, heads=1, length=4), cls.Config()).double().eval()
    with torch.no_grad():
        method.network.head.weight.normal_(std=2.0)
        each = [
            torch.stack(
                [torch.stack([BENCHMARK["in_order"](method, x, o, own) for x in exact.states(2, 4)]) for o in ORDERS]
            )
            for own in (False, True)
        ]
    return dict(zip(("true", "own"), each))


@pytest.mark.parametrize("voices", ["true", "own"])
def test_an_order_has_a_likelihood(log_p, voices):
    sums = log_p[voices].sum(-1).exp().sum(-1)
    assert sums.tolist() == pytest.approx([1, 1], abs=1e-12)
    assert (log_p["true"] - log_p["own"]).abs().max() > 1e-3  # the two are not the same


@pytest.mark.parametrize("voices", ["true", "own"])
def test_frames_averaged_over_orders_have_none(log_p, voices):
    ensembled = torch.stack([BENCHMARK["ensembled"](log_p[voices][:, x]) for x in range(16)])
    assert abs(float(ensembled.exp().sum()) - 1) > 1e-4  # the rounding is 1e-12
    assert BENCHMARK["coins"]() == pytest.approx(1.25)
