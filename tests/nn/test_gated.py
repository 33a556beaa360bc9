"""SwiGLU and dropout of whole channels in the transformer (`net.mlp`, `net.drop_channels`)."""

import pytest
import torch
import torch.nn.functional as F

from zellige import InputError, Net
from zellige.nn import DiT
from zellige.nn.block import Block, mlp

D = 48
NET = Net(layers=1, hidden=D, heads=2, length=5, conv=0, mlp="swiglu", dropout=0.5, drop_channels=True)


def test_swiglu_is_w2_of_silu_w1_x_times_w3_x():
    module, x = mlp(NET).double(), torch.randn(3, D, dtype=torch.float64)
    first, last = module[0], module[2]
    assert isinstance(first, torch.nn.Linear)
    assert isinstance(last, torch.nn.Linear)
    w1, w3 = first.weight.split(128)  # 8/3 of 48 channels are 128
    expected = (F.silu(x @ w1.T) * (x @ w3.T)) @ last.weight.T
    torch.testing.assert_close(module(x), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("hidden", [12, 48, 100, 768, 784])
def test_swiglu_has_the_published_width(hidden):
    """int(2/3 of 4 D), rounded up to a multiple of 32; of multiples of 12 as many weights as GELU's 8 D^2."""
    width = mlp(Net(hidden=hidden, heads=2, mlp="swiglu"))[2].in_features
    assert width == (int(2 * 4 * hidden / 3) + 31) // 32 * 32
    if hidden in (48, 768):
        assert sum(p.numel() for p in mlp(Net(hidden=hidden, heads=2, mlp="swiglu")).parameters()) == 8 * hidden**2


def test_channels_are_dropped_at_all_positions_of_a_sequence():
    """Of a branch that is 1 everywhere half the channels are 2, the same at all positions, others in each sequence."""
    torch.manual_seed(0)
    block = Block(NET, adaptive=False, bias=False).train()
    kept = block._drop(torch.ones(400, 5, D), torch.Size((400, 5, D)), None)
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert kept[:, 0].mean() == pytest.approx(1.0, abs=5 / (400 * D) ** 0.5)  # five standard deviations
    assert not torch.equal(kept[0], kept[1])
    assert torch.equal(block.eval()._drop(kept, kept.shape, None), kept)


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
