"""The models that come with Zellige are small, are what their cards say, and their numbers come again."""

import shlex
import sys
from pathlib import Path

import pytest

import zellige
from zellige.models import shipped

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "studies" / "included-models"))
import ship  # pyright: ignore[reportMissingImports]  # noqa: E402

MOST = 36_000_000  # bytes of all of them, in the wheel


def test_they_are_small():
    assert sum(f.stat().st_size for f in Path(zellige.__file__).parent.glob("models/shipped/*/*")) < MOST


def test_the_pages_name_them():
    said = ", ".join(f"`{name}`" for name in shipped.names())
    assert said in " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    assert {*ship.MODELS} == {*shipped.names()}


@pytest.mark.parametrize("name", shipped.names())
def test_each_is_as_its_card_says(name):
    model, card = zellige.load(name), shipped.card(name)
    assert card["method"] == model.config.method
    assert [run["command"] for run in card["runs"]] == ship.commands(name)
    assert model.defaults == ship.defaults(ship.MODELS[name])
    page = (shipped.FOLDER / name / "README.md").read_text()
    assert card["test"] in page.replace(" (95%)", "")
    assert card["size"] in page
    assert all(picture.name in page for picture in (shipped.FOLDER / name).glob("*.png"))


@pytest.mark.parametrize("name", [name for name in shipped.names() if name in ship.PLACES])
def test_its_data_can_be_asked_for(name):
    """Nothing in its config is refused: where its files are not given, that is all that is missing."""
    with pytest.raises(zellige.InputError, match=r"cannot download|comes without its text|needs a file"):
        zellige.evaluate(zellige.load(name), split="test")


@pytest.mark.long
@pytest.mark.parametrize("name", shipped.names())
def test_its_numbers_come_again(name, shared):
    """The bound, by the command on the card, to what float32 on another machine may change."""
    run = shipped.card(name)["runs"][0]
    assert shlex.split(run["command"])[1] == "evaluate"
    with ship.empty_folder(str(shared / "data" / ship.PLACES[name]) if name in ship.PLACES else "") as data:
        numbers = ship.executed(run["command"], data)[1]
    assert numbers["value"] == pytest.approx(run["numbers"]["value"], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("molecules", "sample"),
        ("stories", "sample"),
        ("sudoku", "infill"),
        pytest.param("stories-mdlm", "infill", marks=pytest.mark.long),
        pytest.param("chorales", "sample", marks=pytest.mark.long),
        pytest.param("mnist", "sample", marks=pytest.mark.long),
        pytest.param("nouns", "sample", marks=pytest.mark.long),
    ],
)
def test_its_first_sample_comes_again(name, start):
    """What the card's first command of this kind writes: of a model of blocks, one of all gaps at once, one that infills."""
    run = next(run for run in shipped.card(name)["runs"] if run["command"].startswith(f"zellige {start} "))
    with ship.empty_folder(""):
        assert ship.executed(run["command"], "")[1] == run["numbers"]
