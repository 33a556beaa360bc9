"""A network in bfloat16 is what torch.autocast computes with weights in float32, bit for bit; in TF32 PyTorch's settings say so;
compiled it gives what it gave, and is compiled a few times only."""

import copy
import pickle
import threading
from typing import Any

import pytest
import torch

from testing.small import LENGTH, V, make
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.counter_random import Streams
from zellige.methods import METHODS
from zellige.nn.precision import float32_products, products
from zellige.samplers import find, run

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
    """Two hundredths of the mean loss of a row, whose sign may differ from row to row: 8 bits of mantissa through two
    layers; and never the same. The rates of flexmdm are exponentials."""
    full = make(name).float()
    low = copy.deepcopy(full).compute_in("bfloat16")
    with torch.no_grad():
        one, other = (m.loss(Batch(X), torch.Generator().manual_seed(0)) for m in (full, low))
    error = float((other - one).abs().mean() / one.abs().mean())
    assert 0 < error < (0.05 if name == "flexmdm" else 0.02)


def test_what_it_is_called():
    with pytest.raises(InputError, match="unknown precision 'float64'"):
        make("mdlm").compute_in("float64")


def settings() -> tuple:
    """Of float32: matrix products and convolutions, as PyTorch and its compiler read them."""
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("before", [("highest", True), ("high", True), ("medium", False)])
def test_float32_is_float32_and_afterwards_what_it_was(before):
    plain = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]
    try:
        found = settings()
        for precision, within in (("float32", ("highest", False, False)), ("tf32", ("high", True, True))):
            with products(torch.device("cuda"), precision):
                assert settings() == within
                with products(torch.device("cuda"), "float32"):
                    assert settings() == ("highest", False, False)
                assert settings() == within
            assert settings() == found
            with products(torch.device("cpu"), precision):
                assert settings() == found
        with products(torch.device("cuda"), None):
            assert settings() == found
    finally:
        torch.set_float32_matmul_precision(plain[0])
        torch.backends.cudnn.allow_tf32 = plain[1]


def test_convolutions_too_where_pytorch_was_told_tf32_for_all():
    backends: Any = torch.backends
    before = torch.backends.cudnn.allow_tf32
    backends.fp32_precision = "tf32"
    try:
        with float32_products(tf32=False):
            assert (backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision) == ("ieee", "ieee")
        assert backends.cudnn.conv.fp32_precision == "tf32"
    finally:
        backends.fp32_precision = "none"
        backends.cudnn.allow_tf32 = before


def test_who_leaves_first_takes_no_setting_from_another_thread():
    before, inside, leave = settings(), threading.Event(), threading.Event()

    def other():
        with float32_products(tf32=False):
            inside.set()
            leave.wait(60)

    with float32_products(tf32=False):
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(60)
    assert settings() == ("highest", False, False)
    leave.set()
    thread.join()
    assert settings() == before


def test_tf32_of_a_cpu_is_float32():
    full, other = make("mdlm").float(), make("mdlm").float().compute_in("tf32")
    assert other.precision == "float32"
    assert torch.equal(full.hidden(X, None), other.hidden(X, None))


def test_compiled_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(InputError, match="needs a C\\+\\+ compiler, and there is no no-such-compiler"):
        make("mdlm").compute_in("float32", compile=True)


@pytest.mark.compile
@pytest.mark.parametrize(("name", "most"), [("mdlm", 5), ("bd3lm", 12), ("ar", 12)])
def test_compiled_a_few_times_for_all_sizes(name, most, monkeypatch):
    """Rows, positions that are read, and remembered places vary: texts are the same, and no size is compiled for alone."""
    graphs, compiler = [], torch.compile
    torch._dynamo.reset()
    keep = lambda graph, _: graphs.append(graph) or graph  # noqa: E731
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compiler(f, backend=keep, dynamic=dynamic))
    plain = make(name).eval()
    compiled = copy.deepcopy(plain).compute_in("float32", compile=True)
    for rows, steps in ((4, 4), (6, 8), (3, 16), (5, 8)):
        found = []
        for method in (plain, compiled):
            with torch.inference_mode():
                *_, state = run(find(method.sampler)(), method, (rows, LENGTH), steps, generator=Streams(range(rows)))
            found.append(state.x)
        assert torch.equal(*found)
    assert 1 <= len(graphs) <= most
    assert not torch._dynamo.utils.counters["recompile_limit"]
    assert not pickle.loads(pickle.dumps(compiled))._compiled  # a worker process compiles its own
    torch._dynamo.reset()
