"""Text in a remote store, tried on fsspec's own in memory: it is the corpus that the same files make here."""

import gzip
import json
import random
import sys

import fsspec
import numpy as np
import pytest

from zellige.base.errors import InputError
from zellige.data import Data, remote
from zellige.data.prepare import prepare

draw = random.Random(0)
TEXTS = [" ".join(draw.choices(["cat", "mat", "naïve", "日本", "sat"], k=30)) for _ in range(80)]
FILES = {
    "web/train/a.jsonl.gz": gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in TEXTS[:40]).encode()),
    "web/train/b.jsonl": "".join(json.dumps({"text": t}) + "\n" for t in TEXTS[40:60]).encode(),
    "web/valid/c.jsonl": "".join(json.dumps({"text": t}) + "\n" for t in TEXTS[60:]).encode(),
    "web/notes.pdf": b"%PDF-",
    "plain.txt": "\n".join(TEXTS).encode(),
}


@pytest.fixture
def store(tmp_path):
    """FILES in memory:// and in tmp_path."""
    memory = fsspec.filesystem("memory")
    for name, content in FILES.items():
        memory.pipe(f"/bucket/{name}", content)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    yield memory
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("path", ["web", "web/train/*", "web/train/a.jsonl.gz", "plain.txt", "*.txt"])
def test_the_corpus_is_that_of_the_files_here(path, store, tmp_path):
    """A folder with its splits, globs, a packed file; the tokens are in the cache afterwards, and nothing is read for them."""
    choice = {"tokenizer": "bytes", "pack": "wrap" if "txt" in path else "document", "test": 0}
    there, here = (Data("text", path=f"{root}/{path}", **choice) for root in ("memory://bucket", tmp_path))
    far, near = prepare(there, 24), prepare(here, 24)
    assert far.about["tokens_sha256"] == near.about["tokens_sha256"]
    assert list(far.rows) == list(near.rows)
    assert all(np.array_equal(far.split(name).array(), near.split(name).array()) for name in near.rows)
    assert far.about["files"][0].startswith("memory://")
    store.open = None  # of this instance
    try:
        assert prepare(there, 24).about == far.about
    finally:
        del store.open


def test_a_file_that_changed_is_another_corpus(store):
    data = Data("text", path="memory://bucket/plain.txt", tokenizer="bytes")
    first = prepare(data, 16)
    store.pipe("/bucket/plain.txt", FILES["plain.txt"].replace(b"cat", b"cow"))  # as long
    assert prepare(data, 16).about["tokens_sha256"] != first.about["tokens_sha256"]


def test_a_mixture_of_here_and_there(store, tmp_path):
    mix = f"memory://bucket/web/train/*=0.7,{tmp_path}/plain.txt=0.3"
    corpus = prepare(Data("text", mix=mix, tokenizer="bytes"), 16)
    assert [share["share"] for share in corpus.about["mix"].values()] == [0.7, 0.3]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("memory://bucket/nothing/*.txt", "no file matches 'memory://bucket/nothing/*.txt'; give a file, a folder or"),
        ("memory://bucket/none.txt", "no file at 'memory://bucket/none.txt'; give one that is in that store"),
        ("memory://bucket/pictures", "no text in folder 'memory://bucket/pictures' (.txt"),
        ("s4://bucket/a.txt", "'s4://bucket/a.txt' has a scheme that is not known, 's4'; use s3://, gs://"),
        ("memry://bucket/a.txt", "'memry://bucket/a.txt' has a scheme that is not known, 'memry'; did you mean 'memory://'?"),
        ("s3://bucket/a.txt", "'s3://bucket/a.txt' needs a package that is not installed: `pip install s3fs`"),
        ("gs://bucket/*", "'gs://bucket/*' needs a package that is not installed: `pip install gcsfs`"),
        ("https://nowhere/a.txt", "'https://nowhere/a.txt' cannot be reached (no network); copy it here"),
        ("hf://datasets/a/b/c.txt", "'hf://datasets/a/b/c.txt' cannot be reached (no network); copy it here"),
        ("memory://bucket/web/broken.txt.gz", "'memory:///bucket/web/broken.txt.gz' cannot be read (Not a gzipped file"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line(path, says, store, monkeypatch):
    store.pipe("/bucket/pictures/a.png", b"abc")
    store.pipe("/bucket/web/broken.txt.gz", b"abc")
    monkeypatch.setattr(remote, "_ask", lambda address: "no network")
    monkeypatch.setattr(remote, "_silent", {})
    for package in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError) as error:
        prepare(Data("text", path=path, tokenizer="bytes"), 16)
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)


def test_only_text_is_read_from_there(store):
    for name in ("tokens", "array", "mnist"):
        with pytest.raises(InputError, match=f"{name} is not read from a remote store, text alone is"):
            prepare(Data(name, path="memory://bucket/a.bin", vocabulary=9 if name != "mnist" else 0), 16)
