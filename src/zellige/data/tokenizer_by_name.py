"""Tokenizers by name: GPT-2's and BERT's from their vocabulary files, any of the hub,
BPE or sentencepiece trained here."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..base.arguments import is_number
from ..base.errors import InputError, nearest
from . import remote
from .tokenizer import END, TEXT8, Bytes, Characters, Tokens, load
from .tokenizer_base import Tokenizer

NAMES = ("auto", "characters", "bytes", "text8", "gpt2", "bert-base-uncased", "bpe:4096", "sentencepiece:4096")
_GPT2 = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
GPT2_FILES = {  # file -> (address, sha256)
    "encoder.json": (_GPT2 + "encoder.json", "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
    "vocab.bpe": (_GPT2 + "vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
}
LEAST = 200_000  # characters of a text that is cut into subwords unless said otherwise


def is_learnt(spec: str) -> bool:
    """Return whether the tokenizer of this name is learnt on the corpus."""
    return spec in ("auto", "characters") or subword_size(spec) is not None


def entries(spec: str, characters: int, spaces: int) -> int | None:
    """Vocabulary size of the subwords learnt on this many characters and spaces; None if the text is cut into
    characters.

    `auto` takes characters where the text is short or has no words, and of words, with a space at least every tenth
    character, subwords: the power of two nearest to twice the square root of the characters, 2^15 at most; 2,048 of a
    megabyte. Small models write words in them sooner than letter by letter (studies/subwords).
    """
    if spec != "auto":
        return subword_size(spec)
    if characters < LEAST or 10 * spaces < characters:
        return None
    return 2 ** min(15, round(1 + math.log2(characters) / 2))


def named_tokenizer(spec: str, fetch: Callable[[str, str], Path]) -> Tokenizer:
    """The tokenizer that `data.tokenizer` names, if it needs no corpus.

    spec: "text8" (a-z and space), "bytes", "gpt2", a tokenizer.json, a folder with encoder.json and vocab.bpe (or
    vocab.json and merges.txt) or a vocab.txt (BERT), or a Hugging Face id. fetch(address, sha256) -> local path.
    """
    from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer
    from tokenizers import Tokenizer as Inner

    if spec == "text8":
        return Characters(TEXT8)
    if spec == "bytes":
        return Bytes()
    if spec == "selfies":
        raise InputError(
            "`data.tokenizer` selfies is for molecules; give `data.name` smiles, and your file by `data.path`"
        )
    path = Path(spec).expanduser()
    if spec == "gpt2" and not path.is_dir():
        try:
            encoder, merges = (fetch(*GPT2_FILES[name]) for name in GPT2_FILES)
        except InputError as problem:
            cause = str(problem).partition(";")[0]
            raise InputError(f"{cause}; give a folder of {' and '.join(GPT2_FILES)} by `data.tokenizer`") from None
        return Tokens(_special(ByteLevelBPETokenizer(str(encoder), str(merges)), END), "gpt2")
    if path.exists():
        folder = path if path.is_dir() else path.parent
        name = folder.resolve().name
        try:
            for vocabulary, merges in (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")):
                if (folder / vocabulary).exists() and path.name != "tokenizer.json":
                    inner = ByteLevelBPETokenizer(str(folder / vocabulary), str(folder / merges))
                    return Tokens(_special(inner, END), "gpt2" if inner.get_vocab_size() == 50257 else name)
            if (folder / "vocab.txt").exists() and path.name != "tokenizer.json":
                words = str(path if path.is_file() else folder / "vocab.txt")
                has_case = any(w.isalpha() and w != w.lower() for w in Path(words).read_text(encoding="utf-8").split())
                inner = BertWordPieceTokenizer(words, lowercase=not has_case)
                return Tokens(_special(inner, "[SEP]"), "bert")
        except Exception as problem:
            raise InputError(
                f"'{spec}' is not a tokenizer ({problem}); give vocabulary files or a tokenizer.json"
            ) from None
        return load(path)
    near = nearest(spec, NAMES)
    near = None if near and spec.endswith(f"/{near}") else near
    if path.parent.is_dir() and (path.suffix or path.parent != Path(".")):  # meant as a path
        near = near or nearest(path.name, (p.name for p in path.parent.iterdir()))
        raise InputError(
            f"no tokenizer at '{spec}'; " + (f"did you mean '{near}'?" if near else "there is no such file")
        )
    with remote.hub_silence() as silence:
        try:
            return Tokens(Inner.from_pretrained(spec), spec)
        except Exception as problem:
            reason = (str(problem).splitlines() or [type(problem).__name__])[0][:120].rstrip(" .")
            hint = f"did you mean '{near}'?" if near else "use characters, bytes, bpe:4096, gpt2 or a tokenizer.json"
            if silence:
                where = f"on this machine, and the Hugging Face hub cannot be reached ({silence})"
                raise remote.Unreachable(f"no tokenizer '{spec}' {where}; {hint}", silence) from None
            raise InputError(f"no tokenizer '{spec}' ({reason}); {hint}") from None


def _special(wrapped: Any, token: str) -> Any:
    inner = wrapped._tokenizer
    if inner.token_to_id(token) is not None:
        inner.add_special_tokens([token])
    return inner


def train_bpe(size: int, pieces: Iterable[str]) -> Tokenizer:
    """Byte-level BPE of `size` entries (256 bytes, the end-of-text token, the rest learnt), fitted on `pieces`."""
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, pre_tokenizers, trainers

    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    inner.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    inner.train_from_iterator(pieces, trainer)
    return Tokens(inner, f"bpe:{size}")


def train_sentencepiece(size: int, pieces: Iterable[str]) -> Tokenizer:
    """A unigram model of `size` entries, as sentencepiece fits: an end-of-text and an unknown token, 256 bytes, the
    rest learnt.

    A space is part of the word after it, as `▁`. The text is not normalised, nor is a space put before it, and a
    character without an entry is cut into its bytes: so every text is decoded as it was that holds neither `▁`
    nor the name of a byte (`<0x41>`).
    """
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, pre_tokenizers, trainers

    words = pre_tokenizers.Metaspace(prepend_scheme="never")
    inner = Inner(models.Unigram())
    inner.pre_tokenizer = words  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.UnigramTrainer(vocab_size=size - 258, show_progress=False)
    inner.train_from_iterator(pieces, trainer)
    # six decimals, which the library reads back as it wrote them
    learnt = [(piece, round(score, 6)) for piece, score in json.loads(inner.to_str())["model"]["vocab"]]
    worst = min((score for _, score in learnt), default=0.0) - 10.0  # no text is cut into bytes that has an entry
    fallback = [(f"<0x{byte:02X}>", worst) for byte in range(256)]
    entries = [(END, 0.0), ("<unk>", 0.0), *fallback, *learnt]
    inner = Inner(models.Unigram(entries, unk_id=1, byte_fallback=True))
    inner.pre_tokenizer = words  # pyright: ignore[reportAttributeAccessIssue]
    steps = [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " ")]
    inner.decoder = decoders.Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    inner.add_special_tokens([END])
    return Tokens(inner, f"sentencepiece:{size}")


SUBWORDS: dict[str, tuple[str, int, Callable[[int, Iterable[str]], Tokenizer]]] = {  # what it is called, its least size
    "bpe": ("a BPE", 300, train_bpe),
    "sentencepiece": ("sentencepiece", 600, train_sentencepiece),
}


def train_subwords(spec: str, size: int, pieces: Iterable[str]) -> Tokenizer:
    """The subwords of that name, fitted on `pieces`, which hold no part of the token that ends documents;
    a BPE for `auto`."""
    texts = (text for piece in pieces for text in piece.split(END))
    return SUBWORDS.get(spec.partition(":")[0], SUBWORDS["bpe"])[2](size, texts)


def subword_size(spec: str) -> int | None:
    """4096 for "bpe:4096" or "sentencepiece:4096", None for what is no tokenizer of subwords to be trained."""
    head, _, size = spec.partition(":")
    if head not in SUBWORDS:
        return None
    name, least, _ = SUBWORDS[head]
    if not is_number(size) or int(size) < least:
        raise InputError(f"`data.tokenizer` is '{spec}'; {name} needs a size of {least} or more, e.g. {head}:4096")
    return int(size)
