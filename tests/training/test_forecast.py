"""What a run is said to take: the arithmetic by a clock that is told, and that nothing else changes."""

import itertools
import json
import shlex
from dataclasses import replace

import pytest
import torch

from testing.small import Rows
from zellige import Config, Data, Net, Train, compare, train
from zellige.cli.train import choose
from zellige.data.tokenizer import Integers
from zellige.evaluation.evaluate import evaluate_rows
from zellige.methods import METHODS, build
from zellige.methods.mdlm import MDLM
from zellige.show.numbers import count
from zellige.show.progress import Progress, TrainingBar
from zellige.show.terminal import Terminal
from zellige.training.forecast import (
    Plan,
    command_line,
    fitted,
    forecast,
    half_an_hour,
    seconds,
    seconds_per_row,
    validation_gradients,
)
from zellige.training.setup import SIZES


class Notes(Progress):
    quiet = False

    def __init__(self):
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


NET = Net(layers=1, hidden=16, heads=2, length=8)


def example(**train) -> tuple[Config, MDLM]:
    data = Data("text", path="my notes.txt", tokenizer="bytes")
    config = Config("mdlm", MDLM.Config(), data, NET, Train(**train), "runs/a")
    method = build("mdlm", 7, NET)
    assert isinstance(method, MDLM)
    return config, method


def clock(*each: float):
    """Reads 0, then the first duration later, and so on; the last one for ever."""
    durations = itertools.chain(each, itertools.repeat(each[-1]))
    times = itertools.chain.from_iterable((0.0, d) for d in durations)
    return lambda: next(times)


def test_a_row_is_the_mean_of_some_calls_after_a_warm_up():
    _, method = example()
    assert seconds_per_row(method, 7, clock(9.0, 4.0, 2.0)) == 3.0 / 16
    assert seconds_per_row(method, 7, clock(9.0, 0.5), least=2.0) == 0.5 / 16  # four calls


def test_a_row_is_timed_in_the_precision_of_the_run(monkeypatch):
    (config, method), within = example(precision="bfloat16", steps=900), list[bool]()
    loss = MDLM.loss
    monkeypatch.setattr(MDLM, "loss", lambda *batch: within.append(torch.is_autocast_enabled("cpu")) or loss(*batch))
    forecast(config, method, Integers(7), 0, clock=clock(0.02))
    assert within[:3] == [True] * 3
    within.clear()
    fitted(replace(config, train=replace(config.train, precision="float32")), method, 7, 0, clock(9.0))
    assert within[:3] == [False] * 3


def test_steps_and_validations_add_up():
    config, method = example(steps=1000, batch=4, validate_every=500, validate_rows=30, validate_draws=2)
    validation = validation_gradients(config, method, 7, 100)
    assert validation == 30 * 2 / 3  # MDLM evaluates its network once for a draw
    assert seconds(config, 1000, 0.5, validation) == 0.5 * (1000 * 4 + 3 * 30 * 2 / 3)
    every = replace(config, train=replace(config.train, validate_rows=0))
    assert validation_gradients(every, method, 7, 100) == 100 * 2 / 3  # 0: all that there are


@pytest.mark.parametrize(
    ("name", "options", "draws", "gradient"),
    [
        ("mdlm", {}, 2, 1),
        ("ar", {}, 2, 1),
        ("d3pm", {"diffusion_steps": 20, "process": "uniform"}, 2, 1),
        ("d3pm", {"diffusion_steps": 20, "process": "gaussian"}, 2, 1),
        ("tauldr", {}, 2, 1),
        ("tauldr", {"objective": "two-pass"}, 2, 2),
    ],
)
def test_network_evaluations_of_a_validation_are_those_that_it_makes(name, options, draws, gradient):
    """T-step models evaluate the network two or three times for a draw, after a pilot; each was counted once."""
    cls = METHODS[name]
    method = build(name, 7, NET, cls.Config(**options), ordered=True)
    train = Train(validate_rows=12, validate_draws=draws)
    config = Config(name, cls.Config(**options), Data(), NET, train)
    tokens = torch.randint(7, (40, 8), generator=torch.Generator().manual_seed(1))
    made, features = [], method.network.features
    method.network.features = lambda x, *a, **k: made.append(len(x)) or features(x, *a, **k)
    evaluate_rows(method, Rows(tokens), draws=draws, limit=12)
    del method.network.features
    assert validation_gradients(config, method, 7, 40) == pytest.approx(sum(made) / 3 / gradient, rel=0.1)


def test_nothing_is_said_of_a_short_run_nor_a_line_of_one_under_an_hour():
    config, method = example(steps=1000, batch=8, validate_rows=0)
    assert forecast(config, method, Integers(7), 0, clock=clock(0.02)) == []
    (line,) = forecast(config, method, Integers(7), 0, clock=clock(2.0))
    assert line.startswith("note: 1,000 steps will take about 17 minutes on this CPU (")
    (line,) = forecast(config, method, Integers(7), 0, clock=clock(0.14))
    assert "will take about 1 minute on" in line
    (line,) = forecast(
        config, method, Integers(7), 0, step=400, clock=clock(200.0)
    )  # resumed: there is nothing to choose
    assert line.startswith("note: 600 steps will take about 17 hours")


def test_of_a_size_it_is_always_said_and_which_are_larger():
    config, method = example(steps=1000, batch=8, validate_rows=0)
    (line,) = forecast(config, method, Integers(7), 0, 0, "small", clock(0.02))
    assert line.startswith("size small except `net.layers` 1, `net.hidden` 16, ")
    assert "`train.batch` 8: 1,000 steps will take about 10 s on this CPU (" in line
    assert line.endswith("at its current load; for a larger network: `size` base, medium")
    assert "larger network" not in forecast(config, method, Integers(7), 0, 0, "medium", clock(0.02))[0]


def test_the_line_of_half_an_hour():
    config, method = example(steps=10_000, batch=8, validate_rows=0)
    assert half_an_hour(config, method, Integers(7), 1 / 8) == (  # 1,800 steps of a second
        "zellige train mdlm --data.name text --data.path 'my notes.txt' --data.tokenizer bytes --net.layers 1 --net.hidden 16 "
        "--net.heads 2 --net.length 8 --net.conv 0 --train.steps 1800 --train.batch 8 --train.optimizer adamw --train.lr 0.0003 "
        "--train.warmup 100 --train.validate-every 1000 --train.validate-rows 0 --train.times stratified --run runs/a-small"
    )
    said = forecast(config, method, Integers(7), 0, clock=clock(40.0, 40.0, 40.0, 4.0))[
        1
    ]  # the small one: 4 s for 16 rows
    assert said.endswith(
        "--data.tokenizer bytes --train.steps 400 --train.validate-every 1000 --train.validate-rows 0 --run runs/a-small"
    )


@pytest.mark.parametrize(
    ("data", "net", "how"),
    [
        (
            Data("text", path="a.txt"),
            Net(),
            Train(device="cpu"),
        ),  # size small: what is the default of Python is said, too
        (
            Data("text", path="a.txt"),
            SIZES["tiny"].net,
            Train(optimizer="muon", lr=6e-3, decay="wsd", minutes=90, device="cpu"),
        ),
        (
            Data("text", path="a.txt"),
            Net(kind="conv", layers=2, length=64),
            Train(optimizer="muon", batch=16, device="cpu"),
        ),
        (
            Data("mnist"),
            Net(kind="dit", layers=3, length=784, grid=(28, 28)),
            Train(decay="constant", warmup=3, device="cpu"),
        ),
        (
            Data("nouns", labels=True),
            Net(kind="flat-unet", channels=8, blocks=1, length=1024, grid=(32, 32)),
            Train(lr=1e-2, precision="bfloat16", device="cpu"),
        ),
    ],
)
def test_the_line_makes_the_config_that_it_stands_for(data, net, how):
    """Typed, it gives what it was written for: all of it, though the command line fills in the rest by a size."""
    config = Config("mdlm", MDLM.Config(), data, net, how, "runs/a")
    method = build("mdlm", 7, NET)
    line = half_an_hour(config, method, Integers(7), 1e-6)
    method_name, *words = shlex.split(line)[2:]
    request, _ = choose([method_name, *words], Terminal(quiet=True))
    training = request.filled()
    expected = replace(how, steps=training.train.steps, minutes=0.0)
    assert (training.data, training.net, training.train, training.folder) == (data, net, expected, "runs/a-small")


def test_where_the_small_network_does_not_fit_the_data_there_is_no_line():
    config, method = example(steps=10_000, batch=8, validate_rows=0)
    config = replace(config, net=Net(layers=1, hidden=18, heads=3, length=81, grid=(9, 9), patch=3))
    assert half_an_hour(config, method, Integers(7), 1000.0) == ""  # width 128 has no part for each of 3 pixels


@pytest.mark.parametrize(
    ("per_step", "steps"),
    [(0.1799, 10_000), (0.1999, 9000), (0.359, 5000), (0.999, 1800), (7.2, 200), (500.0, 100)],
)
def test_steps_are_fitted_to_the_minutes(per_step, steps):
    """Half an hour, whatever a step takes: so many hundreds of steps as fill it, all that there are, or one hundred."""
    config, method = example(steps=10_000, minutes=30, batch=16, validate_rows=0, warmup=150)
    made, per_row = fitted(config, method, 7, 0, clock(9.0, per_step))
    assert per_row == pytest.approx(per_step / 16)
    assert made.train == replace(config.train, steps=steps, minutes=0.0, warmup=min(150, steps // 2))
    assert steps == 100 or seconds(made, steps, per_row, 0.0) <= 1800
    assert steps == 10_000 or seconds(made, steps + 100, per_row, 0.0) > 1800
    (line, *_) = forecast(made, method, Integers(7), 0, 0, "tiny", per_row=per_row, whole=10_000)
    assert line.startswith("size tiny except `net.layers` 1, ")
    assert f": {count(steps)}{' of 10,000' if steps < 10_000 else ''} steps will take about" in line
    assert ("for all steps: `train.minutes` 0" in line) == (steps < 10_000)


def test_validations_are_counted_in():
    config, method = example(steps=10_000, minutes=30, batch=4, validate_every=100, validate_rows=300)
    made, per_row = fitted(config, method, 7, 1000, clock(9.0, 1.6))
    assert made.train.steps == 3500  # of 0.4 s, and 36 validations of 10 s
    assert seconds(made, 3500, per_row, 100.0) <= 1800 < seconds(made, 3600, per_row, 100.0)


def test_the_run_keeps_its_steps(tmp_path, monkeypatch):
    """However fast the machine is when it goes on: resumed it is the run that was not stopped."""
    per_row, times = [1800 / 210 / 4], []  # 200 steps and the validation fit
    monkeypatch.setattr("zellige.training.forecast.seconds_per_row", lambda *_, **__: times.append(1) or per_row[0])
    tokens = torch.randint(0, 7, (60, 8), generator=torch.Generator().manual_seed(5))
    few = Train(steps=900, minutes=30, batch=4, validate_every=0, validate_rows=0, samples=0, tensorboard=False,
                device="cpu", keep=9, warmup=10)  # fmt: skip
    how = {"data": Data.of(tokens, vocabulary=7), "net": replace(NET, condition=8)}
    whole = train("mdlm", **how, train=few, run=tmp_path / "a")
    assert whole.steps == whole.config.train.steps == 200
    assert (whole.config.train.minutes, len(times)) == (0.0, 1)
    saved = json.loads((tmp_path / "a" / "config.json").read_text())["train"]
    assert (saved["steps"], saved["minutes"]) == (200, 0.0)
    per_row[0] /= 100
    again = train("mdlm", **how, train=few, run=tmp_path / "a", resume=True)
    assert (again.steps, again.config.train.steps, len(times)) == (200, 200, 1)


def test_a_plan_is_made_again_at_the_pace_of_the_first_steps():
    config, method = example(steps=10_000, minutes=30, batch=16, validate_every=200, validate_rows=48)
    made, _ = fitted(config, method, 7, 100, clock(9.0, 1.8))  # at 1.8 s a step: busy
    validation = validation_gradients(config, method, 7, 100)
    plan = Plan(config, made.train.steps, validation)
    assert (plan.steps, validation) == (900, 16)  # a validation takes as long as a step
    assert plan.again(30, 30 * 1.8) == plan.again(30, 30 * 1.8 * 1.1) is None
    assert plan.again(300, 301 * 0.2) == 8900  # 0.2 s a step, a validation among them
    assert plan.again(300, 301 * 0.1) == 10_000
    assert plan.again(30, 30 * 6.0) == 200
    assert plan.again(100, 100 * 30.0) == 101  # never fewer than are done


@pytest.mark.parametrize("planned", [0.02, 500.0])
def test_a_run_goes_on_to_the_steps_of_the_second_plan(planned, tmp_path, monkeypatch):
    """Planned on a busy machine or an idle one, it has the weights of a run that was to take these steps from the start."""
    fake = {"a": planned, "b": 1e-9}
    monkeypatch.setattr("zellige.training.forecast.seconds_per_row", lambda *_, **__: fake[name])
    monkeypatch.setattr("zellige.training.forecast.AGAIN", 0.0)
    passed = 4.0 if planned < 1 else 0.001  # seconds that the first step is said to take
    monkeypatch.setattr(
        Plan, "again", lambda self, step, _, again=Plan.again: again(self, step, passed * step) if step == 1 else 1 / 0
    )
    tokens = torch.randint(0, 7, (60, 8), generator=torch.Generator().manual_seed(5))
    how = {"data": Data.of(tokens, vocabulary=7), "net": replace(NET, condition=8)}
    few = Train(steps=180, minutes=10, batch=4, validate_every=60, validate_rows=4, samples=0, tensorboard=False,
                device="cpu", warmup=10, decay="constant", save_every=50)  # fmt: skip
    said, runs = [], {}
    for name, train_ in (("a", few), ("b", replace(few, minutes=0.0, steps=180 if planned > 1 else 100))):
        notes = Notes()
        runs[name] = train("mdlm", **how, train=train_, run=tmp_path / name, progress=notes)
        said += notes.notes
    steps, first = (100, 180) if planned < 1 else (180, 100)
    assert runs["a"].steps == runs["a"].config.train.steps == runs["b"].steps == steps
    assert f"note: {steps} steps fit into 10 minutes at the pace of the first 1, not {first}" in said
    assert runs["a"].about["changes"] == [{"step": 1, "train.steps": [first, steps]}]
    assert json.loads((tmp_path / "a" / "config.json").read_text())["train"]["steps"] == steps
    a, b = (run.model.method.state_dict() for run in runs.values())
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert runs["a"].validation.value == runs["b"].validation.value
    assert (tmp_path / "a" / "metrics.csv").read_text().count("\n") == (
        tmp_path / "b" / "metrics.csv"
    ).read_text().count("\n")


def test_what_no_line_can_name_has_none():
    config, method = example()
    assert command_line(replace(config, data=Data.of(torch.zeros(9, 8), vocabulary=7)), method) == ""
    assert command_line(replace(config, network="Mine"), method) == ""


def test_nothing_is_timed_where_nobody_reads_it(tmp_path, monkeypatch):
    """Three losses were run under --quiet too, and for `compare`, which drops the notes."""
    asked = []
    monkeypatch.setattr("zellige.training.session.forecast", lambda *_, **__: asked.append(1) or [])
    tokens = torch.randint(0, 7, (60, 8), generator=torch.Generator().manual_seed(5))
    how = {"data": Data.of(tokens, vocabulary=7), "net": replace(NET, condition=8)}
    few = Train(steps=1, batch=4, validate_rows=4, samples=0, tensorboard=False, device="cpu")
    for name, progress, times in [
        ("none", None, 0), ("quiet", TrainingBar(Terminal(quiet=True)), 0), ("said", TrainingBar(Terminal()), 1),
    ]:  # fmt: skip
        asked.clear()
        train("mdlm", **how, train=few, run=tmp_path / name, progress=progress)
        assert len(asked) == times
    asked.clear()
    compare(["mdlm", "md4"], **how, train=few, calls=(2,), samples=2, limit=2, run=tmp_path / "c", terminal=Terminal())
    assert not asked


def test_neither_weights_nor_random_numbers_change():
    config, method = example(steps=10**6)
    before, state = {k: v.clone() for k, v in method.state_dict().items()}, torch.get_rng_state()
    assert len(forecast(config, method, Integers(7), 0, clock=clock(50.0))) == 2
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in method.state_dict().items())
    assert all(p.grad is None for p in method.parameters())
