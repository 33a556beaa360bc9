"""SwiGLU and dropout of whole channels in the transformer (`net.mlp`, `net.drop_channels`)."""

import pytest
import torch

from zellige import InputError, Net
from zellige.nn import DiT

D = 48
NET = Net(layers=1, hidden=D, heads=2, length=5, conv=0, mlp="swiglu", dropout=0.5, drop_channels=True)


def test_a_gated_network_trains_and_its_dropout_is_off_in_evaluation():
    torch.manual_seed(0)
    network = DiT(NET, states=4)
    x = torch.randint(4, (2, 5))
    network.train().features(x, None).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.blocks.parameters() if p.ndim == 2)
    network.eval()
    assert torch.equal(network.features(x, None), network.features(x, None))


@pytest.mark.parametrize("option", [{"mlp": "swiglu"}, {"drop_channels": True}])
def test_a_u_net_has_neither(option):
    (name,) = option
    with pytest.raises(
        InputError, match=f"`net.{name}` is for `net.kind` dit or conv, and this is u-vit; leave it out"
    ):
        Net(kind="u-vit", length=48, grid=(4, 4, 3), **option)
