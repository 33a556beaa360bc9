"""What `plan` estimates: its memory is that of a step that is really taken, its hours those of the FLOPs that are counted."""

import dataclasses
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import zellige
from zellige import Batch, InputError, Net, Train
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.nn import linear
from zellige.papers.recipes import RECIPES
from zellige.plugins.studies.plan import estimate
from zellige.plugins.studies.plan.estimate import (
    LAUNCH,
    TOKENS,
    Live,
    Numberless,
    _count,
    as_on_gpu,
    budget_of,
    count_step,
    numberless,
)
from zellige.training.cost import PEAK, UTILISATION, training_cost
from zellige.training.device import DEVICES, recognise

NET = Net(layers=2, hidden=64, heads=2, length=64, dropout=0.1)
ROWS = 16
CHOICES = {"bd3lm": {"block": 16}, "d3pm": {"process": "uniform"}}
MATRIX = re.compile(r"blocks\.\d+\.(qkv|out|mlp\.\d)\.weight$")


def config(method: str, **net) -> Config:
    return Config(method, METHODS[method].Config(**CHOICES.get(method, {})), net=replace(NET, **net))


def measured(config: Config, V: int, rows: int, low: bool = False) -> int:
    """The most bytes that a step holds beside weights and gradients, on tensors with numbers; without oneDNN, which a
    GPU has not and whose rows are filled up."""
    method = build(config.method, V, config.net, config.options, ordered=True).train()
    generator = torch.Generator().manual_seed(0)
    batch = Batch(torch.randint(V, (rows, config.net.length), generator=generator))
    with mock.patch.object(linear, "able", False), as_on_gpu(), Live() as live, torch.enable_grad():
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
    assert count_step(config(method), V, ROWS).bytes == pytest.approx(measured(config(method), V, ROWS), rel=0.08)


def test_in_bfloat16_and_with_blocks_recomputed():
    V = 300
    for low, net in ((True, {}), (False, {"checkpoint": True})):
        step = count_step(config("mdlm", **net), V, ROWS, "bfloat16" if low else "float32")
        assert step.bytes == pytest.approx(measured(config("mdlm", **net), V, ROWS, low), rel=0.08)


def test_more_rows_are_extended_from_few(monkeypatch):
    """The bytes of 8 times as many rows as are counted."""
    monkeypatch.setattr(estimate, "_fused", lambda: SimpleNamespace(ENTRIES=1 << 14, ENTRIES_GPU=1 << 14))
    rows = 8 * TOKENS // NET.length
    assert count_step(config("mdlm"), 27, rows).bytes == pytest.approx(measured(config("mdlm"), 27, rows), rel=0.02)


@pytest.mark.long
def test_of_rows_with_a_time_each_more_are_extended_from_few():
    """Images of 256 levels, whose positions are taken in chunks and looked up in tables of each row's time."""
    image = Net(
        length=3072, grid=(32, 32, 3), kind="unet", channels=8, condition=8, blocks=1, multipliers=(1,), attention=()
    )
    options = METHODS["d3pm"].Config(process="gaussian", head="logistic", last="image", diffusion_steps=8)
    of = Config("d3pm", options, net=image)
    few, many = (count_step(of, 256, rows) for rows in (3, 9))
    whole = _count(of, 256, 9, "float32")
    assert few.launches < many.launches == pytest.approx(whole.launches, rel=0.02)
    assert many.bytes == pytest.approx(whole.bytes, rel=0.02)


def test_what_computes_is_a_launch_and_views_are_none():
    with numberless(), Numberless(0.5) as live, torch.enable_grad():
        a, b = torch.empty(4, 5, requires_grad=True), torch.empty(5, 6)
        value = (a @ b).relu().T.reshape(-1)[2:].sum()
        assert (live.launches, live.products) == (4, 1)  # a product, relu, a copy by reshape, a sum
        value.backward()
        assert live.products == 2  # b needs no gradient


@pytest.mark.parametrize("method", ["mdlm", "ar"])
def test_attention_is_one_kernel_in_either_precision(method):
    """On a CPU in bfloat16 it is many products of matrices, a few heads at a time."""
    of = config(method, layers=1), config(method, layers=3)
    launches = {how: [_count(c, 11, 16, how).launches for c in of] for how in ("float32", "bfloat16")}
    products = {how: [_count(c, 11, 16, how).products for c in of] for how in launches}
    assert products["float32"] == products["bfloat16"]
    (one, three), (low_one, low_three) = launches.values()
    assert (low_three - low_one) / 2 - (three - one) / 2 < 40  # of a layer, more: casts of its matrices and activations


def test_distinct_values_are_those_of_rows():
    with numberless(), Numberless(0.5, rows=3, length=4):
        times, place = torch.empty(3).unique(return_inverse=True)
        assert (times.shape, place.shape) == ((3,), (3,))
        rows, counts = torch.empty(8, dtype=torch.long).unique_consecutive(return_counts=True)
        assert (len(rows), counts.tolist()) == (2, [4, 4])


def shallow(config: Config) -> Config:
    """The config with few layers: what is asked of rows, states and times stays."""
    few = {
        "dit": {"layers": 1}, "unet": {"blocks": 1, "multipliers": (1, 2)}, "flat-unet": {"blocks": 1},
        "u-vit": {"layers": 1, "blocks": 1},
    }[config.net.kind]  # fmt: skip
    return replace(config, net=replace(config.net, **few), options=shorter(config.options))


def shorter(options):
    return replace(options, diffusion_steps=8) if getattr(options, "diffusion_steps", 0) else options


COMMANDED = ("d3pm-cifar10-gauss", "tauldr-cifar10")  # by the test of the command
LIKE = ("md4-imagenet64", "d3pm-cifar10-uniform", "d3pm-cifar10-absorbing")  # one of those in short


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in COMMANDED + LIKE else [])
        for name, recipe in RECIPES.items()
        if not recipe.base
    ],
)
def test_every_recipe_is_planned(name):
    recipe = RECIPES[name]
    config = shallow(recipe.config)
    planned = budget_of(config, recipe.vocabulary, config.train.batch, DEVICES["h100"])
    assert planned.rows == 1
    assert planned.launches > 100
    assert planned.ddp.activations > 4 * config.net.length * config.net.hidden


@pytest.mark.parametrize("name", COMMANDED)
@pytest.mark.long
def test_the_command_plans_image_chains_and_says_that_launches_limit_them(name, capsys):
    from zellige import cli

    assert cli.main(["plan", name, "--gpus", "128"]) == 0
    text = capsys.readouterr().out
    assert "limit: kernel launches" in text
    assert "kernels, 4 us or more to launch each" in text


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
    one, four = (budget_of(of, 27, gpus, device, 0.5) for gpus in (1, 4))
    two = replace(of, train=replace(of.train, nodes=2))
    cost = training_cost(of, 27)
    assert one.products == pytest.approx(cost.flops / 100 / (device.float32 * 0.5))  # a width below 256 is float32
    assert one.products == pytest.approx(4 * four.products)
    assert (one.launching, one.seconds) == (one.launches * LAUNCH, max(one.launching, one.products, one.traffic))
    assert four.hours == pytest.approx(100 * four.seconds / 3600)
    assert four.tokens_per_second * four.hours * 3600 == pytest.approx(100 * 16 * 64)
    assert one.reached * one.seconds == pytest.approx(0.5 * one.products)
    assert (one.rows, four.rows) == (8, 2)
    P = 4 * cost.parameters
    assert (one.ddp.weights, one.ddp.gradients, one.ddp.optimizer, one.ddp.average) == (P, P, 2 * P, 0)
    assert one.ddp == one.fsdp
    by_muon = replace(of, train=replace(of.train, optimizer="muon"))
    muon = budget_of(by_muon, 27, 1, device, 0.5)
    assert [*four.ways] == ["ddp", "fsdp", "hybrid"]
    assert [*budget_of(by_muon, 27, 4, device, 0.5).ways] == ["ddp"]
    with pytest.raises(InputError, match=r"`train.strategy` hybrid shards them; use ddp, or adamw"):
        budget_of(replace(by_muon, train=replace(by_muon.train, strategy="hybrid")), 27, 4, device, 0.5)
    held = [p.shape for name, p in count_step(of, 27, 8).network.named_parameters() if MATRIX.search(name)]
    assert len(held) == 4 * of.net.layers
    assert muon.ddp.optimizer == 2 * P - 4 * sum(rows * columns for rows, columns in held)
    extra = 5 * sum(4 * min(s) ** 2 * max(s) + 2 * min(s) ** 3 for s in held)
    assert muon.products - one.products == pytest.approx(extra / (device.bfloat16 * 0.5))
    assert four.fsdp.optimizer == P / 2
    assert P / 4 < four.fsdp.weights <= P / 4 + P
    assert (four.hybrid, four.node) == (four.fsdp, 4)
    assert budget_of(two, 27, 4, device, 0.5).hybrid == dataclasses.replace(
        budget_of(of, 27, 2, device, 0.5).fsdp, activations=four.fsdp.activations
    )
    assert four.ddp.activations < one.ddp.activations


def test_it_says_what_limits():
    of = replace(config("mdlm", hidden=256, heads=4, length=256), train=Train(steps=1, batch=8))
    device = dataclasses.replace(DEVICES["h100"], bandwidth=1e18)
    assert budget_of(of, 27, 1, dataclasses.replace(device, memory=1e6)).limit == "memory"
    assert budget_of(of, 27, 1, dataclasses.replace(device, bandwidth=1e9)).limit == "memory bandwidth"
    assert budget_of(of, 27, 1, dataclasses.replace(device, bfloat16=1e12)).limit == "matrix products"
    launched = budget_of(of, 27, 1, device)
    assert (launched.limit, launched.seconds) == ("kernel launches", launched.launches * LAUNCH)
    twice = budget_of(replace(of, train=replace(of.train, accumulate=2)), 27, 1, device)
    assert 1.9 < twice.launches / launched.launches <= 2
    compiled = budget_of(replace(of, train=replace(of.train, compile=True)), 27, 1, device)
    assert (
        12 < compiled.launches < launched.launches / 4
    )  # a matrix or more for each, forward and backward, of two blocks
    with pytest.raises(InputError, match="does not split into 3 equal parts"):
        budget_of(of, 27, 3, device)


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
    known = {name: (round(device.bfloat16 / 1e11), round(device.memory / 1e9)) for name, device in DEVICES.items()}
    assert known == {  # hundreds of GFLOP/s and GB, as the data sheets say
        "b200": (22_500, 180), "h200": (9_890, 141), "h100-pcie": (7_560, 80), "h100": (9_890, 80), "a100-40": (3_120, 40),
        "a100": (3_120, 80), "l40s": (3_620, 48), "l4": (1_210, 24), "rtx4090": (1_652, 24), "mi300x": (13_074, 192),
    }  # fmt: skip
    assert all(device.bfloat16 > device.tf32 >= device.float32 for device in DEVICES.values())
    assert (PEAK, UTILISATION) == (989e12, 0.4)


def test_every_device_is_named_in_the_option():
    from zellige.cli import flags

    _, _, text = flags.flags(zellige.studies.Plan)["--device"].option.help.replace(" or ", ", ").partition("; ")
    assert sorted(text.split(", ")) == sorted(DEVICES)


@pytest.mark.parametrize("method", ["mdlm", "ar", "udlm"])
def test_a_vocabulary_has_two_tokens_or_more(method):
    with pytest.raises(InputError, match=r"^`vocabulary` is 1; it must be 2 or more$"):
        zellige.plan(method, vocabulary=1)
    assert zellige.plan(method, vocabulary=2).to_dict()["arguments"]["vocabulary"] == 2


def test_the_command_prints_and_writes_the_plan(capsys, tmp_path):
    import json

    from zellige import cli

    words = "plan mdlm --vocabulary 27 --gpus 2 --device l4 --price 2 --size tiny --net.length 32 --json -"
    assert cli.main(words.split()) == 0
    record = json.loads(capsys.readouterr().out)["result"]
    assert record["cost"] == pytest.approx(2 * record["gpu_hours"]) == pytest.approx(4 * record["hours"])
    assert record["ddp"]["total"] == pytest.approx(sum(v for k, v in record["ddp"].items() if k != "total"))
    training = zellige.Training("mdlm", size="tiny", settings={"net.length": 32, "train.device": "cuda"})
    planned = zellige.plan(training, gpus=2, device="l4", price=2, vocabulary=27)
    assert planned.to_dict()["result"] == record
    planned.save(tmp_path / "plan.json")
    loaded = zellige.Record.load(tmp_path / "plan.json")
    assert loaded == planned == loaded.request.run()
    assert cli.main(words.split()[:-2]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mdlm on 2 x l4, bfloat16   ")
    assert max(map(len, lines)) <= 100
    assert lines[2].split() == ["memory", "of", "each", "ddp"]  # tiny is trained by Muon: whole matrices alone
    assert {*loaded.ways} == {"ddp"}
    assert cli.main([*words.split()[:-2], "--train.optimizer", "adamw"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["memory", "of", "each", "ddp", "fsdp"]
