"""Steps of training that compile whole: in one graph, once, without waiting for the device.

`pytest -m compile`; in every test only what is quick.
"""

import contextlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from zellige import methods
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.random import Counter, Middle
from zellige.nn.block import Net
from zellige.nn.cross_entropy import cross_entropy
from zellige.training.compiled import check_gradient, compile_step
from zellige.training.order import StepSeeds
from zellige.training.strategy import compiled_shards

V, L, B = 11, 16, 4
NET = Net(layers=2, hidden=32, heads=2, length=L, condition=16, conv=3)
CASES = {
    "mdlm": {},
    "mdlm time": {"time": True},
    "md4": {},
    "radd": {},
    "radd t-dse": {"loss": "t-dse"},
    "sedd": {},
    "sedd uniform": {"process": "uniform"},
    "d3pm": {"diffusion_steps": 10},
    "d3pm uniform": {"process": "uniform", "diffusion_steps": 10},
    "udlm": {},
    "genmd4": {},
    "bd3lm": {"block": 4},
    "bd3lm clipped": {"block": 4, "clip": (0.3, 0.8)},
    "flexmdm": {},
    "ar": {},
}


def build(case: str, net: Net = NET, vocabulary: int = V) -> methods.Method:
    torch.manual_seed(0)
    cls = methods.find(case.split()[0])
    method = methods.build(cls, vocabulary, net, cls.Config(**CASES[case]))
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return method


class NoWaiting(TorchDispatchMode):
    """Fails where the host would have to wait for a device: for a number, for a shape, for a copy to it or from it.

    A tensor that is made of numbers of the host is copied there: in a graph it is a constant, which is lifted.
    """

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if isinstance(func, HigherOrderOperator):  # a loop, whose body runs out of this mode's sight
            return func(*(watching(arg) if callable(arg) else arg for arg in args), **(kwargs or {}))
        name = func.overloadpacket.__name__
        waits = name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_consecutive")
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        waits |= any(i is not None and i.dtype == torch.bool for i in indices)
        if waits or name in ("lift_fresh", "lift_fresh_copy"):
            raise RuntimeError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))


def watching(body):
    def run(*args):
        with NoWaiting():
            return body(*args)

    return run


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


def watched(graph, inputs):
    """A compiler that runs a graph of operations as it is, none of which may wait."""
    return make_boxed_func(watching(graph))


def whole(function, made=None):
    """In one graph, forward and backward, whose operations are watched; the graphs are added to `made`."""

    def keep(graph, inputs):
        if made is not None:
            made.append(graph)
        return watched(graph, inputs)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    return torch.compile(function, fullgraph=True, backend=backend, dynamic=False)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES)
def test_a_step_of_training(case):
    method, steps = build(case), 50 if case == "mdlm" else 20

    def loss(tokens, step):
        return method.loss(Batch(tokens), Counter(2**61 + 3, step)).sum()

    def step(function, number):
        x = torch.randint(V, (B, L), generator=torch.Generator().manual_seed(number))
        method.zero_grad()
        value = function(x, torch.tensor(number))
        value.backward()
        return value.detach(), [p.grad for p in method.parameters() if p.grad is not None]

    compiled = whole(loss)
    for number in range(steps):
        value, gradients = step(loss, number)
        other, others = step(compiled, number)
        torch.testing.assert_close(other, value, rtol=1e-6, atol=1e-6)
        assert len(gradients) == len(others)
        for g, h in zip(gradients, others):
            torch.testing.assert_close(h, g, rtol=1e-4, atol=1e-5 * (1 + float(g.abs().max())))


STATES = 50_258  # with which the head is taken in chunks: two of them


@pytest.mark.compile
@pytest.mark.parametrize("case", ["mdlm", "sedd", "sedd uniform", "udlm"])
def test_a_step_of_many_states(case):
    """In bfloat16 as in training; the fused cross-entropy of mdlm, the loop over positions of the others."""
    method = build(case, replace(NET, layers=1), STATES - 1 if case in ("mdlm", "sedd") else STATES)
    x = torch.randint(STATES - 1, (16, L), generator=torch.Generator().manual_seed(1))

    def loss(tokens, step):
        with torch.autocast(tokens.device.type, torch.bfloat16):
            return method.loss(Batch(tokens), Counter(2**61 + 3, step)).sum()

    def step(function):
        method.zero_grad()
        value = function(x, torch.tensor(3))
        value.backward()
        return value.detach(), [p.grad for p in method.parameters() if p.grad is not None]

    made = []
    (value, gradients), (other, others) = step(loss), step(whole(loss, made))
    torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-3)
    for g, h in zip(gradients, others, strict=True):
        torch.testing.assert_close(h, g, rtol=0, atol=0.02 * float(g.abs().max()))
    names = {str(node.target) for graph in made for node in graph.graph.nodes}
    assert ("zellige.cross_entropy.default" in names) == (case == "mdlm")
    assert ("scan" in names) == (case != "mdlm")
    sizes = [n.meta["val"].numel() for graph in made for n in graph.graph.nodes if hasattr(n.meta.get("val"), "numel")]
    assert max(sizes) <= max(STATES * NET.hidden, x.numel() * STATES // 2)  # the head's weights; never all logits


@pytest.mark.compile
@pytest.mark.parametrize("case", ["mdlm", "sedd", "udlm"])
def test_a_step_of_many_states_away_from_the_cpu(case, monkeypatch):
    """On tensors without numbers: chunks are those of a GPU, and no tensor is left on the CPU.

    PyTorch's meta device, since one without CUDA cannot index fake CUDA tensors; it has no autocast to ask for.
    """
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    monkeypatch.setattr(torch, "autocast", lambda kind, **settings: contextlib.nullcontext())
    method = build(case, replace(NET, layers=1), STATES).to("meta")
    x, number = torch.zeros(128, L, dtype=torch.long, device="meta"), torch.zeros((), dtype=torch.long, device="meta")
    made = []
    whole(lambda tokens, step: method.loss(Batch(tokens), Counter(2**61 + 3, step)).sum(), made)(x, number).backward()
    assert {p.grad.device.type for p in method.parameters() if p.grad is not None} == {"meta"}
    nodes = [node for graph in made for node in graph.graph.nodes]
    assert {node.meta["val"].device.type for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)} == {
        "meta"
    }
    assert any(str(node.target) == {"mdlm": "zellige.cross_entropy.default"}.get(case, "scan") for node in nodes)


@pytest.mark.parametrize("kind", [Counter, Middle])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "polynomial"])
def test_no_mask_is_left_out_however_times_are_drawn(schedule, kind):
    """Of a concave schedule the middle has more masks: 0.68 of the positions instead of 0.64."""
    shape = (1024,)
    method: Any = methods.MD4(None, V, shape, methods.MD4.Config(schedule=schedule))
    u = (torch.arange(10**5, dtype=torch.float64) + 0.5) / 10**5
    t = Middle(0).place(u) if kind is Middle else u
    assert method.mean_masked >= float(1 - method.process.schedule.alpha(t).mean()) - 1e-5
    batch = Batch(torch.zeros(128, *shape, dtype=torch.long))
    for step in range(4):
        t = method.draw_times(batch, kind(5, step))
        x_t = method.corrupt(batch, t[:, None], torch.Generator().manual_seed(step))
        assert int((x_t == method.mask).sum()) <= method._max_positions(batch)


def test_what_waits_is_seen():
    method = build("mdlm")
    with pytest.raises(RuntimeError, match="waits for the device"), NoWaiting():
        method.loss(Batch(torch.zeros(B, L, dtype=torch.long)), Counter(1))


def test_a_constant_of_the_host_is_seen():
    with pytest.raises(RuntimeError, match="waits for the device"):
        whole(lambda t: t + t.new_tensor([0.0, 1.0]))(torch.zeros(2))


DROPS = replace(NET, dropout=0.3)


@pytest.mark.compile
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
@pytest.mark.parametrize("case", ["mdlm", "md4"])
def test_dropout_of_a_compiled_step_is_that_of_the_step(case, compiler):
    """The uniform for positions that overflow is the step's own, so it moves none of torch's global generator."""
    method = build(case, DROPS).train()
    seeds, x = (
        StepSeeds(3, 1, torch.device("cpu"), "middle"),
        torch.randint(V, (B, L), generator=torch.Generator().manual_seed(0)),
    )
    compiled = compile_step(method, backend=compiler)

    def losses(loss):
        return torch.stack([loss(Batch(x), seeds.seed_part(step, 0)) for step in range(3)]).detach()

    plain = losses(method.loss)
    torch.testing.assert_close(losses(compiled), plain, rtol=1e-5, atol=1e-5)
    method.eval()
    assert not torch.allclose(losses(method.loss), plain, rtol=1e-3)  # it drops


@pytest.mark.parametrize("weighted", [True, False])
def test_the_fused_cross_entropy_is_a_node_of_the_graph(weighted):
    """Of many states, in chunks, its gradients made in the forward pass; the plain one beside it."""
    K, N = 5000, 1000
    g = torch.Generator().manual_seed(0)
    network = torch.nn.Module()
    network.head = torch.nn.Linear(8, K)
    h, target = torch.randn(N, 8, generator=g, requires_grad=True), torch.randint(K - 1, (N,), generator=g)
    weight = torch.rand(N, generator=g) * (torch.rand(N, generator=g) < 0.8) if weighted else None

    def loss(h, target):
        return 3 * cross_entropy(network, h, target, weight=weight, exclude=K - 1).sum()

    def gradients(function):
        value = function(h, target)
        return value, *torch.autograd.grad(value, (h, *network.head.parameters()))

    for made, plain in zip(gradients(whole(loss)), gradients(loss)):
        torch.testing.assert_close(made, plain, rtol=1e-5, atol=1e-5)


def test_rows_weighed_after_it_are_refused():
    network = torch.nn.Module()
    network.head = torch.nn.Linear(8, 5000)
    h, weight = torch.randn(1000, 8, requires_grad=True), torch.rand(1000)

    def loss(h):
        return (weight * cross_entropy(network, h, torch.zeros(1000, dtype=torch.long))).sum()

    with pytest.raises(RuntimeError, match="weighed once"):
        whole(loss)(h).backward()


def test_a_compiled_step_draws_its_size_of_block_before_its_graph():
    """One graph for each size, which computes what the plain step does."""
    torch.manual_seed(0)
    method: Any = methods.build(methods.BD3LM, V, NET, methods.BD3LM.Config(block=4, blocks=(2, 4)))
    seeds, x = StepSeeds(3, 1, torch.device("cpu")), torch.randint(V, (B, L))
    graphs, sizes = [], set()

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with torch._dynamo.config.patch(error_on_recompile=False):
        compiled = compile_step(method, backend=keep)
        for step in range(8):
            sizes.add(method.for_step(seeds.seed_part(step, 0)).block)
            value, plain = (loss(Batch(x), seeds.seed_part(step, 0)) for loss in (compiled, method.loss))
            torch.testing.assert_close(value, plain, rtol=1e-5, atol=1e-5)
    assert sizes == {2, 4}
    assert len(graphs) == 2


def test_a_step_that_does_not_compile_is_one_line():
    def refuse(graph, inputs):
        raise NotImplementedError("no such kernel\nand a page more")

    method: Any = methods.build(methods.MDLM, 7, Net(layers=1, hidden=16, heads=2, length=8))
    compiled = compile_step(method, backend=refuse)
    with pytest.raises(
        InputError, match=r"cannot compile the step of this model on this device \(.*no such kernel\); leave out"
    ) as e:
        compiled(Batch(torch.zeros(2, 8, dtype=torch.long)), Counter(0, torch.tensor(0), torch.tensor(0), 1))
    assert "\n" not in str(e.value)


def test_a_sharded_step_compiles_the_network_in_each_size_of_block(monkeypatch):
    torch.manual_seed(0)
    method: Any = methods.build(methods.BD3LM, V, NET, methods.BD3LM.Config(block=4, blocks=(2, 4)))
    x, compiler, made = torch.randint(V, (B, L)), torch.compile, []

    def compiled(function, dynamic):
        made.append(function)
        return compiler(function, dynamic=dynamic, backend="eager")

    def loss(block):
        return method.of_block(block).loss(Batch(x), torch.Generator().manual_seed(0))

    monkeypatch.setattr(torch, "compile", compiled)
    with torch._dynamo.config.patch(error_on_recompile=False):
        for block in (2, 4):
            plain = loss(block)
            with compiled_shards(method):
                torch.testing.assert_close(loss(block), plain, rtol=1e-5, atol=1e-5)
    assert [function.__self__.block for function in made] == [2, 4]


@pytest.mark.compile
def test_a_compiled_unet_in_bfloat16_has_its_gradients():
    """Each parameter's, against those of the plain step, but for rounding: below the upsampling they were 0 once."""
    net = Net(kind="unet", channels=32, multipliers=(1, 2), blocks=1, attention=(), length=256, grid=(16, 16))
    x = (torch.rand(4, 256, generator=torch.Generator().manual_seed(1)) < 0.2).long()
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        method = methods.build(methods.MDLM, 2, net)
        method.compute_in("bfloat16")
        with torch.no_grad():
            for p in method.parameters():
                p.add_(0.02 * torch.randn(p.shape))
        loss = compile_step(method) if compiles else method.loss
        loss(Batch(x), StepSeeds(0, 1, torch.device("cpu")).seed_part(0, 0)).sum().backward()
        found.append({name: p.grad for name, p in method.named_parameters() if p.grad is not None})
    plain, compiled = found
    apart = {name: float((compiled[name] - g).norm() / g.norm()) for name, g in plain.items()}
    assert max(apart.values()) < 0.1, apart


@pytest.mark.parametrize("wrong", ["lost", "false", "nan"])
def test_a_wrong_gradient_of_a_compiled_step_is_refused(wrong):
    """One weight's: 0, four times what it is, or no number; the loss is right. The step's own gradient is accepted."""
    method = build("mdlm", replace(NET, dropout=0.3)).train()
    x = torch.randint(V, (B, L), generator=torch.Generator().manual_seed(0))
    seeds = StepSeeds(3, 1, torch.device("cpu"))
    name, weight = max(method.named_parameters(), key=lambda p: p[1].numel())

    def compiled(batch, randomness):
        hooks.append(weight.register_hook(lambda g: factor * g))
        return method.loss(batch, randomness)

    def check():
        check_gradient(method.loss, compiled, Batch(x), lambda: seeds.seed_part(0, 0), method.named_parameters())

    factor, hooks = 1.1, []  # within what rounding may do
    check()
    hooks.pop().remove()
    factor = {"lost": 0.0, "false": 4.0, "nan": float("nan")}[wrong]
    with pytest.raises(InputError, match=f"a wrong gradient of 1 weight: that of {name} is .* leave out `compile`"):
        check()
    assert all(p.grad is None for p in method.parameters())
