"""A run becomes a model that comes with Zellige: by name, in float16, with a card whose numbers come again by its commands."""

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import zellige
from zellige import Data, InputError, Net, Train, cli
from zellige.models import shipped

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "studies" / "included-models"))
import ship  # noqa: E402

TALE = "once upon a time there was a king who had a daughter and she went into the wood to seek the golden bird. "


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run on a few stories, `stories/` itself, and an empty folder to stand in for that of the shipped models."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "stories").mkdir()
    for split, times in (("train", 60), ("validation", 20), ("test", 20)):
        (folder / "stories" / f"{split}.txt").write_text(TALE * times)
    data = Data(name="text", path=str(folder / "stories"), tokenizer="bpe:300", cache=str(folder / "cache"))
    net = Net(layers=1, hidden=16, heads=2, length=16)
    train = Train(steps=4, batch=4, validate_every=2, validate_rows=8, samples=0, device="cpu")
    zellige.train("mdlm", data=data, net=net, train=train, run=folder / "run")
    return folder


@pytest.fixture(scope="module")
def ours(place):
    """That run, made into the model `stories-mdlm`: its name, found for all tests of this module that ask for it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("ZELLIGE_CACHE", str(place / "cache"))
    patch.setattr(shipped, "FOLDER", place / "here")
    patch.setattr(ship, "SEEDS", range(2))
    of = ship.MODELS["stories-mdlm"]
    patch.setitem(
        ship.MODELS, "stories-mdlm",
        ship.Shipped(
            of.text, of.of, "--data.name text --data.path $DATA", "--steps 4 --temperature 0.8", seeded=ship.TEXTS, bracket="",
            evaluate="--draws 2",
        ),
    )  # fmt: skip
    ship.main([str(place / "run"), "stories-mdlm", "--data", str(place / "stories")])
    yield place / "here" / "stories-mdlm"
    patch.undo()


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_half_of_the_bytes_and_all_of_the_model(ours, place):
    """On disk float16, in memory float32: the averaged weights of the run, rounded once."""
    run, model = zellige.load(place / "run"), zellige.load(ours)
    stored = load_file(ours / "model.safetensors")
    names = [name for name, _ in model.method.named_parameters()]
    assert {stored[name].dtype for name in names} == {torch.float16}
    assert {p.dtype for p in model.method.parameters()} == {torch.float32}
    for name, tensor in run.method.state_dict().items():
        expected = tensor.half().float() if name in names else tensor
        assert torch.equal(model.method.state_dict()[name], expected), name


def test_a_name_is_the_model(ours, empty, capsys):
    assert zellige.load("stories-mdlm").source == ours
    assert zellige.sample("stories-mdlm", steps=4, seed=3) == zellige.sample(str(ours), steps=4, seed=3)
    how = {"steps": 4}
    gaps = "once upon a ____"
    assert zellige.pipeline("infill", "stories-mdlm", **how)(gaps) == zellige.infill(str(ours), gaps, **how)[0]
    assert cli.main(["sample", "stories-mdlm", "--steps", "4"]) == 0
    err = capsys.readouterr().err
    about = f"'stories-mdlm' is included: {ship.MODELS['stories-mdlm'].text}"
    assert f"note: {about}; with the model's defaults --temperature 0.8 (--no-defaults ignores them)\n" in err
    assert zellige.load(ours).defaults == {"steps": 4, "temperature": 0.8}
    assert cli.main(["list", "models"]) == 0
    out = capsys.readouterr().out
    (first, rest) = out[out.index("\nstories-mdlm ") + 1 :].splitlines()[:2]  # a cell goes on below
    assert (first.split("  ")[:3], rest.split()) == (
        ["stories-mdlm", "missing words of a short", "mdlm"],
        ["story", "bits/char"],
    )


def test_a_folder_of_that_name_comes_first(ours, empty):
    other = zellige.load(ours)
    with torch.no_grad():
        for p in other.method.parameters():
            p.zero_()
    Path("stories-mdlm").mkdir()
    Path("stories-mdlm/train.txt").touch()
    assert zellige.load("stories-mdlm").source == ours  # a folder of data is no model
    Path("stories-mdlm/train.txt").unlink()
    other.save("stories-mdlm")
    assert zellige.load("stories-mdlm").source == Path("stories-mdlm")
    assert not any(p.any() for p in zellige.load("stories-mdlm").method.parameters())
    assert zellige.load(ours).method.state_dict().keys() == other.method.state_dict().keys()


def test_an_unknown_name_is_told_what_there_is(ours, empty):
    with pytest.raises(
        InputError, match=r"no run or model at 'storie-mdlm'; did you mean 'stories-mdlm', which comes with Zellige\?"
    ):
        zellige.load("storie-mdlm")
    with pytest.raises(
        InputError,
        match=r"no run or model at 'poems'; '.*' holds no run or model; with Zellige come stories-mdlm; on the .* hub .*",
    ):
        zellige.load("poems")
    with pytest.raises(InputError, match="is not a run, so it has no checkpoint 'best'"):
        zellige.load("stories-mdlm", checkpoint="best")


def test_damage_is_noticed_and_nothing_unpickled(ours, empty):
    copy = shutil.copytree(ours, empty / "copy")
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="has changed since it was written"):
        zellige.load(copy)
    weights.write_bytes(b"\x80\x04c__builtin__\neval\n.")
    with pytest.raises(InputError, match=r"asks to run '__builtin__\.eval'"):
        zellige.load(copy)


def test_no_path_of_this_machine_and_no_text_of_the_data(ours, place):
    config = json.loads((ours / "config.json").read_text())
    assert (config["data"]["path"], config["run"]) == (None, "")
    assert config["about"]["data"]["files"] == ["train.txt", "validation.txt", "test.txt"]
    for file in ours.iterdir():
        content = file.read_bytes().replace(json.dumps(config["about"]["command"]).encode(), b"")
        assert TALE[:40].encode() not in content, file.name
    with pytest.raises(InputError, match="comes without its text; say which text to read with `data`"):
        zellige.evaluate(str(ours))


def test_the_numbers_of_a_card_come_again_by_its_commands(ours, place, monkeypatch):
    card = shipped.card("stories-mdlm")
    page = (ours / "README.md").read_text(encoding="utf-8")
    assert [run["command"] for run in card["runs"]] == ship.commands("stories-mdlm")
    with ship.empty_folder(str(place / "stories")) as data:
        for run in card["runs"]:
            printed, numbers = ship.executed(run["command"], data)
            assert numbers == run["numbers"]
            assert f"$ {run['command']}\n{printed}".replace(data, "$DATA") in page
    assert card["test"] in page
    assert "≤" in page.partition("## Learning curve")[2].partition("##")[0]


def test_the_log_of_the_training_comes_with_it(ours, place, tmp_path):
    """Thinned evenly, all validations kept, of no number more than five digits; a short one is whole."""
    log = list(csv.DictReader((ours / shipped.LOG).open(encoding="utf-8")))
    run = ship.metrics(place / "run")
    assert [row["step"] for row in log] == [row["step"] for row in run]
    assert [float(row["loss"]) for row in log] == pytest.approx([float(row["loss"]) for row in run], rel=1e-4)
    assert f"[{shipped.LOG}]({shipped.LOG})" in (ours / "README.md").read_text(encoding="utf-8")
    assert f"  {shipped.LOG}\n" in (ours / "SHA256SUMS").read_text()
    long = [
        dict.fromkeys(ship.LOGGED, "0.123456789") | {"step": str(i), "validation": ""} for i in range(10, 30_001, 10)
    ]
    for row in long[776::777]:
        row["validation"] = "0.9876543"
    (tmp_path / "metrics.csv").write_text(
        "".join(",".join(row) + "\n" for row in [list(ship.LOGGED), *(list(row.values()) for row in long)])
    )
    text = ship.log(tmp_path)
    kept = list(csv.DictReader(io.StringIO(text)))
    assert len(text) < 20_000
    assert (kept[0]["step"], kept[-1]["step"], len(kept)) == ("10", "30000", 203)
    assert [row["validation"] for row in kept if row["validation"]] == ["0.98765"] * 3
    assert [ship.evenly(10, most) for most in (12, 10, 4)] == [[*range(10)], [*range(10)], [0, 3, 6, 9]]


def test_a_weight_too_large_for_float16_is_refused():
    with pytest.raises(SystemExit, match="holds 100000, which float16 does not"):
        ship.half("w", torch.tensor([1e5]))


def test_messages_name_included_models_that_are_there():
    source = Path(zellige.__file__).parent
    there = {card.parent.name for card in Path(shipped.__file__).parent.glob("*/README.md")}
    text = "".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    assert {"mnist", "stories-mdlm"} <= {*re.findall(r"the included (?!models)(?:model )?([\w-]+)", text)} <= there
