"""Requests and records of likelihoods: what is asked is data, and its record says it again, to the bit."""

import contextlib
import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import zellige
from zellige import Data, InputError, Net, Train
from zellige.base.requests import options_of
from zellige.cli import flags
from zellige.cli.evaluate import EvaluateOptions
from zellige.data import Local
from zellige.plugins.evaluations.pairs.choices import Question

TEXT = "the value of the object is returned by the function and it is the name of a class. a list of names; the number is {}. "
PAIRS = (
    {"context": "the value of ", "choices": ["the object", "a class"], "answer": 0},
    {"context": "a list ", "choices": ["of names", "is it"], "answer": 0},
    {"context": "the ", "continuation": "name of"},
)
REQUESTS = {
    "bound": zellige.Evaluate(draws=2, limit=4, seed=1),
    "steps": zellige.evaluations.EvaluateSteps(steps=("4", "continuous"), draws=2, limit=4),
    "bracket": zellige.evaluations.EvaluateBracket(numbers=(1, 2), limit=2, own=1, orders=("forward",), per_step=(8,)),
    "suite": zellige.evaluations.EvaluateSuite(data=Local("sets"), only=("ag_news", "ptb"), draws=2, limit=4),
    "pairs": zellige.evaluations.EvaluatePairs("pairs.jsonl", draws=8),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with a small model, its text, questions and two sets of a suite."""
    folder = tmp_path_factory.mktemp("world")
    for name, lines in {
        "notes.txt": map(TEXT.format, range(260)),
        "pairs.jsonl": map(json.dumps, PAIRS),
        "sets/ag_news/test.csv": (f"{i % 4 + 1},title {i},is the class of a list" for i in range(300)),
        "sets/lambada/lambada_test.jsonl": (json.dumps({"text": f"the number is {i} of names"}) for i in range(8)),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    train = Train(2, batch=4, device="cpu", ema=0.0, samples=0, tensorboard=False)
    with contextlib.chdir(folder):
        data, net = Data("text", path="notes.txt", cache=str(folder / "made")), Net(2, 16, 2, length=32)
        zellige.train("mdlm", data=data, net=net, train=train, run="trained").model.save("text")
    return folder


@pytest.fixture(autouse=True)
def _folder(world, tmp_path, monkeypatch):
    """That folder as the working folder; nothing can be fetched."""
    shutil.copytree(world, tmp_path / "world")
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path / "world")


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_record_is_saved_and_its_request_runs_again(kind):
    request = REQUESTS[kind]
    record = request.run("text")
    assert record.request == request
    record.save("r.json")
    loaded = zellige.Record.load("r.json")
    assert type(loaded) is type(record)
    assert loaded.request == request
    loaded.save("again.json")
    before, after = (json.loads(Path(name).read_text()) for name in ("r.json", "again.json"))
    assert {k: v for k, v in before.items() if k not in ("seconds", "checksum")} == {
        k: v for k, v in after.items() if k not in ("seconds", "checksum")
    }
    held = loaded.holds(loaded.request.run("text"))
    assert held
    assert {*held.values()} == {"bit for bit"}


def test_the_function_is_the_request():
    one, other = zellige.evaluate("text", draws=2, limit=4), zellige.Evaluate(draws=2, limit=4).run("text")
    assert (one.value, one.low) == (other.value, other.low)
    names = [*inspect.signature(zellige.evaluate).parameters]
    assert names[:5] == ["model", "data", "split", "draws", "seed"]
    with pytest.raises(TypeError, match=r"evaluate\(\) has no argument 'drawz'; did you mean 'draws'\?"):
        zellige.evaluate("text", drawz=3)  # pyright: ignore[reportCallIssue]


def test_asides_are_not_part_of_a_request():
    told = []
    request = zellige.Evaluate(draws=2, limit=4, progress=lambda done, total: told.append((done, total)))
    assert request == zellige.Evaluate(draws=2, limit=4)
    record = request.run("text")
    assert told[-1] == (4, 4)
    assert record.request is not None
    assert record.request.progress is None  # type: ignore[attr-defined]
    assert "progress" not in record.to_dict()["arguments"]


def test_the_command_line_reads_the_fields():
    known = flags.flags(EvaluateOptions)
    for name, option in options_of(zellige.Evaluate).items():
        assert known[f"--{name.replace('_', '-')}"].option.help == option.help
    assert "--steps" not in known  # hidden: another mode has it


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"drawz": 2}, "'r.json': Evaluate has no field 'drawz'; did you mean 'draws'?"),
        ({"draws": "two"}, "'r.json': `draws` is 'two'; it must be a whole number"),
        ({"draws": 0}, "'r.json': `draws` is 0; it must be 1 or more"),
        ({"limit": 1}, "'r.json': `limit` is 1; it must be 2 or more: an interval needs two texts"),
    ],
)
def test_a_wrong_field_is_one_line(arguments, wrong):
    REQUESTS["bound"].run("text").save("plain.json")
    document = json.loads(Path("plain.json").read_text())
    del document["checksum"]
    document["arguments"] |= arguments
    Path("r.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as error:
        zellige.Record.load("r.json")
    assert str(error.value) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            '{"format": 3, "request": "Evaluate"}',
            "'r.json' has format 3; Zellige 0.2.0 reads format 1",
        ),
        ("{}", "'r.json' is not a record of Zellige; give a JSON file that it wrote"),
        ('{"format": 1, "request": "Net"}', "'r.json' is not a record of Zellige; give a JSON file that it wrote"),
        ("[]", "'r.json': all of it is []; it must be an object"),
    ],
)
def test_what_is_no_record_is_one_line(text, wrong):
    Path("r.json").write_text(text)
    with pytest.raises(InputError) as error:
        zellige.Record.load("r.json")
    assert str(error.value).startswith(wrong)
    with pytest.raises(InputError, match="no file at"):
        zellige.Record.load("absent.json")


def test_values_that_were_handed_over_are_asked_for_again():
    texts = ["the value of the object is returned. ", "a list of names; it is the class"]
    record = zellige.evaluate("text", texts, draws=2)
    record.save("r.json")
    request = zellige.Record.load("r.json").request
    with pytest.raises(InputError, match=r"`data` was handed over in Python \(a list\), and no file holds it"):
        request.run("text")
    assert replace(request, data=texts).run("text").value == record.value
    judged = zellige.evaluations.EvaluatePairs([Question("the value of ", ("the object", "a class"))], draws=4).run(
        "text"
    )
    judged.save("p.json")
    with pytest.raises(InputError, match="`pairs` was handed over"):
        zellige.Record.load("p.json").request.run("text")
