"""The transformer: equal to the published one on its weights, and blind to what it must not see."""

import itertools
import json
import math

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from zellige.base.errors import InputError
from zellige.core.positions import positions
from zellige.nn import DiT, Net
from zellige.nn.block import ShortConv
from zellige.nn.embedding import axial_table, rotary_table, rotate
from zellige.plugins.published.ddit import ours


def rename(weights):
    return {ours(name): tensor for name, tensor in weights.items() if name != "rotary_emb.inv_freq"}


class Golden:
    def __init__(self, folder):
        self.folder = folder
        self.index = {c["name"]: c for c in json.loads((folder / "index.json").read_text())["cases"]}

    def load(self, name):
        return load_file(self.folder / f"{name}.safetensors")

    def tolerance(self, name):
        t = self.index[name]["suggested_tolerance"]
        return {"atol": t["atol"], "rtol": t["rtol"]}


@pytest.fixture(scope="module")
def golden(golden_folder):
    return Golden(golden_folder / "torch")


@pytest.fixture(scope="module")
def published(golden):
    net = DiT(Net(layers=2, hidden=64, heads=4, length=24, condition=32, dropout=0.1), states=54, time=True)
    net.load_state_dict(rename(golden.load("mdlm__weights")))
    return net.eval()


@pytest.mark.parametrize("case", ["mdlm__forward_subs_tc_true", "mdlm__forward_subs_tc_false"])
def test_logits_equal_the_published_network(golden, published, case):
    c = golden.load(case)
    torch.testing.assert_close(published(c["xt"], c["sigma_used"]), c["logits"], **golden.tolerance(case))
    per_position = c["sigma_used"][:, None].expand(c["xt"].shape)
    torch.testing.assert_close(published(c["xt"], per_position), c["logits"], **golden.tolerance(case))


def test_hidden_states_equal_the_published_ones(golden, published):
    case = golden.load("mdlm__hidden_states")
    seen = []
    hooks = [b.register_forward_hook(lambda m, i, out: seen.append(out)) for b in published.blocks]
    out = published(case["xt"], case["sigma"])
    for hook in hooks:
        hook.remove()
    got = [published.embedding(case["xt"]), published.time(case["sigma"]), *seen, out]
    for name, value in zip(["embed", "c", "block0", "block1", "out"], got):
        torch.testing.assert_close(value, case[name], **golden.tolerance("mdlm__hidden_states"))


def test_rotary_equals_the_published_one(golden):
    case, tolerance = golden.load("mdlm__rotary"), golden.tolerance("mdlm__rotary")
    cos, sin = rotary_table(24, 16)
    torch.testing.assert_close(torch.cat((cos, cos), -1), case["cos"], **tolerance)
    torch.testing.assert_close(torch.cat((sin, sin), -1), case["sin"], **tolerance)
    qkv = case["qkv_in"]
    rotated = rotate(qkv[:, :, :2], cos[:, None, None], sin[:, None, None])
    torch.testing.assert_close(torch.cat((rotated, qkv[:, :, 2:]), 2), case["qkv_out"], **tolerance)


def test_time_embedding_equals_the_published_one(golden, published):
    case, tolerance = golden.load("mdlm__time_embedding"), golden.tolerance("mdlm__time_embedding")
    torch.testing.assert_close(published.time.sinusoid(case["sigma"]), case["sinusoid"], **tolerance)
    torch.testing.assert_close(published.time(case["sigma"]), case["cond_c"], **tolerance)


def test_time_free_network_equals_radd(golden):
    net = DiT(Net(layers=2, hidden=64, heads=4, length=24), states=54, bias=True)
    net.load_state_dict(rename(golden.load("radd__weights")))
    case = golden.load("radd__forward")
    torch.testing.assert_close(net.eval()(case["xt"]), case["logits"], **golden.tolerance("radd__forward"))


def busy(net):
    """The same network with every parameter that starts at zero, moved: so that tests see all of it."""
    with torch.no_grad():
        for p in net.parameters():
            p += 0.1 * torch.randn_like(p)
    return net.double().eval()


@pytest.mark.parametrize("conv", [0, 7])
@pytest.mark.parametrize("time", [False, True])
def test_packed_documents_do_not_see_each_other(conv, time):
    torch.manual_seed(0)
    net = busy(DiT(Net(layers=2, hidden=32, heads=2, length=16, conv=conv), states=5, time=time))
    a, b = torch.randint(5, (1, 5)), torch.randint(5, (1, 11))
    t = torch.tensor([0.3], dtype=torch.float64) if time else None
    segments = torch.tensor([[0] * 5 + [3] * 11])
    packed = net(torch.cat((a, b), 1), t, segments=segments)
    # rotary positions are relative, so a document is the same wherever it stands
    torch.testing.assert_close(packed, torch.cat((net(a, t), net(b, t)), 1), atol=1e-6, rtol=1e-6)
    alone = net(torch.cat((a, b), 1), t, segments=torch.zeros_like(segments))
    torch.testing.assert_close(alone, net(torch.cat((a, b), 1), t))


def test_times_per_position_are_the_times_of_the_positions():
    torch.manual_seed(0)
    net = busy(DiT(Net(layers=1, hidden=32, heads=2, length=8), states=5, time=True))
    with torch.no_grad():
        net.blocks[0].out.weight.zero_()  # without attention a position depends on its own time only
    x, t = torch.randint(5, (2, 8)), torch.rand(2, 8, dtype=torch.float64).round(decimals=1)
    mixed = net(x, t)
    for b in range(2):
        for i in range(8):
            torch.testing.assert_close(mixed[b, i], net(x, t[b, i])[b, i])


@pytest.mark.parametrize(
    "more",
    [{}, {"block": 4}, {"time": True}, {"time": True, "block": 4}, {"constant": True}, {"time": True, "classes": 3}],
)
def test_the_end_of_a_network_at_some_positions(more):
    """What is asked at some positions alone is what stands there; one time for all rows goes into the norms."""
    torch.manual_seed(0)
    size = Net(2, 32, 2, 8, conv=3, constant="constant" in more, classes=more.get("classes", 0))
    block, time = more.get("block", 0), "time" in more
    net = busy(DiT(size, states=5, time=time, block=block))
    x, at = torch.randint(5, (3, 8)), positions(torch.rand(3, 8) < 0.4)
    beside = {"condition": torch.tensor([0, -1, 2])} if more.get("classes") else {}
    streams = [beside, beside | {"clean": torch.randint(5, (3, 8))}] if block else [beside]
    rows = torch.tensor([0.3, 0.9, 0.3], dtype=torch.float64)
    times = [rows, rows[:1].expand(3), torch.rand(3, 8, dtype=torch.float64).round(decimals=1)] if time else [None]
    for t, with_it in itertools.product(times, streams):
        whole = net.features(x, t, **with_it)
        assert whole.std() > 0.1
        with torch.no_grad():
            torch.testing.assert_close(net.features(x, t, **with_it), whole, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(net.features(x, t, **with_it, at=at), at.of(whole), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(net.features(x, t, **with_it, at=at), at.of(whole), rtol=1e-12, atol=1e-12)


def test_a_network_starts_uniform_and_time_free_ones_have_no_adaln():
    x = torch.randint(5, (2, 8))
    size = Net(layers=2, hidden=32, heads=2, length=8, conv=3)
    assert (DiT(size, 5, time=True)(x, torch.zeros(2)) == 0).all()
    free = DiT(size, 5)
    assert (free(x) == 0).all()
    assert not [n for n, _ in free.named_parameters() if "modulation" in n or "time" in n]


@pytest.mark.parametrize("time", [False, True])
def test_checkpointing_changes_no_gradient(time):
    x, t = torch.randint(5, (2, 8)), torch.rand(2) if time else None
    gradients = []
    for flag in (False, True):
        torch.manual_seed(0)
        net = DiT(Net(layers=2, hidden=32, heads=2, length=8, conv=3, dropout=0.2, checkpoint=flag), 5, time=time)
        busy(net).float().train()
        torch.manual_seed(1)
        net(x, t).square().sum().backward()
        gradients.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_autocast_keeps_the_residual_stream_and_the_norms_in_float32():
    net = DiT(Net(layers=2, hidden=64, heads=4, length=16, conv=7), states=9, time=True)
    x, t = torch.randint(9, (2, 16)), torch.rand(2)
    seen = []
    for module in net.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.register_forward_hook(lambda m, i, out: seen.append((i[0].dtype, out.dtype)))
    with torch.autocast("cpu", torch.bfloat16):
        low = net.features(x, t)
    assert set(seen) == {(torch.float32, torch.float32)}
    torch.testing.assert_close(low, net.features(x, t), atol=0.1, rtol=0.1)


def test_features_made_for_sampling_do_not_spoil_training():
    net = DiT(Net(layers=1, hidden=32, heads=2, length=8), states=5)
    x = torch.randint(5, (2, 8))
    with torch.inference_mode():
        net(x)
    net(x).sum().backward()


@pytest.mark.parametrize(
    "wrong",
    [{"layers": 0}, {"hidden": 100, "heads": 8}, {"conv": 4}, {"conv": -1}, {"dropout": 1.0}, {"length": 0}],
)
def test_impossible_sizes_are_said(wrong):
    with pytest.raises(InputError):
        Net(**wrong)


def test_wrong_inputs_are_said():
    size = Net(layers=1, hidden=32, heads=2, length=8)
    x = torch.zeros(1, 9, dtype=torch.long)
    with pytest.raises(InputError, match="9 positions"):
        DiT(size, 5)(x)
    with pytest.raises(InputError, match="time-free"):
        DiT(size, 5)(x[:, :8], torch.zeros(1))
    with pytest.raises(InputError, match="conditioned"):
        DiT(size, 5, time=True)(x[:, :8])


@pytest.mark.parametrize("time", [False, True])
def test_compiles_without_graph_breaks(time):
    torch.manual_seed(0)
    net = DiT(Net(layers=2, hidden=32, heads=2, length=8, conv=3), states=5, time=time)
    x, t = torch.randint(5, (2, 8)), torch.rand(2) if time else None
    compiled = torch.compile(net.features, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, t), net.features(x, t))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x, t), net.features(x, t))


# ---------------------------------------------------------------------------------- grids
def test_axial_rotation_sees_differences_along_each_axis_and_only_those():
    """<rotate(q, a), rotate(k, b)> depends on the row difference and the column difference of places a and b, on both."""
    grid, width = (4, 5), 16
    cos, sin = axial_table(grid, width).double()
    q, k = torch.randn(2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = [rotate(x.expand(1, 20, -1), cos, sin)[0].reshape(4, 5, width) for x in (q, k)]
    products = torch.einsum("abi,cdi->abcd", *turned)
    by_difference = {}
    for a, b, c, d in itertools.product(range(4), range(5), range(4), range(5)):
        by_difference.setdefault((a - c, b - d), []).append(float(products[a, b, c, d]))
    assert max(max(v) - min(v) for v in by_difference.values()) < 1e-6
    assert len({round(v[0], 5) for v in by_difference.values()}) == 7 * 9


def test_a_grid_knows_its_places():
    """On a line two equal tokens with equal neighbourhoods look alike; in a grid each place has an embedding of its own."""
    torch.manual_seed(0)
    x = torch.zeros(1, 9, dtype=torch.long)
    line, grid = (DiT(Net(layers=1, hidden=32, heads=2, length=9, grid=g), 3).features(x)[0] for g in ((), (3, 3)))
    assert (line - line[0]).abs().max() < 1e-5
    assert torch.pdist(grid).min() > 1e-2


@pytest.mark.parametrize("grid", [(4, 5), (3, 2, 2)])
def test_the_convolution_runs_over_the_grid(grid):
    L, D, k = math.prod(grid), 6, 3
    conv, generator = ShortConv(D, k, grid).double(), torch.Generator().manual_seed(0)
    nn.init.normal_(conv.weight, generator=generator)
    x = torch.randn(2, L, D, dtype=torch.float64, generator=generator)
    places, taps = (list(itertools.product(*map(range, axes))) for axes in (grid, [k] * len(grid)))
    out = torch.zeros_like(x)
    for (i, place), (w, tap) in itertools.product(enumerate(places), enumerate(taps)):
        there = tuple(p + d - k // 2 for p, d in zip(place, tap))
        if there in places:
            out[:, i] += conv.weight[w] * x[:, places.index(there)]
    torch.testing.assert_close(conv(x), out, rtol=1e-12, atol=1e-12)


def test_a_grid_takes_all_its_places():
    with pytest.raises(InputError, match="a grid of 3 x 3 takes all its 9 positions"):
        DiT(Net(layers=1, hidden=32, heads=2, length=9, grid=(3, 3)), 3).features(torch.zeros(1, 8, dtype=torch.long))


def test_a_grid_of_another_size():
    with pytest.raises(InputError, match=r"`net\.grid` is 14 x 14, which is 196 positions, and `net\.length` 256"):
        Net(grid=(14, 14))
