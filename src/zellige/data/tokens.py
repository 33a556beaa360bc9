"""Integers that are already tokens: a tensor or array from `Data.of`, a list of documents, or files (`token_files`)."""

import codecs
import contextlib
import hashlib
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from . import cache as store
from . import catalogue, tokenizer_by_name
from . import tokenizer as tk
from .catalogue import DATASETS
from .corpus import (
    NO_SEPARATOR,
    Corpus,
    Data,
    OwnData,
    count_rows,
    describe_tokenizer,
    document_layout,
    fill_of,
    require_rows,
)
from .file_names import form_of
from .text_source import TextSource, boundaries
from .token_files import Shards, find_shards, index_of, read_shard

if TYPE_CHECKING:
    from .tokenizer_base import Tokenizer


def prepare_tokens(data: Data, length: int, tokenizer: "Tokenizer | None", ends: int = 0) -> Corpus:
    """Split and pack them: what `prepare` does for a text."""
    from .rows import Rows

    tell = f"'{data.path}'" if data.path else "the tokens"
    if tokenizer is None and data.tokenizer:
        cache = catalogue.cache_folder(data.cache)
        tokenizer = tokenizer_by_name.named_tokenizer(
            data.tokenizer, lambda address, checksum: catalogue.fetch(address, checksum, cache)
        )
    tokenizer = tokenizer or tk.Integers(data.vocabulary)
    integers, files = _integers(data, tell, tokenizer.size)
    parts = {split: _documents(split_tokens, data, tell) for split, split_tokens in integers.items()}
    tokens, starts = _joined(parts, tell)
    _check(tokens, tokenizer.size, data, tell)
    if starts is None and tokens.ndim == 2 and tokens.shape[1] != length:
        rows = f"{tell} come in rows of {tokens.shape[1]:,}"
        raise InputError(f"{rows}, the network takes {length:,}; use `net.length` {tokens.shape[1]}")
    source = TextSource(data, DATASETS["tokens"], None)
    source.parts = {split: lambda report: iter(()) for split in parts}
    source.documents = starts is not None or tokens.ndim == 2  # what is counted
    counts = {
        split: len(split_tokens) if begin is None else len(begin) - 1 for split, (split_tokens, begin) in parts.items()
    }
    cuts = boundaries(source, counts) if "all" in parts else dict(zip(counts, accumulate(counts.values())))
    is_mapped = isinstance(tokens, (np.memmap, Shards))
    narrow = tokens if is_mapped else tokens.astype(store.dtype_for(tokenizer.size))
    ready, begin = {}, 0
    for split, end in cuts.items():
        if starts is None and isinstance(narrow, Shards):
            ready[split] = Rows(narrow, length, start=begin, stop=end)
        elif starts is None:
            ready[split] = Rows(np.ascontiguousarray(narrow[begin:end]).reshape(-1), length)
        else:
            ready[split] = Rows(narrow, length, **document_layout(data, starts[begin : end + 1], tokenizer, ends))
        begin = end
    require_rows({s: len(r) for s, r in ready.items()}, {s: r.tokens_total for s, r in ready.items()}, length, tell)
    sha256 = hashlib.sha256()
    for shard in map(narrow.map, range(len(narrow.files))) if isinstance(narrow, Shards) else [narrow]:
        sha256.update(np.ascontiguousarray(shard).data)
    if starts is not None:
        sha256.update(starts.tobytes())
    about = source.about | ({"files": [str(file) for file in files][:100]} if files else {})
    about |= {
        "sha256": sha256.hexdigest(),
        "splits": {name: count_rows(r) for name, r in ready.items()},
        "tokenizer": describe_tokenizer(tokenizer),
        "pack": data.pack if starts is not None else "rows" if tokens.ndim == 2 else "wrap",
        "fill": 0 if starts is None else fill_of(data, tokenizer, ends),
        **NO_SEPARATOR,
        "length": length,
        "dtype": str(narrow.dtype),
    }
    return Corpus(tokenizer, ready, about)


def _joined(parts: dict[str, Any], tell: str) -> tuple[Any, np.ndarray | None]:
    """The splits one after another: the tokens, and where each document begins and the last ends."""
    (tokens, starts), *later = parts.values()
    for piece, begin in later:
        if piece.shape[1:] != tokens.shape[1:]:
            raise InputError(f"{tell} have rows {tokens.shape} and {piece.shape} in two splits; give one form")
        starts = None if starts is None else np.concatenate([starts[:-1], begin + len(tokens)])
        if isinstance(tokens, Shards):
            tokens = Shards([*tokens.files, *piece.files])
        else:
            tokens = np.concatenate([tokens, piece])
    return tokens, starts


def _integers(data: Data, tell: str, vocabulary: int) -> tuple[dict[str, Any], list[Path]]:
    """The integers by split that were handed over, or those of the files at `data.path`, and these."""
    if isinstance(data, OwnData):
        return data.values, []
    if not data.path:
        raise InputError(
            "the tokens are not part of the configuration; give them again by data=Data.of(tokens, vocabulary=...)"
        )
    splits = find_shards(data.path)
    files = list(chain.from_iterable(splits.values()))
    for path in files:
        wrong = _other(path) if path.is_file() and not index_of(path).is_file() else ""
        if wrong:
            raise InputError(f"'{path}' is not a file of tokens ({wrong}); {_RIGHT}")
    try:
        if len(files) == 1 and files[0].suffix == ".npy":
            return {"all": np.load(files[0], mmap_mode="r")}, files
        return {split: Shards([read_shard(p, vocabulary) for p in paths]) for split, paths in splits.items()}, files
    except InputError:
        raise
    except (ValueError, EOFError) as problem:
        raise InputError(f"{tell} is not a file of tokens ({problem}); {_RIGHT}") from None


_RIGHT = "give a .npy, or a .bin or .ds of 16 or 32 bits"


def _other(path: Path) -> str:
    """Format of a file without tokens, from its first bytes; "" if it may contain tokens."""
    with path.open("rb") as file:
        begin = file.read(4096)
    size, array = path.stat().st_size, begin.startswith(b"\x93NUMPY")
    form = form_of(begin)
    if form or (array and path.suffix == ".npy"):
        return form
    if array or path.suffix == ".npy":
        return "a .npy under another name" if array else "it does not begin as a .npy does"
    if size % 2:
        return f"{size:,} bytes are no whole number of them"
    with contextlib.suppress(UnicodeDecodeError):
        text = codecs.getincrementaldecoder("utf-8")().decode(begin)
        if size >= 64 and all(letter.isprintable() or letter.isspace() for letter in text):
            return "it is text"
    return ""


_MARKED = "give files that say where documents end (Megatron's .idx, datatrove's .ds.index)"


def _documents(tokens: Any, data: Data, tell: str) -> tuple[Any, np.ndarray | None]:
    """The tokens as an array; of documents one after another, with where each begins and the last ends, (D + 1,)."""
    is_list = isinstance(tokens, (list, tuple))
    if isinstance(tokens, Shards):
        if data.pack != "wrap" and tokens.starts is None:
            raise InputError(f"`data.pack` {data.pack} needs documents, and {tell} is one stream; {_MARKED}")
        return tokens, None if data.pack == "wrap" else tokens.starts
    if data.pack == "wrap":
        if is_list and len({np.shape(text) for text in tokens}) > 1:
            raise InputError(f"{tell} are sequences of different length; give `data.pack` packed or document")
        return tokens if isinstance(tokens, np.ndarray) else np.asarray(tokens), None
    texts = [np.asarray(text) for text in tokens] if is_list else np.asarray(tokens)
    if not len(texts) or any(np.ndim(text) != 1 for text in texts):
        raise InputError(
            f"`data.pack` {data.pack} needs documents, not the one stream of {tell}; give sequences, (N, L) or one by "
            "one"
        )
    texts = [text for text in texts if len(text)]
    return np.concatenate(texts), np.cumsum([0, *map(len, texts)])


def _check(tokens: Any, vocabulary: int, data: Data, tell: str) -> None:
    """InputError unless they are integers of that vocabulary."""
    if not np.issubdtype(tokens.dtype, np.integer) or tokens.ndim not in (1, 2) or not tokens.size:
        raise InputError(
            f"{tell} have shape {tokens.shape} and type {tokens.dtype}; they must be integers, (N, L) or (N,)"
        )
    if vocabulary < 1:
        raise InputError(
            f"{tell} need the number of different tokens; give `data.vocabulary`, e.g. {int(tokens.max()) + 1}"
        )
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocabulary:
        where = f"in {tell}" if data.path else "in the data"
        raise InputError(
            f"token id {low if low < 0 else high:,} {where} but the vocabulary has {vocabulary:,} entries; "
            "use the tokenizer that made it"
        )
