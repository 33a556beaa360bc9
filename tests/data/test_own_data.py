"""Data that is handed over in Python: texts, integers, data sets of `datasets`, paths; each the same as its other form."""

import json
import re

import numpy as np
import pytest
import torch

import zellige
from zellige import Data, InputError, Net, Train
from zellige.data.corpus import as_data
from zellige.data.prepare import prepare

TEXTS = ["the value of the object is returned by the function", "a name is bound to it", "", "and it is the end"] * 8


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))


def rows(data, length=16, split="train"):
    corpus = prepare(data, length)
    return corpus.split(split).array().tolist(), corpus.tokenizer


def test_a_list_of_texts_is_the_file_of_them(tmp_path):
    """As documents those of a .jsonl; as a stream a plain text with line ends between them."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS if text)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "a.txt").write_text("\n".join(text for text in TEXTS if text))
    for split in ("train", "validation", "test"):
        for pack in ("document", "packed"):
            assert (
                rows(Data.of(TEXTS, pack=pack), split=split)[0]
                == rows(Data("text", path="a.jsonl", pack=pack), split=split)[0]
            )
        assert rows(Data.of(TEXTS), split=split)[0] == rows(as_data("a.txt"), split=split)[0]


def test_one_text_is_cut_as_a_file_is(tmp_path):
    text = "one long text and nothing else " * 40
    (tmp_path / "a.txt").write_text(text)
    for split in ("train", "validation", "test"):
        assert rows(Data.of([text]), split=split)[0] == rows(as_data(tmp_path / "a.txt"), split=split)[0]


def test_splits_of_ones_own():
    splits = {"train": ["a b c d e f g h"] * 4, "valid": ["a b c d e f g h"], "test": ["h g f e d c b a"] * 2}
    corpus = prepare(Data.of(splits), 8)
    assert [len(corpus.split(name)) for name in ("train", "validation", "test")] == [7, 1, 3]
    assert corpus.tokenizer.decode(corpus.test[0]["tokens"].tolist()) == "h g f e "
    tokens = {name: np.arange(12).reshape(-1, 4) for name in ("train", "validation", "test")}
    corpus = prepare(Data.of(tokens), 4)
    assert corpus.tokenizer.size == 12
    assert all((corpus.split(name).array() == rows).all() for name, rows in tokens.items())
    documents = {"train": [[0, 1, 2], [3]], "validation": [[1]], "test": [[2, 2], [1, 0, 3]]}
    corpus = prepare(Data.of(documents, pack="document"), 4)
    assert corpus.test.array().tolist() == [[2, 2, -1, -1], [1, 0, 3, -1]]


def test_a_tensor_is_its_array_and_its_vocabulary_is_counted():
    array = np.arange(64).reshape(16, 4) % 7
    for values in (array, torch.from_numpy(array), array.tolist()):
        data = Data.of(values, test=2, validation=2)
        assert data.vocabulary == 7
        assert rows(data, 4)[0] == array[:12].tolist()
    assert as_data(np.zeros((2, 3, 4), int)).name == "array"


def test_a_data_set_of_datasets_is_its_column():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"text": TEXTS, "other": TEXTS[::-1], "ids": [[1, 2]] * len(TEXTS)})
    assert Data.of(table).values["all"] == TEXTS
    assert Data.of(table, field="other").values["all"] == TEXTS[::-1]
    assert Data.of(table, field="ids", pack="packed").vocabulary == 3
    splits = datasets.DatasetDict({"train": table, "validation": table, "test": table.select(range(3))})
    assert {name: len(part) for name, part in Data.of(splits).values.items()} == {
        "train": 32,
        "validation": 32,
        "test": 3,
    }
    with pytest.raises(InputError, match=re.escape("the data set has no column 'x' (text, other, ids); name one")):
        Data.of(table, field="x")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZELLIGE_CACHE", str(folder / "cache"))
        return zellige.train(
            "mdlm", data=TEXTS, net=Net(layers=1, hidden=16, heads=2, length=16), run=folder / "run",
            train=Train(steps=2, batch=4, samples=0, tensorboard=False, validate_rows=4),
        )  # fmt: skip


def test_train_takes_texts_and_every_verb_the_run(run):
    assert run.model is run.model
    assert zellige.sample(run, steps=2, seed=1) == zellige.sample(run.folder, steps=2, seed=1)
    result = zellige.evaluate(run, ["the value", "a name"])
    assert (result.sequences, result.units, result.unit) == (2, 17, "bits/char")  # with the line that ends each
    assert result.protocol["packing"] == "one document a row, lengths given"
    assert not result.about["changed"]
    assert result.value == zellige.evaluate(run, {"test": ("the value", "a name"), "train": ["a"]}).value
    tokens = [run.model.tokenizer.encode(text + "\n") for text in ("the value", "a name")]
    assert zellige.evaluate(run, tokens).nats.tolist() == result.nats.tolist()
    assert zellige.evaluate(run, torch.tensor(tokens[0])).terms == zellige.evaluate(run, ["the value"]).terms


def test_a_resumed_run_is_given_the_same_texts(run):
    with pytest.raises(InputError, match="this model comes without its text; say which text to read with `data`"):
        zellige.evaluate(run)
    again = zellige.train("mdlm", data=TEXTS, run=run.folder, resume=True)
    assert again.steps == 2
    with pytest.raises(InputError, match="the data has changed since the run began"):
        zellige.train("mdlm", data=TEXTS[:-1], run=run.folder, resume=True)


WRONG = {
    "nothing": ([], "the data is an empty list; give texts or whole numbers"),
    "none": ([None], "the first entry of the data is None; give texts or whole numbers"),
    "floats": ([0.5, 1.0], "the first entry of the data is 0.5; give texts or whole numbers"),
    "mixed": (["a", 3], "text 1 of the data is 3; it must be a text"),
    "one text": ("to be or not to be", "`data` is 'to be or not to be', and no file is called so; give texts in a list"),
    "a file that is not there": ("notes.txt", "no file at 'notes.txt'; "),
    "a name": ("pydoc", "unknown data set 'pydoc'; did you mean 'pydocs'?"),
    "a split": ({"train": ["a"], "rest": ["b"]}, "the data has a split 'rest'; splits are train, validation, test"),
    "a set": ({"a"}, "the data is a set; it must be a list of texts, or whole numbers: a list, array or tensor"),
    "half a pair": (["\ud800"], "holds half of a surrogate pair; give texts of Unicode"),
    "floating": (torch.zeros(9, 16), "the tokens have shape (9, 16) and type float32; they must be integers, (N, L) or (N,)"),
    "no rows": (torch.zeros(0, 16), "the data has shape (0, 16); give whole numbers (N,), (N, L) or (N, ...)"),
    "too short": (["abc"], "the list of texts gives 3 tokens for the train split; length 16 needs at least 16"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_data_is_said(data, message):
    with pytest.raises(InputError, match=re.escape(message)):
        zellige.train("mdlm", data=data, net=Net(layers=1, hidden=8, heads=1, length=16), train=Train(steps=1), run="x")


def test_texts_for_a_model_of_something_else(run):
    with pytest.raises(InputError, match="the data has no test split, only train; set `split`, or give a list"):
        zellige.evaluate(run, {"train": ["a"]})
    with pytest.raises(InputError, match=re.escape("'Ä' in the list of texts is not in the vocabulary")):
        zellige.evaluate(run, ["Ätna"])
