"""Given parts of rows: which positions they are, what is left to count, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch

import zellige
from zellige.base.errors import InputError
from zellige.data import Data, prepare
from zellige.data.corpus import as_packed
from zellige.data.given import Given, GivenRows
from zellige.data.rows import Rows
from zellige.methods import METHODS
from zellige.models.given import needs_sight, refuse_given

PAIRS = [("abc>", "cba"), ("ab>", "ba"), ("a>", "a")] * 20


def pairs(folder, entries=None):
    file = folder / "pairs.jsonl"
    lines = [{"prompt": p, "answer": a} for p, a in PAIRS] if entries is None else entries
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return str(file)


@pytest.mark.parametrize("n", [2, 7, 40, 300])
@pytest.mark.parametrize("word", ["prefix:3", "suffix:3", "spans:0.1", "spans:0.5", "spans:0.9"])
def test_a_given_part_has_its_size_and_leaves_a_token(word, n):
    given, spans = Given.of(word), set()
    for seed in range(20):
        at = given.at(n, seed)
        assert at.sum() == given.count(n) < n
        spans.add(at.tobytes())
        if given.kind == "prefix":
            assert at[: given.count(n)].all()
        if given.kind == "suffix":
            assert at[n - given.count(n) :].all()
    assert given.count(n) == min(3 if given.kind != "spans" else round(given.amount * n), n - 1)
    assert (len(spans) > 5) == (given.kind == "spans" and 0 < given.count(n) < n - 1 and n > 9) or n <= 9


def test_rows_do_not_count_what_is_given():
    """Of a stream, of documents of different lengths, and of several documents in a row."""
    stream = GivenRows(Rows(np.arange(40), 8, characters=80), Given.of("prefix:3"))
    assert stream[1]["mask"].tolist() == [False] * 3 + [True] * 5
    assert (stream.tokens_total, stream.characters) == (25, 50)
    starts = np.array([0, 5, 7, 13])
    for packed in (False, True):
        rows = GivenRows(Rows(np.arange(13), 8, documents=starts, packed=packed), Given.of("suffix:2"))
        batch = rows.collate([rows[i] for i in range(len(rows))])
        assert sorted(batch.tokens[batch.mask].tolist()) == [0, 1, 2, 5, 7, 8, 9, 10]  # one token is left of two
        assert rows.tokens_total == int(batch.mask.sum())


def test_spans_are_others_each_epoch():
    """Row i of epoch e is at i + e N; the first epoch is what validation sees, and the same number of tokens is given in each."""
    plain = Rows(np.arange(400), 40)
    documents = Rows(np.arange(400), 40, documents=np.arange(0, 401, 20), packed=True)
    for source in (plain, documents):
        rows = GivenRows(source, Given.of("spans:0.5"))
        assert [row["mask"].tolist() for row in rows] == [rows[i]["mask"].tolist() for i in range(len(rows))]
        masks = [np.stack([rows[i + e * len(rows)]["mask"] for i in range(len(rows))]) for e in range(4)]
        assert {int(mask.sum()) for mask in masks} == {rows.tokens_total}
        assert len({mask.tobytes() for mask in masks}) == 4
        assert (rows[3]["tokens"] == rows[3 + 2 * len(rows)]["tokens"]).all()
    prefix = GivenRows(plain, Given.of("prefix:3"))
    with pytest.raises(IndexError):
        prefix[len(prefix)]
    assert GivenRows(plain, Given.of("prefix:3")).crops().tokens_total == 37 * 361


def test_training_redraws_spans_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("abcdefghijklmnopqrstuvwxyz" * 12)
    data = Data("text", path=str(tmp_path / "text.txt"), tokenizer="characters", given="spans:0.5", validation=0.2)
    settings = zellige.Train(
        steps=10, batch=8, validate_rows=4, samples=0, save_every=5, tensorboard=False, keep=9, device="cpu"
    )
    net = zellige.Net(layers=1, hidden=16, heads=2, length=8, conv=3)
    zellige.train("mdlm", data=data, net=net, train=settings, run=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    shutil.rmtree(tmp_path / "b" / "checkpoints" / "step-000010")
    zellige.train("mdlm", train=settings, run=tmp_path / "b", resume=True)
    monkeypatch.setattr(GivenRows, "redrawn", False)
    zellige.train("mdlm", data=data, net=net, train=settings, run=tmp_path / "c")
    a, b, c = (zellige.load(tmp_path / name, checkpoint="last").method.state_dict() for name in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)


def test_prompts_are_given_and_answers_are_counted(tmp_path):
    corpus = prepare(Data("text", path=pairs(tmp_path), given="field", validation=0.2, test=0.2), 8)
    seen = set()
    for rows in corpus.rows.values():
        for i in range(len(rows)):
            row = rows[i]
            text = corpus.tokenizer.decode(row["tokens"][row["segments"] == 0])
            answer = corpus.tokenizer.decode(row["tokens"][row["mask"]])
            seen.add((text[: -len(answer)], answer))
        assert rows.tokens_total == sum(int(rows[i]["mask"].sum()) for i in range(len(rows)))
    assert seen == {*PAIRS}
    assert corpus.about["given part"] == "the prompt"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            [{"prompt": "a", "answer": "b"}, {"prompt": "c"}],
            "line 2 of '.*' has neither a prompt with its answer nor messages",
        ),
        ([{"prompt": "a", "answer": 3}], "line 1 of '.*': 'prompt' and 'answer' are neither two texts nor two lists"),
        (["text"], "line 1 of '.*' is not an object"),
        (
            [{"prompt": "a" * 9, "answer": "b"}, {"prompt": "", "answer": "b"}],
            "no pair of '.*' is left: left out 2 of 2 pairs: 1 longer than a row, 1 without an answer "
            r"\(line 1 of '.*' has 10 tokens, a row 8\)",
        ),
    ],
)
def test_pairs_that_cannot_be_read_are_named(tmp_path, entries, message):
    with pytest.raises(InputError, match=message):
        prepare(Data("text", path=pairs(tmp_path, entries), given="field"), 8)


def test_a_pair_of_a_csv_is_named_by_its_line(tmp_path):
    (tmp_path / "a.csv").write_text("prompt,answer\n" + "abc>,cba\n" * 30 + "ab>,\n" + "a>,a\n" * 9)
    corpus = prepare(Data("text", path=str(tmp_path / "a.csv"), given="field"), 8)
    assert corpus.about["left_out"][0].endswith(f"(line 32 of '{tmp_path / 'a.csv'}' has no answer)")


def test_pairs_read_no_choice_of_running_text(tmp_path):
    """Each was ignored, but `crop`, which ended the training."""
    given = {"path": pairs(tmp_path), "given": "field"}
    for choice in (
        {"crop": True}, {"labels": True}, {"labels_by": "topic"}, {"documents": "line"}, {"pack": "packed"},
        {"field": "answer"}, {"mix": "a.txt=1"},
    ):  # fmt: skip
        (name,) = choice
        with pytest.raises(
            InputError, match=rf"^`data\.{name}` has no effect beside `data\.given` field; leave it out$"
        ):
            zellige.train("mdlm", data=Data("text", **given, **choice), run=tmp_path / "run")
    assert [file.name for file in tmp_path.iterdir()] == ["pairs.jsonl"]
    whole = Data("text", path=given["path"], pack="packed")
    alone, same = (prepare(data, 8) for data in (Data("text", **given), Data("text", **given, pack="document")))
    assert same.about["sha256"] == alone.about["sha256"]
    assert as_packed(Data("text", **given), whole).pack == "wrap"


def test_pairs_that_are_too_long_or_empty_are_left_out_and_counted(tmp_path):
    """What is left is what the file without them gives: a pair of exactly a row stays."""
    whole = [{"prompt": p, "answer": a} for p, a in PAIRS] + [{"prompt": "abc>", "answer": "cbab"}]
    rest = [
        {"prompt": "abc>", "answer": "cbabc"},
        {"prompt": "a>", "answer": ""},
        {"prompt": "aaa>", "answer": "abcab"},
    ]
    (tmp_path / "clean").mkdir()
    shares = {"validation": 0.0, "test": 0.0, "tokenizer": "characters"}
    clean, mixed = (
        prepare(Data("text", path=pairs(folder, entries), given="field", **shares), 8)
        for folder, entries in ((tmp_path / "clean", whole), (tmp_path, [rest[0], *whole[:30], *rest[1:], *whole[30:]]))
    )
    assert len(mixed.train) == len(whole)
    for a, b in zip(clean.train, mixed.train, strict=True):
        assert torch.equal(a["tokens"], b["tokens"])
        assert torch.equal(a["mask"], b["mask"])
    assert {name: mixed.about["pairs"][name] for name in ("of", "long", "empty")} == {"of": 64, "long": 2, "empty": 1}
    assert "pairs" not in clean.about
    (line,) = mixed.about["left_out"]
    assert line.startswith("3 of 64 pairs: 2 longer than a row, 1 without an answer (line 1 of")


@pytest.mark.parametrize("word", ["prefix", "prefix:0", "prefix:x", "spans:1", "spans:0", "half", "field:2"])
def test_a_part_that_is_none_is_refused(word):
    with pytest.raises(InputError, match=r"it must be prefix:32, suffix:32, spans:0\.5, field or puzzle"):
        Given.of(word)


def test_who_sees_what_is_given_and_who_ignores_it():
    """Noise with a mask tells given tokens apart; what is written from left to right takes no part on the right."""
    made = {
        name: cls(None, 3, (8,)) for name, cls in METHODS.items() if name in ("mdlm", "udlm", "sedd", "tauldr", "csm")
    }
    assert {name for name, method in made.items() if needs_sight(method)} == {"udlm", "tauldr"}
    for name in ("mdlm", "udlm"):
        refuse_given(made[name], "suffix:3")
    with pytest.raises(InputError, match="csm noises no text"):
        refuse_given(made["csm"], "prefix:3")

    class Blocks(type(made["mdlm"])):
        block = 4

    blocks = Blocks(None, 3, (8,))
    refuse_given(blocks, "prefix:3")
    with pytest.raises(InputError, match="mdlm writes left to right and ignores what is to the right of a position"):
        refuse_given(blocks, "spans:0.5")


def test_each_split_has_its_own_prompts(tmp_path):
    """Prompts of other lengths in every split: of each row just these tokens are given."""
    sizes = {"train": [3, 1, 6, 2, 5, 4, 7, 9], "validation": [2, 8, 5], "test": [6, 1, 9, 4]}
    for split, lengths in sizes.items():
        lines = [json.dumps({"prompt": "q" * n, "answer": "ab" * (1 + i % 3)}) for i, n in enumerate(lengths)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    paths = {split: str(tmp_path / f"{split}.jsonl") for split in sizes}
    data = Data(
        "text", path=paths["train"], validation=paths["validation"], test=paths["test"], given="field", tokenizer="bytes"
    )  # fmt: skip
    corpus = prepare(data, 32)
    for split, lengths in sizes.items():
        rows = [*corpus.rows[split]]
        assert [int((row["tokens"] == ord("q"))[~row["mask"]].sum()) for row in rows] == lengths
        assert [int((row["tokens"] == ord("q"))[row["mask"]].sum()) for row in rows] == [0] * len(lengths)
        assert [int(row["mask"].sum()) for row in rows] == [2 * (1 + i % 3) + 1 for i in range(len(lengths))]
