"""Own files as people have them: rows of Parquet and Arrow, packed files, and splits of their own."""

import bz2
import dataclasses
import gzip
import json
import sys

import pytest

from zellige.base.errors import InputError
from zellige.data import Data
from zellige.data.file_names import own_splits
from zellige.data.prepare import prepare
from zellige.data.readers import Format, read_pieces
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
    assert [line for line in notes.left_out(corpus) if "a line each" not in line] == [
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


@pytest.mark.parametrize("others", [54, 0])
def test_names_that_end_like_a_split_are_splits_where_they_are_the_text(tmp_path, others):
    """Two notes of many are notes like the others, and this is said; beside a small README two files are the splits."""
    for i in range(others):
        (tmp_path / f"note {i}.md").write_text(f"note {i} " * 40)
    for name in ("how-to-train", "unit-test"):
        (tmp_path / f"{name}.md").write_text(f"{name} " * 30)
    (tmp_path / "README.md").write_text("read me")
    corpus = prepare(Data("text", path=str(tmp_path), tokenizer="bytes"), 8)
    files = len(corpus.about["files"])
    if others:
        assert files == 57
        said = "named as splits, but most of the text is not; read as text like the others"
        assert f"2 files, how-to-train.md, unit-test.md: {said}" in corpus.about["read"]
        assert "left_out" not in corpus.about
        tokens = sum(rows.tokens_total + rows.left_out for rows in corpus.rows.values())
        assert tokens == sum(path.stat().st_size for path in tmp_path.glob("*.md")) + 56  # and what stands between them
    else:
        assert (files, corpus.about["left_out"], "read" in corpus.about) == (2, ["1 file, README.md"], False)
        assert corpus.about["taken"].startswith("splits of your own: train, test")


def saved(folder, arrow, texts, split):
    """A folder as `datasets.save_to_disk` writes it, in two files out of order, with a cache of `map` beside them."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-00002.arrow" for i in range(2)]
    for name, part in zip((*names, "cache-1f.arrow"), (texts[:7], texts[7:], ["stale"] * 9)):
        table = arrow.table({"text": part, "id": list(range(len(part)))})
        with arrow.OSFile(str(folder / name), "wb") as file, arrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    state = {"_data_files": [{"filename": name} for name in names], "_split": split, "_fingerprint": "f1"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"text": {"dtype": "string"}}, "citation": ""}))


def test_a_folder_of_save_to_disk_is_one_data_set(tmp_path, arrow):
    saved(tmp_path / "one", arrow, TEXTS, "train")
    corpus = prepare(Data("text", path=str(tmp_path / "one"), pack="document", tokenizer="bytes"), 20)
    texts = [corpus.tokenizer.decode(row[row >= 0]) for rows in corpus.rows.values() for row in rows.array()]
    assert texts == [text + "\n" for text in TEXTS]
    assert [name.rpartition("/")[2] for name in corpus.about["files"]] == [
        f"data-{i:05d}-of-00002.arrow" for i in range(2)
    ]
    assert ("left_out" in corpus.about, "read" in corpus.about) == (False, False)

    parts = {"train": TEXTS[:30], "validation": TEXTS[30:41], "test": TEXTS[41:]}
    for split, part in parts.items():
        saved(tmp_path / "several" / split, arrow, part, split)
    (tmp_path / "several" / "dataset_dict.json").write_text(json.dumps({"splits": [*parts]}))
    corpus = prepare(Data("text", path=str(tmp_path / "several"), pack="document", tokenizer="bytes"), 20)
    assert {name: rows.texts for name, rows in corpus.rows.items()} == {name: len(part) for name, part in parts.items()}
    assert ("left_out" in corpus.about, "read" in corpus.about) == (False, False)
    (tmp_path / "one" / "state.json").write_text("[]")  # of something else: text like any other
    assert any(
        ".json" in line
        for line in prepare(Data("text", path=str(tmp_path / "one"), tokenizer="bytes"), 8).about["read"]
    )
