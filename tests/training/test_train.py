import csv
import importlib.machinery
import json
import math
import shutil
import sys
import types
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import zellige
from testing.disks import small_disk
from testing.small import loop
from zellige import Data, InputError, Net, Sample, Train, load
from zellige.base import files
from zellige.base.errors import Diverged
from zellige.base.trust import allow
from zellige.cli.evaluate_print import heading as results_heading
from zellige.core.counter_random import Counter, Independent, Middle
from zellige.data.prepare import prepare
from zellige.evaluation.result import summarize
from zellige.methods import D3PM, build
from zellige.methods.mdlm import MDLM
from zellige.models.checkpoint.layout import newest
from zellige.models.checkpoint.read import load_tensors, read_metrics
from zellige.models.checkpoint.write import save_tensors
from zellige.models.hub import card
from zellige.show.progress import Progress
from zellige.training import fit, notes
from zellige.training.ema import EMA
from zellige.training.fit import learning_rate
from zellige.training.order import BatchSampler, StepSeeds
from zellige.training.requests import Training
from zellige.training.run import summary
from zellige.training.train import train

NET = Net(layers=1, hidden=16, heads=2, length=8, conv=3)


def tokens(rows: int = 120, vocabulary: int = 7) -> torch.Tensor:
    return torch.randint(0, vocabulary, (rows, 8), generator=torch.Generator().manual_seed(5))


def data() -> Data:
    return Data.of(tokens(), vocabulary=7)


def settings(**more) -> Train:
    usual = {
        "steps": 4, "batch": 4, "lr": 1e-2, "warmup": 0, "validate_every": 2, "validate_rows": 4, "log_every": 1,
        "samples": 1, "sample_steps": 3, "tensorboard": False, "device": "cpu",
    }  # fmt: skip
    return Train(**(usual | more))


class Notes(Progress):
    def __init__(self):
        self.notes: list[str] = []
        self.steps: list[tuple] = []
        self.validations: list[tuple] = []

    def note(self, text):
        self.notes += text.splitlines()

    def step(self, *what):
        self.steps.append(what)

    def validated(self, *what):
        self.validations.append(what)


def go(folder, *, progress=None, method="mdlm", **more):
    how = {k: more.pop(k) for k in ("resume", "overwrite", "options", "net", "data") if k in more}
    how = {"data": data(), "net": NET} | how
    return train(method, train=settings(**more), run=folder, progress=progress, **how)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_what_is_given_is_shown_to_a_network_that_could_not_tell(tmp_path):
    """A token of uniform noise looks like a given one: the network sees which is which, without being asked to."""
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 90)
    for method, sees in (("udlm", True), ("mdlm", False)):
        given = Data("text", path=str(tmp_path / "text.txt"), given="prefix:3")
        run = go(tmp_path / method, method=method, data=given)
        assert (run.config.net.given, run.model.method.network.sees_given) == (sees, sees)
        assert load(tmp_path / method).method.network.sees_given is sees


# ---------------------------------------------------------------------------------------------------- order and randomness
@pytest.mark.parametrize("n", [3, 8, 13, 100])
def test_each_epoch_has_each_row_once(n):
    drawn = [i for step in BatchSampler(n, 0, 6, 0, 40) for i in step]
    assert len(drawn) == 240
    for epoch in range(240 // n):
        assert sorted(drawn[epoch * n : (epoch + 1) * n]) == list(range(n))
    if n > 8:
        assert drawn[:n] != drawn[n : 2 * n]
        assert drawn != [i for step in BatchSampler(n, 1, 6, 0, 40) for i in step]


@pytest.mark.parametrize(("accumulate", "world"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_parts_are_the_step(accumulate, world):
    """However a step is split, it has the same rows in the same order; and it can begin anywhere."""
    whole = list(BatchSampler(50, 0, 12, 0, 9))
    for start in (0, 5):
        each = [list(BatchSampler(50, 0, 12, start, 9, accumulate, rank, world)) for rank in range(world)]
        assert all(len(e) == len(BatchSampler(50, 0, 12, start, 9, accumulate)) for e in each)
        for step in range(start, 9):
            first = (step - start) * accumulate
            parts = [each[rank][first + micro] for micro in range(accumulate) for rank in range(world)]
            assert parts == [whole[step][part :: len(parts)] for part in range(len(parts))]


@pytest.mark.parametrize("times", ["stratified", "independent", "middle"])
def test_parts_draw_what_the_whole_draws(times):
    from zellige.core.batch import Batch

    method = build("mdlm", 7, NET)
    batch = tokens(8)
    whole = method.loss(Batch(batch), StepSeeds(3, 1, torch.device("cpu"), times).seed_part(5, 0))
    seeds = StepSeeds(3, 4, torch.device("cpu"), times)
    parts = [method.loss(Batch(batch[p::4]), seeds.seed_part(5, p)) for p in range(4)]
    torch.testing.assert_close(torch.stack(parts, 1).flatten(), whole, rtol=1e-6, atol=1e-6)
    other = method.loss(Batch(batch), StepSeeds(3, 1, torch.device("cpu")).seed_part(6, 0))
    assert not torch.allclose(other, whole)


def test_a_training_draws_its_times_as_it_is_told():
    for times, kind in (("stratified", Counter), ("independent", Independent), ("middle", Middle)):
        config = zellige.Config("mdlm", MDLM.Config(), net=NET, train=Train(times=times))
        assert type(loop(build("mdlm", 7, NET), config, 7).seeds.seed_part(0, 1)) is kind


def test_a_loss_has_a_unit_where_it_is_a_bound_or_exact():
    for name, times, unit in (
        ("mdlm", "stratified", "nats/token"),
        ("mdlm", "middle", None),
        ("ar", "middle", "nats/token"),
    ):
        method = build(name, 7, NET)
        config = zellige.Config(name, method.config, net=NET, train=Train(times=times))
        assert loop(method, config, 7).meters.unit == unit


def test_rate():
    t = Train(steps=110, warmup=10, lr=2.0)
    assert [learning_rate(t, s) for s in (0, 4, 9)] == pytest.approx([0.2, 1.0, 2.0])
    assert learning_rate(t, 60) == pytest.approx(1.0)  # half of the cosine
    assert learning_rate(t, 110) == pytest.approx(0.0, abs=1e-12)
    assert learning_rate(t, 200) == pytest.approx(0.0, abs=1e-12)
    constant = replace(t, decay="constant")
    assert {learning_rate(constant, s) for s in range(10, 300, 7)} == {2.0}
    late = replace(t, decay="wsd")
    assert [learning_rate(late, s) for s in (4, 50, 88, 99, 110, 200)] == pytest.approx([1.0, 2.0, 2.0, 1.0, 0.0, 0.0])
    root = replace(t, decay="inverse-sqrt")
    assert [learning_rate(root, s) for s in (4, 9, 39, 89)] == pytest.approx(
        [1.0, 2.0, 1.0, 2 / 3]
    )  # by sqrt(10 / step)
    assert learning_rate(replace(root, warmup=0), 3) == pytest.approx(1.0)


# ---------------------------------------------------------------------------------------------------- averaging
@pytest.mark.parametrize("warmup", [True, False])
def test_average_is_the_recursion(warmup):
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    ema, expected = EMA(module, 0.9, warmup), module.weight.detach().clone()
    for step in range(1, 200):
        with torch.no_grad():
            module.weight.normal_()
        ema.update(step)
        decay = min(0.9, (1 + step) / (10 + step)) if warmup else 0.9
        expected = decay * expected + (1 - decay) * module.weight
        torch.testing.assert_close(ema.average["weight"], expected)
    assert list(ema.average) == ["weight"]


def test_swapping_is_undone_whatever_happens():
    module = torch.nn.Linear(3, 2)
    ema = EMA(module, 0.5)
    with torch.no_grad():
        module.weight.normal_()
    before, where = module.weight.detach().clone(), module.weight.data_ptr()

    def interrupted():
        with ema.swapped():
            assert torch.equal(module.weight, ema.average["weight"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.equal(module.weight, before)
    assert module.weight.data_ptr() == where
    with EMA(module, 0.0).swapped():
        assert torch.equal(module.weight, before)


def test_what_is_kept_is_the_average(tmp_path):
    """model.safetensors holds the average, training.safetensors the weights; without EMA they are one."""
    averages = []
    for ema, warmup in ((0.9, True), (0.9, False), (0.0, True)):
        folder = tmp_path / f"{ema} {warmup}"
        go(folder, ema=ema, ema_warmup=warmup)
        last = newest(folder / "checkpoints")
        assert last is not None
        average, _ = load_tensors(last / "model.safetensors")
        state, _ = load_tensors(last / "training.safetensors")
        weights = {k.removeprefix("weights."): v for k, v in state.items() if k.startswith("weights.")}
        assert bool(weights) == bool(ema)
        assert not any(torch.equal(average[k], w) for k, w in weights.items())
        averages.append(average)
    assert not all(torch.equal(value, averages[1][name]) for name, value in averages[0].items())  # of the same weights


class Tied(torch.nn.Module):
    """One table for what is read and what is predicted."""

    length = 8

    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(8, 16), torch.nn.Linear(16, 8, bias=False)
        self.head.weight = self.embedding.weight

    def features(self, x, time=None, **kw):
        return self.embedding(x) + self.embedding(x).mean(1, keepdim=True)


def test_a_tied_weight_is_kept_as_its_average_by_each_of_its_names(tmp_path):
    run = train("mdlm", data=data(), net=Tied(), train=settings(steps=6, ema=0.9), run=tmp_path / "a")
    kept = load(run.folder, net=Tied())
    assert kept.method.network.head.weight is kept.method.network.embedding.weight
    last = newest(run.folder / "checkpoints")
    assert last is not None
    average, _ = load_tensors(last / "model.safetensors")
    live, _ = load_tensors(last / "training.safetensors")
    names = ("network.embedding.weight", "network.head.weight")
    assert all(torch.equal(average[name], kept.method.network.head.weight) for name in names)
    assert torch.equal(*(live[f"weights.{name}"] for name in names))
    assert not torch.equal(average[names[0]], live[f"weights.{names[0]}"])


# ---------------------------------------------------------------------------------------------------- a run
@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder, notes = tmp_path_factory.mktemp("runs") / "a", Notes()
    chosen = settings(tensorboard=True, seed=3, validate_draws=2, validate_rows=5)
    return train("mdlm", data=data(), net=NET, train=chosen, run=folder, progress=notes), notes


def test_run_folder(finished):
    run, notes = finished
    names = {p.name for p in run.folder.iterdir() if not p.name.startswith("events")}
    assert names == {"config.json", "metrics.csv", "checkpoints", "samples", "log.txt"}
    assert list(run.folder.glob("events.out.tfevents.*"))
    points = sorted(p.name for p in (run.folder / "checkpoints").iterdir())
    assert {"best", "last", "step-000004"} <= set(points)
    sample = json.loads((run.folder / "samples" / "step-000004.jsonl").read_text())
    assert list(sample) == ["text", "tokens", "seed", "calls", "prompt", "checksum"]
    again = Sample(count=1, steps=3, seed=3).run(load(run.folder, checkpoint="last"))
    assert (sample["seed"], sample["tokens"]) == (3, again.tokens[0])
    assert len(sample["tokens"]) == 8
    plain = json.loads((run.folder / "config.json").read_text())
    assert plain["about"]["data"]["sha256"]
    assert plain["about"]["versions"]["torch"] == torch.__version__.partition("+")[0] or torch.__version__
    assert [s[0] for s in notes.steps] == [1, 2, 3, 4]
    assert [v[0] for v in notes.validations] == [2, 4]
    assert notes.notes[0].startswith("mdlm ")
    assert notes.notes[2].endswith(": validates every 2 steps, saves every 30 minutes")


def test_metrics(finished):
    run, _notes = finished
    table = rows(run.folder)
    assert [r["step"] for r in table] == ["1", "2", "3", "4"]
    assert {r["unit"] for r in table} == {"nats/token"}
    assert [bool(r["validation"]) for r in table] == [False, True, False, True]
    assert [int(r["tokens"]) for r in table] == [32, 64, 96, 128]
    assert [float(r["rate"]) for r in table] == [learning_rate(run.config.train, s) for s in range(4)]
    assert float(table[0]["loss"]) == pytest.approx(math.log(7), abs=0.5)
    best = min((r for r in table if r["validation"]), key=lambda r: float(r["validation"]))
    assert (run.best_step, run.validation.value) == (int(best["step"]), float(best["validation"]))
    assert float(best["validation_low"]) < run.validation.value < float(best["validation_high"])


def test_summary(finished):
    run, _ = finished
    first, second, third = summary(run)
    assert first.startswith("trained 4 steps in ")
    assert second == f"  validation {run.validation}   the best of 2, at step {run.best_step}; lower is better"
    assert "checkpoints last and best" in third


def test_model_of_a_run(finished):
    run, _ = finished
    model = load(run.folder)
    assert model.about["step"] == run.best_step
    assert model.config == run.config
    assert run.model.unit == "nats/token"


def test_validation_is_evaluation(finished):
    """What the run says of its last checkpoint is what `evaluate_rows` says of it."""
    from zellige.data.prepare import prepare
    from zellige.evaluation.evaluate import evaluate_rows

    run, _ = finished
    model = load(run.folder, checkpoint="last")
    rows_ = prepare(data(), 8).validation
    result = evaluate_rows(model.method, rows_, draws=2, seed=3, limit=5)
    assert result.value == pytest.approx(float(rows(run.folder)[-1]["validation"]), rel=1e-6)


def test_nothing_is_random_but_the_seed(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(hash(name) % 1000)
        go(tmp_path / name, seed=seed)
    losses = {n: [r["loss"] for r in rows(tmp_path / n)] for n in "abc"}
    assert losses["a"] == losses["b"] != losses["c"]


def test_parts_train_like_the_whole(tmp_path):
    go(tmp_path / "a", accumulate=1)
    go(tmp_path / "b", accumulate=4)
    a, b = ([float(r["loss"]) for r in rows(tmp_path / n)] for n in "ab")
    assert a == pytest.approx(b, abs=1e-6)


def test_rows_stand_for_steps(tmp_path):
    """A row is the mean since the row before; it also survives an interruption in between."""
    go(tmp_path / "each", steps=6, validate_every=0)
    go(tmp_path / "some", steps=6, validate_every=0, log_every=4)
    each, some = rows(tmp_path / "each"), rows(tmp_path / "some")
    assert [r["step"] for r in some] == ["4", "6"]
    assert float(some[0]["loss"]) == pytest.approx(sum(float(r["loss"]) for r in each[:4]) / 4)
    assert float(some[1]["loss"]) == pytest.approx(sum(float(r["loss"]) for r in each[4:]) / 2)


class Flat(MDLM):
    """A loss that is not a bound."""

    name = "flat"
    loss_is_bound = False

    def loss(self, batch, generator=None):
        return 0.5 * super().loss(batch, generator)


def test_loss_that_is_no_bound_has_no_unit(tmp_path):
    notes = Notes()
    go(tmp_path / "a", method=Flat, progress=notes, steps=2)
    assert {s[2] for s in notes.steps} == {None}
    assert {r["unit"] for r in rows(tmp_path / "a")} == {""}
    assert load(tmp_path / "a", method=Flat).method.name == "flat"


@pytest.mark.parametrize("process", ["uniform", "absorbing"])
def test_discrete_time_samples_in_as_many_steps_as_are_asked_for(process, tmp_path):
    notes, options = Notes(), D3PM.Config(process, diffusion_steps=16)
    run = go(tmp_path / "run", method="d3pm", options=options, progress=notes)  # sample_steps is 3
    assert notes.notes[0].split(maxsplit=1)[1].startswith("discrete time, T = 16, ")
    assert "| Time | discrete time, T = 16 |" in card(run.model)
    result = zellige.evaluate(run.model, data(), limit=4)
    assert results_heading(result)[0].startswith("d3pm, discrete time, T = 16, ")
    sample = json.loads((run.folder / "samples" / "step-000004.jsonl").read_text().splitlines()[0])
    assert sample["calls"] == 3 if process == "uniform" else sample["calls"] <= 3
    assert {row["unit"] for row in rows(run.folder)} == {""}  # lambda is not 0


@pytest.mark.parametrize(("letters", "tokenizer", "bits"), [("abcd", "characters", 2.0), ("αβγδ", "bytes", 16.0)])
def test_bits_per_character(letters, tokenizer, bits, tmp_path):
    """Characters are told in bits: log2 V of each token before anything is learnt, and a Greek letter has two bytes."""
    text = tmp_path / "a.txt"
    text.write_text("".join(letters[i % 4] for i in torch.randint(0, 4, (4000,)).tolist()), encoding="utf-8")
    source = Data("text", path=str(text), cache=str(tmp_path / "cache"), tokenizer=tokenizer)
    run = go(tmp_path / "run", data=source, lr=1e-6, steps=2)
    assert rows(run.folder)[0]["unit"] == "bits/char"
    assert float(rows(run.folder)[0]["loss"]) == pytest.approx(bits, rel=0.15)
    assert run.validation.unit == "bits/char"
    assert run.validation.value == pytest.approx(bits, rel=0.15)


def test_padding_does_not_count(tmp_path):
    """One document a row: losses are per token that counts."""
    text = tmp_path / "a.txt"
    text.write_text("\n".join(["ab", "ba", "abab"] * 60))
    source = Data("text", path=str(text), cache=str(tmp_path / "cache"), pack="document", fill=0)
    run = go(tmp_path / "run", data=source, lr=1e-6, steps=2, batch=32)
    per_character = float(rows(run.folder)[0]["loss"])
    assert per_character == pytest.approx(math.log2(run.model.tokenizer.size), abs=0.5)


@pytest.mark.parametrize("choice", [{"precision": "bfloat16"}, {"decay": "constant"}, {"clip": 0.0}])
def test_choices(choice, tmp_path):
    run = go(tmp_path / "a", **choice)
    assert math.isfinite(run.validation.value)


@pytest.mark.long
def test_compiled(tmp_path):
    run = go(tmp_path / "a", compile=True)
    plain = go(tmp_path / "b")
    assert run.validation.value == pytest.approx(plain.validation.value, abs=1e-3)


class Mine(torch.nn.Module):
    length = 8

    def __init__(self):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(8, 16), torch.nn.Linear(16, 8)

    def features(self, x, time=None, **kw):
        return self.embed(x)

    def head(self, h):
        return self.out(h)


def test_own_network(tmp_path):
    run = go(tmp_path / "a", net=Mine())
    assert load(run.folder, net=Mine()).config.network == "Mine"
    again = train("mdlm", data=data(), net=Mine(), train=settings(steps=6), run=run.folder, resume=True)
    assert again.steps == 6
    with pytest.raises(InputError, match="the run has an own network \\(Mine\\); hand it over"):
        train("mdlm", data=data(), run=run.folder, resume=True)


def test_a_run_goes_on_for_the_steps_that_are_said(tmp_path):
    """Minutes said beside them, or those of a command typed again, do not come before the steps of the run."""
    run = go(tmp_path / "a")
    again = Training("mdlm", folder=str(run.folder), resume=True)
    for typed, steps in (({"train.steps": 6}, 6), ({}, 4)):
        asked = replace(again, settings={"train.minutes": 5} | typed).filled()
        assert (asked.train.steps, asked.train.minutes) == (steps, 0.0)


def test_a_run_in_other_parts_says_that_it_is_the_same_only_where_it_is():
    """Dropout and self-conditioning are drawn for each part; whether an own network draws is not known."""
    plain = zellige.Config("mdlm", MDLM.Config(), data(), NET, settings(), "a")
    of_nets = [replace(plain, net=replace(NET, **drawn)) for drawn in ({"dropout": 0.1}, {"self_condition": True})]
    for config in (plain, *of_nets, replace(plain, network="Mine")):
        for changes, equal in (({}, True), ({"train.accumulate": [1, 2]}, config is plain)):
            said = notes.resumed(2, config, prepare(data(), 8).train, changes)
            assert ("same numbers as unbroken" in said) == equal


def test_a_run_goes_on_with_the_rows_of_its_validation(tmp_path):
    """Bounds of other rows cannot say which step is the best."""
    go(tmp_path / "a")
    with pytest.raises(InputError, match=r"`resume` with `train\.validate_rows` 2, but the run has 4"):
        go(tmp_path / "a", resume=True, validate_rows=2)


def test_the_best_validation_is_the_lowest_and_the_first_of_equal_ones():
    validation = loop(build("mdlm", 7, NET), zellige.Config("mdlm", MDLM.Config(), net=NET), 7).validation
    bounds = [summarize(torch.tensor([value, value]), torch.ones(2), "nats/token") for value in (3.0, 2.0, 2.5, 2.0)]
    better = [validation._remember(step, bound) for step, bound in enumerate(bounds, 1)]
    assert (better, validation.best["step"], validation.count) == ([True, True, False, False], 2, 4)


def test_keeps_the_last_and_the_best(tmp_path):
    run = go(tmp_path / "a", steps=9, save_every=1, validate_every=1, keep=2)
    there = {p.name for p in (run.folder / "checkpoints").iterdir()}
    assert there == {"best", "last", "step-000008", "step-000009", f"step-{run.best_step:06d}"}


def test_saves_by_the_minute(tmp_path, monkeypatch):
    """Of steps of 25 seconds, every fifth is the first that ends two minutes or more after the last checkpoint."""
    saved, seconds = [], 0.0
    write, agree = files.write_folder, fit.Loop.agree

    def step(self):
        nonlocal seconds
        seconds = 25.0 * self.step
        return agree(self)

    monkeypatch.setattr(files, "write_folder", lambda path, fill: (saved.append(path.name), write(path, fill)))
    monkeypatch.setattr(fit, "time", SimpleNamespace(monotonic=lambda: seconds))
    monkeypatch.setattr(fit.Loop, "agree", step)
    go(tmp_path / "a", steps=12, validate_every=0, save_minutes=2)
    assert saved == ["step-000005", "step-000010", "step-000012"]


# ---------------------------------------------------------------------------------------------------- going on
def test_only_some_choices_may_change(finished, tmp_path):
    run, _ = finished
    with pytest.raises(InputError) as caught:
        train("mdlm", data=data(), net=replace(NET, layers=2), run=run.folder, resume=True)
    assert str(caught.value) == "`resume` with `net.layers` 2, but the run has 1; leave it out, or use a new `run`"
    for name, wrong in {"batch": 8, "seed": 4, "ema": 0.5, "betas": (0.5, 0.5)}.items():
        with pytest.raises(InputError, match=rf"^`resume` with `train\.{name}`"):
            train("mdlm", data=data(), train=replace(run.config.train, **{name: wrong}), run=run.folder, resume=True)
    with pytest.raises(InputError, match="`resume` with `schedule` cosine, but the run has loglinear"):
        train("mdlm", data=data(), options=MDLM.Config(schedule="cosine"), run=run.folder, resume=True)
    with pytest.raises(InputError, match="is a run of mdlm, not md4; zellige train mdlm continues it"):
        train("md4", data=data(), run=run.folder, resume=True)
    with pytest.raises(InputError, match="the data has changed since the run began"):
        train("mdlm", data=Data.of(tokens() * 0, vocabulary=7), run=run.folder, resume=True)


def test_changes_are_recorded(tmp_path):
    go(tmp_path / "a")
    notes = Notes()
    more = settings(steps=6, lr=1e-3, log_every=2, tensorboard=False)
    run = train("mdlm", data=data(), train=more, run=tmp_path / "a", resume=True, progress=notes)
    assert run.steps == 6
    assert run.config.train == more
    plain = json.loads((tmp_path / "a" / "config.json").read_text())
    assert plain["about"]["changes"] == [
        {"step": 4, "train.steps": [4, 6], "train.lr": [1e-2, 1e-3], "train.log_every": [1, 2]}
    ]
    assert plain["train"]["steps"] == 6
    assert "  changed: `train.lr` 0.001 (was 0.01)" in notes.notes
    assert not any("same numbers as unbroken" in n for n in notes.notes)
    assert float(rows(tmp_path / "a")[-1]["rate"]) == learning_rate(more, 5)


def test_going_on_with_a_finished_run_does_nothing(finished):
    run, _ = finished
    before = {p: p.stat().st_mtime_ns for p in run.folder.rglob("*") if p.is_file()}
    again = train("mdlm", data=data(), run=run.folder, resume=True)
    assert (again.validation.value, again.best_step, again.steps) == (run.validation.value, run.best_step, 4)
    assert {p: p.stat().st_mtime_ns for p in run.folder.rglob("*") if p.is_file()} == before


def test_damaged_checkpoint_is_not_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    go(Path("a"), steps=2)
    for name in ("model.safetensors", "training.safetensors"):
        file = Path("a/checkpoints/last", name)
        whole = file.read_bytes()
        file.write_bytes(whole[:-9])
        with pytest.raises(InputError) as caught:
            go(Path("a"), resume=True)
        shown = f"'a/checkpoints/step-000002/{name}'"  # the only one: nothing older could be gone on from
        assert str(caught.value).startswith(f"{shown} is truncated ({len(whole) - 9:,} of {len(whole):,} bytes)")
        file.write_bytes(whole[:-9] + bytes(9))
        with pytest.raises(InputError) as caught:
            go(Path("a"), resume=True)
        assert str(caught.value).startswith(f"{shown} has changed since it was written (SHA256SUMS)")
        file.write_bytes(whole)
    Path("a/checkpoints/last/SHA256SUMS").unlink()
    tensors, meta = load_tensors(Path("a/checkpoints/last/model.safetensors"))
    del tensors["network.head.bias"]
    save_tensors(Path("a/checkpoints/last/model.safetensors"), tensors, meta)
    with pytest.raises(
        InputError, match=r"checkpoint does not fit: 1 key missing \(network\.head\.bias\), 0 unexpected"
    ):
        go(Path("a"), resume=True)


def test_a_damaged_checkpoint_is_no_reason_to_go_back(tmp_path, monkeypatch):
    """It is newer than what could be gone on from: refused in one line that says what to do, and it stays."""
    monkeypatch.chdir(tmp_path)
    go(Path("a"), save_every=1, validate_every=0, keep=2)
    for name in ("model.safetensors", "training.safetensors", "training.json"):
        file = Path("a/checkpoints/step-000004", name)
        whole = file.read_bytes()
        file.write_bytes(whole[:-9])
        message = refused(Path("a"), steps=9, resume=True)
        assert message.startswith(f"'a/checkpoints/step-000004/{name}' ")
        assert message.endswith(", or remove 'a/checkpoints/step-000004' to go on from step 3")
        file.write_bytes(whole)
    (Path("a/checkpoints/step-000004") / "training.json").unlink()
    message = refused(Path("a"), steps=9, resume=True)
    assert message.startswith("'a/checkpoints/step-000004")
    assert message.endswith(", or remove 'a/checkpoints/step-000004' to go on from step 3")
    shutil.rmtree("a/checkpoints/step-000004")  # as it was told
    notes = Notes()
    assert go(Path("a"), steps=6, resume=True, progress=notes).steps == 6
    assert any(n.startswith("resumed at step 3 of 6") for n in notes.notes)


def test_the_step_of_a_checkpoint_is_that_of_its_state(tmp_path, monkeypatch):
    """A folder of another name is refused with what is right then: a run that went on from it would have the weights of one
    step and the data of another."""
    monkeypatch.chdir(tmp_path)
    go(Path("a"), save_every=1, validate_every=0, keep=4)
    points = Path("a/checkpoints")
    before = (Path("a") / "metrics.csv").read_text()
    shutil.copytree(points / "step-000004", points / "step-000005")
    wrong = "'a/checkpoints/step-000005' holds step 4, as its training.json says; "
    assert refused(Path("a"), steps=9, resume=True) == wrong + "remove it, 'step-000004' is there too"
    shutil.rmtree(points / "step-000004")
    assert refused(Path("a"), steps=9, resume=True) == wrong + "rename it to 'step-000004'"
    assert refused(Path("a"), resume=True) == wrong + "rename it to 'step-000004'"  # nothing would be left to do
    assert (Path("a") / "metrics.csv").read_text() == before
    (points / "step-000005").rename(points / "step-000004")  # as it was told
    notes = Notes()
    assert go(Path("a"), steps=6, resume=True, progress=notes).steps == 6
    assert any(n.startswith("resumed at step 4 of 6") for n in notes.notes)


@pytest.mark.parametrize("steps", [4, 9])
def test_an_empty_newest_checkpoint_names_the_one_before(steps, tmp_path, monkeypatch):
    """As a copy that broke off leaves it; also where the run had been finished."""
    monkeypatch.chdir(tmp_path)
    go(Path("a"), save_every=1, validate_every=0, keep=4)
    last = Path("a/checkpoints/step-000004")
    shutil.rmtree(last)
    last.mkdir()
    assert refused(Path("a"), steps=steps, resume=True) == (
        "'a/checkpoints/step-000004' holds no training.json, from which a training goes on; copy the checkpoint again, or "
        "remove 'a/checkpoints/step-000004' to go on from step 3"
    )
    last.rmdir()
    assert go(Path("a"), steps=steps, resume=True).steps == steps


def test_checkpoints_of_other_names_are_not_begun_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    go(Path("a"))
    points = Path("a/checkpoints")
    (points / "step-000004").rename(points / "step-000004-backup")
    (points / "step-000002").rename(points / "mine")
    assert refused(Path("a"), steps=9, resume=True) == (
        "'a/checkpoints' holds no checkpoint such as step-000500, only best, last, mine, step-000004-backup; "
        "copy the run again, or replace it with `overwrite`"
    )
    with pytest.raises(InputError, match=r"holds no checkpoint such as step-000500, only best, last, mine, step-"):
        load("a")
    shutil.copytree(points / "step-000004-backup", points / "step-000004")
    assert go(Path("a"), steps=6, resume=True).steps == 6
    assert {"mine", "step-000004-backup"} <= {p.name for p in points.iterdir()}


# ---------------------------------------------------------------------------------------------------- metrics.csv
def ruined(path: Path, how: str) -> str:
    """What somebody, or a disk, has made of metrics.csv."""
    text = path.read_text()
    if how == "gone":
        path.unlink()
        return ""
    if how == "garbage":
        path.write_bytes(b"\x00\xff" * 40)
    elif how == "a row less":
        path.write_text(text.replace(text.splitlines(keepends=True)[1], ""))
    elif how == "another number":
        path.write_text(text.replace("0.", "1.", 1))
    elif how == "cut":
        path.write_text(text.splitlines(keepends=True)[0])
    return path.read_bytes().decode(errors="replace")


@pytest.mark.parametrize("how", ["gone", "garbage", "a row less", "another number"])
@pytest.mark.parametrize("steps", [4, 6])
def test_metrics_come_back(how, steps, tmp_path):
    """Each checkpoint holds the history up to its step; of a finished run too."""
    folder, notes = tmp_path / "a", Notes()
    go(folder)
    before = (folder / "metrics.csv").read_text()
    there = ruined(folder / "metrics.csv", how)
    go(folder, resume=True, steps=steps, progress=notes)
    assert (folder / "metrics.csv").read_text().startswith(before)
    assert [r["step"] for r in rows(folder)] == [str(i + 1) for i in range(steps)]
    what = "missing" if how == "gone" else "damaged"
    kept = "" if how == "gone" else "; what was there is in metrics-damaged.csv"
    told = [n for n in notes.notes if n.startswith("note: ")]
    assert told == [f"note: metrics.csv was {what}: restored from the checkpoint of step 4{kept}"]
    if there:
        assert (folder / "metrics-damaged.csv").read_bytes().decode(errors="replace") == there
        go(folder, overwrite=True, steps=1)
        assert not (folder / "metrics-damaged.csv").exists()


@pytest.mark.parametrize("steps", [4, 6])
def test_a_damaged_copy_of_the_metrics_restores_nothing(steps, tmp_path):
    folder = tmp_path / "a"
    go(folder)
    before = (folder / "metrics.csv").read_bytes()
    ruined(folder / "checkpoints/step-000004/metrics.csv", "another number")
    with pytest.raises(InputError, match=r"step-000004/metrics\.csv' has changed since it was written .SHA256SUMS"):
        go(folder, resume=True, steps=steps)
    assert (folder / "metrics.csv").read_bytes() == before
    assert not (folder / "metrics-damaged.csv").exists()


@pytest.mark.parametrize("how", ["garbage", "a row less", "another number", "cut"])
def test_changed_metrics_are_not_read(how, tmp_path, monkeypatch):
    """Where a checkpoint can tell; a checkpoint whose copy is damaged cannot, and rows after the last one are not in it."""
    monkeypatch.chdir(tmp_path)
    folder = Path("a")
    go(folder, save_every=2)
    whole = (folder / "metrics.csv").read_text()
    for text in (whole, whole + whole.splitlines()[-1].replace("4,", "5,", 1) + "\n"):
        (folder / "metrics.csv").write_text(text)
        assert read_metrics(folder) == text
    (folder / "metrics.csv").write_text(whole)
    ruined(folder / "metrics.csv", how)
    said = r"^'a/metrics\.csv' (has changed since 'a/checkpoints/step-00000[24]' was written; training with|is not UTF-8 text;)"
    for step in (4, 2):
        with pytest.raises(InputError, match=said):
            read_metrics(folder)
        if how == "garbage":
            return
        with allow(changed=True):
            assert read_metrics(folder) == (folder / "metrics.csv").read_text()
        ruined(folder / "checkpoints" / f"step-00000{step}" / "metrics.csv", "garbage")
    assert read_metrics(folder) == (folder / "metrics.csv").read_text()


def test_metrics_without_a_checkpoint(tmp_path):
    folder, notes = tmp_path / "a", Notes()
    go(folder)
    before = (folder / "metrics.csv").read_text()
    shutil.rmtree(folder / "checkpoints")
    go(folder, resume=True, progress=notes)
    assert "note: no checkpoint yet, so it begins at step 0; what was there is in metrics-before.csv" in notes.notes
    assert (folder / "metrics-before.csv").read_text() == before


@pytest.mark.parametrize("name", ["metrics.csv", "samples", "log.txt", "checkpoints", "config.json"])
def test_something_in_the_way_of_a_run(name, tmp_path):
    """One line, or for log.txt, on which nothing depends, nothing."""
    folder = tmp_path / "a"
    go(folder, steps=1)
    what = folder / name
    shutil.rmtree(what) if what.is_dir() else what.unlink()
    what.write_text("x") if name in ("samples", "checkpoints") else what.mkdir()
    if name == "log.txt":
        assert go(folder, steps=2, resume=True).steps == 2
        return
    with pytest.raises(InputError):
        go(folder, steps=2, resume=True)


# ---------------------------------------------------------------------------------------------------- wrong input
def refused(folder, **how) -> str:
    """The sentence; and nothing was written."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(InputError) as caught:
        go(folder, **how)
    assert sorted(folder.parent.rglob("*")) == before
    return str(caught.value)


def test_folder_in_use(finished, tmp_path, monkeypatch):
    run, _ = finished
    monkeypatch.chdir(run.folder.parent)
    message = "'a' holds a run at step 4; add `resume` to continue it or `overwrite` to replace it"
    assert refused(run.folder) == message
    assert "exclude each other" in refused(run.folder, resume=True, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    (tmp_path / "project" / "checkpoints").mkdir(parents=True)
    (tmp_path / "project" / "config.json").write_text('{"name": "my project"}')
    for name in ("mine", "project"):
        for how in ({}, {"overwrite": True}):
            assert refused(tmp_path / name, **how).endswith("holds something that is not a run; choose another `run`")
    assert refused(tmp_path / "mine" / "thesis.tex").endswith("is a file; give `run` a folder")
    assert refused(tmp_path / "none", resume=True).endswith("to resume; drop `resume` to start one")


def test_a_model_is_no_run(finished, tmp_path, monkeypatch):
    """Nor is a checkpoint, though both have a config.json."""
    run, _ = finished
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.folder / "checkpoints/step-000004", "b")
    run.model.save("m")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for how in ({}, {"resume": True}, {"overwrite": True}):
        assert refused(Path("m"), **how) == (
            "'m' is a saved model without a training state; begin with it: `train.start` m and a new `run`"
        )
        assert refused(Path("b"), **how) == "'b' is a checkpoint of a run; give `run` the folder of that run"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_overwriting_removes_the_run_and_nothing_else(tmp_path):
    go(tmp_path / "a", steps=3)
    (tmp_path / "a" / "notes.txt").write_text("mine")
    (tmp_path / "a" / "report.html").write_text("old")
    go(tmp_path / "a", steps=2, overwrite=True)
    assert [r["step"] for r in rows(tmp_path / "a")] == ["1", "2"]
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "a" / "report.html").exists()
    assert not (tmp_path / "a" / "checkpoints" / "step-000003").exists()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"data": Data.of(tokens(), vocabulary=7, validation=0, test=0)},
         "'tokens' has no validation split, only train; set `data.validation` above 0"),
        ({"data": Data.of({"test": ["a text of so many letters"] * 9}, tokenizer="bytes", fill=0)},
         "'text' has no train split, only test; use another data set"),
        ({"net": Mine(), "optimizer": "muon"},
         "`train.optimizer` muon is for the matrices of blocks, and this network names none: a block's class attribute "
         'does, such as matrices = ("qkv", "mlp"); or use adamw'),
    ],
)  # fmt: skip
def test_a_run_is_overwritten_only_by_one_that_can_begin(how, message, tmp_path):
    assert refused(tmp_path / "a", **how) == message
    go(tmp_path / "a", steps=1)
    assert refused(tmp_path / "a", overwrite=True, **how) == message


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"method": "mdml"}, "unknown method 'mdml'; did you mean 'mdlm'? (all: zellige list methods)"),
        ({"batch": 5, "accumulate": 2},
         "`train.batch` 5 does not split into 2 equal parts (1 device x 2 accumulated); use 4 or 6"),
        ({"nodes": 2},
         "`train.nodes` is 2, but only this process was started; on each node: torchrun --nnodes 2 --nproc-per-node 1 "
         "--rdzv-backend c10d --rdzv-endpoint HOST:29500 -m -- zellige train ..."),
        ({"net": Net(layers=1, hidden=16, heads=2, length=16)},
         "the tokens come in rows of 8, the network takes 16; use `net.length` 8"),
    ],
)  # fmt: skip
def test_wrong_input(how, message, tmp_path):
    assert refused(tmp_path / "a", **how) == message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(tmp_path):
    assert "this machine has no GPU that torch can use" in refused(tmp_path / "a", device="cuda")


def test_wandb_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refused(tmp_path / "a", wandb="project") == "`train.wandb` needs 'wandb'; pip install 'zellige[wandb]'"


def test_logs(tmp_path, monkeypatch):
    """The numbers of metrics.csv also go to TensorBoard and to Weights & Biases; a run that goes on is the same run there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    calls = []

    class Session:
        id = "id1"

        def log(self, numbers, step):
            calls.append((step, numbers["loss"]))

        def finish(self):
            calls.append("finish")

    def init(**how):
        calls.append((how["project"], how["id"]))
        return Session()

    fake = types.ModuleType("wandb")
    fake.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    fake.init = init  # pyright: ignore
    monkeypatch.setitem(sys.modules, "wandb", fake)
    go(tmp_path / "a", steps=2, wandb="project", tensorboard=True)
    losses = [float(r["loss"]) for r in rows(tmp_path / "a")]
    assert calls == [("project", None), (1, losses[0]), (2, losses[1]), "finish"]
    go(tmp_path / "a", steps=3, wandb="project", tensorboard=True, resume=True)
    assert calls[4] == ("project", "id1")
    events = EventAccumulator(str(tmp_path / "a")).Reload()
    scalars = sorted(events.Scalars("loss"), key=lambda e: e.step)  # the files of one second are read in no fixed order
    assert [e.step for e in scalars] == [1, 2, 3]
    assert [e.value for e in scalars][:2] == pytest.approx(losses)


# ---------------------------------------------------------------------------------------------------- when it goes wrong
class Breaks(MDLM):
    """A loss that grows, and is not finite at the third step."""

    name = "breaks"
    wrong, growth, calls = math.nan, 1.0, 0

    def loss(self, batch, generator=None):
        type(self).calls += 1
        return super().loss(batch, generator) * (self.wrong if self.calls == 3 else self.growth**self.calls)


@pytest.mark.parametrize(("wrong", "word", "growth"), [(math.nan, "NaN", 1.0), (math.inf, "infinite", 30.0)])
def test_loss_that_is_not_finite(wrong, word, growth, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Breaks.calls, Breaks.wrong, Breaks.growth = 0, wrong, growth
    with pytest.raises(Diverged) as caught:
        go(Path("runs/a"), method=Breaks, clip=0.0, precision="bfloat16")
    first, safe, head, rate_, clip, precision, on = str(caught.value).splitlines()
    assert first.startswith(f"loss is {word} at step 3; last finite loss ")
    assert first.endswith(" nats/token at 2")
    assert safe == "  last good checkpoint: runs/a/checkpoints/step-000002 (kept)"
    assert head == "  likely causes, likeliest first"
    assert ("gradient norm rose" in rate_) == (growth > 1)
    assert rate_.split()[-4:] == ["`train.lr`", "0.003", "(now", "0.01)"]
    assert clip.split() == ["no", "clipping", "`train.clip`", "1"]
    assert precision.split() == ["bfloat16", "at", "hidden", "16", "`train.precision`", "float32"]
    assert len({line.index("`train") for line in (rate_, clip, precision)}) == 1
    assert on == f"  go on: zellige train {__file__}:Breaks --run runs/a --resume --train.lr 0.003"
    assert Path("runs/a/checkpoints/last").resolve().name == "step-000002"
    Breaks.calls, Breaks.growth = 10, 1.0
    calmer = settings(clip=0.0, precision="bfloat16", lr=0.003)
    assert train(Breaks, data=data(), train=calmer, run="runs/a", resume=True).steps == 4


class Full(Progress):
    """The disk is full from a step on: files may not grow beyond 4 kB, until `disk` is closed."""

    def __init__(self, at: int, disk: ExitStack):
        self.at, self.disk = at, disk

    def step(self, step, loss, unit, speed):
        if step == self.at:
            self.disk.enter_context(small_disk(4000))


def test_disk_full_while_saving(tmp_path, monkeypatch):
    """The system's own error; the last checkpoint is whole, nothing half is left, and the run goes on."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as disk, pytest.raises(InputError) as caught:
        go(Path("a"), progress=Full(3, disk), save_every=2, validate_every=0)
    message = str(caught.value)
    assert message.startswith("no space left while saving step 4 (needs 0.1 MB, ")
    assert message.endswith(" free); step 2 is intact, free space and `resume`")
    assert sorted(p.name for p in Path("a/checkpoints").iterdir()) == ["last", "step-000002"]
    assert load("a").about["step"] == 2
    notes = Notes()
    run = train("mdlm", data=data(), run="a", resume=True, progress=notes)
    assert any(n.startswith("resumed at step 2 of 4") for n in notes.notes)
    assert run.steps == 4


@pytest.mark.parametrize("name", ["row", "write_samples", "write_folder"])
def test_disk_full_at_any_other_write(name, tmp_path, monkeypatch):
    """metrics.csv, samples, a checkpoint: the same one line, and what was saved before is whole."""
    from zellige.training import logger, validation

    place = {"row": logger.MetricLogger, "write_samples": validation, "write_folder": files}[name]
    plain, calls = getattr(place, name), []

    def full(*args):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return plain(*args)

    monkeypatch.setattr(place, name, full)
    with pytest.raises(InputError) as caught:
        go(tmp_path / "a", save_every=2, validate_every=1)
    assert str(caught.value).startswith("no space left while ")
    step = load(tmp_path / "a", checkpoint="last").about["step"]
    assert f"step {step} is intact, free space and `resume`" in str(caught.value)
    monkeypatch.undo()
    assert go(tmp_path / "a", save_every=2, validate_every=1, resume=True).steps == 4


def test_libraries_are_held_back(tmp_path, capfd):
    import warnings

    class Warns(MDLM):
        name = "warns"

        def loss(self, batch, generator=None):
            warnings.warn("a library says so", UserWarning, stacklevel=1)
            return super().loss(batch, generator)

    go(tmp_path / "a", method=Warns, steps=1)
    out, err = capfd.readouterr()
    assert out == err == ""
    assert "a library says so" in (tmp_path / "a" / "log.txt").read_text()
