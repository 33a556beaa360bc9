"""What a tokenizer loses: numbers per character and per word where every text comes back as it was, and there alone."""

import itertools
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from testing.lossy import LETTERS, coin_words, pieces_of, random_letters, saved, words_of
from zellige.data import Data, cache, catalogue, losses, tokenizer_by_name
from zellige.data import tokenizer as tk
from zellige.data.losses import Comparison, Losses, changed, losses_of
from zellige.data.prepare import prepare
from zellige.evaluation.evaluate import rows_of
from zellige.methods import METHODS, build
from zellige.models.config import Config, Net
from zellige.models.model import Model
from zellige.plugins.evaluations.suite.sets import cut_rows
from zellige.plugins.kinds.molecules.tokens import Selfies


def test_a_vocabulary_of_words_and_random_text(tmp_path):
    """7.97 bits a character became 0.000, as each token was unknown."""
    text = " ".join(random_letters(7, seed) for seed in range(900)) + " the"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    spec = saved(words_of(["the"]), tmp_path / "words")
    corpus = prepare(Data("text", path=str(tmp_path / "a.txt"), tokenizer=spec, validation=0.1, test=0.2), 16)
    for rows in corpus.rows.values():
        assert rows.characters is None
        assert rows.losses.kinds[-1] == "unknown"
    assert corpus.train.losses.unknown == 1
    tokens = len(corpus.test.array().reshape(-1)) + corpus.test.left_out
    assert corpus.test.losses.unknown == pytest.approx((tokens - 1) / tokens, abs=1e-12)  # all but the last
    assert str(corpus.train.losses) == "of a tokenizer; 100.0% unknown"
    assert "characters" not in {key for key, value in corpus.about["splits"]["test"].items() if value is not None}


def test_a_tokenizer_that_drops_case(tmp_path):
    (tmp_path / "a.txt").write_text(coin_words(2000))
    spec = saved(pieces_of(normalizers.Lowercase()), tmp_path / "lower")
    data = Data("text", path=str(tmp_path / "a.txt"), tokenizer=spec)
    corpus = prepare(data, 16)
    assert {str(rows.losses) for rows in corpus.rows.values()} == {"of a tokenizer that drops case"}
    assert {rows.characters for rows in corpus.rows.values()} == {None}
    again = prepare(data, 16)  # of the cache
    assert again.test.losses == corpus.test.losses
    (tmp_path / "a.txt").write_text(coin_words(2000).lower())
    assert prepare(data, 16).test.losses == Losses()
    with_case = saved(pieces_of(), tmp_path / "cased")
    (tmp_path / "a.txt").write_text(coin_words(2000))
    found = prepare(Data("text", path=str(tmp_path / "a.txt"), tokenizer=with_case), 16).train.losses
    assert found.kinds == ("unknown",)
    known = sum(word.islower() for word in coin_words(2000).split()[:1800])
    assert found.unknown == pytest.approx((1800 - known) / (1800 + 3 * known), abs=1e-3)  # one is cut by the split


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("sign", ["A", "  ", "\t", "$"])
def test_one_difference_in_what_is_evaluated_is_one(sign, split, tmp_path, monkeypatch):
    """All of the validation and test text is compared, chunk by chunk; and then no split has characters."""
    monkeypatch.setattr(cache, "CHUNK", 64)
    words = coin_words(3000).lower().split(" ")
    words[2900 if split == "test" else 2750] = f"a{sign}b"
    (tmp_path / "a.txt").write_text(" ".join(words))
    spec = saved(pieces_of(normalizers.Lowercase()), tmp_path / "lower")
    corpus = prepare(Data("text", path=str(tmp_path / "a.txt"), tokenizer=spec, validation=0.1, test=0.05), 16)
    assert {rows.characters for rows in corpus.rows.values()} == {None}
    assert not corpus.train.losses.lossless
    assert (corpus.split(split).losses.unknown > 0) == (sign == "$")
    assert corpus.train.losses.unknown == 0


def test_a_sample_of_the_training_text_is_compared(tmp_path, monkeypatch):
    """Every 16th chunk, the first among them."""
    monkeypatch.setattr(cache, "CHUNK", 64)
    lines = [coin_words(12, seed).lower() for seed in range(200)]  # a line, a chunk
    (tmp_path / "a.txt").write_text("\n".join(lines))
    spec = saved(pieces_of(normalizers.Lowercase()), tmp_path / "lower")
    found = []
    for line in range(18):
        changed_lines = [text.upper() if i == line else text for i, text in enumerate(lines)]
        (tmp_path / "a.txt").write_text("\n".join(changed_lines))
        data = Data("text", path=str(tmp_path / "a.txt"), tokenizer=spec, pack="document", validation=20, test=20)
        if "case" in prepare(data, 16).train.losses.kinds:
            found.append(line)
    assert found == [0, 16]


def lossless(published):
    text = "the cat, the dog  and\tthe end.\n\nnaïve 日本 \u200b ﬁ É [UNK] x" * 40
    yield tk.Characters(text), text
    yield tk.Bytes(), text.encode().decode("latin-1")
    yield tokenizer_by_name.train_bpe(400, [text]), text
    yield tokenizer_by_name.train_sentencepiece(700, [text]), text
    yield tokenizer_by_name.named_tokenizer(str(published / "gpt2-bpe"), lambda *a: Path()), text


def test_whatever_loses_nothing_counts_characters(published, tmp_path):
    for number, (tokenizer, text) in enumerate(lossless(published)):
        assert tokenizer.decode_pieces(tokenizer.encode_pieces([text, text[:9]]))[1] == (
            text[:9].encode("latin-1").decode(errors="replace") if tokenizer.raw else text[:9]
        )
        assert losses_of(tokenizer, [text]) == Losses()
        if tokenizer.size > 1000:  # GPT-2's takes seconds to write
            continue
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
        corpus = prepare(Data("text", path=str(tmp_path / f"{number}.txt")), 16, tokenizer=tokenizer)
        total = sum(rows.characters or 0 for rows in corpus.rows.values())
        assert total == pytest.approx(len(text), abs=3 * 16 * 8)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=200)
def test_a_difference_is_found_where_there_is_one(text):
    """Of any text: nothing is lost exactly if decode(encode(text)) is the text."""
    for normalizer in (None, normalizers.Lowercase(), normalizers.NFC()):
        tokenizer = pieces_of(normalizer)
        back = tokenizer.decode(tokenizer.encode(text))
        assert losses_of(tokenizer, [text]).lossless == (back == text)


@pytest.mark.parametrize(
    ("text", "decoded", "kinds"),
    [
        ("Cat", "cat", {"case"}), ("café", "cafe", {"accents"}), ("Café", "cafe", {"accents", "case"}),
        (unicodedata.normalize("NFD", "é"), "é", {"Unicode forms"}), ("ﬁn", "fin", {"Unicode forms"}),
        ("Ｆin", "fin", {"Unicode forms", "case"}), ("a\u200bb", "ab", {"characters"}), ("ab", "ab", set()),
    ],
)  # fmt: skip
def test_the_kinds_are_as_few_as_explain_it(text, decoded, kinds):
    assert changed(text, decoded) == kinds


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Losses(("case",), 0.031), "of a tokenizer that drops case; 3.1% unknown"),
        (Losses(("case", "accents", "spaces")), "of a tokenizer that drops case and accents, changes spaces"),
        (Losses(("spelling",)), "of a tokenizer that changes spelling"),
        (Losses(("unknown",), 2e-4), "of a tokenizer; <0.1% unknown"),
    ],
)
def test_in_words(found, said):
    assert str(found) == said
    assert found.protocol == {"tokenizer": said}
    assert Losses.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert Losses().protocol == {}


def test_a_cut_of_ours_is_no_loss():
    """A tokenizer that puts a space before a text and drops it again loses the one that a chunk begins with: the text has it."""
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[UNK]", "▁ab", "▁c"])}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")  # pyright: ignore[reportAttributeAccessIssue]
    inner.decoder = decoders.Metaspace(prepend_scheme="always")  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = tk.Tokens(inner, "words")
    comparison = Comparison(tokenizer)
    texts = [("ab c", False), (" ab", False), (" c ab", True)]
    comparison.add(texts[:2], tokenizer.encode_pieces([text for text, _ in texts[:2]]))
    comparison.add(texts[2:], tokenizer.encode_pieces([text for text, _ in texts[2:]]))
    assert comparison.losses == Losses()
    comparison.add([(" ab", True)], tokenizer.encode_pieces([" ab"]))  # of a text that begins with one
    assert comparison.losses == Losses(("spaces",))


def test_only_the_first_chunks_that_differ_are_looked_at(monkeypatch):
    """Of a text that differs everywhere the unknown are counted in all, and no more is decoded."""
    monkeypatch.setattr(losses, "EXAMINED", 2)
    tokenizer, texts = pieces_of(normalizers.Lowercase()), [("A b", True), ("C $", True), ("é", True), ("É", True)]
    comparison = Comparison(tokenizer)
    for text in texts:
        comparison.add([text], tokenizer.encode_pieces([text[0]]))
    assert comparison.losses == Losses(("case", "unknown"), 1 / 6)
    monkeypatch.setattr(tk.Tokens, "decode_pieces", lambda *a: pytest.fail("decoded"))
    comparison.add([("$ $", True)], tokenizer.encode_pieces(["$ $"]))
    assert comparison.losses.unknown == 3 / 8


def model_of(corpus, data: Data) -> Model:
    net, config = Net(layers=1, hidden=8, heads=2, length=16), METHODS["ar"].Config()
    return Model(
        build(METHODS["ar"], corpus.tokenizer.size, net, config, 16), corpus.tokenizer, Config("ar", config, data, net)
    )


def test_a_mixture_and_given_parts_keep_what_is_lost(tmp_path):
    (tmp_path / "upper.txt").write_text(coin_words(1600))
    (tmp_path / "lower.txt").write_text(coin_words(3200, 1).lower() + " $ $")
    spec = saved(pieces_of(normalizers.Lowercase()), tmp_path / "lower")
    mix = f"{tmp_path / 'upper.txt'}=0.5,{tmp_path / 'lower.txt'}=0.5"
    data = Data("text", mix=mix, tokenizer=spec)
    corpus = prepare(data, 16)
    assert corpus.test.losses.kinds == ("case", "unknown")
    parts = corpus.test.parts  # pyright: ignore[reportAttributeAccessIssue]
    sizes = [part.tokens_total for part in parts]
    assert corpus.test.losses.unknown == pytest.approx(parts[1].losses.unknown * sizes[1] / sum(sizes))
    assert corpus.test.characters is None
    asked = rows_of(model_of(corpus, data), corpus, "test")
    assert {"characters_per_token", "words_per_unit"} & asked.about.keys() == set()
    alone = Data("text", path=str(tmp_path / "upper.txt"), tokenizer=spec, given="prefix:3")
    assert prepare(alone, 16).test.losses == Losses(("case",))


def test_prompts_and_answers_and_zero_shot_sets(tmp_path):
    lower, cased = pieces_of(normalizers.Lowercase()), tokenizer_by_name.train_bpe(300, ["Abc"])
    pairs = [{"prompt": "ab", "answer": f"{LETTERS[i % 9]}A b"} for i in range(60)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    data = Data("text", path=str(tmp_path / "pairs.jsonl"), given="field", validation=0.2, test=0.2)
    for tokenizer, expected in ((lower, Losses(("case",))), (cased, Losses())):
        assert {rows.losses for rows in prepare(data, 16, tokenizer=tokenizer).rows.values()} == {expected}
        rows = cut_rows(["ab Cd " * 30] * 4, tokenizer, 8, pack="wrap", eos=True, begin="none", end=False, name="x")
        assert rows.losses.kinds == (() if expected.lossless else ("case", "spaces"))


def test_molecules_as_selfies_are_respelt():
    """Rings are numbered anew, so that the symbols tell the molecule and not its text."""
    text = "CC1COC(C)C11CN1"
    from zellige.plugins.kinds.molecules.tokens import symbols_of

    tokenizer = Selfies(symbols_of(text), (16,))
    assert tokenizer.decode(tokenizer.encode(text)) == "CC1COC(C)C12CN2" != text
    assert losses_of(tokenizer, [text]) == Losses(("spelling",))


def test_the_included_texts_come_back(published):
    """So their bits per character are of the text."""
    from zellige.models import shipped

    for name in ("stories", "stories-mdlm"):
        tokenizer = tk.load(shipped.FOLDER / name)
        data = Data(
            "text", path=str(published / "simple-stories" / "tinystories-validation.txt.xz"), validation=0.1, test=0.4
        )
        assert prepare(data, 64, tokenizer=tokenizer).test.losses == Losses()


def test_nothing_of_this_is_asked_of_other_data():
    corpus = prepare(Data.of(np.arange(400).reshape(100, 4) % 7, 7), 4)
    assert corpus.test.losses == Losses()
    assert catalogue.DATASETS["text"].reads
    assert [*itertools.chain.from_iterable(rows.losses.kinds for rows in corpus.rows.values())] == []
