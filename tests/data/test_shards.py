"""A corpus of many shards is that of one; what a shard lacks is named; and no file is read again for its sum in vain."""

import json
import os
import random
import time

import numpy as np
import pytest
import torch

from zellige.base.errors import InputError
from zellige.base.schema import sha256
from zellige.data import Data, sums
from zellige.data import cache as store
from zellige.data.prepare import prepare
from zellige.data.sums import Sums

WORDS = ["a", "the", "naïve", "x1,", "cat", "don't", "日本"]


@pytest.fixture
def texts(tmp_path):
    draw = random.Random(0)
    documents = [" ".join(draw.choices(WORDS, k=draw.randrange(40))) for _ in range(150)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    (tmp_path / "a.txt").write_text("\n".join(documents), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("shard", [331, 1 << 11])
@pytest.mark.parametrize("choice", [("a.txt", "wrap"), ("a.txt", "document"), ("a.jsonl", "packed")])
def test_the_shards_are_one_array(shard, choice, texts, tmp_path, monkeypatch):
    """Rows, documents and sums are those of one file, whatever the size of the shards; all are full but the last."""
    file, pack = choice
    data = {"name": "text", "path": str(texts / file), "pack": pack, "tokenizer": "bpe:300"}
    one = prepare(Data(**data, cache=str(tmp_path / "one")), 24)
    monkeypatch.setattr(store, "SHARD", shard)
    many = prepare(Data(**data, cache=str(tmp_path / "many")), 24)
    (folder,), (whole,) = ((tmp_path / name / "tokens").iterdir() for name in ("many", "one"))
    names = sorted(path.name for path in folder.glob("*.bin"))
    assert len(names) > 3
    assert names == store.shard_names(len(names))
    assert {(folder / name).stat().st_size for name in names[:-1]} == {shard // 2 * 2}
    assert b"".join((folder / name).read_bytes() for name in names) == (whole / "tokens.bin").read_bytes()
    assert many.about == one.about
    for split in one.rows:
        assert np.array_equal(many.split(split).array(), one.split(split).array())
        assert all(torch.equal(many.split(split)[0][name], row) for name, row in one.split(split)[0].items())


def test_a_shard_that_is_damaged_or_missing_is_named(texts, monkeypatch):
    """In the cache it is made again, and that is said; under a run that is going on it is one line."""
    monkeypatch.setattr(store, "SHARD", 1000)
    data = Data("text", path=str(texts / "a.txt"), tokenizer="bytes")
    corpus = prepare(data, 16)
    shard = corpus.train._tokens.files[1].path
    whole = shard.read_bytes()
    again = "the tokens were made again from the text"
    for content in (whole[:-1] + b"~", whole[:-1], None):
        shard.unlink()
        if content is not None:
            shard.write_bytes(content)
        what = "damaged" if content is not None else "missing (No such file or directory)"
        assert prepare(data, 16).notes == (f"'{shard}' is {what}; {again}",)
        assert shard.read_bytes() == whole
        assert prepare(data, 16).notes == ()
    later = prepare(data, 16).train
    shard.unlink()
    with pytest.raises(InputError) as error:
        later.array()
    assert str(error.value) == f"'{shard}' is missing; copy or make it again"
    shard.write_bytes(b"ab")
    with pytest.raises(InputError) as error:
        later.array()
    assert str(error.value) == f"'{shard}' has 2 bytes, too few for 1,000 tokens; copy or make it again"


def test_a_file_that_did_not_change_is_read_once(tmp_path, monkeypatch):
    """Its sum is remembered once its times can tell a change: not of a file of just now, and not where anything of it changed."""
    path, cache, read = tmp_path / "a", tmp_path / "cache", []
    cache.mkdir()
    monkeypatch.setattr(sums, "sha256", lambda path, *report: read.append(path) or sha256(path, *report))

    def ask() -> bool:
        """Whether it was read, by a process that begins."""
        known, before = Sums(cache), len(read)
        assert known.of(path) == sha256(path)
        known.keep()
        return len(read) > before

    path.write_bytes(b"abc")
    assert [ask(), ask()] == [True, True]  # it could be written again within this tick
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 10)
    assert [ask(), ask(), ask()] == [True, False, False]
    times = path.stat()
    path.write_bytes(b"xyz")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as long, and as old as before
    assert [ask(), ask()] == [True, False]
    (cache / "sums.json").write_text((cache / "sums.json").read_text().replace(sha256(path)[:8], "0" * 8))
    assert [ask(), ask()] == [True, False]  # what is remembered has a sum of its own


def test_a_corpus_that_is_there_is_not_read(texts, monkeypatch):
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 10)
    data = Data("text", path=str(texts / "a.jsonl"), tokenizer="bytes", pack="packed")
    prepare(data, 16)
    first = prepare(data, 16)  # the tokens are new, and read once
    monkeypatch.setattr(sums, "sha256", lambda path, *_: pytest.fail(f"read {path}"))
    assert prepare(data, 16).about == first.about
