"""`training.plan`: its memory is that of a step that is really taken, its hours those of the FLOPs that are counted."""

import dataclasses
from dataclasses import replace

import pytest
import torch

from zellige import Batch, InputError, Net, Train
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.training.cost import PEAK, UTILISATION, training_cost
from zellige.training.devices import DEVICES, recognise
from zellige.training.live import Live
from zellige.training.plan import TOKENS, plan, step_bytes

NET = Net(layers=2, hidden=64, heads=2, length=64, dropout=0.1)
ROWS = 16
CHOICES = {"bd3lm": {"block": 16}, "d3pm": {"process": "uniform"}}


def config(method: str, **net) -> Config:
    return Config(method, METHODS[method].Config(**CHOICES.get(method, {})), net=replace(NET, **net))


def measured(config: Config, V: int, rows: int, low: bool = False) -> int:
    """The most bytes that a step holds beside weights and gradients, on tensors with numbers."""
    method = build(config.method, V, config.net, config.options, ordered=True).train()
    generator = torch.Generator().manual_seed(0)
    batch = Batch(torch.randint(V, (rows, config.net.length), generator=generator))
    with Live() as live, torch.enable_grad():
        live.watch(method)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            loss = method.loss(batch, generator).sum()
        loss.backward()
    return live.peak


USUAL, RARE = ("mdlm", "sedd", "udlm", "bd3lm", "ar"), ("d3pm", "csm", "tauldr", "radd", "md4")
EACH = [*USUAL, *(pytest.param(method, marks=pytest.mark.long) for method in RARE)]


@pytest.mark.parametrize("method", EACH)
def test_the_planned_activations_are_those_of_a_step(method):
    V = 1000
    _, bytes_ = step_bytes(config(method), V, ROWS)
    assert bytes_ == pytest.approx(measured(config(method), V, ROWS), rel=0.08)


def test_in_bfloat16_and_with_blocks_recomputed():
    V = 300
    for low, net in ((True, {}), (False, {"checkpoint": True})):
        _, bytes_ = step_bytes(config("mdlm", **net), V, ROWS, "bfloat16" if low else "float32")
        assert bytes_ == pytest.approx(measured(config("mdlm", **net), V, ROWS, low), rel=0.08)


def test_more_rows_are_extended_from_few():
    """The bytes of 8 times as many rows as are counted."""
    rows = 8 * TOKENS // NET.length
    _, bytes_ = step_bytes(config("mdlm"), 27, rows)
    assert bytes_ == pytest.approx(measured(config("mdlm"), 27, rows), rel=0.02)


def test_live_counts_storages_not_views():
    with Live() as live:
        a = torch.zeros(1000)
        b = a.view(10, 100)[2:]
        assert live.now == 4000
        del a
        assert live.now == 4000  # the view holds it
        del b
        c = torch.zeros(500)
    assert (live.now, live.peak, len(c)) == (2000, 4000, 500)


def test_hours_memory_and_tokens_add_up():
    of = replace(config("mdlm"), train=Train(steps=100, batch=16, accumulate=2, ema=0.0))
    device = DEVICES["h100"]
    one, four = (plan(of, 27, gpus, device, 0.5) for gpus in (1, 4))
    two = replace(of, train=replace(of.train, nodes=2))
    cost = training_cost(of, 27)
    assert one.hours == pytest.approx(cost.flops / (device.float32 * 0.5) / 3600)  # a width below 256 is float32
    assert one.hours == pytest.approx(4 * four.hours)
    assert four.tokens_per_second * four.hours * 3600 == pytest.approx(100 * 16 * 64)
    assert (one.rows, four.rows) == (8, 2)
    P = 4 * cost.parameters
    assert (one.ddp.weights, one.ddp.gradients, one.ddp.optimizer, one.ddp.average) == (P, P, 2 * P, 0)
    assert one.ddp == one.fsdp
    assert four.fsdp.optimizer == P / 2
    assert P / 4 < four.fsdp.weights <= P / 4 + P
    assert (four.hybrid, four.node) == (four.fsdp, 4)
    assert plan(two, 27, 4, device, 0.5).hybrid == dataclasses.replace(
        plan(of, 27, 2, device, 0.5).fsdp, activations=four.fsdp.activations
    )
    assert four.ddp.activations < one.ddp.activations


def test_it_says_what_limits():
    of = replace(config("mdlm", hidden=256, heads=4, length=256), train=Train(steps=1, batch=8))
    device = DEVICES["h100"]
    assert plan(of, 27, 1, dataclasses.replace(device, memory=1e6)).limit == "memory"
    assert plan(of, 27, 1, dataclasses.replace(device, bandwidth=1e9)).limit == "memory bandwidth"
    assert plan(of, 27, 1, dataclasses.replace(device, bandwidth=1e18)).limit == "matrix products"
    with pytest.raises(InputError, match="does not split into 3 equal parts"):
        plan(of, 27, 3, device)


def test_devices_by_the_names_of_their_drivers():
    names = {
        "NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100-pcie", "NVIDIA H200": "h200", "NVIDIA L4": "l4",
        "NVIDIA A100-SXM4-80GB": "a100", "NVIDIA A100-SXM4-40GB": "a100-40", "NVIDIA A100-PCIE-40GB": "a100-40",
        "NVIDIA L40S": "l40s", "NVIDIA GeForce RTX 4090": "rtx4090", "NVIDIA B200": "b200",
        "AMD Instinct MI300X": "mi300x", "NVIDIA H100 NVL": None, "NVIDIA A10G": None, "NVIDIA L40": None,
    }  # fmt: skip
    for name, known in names.items():
        assert recognise(name) is (known and DEVICES[known]), name
    assert all(device.bfloat16 > device.float32 > 1e13 for device in DEVICES.values())
    assert all(device.memory < device.bandwidth < 1e14 for device in DEVICES.values())
    assert (PEAK, UTILISATION) == (989e12, 0.4)


def test_every_device_is_named_in_the_option():
    from zellige.cli import brief
    from zellige.cli import plan as command

    text = brief.descriptions(command.Cluster)["--device"].replace(" or ", ", ")
    assert sorted(text.split(", ")) == sorted(DEVICES)


def test_the_command_prints_and_writes_the_plan(capsys):
    import json

    from zellige import cli

    words = "plan mdlm --vocabulary 27 --gpus 2 --device l4 --price 2 --size tiny --net.length 32 --json -"
    assert cli.main(words.split()) == 0
    record = json.loads(capsys.readouterr().out)["result"]
    assert record["cost"] == pytest.approx(2 * record["gpu_hours"]) == pytest.approx(4 * record["hours"])
    assert record["ddp"]["total"] == pytest.approx(sum(v for k, v in record["ddp"].items() if k != "total"))
    assert cli.main(words.split()[:-2]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mdlm on 2 x l4, float32   ")
    assert max(map(len, lines)) <= 100
