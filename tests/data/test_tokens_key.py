"""The key of the token cache: what is read in another way has another key, whatever it is that differs."""

import dataclasses
import json
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest

from zellige.base.errors import InputError
from zellige.data import DATASETS, Data
from zellige.data import tokenizer as tk
from zellige.data.prepare import OF_ROWS, RESOLVED, prepare, tokens_key

COLUMNS = ">b,c,label\n" + "".join(f"ac{'gt'[i % 2]}{i % 10},tt gg{i % 7},{i % 3}\nc;ga,ta,2\n" for i in range(40))
LINES = "".join(json.dumps({"b": f"ac{i} g", "c": "tt g" * (i % 5 + 1), "label": i % 3}) + "\n" for i in range(80))
NAMES = {
    COLUMNS: ("p.txt", "p", "p.fasta", "p.csv", "p.tsv"),
    LINES: ("p.txt", "p.jsonl"),
}
FLIPS: dict[str, tuple[dict, ...]] = {  # other values of each choice that text has
    "name": (),  # that alone: the defaults
    "path": (),  # NAMES
    "mix": (),  # its sources have keys of their own
    "field": ({"field": "c"}, {"field": "c+b"}),
    "tokenizer": ({"tokenizer": "bytes"}, {"tokenizer": "bpe:300"}, {"tokenizer": "characters"}),
    "pack": ({"pack": "document"}, {"pack": "packed"}),
    "documents": (
        {"documents": "line"},
        {"documents": "blank", "validation": 0, "test": 0},
        {"documents": "file", "pack": "document", "validation": 0, "test": 0},
    ),
    "fill": ({"fill": 4, "pack": "document"},),
    "crop": ({"crop": True},),
    "validation": ({"validation": 0.2}, {"validation": 24}),
    "test": ({"test": 0.3},),
    "labels": ({"labels": True, "pack": "document"},),
    "labels_by": ({"labels": True, "labels_by": "c", "pack": "document"},),
    "given": ({"given": "prefix:3"},),
    "cache": (),  # each has its own, so that every text is read
}


def choices() -> list[str]:
    """The options that a text reads, or that every data set does."""
    anywhere = ("name", "validation", "test", "given", "cache")
    return [f.name for f in dataclasses.fields(Data) if f.name in (*DATASETS["text"].reads, *anywhere)]


def read(data: Data) -> tuple[str, bytes] | None:
    """The key of the tokens, and all that is kept under it; None where the choices do not go together."""
    try:
        prepare(data, 8)
    except InputError:
        return None
    (folder,) = (Path(data.cache or "") / "tokens").iterdir()
    files = [p for p in sorted(folder.iterdir()) if p.name != "meta.json"]
    meta = json.loads((folder / "meta.json").read_text())
    return folder.name, b"".join(p.read_bytes() for p in files) + json.dumps(meta["splits"]).encode()


def test_whatever_changes_the_tokens_is_in_the_key(tmp_path):
    """Every choice and every reader, alone and with every other reader: of one key the tokens are the same."""
    missing = set(choices()) - set(FLIPS)
    assert not missing, f"give other values of {missing}, and leave them in the key if they change tokens"
    of_key: dict[str, set[bytes]] = {}
    unread, flips = [], [{}, *chain.from_iterable(FLIPS.values())]
    for number, flip in enumerate(flips):
        found = []
        for i, (content, name) in enumerate((content, name) for content, names in NAMES.items() for name in names):
            folder = tmp_path / f"{number} {i}" / "texts"
            folder.mkdir(parents=True)
            (folder / name).write_text(content)
            found.append(read(Data("text", path=str(folder / name), cache=str(folder.parent), **flip)))
        for key, contents in filter(None, found):
            of_key.setdefault(key, set()).add(contents)
        unread += [] if any(found) else [flip]
    assert not unread, "no file is read with these"
    assert not {key: len(contents) for key, contents in of_key.items() if len(contents) > 1}
    assert len(of_key) > 30


def test_a_new_choice_is_in_the_key():
    """But those named, which come to something else in it, or change no token."""
    from zellige.data.text_source import open_source

    data = Data()
    key = tokens_key(data, open_source(data, Path(), False, None), "x")
    assert {f.name for f in dataclasses.fields(Data)} == {*key["data"], *RESOLVED, *OF_ROWS}
    assert not {*RESOLVED, *OF_ROWS} & {*key["data"]}


@pytest.mark.parametrize(("suffix", "said"), [("fasta", True), ("txt", False)])
def test_fasta_is_read_as_fasta_after_the_same_bytes_as_text(suffix, said, tmp_path):
    content = "".join(f">seq {i}\nACGTTGCA{'ACGT'[i % 4] * 9}\n" for i in range(160))
    for name in ("p.txt", "p.fasta"):
        (tmp_path / name).write_text(content)
    one, other = ("p.fasta", "p.txt") if suffix == "txt" else ("p.txt", "p.fasta")
    prepare(Data("text", path=str(tmp_path / one)), 16)
    corpus = prepare(Data("text", path=str(tmp_path / other)), 16)
    assert isinstance(corpus.tokenizer, tk.Characters)
    assert (">" in corpus.tokenizer.alphabet) == (not said)
    assert any("160 sequences of FASTA" in note for note in corpus.about.get("read", [])) == said


def test_own_texts_by_split_are_no_other_own_texts():
    """A text that is called like a split is no split."""
    texts = ["ab " * 30, "test", "ba " * 40]
    one = prepare(Data.of({"train": texts}, validation=0.2, test=0.2), 4)
    other = prepare(Data.of({"train": texts[:1], "test": texts[2:]}, validation=0.2), 4)
    assert one.about["sha256"] != other.about["sha256"]


def test_lines_of_the_hub_are_one_text_or_documents(monkeypatch, tmp_path):
    rows = [{"text": f"line {i} of {'ab'[i % 2] * 9}\n"} for i in range(60)]
    hub = SimpleNamespace(load_dataset=lambda name, configuration=None, split=None, cache_dir=None: rows)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    found = [read(Data("wikitext2", tokenizer="characters", pack=pack, cache=str(tmp_path / pack)))
             for pack in ("wrap", "document", "packed")]  # fmt: skip
    one_text, documents, packed = (key for key, _ in filter(None, found))
    assert one_text != documents == packed
