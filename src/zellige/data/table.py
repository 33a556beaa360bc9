"""A table of categories: a .csv with a header, a position for each column, each with an alphabet of its own.

Token k at a column is the k-th of its values, so the vocabulary is that of the column with the most. In a column with
fewer the tokens after its last stand for nothing and no row has them: masks and left-to-right models learn to leave
them out, and their likelihoods are right as they are. Noise that changes a token into any other would visit them:
`refuse_mixed`.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from . import unpack
from .array_source import Context, Raw, locate_files
from .file_names import kind
from .tokenizer_base import BaseTokenizer, token_ids

if TYPE_CHECKING:
    from .corpus import Data

MOST = 256  # values of a column
FREE = (".", "_", "?", "")


class Table(BaseTokenizer):
    """Rows of a table.

    >>> weather = Table({"sky": ["clear", "grey"], "wind": ["0", "1", "2"]})
    >>> weather.encode("grey,."), weather.decode([1, 2]), weather.decode([2, 2])
    ([1, -1], 'grey,2', '·,2')

    Attributes:
        columns: the values of each column, by its name, in order.
    """

    name, kind, unit = "table", "table", "cell"

    def __init__(self, columns: Mapping[str, Sequence[str]]):
        self.columns = {name: [*values] for name, values in columns.items()}
        self.values = [*self.columns.values()]
        self.size, self.shape = max(map(len, self.values)), (len(self.values),)

    @property
    def mixed(self) -> tuple[int, int] | None:
        """The fewest values of a column and the most, where these differ."""
        counts = [len(values) for values in self.values]
        return (min(counts), max(counts)) if min(counts) < max(counts) else None

    def describe(self) -> str:
        """`rows of 9 columns, 2 to 5 values each`"""
        values = f"{self.mixed[0]} to {self.mixed[1]}" if self.mixed else f"{self.size}"
        return f"rows of {len(self.values)} columns, {values} values each"

    def words(self, tokens: Iterable[int], mask: str = "·") -> list[str]:
        """The value in each column; `mask` where a token is none of its values."""
        return [values[t] if 0 <= t < len(values) else mask for t, values in zip(token_ids(tokens), self.values)]

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        """A row as a line of .csv."""
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(self.words(tokens, mask))
        return line.getvalue()

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        """The tokens of a line of .csv, -1 where it leaves a cell free (`.`, `_`, `?` or nothing)."""
        words = [word.strip() for word in next(csv.reader([text]), [])]
        if len(words) != len(self.values):
            raise InputError(
                f"{of} has {len(words)} cells, the model takes {len(self.values)} ({', '.join(self.columns)}); "
                "mark each free one with '.'"
            )
        for word, (name, values) in zip(words, self.columns.items()):
            if word not in values and word not in FREE:
                raise InputError(f"'{word}' in {of} is no value of the column '{name}' ({', '.join(values[:8])})")
        return [values.index(word) if word in values else -1 for word, values in zip(words, self.values)]

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        raise InputError(f"{of} is text, and this model is of a table ({self.describe()}); give data of that form")

    def to_dict(self) -> dict[str, Any]:
        return {"zellige": "table", "columns": self.columns}


def refuse_mixed(tokenizer: Any, method: Any) -> None:
    """InputError where a method's noise, or its neighbourhood, gives a column values that it does not have."""
    if (mixed := getattr(tokenizer, "mixed", None)) is None:
        return
    changes = method.parameterization == "score" if method.process is None else method.process.mask is None
    if changes:
        raise InputError(
            f"the columns have {mixed[0]} to {mixed[1]} values, and this {method.name} changes a value into any other, "
            "also into those that its column does not have; use masks, such as mdlm, or ar"
        )


def read_table(data: "Data", context: Context) -> Raw:
    """A .csv or .tsv of categories. Its rows are shuffled; the values of a column are those of the whole file."""
    files, about = locate_files(data, context)
    path = next(iter(files.values()))
    if kind(path) not in (".csv", ".tsv"):
        raise InputError(f"'{path}' is no .csv or .tsv; a table is one, with a header")
    text = unpack.read_bytes(path).decode("utf-8-sig", "replace")
    reader = csv.reader(io.StringIO(text), delimiter="\t" if kind(path) == ".tsv" else ",")
    with unpack.of_rows(path):
        (_, names), *lines = [(reader.line_num, row) for row in reader if row] or [(0, [])]
    header, rows = [name.strip() for name in names], []
    twice = next((name for i, name in enumerate(header) if name in header[:i]), None)
    if twice is not None:
        raise InputError(f"the header of '{path}' has '{twice}' twice; give each column a name of its own")
    for line, row in lines:
        if len(row) != len(header):
            raise InputError(
                f"line {line:,} of '{path}' has {len(row)} cells, and its header {len(header)}; give as many"
            )
        rows.append([cell.strip() for cell in row])
        if "" in rows[-1]:
            name = header[rows[-1].index("")]
            raise InputError(f"line {line:,} of '{path}' has no value for '{name}'; write a word there, such as none")
    if not rows:
        raise InputError(f"'{path}' holds no rows; a table is a header, and a row in each line after it")
    tokenizer = Table({name: _ordered({row[i] for row in rows}) for i, name in enumerate(header)})
    name, values = max(tokenizer.columns.items(), key=lambda column: len(column[1]))
    if len(values) > MOST:
        raise InputError(
            f"the column '{name}' of '{path}' has {len(values):,} values; {MOST} at most: put them in bins"
        )
    number = [{value: k for k, value in enumerate(column)} for column in tokenizer.values]
    tokens = np.array([[n[cell] for n, cell in zip(number, row)] for row in rows], np.uint8)
    about["protocol"] = "a row of the table a sequence, a column a position with values of its own; shuffled"
    shuffled = tokens[np.random.default_rng(0).permutation(len(tokens))]
    return Raw({"all": shuffled}, tokenizer.size, tokenizer=tokenizer, about=about)


def _ordered(values: set[str]) -> list[str]:
    """In order: numbers by their size and nan last, words by the alphabet."""
    words = sorted(values)
    try:
        return [words[i] for i in np.argsort([*map(float, words)], kind="stable")]
    except ValueError:
        return words
