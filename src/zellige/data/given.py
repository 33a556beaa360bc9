"""Given parts of a row, which a model reads and does not learn to say (`data.given`): never noised, never counted.

    prefix:32    the first 32 tokens of each row, or of each document where rows hold documents
    suffix:32    the last 32
    spans:0.5    spans of random lengths that hold half of the tokens; in training others each epoch, else always the same
    field        the prompt of each record of a file (`records`); its answer is the rest. Of a conversation all but the last
                 message, by the tokenizer's chat template (`chat`)
    puzzle       the filled cells of each sudoku, as its file has them

At least one token of a row is left. The bound of the others is that of -log p(the rest | the given part).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..base.arguments import is_number
from ..base.errors import InputError, quoted
from . import catalogue, chat, file_names, readers, records, tokenizer_by_name
from .corpus import Corpus, Data, OwnData, count_rows, fill_of
from .losses import losses_of
from .rows import Rows

if TYPE_CHECKING:
    from .tokenizer_base import Tokenizer

FORMS = "prefix:32, suffix:32, spans:0.5, field or puzzle"
MEAN = 8  # tokens of a span
ROUND = 8  # rows of pairs are a multiple of so many tokens long


@dataclass(frozen=True)
class Given:
    """Which part of a text is given.

    Attributes:
        kind: "prefix", "suffix", "spans", "field" or "puzzle".
        amount: tokens of a prefix or suffix, the share of spans.
    """

    kind: str
    amount: float = 0

    @classmethod
    def of(cls, word: str) -> "Given":
        """Read what `data.given` says. Raises InputError for anything else."""
        kind, _, amount = word.partition(":")
        if kind in ("field", "puzzle") and not amount:
            return cls(kind)
        if kind in ("prefix", "suffix") and is_number(amount) and int(amount) > 0:
            return cls(kind, int(amount))
        try:
            share = float(amount)
        except ValueError:
            share = -1.0
        if kind == "spans" and 0 < share < 1:
            return cls(kind, share)
        raise InputError(f"`data.given` is {quoted(word)}; it must be {FORMS}")

    @property
    def left_to_right(self) -> bool:
        """Whether the rest follows the given part, as a model that writes from left to right needs it."""
        return self.kind in ("prefix", "field")

    def describe(self) -> str:
        """A phrase for the protocol."""
        if self.kind == "field":
            return "the prompt"
        if self.kind == "puzzle":
            return "the puzzle"
        if self.kind == "spans":
            return f"spans, {self.amount:g} of the tokens"
        return f"the {'first' if self.kind == 'prefix' else 'last'} {int(self.amount):,} tokens"

    def count(self, n: int) -> int:
        """Number of given tokens of n."""
        return min(round(self.amount * n) if self.kind == "spans" else int(self.amount), n - 1)

    def at(self, n: int, seed: int) -> np.ndarray:
        """The given positions of n, (n,) bool. The seed is that of spans."""
        k, given = self.count(n), np.zeros(n, bool)
        if self.kind == "spans" and k:
            draw, spans = np.random.default_rng(seed), max(min(round(k / MEAN), n - k + 1), 1)
            cuts = np.sort(draw.choice(np.arange(1, k), spans - 1, replace=False))  # k into spans of 1 or more
            before = np.sort(draw.choice(n - k + 1, spans, replace=False))  # free tokens before each
            for first, start, stop in zip(before, [0, *cuts], [*cuts, k]):
                given[first + start : first + stop] = True
        elif k:
            given[slice(0, k) if self.kind == "prefix" else slice(n - k, n)] = True
        return given


class GivenRows(Rows):
    """Rows with a given part: False in their mask, as padding is.

    Args:
        rows: the rows; no mixture.
        given: what is given of each row, or of each document.
        prompts: (D,) the number of given tokens of each document, instead.
    """

    def __init__(self, rows: Rows, given: Given, prompts: np.ndarray | None = None):
        self.__dict__.update(rows.__dict__)
        self.given, self._prompts = given, prompts
        sizes = self._sizes if self.documents is not None else np.full(len(rows), rows.length)
        if given.kind == "puzzle":
            counts = int((rows.clues >= 0).sum()) if rows.clues is not None else 0
        elif prompts is None:
            counts = sum(given.count(int(n)) for n in sizes)
        else:
            counts = int(np.minimum(prompts, sizes - 1).sum())
        left = int(sum(sizes)) - counts
        if self.characters is not None:
            self.characters = round(self.characters * left / max(self.tokens_total, 1))
        self.tokens_total = left

    @property
    def redrawn(self) -> bool:
        return self.given.kind == "spans"

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        epoch, at = divmod(index, len(self)) if self.redrawn and index >= 0 else (0, index % len(self))
        row = super().__getitem__(at if self.redrawn else index)
        if self.given.kind == "puzzle":
            assert self.clues is not None
            return row | {"mask": torch.from_numpy(self.clues[at] < 0)}
        if self.documents is None:
            return row | {"mask": torch.from_numpy(~self.given.at(self.length, at + epoch * len(self)))}
        given = [self._part(i, epoch) for i in self._order[self._first[at] : self._first[at + 1]]]
        mask = row["mask"].clone()
        mask[: sum(map(len, given))] &= torch.from_numpy(~np.concatenate(given))
        return row | {"mask": mask}

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return (self[i] for i in range(len(self)))

    def _part(self, i: int, epoch: int) -> np.ndarray:
        """The given positions of a document."""
        n = int(self._sizes[i])
        if self._prompts is None:
            return self.given.at(n, int(i) + epoch * self.texts)
        return np.arange(n) < min(int(self._prompts[i]), n - 1)


def with_given(corpus: Corpus, word: str) -> Corpus:
    """The corpus with a given part in each row of each split.

    Raises:
        InputError: `word` names no part, or all of a row; a mixture of data sets; puzzles that there are not.
    """
    given = Given.of(word)
    if given.kind == "puzzle" and any(rows.clues is None for rows in corpus.rows.values()):
        raise InputError("`data.given` puzzle is for sudokus of 9 x 9, whose file has puzzles; leave it out")
    length = next(iter(corpus.rows.values())).length
    if given.kind != "spans" and given.amount >= length:
        raise InputError(f"`data.given` {word} is all of a row of {length:,} tokens; give fewer")
    if "mix" in corpus.about:
        raise InputError("`data.given` is of one corpus, and `data.mix` names several; leave one of them out")
    return _of(corpus, {split: GivenRows(rows, given) for split, rows in corpus.rows.items()}, given, word)


def _of(corpus: Corpus, rows: dict[str, Any], given: Given, word: str) -> Corpus:
    about = corpus.about | {"given": word, "given part": given.describe()}
    about |= {"splits": {name: count_rows(split) for name, split in rows.items()}}
    return Corpus(corpus.tokenizer, rows, about, corpus.notes)


# ---------------------------------------------------------------------------------------------- prompt and answer
class LeftOut(NamedTuple):
    """How many pairs are left out of all, why, and the first of them in words."""

    of: int
    long: int
    empty: int
    first: str

    def __str__(self) -> str:
        why = [
            f"{self.long:,} longer than a row" if self.long else "",
            f"{self.empty:,} without an answer" if self.empty else "",
        ]
        return f"{self.long + self.empty:,} of {self.of:,} pairs: {', '.join(filter(None, why))} ({self.first})"


def read_pairs(path: str, tokenizer: "Tokenizer | None" = None) -> tuple[list[tuple[str, str, str]], str]:
    """What to call each record of files in an error, its prompt and its answer; "" and "" where it has none.

    A conversation is written by the tokenizer's chat template (`chat.pairs`); the second value names a plain one that
    is used.

    Raises:
        InputError: no such file, or one of running text; a record that holds neither a prompt and an answer nor
            messages.
    """
    found: list[tuple[str, records.Pair | list[records.Message]]] = []
    for file in file_names.find_files(path):
        if not file_names.is_documents(file):
            raise InputError(f"`data.given` field needs records ({records.FORMS}), and '{file}' has none")
        found += [(name, records.conversation(record, name)) for name, record in readers.read_records(file)]
    told = [(name, messages) for name, messages in found if isinstance(messages, list) and messages]
    written = iter(chat.pairs(tokenizer, told))
    pairs = [(name, *(of if isinstance(of, tuple) else next(written) if of else ("", ""))) for name, of in found]
    return pairs, chat.note(tokenizer) if told else ""


def prepare_pairs(data: Data, length: int, tokenizer: "Tokenizer | None", ends: int = 0) -> Corpus:
    """Prompts and answers, each pair in a row of its own: what `prepare` does for a text.

    Rows are as long as the longest pair, rounded up. An answer ends with the token that ends documents; with
    `data.fill` it is repeated to a multiple of so many tokens. Pairs that are longer than a row, or lack an answer, are
    left out: the entry `pairs` of `about` is how many (LeftOut).

    Raises:
        InputError: as `read_pairs`; no pair of a split is left.
    """
    from . import tokenizer as tk
    from .tokens import prepare_tokens

    if not data.path:
        raise InputError("`data.given` field needs `data.path`, e.g. a .jsonl file with 'prompt' and 'answer'")
    if tokenizer is not None and tokenizer.shape:
        raise InputError(
            f"the model writes {tokenizer.describe()}, and prompts and answers are text; give data of that form"
        )
    sources = {split: path for split in ("validation", "test") if isinstance(path := getattr(data, split), str)}
    sources = {"train" if sources else "all": data.path} | sources
    spec = data.tokenizer or "auto"
    learnt = tokenizer is None and tokenizer_by_name.is_learnt(spec)
    if tokenizer is None and not learnt:
        cache = catalogue.cache_folder(data.cache)
        fetch = lambda address, checksum: catalogue.fetch(address, checksum, cache)  # noqa: E731
        tokenizer = tokenizer_by_name.named_tokenizer(spec, fetch)
    read = {split: read_pairs(path, tokenizer) for split, path in sources.items()}
    pairs, notes = {split: of for split, (of, _) in read.items()}, {note for _, note in read.values() if note}
    texts = [text for of_split in pairs.values() for _, *pair in of_split for text in pair]
    if tokenizer is None:
        characters, spaces = sum(map(len, texts)), sum(text.count(" ") for text in texts)
        size = tokenizer_by_name.entries(spec, characters, spaces)
        subwords = tokenizer_by_name.train_subwords
        tokenizer = subwords(spec, size, texts) if size else tk.Characters("".join(texts))
    losses = losses_of(tokenizer, texts)
    values, prompts, longest, left = {}, list[int](), 1, LeftOut(sum(map(len, pairs.values())), 0, 0, "")
    for split, of_split in pairs.items():
        values[split] = []
        for name, prompt, answer in of_split:
            tokens, ending = _encoded(tokenizer, prompt, answer) if answer else ([], [])
            n = len(tokens) + len(ending)
            if 0 < n <= length:
                values[split].append([*tokens, *ending])
                prompts.append(len(tokens))
                longest = max(longest, n)
                continue
            first = left.first or (f"{name} has {n:,} tokens, a row {length:,}" if n else f"{name} has no answer")
            left = LeftOut(left.of, left.long + (n > 0), left.empty + (not n), first)
        if not values[split]:
            raise InputError(
                f"no pair of '{sources[split]}' is left: left out {left}; give shorter pairs, or longer rows"
            )
    fill = fill_of(data, tokenizer, ends)
    step = fill if 0 < fill < longest else ROUND
    shares = {} if "train" in sources else {"validation": data.validation, "test": data.test}
    row = min(length, -(-longest // step) * step)
    more = {"path": data.path, "fill": min(fill, row), "vocabulary": tokenizer.size} | shares
    corpus = prepare_tokens(OwnData(values, name="tokens", pack="document", **more), row, tokenizer)
    rows, begin, given = {}, 0, Given("field")
    for split, part in corpus.rows.items():
        rows[split] = GivenRows(part, given, np.array(prompts[begin : begin + part.texts]))
        rows[split].losses = losses
        begin += part.texts
    about = corpus.about | {"name": data.name, "files": [str(file) for file in file_names.find_files(data.path)]}
    if left.first:
        about |= {"left_out": [str(left)], "pairs": left._asdict()}
    return _of(Corpus(tokenizer, corpus.rows, about, tuple(notes)), rows, given, "field")


def _encoded(tokenizer: "Tokenizer", prompt: str, answer: str) -> tuple[list[int], list[int]]:
    """The tokens of a prompt and of an answer, which ends with the token that ends documents, if there is one."""
    end = [] if tokenizer.separator is None else [tokenizer.separator]
    return tokenizer.encode(prompt), [*tokenizer.encode(answer), *end]
