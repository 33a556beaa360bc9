"""What a training needs of a GPU, as far as a CPU can tell: pinned batches, TF32 by choice, blocks that are computed again."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from testing import small
from zellige import Batch, Net, Train
from zellige.cli.meanings import synonym
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.plugins.studies.plan.estimate import Live
from zellige.training import device

NET = Net(layers=4, hidden=32, heads=2, length=32)


def config(net: Net = NET, **train) -> Config:
    return Config("mdlm", METHODS["mdlm"].Config(), net=net, train=Train(steps=2, batch=4, **train))


def loop(net: Net = NET, kind: str = "cpu", **train) -> Any:
    torch.manual_seed(0)
    return small.loop(build("mdlm", 7, net), config(net, **train), 7, kind)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_batches_are_pinned_for_a_gpu_alone(kind):
    assert loop(kind=kind).train_dataloader().pin_memory == (kind == "cuda")


def test_weight_decay_is_of_matrices_or_of_everything():
    """Biases, norms and what scales them included, as the published optimizers have it (MD4's, RADD's)."""
    for all_, expected in ((False, lambda p: 0.03 * (p.ndim > 1)), (True, lambda p: 0.03)):
        made = loop(weight_decay=0.03, decay_all=all_)
        groups = made.configure_optimizers().param_groups
        assert {(id(p), g["weight_decay"]) for g in groups for p in g["params"]} == {
            (id(p), expected(p)) for p in made.method.parameters()
        }
        assert {p.ndim for p in made.method.parameters()} == {1, 2}
    made = loop(lr=0.02, betas=(0.7, 0.8)).configure_optimizers()
    assert (made.defaults["lr"], made.defaults["betas"]) == (0.02, (0.7, 0.8))


@pytest.mark.parametrize("clip", [0.5, 0.0])
def test_gradients_are_clipped_to_their_norm(clip):
    """That of all together, which is what metrics.csv says, before; 0: they are left."""
    made = loop(clip=clip)
    made.method.loss(made.rows.collate([made.rows[0], made.rows[1]]), torch.Generator().manual_seed(0)).sum().backward()
    norm = lambda: torch.stack([p.grad.norm() for p in made.method.parameters() if p.grad is not None]).norm()  # noqa: E731
    before = norm()
    made.configure_gradient_clipping(None)
    assert float(before) > 0.5
    torch.testing.assert_close(made.norm, before)
    torch.testing.assert_close(norm(), torch.tensor(0.5) if clip else before)


def test_pinning_a_batch_pins_each_of_its_tensors(monkeypatch):
    pinned: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor.clone())
    batch = Batch(
        torch.zeros(2, 3, dtype=torch.long), mask=torch.ones(2, 3, dtype=torch.bool), condition=torch.zeros(2)
    )
    again = torch.utils.data._utils.pin_memory.pin_memory(batch)  # pyright: ignore  (as a DataLoader does it)
    assert [id(x) for x in pinned] == [id(x) for x in (batch.tokens, batch.mask, batch.condition)]
    assert isinstance(again, Batch)
    assert again.segments is None
    assert again.mask is not batch.mask


@pytest.mark.parametrize("has", [{}, {"avx512_bf16": False}, {"avx512_bf16": True}, {"amx_bf16": True}])
def test_auto_is_bfloat16_where_the_cpu_computes_in_it_and_the_network_is_wide(monkeypatch, has):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    able, wide = any(has.values()), replace(NET, hidden=128)
    assert device.precision(config(replace(NET, hidden=124))) == "float32"
    unets = [config(Net(kind="unet", channels=c, multipliers=(1, 2))) for c in (92, 96)]
    assert [device.precision(unet, able=True) for unet in unets] == ["float32", "bfloat16"]
    assert device.precision(config(wide)) == ("bfloat16" if able else "float32")
    assert device.precision(config(wide), able=not able) == ("float32" if able else "bfloat16")
    assert device.precision(config(wide, precision="float32"), able=True) == "float32"


def test_tf32_is_of_a_gpu_and_of_the_run_alone(monkeypatch):
    assert device.precision(config(precision="tf32")) == "float32"
    assert device.precision(config(precision="tf32"), able=True) == "tf32"
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    assert before == ("highest", True)  # PyTorch's own: convolutions in TF32
    exact = "highest", False
    for on_gpu, precision, within in ((True, "tf32", ("high", True)), (True, "float32", exact), (False, "tf32", exact)):
        monkeypatch.setattr(device, "cuda", lambda config, on_gpu=on_gpu: on_gpu)
        with device.matrix_products(config(precision=precision)):
            assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == within
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


@pytest.mark.parametrize("accumulate", [1, 2])
def test_blocks_computed_again_give_the_same_step_in_less_memory(accumulate):
    gradients, held = [], []
    for again in (False, True):
        one = loop(replace(NET, checkpoint=again), accumulate=accumulate)
        batches = iter(one.train_dataloader())
        with Live() as live:
            live.watch(one.method)
            for index in range(accumulate):
                one.training_step(next(batches), index).backward()
        gradients.append([p.grad for p in one.method.parameters()])
        held.append(live.peak)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=1e-6)
    assert held[1] < 0.6 * held[0]


def test_the_parts_of_a_step_are_counted_where_they_are():
    """nats and tokens, float64, of each part; the tokens without padding."""
    one = loop(accumulate=2)
    for index, batch in zip(range(2), one.train_dataloader()):
        one.training_step(batch, index)
    assert [part[1].item() for part in one.nats] == [2 * NET.length] * 2
    mask = torch.arange(NET.length).expand(2, -1) < torch.tensor([[5], [7]])
    one.training_step(Batch(torch.zeros(2, NET.length, dtype=torch.long), mask=mask), 2)
    assert one.nats[-1].tolist()[1] == 12
    assert {part.dtype for part in one.nats} == {torch.float64}


def test_what_others_call_it():
    known = ["--net.checkpoint", "--train.compile"]
    assert {synonym(f"--{name}", known) for name in ("gradient-checkpointing", "checkpoint_activations")} == {known[0]}
