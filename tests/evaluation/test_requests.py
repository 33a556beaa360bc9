"""Requests and records of likelihoods: what is asked is data, and its record says it again, to the bit."""

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import zellige
from zellige import InputError
from zellige.cli import flags
from zellige.cli.evaluate import EvaluateOptions
from zellige.data import Local
from zellige.evaluation.choices import Question
from zellige.requests import options_of

WRITTEN = Path(__file__).parents[1] / "written_by_0_2_0"
REQUESTS = {
    "bound": zellige.Evaluate(draws=2, limit=4, seed=1),
    "steps": zellige.EvaluateSteps(steps=("4", "continuous"), draws=2, limit=4),
    "bracket": zellige.EvaluateBracket(numbers=(1, 2), limit=2, own=1, orders=("forward",), per_step=(8,)),
    "suite": zellige.EvaluateSuite(data=Local("sets"), only=("ag_news", "ptb"), draws=2, limit=4),
    "pairs": zellige.EvaluatePairs("pairs.jsonl", draws=8),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """The models and texts of 0.2.0, as the working folder; nothing can be fetched."""
    shutil.copytree(WRITTEN, tmp_path / "old")
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path / "old")


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


@pytest.mark.parametrize("kind", ["plain", "steps", "bracket", "suite", "pairs"])
def test_a_file_of_0_2_0_is_a_record(kind):
    record = zellige.Record.load(f"results/{kind}.json")
    assert record.loading["run"] == "text"
    again = record.request.run(record.loading["run"])
    assert {*record.holds(again).values()} <= {"bit for bit", "up to rounding"}
    assert [f.value for f in again.figures()] == pytest.approx([f.value for f in record.figures()], rel=1e-6, abs=1e-9)


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
    helps = flags.descriptions(EvaluateOptions)
    for name, option in options_of(zellige.Evaluate).items():
        assert helps[f"--{name.replace('_', '-')}"] == option.help
    assert "--steps" not in helps  # hidden: another mode has it


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
    document = json.loads(Path("results/plain.json").read_text())
    del document["checksum"]
    document["arguments"] |= arguments
    Path("r.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as error:
        zellige.Record.load("r.json")
    assert str(error.value) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"format": 3}', "'r.json' was written by a later version of Zellige; install that one"),
        ("{}", "'r.json' is not a record of Zellige; give a JSON file that it wrote"),
        ('{"format": 2, "request": "Net"}', "'r.json' is not a record of Zellige; give a JSON file that it wrote"),
        ("[]", "'r.json': all of it is []; it must be an object; give a file that zellige wrote"),
    ],
)
def test_what_is_no_record_is_one_line(text, wrong):
    Path("r.json").write_text(text)
    with pytest.raises(InputError) as error:
        zellige.Record.load("r.json")
    assert str(error.value).startswith(wrong.rpartition(";")[0])
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
    judged = zellige.EvaluatePairs([Question("the value of ", ("the object", "a class"))], draws=4).run("text")
    judged.save("p.json")
    with pytest.raises(InputError, match="`pairs` was handed over"):
        zellige.Record.load("p.json").request.run("text")
