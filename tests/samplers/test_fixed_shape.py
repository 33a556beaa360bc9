"""Sampling steps of fixed shape, as on a device whose values are waited for: the same texts and evaluations, also in
one graph."""

import pytest
import torch

from zellige import methods, samplers
from zellige.base import waiting
from zellige.core.random import Streams
from zellige.nn import Net
from zellige.nn.precision import float32_products
from zellige.samplers import captured, run

V, B, L = 11, 5, 24
NET = Net(layers=2, hidden=32, heads=2, length=L, conv=3)
CASES = {
    "ancestral": ("mdlm", {}, "ancestral", {}, 10),
    "ancestral of a network with time": ("mdlm", {"time": True}, "ancestral", {}, 10),
    "ancestral, 24 bits": ("mdlm", {}, "ancestral", {"gumbel_bits": 24}, 10),
    "ancestral, cooler": ("md4", {}, "ancestral", {"temperature": 0.7, "top_p": 0.9}, 10),
    "ancestral, learnt by token": ("genmd4", {}, "ancestral", {}, 10),
    "ancestral of a score": ("sedd", {}, "ancestral", {}, 10),
    "ancestral, uniform noise": ("udlm", {}, "ancestral", {}, 10),
    "ancestral, uniform scores": ("sedd", {"process": "uniform"}, "ancestral", {}, 10),
    "ancestral of a chain": ("d3pm", {"diffusion_steps": 10}, "ancestral", {}, 10),
    "ancestral of a uniform chain": ("d3pm", {"diffusion_steps": 10, "process": "uniform"}, "ancestral", {}, 10),
    "ancestral of radd": ("radd", {}, "ancestral", {}, 10),
    "first hitting": ("mdlm", {}, "first_hitting", {}, None),
    "first hitting of a network with time": ("mdlm", {"time": True}, "first_hitting", {}, None),
    "any order": ("radd", {}, "any_order", {"per_step": 3}, None),
    "one order": ("mdlm", {}, "fixed_order", {"order": "backward", "per_step": 2}, None),
    "confidence": ("mdlm", {}, "confidence", {}, 10),
    "confidence, margin": ("mdlm", {}, "confidence", {"confidence": "margin", "temperature": 0.5}, 10),
    "confidence, threshold": ("mdlm", {}, "confidence", {"threshold": 0.2}, None),
    "confidence, factor": ("mdlm", {}, "confidence", {"factor": 3.0}, None),
    "confidence, entropy bound": ("mdlm", {}, "confidence", {"entropy_bound": 4.0}, None),
    "blocks": ("bd3lm", {"block": 4}, "blockwise", {}, 3),
    "blocks, up to a token": ("bd3lm", {"block": 4}, "blockwise", {"end": 3}, 3),
    "blocks of a network with time": ("bd3lm", {"block": 8, "time": True}, "blockwise", {"end": 3, "window": 16}, 8),
    "blocks, first hitting": ("bd3lm", {"block": 4}, "blockwise", {"block_sampler": "first_hitting", "end": 3}, None),
    "blocks, confidence": ("bd3lm", {"block": 4}, "blockwise", {"block_sampler": "confidence"}, 2),
    "blocks without a cache": ("mdlm", {}, "blockwise", {"stride": 5, "end": 3}, 4),
    "left to right": ("ar", {}, "left_to_right", {}, None),
    "left to right, up to a token": ("ar", {}, "left_to_right", {"end": 3, "temperature": 1.5}, None),
    "left to right, a window": ("ar", {"begin": 2}, "left_to_right", {"end": 3, "window": 7}, None),
}
GIVEN = torch.full((B, L), -1)
GIVEN[1, :3], GIVEN[2, 5:9], GIVEN[3] = 4, 2, 7  # the last one has nothing left to draw
BEGUN = torch.full((B, L), -1)
BEGUN[0, :2], BEGUN[1, :13], BEGUN[2, :4], BEGUN[3], BEGUN[4, :9] = 9, 4, 2, 7, 5


def build(name, config):
    torch.manual_seed(0)
    cls = methods.find(name)
    method = methods.build(cls, V, NET, cls.Config(**config)).double().eval()
    with torch.no_grad():
        for p in method.network.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return method


@pytest.mark.parametrize("given", [False, True], ids=["free", "given"])
@pytest.mark.parametrize("case", CASES)
def test_the_same_texts(case, given, monkeypatch):
    name, config, sampler, options, steps = CASES[case]
    method, sampler = build(name, config), samplers.find(sampler)(**options)
    assert sampler.has_fixed_shape(method, (B, L))
    fixed = (BEGUN if sampler.grows else GIVEN) if given else None

    def states():
        return list(run(sampler, method, (B, L), steps, fixed=fixed, generator=Streams(range(B))))

    there = states()
    monkeypatch.setattr(waiting, "READABLE", ())
    for state, other in zip(there, states(), strict=True):
        assert torch.equal(other.x, state.x)
        if sampler.grows and given:  # a text that has ended may keep others from reading their beginning at once
            assert (other.calls >= state.calls).all()
        else:
            assert torch.equal(other.calls, state.calls)
    assert len(there[-1].x.unique()) > 2


QUICK = "one order", "left to right, up to a token"


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that are made. As a CUDA graph does, each writes its results to one place."""
    made = []

    def record(graph, inputs):
        made.append(graph)
        places = []

        def start(*inputs):
            results = graph(*inputs)
            places.extend(result.clone() for result in results[len(places) :])
            return [place.copy_(result) for place, result in zip(places, results, strict=True)]

        return start

    monkeypatch.setattr(waiting, "READABLE", ())
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    monkeypatch.setattr(captured, "RECORDED", {"fullgraph": True, "backend": record})  # which lets no step read a value
    for start_afresh in (captured.graph_of.cache_clear, torch._dynamo.reset):
        start_afresh()
    yield made
    for start_afresh in (captured.graph_of.cache_clear, torch._dynamo.reset):
        start_afresh()


@pytest.mark.parametrize("given", [False, True], ids=["free", "given"])
@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in QUICK else pytest.mark.compile) for c in CASES])
def test_one_graph_for_all_steps(case, given, graphs):
    """In blocks one for the first of them, which has no context, and one for the others."""
    name, config, sampler, options, steps = CASES[case]
    method, sampler = build(name, config), samplers.find(sampler)(**options)
    method._compiled = {entry: getattr(method.network, entry) for entry in ("extend", "advance")}  # as they are

    fixed = (BEGUN if sampler.grows else GIVEN) if given else None

    def states(compiles):
        method.compiles, streams = compiles, Streams(range(B))
        return [*run(sampler, method, (B, L), steps, fixed=fixed, generator=streams)], streams.calls

    (compiled, counted), (plain, calls) = states(True), states(False)
    for state, other in zip(plain, compiled, strict=True):
        assert torch.equal(other.x, state.x)
        assert torch.equal(other.calls, state.calls)
    assert torch.equal(counted, calls)
    assert len(graphs) == (2 if name == "bd3lm" else 1)


def test_a_graph_has_the_precision_of_its_method(monkeypatch):
    """A graph has no setting of its own: products in TF32 are its caller's."""
    method, seen = build("mdlm", {}), []

    def compiled(step, **how):
        def start(*inputs):
            seen.append(torch.get_float32_matmul_precision())
            return step(*inputs)

        return start

    monkeypatch.setattr(waiting, "READABLE", ())
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)  # imports the compiler, for seconds
    monkeypatch.setattr(captured, "compiled", compiled)
    monkeypatch.setattr(method, "_in_precision", lambda device: float32_products(tf32=True))
    method.compiles = True
    list(run(samplers.find("fixed_order")(per_step=12), method, (B, L), None, generator=Streams(range(B))))
    assert seen == 2 * ["high"]


@torch.no_grad()
def test_a_context_of_one_size():
    """Padded in front: what is read is the same, and no more than a text needs."""
    method = build("ar", {})
    _, cache = method.advance(None, torch.tensor([[3, 1, 4]]))
    padded = cache.padded(7)
    assert len(padded) == 7
    assert padded.valid.tolist() == [4 * [False] + 3 * [True]]
    assert padded.padded(7) is padded
    assert not padded.keys[0].requires_grad
    (h, longer), (plain, _) = (method.advance(of, torch.tensor([[5]])) for of in (padded, cache))
    torch.testing.assert_close(h, plain, rtol=1e-12, atol=1e-12)
    assert len(longer) == 8


def test_many_states_are_computed_where_they_are_drawn_alone():
    """A large head at all positions would take a GPU longer than it is waited for."""
    method, sampler = build("mdlm", {}), samplers.find("ancestral")()
    rows = (1 << 24) // (L * (V + 1))
    assert sampler.has_fixed_shape(method, (rows, L))
    assert not sampler.has_fixed_shape(method, (rows + 1, L))
    assert sampler.has_fixed_shape(build("udlm", {}), (rows + 1, L))  # which draws at all of them


def test_guided_steps_read_values(monkeypatch):
    """A wrapper other than truncation is not known to read none."""
    from zellige.samplers.guide import Wrapper
    from zellige.samplers.sampler import _unread

    monkeypatch.setattr(waiting, "READABLE", ())
    method, sampler = build("mdlm", {}), samplers.find("ancestral")(temperature=0.5)
    x, streams = torch.full((B, L), V), Streams(range(B))
    assert _unread(sampler, sampler.truncated(method), x, streams)
    assert not _unread(sampler, Wrapper(method), x, streams)
    assert not _unread(sampler, method, x, torch.Generator())
