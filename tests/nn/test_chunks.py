"""A function of logits in chunks: the same values and gradients as in one piece, whatever gradient comes in."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from zellige.nn import chunks
from zellige.nn.chunks import each_position


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 3)
    torch.manual_seed(0)
    head, scale = nn.Linear(5, 7).double(), nn.Parameter(torch.rand(7, dtype=torch.float64))
    h, target = torch.randn(11, 5, dtype=torch.float64, requires_grad=True), torch.randint(7, (11,))

    def f(logits, which):
        assert logits.dtype == torch.float64
        assert len(logits) == len(target[which])
        return ((scale * logits).logsumexp(-1) - logits.gather(-1, target[which, None])[:, 0]).exp()

    return head, scale, h, f


@pytest.mark.parametrize("upstream", ["sum", "mean", "uneven"])
def test_the_same_values_and_gradients(world, monkeypatch, upstream):
    head, scale, h, f = world
    weight = {"sum": torch.ones(11), "mean": torch.full((11,), 1 / 11), "uneven": torch.rand(11)}[upstream].double()
    found = []
    for large in (1, 1 << 22):
        monkeypatch.setattr(chunks, "LARGE", large)
        value = each_position(head, h, 7, f, [scale])
        gradients = torch.autograd.grad((weight * value).sum(), [h, *head.parameters(), scale])
        found.append((value.detach(), *gradients))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_without_gradients_and_with_a_head_that_is_no_module(world, monkeypatch):
    head, scale, h, f = world
    monkeypatch.setattr(chunks, "LARGE", 1)
    with torch.no_grad():
        value = each_position(head, h, 7, f)
    assert not value.requires_grad
    plain = each_position(lambda h: head(h), h, 7, f)
    torch.testing.assert_close(value, plain, rtol=1e-12, atol=1e-12)
    assert plain.requires_grad
    (only,) = torch.autograd.grad(each_position(head, h.detach(), 7, f, [scale]).sum(), [scale])
    assert float(only.abs().sum()) > 0


def test_logits_are_float32_at_least(monkeypatch):
    head = nn.Linear(5, 7).bfloat16()
    seen = []

    def f(logits, which):
        seen.append(logits.dtype)
        return logits.sum(-1)

    for large in (1, 1 << 22):
        monkeypatch.setattr(chunks, "LARGE", large)
        each_position(head, torch.randn(4, 5).bfloat16(), 7, f).sum().backward()
    assert set(seen) == {torch.float32}


def graphs(head, h, f, weight):
    """Value and gradients of a compiled sum, and the nodes of its graphs, forward and backward, with those of its loops."""
    made = []

    def keep(graph, inputs):
        made.append([node for g in graph.modules() if hasattr(g, "graph") for node in g.graph.nodes])
        return make_boxed_func(graph)

    def loss(h, weight):
        return (weight * each_position(head, h, 7, f)).sum()

    torch._dynamo.reset()
    value = torch.compile(
        loss, fullgraph=True, dynamic=False, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep)
    )(h, weight)
    return value, torch.autograd.grad(value, [h, *head.parameters()]), made


def test_compiled_chunks_are_one_loop(world, monkeypatch):
    """Gradients are those of one piece, by any weights; the graph is as large for four chunks as for two, and no chunk's logits
    are kept."""
    head, scale, h, f = world
    scale.requires_grad_(False)
    weight = torch.rand(11).double()
    plain = (weight * each_position(head, h, 7, f)).sum()
    expected = torch.autograd.grad(plain, [h, *head.parameters()])
    monkeypatch.setattr(chunks, "LARGE", 1)
    sizes = []
    for size in (3, 6):
        monkeypatch.setattr(chunks, "CHUNK", size)
        value, found, made = graphs(head, h, f, weight)
        torch.testing.assert_close(value, plain, rtol=1e-12, atol=1e-12)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        sizes.append([len(nodes) for nodes in made])
        held = [node.meta["val"].numel() for nodes in made for node in nodes if hasattr(node.meta.get("val"), "numel")]
        assert max(held) < 11 * 7
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("way", ["a loop", "learnt", "without a loop"])
def test_compiled_chunks_in_bfloat16(way, monkeypatch):
    """The backward pass makes logits as the forward pass did; what `f` learns beside the head has its gradient too. A PyTorch
    without a loop of its own unrolls it."""
    learnt = way == "learnt"
    if way == "without a loop":
        monkeypatch.delattr(torch._higher_order_ops, "scan")
    torch.manual_seed(0)
    monkeypatch.setattr(chunks, "LARGE", 1)
    monkeypatch.setattr(chunks, "CHUNK", 4)
    head, scale = nn.Linear(5, 7), nn.Parameter(torch.rand(7), requires_grad=learnt)
    h, target = torch.randn(11, 5, requires_grad=True), torch.randint(7, (11,))

    def f(logits, which):
        assert logits.dtype == torch.float32
        return ((scale * logits).logsumexp(-1) - logits.gather(-1, target[which, None])[:, 0]).exp()

    def loss(h):
        with torch.autocast("cpu", torch.bfloat16):
            return each_position(head, h, 7, f, [scale]).sum()

    torch._dynamo.reset()
    inputs = [h, *head.parameters(), *[scale] * learnt]
    found, plain = (function(h) for function in (torch.compile(loss, backend="aot_eager", fullgraph=True), loss))
    torch.testing.assert_close(found, plain)
    for one, other in zip(*(torch.autograd.grad(value, inputs) for value in (found, plain)), strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


@pytest.mark.compile
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_of_a_loop_is_its_own(dtype, monkeypatch):
    """As many states as positions, so that gradients of the head and of what it reads could share it; Inductor took that."""
    monkeypatch.setattr(chunks, "LARGE", 1)
    monkeypatch.setattr(chunks, "CHUNK", 16)
    torch.manual_seed(0)
    head, h = nn.Linear(32, 64), torch.randn(61, 32, requires_grad=True)

    def loss(h):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            return each_position(head, h, 64, lambda logits, _: logits.logsumexp(-1) - logits[:, 0]).sum()

    torch._dynamo.reset()
    value, plain = torch.compile(loss, fullgraph=True, dynamic=False)(h), loss(h)
    for one, other in zip(*(torch.autograd.grad(v, [h, *head.parameters()]) for v in (value, plain)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0.02 * float(other.abs().max()))
