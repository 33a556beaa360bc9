"""Tokenizers: what is encoded is decoded, what is saved is loaded, what is not in the vocabulary is said."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from zellige.base.errors import InputError
from zellige.data import Data, cache, load, require_same, tokenizer_by_name
from zellige.data import tokenizer as tk
from zellige.data.prepare import prepare
from zellige.data.tokenizer_by_name import named_tokenizer

TEXT = "the cat, the dog and the end.\n" * 40


def every(published):
    yield tk.Characters(tk.TEXT8), "the cat"
    yield tk.Bytes(), "naïve 日本 \n"
    yield tokenizer_by_name.train_bpe(400, [TEXT]), "the cat saw 日本.\n"
    yield tokenizer_by_name.train_sentencepiece(700, [TEXT]), "the cat saw 日本.\n"
    yield tokenizer_by_name.named_tokenizer(str(published / "gpt2-bpe"), None), "Hello world, naïve 日本 \n\n x"
    yield tokenizer_by_name.named_tokenizer(str(published / "bert-vocab" / "vocab.txt"), None), "hello world"
    yield tk.Integers(20), "3 19 0"


@pytest.fixture(scope="module")
def sentencepiece():
    return tokenizer_by_name.train_sentencepiece(2000, [Path(tk.__file__).read_text(encoding="utf-8")])


def test_round_trip_and_saved_folder(published, tmp_path):
    for number, (tokenizer, text) in enumerate(every(published)):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert all(0 <= t < tokenizer.size for t in tokens)
        folder = tmp_path / str(number)
        tokenizer.save(folder)
        again = load(folder)
        assert again.fingerprint == tokenizer.fingerprint
        assert again.encode(text) == tokens
        assert (again.name, again.size, again.unit, again.separator) == (
            tokenizer.name, tokenizer.size, tokenizer.unit, tokenizer.separator,
        )  # fmt: skip
        json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))  # JSON, and nothing else
        also = ["tokenizer_config.json"] if isinstance(tokenizer, tk.Tokens) else []
        assert sorted(p.name for p in folder.iterdir()) == ["tokenizer.json", *also]


def test_the_published_vocabularies(published):
    gpt2 = tokenizer_by_name.named_tokenizer(str(published / "gpt2-bpe"), None)
    assert (gpt2.name, gpt2.size, gpt2.separator) == ("gpt2", 50257, 50256)
    assert gpt2.encode("Hello world") == [15496, 995]  # as published
    assert gpt2.encode("<|endoftext|>") == [50256]
    bert = tokenizer_by_name.named_tokenizer(str(published / "bert-vocab"), None)
    assert (bert.size, bert.encode("Hello world"), bert.separator) == (30522, [7592, 2088], 102)


def test_gpt2_by_name_is_fetched_with_its_checksum(published):
    asked = []

    def fetch(address, checksum):
        asked.append(checksum)
        return published / "gpt2-bpe" / address.rpartition("/")[2]

    import hashlib

    assert tokenizer_by_name.named_tokenizer("gpt2", fetch).size == 50257
    for name, (_, checksum) in tokenizer_by_name.GPT2_FILES.items():
        assert hashlib.sha256((published / "gpt2-bpe" / name).read_bytes()).hexdigest() == checksum in asked


@given(st.text(min_size=1, max_size=60))
def test_characters_of_any_text(text):
    text = text.encode("utf-8", "replace").decode()
    tokenizer = tk.Characters(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.size == len(set(text))
    assert tokenizer.describe()


@given(st.text(max_size=60))
def test_bytes_of_any_text(text):
    text = text.encode("utf-8", "replace").decode()
    assert tk.Bytes().decode(tk.Bytes().encode(text)) == text


def test_masks_are_drawn_and_never_decoded(published):
    for tokenizer, text in every(published):
        if tokenizer.name == "integers":  # with spaces between
            continue
        tokens, beside = tokenizer.encode(text), tokenizer.encode(text[0])
        for mask in (tokenizer.size, tokenizer.size + 4, -1):
            shown = tokenizer.decode([*beside, mask, *tokens, mask], mask="_")
            assert shown == f"{text[0]}_{text}_"
            assert tokenizer.decode([mask, mask]) == "··"


def small_tokens(signs: Sequence[str], **how) -> tk.Tokens:
    """A tokenizer of words, the last of which is unknown."""
    inner = Tokenizer(models.WordLevel({sign: i for i, sign in enumerate(signs)}, unk_token=signs[-1]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    return tk.Tokens(inner, "words", **how)


def test_rows_without_a_token_and_a_mask_among_the_tokens(tmp_path):
    """A published model's table may have more rows than there are tokens, and its mask may be one of these."""
    signs = ["cat", "[MASK]", "</s>", "<s>", "dog", "[UNK]"]
    tokenizer = small_tokens(signs, size=11, mask=1)
    tokenizer.save(tmp_path / "words")
    again = load(tmp_path / "words")
    assert isinstance(again, tk.Tokens)
    for one in (tokenizer, again):
        assert (one.known, one.size, one.mask, one.unknown, one.separator, one.name) == (6, 11, 1, 5, 2, "words")
        assert one.decode([4, 1, 0, 8, 10, 11, 5], mask="_") == "dog_cat___[UNK]"
        assert one.encode("cat ox dog") == [0, 5, 4]
        with pytest.raises(InputError, match=r"the prompt holds '\[MASK\]', the model's mask"):
            one.encode("cat [MASK] dog")
    assert again.fingerprint == tokenizer.fingerprint == small_tokens(signs).fingerprint
    assert small_tokens([signs[4], *signs[1:4], signs[0], signs[5]]).fingerprint != tokenizer.fingerprint


@pytest.mark.parametrize(
    ("signs", "separator"),
    [
        (["<s>", "a", "</s>", "?"], 2), (["[CLS]", "a", "b", "[SEP]", "?"], 3), (["<s>", "<eos>", "a", "?"], 1),
        (["</s>", "[SEP]", "<|endoftext|>", "?"], 2), (["</s>", "[SEP]", "?"], 1), (["a", "<s>", "?"], None),
        (["<|begin_of_text|>", "a", "b", "c", "<|end_of_text|>", "?"], 4),
    ],
)  # fmt: skip
def test_what_ends_a_text_is_not_what_begins_one(signs, separator):
    assert small_tokens(signs).separator == separator


def test_unknown_tokens_of_every_kind(sentencepiece):
    assert sentencepiece.unknown == 1  # by number, <unk>
    assert tokenizer_by_name.train_bpe(300, ["some text"]).unknown is None
    assert small_tokens(["a", "b", "?"]).unknown == 2
    assert tk.Characters("ab").unknown is None is tk.Bytes().unknown


def test_a_character_outside_the_vocabulary():
    with pytest.raises(InputError) as error:
        tk.Characters(tk.TEXT8).encode("café")
    assert str(error.value) == "'é' at position 3 of the prompt is not in the model's vocabulary (a-z and space)"
    with pytest.raises(InputError, match=r"'Z' at position 0 of the text is not"):
        tk.Characters("ab").encode("Zab", "the text")


@pytest.mark.parametrize(
    ("alphabet", "words"),
    [
        ("ab", "ab"),
        ("abc", "a-c"),
        (tk.TEXT8, "a-z and space"),
        ("\n ac", "a, c, space and newline"),
        ("αβγδ.", ". and α-δ"),
        ("\t0123", "0-3 and tab"),
        ("acegikmo", "a, c, e, g, i, k, m and o"),
        ("acegikmoq", "9 characters"),
        ("a\x01", "2 characters"),
    ],
)
def test_the_vocabulary_in_words(alphabet, words):
    assert tk.Characters(alphabet).describe() == words


def test_another_tokenizer_is_refused():
    gpt2 = tokenizer_by_name.train_bpe(300, ["some text"])
    require_same(tk.Characters("ab"), tk.Characters("ba"))
    with pytest.raises(InputError) as error:
        require_same(tk.Characters(tk.TEXT8), gpt2)
    assert str(error.value) == (
        "the run was trained with 'characters' (27), this data has 'bpe:300' "
        f"({gpt2.size:,}); use `data.tokenizer` characters"
    )


@given(st.text(st.characters(exclude_characters="▁<", exclude_categories=["Cs"])))
@settings(max_examples=50, deadline=None)
def test_sentencepiece_of_any_text(sentencepiece, text):
    """Spaces, line ends and characters without an entry come back, and no text is the end of one."""
    tokens = sentencepiece.encode(text)
    assert sentencepiece.decode(tokens) == text
    assert not {0, 1} & {*tokens}  # <|endoftext|>, <unk>


def test_sentencepiece_has_words_with_their_space(sentencepiece):
    assert [sentencepiece.decode([token]) for token in sentencepiece.encode("a token of text")][1:] == [
        " token",
        " of",
        " text",
    ]
    assert sentencepiece.separator == 0


@pytest.mark.parametrize("spec", ["sentencepiece:512", "sentencepiece:599", "sentencepiece"])
def test_sentencepiece_without_a_size(spec):
    with pytest.raises(
        InputError, match=f"'{spec}'; sentencepiece needs a size of 600 or more, e.g. sentencepiece:4096"
    ):
        prepare(Data(tokenizer=spec), 32)


@pytest.mark.parametrize(("spec", "size"), [("bpe:300", 300), ("sentencepiece:600", 600), ("gpt2", None)])
def test_the_least_sizes_of_subwords(spec, size):
    assert tokenizer_by_name.subword_size(spec) == size


def test_subwords_have_the_size_asked_for():
    text = [Path(tk.__file__).read_text(encoding="utf-8")]
    assert tokenizer_by_name.train_bpe(333, text).size == 333
    assert tokenizer_by_name.train_sentencepiece(777, text).size == 777


@pytest.mark.parametrize("spec", ["bpe:12", "bpe:299", "bpe:many", "bpe"])
def test_a_bpe_without_a_size(spec):
    with pytest.raises(InputError, match="a BPE needs a size"):
        prepare(Data(tokenizer=spec), 32)


@pytest.mark.parametrize(
    ("characters", "spaces", "entries"),
    [
        (199_999, 40_000, None), (200_000, 40_000, 1024), (1_000_000, 180_000, 2048), (5_400_000, 10**6, 4096),
        (4 * 10**10, 10**10, 32768), (1_000_000, 99_999, None), (1_000_000, 100_000, 2048),
    ],
)  # fmt: skip
def test_of_words_as_many_subwords_as_the_text_is_long(characters, spaces, entries):
    assert tokenizer_by_name.entries("auto", characters, spaces) == entries
    assert tokenizer_by_name.entries("characters", characters, spaces) is None
    assert tokenizer_by_name.entries("bpe:4096", characters, spaces) == 4096


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_own_text_is_cut_into_subwords_where_it_is_long_and_has_words(tmp_path, name):
    lines = [f"{i} the cat, the dog and the end" for i in range(8_000)]
    whole = "\n".join(json.dumps({"text": line}) if name == "a.jsonl" else line for line in lines)
    for text, expected in (whole, "bpe:1024"), (re.sub(" ([a-z])", r"\1", whole), "characters"):
        (tmp_path / name).write_text(text)
        own, same = (prepare(Data("text", path=str(tmp_path / name), tokenizer=by), 32) for by in ("", expected))
        assert own.tokenizer.name == own.about["tokenizer"]["name"] == expected
        assert own.tokenizer.fingerprint == same.tokenizer.fingerprint
        assert own.about["tokens_sha256"] == same.about["tokens_sha256"]
        again = prepare(Data("text", path=str(tmp_path / name), tokenizer="auto"), 32)  # of the cache
        assert again.about == own.about
    short = Data("text", path=str(tmp_path / name), tokenizer="")
    (tmp_path / name).write_text(whole[:100_000].rpartition("\n")[0])
    assert prepare(short, 32).tokenizer.name == "characters"


def test_a_wrong_tokenizer_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(InputError, match="is not a tokenizer"):
        load(tmp_path)
    with pytest.raises(InputError, match=r"no tokenizer\.json in"):
        load(tmp_path / "nothing")


def test_a_damaged_config_beside_it_is_named(tmp_path):
    """It has the name and the mask; a folder without one is named after itself."""
    tokenizer = tokenizer_by_name.train_bpe(270, ["the cat sat on the mat " * 20])
    tokenizer.save(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    assert load(tmp_path).name == tokenizer.name
    config.write_text(config.read_text()[:-9])
    with pytest.raises(InputError, match=r"tokenizer_config\.json' is not JSON; copy or download it again"):
        load(tmp_path)
    config.unlink()
    assert load(tmp_path).name == tmp_path.name


def test_subwords_are_learnt_from_pieces_however_long_a_line_is(tmp_path, monkeypatch):
    """A word of 200 MB ends the library's process; where there are spaces the pieces are cut before one, as they are encoded."""
    long = "".join(chr(97 + i * i % 23) for i in range(20_000))
    text = f"{long} and {long[::-1]}\n{'the value of it ' * 4000}"
    (tmp_path / "a.txt").write_text(text)
    seen = []
    plain = tokenizer_by_name.train_subwords
    monkeypatch.setattr(
        tokenizer_by_name,
        "train_subwords",
        lambda spec, size, pieces: plain(spec, size, (seen.append(p) or p for p in pieces)),
    )
    prepare(
        Data("text", path=str(tmp_path / "a.txt"), tokenizer="bpe:300", validation=0, test=0, cache=str(tmp_path)), 16
    )
    assert "".join(seen) == text
    assert max(map(len, seen)) <= cache.CHUNK
    assert all(piece.startswith(" ") for piece in seen[-10:])


@pytest.mark.parametrize("cased", [True, False])
def test_a_vocabulary_with_capital_words_keeps_the_case(tmp_path, cased):
    """BERT's, from a vocab.txt: cased where an entry has a capital, names of special tokens aside."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", *(["The", "Cat"] if cased else ["dog"])]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = named_tokenizer(str(tmp_path), lambda address, checksum: tmp_path)
    assert tokenizer.encode("The Cat the cat") == ([7, 8, 5, 6] if cased else [5, 6, 5, 6])
