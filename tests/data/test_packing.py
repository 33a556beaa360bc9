"""Documents in rows: whole, each once, apart from each other, ended by EOS; few rows; the same whoever reads them."""

import json
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from zellige.base.errors import InputError
from zellige.data import Data, Rows, collate
from zellige.data.prepare import prepare
from zellige.data.rows import best_fit, evenly_spaced


def fewest(sizes, length):
    """The least number of rows, by trying everything."""
    best, rows = len(sizes), []

    def place(i):
        nonlocal best
        if len(rows) >= best:
            return
        if i == len(sizes):
            best = len(rows)
            return
        for r in range(len(rows)):
            if rows[r] + sizes[i] <= length:
                rows[r] += sizes[i]
                place(i + 1)
                rows[r] -= sizes[i]
        rows.append(sizes[i])
        place(i + 1)
        rows.pop()

    place(0)
    return best


def test_every_document_is_in_one_row_and_rows_are_few():
    random = np.random.default_rng(0)
    for case in range(40):
        length = int(random.integers(1, 20))
        sizes = random.integers(1, length + 1, size=int(random.integers(1, 9)))
        order, first = best_fit(sizes, length)
        assert sorted(order) == list(range(len(sizes)))
        assert first[0] == 0
        assert first[-1] == len(sizes)
        rows = np.split(sizes[order], first[1:-1])
        assert all(0 < row.sum() <= length for row in rows)
        least = fewest(sizes.tolist(), length)
        assert least <= len(rows) <= (11 * least + 6) / 9, case  # the bound of best-fit decreasing
    sizes = random.integers(1, 257, size=20_000)
    rows = len(best_fit(sizes, 256)[1]) - 1
    assert sizes.sum() / 256 <= rows <= 1.01 * sizes.sum() / 256 + 1


def test_best_fit_takes_the_fullest_row_with_room():
    order, first = best_fit(np.array([2, 7, 3, 5, 1, 10]), 10)
    assert [row.tolist() for row in np.split(order, first[1:-1])] == [[5], [1, 2], [0, 3, 4]]
    order, first = best_fit(np.array([4, 4, 4]), 4)
    assert (order.tolist(), first.tolist()) == ([0, 1, 2], [0, 1, 2, 3])


TEXTS = [f"document {'x' * (i % 7)} {i}" for i in range(100)]


@pytest.fixture
def prepared(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"body": t}) + "\n" for t in TEXTS))

    def get(length=40, **choices):
        return prepare(Data("text", path=str(path), field="body", validation=7, test=0.1, **choices), length)

    return get


def texts_of(rows, decode):
    """The documents of all rows, and how many tokens each has."""
    found = []
    for row in map(rows.__getitem__, range(len(rows))):
        assert set(row["segments"].diff().tolist()) <= {0, 1}
        for number in row["segments"][row["mask"]].unique():
            found.append(decode(row["tokens"][row["mask"] & (row["segments"] == number)]))
        if not row["mask"].all():  # the padding is one more
            assert (row["segments"][~row["mask"]] == row["segments"].max()).all()
            assert row["segments"][row["mask"]].max() < row["segments"].max()
    return found


def test_packed_rows_hold_whole_documents(prepared):
    one, packed = prepared(pack="document"), prepared(pack="packed")
    decode = packed.tokenizer.decode
    for split in ("train", "validation", "test"):
        a, b = one.split(split), packed.split(split)
        assert sorted(texts_of(b, decode)) == sorted(texts_of(a, decode))
        assert (b.tokens_total, b.characters, b.texts, b.cut) == (a.tokens_total, a.characters, a.texts, 0)
        assert b.tokens_total == sum(int(b[i]["mask"].sum()) for i in range(len(b)))
        assert np.array_equal(a.array(), b.array())  # by document
        assert np.array_equal(a.array(5), a.array()[np.arange(5) * a.texts // 5])
    assert sorted(texts_of(packed.train, decode)) == sorted(t + "\n" for t in TEXTS[:83])
    assert len(packed.train) < len(one.train) / 2
    assert packed.about["splits"]["train"] == {
        "rows": len(packed.train), "tokens": packed.train.tokens_total, "characters": packed.train.characters,
        "left_out": 0, "documents": 83, "cut": 0,
    }  # fmt: skip
    assert (packed.about["pack"], packed.about["separator"]) == ("packed", "newline after each document")


@pytest.mark.parametrize("pack", ["document", "packed"])
def test_longer_documents_are_cut_into_pieces(prepared, pack):
    """No token is lost, whichever split: a document of 35 tokens is rows, or parts of rows, of 14, 14 and 7."""
    corpus = prepared(14, pack=pack)
    for split, texts in (("train", TEXTS[:83]), ("validation", TEXTS[83:90]), ("test", TEXTS[90:])):
        rows = corpus.split(split)
        wanted = [(t + "\n")[at : at + 14] for t in texts for at in range(0, len(t) + 1, 14)]
        assert sorted(texts_of(rows, corpus.tokenizer.decode)) == sorted(wanted)
        assert rows.tokens_total == rows.characters == sum(len(t) + 1 for t in texts)
        assert (rows.texts, rows.left_out) == (len(wanted), 0)
        assert rows.cut == sum(len(t) + 1 > 14 for t in texts) > 0
        assert corpus.about["splits"][split]["cut"] == rows.cut


def test_what_fills_no_row_is_counted(prepared):
    corpus = prepared(40)
    for split, texts in (("train", TEXTS[:83]), ("validation", TEXTS[83:90]), ("test", TEXTS[90:])):
        rows, total = corpus.split(split), sum(len(t) + 1 for t in texts)
        assert rows.left_out == corpus.about["splits"][split]["left_out"] == total - 40 * len(rows) > 0


@pytest.mark.parametrize("pack", ["document", "packed"])
def test_documents_are_filled_up_with_what_ends_them(prepared, pack):
    plain, filled = prepared(pack=pack), prepared(pack=pack, fill=8)
    wanted = [(t + "\n").ljust(-(-(len(t) + 1) // 8) * 8, "\n") for t in TEXTS[:83]]
    assert sorted(texts_of(filled.train, filled.tokenizer.decode)) == sorted(wanted)
    assert filled.train.tokens_total == sum(map(len, wanted))
    assert filled.train.characters == plain.train.characters  # of the text itself
    assert ((filled.train.array() >= 0).sum(1) % 8 == 0).all()
    whole = prepared(pack=pack, fill=40)
    assert all(bool(whole.train[i]["mask"].all()) for i in range(len(whole.train)))
    assert len(whole.train) == 83


def test_packed_rows_in_worker_processes(prepared):
    rows = prepared(pack="packed").train
    loader = DataLoader(pickle.loads(pickle.dumps(rows)), batch_size=4, num_workers=2, collate_fn=collate)
    first = next(iter(loader))
    for name in ("tokens", "mask", "segments"):
        assert torch.equal(getattr(first, name), torch.stack([rows[i][name] for i in range(4)]))
    again = prepared(pack="packed").train
    assert all(torch.equal(rows[i]["tokens"], again[i]["tokens"]) for i in range(len(rows)))


def test_own_documents():
    proteins = [torch.arange(n) % 20 for n in [5, 12, 3, 30, 8, 9, 4, 7, 11, 2] * 4]
    data = Data.of(proteins, vocabulary=20, pack="packed", validation=8, test=8)
    corpus = prepare(data, 16)
    assert [corpus.split(s).texts for s in ("train", "validation", "test")] == [27, 8, 9]
    decode = lambda x: x.tolist()  # noqa: E731
    assert sorted(texts_of(corpus.test, decode)) == sorted(
        p[at : at + 16].tolist() for p in proteins[-8:] for at in range(0, len(p), 16)
    )
    assert corpus.test.cut == 1
    assert (corpus.about["pack"], corpus.train.characters) == ("packed", None)
    rows = prepare(Data.of(torch.arange(40).reshape(10, 4), 40, pack="document", validation=0, test=0), 6)
    assert torch.equal(rows.train[2]["tokens"], torch.tensor([8, 9, 10, 11, 0, 0]))
    assert rows.train[2]["mask"].tolist() == [True] * 4 + [False] * 2
    assert prepare(Data.of(proteins, 20, pack="document", validation=0, test=0), 16).about["sha256"] != prepare(
        Data.of([torch.cat(proteins)], 20, pack="document", validation=0, test=0), 16
    ).about["sha256"]  # fmt: skip
    for wrong, message in (
        (Data.of(proteins, 20), "sequences of different length; give `data.pack` packed or document"),
        (Data.of(torch.arange(40), 40, pack="packed"), "needs documents, not the one stream of the tokens"),
        (Data.of(proteins, 20, pack="packed", fill=4), "needs a token that ends documents, and 'integers' has none"),
        (Data.of(proteins, 12, pack="packed"), "token id 19 in the data but the vocabulary has 12 entries"),
    ):
        with pytest.raises(InputError, match=message):
            prepare(wrong, 16)


def test_arrays_are_rows_too():
    rows = Rows(np.arange(12), 4)
    assert (rows.texts, rows.cut, rows.documents) == (3, 0, None)
    assert np.array_equal(rows.array(2), np.array([[0, 1, 2, 3], [4, 5, 6, 7]]))


def test_a_part_of_the_rows_is_evenly_spaced():
    assert evenly_spaced(np.arange(10), 4).tolist() == [0, 2, 5, 7]
    assert evenly_spaced(np.arange(3), 4).tolist() == [0, 1, 2]
