"""Tokens that others made: nanoGPT, Megatron, datatrove. Each file is written here as its format says, and read in place."""

import pickle
import struct

import numpy as np
import pytest

from zellige.base.errors import InputError
from zellige.data import Data
from zellige.data.prepare import prepare
from zellige.data.token_files import Shards, TokenFile

TOKENS = np.random.default_rng(0).integers(0, 300, 5000)
SIZES = np.array([5, 40, 1, 0, 954, 2000, 1990, 10])  # of documents; one is empty
ENDS = np.cumsum(SIZES)


def megatron(path, tokens=TOKENS, sizes=SIZES, code=8, dtype="<u2", documents=None):
    tokens.astype(dtype).tofile(path.with_suffix(".bin"))
    begins = (np.cumsum(sizes) - sizes) * np.dtype(dtype).itemsize
    documents = np.arange(len(sizes) + 1) if documents is None else np.array(documents)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sizes), len(documents))
    arrays = sizes.astype("<i4"), begins.astype("<i8"), documents.astype("<i8")
    path.with_suffix(".idx").write_bytes(head + b"".join(a.tobytes() for a in arrays))


def datatrove(path, tokens=TOKENS, ends=ENDS, dtype="<u2"):
    tokens.astype(dtype).tofile(path)
    ends.astype("<u8").tofile(f"{path}.index")


def every(corpus):
    return np.concatenate([corpus.split(s).array().reshape(-1) for s in ("train", "validation", "test")])


@pytest.mark.parametrize("width", [2, 4])
def test_nanogpt_of_16_and_32_bits(width, tmp_path):
    """Of a vocabulary that 16 bits hold the file says which it is; of a larger one it is 32."""
    TOKENS.astype(f"<u{width}").tofile(tmp_path / "a.bin")
    corpus = prepare(Data("tokens", path=str(tmp_path / "a.bin"), vocabulary=300), 10)
    assert (every(corpus) == TOKENS).all()
    assert len(pickle.dumps(corpus.train)) < 2000  # the paths, not the tokens
    assert (pickle.loads(pickle.dumps(corpus.train)).array() == corpus.train.array()).all()
    (TOKENS * 300).astype("<u4").tofile(tmp_path / "b.bin")
    assert (every(prepare(Data("tokens", path=str(tmp_path / "b.bin"), vocabulary=90_000), 10)) == TOKENS * 300).all()


def test_the_splits_and_shards_of_a_folder(tmp_path):
    for name, part in (("train_000", TOKENS[:1003]), ("train_001", TOKENS[1003:4500]), ("val", TOKENS[4500:])):
        part.astype("<u2").tofile(tmp_path / f"{name}.bin")
    corpus = prepare(Data("tokens", path=str(tmp_path), vocabulary=300), 50)
    assert (corpus.train.array().reshape(-1) == TOKENS[:4500]).all()
    assert (corpus.validation.array().reshape(-1) == TOKENS[4500:]).all()
    assert "test" not in corpus.rows
    assert (corpus.train[20]["tokens"].numpy() == TOKENS[1000:1050]).all()  # of two files
    assert [len(corpus.about["files"]), corpus.about["splits"]["train"]["rows"]] == [3, 90]


@pytest.mark.parametrize("form", ["u2", "i4", "ds2", "ds4", "two"])
def test_documents_where_the_index_has_them(form, tmp_path):
    """The same documents, and the same stream, as those that are handed over."""
    if form.startswith("ds"):
        datatrove(tmp_path / "a.ds", dtype=f"<u{form[-1]}")
        path = tmp_path / "a.ds"
    elif form == "two":
        megatron(tmp_path / "a", TOKENS[:1000], SIZES[:5])
        datatrove(tmp_path / "b.ds", TOKENS[1000:], ENDS[5:] - 1000)
        path = tmp_path
    else:
        megatron(tmp_path / "a", code=8 if form == "u2" else 4, dtype=f"<{form}")
        path = tmp_path / "a.idx"
    handed = [TOKENS[end - size : end].tolist() for size, end in zip(SIZES, ENDS) if size]
    for pack in ("document", "packed"):
        theirs = prepare(Data("tokens", path=str(path), vocabulary=300, pack=pack, validation=2, test=1), 64)
        ours = prepare(Data.of(handed, 300, pack=pack, validation=2, test=1), 64)
        for split in ("train", "validation", "test"):
            assert (theirs.split(split).array() == ours.split(split).array()).all()
            assert theirs.split(split)[0]["segments"].tolist() == ours.split(split)[0]["segments"].tolist()
    assert (every(prepare(Data("tokens", path=str(path), vocabulary=300), 10)) == TOKENS).all()


def test_sequences_of_a_document_are_joined(tmp_path):
    megatron(tmp_path / "a", documents=[0, 2, 5, 8])
    data = Data("tokens", path=str(tmp_path / "a.bin"), vocabulary=300, pack="document", validation=0, test=0)
    assert prepare(data, 5000).train.tokens_total == 5000
    assert [int((row["mask"]).sum()) for row in map(prepare(data, 5000).train.__getitem__, range(3))] == [45, 955, 4000]


def test_slices_of_shards_are_those_of_the_array(tmp_path):
    sizes = [1, 7, 30, 2, 60]
    files = []
    for i, (size, end) in enumerate(zip(sizes, np.cumsum(sizes))):
        TOKENS[end - size : end].astype("<u2").tofile(tmp_path / f"{i}.bin")
        files.append(TokenFile(tmp_path / f"{i}.bin", "<u2", size))
    shards = Shards(files)
    for begin in range(101):
        for end in range(101):
            assert shards[begin:end].tolist() == TOKENS[:100][begin:end].tolist()
    assert [shards.min(), shards.max(), len(shards)] == [TOKENS[:100].min(), TOKENS[:100].max(), 100]


def wrong(path, **more):
    with pytest.raises(InputError) as caught:
        prepare(Data("tokens", path=str(path), **({"vocabulary": 300} | more)), 16)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_what_does_not_fit_is_one_line(tmp_path):
    megatron(tmp_path / "a")
    (tmp_path / "a.bin").write_bytes((tmp_path / "a.bin").read_bytes()[:-2])
    says = (
        "'a.idx' says 5,000 tokens of 2 bytes one after another, and 'a.bin' has 9,998 bytes; copy or make both again"
    )
    assert wrong(tmp_path / "a.bin") == says
    (tmp_path / "a.bin").unlink()
    assert wrong(tmp_path / "a.idx") == "'a.idx' has no 'a.bin' beside it, which holds the tokens; give both"
    megatron(tmp_path / "b")
    content = (tmp_path / "b.idx").read_bytes()
    for begin, says in (
        (b"other" + content[5:], "is no index of Megatron (MMIDIDX); give its own, or take it away from 'b.bin'"),
        (content[:17] + b"\x07" + content[18:], "has version 1 and type 7; it must be version 1, of whole numbers"),
        (content[:-9], f"is cut off ({len(content) - 9:,} bytes); copy or make it again"),
    ):
        (tmp_path / "b.idx").write_bytes(begin)
        assert wrong(tmp_path / "b.bin") == f"'b.idx' {says}"
    datatrove(tmp_path / "c.ds", ends=ENDS[:-1])
    says = "'c.ds.index' ends at token 4,990, and 'c.ds' has 10,000 bytes; copy or make both again"
    assert wrong(tmp_path / "c.ds") == says
    TOKENS.astype("<u2").tofile(tmp_path / "d.bin")
    assert wrong(tmp_path / "d.bin", pack="packed") == (
        "`data.pack` packed needs documents, and 'd.bin' is one stream; "
        "give files that say where documents end (Megatron's .idx, datatrove's .ds.index)"
    )
    assert wrong(tmp_path / "d.bin", vocabulary=200).startswith(
        f"token id {TOKENS.max()} in 'd.bin' but the vocabulary"
    )
    TOKENS[:4999].astype("<u2").tofile(tmp_path / "e.bin")
    assert wrong(tmp_path / "e.bin", vocabulary=70_000) == (
        "9,998 bytes of 'e.bin' are no integers of 32 bits; copy or make it again"
    )
