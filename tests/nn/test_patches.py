"""Patches: equal to plain arithmetic on the weights, whatever else the network reads; what does not fit is refused."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import zellige
from zellige import Data, Train
from zellige.base.errors import InputError
from zellige.methods import METHODS, build
from zellige.nn import DiT, Net

NET = Net(
    layers=1, hidden=20, heads=2, length=72, grid=(6, 4, 3), patch=2, condition=6
)  # 3 x 2 patches of 12 positions


def busy(net: Net, **options: Any) -> DiT:
    """A network whose parameters are all moved, so that tests see those that start at zero."""
    torch.manual_seed(0)
    network = DiT(net, 5, **options)
    with torch.no_grad():
        for p in network.parameters():
            p += 0.2 * torch.randn_like(p)
    return network.double().eval()


def rows(count: int = 2) -> torch.Tensor:
    return torch.randint(5, (count, NET.length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_a_network_on_patches_is_its_definition():
    """Pixel by pixel, around the block of a transformer without patches that has the same weights."""
    network, x = busy(NET), rows(1)
    w = network.state_dict()
    pixels = w["embedding.weight"][x[0]].reshape(6, 4, 3, 10)
    h = torch.stack([
        w["patches.into.weight"] @ pixels[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].flatten() + w["patches.into.bias"]
        for i in range(3)
        for j in range(2)
    ])  # fmt: skip
    plain = busy(Net(layers=1, hidden=20, heads=2, length=6, grid=(3, 2)))
    plain.load_state_dict({name: v for name, v in w.items() if name.startswith("blocks")}, strict=False)
    plain.embedding.weight = torch.nn.Parameter(torch.cat((h, h[:0])))
    plain.places = torch.nn.Parameter(w["places"])
    plain.norm = network.norm
    out = plain.features(torch.arange(6)[None])[0] @ w["patches.onto.weight"].T + w["patches.onto.bias"]
    features = network.features(x)[0].reshape(6, 4, 3, 10)
    for i in range(6):
        for j in range(4):
            patch = out[i // 2 * 2 + j // 2].reshape(2, 2, 3, 10)[i % 2, j % 2]
            expected = F.gelu(patch + pixels[i, j], approximate="tanh")
            torch.testing.assert_close(features[i, j], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "more", [{}, {"classes": 3}, {"self_condition": True}, {"given": True}, {"conv": 3}, {"mlp": "swiglu"}], ids=str
)
def test_it_starts_uniform_gradients_reach_every_parameter_and_each_pixel_sees_all(more):
    torch.manual_seed(0)
    net = Net(**{**NET.__dict__, **more})
    assert (DiT(net, 5)(rows()) == 0).all()
    network, x = busy(net, time=True), rows()
    condition = {"condition": torch.tensor([2, 0])} if "classes" in more else {}
    given = {"given": x > 2} if "given" in more else {}
    time = torch.tensor([0.3, 0.8], dtype=torch.float64)
    out = network(x, time, **condition, **given)
    out.log_softmax(-1)[..., 0].sum().backward()
    assert not [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    for i in range(2):
        alone = {name: value[i : i + 1] for name, value in (condition | given).items()}
        torch.testing.assert_close(network(x[i : i + 1], time[i : i + 1], **alone)[0], out[i])
    for place in (0, 41, 71):
        other = x.clone()
        other[0, place] = (x[0, place] + 1) % 5
        assert ((network(other, time, **condition, **given)[0] - out[0]).abs().amax(-1) > 0).all()


@pytest.mark.parametrize("name", ["mdlm", "udlm", "d3pm", "sedd"])
def test_trains_is_saved_and_loads(name, tmp_path):
    train = Train(steps=2, batch=2, samples=0, validate_rows=2, tensorboard=False, device="cpu", optimizer="muon")
    net = Net(layers=1, hidden=16, heads=2, patch=4)
    model = zellige.train(name, data=Data("digits"), net=net, train=train, run=tmp_path / "run")
    model = zellige.load(tmp_path / "run")
    assert str(model.config.net) == "1 layers of 16, 2 heads, on patches of 4 x 4"
    assert model.config.net.cells == (2, 2)
    assert len(zellige.sample(model, count=1, steps=2, seed=0)) == 1


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        (
            {"length": 72, "grid": (6, 4, 3), "patch": 4},
            r"`net.patch` is 4, and the rows are 6 x 4 x 3; it must divide",
        ),
        ({"length": 72, "grid": (72,), "patch": 2}, "`net.patch` is 2, and the rows are 72; it must divide"),
        ({"hidden": 20, "heads": 2, "patch": 3}, "`net.hidden` is 20; with `net.patch` 3 it must be a multiple of 3"),
        ({"kind": "unet", "patch": 2}, "`net.patch` is for `net.kind` dit, and this is unet; leave it out"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(choice, error):
    with pytest.raises(InputError, match=error):
        Net(**choice)


def test_what_is_no_image_and_times_of_pixels_are_refused():
    with pytest.raises(InputError, match=r"`net\.patch` is for images, and the rows are a line of 32; leave it out"):
        build("mdlm", 5, Net(layers=1, hidden=16, heads=2, length=32, patch=2))
    network = busy(NET, time=True)
    with pytest.raises(InputError, match=r"the time is \(2, 72\); a network on patches takes one for each row, \(2,\)"):
        network(rows(), torch.full((2, 72), 0.5, dtype=torch.float64))
    assert not network.chooses
    assert (
        METHODS["mdlm"].build_network(Net(layers=1, hidden=16, heads=2, length=32), 5, METHODS["mdlm"].Config()).chooses
    )
