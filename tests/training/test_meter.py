"""What a training says of its speed: tokens, FLOP of the model, their share of what the device promises, memory, time left."""

import csv
from dataclasses import replace

import pytest
import torch

import zellige
from zellige import Data, Net, Train
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.plugins.report.figures import metrics
from zellige.plugins.report.sections import run_facts
from zellige.show.progress import Speed
from zellige.training import device, fit
from zellige.training.cost import model_flops, training_cost
from zellige.training.device import DEVICES
from zellige.training.meters import Meters
from zellige.training.run import summary

NET = Net(layers=3, hidden=16, heads=2, length=8)


def config(**net) -> Config:
    return Config("mdlm", METHODS["mdlm"].Config(), net=replace(NET, **net), train=Train(steps=5, batch=4))


def counted(config: Config) -> float | None:
    return model_flops(config, build(config.method, 27, config.net, config.options))


def test_the_flop_of_a_row_are_those_of_its_matrix_products():
    """6 for each weight of a product and token; and in attention, two products of L x L, forward once and backward twice."""
    D, L, n = NET.hidden, NET.length, NET.layers
    weights = n * (4 * D * D + 8 * D * D) + D * 28
    assert counted(config()) == 6 * weights * L + 12 * n * D * L * L
    assert counted(config()) == training_cost(config(), 27).flops / 20
    assert counted(config(checkpoint=True)) == counted(config())  # of the model: what is computed twice counts once
    assert training_cost(config(checkpoint=True), 27).flops > training_cost(config(), 27).flops
    assert counted(replace(config(), network="Own")) is None


def test_what_cannot_be_counted_is_left_out(monkeypatch):
    def refuse(*_):
        raise NotImplementedError

    one = config(layers=2)
    method = build("mdlm", 27, one.net)
    monkeypatch.setattr(METHODS["mdlm"], "build_network", refuse)
    assert model_flops(one, method) is None


def test_speed_is_that_of_the_rows_between_two_readings():
    corpus = Data.of(torch.randint(0, 7, (60, 8)), vocabulary=7)
    from zellige.data.prepare import prepare

    meters = Meters(Train(steps=40, batch=4), prepare(corpus, 8).train, None)
    meters.start(10, flops=1e9, promised=4e10)
    meters.began -= 30
    for step in range(3):
        meters.add(1.0, 32.0, 0.5, now=2.0 * step)
    assert meters.speed() == Speed(tokens=4 / 2 * 8, flops=2e9, utilisation=0.05)
    assert str(meters.speed()) == "16 tokens/s, 2.0 GFLOP/s, 5.0% MFU"
    assert meters.left(13) == pytest.approx(30 / 3 * 27, rel=0.01)
    meters.promised = None
    assert str(meters.speed()) == "16 tokens/s, 2.0 GFLOP/s"


def test_promised_is_that_of_all_devices_in_the_precision_of_the_run(monkeypatch):
    monkeypatch.setattr(device, "cuda", lambda config: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    run = lambda precision: replace(config(), train=Train(precision=precision))  # noqa: E731
    assert device.promised(run("bfloat16"), 8) == 8 * DEVICES["h100"].bfloat16
    assert device.promised(run("float32"), 1) == DEVICES["h100"].float32
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA GeForce GTX 1060")
    assert device.promised(run("bfloat16"), 8) is None


@pytest.mark.parametrize("promise", [None, 1e12])
def test_a_run_says_its_speed_everywhere(promise, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "promised", lambda *_: promise)
    t = Train(
        steps=4, batch=4, validate_every=2, validate_rows=4, log_every=1, samples=0, device="cpu", tensorboard=True
    )
    data = Data.of(torch.randint(0, 7, (60, 8), generator=torch.Generator().manual_seed(0)), vocabulary=7)
    run = zellige.train(data=data, net=NET, train=t, run=tmp_path / "r")
    with (run.folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    flops = [float(row["flops_per_second"]) for row in rows[1:]]
    assert all(flop > 1e4 for flop in flops)
    tokens = [float(row["tokens_per_second"]) for row in rows[1:]]
    per_row = model_flops(run.config, run.model.method)
    assert flops == pytest.approx([rate / 8 * per_row for rate in tokens])
    shares = [row["utilisation"] for row in rows[1:]]
    assert shares == ([""] * 3 if promise is None else [repr(flop / promise) for flop in flops])
    assert {row["peak_memory"] for row in rows} == {""}
    assert float(rows[-1]["seconds_left"]) == 0 < float(rows[0]["seconds_left"])
    assert run.tokens_per_second == run.speed.tokens
    assert summary(run)[0].endswith(f"last steps: {run.speed}")
    assert ("MFU" in summary(run)[0]) == (promise is not None)
    assert "tokens/s, " in (run.folder / "log.txt").read_text()
    log, unit = metrics(run.folder)
    facts = " ".join(run_facts(log, unit, {}, None, None))
    assert ("MFU" if promise else "FLOP/s") + " (head at every position)" in facts
    assert ("MFU" in facts) == (promise is not None)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.folder)).Reload()
    assert len(events.Scalars("flops_per_second")) == 3
    assert ("utilisation" in events.Tags()["scalars"]) == (promise is not None)


def test_the_summary_says_the_memory_of_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(Meters, "read_peak", lambda self, device: setattr(self, "peak", 5_324_457_472))
    t = Train(steps=1, batch=4, validate_every=0, validate_rows=4, samples=0, device="cpu", tensorboard=False)
    data = Data.of(torch.arange(480).view(-1, 8) % 7, vocabulary=7)
    run = zellige.train(data=data, net=NET, train=t, run=tmp_path / "r")
    assert run.peak == 5_324_457_472
    assert summary(run)[0].endswith("peak 5.3 GB")
