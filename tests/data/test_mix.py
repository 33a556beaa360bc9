"""Mixtures: which row comes from where, exactly and whatever the devices; what is pooled; what is refused."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import zellige
from zellige import Data, InputError, Net, Train
from zellige.data.mix import BLOCK, block_shares, parse_mix
from zellige.data.prepare import prepare
from zellige.training import notes
from zellige.training.order import LARGE, BatchSampler, Order, epochs, permuted

MIX = "a.txt=6,b.jsonl=3,c.bin=1"
WRITE = "write NAME=WEIGHT,NAME=WEIGHT of two or more data sets or paths, e.g. web/=0.7,books.jsonl=0.3"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """a.txt of a only, b.jsonl of b in documents, c.bin of bytes c."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("a" * 4000)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"id": i, "body": "b" * (20 + i)}) + "\n" for i in range(40)))
    np.full(1000, ord("c"), np.uint16).tofile("c.bin")


def test_weights_and_shares():
    assert parse_mix("web/*.jsonl=7, books=3") == {"web/*.jsonl": 0.7, "books": 0.3}
    assert parse_mix("a=b.txt=1,c=3") == {"a=b.txt": 0.25, "c": 0.75}  # the last sign is the weight's
    for weights in ({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, {"a": 0.99985, "b": 0.00015}, {"a": 0.7, "b": 0.3}):
        shares = block_shares(weights)
        assert sum(shares) == BLOCK
        assert all(abs(share - BLOCK * weight) < 1 for share, weight in zip(shares, weights.values()))
    assert block_shares({"a": 0.7, "b": 0.3}) == [7000, 3000]


@pytest.mark.parametrize(
    ("mix", "says"),
    [
        ("a.txt", f"`data.mix` is 'a.txt'; {WRITE}"),
        ("a.txt=0.7", f"`data.mix` is 'a.txt=0.7'; {WRITE}"),
        ("a.txt=0,b=1", f"`data.mix` is 'a.txt=0,b=1'; {WRITE}"),
        ("a.txt=1,a.txt=2", "`data.mix` names 'a.txt' twice; add the two weights"),
        ("a.txt=1,c.bin=1e-6", "`data.mix` gives 'c.bin' 1e-06 of the rows; the least is 1 in 10,000, leave it out"),
        ("a.txt=1,digits=1", "`data.mix` is of texts and tokens, and 'digits' is neither; leave it out"),
    ],
)  # fmt: skip
def test_a_mixture_that_cannot_be_is_one_line(mix, says):
    with pytest.raises(InputError) as caught:
        prepare(Data("text", mix=mix, tokenizer="bytes"), 16)
    assert str(caught.value) == says


def test_what_goes_with_no_mixture():
    for more, says in (
        ({}, "`data.mix` needs one tokenizer for all sources, learnt on none; give `data.tokenizer`, e.g. gpt2 or bytes"),
        ({"path": "a.txt"}, "`data.path` is of one corpus, and `data.mix` names several; leave one of them out"),
        ({"validation": "b.jsonl"}, "`data.validation` is of one corpus, and `data.mix` names several; leave one of them out"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            prepare(Data("text", mix=MIX, **more), 16)
        assert str(caught.value) == says


@pytest.mark.parametrize("large", [LARGE, 5])  # and where the orders of sources above 5 rows are computed
@pytest.mark.parametrize("sources", [[(9, 5), (4, 3), (30, 2)], [(7, 1), (3, 1)], [(5, 4), (5, 1)]])
def test_each_block_has_its_shares_and_each_source_its_epochs(sources, large, monkeypatch):
    monkeypatch.setattr("zellige.training.order.LARGE", large)
    block, total = sum(share for _, share in sources), 400
    order = Order(sources, 3)
    drawn = [order.draw(n)[0] for n in range(total)]
    firsts = np.cumsum([0, *(rows for rows, _ in sources)])
    of = np.searchsorted(firsts, drawn, "right") - 1
    for begin in range(0, total, block):
        counts = Counter(of[begin : begin + block].tolist())
        assert [counts[i] for i in range(len(sources))] == [share for _, share in sources]
    for source, (rows, _) in enumerate(sources):
        own = [n - firsts[source] for n, which in zip(drawn, of) if which == source]
        for epoch in range(len(own) // rows):
            assert sorted(own[epoch * rows : (epoch + 1) * rows]) == list(range(rows))
        assert epochs(sources, total)[source] == pytest.approx(len(own) / rows, abs=block / rows)
    fresh = Order(sources, 3)  # from any row on, asked in any order
    assert [fresh.draw(n)[0] for n in reversed(range(total))] == drawn[::-1]
    assert [Order(sources, 4).draw(n)[0] for n in range(total)] != drawn


@pytest.mark.parametrize("rows", [1, 2, 3, 9, 10, 1000])
def test_an_order_without_memory_holds_each_row_once(rows):
    orders = [[permuted(n, rows, key) for n in range(rows)] for key in range(3)]
    assert all(sorted(order) == list(range(rows)) for order in orders)
    assert rows < 9 or orders[0] != orders[1] != orders[2] != orders[0]


def test_an_order_without_memory_looks_random():
    """Where a tenth of the places goes among tenths of the rows, and where a row's neighbour goes: chi-squared, error 1e-6."""
    rows = 10_000
    order = np.array([permuted(n, rows, 0) for n in range(rows)])
    for place in (np.arange(rows), order[np.r_[1:rows, 0]]):
        counts = np.histogram2d(place, order, 10)[0]
        assert ((counts - rows / 100) ** 2 / (rows / 100)).sum() < 160  # of 81 degrees of freedom: 5e-7


@pytest.mark.parametrize(("accumulate", "world"), [(2, 1), (1, 2), (3, 2)])
def test_the_parts_of_a_step_are_the_step_of_a_mixture(accumulate, world):
    sources = [(50, 6), (7, 3), (11, 1)]
    whole = list(BatchSampler(sources, 0, 12, 0, 9))
    for start in (0, 5):
        each = [list(BatchSampler(sources, 0, 12, start, 9, accumulate, rank, world)) for rank in range(world)]
        for step in range(start, 9):
            parts = [each[r][(step - start) * accumulate + m] for m in range(accumulate) for r in range(world)]
            assert parts == [whole[step][part :: len(parts)] for part in range(len(parts))]


def test_a_mixture_is_its_sources():
    """The rows of each as it gives them alone; validation and test pooled."""
    corpus = prepare(Data("text", mix=MIX, field="body", tokenizer="bytes"), 16)
    alone = [
        prepare(Data("text", path="a.txt", tokenizer="bytes"), 16),
        prepare(Data("text", path="b.jsonl", field="body", tokenizer="bytes"), 16),
        prepare(Data("tokens", path="c.bin", tokenizer="bytes"), 16),
    ]
    for split in ("train", "validation", "test"):
        rows, parts = corpus.split(split), [one.split(split) for one in alone]
        assert (rows.array() == np.concatenate([part.array() for part in parts])).all()
        assert (rows.between(2, 9) == rows.array()[2:9]).all()
        each = [part[i]["tokens"] for part in parts for i in range(len(part))]
        assert len(rows) == len(each)
        assert all(torch.equal(rows[i]["tokens"], row) for i, row in enumerate(each))
        assert torch.equal(rows[-1]["tokens"], each[-1])
        assert rows.tokens_total == sum(part.tokens_total for part in parts)
    assert corpus.train.sources == [(len(part.train), share) for part, share in zip(alone, (6000, 3000, 1000))]
    assert [of["share"] for of in corpus.about["mix"].values()] == [0.6, 0.3, 0.1]
    other = prepare(Data("text", mix="a.txt=6,b.jsonl=2,c.bin=2", field="body", tokenizer="bytes"), 16)
    assert other.about["sha256"] != corpus.about["sha256"]  # another mixture is other data, of the same tokens
    assert other.about["tokens_sha256"] == corpus.about["tokens_sha256"]


@pytest.mark.parametrize("pack", ["document", "packed"])
def test_documents_of_a_mixture_share_rows_with_their_source_only(pack):
    data = Data("text", mix="a.txt=1,b.jsonl=1", field="body", tokenizer="bytes", pack=pack, validation=0, test=0)
    Path("a.txt").write_text("a" * 9 + "\n" + "a" * 30 + "\n")
    rows = prepare(data, 64).train
    for i in range(len(rows)):
        text = bytes(rows[i]["tokens"][rows[i]["mask"]].tolist())
        assert not (b"a" in text and b"b" in text)
    assert (rows.array() >= 0).sum() == rows.tokens_total == rows.documents[-1]
    assert rows.texts == len(rows.documents) - 1 == 42


def test_a_run_of_a_mixture_goes_on_bit_for_bit(tmp_path):
    """Its epochs are told, and the protocol of an evaluation says that the sources are pooled."""
    how = {
        "data": Data("text", mix=MIX, field="body", tokenizer="bytes"),
        "net": Net(layers=1, hidden=16, heads=2, length=16),
    }

    def go(name, steps, **more):
        usual = {"warmup": 0, "decay": "constant", "samples": 0, "tensorboard": False, "device": "cpu"}
        chosen = Train(steps=steps, batch=4, validate_rows=2, validate_draws=2, **usual)
        return zellige.train("mdlm", train=chosen, run=tmp_path / name, **how, **more)

    whole, _ = go("whole", 4), go("two", 2)
    again = go("two", 4, resume=True)
    weights = [load_file(run.folder / "checkpoints" / "last" / "model.safetensors") for run in (whole, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    corpus = prepare(how["data"], 16)
    assert notes.mixed(corpus, Train(steps=400, batch=4)) == [
        "mix: a.txt 0.6 (4.3 epochs), b.jsonl 0.3 (5.6 epochs), c.bin 0.1 (2.9 epochs)",
        "validation and test are pooled: each row of each source counts once",
    ]
    note = notes.resumed(200, again.config, corpus.train, {})
    assert "(epochs of the sources: 2.1, 2.8, 1.4)" in note
    result = zellige.evaluate(again, draws=2, limit=2)
    assert result.protocol["pooled"] == "each row of a.txt, b.jsonl, c.bin counts once, whatever its weight in training"
