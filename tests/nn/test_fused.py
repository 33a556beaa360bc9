"""Attention as a GPU computes it, forced on the CPU: the same numbers, and one compiled kernel for all sizes."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.registry import lookup_backend

from zellige import methods
from zellige.core.batch import Batch
from zellige.core.counter_random import Streams
from zellige.core.random import Counter
from zellige.nn import attention
from zellige.nn.block import Net
from zellige.samplers import find, run

V, L = 5, 400
CONFIGS = {"ar": {}, "bd3lm": {"block": 4}}


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that are compiled while attention is fused on the CPU too; they run without a C++ compiler."""
    made, compiler = [], torch.compile

    def counting(graph, inputs):
        made.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    monkeypatch.setattr(torch, "compile", lambda f, **options: compiler(f, **{"backend": counting} | options))
    # FlexAttention refuses gradients on a CPU, for which it has no kernel; its reference has them
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    forget()
    yield made
    forget()


def forget():
    torch._dynamo.reset()
    attention.compiled.cache_clear()
    attention.kept_tiles.cache_clear()


def build(name: str, length: int = L, **more) -> methods.Method:
    torch.manual_seed(0)
    cls = methods.find(name)
    method = methods.build(cls, V, Net(layers=1, hidden=32, heads=2, length=length), cls.Config(**CONFIGS[name] | more))
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return method.double().eval()


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(length))


def train(method):
    loss = method.loss(Batch(tokens(4, *method.shape)), Counter(1, 2)).sum()
    return loss.detach(), *torch.autograd.grad(loss, list(method.parameters()), allow_unused=True)


def validate(method, rows=3):
    with torch.no_grad():
        return tuple(method.terms(Batch(tokens(rows, L)), Counter(3, 4)).values())


def evaluate(method, rows, length, clean=True):
    x = tokens(rows, length)
    with torch.inference_mode():
        more = {"clean": x.flip(1)} if clean and method.name == "bd3lm" else {}
        return (method.network.features(x, **more),)


def prompt(method, length):
    x = tokens(2, length)
    with torch.inference_mode():
        return method.extend(None, x[:, : length // 4 * 4]).keys


def sample(method):
    with torch.inference_mode():
        *_, state = run(find(method.sampler)(), method, (2, 12), 8, generator=Streams(range(2)))
    return (state.x,)


@pytest.mark.parametrize(("name", "compilations"), [("ar", 0), ("bd3lm", 3)])
def test_one_kernel_serves_all_sizes(name, compilations, graphs, monkeypatch):
    """Drawing and judging, training, validation: one compilation each, whatever the rows, lengths and blocks; none for ar."""
    method, other = build(name), build(name, **({"block": 8} if name == "bd3lm" else {}))
    work = [partial(evaluate, method, 2, L), *[partial(train, method), partial(validate, method)] * 2]
    work += [partial(evaluate, method, *sizes) for sizes in ((4, 20), (1, 100), (2, 130), (3, 300), (1, 399))]
    work += [partial(evaluate, other, *sizes, clean=False) for sizes in ((5, 30), (2, 200), (1, 256))]
    work += [partial(prompt, method, length) for length in range(8, 400, 56)]
    work += [partial(sample, method), partial(validate, other, rows=1)]
    for step in work:
        monkeypatch.setattr(attention, "FUSED", ("cpu",))
        found = step()
        monkeypatch.setattr(attention, "FUSED", ())
        for ours, plain in zip(found, step(), strict=True):
            torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-8)
    assert len(graphs) == compilations
    assert not torch._dynamo.utils.counters["recompile_limit"]


@pytest.mark.compile
@pytest.mark.parametrize("name", CONFIGS)
def test_a_compiled_step_takes_it_in(name, graphs, monkeypatch):
    """The whole step is one graph, in which attention is fused."""
    method = build(name, 20)
    plain = train(method)
    monkeypatch.setattr(attention, "FUSED", ("cpu",))
    whole = copy.copy(method)
    whole.loss = torch.compile(method.loss, fullgraph=True, dynamic=False)
    for ours, other in zip(train(whole), plain, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-8, atol=1e-8)
    assert len(graphs) == 1
    kernel = torch.ops.higher_order.flex_attention if name == "bd3lm" else F.scaled_dot_product_attention
    assert kernel in {node.target for node in graphs[0].graph.nodes}
