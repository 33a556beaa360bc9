"""A GPU against the CPU (`make gpu`): losses, gradients, draws, trainings.

Each test also runs with the CPU in the GPU's place, so that its own code is known to work before somebody has a GPU.
"""

import copy
import csv
from collections import Counter as Count
from dataclasses import replace

import pytest
import torch

import zellige
from zellige import Batch, Data, Net, Train, evaluate
from zellige.base import waiting
from zellige.core.random import Counter, Streams
from zellige.methods import METHODS, build
from zellige.models.checkpoint.layout import newest
from zellige.models.checkpoint.read import load_tensors
from zellige.nn.precision import float32_products
from zellige.samplers import find, run

V, L = 7, 32
NET = Net(layers=2, hidden=64, heads=2, length=L, conv=3)
CASES = {
    "d3pm": {}, "d3pm uniform": {"process": "uniform"}, "csm": {}, "tauldr": {}, "sedd": {},
    "sedd uniform": {"process": "uniform"},
    "radd": {}, "mdlm": {}, "mdlm timed": {"time": True}, "md4": {}, "genmd4": {}, "udlm": {}, "bd3lm": {"block": 4}, "ar": {},
}  # fmt: skip
device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@pytest.fixture(autouse=True)
def exact_products():
    with float32_products(tf32=False):
        yield


def pair(case: str, device: str, net: Net = NET):
    """The same method, with a head that is not zero, on the CPU and on the device."""
    torch.manual_seed(0)
    name = case.split()[0]
    method = build(name, V, net, METHODS[name].Config(**CASES[case]), ordered=True)
    with torch.no_grad():
        for p in method.network.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return method, copy.deepcopy(method).to(device)


def rows(n: int = 4, length: int = L) -> torch.Tensor:
    return torch.randint(V, (n, length), generator=torch.Generator().manual_seed(1))


def draws(device: str, step: int = 3) -> Counter:
    number, part = (torch.full((), number, device=device) for number in (step, 0))
    return Counter(11, number, part, 1)


def step(method, device: str, tokens: torch.Tensor, function=None) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss of each row and the gradients of their mean, on the CPU."""
    method.zero_grad()
    loss = (function or method.loss)(Batch(tokens.to(device)), draws(device))
    loss.mean().backward()
    return loss.detach().cpu(), [p.grad.cpu() for p in method.parameters() if p.grad is not None]


def near(ours: list[torch.Tensor], theirs: list[torch.Tensor], share: float) -> None:
    """Gradients, each within a share of its largest number."""
    assert len(ours) == len(theirs)
    for g, h in zip(ours, theirs):
        torch.testing.assert_close(g, h, rtol=0, atol=share * float(h.abs().max()) + 1e-7)


@device
@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients(case, device):
    here, there = pair(case, device)
    (loss, gradients), (other, others) = step(here, "cpu", rows()), step(there, device, rows())
    torch.testing.assert_close(other, loss, rtol=1e-5, atol=1e-5)
    near(others, gradients, 1e-3)
    if here.bounded:
        terms = here.terms(Batch(rows()), draws("cpu"))
        for name, term in there.terms(Batch(rows().to(device)), draws(device)).items():
            torch.testing.assert_close(term.detach().cpu(), terms[name].detach(), rtol=1e-5, atol=1e-5)


@device
@pytest.mark.parametrize("length", [32, 100, 256])
def test_attention_of_blocks(length, device):
    """FlexAttention of two streams on a GPU, parts of queries on the CPU; and of packed documents, plain."""
    here, there = pair("bd3lm", device, replace(NET, length=length))
    tokens = rows(2, length)
    (loss, gradients), (other, others) = step(here, "cpu", tokens), step(there, device, tokens)
    torch.testing.assert_close(other, loss, rtol=1e-5, atol=1e-5)
    near(others, gradients, 1e-3)
    segments = (torch.arange(length) >= length // 3).long().expand(2, -1).contiguous()
    packed = [
        m.loss(Batch(rows(2, length), segments=segments).to(at), draws(at))
        for m, at in ((here, "cpu"), (there, device))
    ]
    torch.testing.assert_close(packed[1].cpu(), packed[0], rtol=1e-5, atol=1e-5)


@device
def test_in_bfloat16(device):
    here, there = pair("mdlm", device)
    loss, gradients = step(here, "cpu", rows())
    with torch.autocast(device, torch.bfloat16):
        low, others = step(there, device, rows())
    torch.testing.assert_close(low, loss, rtol=0.02, atol=0.02)
    flat, other = (torch.cat([g.flatten() for g in gradients]) for gradients in (gradients, others))
    assert torch.cosine_similarity(flat, other, dim=0) > 0.99


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.compile), pytest.param("cuda", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("case", ["mdlm", "sedd", "bd3lm", "ar"])
def test_compiled_and_without_waiting(case, device):
    """The compiled step is the step; on a GPU nothing in it waits for the device. A GPU compiles long sums in another way."""
    n, length = (64, 256) if device == "cuda" else (4, L)
    here, there = pair(case, device, replace(NET, length=length))
    compiled = torch.compile(there.loss, dynamic=False)
    (loss, gradients), (other, others) = (
        step(here, "cpu", rows(n, length)),
        step(there, device, rows(n, length), compiled),
    )
    torch.testing.assert_close(other, loss, rtol=1e-4, atol=1e-4)
    near(others, gradients, 2e-3)
    if device == "cuda":
        batch, randomness = Batch(rows(n, length).to(device)), draws(device, 5)
        torch.cuda.set_sync_debug_mode("error")
        try:
            compiled(batch, randomness).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.compile), pytest.param("cuda", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize(
    ("case", "sampler"), [("mdlm", "first_hitting"), ("bd3lm", "blockwise"), ("ar", "left_to_right")]
)
def test_a_step_of_sampling_is_one_graph(case, sampler, device, monkeypatch):
    """`compile` makes the whole step one graph, on the CPU only where it is made to compute as a GPU does: the same
    texts."""
    here, there = (method.double().eval() for method in pair(case, device))
    there.compute_in("float32", compile=True)

    def texts(method, at):
        return [state.x.cpu() for state in run(find(sampler)(), method, (4, L), 3, generator=Streams(range(4), at))]

    plain = texts(here, "cpu")
    monkeypatch.setattr(waiting, "READABLE", ())
    assert all(map(torch.equal, texts(there, device), plain))


@device
@pytest.mark.parametrize("case", ["mdlm", "md4", "sedd", "d3pm uniform", "udlm", "genmd4"])
def test_draws_are_those_of_the_cpu(case, device):
    """Counted random numbers are the same on every device, and so are texts, in float64."""
    drawn = []
    for method, at in zip(pair(case, device), ("cpu", device)):
        method = method.double().eval()
        with torch.inference_mode():
            *_, state = run(find(method.sampler)(), method, (8, L), 10, generator=draws(at))
        drawn.append(state.x.cpu())
    assert torch.equal(*drawn)


@device
def test_draws_of_the_devices_own_generator_have_the_distribution(device):
    """Two tokens drawn one at a time: as often as p(x_1) p(x_2 | x_1) of both orders says, within five standard errors."""
    _, method = pair("mdlm", device, replace(NET, length=2, conv=0))
    method, n, mask = method.double().eval(), 5_000, V
    with torch.inference_mode():
        *_, state = run(find("any_order")(), method, (n, 2), None, generator=torch.Generator(device).manual_seed(0))
        distribution = torch.zeros(V, V, dtype=torch.float64)
        logits = lambda x: method.logits(method.hidden(x.to(device), None))[..., :V].cpu().softmax(-1)  # noqa: E731
        first = logits(torch.tensor([[mask, mask]]))[0]
        for k in range(V):
            distribution[k] += first[0, k] * logits(torch.tensor([[k, mask]]))[0, 1] / 2
            distribution[:, k] += first[1, k] * logits(torch.tensor([[mask, k]]))[0, 0] / 2
    count = Count(map(tuple, state.x.tolist()))
    for (i, j), p in ((ij, float(distribution[ij])) for ij in ((i, j) for i in range(V) for j in range(V))):
        assert abs(count[i, j] / n - p) < 5 * (p * (1 - p) / n) ** 0.5


def data() -> Data:
    return Data.of(rows(200), vocabulary=V)


def trained(folder, device: str, **more):
    usual = {
        "steps": 6, "batch": 8, "lr": 1e-2, "warmup": 0, "validate_every": 3, "validate_rows": 8, "save_every": 3,
        "log_every": 1, "samples": 1, "sample_steps": 4, "tensorboard": False, "precision": "float32",
        "decay": "constant", "device": device,
    }  # fmt: skip
    how = Train(**(usual | more))
    return zellige.train("mdlm", data=data(), net=NET, train=how, run=folder, resume=folder.exists())


def table(folder) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@device
def test_a_training(device, tmp_path):
    """The losses of the CPU; resumed, the same weights; evaluated on either device, the same bound; and its meters."""
    one = {"devices": 1} if device == "cuda" else {}
    each = {"log_every": 3}  # a GPU is not waited for after each step
    ours, theirs = trained(tmp_path / "a", "cpu", **each), trained(tmp_path / "b", device, **one, **each)
    tables = [table(run.folder) for run in (ours, theirs)]
    assert [[row["step"] for row in one] for one in tables] == [["3", "6"]] * 2
    for a, b in zip(*tables):
        assert float(b["loss"]) == pytest.approx(float(a["loss"]), rel=1e-4)
        assert bool(b["peak_memory"]) == (device == "cuda")
        assert float(b["flops_per_second"] or 1) > 0
    assert theirs.validation is not None
    assert ours.validation is not None
    assert theirs.validation.value == pytest.approx(ours.validation.value, rel=1e-4)
    assert [trained(tmp_path / "c", device, **one, steps=steps).steps for steps in (3, 6)] == [3, 6]
    x, y = (load_tensors(newest(tmp_path / name / "checkpoints") / "model.safetensors")[0] for name in "bc")  # pyright: ignore
    for name in x:
        torch.testing.assert_close(x[name], y[name], rtol=1e-5, atol=1e-6)
    models = [zellige.load(theirs.folder, device=at) for at in ("cpu", device)]
    bounds = [evaluate(model, data=data(), draws=1).value for model in models]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-5)


@device
@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_a_training_in_fewer_bits(precision, device, tmp_path):
    before = torch.get_float32_matmul_precision()
    one = {"devices": 1} if device == "cuda" else {}
    losses = [
        [float(row["loss"]) for row in table(trained(tmp_path / bits, device, **one, precision=bits).folder)]
        for bits in ("float32", precision)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert torch.get_float32_matmul_precision() == before


@device
def test_convolutions_of_a_float32_model_are_in_float32(device, monkeypatch):
    """As near the CPU's as float32 is, where PyTorch's own setting, TF32, is thousand times further; and TF32 where asked
    for."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    net = Net(kind="unet", channels=32, multipliers=(1, 2), attention=(0,), length=64, grid=(8, 8))
    errors = {}
    for bits in ("float32", "tf32"):
        here, there = pair("mdlm", device, net)
        x = rows(4, 64)
        with torch.no_grad():
            h = here.hidden(x, None)
            errors[bits] = float(
                (there.compute_in(bits).hidden(x.to(device), None).cpu() - h).abs().max() / h.abs().max()
            )
    assert errors["float32"] < 1e-5
    assert (errors["tf32"] > 1e-5) == (device == "cuda")


@pytest.mark.gpu
def test_any_number_of_gpus_takes_the_same_steps(tmp_path):
    gpus = torch.cuda.device_count()
    if gpus < 2:
        pytest.skip(f"{gpus} GPU here, and this compares one with several")
    one = table(trained(tmp_path / "one", "cuda", devices=1, batch=24).folder)
    for n in {2, min(gpus, 8) if 24 % min(gpus, 8) == 0 else 2}:
        for strategy in ("ddp", "fsdp"):
            several = table(
                trained(tmp_path / f"{strategy}-{n}", "cuda", devices=n, batch=24, strategy=strategy).folder
            )
            assert [float(r["loss"]) for r in several] == pytest.approx([float(r["loss"]) for r in one], rel=1e-4)
