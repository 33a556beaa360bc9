"""`zellige sweep`: which points it tries, that it goes on, that a failing trial stops no other, what it prints and writes."""

import itertools
import json
from dataclasses import replace

import pytest
import torch

import zellige
from zellige import cli
from zellige.base.errors import Diverged, InputError
from zellige.cli.train import choose
from zellige.plugins.studies.sweep import command as sweep
from zellige.plugins.studies.sweep.search import SEARCHES, Axis, Chance, grid_points, tpe_points
from zellige.show.numbers import counted
from zellige.show.terminal import Terminal
from zellige.training.requests import Training
from zellige.training.setup import SIZES as SIZES_OF
from zellige.training.signals import Stopped

SIZES = [
    "--net.layers=1",
    "--net.hidden=16",
    "--net.heads=2",
    "--net.length=32",
    "--train.batch=4",
    "--train.samples=0",
]
SHORT = [*SIZES, "--data.path=notes.txt", "--train.steps=4", "--train.validate-rows=8", "--train.no-tensorboard"]
RATES = ["sweep", "mdlm", "--lr", "1e-4,1e-1", *SHORT]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("the value of the object is returned by the function " * 300)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    return tmp_path


# ---------------------------------------------------------------------------------------------------------- the points
AXES = [Axis.of("--a", "1,2,3"), Axis.of("--b", "x,y"), Axis.of("--c", "1e-4..1e-2"), Axis.of("--d", "2..5")]


def asked(points, count: int, value=lambda point: 0.0) -> list:
    made = [next(points)]
    while len(made) < count:
        made.append(points.send(value(made[-1])))
    return made


def test_a_grid_is_every_combination():
    points = grid_points(AXES[:2])
    assert asked(points, 6) == [*itertools.product("123", "xy")]
    with pytest.raises(StopIteration):
        points.send(0.0)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_search_stays_within_its_axes_and_asks_the_same_again(search):
    if search is tpe_points:
        pytest.importorskip("optuna")
    value = lambda point: None if point[0] == "2" else float(point[2])  # noqa: E731
    points = asked(search(AXES, 1), 30, value)
    assert points[:20] == asked(search(AXES, 1), 20, value)
    assert points != asked(search(AXES, 2), 30, value)
    a, b, c, d = (set(column) for column in zip(*points))
    assert (a, b, d) == ({"1", "2", "3"}, {"x", "y"}, {"2", "3", "4", "5"})
    assert all(1e-4 <= float(each) <= 1e-2 for each in c)
    assert sum(float(each) < 1e-3 for each in c) > 8  # by the logarithm: half of them, not a tenth


def test_tpe_comes_to_where_values_were_good():
    pytest.importorskip("optuna")
    axes = [Axis.of("--rate", "1e-4..1e0")]
    near = [
        abs(float(rate) - 0.01) for (rate,) in asked(tpe_points(axes, 0), 40, lambda point: abs(float(point[0]) - 0.01))
    ]
    assert sorted(near[20:])[10] < sorted(near[:10])[5]


def test_a_range_gives_values_within_it():
    """Three digits of a value may be outside: then it has more."""
    narrow, wide = Axis.of("--lr", "1.0051e-3..1.0059e-3"), Axis.of("--lr", "1e-4..1e-2")
    assert narrow
    assert wide
    chance = Chance(0)
    values = [narrow.suggested(chance) for _ in range(30)]
    assert all(1.0051e-3 <= float(value) <= 1.0059e-3 for value in values)
    assert len({*values}) > 3
    assert all(len(wide.suggested(chance)) <= 8 for _ in range(30))


def test_the_commas_of_a_mixture_separate_no_values():
    mix, other = ["--data.mix", "web/=0.7,books.jsonl=0.3"], ["--mix=a=1,b=2"]
    axes, rest = sweep._axes([*mix, "--lr", "1e-3,2e-3", *other])
    assert axes == [Axis.of("--lr", "1e-3,2e-3")]
    assert rest == [*mix, *other]


# ----------------------------------------------------------------------------------------------------------- the sweep
def test_a_sweep_ends_with_a_table_and_is_there_the_second_time(here, capsys, monkeypatch):
    assert cli.main(RATES) == 0
    out, err = capsys.readouterr()
    header, best, other, written = out.splitlines()
    assert header.split() == ["lr", "validation", "at", "step", "trained", "run"]
    assert [best.split()[0], other.split()[0]] == ["1e-1", "1e-4"]
    assert float(best.split()[2]) < float(other.split()[2])
    assert best.endswith("  runs/sweep/lr-1e-1")
    assert written == "  written   runs/sweep/sweep.json"
    assert "zellige evaluate runs/sweep/lr-1e-1" in err
    trials = lambda name: json.loads((here / name).read_text())["result"]["trials"]  # noqa: E731
    first = trials("runs/sweep/sweep.json")
    assert first[0]["point"] == {"lr": "1e-1"}
    monkeypatch.setattr("zellige.training.session.Session._train", lambda *_: 1 / 0)  # nothing is trained again
    assert cli.main([*RATES, "--json", "again.json"]) == 0
    for trial, before in zip(trials("again.json"), first, strict=True):
        assert trial | {"seconds": 0} == before | {"seconds": 0}


def test_a_failing_trial_is_one_line_and_a_stopped_sweep_goes_on(here, capsys, monkeypatch):
    real, ended = Training.start, []

    def start(training, progress):
        rate = training.train.lr
        if rate == 0.2 and not ended:
            ended.append(rate)
            raise Stopped(2)
        if rate == 0.1:
            raise Diverged("loss is NaN at step 3\n  last good checkpoint: none")
        return real(training, progress)

    monkeypatch.setattr(Training, "start", start)
    words = ["sweep", "mdlm", "--lr", "1e-3,0.1,0.2", *SHORT, "--run", "s"]
    assert cli.main(words) == 130
    assert "  the same command goes on from there\n" in capsys.readouterr().err
    before = (here / "s/lr-1e-3/metrics.csv").stat().st_mtime_ns
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert "2 of 3, about" in err
    assert "  failed: loss is NaN at step 3\n" in err
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["0.2", "1e-3", "0.1"]
    assert out.splitlines()[3].split() == ["0.1", "failed", "s/lr-0.1"]
    assert (here / "s/lr-1e-3/metrics.csv").stat().st_mtime_ns == before


def test_a_sweep_of_which_all_fails_ends_with_1(capsys, monkeypatch):
    def start(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Training, "start", start)
    assert cli.main([*RATES, "--trials", "1"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "  failed: out of memory"


def test_a_sizes_minutes_become_steps_that_all_trials_take(here, capsys, monkeypatch):
    """As many as the slowest may: each took all 10,000, and hours, without a word. The same sweep again takes the same."""
    slow = [1.0]
    monkeypatch.setattr(
        "zellige.training.forecast.seconds_per_row",
        lambda method, *_, **__: slow[0] * (0.24 if len(method.network.blocks) == 2 else 0.12),
    )
    few = [word for word in SHORT if "steps" not in word and "layers" not in word]
    words = ["sweep", "mdlm", "--net.layers", "1,2", *few, "--train.validate-every=0", "--run", "s"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    size = SIZES_OF["tiny"]
    monkeypatch.setitem(SIZES_OF, "tiny", replace(size, train=replace(size.train, steps=480, minutes=2)))
    assert cli.main(words) == 0
    first, *said = capsys.readouterr().err.splitlines()
    assert first == (
        "size tiny except --net.hidden 16, --net.heads 2, --net.length 32, --train.batch 4: 2 trainings of 100 of 480 "
        f"steps will take about 2 minutes in all on this CPU ({counted(torch.get_num_threads(), 'thread')}) at its current load; "
        "for all steps: --train.minutes 0; for a larger network: --size small, base, medium"
    )
    assert said[0] == "1 of 2: --net.layers 1"
    steps = lambda layers: json.loads((here / f"s/net.layers-{layers}/config.json").read_text())["train"]["steps"]  # noqa: E731
    assert steps(1) == steps(2) == 100  # of the slower: 96 s, of the other one 200 would fit
    slow[0] = 0.01
    assert cli.main(words) == 0
    assert "2 trainings of 100 steps will take" in capsys.readouterr().err.splitlines()[0]
    assert steps(1) == steps(2) == 100


def test_an_axis_of_the_network_keeps_the_size(monkeypatch):
    """`--net.layers 2,4` took the size away, and with it minutes, lr and convolutions."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    training, known = choose(["mdlm"], Terminal(), "sweep", ["--net.layers=2"])
    axis = sweep.with_setting(Axis.of("--net.layers", "2,5"), known)
    filled = training.with_values({axis.setting: "5"}).filled()
    net, train = SIZES_OF["tiny"].of("pydocs", zellige.METHODS["mdlm"])
    assert (filled.net, filled.train) == (replace(net, layers=5), train)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--net.heads 2,3 --net.hidden 16", "--net.hidden 16 does not split into --net.heads 3 of an even width; try"),
        ("--lr 1e-3,x", "--train.lr is 'x'; it must be a number"),
        ("--lr 1e-3,2e-3 --data.path nowhere.txt", "no file at 'nowhere.txt'; nearest in that folder: 'notes.txt'"),
        ("--lr 1e-3,2e-3 --train.devices 2", "--train.devices is 2; sweep trains on one device, leave it out"),
    ],
)
def test_wrong_input_is_said_before_anything_is_trained(words, message, here, capsys):
    assert cli.main(["sweep", "mdlm", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {message}" in err
    assert not (here / "runs").exists() or not any((here / "runs").iterdir())


def test_the_help_has_the_options_of_a_training_but_not_those_of_one_folder():
    from zellige.cli.options import flags
    from zellige.methods import find

    known = flags(sweep.form(find("bd3lm")))
    assert {"--trials", "--search", "--block", "--train.lr", "--size", "--run"} <= set(known)
    assert not {"--resume", "--overwrite"} & set(known)


def test_a_sweep_from_python_is_that_of_the_command_line_and_its_record_loads_and_runs_again(here, monkeypatch):
    shared = Training("mdlm", size="tiny", settings=dict(word.removeprefix("--").split("=") for word in SIZES) | {
        "data.path": "notes.txt", "train.steps": 4, "train.validate_rows": 8, "train.tensorboard": False,
    })  # fmt: skip
    record = zellige.sweep(shared, {"train.lr": [1e-3, 1e-2]}, folder="s")
    assert [trial.folder.name for trial in record.trials] == ["train.lr-0.01", "train.lr-0.001"]
    assert cli.main(["sweep", "mdlm", "--train.lr", "0.001,0.01", *SHORT, "--run", "t"]) == 0
    typed = zellige.Record.load("t/sweep.json")
    assert [trial.validation.value for trial in typed.trials] == [trial.validation.value for trial in record.trials]
    loaded = zellige.Record.load("s/sweep.json")
    monkeypatch.setattr("zellige.training.session.Session._train", lambda *_: 1 / 0)  # nothing is trained again
    again = loaded.request.run()
    assert [trial.point for trial in again.trials] == [("0.01",), ("0.001",)]
    with pytest.raises(InputError, match=r"no setting `train.stepz`; did you mean `train.steps`"):
        zellige.sweep(shared, {"train.stepz": [1, 2]}, folder="u")
    with pytest.raises(InputError, match=r"`train.steps` is 'many'; it must be a whole number"):
        zellige.sweep(shared, {"train.steps": ["many", 2]}, folder="u")
