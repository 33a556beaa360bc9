"""A network whose matrix products are in bfloat16: what torch.autocast computes with the weights in float32, bit for bit."""

import copy
import pickle

import pytest
import torch

from small import LENGTH, V, make
from zellige.core.batch import Batch
from zellige.errors import InputError
from zellige.methods import METHODS

X = torch.arange(6 * LENGTH).reshape(6, LENGTH) % V


@pytest.mark.parametrize("name", METHODS)
def test_lowered_is_autocast(name):
    full = make(name).float()
    low = pickle.loads(pickle.dumps(copy.deepcopy(full).compute_in("bfloat16")))  # as a worker process gets it
    t = torch.linspace(0.1, 0.9, len(X), dtype=torch.float64) if full.time_conditioned else None
    with torch.no_grad():
        h = low.hidden(X, t)
        value = low.logits(h)
        with torch.autocast("cpu", torch.bfloat16):
            expected = full.logits(full.hidden(X, t).bfloat16())
    assert h.dtype == torch.bfloat16
    assert torch.equal(value, expected)
    assert (low.precision, full.precision) == ("bfloat16", "float32")
    assert low.network.embedding.weight.dtype == torch.float32
    assert low.network.head.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("name", METHODS)
def test_its_loss_is_near(name):
    """Two hundredths of the loss: 8 bits of mantissa through two layers; and not the very same."""
    full = make(name).float()
    low = copy.deepcopy(full).compute_in("bfloat16")
    with torch.no_grad():
        one, other = (m.loss(Batch(X), torch.Generator().manual_seed(0)).mean() for m in (full, low))
    assert one != other
    assert float(other) == pytest.approx(float(one), rel=0.02)


def test_what_it_is_called():
    with pytest.raises(InputError, match="unknown precision 'float64'"):
        make("mdlm").compute_in("float64")
