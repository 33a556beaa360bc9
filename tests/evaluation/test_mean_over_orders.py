"""The mean of `studies/binarized-mnist/orders.py` over fixed orders is a likelihood: over all texts it sums to one."""

import itertools
import sys
from pathlib import Path

import pytest
import torch

from zellige import Net, methods
from zellige.plugins.evaluations.bracket.two_sides import from_above

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "studies" / "binarized-mnist"))
import orders  # pyright: ignore[reportMissingImports]


@pytest.mark.parametrize("time", [False, True])
def test_the_mean_over_fixed_orders_is_a_likelihood(time):
    """EoNADE's model. The orders are those of the seeds, whatever the text and the batch; they differ from each other."""
    V, L = 3, 4
    torch.manual_seed(0)
    cls = methods.find("mdlm")
    method = methods.build(
        cls, V, Net(layers=1, hidden=16, heads=2, length=L, condition=8), cls.Config(time=time)
    ).eval()
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.5 * torch.randn_like(p))
    texts = torch.tensor([*itertools.product(range(V), repeat=L)])
    with torch.inference_mode():
        log_p = torch.stack(
            [orders.log_probabilities(method, text[None], 0, 4, 7, 3) for text in texts]
        )  # (texts, orders)
    assert log_p.exp().sum(0).tolist() == pytest.approx([1] * 4, abs=1e-6)
    assert float((-from_above(log_p[..., None], 4)).exp().sum()) == pytest.approx(1, abs=1e-6)
    assert log_p.std(1).min() > 1e-3
