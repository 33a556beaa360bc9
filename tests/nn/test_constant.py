"""One constant time: what it says goes into the layer norms and the residual sums, and is the same function; classes."""

import dataclasses

import pytest
import torch

from zellige.base.errors import InputError
from zellige.nn import DiT, Net

NET = Net(layers=2, hidden=16, heads=2, length=12, condition=8)
X = torch.randint(0, 7, (3, 12), generator=torch.Generator().manual_seed(1))


def pair(block: int = 0, bias: bool = False, **more) -> tuple[DiT, DiT]:
    """A network that is told sigma = 0 for ever, and one that is told it each time, with the same random weights, float64."""
    torch.manual_seed(0)
    net = dataclasses.replace(NET, **more)
    told = DiT(net, 7, time=True, bias=bias, block=block).double().eval()
    for p in told.parameters():
        torch.nn.init.normal_(p, std=0.4)
    folded = DiT(dataclasses.replace(net, constant=True), 7, bias=bias, block=block).double().eval()
    folded.load_state_dict(told.state_dict())
    return folded, told


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("block", [0, 4])
def test_folded_is_unfolded(block, bias):
    """The logits and the gradient of every weight, those of the embedding of the time too."""
    grads = []
    folded, told = pair(block, bias)
    segments = torch.arange(12).expand(3, 12) // 8
    clean = X.flip(0) if block else None
    for network, time in ((folded, None), (told, torch.zeros(()))):
        more = {"clean": clean} if block else {"segments": segments}
        logits = network.head(network.features(X, time, **more))
        grads.append((logits, *torch.autograd.grad(logits.log_softmax(-1)[..., 3].sum(), list(network.parameters()))))
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert all(g.abs().sum() > 0 for g in grads[0])


def test_folded_in_bfloat16():
    """The norms stay in float32, and what they are told is bfloat16."""
    folded = pair()[0].float()
    with torch.autocast("cpu", torch.bfloat16):
        low = folded.features(X)
    torch.testing.assert_close(low.float(), folded.features(X), rtol=0.1, atol=0.1)


@torch.no_grad()
def test_cache_of_a_constant_network():
    folded, told = pair(block=4)
    (ha, a), (hb, b) = folded.advance(None, X[:, :8]), told.advance(None, X[:, :8], torch.zeros(()))
    torch.testing.assert_close(ha, hb, rtol=1e-12, atol=1e-12)
    after = folded.features(X[:, 8:], cache=a), told.features(X[:, 8:], torch.zeros(()), cache=b)
    torch.testing.assert_close(*after, rtol=1e-12, atol=1e-12)


def test_without_a_constant_nothing_is_adaptive():
    free = DiT(NET, 7)
    assert not any("modulation" in name or "time" in name for name in free.state_dict())
    with pytest.raises(InputError, match="tells its network no time"):
        DiT(dataclasses.replace(NET, constant=True), 7, time=True)


@torch.no_grad()
@pytest.mark.parametrize("constant", [False, True])
def test_classes(constant):
    """A row's class is the table's row added to the embedding of its time, after SiLU; no class is the last row."""
    torch.manual_seed(0)
    net = dataclasses.replace(NET, classes=3, constant=constant)
    network = DiT(net, 7, time=not constant).double().eval()
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.4)
    plain = DiT(dataclasses.replace(net, classes=0, constant=False), 7, time=True).double().eval()
    plain.load_state_dict({n: t for n, t in network.state_dict().items() if not n.startswith("classes")})
    time = torch.tensor([0.1, 1.0, 3.0]).double() * (not constant)
    classes = torch.tensor([2, 0, -1])
    said = network.features(X, None if constant else time, condition=classes)
    for i, row in enumerate((2, 0, 3)):
        embedded = plain.time(time[i]) + torch.nn.functional.silu(network.classes.weight[row])
        plain.embed_time = lambda _, embedded=embedded: (embedded[None], torch.zeros(1, 1, dtype=torch.long))
        torch.testing.assert_close(plain.features(X[i : i + 1], time[i]), said[i : i + 1], rtol=1e-12, atol=1e-12)
    nothing = network.features(X, None if constant else time)
    torch.testing.assert_close(nothing, network.features(X, None if constant else time, condition=torch.full((3,), 3)))
    if not constant:  # one time for each position says the same
        each = network.features(X, time[:, None].expand(3, 12), condition=classes)
        torch.testing.assert_close(each, said, rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="a class of 0 to 2 for each of 3 rows"):
        network.features(X, None if constant else time, condition=torch.tensor([4, 0, 0]))
