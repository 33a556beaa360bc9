"""Corpora end to end: the splits of the literature, the packing, the store, the rows."""

import dataclasses
import gzip
import hashlib
import json
import lzma
import os
import pickle
import random
import sys
import types

import cattrs
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from zellige.base.errors import InputError
from zellige.base.schema import CONVERTER
from zellige.cli.options import parse
from zellige.data import DATASETS, Data, catalogue, collate
from zellige.data.cache import chunks
from zellige.data.prepare import prepare
from zellige.show.terminal import Terminal

GREEK = "Ἐν ἀρχῇ ἦν ὁ Λόγος, καὶ ὁ Λόγος ἦν πρὸς τὸν Θεόν.\n"


def stream(rows):
    return rows.array().reshape(-1)


def test_pydocs_is_english_in_27_symbols():
    corpus = prepare(Data(), 128)
    paragraphs = catalogue.pydocs()
    text = " ".join(paragraphs)
    assert len(paragraphs) == len(set(paragraphs))
    assert set(text) == set(" abcdefghijklmnopqrstuvwxyz")
    assert " the " in text
    assert len(text) > 150_000
    assert corpus.about["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert corpus.tokenizer.size == 27
    assert corpus.tokenizer.describe() == "a-z and space"
    ends = [round(0.9 * len(text)), round(0.95 * len(text)), len(text)]
    for name, begin, end in zip(("train", "validation", "test"), [0, *ends], ends):
        rows = corpus.split(name)
        assert len(rows) == (end - begin) // 128
        assert corpus.tokenizer.decode(stream(rows)) == text[begin : begin + 128 * len(rows)]
        assert rows.characters == rows.tokens_total == 128 * len(rows)


def test_the_config_survives_json_and_the_command_line():
    data = Data("text", path="a b.txt", tokenizer="bytes", validation=0.1)
    assert CONVERTER.structure(json.loads(json.dumps(CONVERTER.unstructure(data))), Data) == data
    assert (
        parse(Data, ["--name", "text", "--path", "a b.txt", "--pack", "document"], "try", Terminal()).pack == "document"
    )
    json.dumps(prepare(Data(), 64).about)


def test_text8(published):
    file = published / "text8" / "text8_first_6877825.xz"
    path = str(file)
    corpus = prepare(Data("text8", path=path, validation=400_000, test=477_825), 256)
    text = lzma.decompress(file.read_bytes()).decode()
    assert [corpus.split(s).tokens_total for s in ("train", "validation", "test")] == [
        n // 256 * 256 for n in (6_000_000, 400_000, 477_825)
    ]
    assert corpus.tokenizer.decode(corpus.validation[0]["tokens"]) == text[6_000_000:6_000_256]
    assert corpus.about["licence"] == "CC BY-SA"
    assert corpus.about["dtype"] == "uint8"
    assert corpus.about["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    for total in (100_000_000, 376_214):  # the published split, and the one of UX.md
        source = types.SimpleNamespace(whole="all", cut=[0.05, 0.05], documents=False, tell="x")
        from zellige.data.text_source import boundaries

        ends = boundaries(source, {"all": total})  # pyright: ignore
        assert list(ends.values()) == ([90_000_000, 95_000_000, total] if total == 10**8 else [338_593, 357_403, total])


def test_wikitext2_as_published(published):
    data = Data("wikitext2", path=str(published / "wikitext-2"), tokenizer="characters")
    corpus = prepare(data, 512)
    valid = (published / "wikitext-2" / "valid.txt").read_text(encoding="utf-8")
    assert corpus.tokenizer.decode(stream(corpus.validation)) == valid[: 512 * len(corpus.validation)]
    assert set(corpus.about["sha256"]) == {"train", "validation", "test"}
    assert corpus.about["dtype"] == "uint16"  # more than 256 symbols


def test_lambada_and_ag_news_through_their_own_tokenizers(published):
    gpt2 = str(published / "gpt2-bpe")
    corpus = prepare(Data("lambada", path=str(published / "lambada" / "lambada_test.jsonl"), tokenizer=gpt2), 1024)
    texts = [json.loads(line)["text"] for line in (published / "lambada" / "lambada_test.jsonl").open(encoding="utf-8")]
    wanted = [t for text in texts[:200] for t in [*corpus.tokenizer.encode(text), 50256]]
    assert stream(corpus.test)[: len(wanted)].tolist() == wanted
    assert list(corpus.rows) == ["test"]
    assert corpus.about["separator"] == "<|endoftext|> after each document"
    with pytest.raises(InputError, match="'lambada' has no train split, only test"):
        _ = corpus.train

    bert = str(published / "bert-vocab" / "vocab.txt")
    data = Data("ag_news", path=str(published / "ag_news" / "test.csv"), tokenizer=bert, pack="document")
    corpus = prepare(data, 96)
    assert len(corpus.test) == 7806  # pieces of 7,600 articles
    assert len(prepare(data, 512).test) == 7600
    assert corpus.validation is corpus.test
    row = corpus.test[0]
    said = corpus.tokenizer.decode(row["tokens"][row["mask"]])
    assert said.startswith("fears for t n pension after talks unions representing workers")
    assert said.endswith("[SEP]")
    lengths = row["mask"].long().sum()
    assert (row["mask"] == (torch.arange(96) < lengths)).all()
    assert (row["segments"] == ~row["mask"]).all()
    batch = collate([corpus.test[i] for i in range(4)])
    assert batch.tokens.shape == (4, 96)
    assert batch.tokens.dtype == torch.long
    assert batch.mask.dtype == torch.bool
    assert corpus.test.tokens_total == sum(int(r["mask"].sum()) for r in map(corpus.test.__getitem__, range(7806)))
    assert ((corpus.test.array() >= 0).sum()) == corpus.test.tokens_total


@pytest.mark.parametrize("alphabet", [GREEK, "吾輩は猫である。名前はまだ無い。\n"])
@pytest.mark.parametrize("tokenizer", ["characters", "", "bytes", "bpe:300"])
def test_a_text_in_another_alphabet(tmp_path, alphabet, tokenizer):
    path = tmp_path / "text.txt"
    text = "".join(random.Random(1).choices(alphabet, k=40_000))
    path.write_text(text, encoding="utf-8")
    corpus = prepare(Data("text", path=str(path), tokenizer=tokenizer), 64)
    said = corpus.tokenizer.decode(stream(corpus.train))
    if corpus.tokenizer.unit == "char":
        assert corpus.tokenizer.size == len(set(text))
    kept = said.rstrip("\ufffd")
    assert text.startswith(kept)
    assert len(kept) > 35_000
    assert abs(corpus.train.characters - len(said)) <= 1  # a character may be cut by the end of the last row
    assert sum(r.characters for r in corpus.rows.values()) <= len(text)


def test_documents_in_rows_and_in_a_stream(tmp_path):
    texts = [f"document {'x' * (i % 7)} {i}" for i in range(100)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"body": t}) + "\n" for t in texts))
    rows = prepare(Data("text", path=str(path), field="body", pack="document", validation=7, test=0.1), 12)
    pieces = [(t + "\n")[at : at + 12] for t in texts[:83] for at in range(0, len(t) + 1, 12)]
    assert [len(rows.split(s)) for s in ("train", "validation", "test")] == [len(pieces), 14, 20]
    for i, piece in enumerate(pieces):
        row = rows.train[i]
        assert rows.tokenizer.decode(row["tokens"][row["mask"]]) == piece
    wrapped = prepare(Data("text", path=str(path), field="body", validation=7, test=0.1), 12)
    assert (
        wrapped.tokenizer.decode(stream(wrapped.train))
        == "".join(t + "\n" for t in texts)[: wrapped.train.tokens_total]
    )
    assert wrapped.about["separator"] == "newline after each document"
    assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 1  # one file of tokens serves both packings
    lines = tmp_path / "b.txt"
    lines.write_text("\n".join(texts))
    again = prepare(Data("text", path=str(lines), pack="document", validation=7, test=0.1), 12)
    assert torch.equal(again.test[3]["tokens"], rows.test[3]["tokens"])


def test_folders_and_globs(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("aaaa" * 30)
    (folder / "b.md").write_text("bbbb\n" * 30)
    (folder / "picture.png").write_bytes(b"\xff\xfe")
    corpus = prepare(Data("text", path=str(folder), validation=0, test=0), 30)
    assert corpus.tokenizer.decode(stream(corpus.train)) == ("a" * 120 + "\n" + "bbbb\n" * 30)[:270]
    assert corpus.about["separator"] == "newline between files"
    for tokenizer in ("characters", "bytes"):  # what stands between two files is a character of the text
        one = prepare(Data("text", path=str(folder), validation=0, test=0, tokenizer=tokenizer), 30)
        assert one.train.characters == one.train.tokens_total == 270
    assert list(corpus.rows) == ["train"]
    only = prepare(Data("text", path=str(folder / "*.md"), validation=0, test=0), 30)
    assert only.tokenizer.size == 2
    for name in ("train", "valid", "test"):
        (tmp_path / f"my.{name}.txt").write_text(name * 20)
    assert prepare(Data("text", path=str(tmp_path / "my.*.txt")), 10).tokenizer.size == len(set("trainvalidtest"))


def test_characters_in_bytes_are_those_of_the_text(tmp_path):
    (tmp_path / "a.txt").write_text("éa日" * 40)
    corpus = prepare(Data("text", path=str(tmp_path / "a.txt"), tokenizer="bytes", validation=0, test=0), 12)
    assert (corpus.train.tokens_total, corpus.train.characters) == (240, 120)


def test_a_subword_tokenizer_does_not_see_the_blocks(tmp_path, published, monkeypatch):
    """Cutting the stream for memory's sake changes no token: cuts fall before a space that follows a letter."""
    words = random.Random(0).choices(["a", "the", "naïve", "x1,", "\n\n", "  ", "don't", "日本"], k=30_000)
    path = tmp_path / "a.txt"
    path.write_text(" ".join(words), encoding="utf-8")
    from zellige.data import cache, readers

    monkeypatch.setattr(readers, "BLOCK", 1000)
    monkeypatch.setattr(cache, "BATCH", 3000)
    monkeypatch.setattr(cache, "CHUNK", 500)
    corpus = prepare(Data("text", path=str(path), tokenizer=str(published / "gpt2-bpe"), validation=0, test=0), 16)
    wanted = corpus.tokenizer.encode(path.read_text(encoding="utf-8"))
    assert stream(corpus.train).tolist() == wanted[: corpus.train.tokens_total]
    assert len(wanted) - corpus.train.tokens_total < 16


def test_a_long_document_of_small_pieces_is_not_copied_for_each():
    class Piece(str):
        copied = 0

        def __radd__(self, before):
            Piece.copied += len(before)
            return str.__add__(before, self)

    pieces = [(Piece(f"piece {i} of a text, "), i == 4_000) for i in range(5_000)]
    made, texts = [*chunks(pieces)], "".join(text for text, _ in pieces)
    assert "".join(text for text, _ in made) == texts
    assert [ends for _, ends in made].count(True) == 1
    assert Piece.copied <= len(texts)


def test_prepared_once_and_never_half(tmp_path, cache, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("abc " * 5000)
    data = Data("text", path=str(path), tokenizer="bpe:300")
    first = prepare(data, 16)
    from zellige.data import cache as store

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_tokens", lambda *a, **k: pytest.fail("encoded again"))
        again = prepare(data, 32)  # another length, the same tokens
    assert again.tokenizer.fingerprint == first.tokenizer.fingerprint
    assert again.about["sha256"] == first.about["sha256"]
    assert np.array_equal(stream(again.train)[:320], stream(first.train)[:320])
    path.write_text("abz " * 5000)  # as long, but another text
    assert prepare(data, 16).about["sha256"] != first.about["sha256"]
    assert len(list((cache / "tokens").iterdir())) == 2
    folder = next((cache / "tokens").iterdir())
    (folder / "tokens.bin").write_bytes(b"")  # broken from outside: made anew
    for text in ("abc ", "abz "):
        path.write_text(text * 5000)
        assert len(prepare(data, 16).train) > 0

    def full(*a, **k):
        raise OSError(28, "No space left on device")

    path.write_text("abe " * 5000)
    monkeypatch.setattr(store._Writer, "append", full)
    with pytest.raises(InputError, match="no space left"):
        prepare(data, 16)
    assert not [p for p in (cache / "tokens").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("name", ["tokens.bin", "documents.npy", "tokenizer.json", "meta.json"])
def test_a_damaged_cache_heals(name, tmp_path, cache):
    """One flipped bit in any file of the tokens: they are made again, the same, and that is said."""
    (tmp_path / "a.txt").write_text("the cat sat\non the mat\n" * 500)
    data = Data("text", path=str(tmp_path / "a.txt"), pack="document", validation=0.1)
    first = prepare(data, 16)
    assert first.notes == ()
    (folder,) = (cache / "tokens").iterdir()
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    damaged = bytearray(whole[name])
    damaged[len(damaged) // 2] ^= 1
    (folder / name).write_bytes(damaged)
    again = prepare(data, 16)
    assert again.notes[0].startswith(f"'{folder / name}' ")
    assert again.notes[0].endswith("; the tokens were made again from the text")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole
    assert torch.equal(again.train[7]["tokens"], first.train[7]["tokens"])
    assert prepare(data, 16).notes == ()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04" + bytes(96), "a zip archive"),
        (gzip.compress(b"the cat sat on the mat" * 9, mtime=0), "packed with gzip"),
        (pickle.dumps({"a": [1] * 99}), "a pickle"),
        (b"\x7fELF\x02\x01" + bytes(94), "a program"),
        (b"\x89PNG\r\n\x1a\n" + bytes(92), "an image"),
        (b"\x58\x00\x00\x00\x00\x00\x00\x00" + b'{"a":' + bytes(87), "a safetensors file"),
        ("the cat sät on the mat\n".encode() * 9, "it is text"),
        (bytes(101), "101 bytes are no whole number of them"),
        (b"\x93NUMPY" + bytes(94), "a .npy under another name"),
    ],
)
def test_other_files_are_no_tokens(content, what, tmp_path):
    content += b"" if len(content) % 2 == 0 or "101" in what else b"\n"
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(InputError) as caught:
        prepare(Data("tokens", path=str(tmp_path / "a.bin"), vocabulary=65536), 16)
    wanted = f"'{tmp_path}/a.bin' is not a file of tokens ({what}); give a .npy, or a .bin or .ds of 16 or 32 bits"
    assert str(caught.value) == wanted


def test_rows_in_worker_processes():
    corpus = prepare(Data(), 64)
    rows = pickle.loads(pickle.dumps(corpus.train))
    assert len(pickle.dumps(corpus.train)) < 2000  # the path, not the tokens
    loader = DataLoader(rows, batch_size=8, num_workers=2, collate_fn=collate)
    first = next(iter(loader))
    assert torch.equal(first.tokens, torch.stack([corpus.train[i]["tokens"] for i in range(8)]))
    assert first.mask is None
    with pytest.raises(IndexError):
        _ = rows[len(rows)]


def test_own_integers(tmp_path):
    tokens = torch.arange(400).reshape(100, 4) % 20
    data = Data.of(tokens, vocabulary=20)
    assert "tensor" not in repr(data)
    assert cattrs.unstructure(data)["vocabulary"] == 20
    corpus = prepare(data, 4)
    assert [len(corpus.split(s)) for s in ("train", "validation", "test")] == [90, 5, 5]
    assert torch.equal(corpus.train[3]["tokens"], tokens[3])
    assert corpus.tokenizer.size == 20
    assert corpus.tokenizer.decode(tokens[0]) == "0 1 2 3"
    assert corpus.train.characters is None
    json.dumps(corpus.about)
    flat = prepare(Data.of(np.arange(1000) % 7, 7, validation=0, test=0), 30)
    assert len(flat.train) == 33
    np.save(tmp_path / "a.npy", tokens.numpy())
    assert len(prepare(Data("tokens", path=str(tmp_path / "a.npy"), vocabulary=20), 4).test) == 5
    np.full(500, 50257 % 65536, np.uint16).tofile(tmp_path / "data.bin")
    with pytest.raises(InputError) as error:
        prepare(Data("tokens", path=str(tmp_path / "data.bin"), vocabulary=27), 16)
    assert str(error.value) == (
        f"token id 50,257 in '{tmp_path / 'data.bin'}' but the vocabulary has 27 entries; use the tokenizer that made it"
    )
    for wrong in (
        Data("tokens"),
        Data.of(tokens, 20),
        Data.of(tokens.float(), 20),
        Data.of(tokens - 1, 20),
        Data.of(tokens, 0),
    ):
        with pytest.raises(InputError):
            prepare(wrong, 5)


def test_a_model_judged_on_another_corpus(tmp_path):
    trained = prepare(Data(), 64).tokenizer
    path = tmp_path / "a.txt"
    path.write_text("abc def " * 500)
    assert prepare(Data("text", path=str(path)), 32).tokenizer.size == 7
    corpus = prepare(Data("text", path=str(path)), 32, tokenizer=trained)
    assert corpus.tokenizer.fingerprint == trained.fingerprint
    assert corpus.tokenizer.decode(corpus.test[0]["tokens"]) == path.read_text()[3800:3832]
    path.write_text("abc déf " * 500)
    with pytest.raises(InputError, match=r"'é' in '.*' is not in the vocabulary"):
        prepare(Data("text", path=str(path)), 32, tokenizer=trained)


class Hub(types.ModuleType):
    """What `datasets` delivers, as far as it is used: rows of columns, with a length."""

    def __init__(self, sets):
        super().__init__("datasets")
        self.sets = sets

    def load_dataset(self, name, configuration=None, split=None, cache_dir=None):
        return self.sets[name, configuration, split]


def test_sets_of_the_hub(monkeypatch, published):
    article = " \n = Title = \n \n A line . \n Another line . \n"
    rows = [{"text": "" if line == " \n" else line} for line in article.splitlines(keepends=True)]
    pages = [{"text": f"page {i} of the web"} for i in range(40)]
    hub = {("Salesforce/wikitext", "wikitext-2-raw-v1", s): rows * 20 for s in ("train", "validation", "test")}
    hub["Skylion007/openwebtext", None, "train"] = pages
    hub |= {("ccdv/arxiv-summarization", "document", s): [{"article": "a", "abstract": "b"}] * 90
            for s in ("train", "validation", "test")}  # fmt: skip
    monkeypatch.setitem(sys.modules, "datasets", Hub(hub))
    corpus = prepare(Data("wikitext2", tokenizer="characters"), 16)
    assert corpus.tokenizer.decode(stream(corpus.test)) == (article * 20)[: corpus.test.tokens_total]
    corpus = prepare(Data("openwebtext", tokenizer="characters", validation=10), 16)
    assert corpus.tokenizer.decode(corpus.validation[0]["tokens"]) == "page 30 of the w"
    assert corpus.test is corpus.validation
    with pytest.raises(InputError, match=r"openwebtext has 40 documents, validation and test take 100,000"):
        prepare(Data("openwebtext", tokenizer="characters"), 16)
    assert prepare(Data("arxiv", tokenizer="bytes"), 16).test[0]["tokens"].tolist() == list(b"a\n" * 8)
    calls = []
    prepare(Data("wikitext2", tokenizer="bytes"), 16, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] == 300

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError) as error:
        prepare(Data("lm1b", tokenizer=str(published / "bert-vocab")), 32)
    assert str(error.value) == "`data.name` lm1b needs 'datasets'; pip install 'zellige[data]'"


def test_downloads_are_checked(tmp_path, cache, monkeypatch):
    text = "the quick brown fox " * 400
    file = tmp_path / "text8.zip"
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("text8", text)
    good = hashlib.sha256(file.read_bytes()).hexdigest()
    entry = DATASETS["text8"]
    for checksum in ("0" * 64, "md5:" + "0" * 32):
        wrong = dataclasses.replace(entry, files={"all": (file.as_uri(), checksum)})
        monkeypatch.setitem(DATASETS, "text8", wrong)
        with pytest.raises(
            InputError, match=r"has (sha256|md5) .*, not 00000000\.\.\.; give a local copy by `data\.path`"
        ):
            prepare(Data("text8"), 32)
        assert not any(p.is_file() for p in cache.rglob("*"))
    monkeypatch.setitem(DATASETS, "text8", dataclasses.replace(entry, files={"all": (file.as_uri(), good)}))
    corpus = prepare(Data("text8"), 32)
    assert corpus.about["sha256"] == good
    assert corpus.tokenizer.decode(corpus.train[0]["tokens"]) == text[:32]
    file.unlink()
    assert len(prepare(Data("text8"), 32).test) == 12  # from the cache


def test_the_table():
    for name, entry in DATASETS.all().items():
        assert entry.what
        assert entry.size
        assert entry.split
        assert entry.licence
        assert entry.needs
        local = {"pydocs", "text", "tokens", "digits", "sudoku", "smiles", "dna", "table", "array", "images"}
        local |= {"lakh-pianoroll", "imagenet32", "imagenet64", "imagenet32-oord", "imagenet64-oord"}
        assert bool(entry.files) + bool(entry.hub) == (name not in local)
        assert (
            len(f"{name:15}  {entry.what:24}  {entry.size:6}  {entry.split:23}  {entry.licence:8}  {entry.needs}")
            <= 100
        )
    names = "text8 enwik8 wikitext2 wikitext103 ptb lm1b openwebtext fineweb-edu c4 lambada ag_news pubmed arxiv"
    pictures = "digits mnist binarized-mnist fashion-mnist cifar10 cifar100 imagenet32 imagenet64 images"
    pictures += " imagenet32-oord imagenet64-oord"
    shaped = f"{pictures} nouns jsb-chorales lakh-pianoroll sudoku qm9 smiles dna table array"
    assert {name for name, entry in DATASETS.all().items() if entry.shaped} == {*shaped.split()}
    assert set(DATASETS.names()) == {"pydocs", "stories", "names", "text", "tokens", *names.split(), *shaped.split()}


def big_file(path, size):
    words = ["".join(random.Random(i).choices("abcdefghijklmnopqrstuvwxyzéλ", k=1 + i % 9)) for i in range(5000)]
    line = " ".join(words) + "\n"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(size // len(line.encode()) + 1):
            file.write(line)


def peak_of_preparing(path, tokenizer):
    """Peak memory, in bytes, of a fresh process that prepares the file, above what its imports take."""
    import subprocess

    code = f"""
import re, torch
from zellige.data import Data, prepare, Rows
import tokenizers
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024  # maxrss is inherited
before, calls = peak(), []
corpus = prepare(Data("text", path={str(path)!r}, tokenizer={tokenizer!r}), 256, progress=lambda *c: calls.append(c))
assert len(calls) > 20 and calls == sorted(calls) and calls[-1][0] == calls[-1][1], calls[-3:]
print(peak(), peak() - before)
"""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [int(n) for n in done.stdout.split()]


def test_preparing_streams(tmp_path):
    big_file(tmp_path / "a.txt", 30_000_000)
    total, above = peak_of_preparing(tmp_path / "a.txt", "characters")
    assert total < 1e9
    assert above < 100e6


@pytest.mark.long
@pytest.mark.parametrize("tokenizer", ["characters", "bytes", "bpe:2048"])
def test_preparing_100_megabytes_takes_less_than_one_gigabyte(tmp_path, tokenizer):
    big_file(tmp_path / "a.txt", 100_000_000)
    total, _ = peak_of_preparing(tmp_path / "a.txt", tokenizer)
    assert total < 1e9


def test_c4_as_published(tmp_path):
    """Its .json.gz files have a row a line; the validation split is the test split, too."""
    for name, count in (("c4-train.00000-of-01024.json.gz", 4), ("c4-validation.00000-of-00008.json.gz", 2)):
        rows = [
            json.dumps({"text": f"page {i}\nof {name[3]}", "timestamp": "2019", "url": "u"}) + "\n"
            for i in range(count)
        ]
        (tmp_path / name).write_bytes(gzip.compress("".join(rows).encode()))
    corpus = prepare(
        Data("c4", path=str(tmp_path), tokenizer="characters", pack="document", cache=str(tmp_path / "c")), 16
    )
    texts = {name: [corpus.tokenizer.decode(row["tokens"][row["mask"]].tolist()) for row in getattr(corpus, name)]
             for name in ("train", "validation", "test")}  # fmt: skip
    assert texts["train"][3] == "page 3\nof t\n"
    assert texts["validation"] == texts["test"] == ["page 0\nof v\n", "page 1\nof v\n"]
