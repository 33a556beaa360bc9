"""The comparison of samplers: what no point beats against its definition, every measure against a plain count."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import zellige
from zellige import Data, Net, Train, cli
from zellige.data.prepare import prepare
from zellige.evaluation.interval import Number
from zellige.plugins.evaluations.generate.sample_sets import Set, Way
from zellige.plugins.studies.compare import samplers as compared
from zellige.plugins.studies.compare.command import all_samplers
from zellige.plugins.studies.compare.samplers_figure import samplers_figure
from zellige.show.record import Record
from zellige.studies import CompareSamplers

NET = Net(layers=1, hidden=16, heads=2, length=8, conv=3)
TRAIN = Train(
    steps=4, batch=4, lr=1e-2, warmup=0, validate_every=2, validate_rows=4, log_every=1, samples=0, tensorboard=False,
    device="cpu",
)  # fmt: skip
NAMES = ("ancestral", "confidence", "confidence:temperature=0", "klass", "fixed_order:order=backward")


@pytest.fixture(scope="module")
def data():
    tokens = torch.randint(0, 7, (160, 8), generator=torch.Generator().manual_seed(5))
    return Data.of(tokens, vocabulary=7, test=0.3)


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    run = tmp_path_factory.mktemp("samplers") / "run"
    zellige.train("mdlm", data=data, net=NET, train=TRAIN, run=run)
    return zellige.load(run)


def ask(data, out, **more):
    how = {"samplers": NAMES, "steps": (2, 4), "samples": 6, "limit": 3, "data": data, "out": out}
    return CompareSamplers(**(how | more))


@pytest.fixture(scope="module")
def done(model, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("samplers") / "out"
    return folder, ask(data, folder).run(model)


# ---------------------------------------------------------------------------------------------------- no other beats it
@pytest.mark.parametrize("higher", [False, True])
def test_no_other_point_costs_as_little_and_is_as_good(higher):
    draw = np.random.default_rng(0)
    for _ in range(100):
        costs, values = draw.integers(1, 5, 8).tolist(), draw.integers(0, 4, 8).tolist()
        for i, kept in enumerate(compared.unbeaten(costs, values, higher)):
            beats = [
                costs[j] <= costs[i] and (values[j] >= values[i] if higher else values[j] <= values[i])
                and (costs[j], values[j]) != (costs[i], values[i])
                for j in range(8)
            ]  # fmt: skip
            assert kept == (not any(beats))
    assert compared.unbeaten([1, 1], [math.nan, 2.0], higher) == [False, True]


def test_a_point_is_close_unless_a_whole_interval_is_better():
    numbers = [Number(0.5, 0.4, 0.6), Number(0.3, 0.2, 0.45), Number(0.1, 0.0, 0.2), Number(0.7, 0.5, 0.9)]
    assert compared.clearly_beaten([2, 2, 3, 3], numbers, higher=False) == [False, False, False, True]
    assert compared.clearly_beaten([2, 2, 3, 1], numbers, higher=True) == [False, True, True, False]


# ---------------------------------------------------------------------------------------------------- the whole of it
def test_network_evaluations_are_those_that_the_network_is_asked_for(model, done, monkeypatch):
    found, asked = done[1].findings, []
    predict = type(model.method).predict
    monkeypatch.setattr(
        type(model.method), "predict", lambda self, x, *a, **k: (asked.append(len(x)), predict(self, x, *a, **k))[1]
    )
    for point in found.points:
        asked.clear()
        again = compared.sample_sets.draw_samples(model, point.way, point.samples, 0, batch=3)
        assert point.calls * point.samples == sum(asked) == sum(again.calls or [])
        assert point.example == again.texts[0]


def test_the_exact_number_is_that_of_evaluate(model, data, done):
    corpus = prepare(data, 8)
    backward = next(p for p in done[1].findings.points if p.way.sampler == "fixed_order")
    result = zellige.evaluate(model, corpus, estimator="backward", limit=3)
    scale = math.log(2) if result.unit.startswith("bits") else 1.0
    assert backward.exact is not None
    assert backward.exact.value == pytest.approx(result.value * scale, rel=1e-6)
    exact = {point.name: point.exact is not None for point in done[1].findings.points}
    assert exact == {
        "ancestral": False, "confidence": True, "confidence temperature=0": False, "klass": True,
        "fixed_order order=backward": True,
    }  # fmt: skip


def test_what_is_measured_is_kept_and_gives_the_same(model, data, done, tmp_path, monkeypatch):
    measure, calls = compared.measure_point, []

    def stop(*args):
        calls.append(args[1])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(compared, "measure_point", stop)
    with pytest.raises(KeyboardInterrupt):
        ask(data, tmp_path / "c").run(model)
    again = ask(data, tmp_path / "c").run(model)
    assert len(calls) == 1 + len(again.findings.points)  # the first two are not measured again
    values = [[point.measures for point in record.findings.points] for record in (again, done[1])]
    assert repr(values[0]) == repr(values[1])
    other = ask(data, tmp_path / "c", seed=1, samplers=("ancestral",)).run(model)
    assert other.findings.points[0].example != again.findings.points[0].example


def test_the_same_command_goes_on(model, data, done, capsys, monkeypatch):
    """In the folder that is there already; and without a name every sampler is compared."""
    monkeypatch.setattr(compared, "measure_point", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr("zellige.plugins.studies.compare.command.load", lambda *_: model)
    monkeypatch.setattr("zellige.plugins.studies.compare.command.typed_data", lambda *_: data)
    command = f"compare runs/a --samplers {' '.join(NAMES)} --steps 2 4 --samples 6 --limit 3 --out {done[0]}"
    assert cli.main(command.split()) == 0
    assert str(done[1]).splitlines()[1] in capsys.readouterr().out
    assert all_samplers(["runs/a", "--samplers"]) == ["runs/a"]
    assert all_samplers(["a", "--samplers", "--steps", "2"]) == ["a", "--steps", "2"]
    assert all_samplers(["a", "--samplers", "klass"]) == ["a", "--samplers", "klass"]


def test_the_files_and_the_names_of_what_no_other_beats(done):
    folder, record = done
    read = Record.load(folder / "samplers.json")
    assert str(read) == str(record)
    assert (read.request.samplers, read.request.steps) == (NAMES, (2, 4))
    best = record.findings.points[min(range(8), key=lambda i: record.findings.points[i].calls)]
    assert any(best.name in line for line in str(record).splitlines() if line.startswith("no other beats"))
    page, figure = ((folder / f"samplers.{end}").read_text() for end in ("md", "svg"))
    for point in record.findings.points:
        assert f"| {point.name} | {point.way.steps} | {point.calls:.1f} |" in page
        assert point.name in figure
    axes = samplers_figure(record.findings).axes
    shown = sum(len(line.get_xdata()) for line in filled(axes[0]))
    assert shown == sum("evaluations" in point.unbeaten for point in record.findings.points)


def filled(ax: Any) -> list[Any]:
    """The markers that stand for themselves, without a curve; those of the intervals' ends left out."""
    return [line for line in ax.lines if line.get_linestyle() == "None" and line.get_marker() not in list("_|")]


# ---------------------------------------------------------------------------------------------------- quality
def test_a_puzzle_is_solved_if_every_cell_is_right():
    solutions = np.array([list(p) for p in itertools.permutations(range(4))][:5])
    clues = np.where(np.arange(4) < 2, solutions, -1)
    rows = type("Rows", (), {"clues": clues, "array": lambda _: solutions, "__len__": lambda _: 5})()
    judge = compared._puzzles(rows, 5)
    filled = solutions.copy()
    filled[0, 3] = filled[0, 2]  # one of two free cells is wrong
    measures = judge.measure(Set(Way(), [""] * 5, filled.tolist()))
    assert measures["solved"].value == 0.8
    assert measures["cells right"].value == pytest.approx(0.9)
    assert judge.fixed is not None
    assert np.array_equal(judge.fixed, clues)


def test_copies_of_a_molecule_count_once():
    texts = ["CCO", "CCO", "CCO", "CC", "C(", "c1ccccc1"]
    measures = compared._molecules(6).measure(Set(Way(), texts, [[ord(c) for c in text] for text in texts]))
    assert (measures["valid"].value, measures["valid and different"].value) == (5 / 6, 3 / 6)


def test_a_collapsed_sampler_is_far_from_the_data(model, data):
    judge = compared.quality_of(model, prepare(data, 8), 20)
    real = compared.sample_sets.real_texts(prepare(data, 8), "test", 40)
    assert real.rows is not None
    others, copies = (Set(Way(), texts, rows) for texts, rows in (
        (real.texts[::2], real.rows[::2]), ([real.texts[0]] * 20, [real.rows[0]] * 20)))  # fmt: skip
    far, near = (judge.measure(one)["energy distance"] for one in (copies, others))
    assert far.low > near.high
    assert near.value == judge.real["energy distance"].value
    held_out = judge.measure(Set(Way(), real.texts[1::2], real.rows[1::2]))["energy distance"]
    assert held_out.value < near.value  # of what the samples are compared with from itself


def test_enumerable_data_is_compared_with_its_distribution():
    data = Data.of(torch.tensor([[0, 1], [1, 0], [0, 1], [0, 1]] * 30), vocabulary=2, test=0.3)
    corpus = prepare(data, 2)
    model: Any = SimpleNamespace(tokenizer=corpus.tokenizer)
    judge = compared.quality_of(model, corpus, 8)
    measures = judge.measure(Set(Way(), [""] * 8, [[0, 1]] * 6 + [[1, 1]] * 2))
    assert (measures["total variation"].value, measures["inside"].value) == (0.25, 0.75)
