"""Own files as people have them: rows of Parquet and Arrow, packed files, and splits of their own."""

import bz2
import dataclasses
import gzip
import json
import sys

import pytest

from zellige.data import Data
from zellige.data.file_names import own_splits
from zellige.data.prepare import prepare
from zellige.data.readers import Format, read_pieces
from zellige.errors import InputError
from zellige.methods import METHODS
from zellige.training import notes

TEXTS = [f"document {i} ü" for i in range(60)]
SPLITS = ("train", "validation", "test")


def lines(texts) -> bytes:
    return "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts).encode()


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")


def test_rows_of_columns(tmp_path, arrow):
    from pyarrow import parquet

    table = arrow.table({"id": list(range(60)), "text": TEXTS})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    with arrow.ipc.new_stream(str(tmp_path / "b.arrow"), table.schema) as out:
        out.write_table(table)
    with arrow.ipc.new_file(str(tmp_path / "c.arrow"), table.schema) as out:
        out.write_table(table)
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(lines(TEXTS)))
    (tmp_path / "e.jsonl.bz2").write_bytes(bz2.compress(lines(TEXTS)))
    with arrow.CompressedOutputStream(str(tmp_path / "f.jsonl.zst"), "zstd") as out:
        out.write(lines(TEXTS))
    for path in sorted(tmp_path.iterdir()):
        assert list(read_pieces(path, Format())) == [(text, True) for text in TEXTS], path.name
    for name in ("a.parquet", "f.jsonl.zst"):
        path = tmp_path / name
        with pytest.raises(
            InputError, match=r"field 'body' is not in line 1 .* \(fields: id, text\); use `data\.field` text"
        ):
            list(read_pieces(path, Format(("body",))))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(InputError, match=r"is damaged .*; copy or download it again"):
            list(read_pieces(path, Format()))


def test_a_size_in_the_name_of_a_folder_leaves_its_split(tmp_path):
    for name in ("train_128", "train_64x64", "valid-64x64"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"the text of {name} " * 20)
    read = {
        name: [p.parent.name for p in files] for name, files in own_splits(tmp_path, [*tmp_path.glob("*/*")]).items()
    }
    assert read == {"train": ["train_64x64"], "validation": ["valid-64x64"]}  # of 128 what?
    corpus = prepare(Data("text", path=str(tmp_path), tokenizer="characters"), 8)
    assert "valid" in corpus.tokenizer.decode(corpus.validation.array()[0:3].reshape(-1))


def test_parquet_without_its_reader(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"a\.parquet' needs 'pyarrow'; pip install 'zellige\[data\]'"):
        prepare(Data("text", path=str(tmp_path / "a.parquet")), 8)


def texts_of(corpus, split):
    rows = corpus.split(split)
    return [corpus.tokenizer.decode(rows[i]["tokens"][rows[i]["mask"]]) for i in range(len(rows))]


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("my.train.jsonl", "my.val.jsonl", "my.test.jsonl"),
        ("train-00000-of-00001.jsonl.gz", "dev-00000-of-00001.jsonl.gz", "test-00000-of-00001.jsonl.gz"),
        ("train/a.txt", "validation/b.txt", "test/c.txt"),
    ],
)
def test_a_folder_with_splits_of_its_own(tmp_path, names):
    parts = dict(zip(SPLITS, ("abc" * 40, "bca" * 30, "cab" * 20)))
    folder = tmp_path / "mine"
    for name, text in zip(names, parts.values()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        raw = lines([text]) if "jsonl" in name else text.encode()
        (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    (folder / "README.md").write_text("train and test")
    corpus = prepare(Data("text", path=str(folder), pack="document"), 128)
    end = "\n"
    assert {s: texts_of(corpus, s) for s in SPLITS} == {s: [text + end] for s, text in parts.items()}
    assert notes.left_out(corpus) == [
        "splits of your own: train, validation, test",
        "left out: 1 file, README.md",
    ]
    with pytest.raises(InputError, match=r"has a test split of its own; leave out `data\.test`"):
        prepare(Data("text", path=str(folder), test=0.2), 16)


def test_what_is_missing_is_the_end_of_the_train_split(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.txt").write_text("ab" * 500)
    (folder / "test.txt").write_text("ba" * 100)
    corpus = prepare(Data("text", path=str(folder), validation=0.2), 20)
    assert [corpus.split(s).tokens_total for s in SPLITS] == [800, 200, 200]
    assert notes.left_out(corpus) == ["splits of your own: train, test; validation is the last 20% of train"]
    again = prepare(Data("text", path=str(folder), validation=100), 20)
    assert [again.split(s).tokens_total for s in SPLITS] == [900, 100, 200]
    assert notes.left_out(again) == ["splits of your own: train, test; validation is the last 100 characters of train"]


def test_three_paths(tmp_path):
    parts = dict(zip(SPLITS, ("ab" * 200, "ba" * 50, "bb" * 20)))
    for name, text in parts.items():
        (tmp_path / f"{name}-notes.txt").write_text(text)
    paths = {name: str(tmp_path / f"{name}-notes.txt") for name in SPLITS}
    data = Data("text", path=paths["train"], validation=paths["validation"], test=paths["test"])
    corpus = prepare(data, 10)
    assert [corpus.split(s).tokens_total for s in SPLITS] == [400, 100, 40]
    assert corpus.tokenizer.decode(corpus.validation[0]["tokens"]) == "ba" * 5
    from zellige.models.config import Config, from_json, to_json

    config = Config("mdlm", METHODS["mdlm"].Config(), data)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    for value in (True, [1]):
        plain = to_json(config)
        plain["data"]["test"] = value
        with pytest.raises(InputError, match=r"data\.test is .*; it must be a number or a text"):
            from_json(plain)
    two = prepare(dataclasses.replace(data, validation=0.25), 10)
    assert [two.split(s).tokens_total for s in SPLITS] == [300, 100, 40]
    with pytest.raises(InputError, match=r"no file at '.*nothing'"):
        prepare(dataclasses.replace(data, test=str(tmp_path / "nothing")), 10)
    with pytest.raises(InputError, match=r"`data\.test` is 'x'; for pydocs it must be a share or a whole number"):
        prepare(Data(test="x"), 10)


def test_notes_are_no_splits(tmp_path):
    """A word in a name is not enough: these are texts like any other."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("train journey.txt", "test results.txt", "latest.txt"):
        (folder / name).write_text("abc " * 100)
    for name in ("train.py", "test.py"):  # programs
        (folder / name).write_text("abc " * 100)
    corpus = prepare(Data("text", path=str(folder)), 16)
    assert "taken" not in corpus.about
    assert corpus.train.tokens_total > 1500
