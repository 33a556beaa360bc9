"""Nouns: 32 x 32 pictures of five parts laid over each other: a background, a body, an accessory, a head and glasses.

A combination is one of each, a number below 50,124,360. Some combinations look alike: an accessory may cover the whole
body, a head part of both. So there are fewer pictures, and a combination drawn uniformly gives a picture whose entropy is
less than log2 of their number. Both are computed exactly (`Parts.entropy`), since little depends on much:

- Bodies have one outline, the accessories lie within it, and where a head and glasses cover nothing of it, the picture
  shows a body with its accessory there. So which bodies with accessories look alike depends only on what of the outline
  is covered, of which there are 57 cases.
- Outside of this outline no two pairs of a head and glasses look alike, and the backgrounds have colours that no part has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zellige.base.errors import InputError
from zellige.data.array_source import Context, Raw, locate_files
from zellige.data.catalogue import SHIPPED
from zellige.data.levels import Levels

if TYPE_CHECKING:
    from zellige.data.corpus import Data

PARTS = ("background", "body", "accessory", "head", "glasses")  # each laid over those before it
SHAPE = (32, 32)
CLEAR = 255  # a token of a part where it covers nothing
TRAINING, HELD_OUT = 1_000_000, 5_000  # combinations: of the training split, of validation and of test each


class Palette(Levels):
    """Rows of (height, width) colours; `labels` are their values, 0xRRGGBB.

    >>> Palette(2, (1, 2), "palette", "dim", labels=(0xFF0000, 0x0000FF)).decode([1, 0])
    '#0000ff #ff0000'
    """

    display = "zellige.plugins.kinds.nouns.display:Picture"
    sign = staticmethod("#{:06x}".format)

    def describe(self) -> str:
        """`32 x 32 pictures of 235 colours`"""
        return f"{' x '.join(map(str, self.shape))} pictures of {self.size:,} colours"


class Entropy(NamedTuple):
    """Of the picture of a combination that is drawn uniformly.

    Attributes:
        combinations, pictures: how many there are; pictures that look alike count once.
        bits: the entropy, at most log2 of the pictures.
    """

    combinations: int
    pictures: int
    bits: float


@dataclass(frozen=True)
class Parts:
    """The parts of all pictures.

    Attributes:
        colours: (V, 3) uint8, red, green and blue of each token.
        layers: for each of PARTS (K, L) uint8 tokens, CLEAR where it covers nothing.
        names: for each of PARTS the K names.
    """

    colours: np.ndarray
    layers: tuple[np.ndarray, ...]
    names: tuple[tuple[str, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of parts of each kind."""
        return tuple(map(len, self.layers))

    def split(self, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
        """For each of PARTS which one the combinations (N,) have, (N,)."""
        return np.unravel_index(numbers, self.shape)

    def pictures(self, numbers: np.ndarray) -> np.ndarray:
        """(N, L) uint8 tokens of combinations (N,)."""
        return self.seen(numbers)[0]

    def seen(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N, L) tokens of combinations (N,), and the index in PARTS of what is seen at each position."""
        tokens = np.full((len(numbers), self.layers[0].shape[1]), CLEAR, np.uint8)
        seen = np.zeros(tokens.shape, np.int8)
        for part, (layer, which) in enumerate(zip(self.layers, self.split(numbers))):
            covered = layer[which] != CLEAR
            tokens, seen = np.where(covered, layer[which], tokens), np.where(covered, part, seen)
        return tokens, seen

    # ------------------------------------------------------------------------------------------ what looks alike
    @cached_property
    def outline(self) -> np.ndarray:
        """(L,) bool, where bodies are. ValueError: parts of which the module's first lines are not true."""
        backgrounds, bodies, accessories, *_ = self.layers
        outline = bodies[0] != CLEAR
        others = np.concatenate(self.layers[1:])
        if not (
            ((bodies != CLEAR) == outline).all()
            and (accessories[:, ~outline] == CLEAR).all()
            and not np.isin(backgrounds, others).any()
            and len({top.tobytes() for top in self.tops[:, ~outline]}) == len(self.tops)
        ):
            raise ValueError("these parts hide each other in more ways than are counted here")
        return outline

    @cached_property
    def tops(self) -> np.ndarray:
        """(T, L) tokens of each head with each pair of glasses, CLEAR where they cover nothing."""
        heads, glasses = self.layers[3:]
        return np.where(glasses[None] != CLEAR, glasses[None], heads[:, None]).reshape(-1, heads.shape[1])

    @cached_property
    def bottoms(self) -> np.ndarray:
        """(B, P) tokens of each body with each accessory, at the P positions of the outline."""
        bodies, accessories = (layer[:, self.outline] for layer in self.layers[1:3])
        pairs = np.where(accessories[None] != CLEAR, accessories[None], bodies[:, None])
        return pairs.reshape(-1, pairs.shape[-1])

    @cached_property
    def covers(self) -> tuple[np.ndarray, np.ndarray]:
        """(C, P) bool, the ways in which a head and glasses leave the outline free, and (T,) which one each has."""
        return np.unique(self.tops[:, self.outline] == CLEAR, axis=0, return_inverse=True)

    @cached_property
    def looks(self) -> np.ndarray:
        """(C, B) a number for what is seen of each body with its accessory: equal where both look alike."""
        numbers: dict[bytes, int] = {}
        return np.array(
            [
                [numbers.setdefault(bytes([i]) + bottom.tobytes(), len(numbers)) for bottom in self.bottoms[:, free]]
                for i, free in enumerate(self.covers[0])
            ]
        )

    def identity(self, numbers: np.ndarray) -> np.ndarray:
        """(N,) a number for the picture of each combination (N,): equal where two look alike."""
        background, body, accessory, head, glasses = self.split(numbers)
        top = head * self.shape[4] + glasses
        look = self.looks[self.covers[1][top], body * self.shape[2] + accessory]
        return (background * len(self.tops) + top) * (int(self.looks.max()) + 1) + look

    def entropy(self) -> Entropy:
        """The exact entropy of a picture, and how many there are."""
        counts = [np.unique(looks, return_counts=True)[1] for looks in self.looks]  # of combinations of each look
        tops = np.bincount(self.covers[1])  # of each cover
        pictures = len(self.layers[0]) * sum(n * len(c) for n, c in zip(tops.tolist(), counts))
        lost = sum(n * float(c @ np.log2(c)) for n, c in zip(tops.tolist(), counts)) / tops.sum() / len(self.bottoms)
        return Entropy(prod(self.shape), pictures, float(np.log2(prod(self.shape))) - lost)

    # ------------------------------------------------------------------------------------------ which one it is
    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """(N,) the combination from which each of (N, L) rows differs at the fewest positions, the first of several.

        The search is exact: for each cover of the outline the best body with its accessory, then the best background,
        head and glasses.
        """
        out, (free, cover), clear = ~self.outline, self.covers, self.tops == CLEAR
        clear_out = clear[:, out].astype(np.float32)
        numbers = np.empty(len(rows), np.int64)
        for i, row in enumerate(rows):
            below = (self.bottoms != row[self.outline]).astype(np.float32) @ free.T.astype(np.float32)  # (B, C)
            behind = clear_out @ (self.layers[0] != row)[:, out].T.astype(np.float32)  # (T, backgrounds)
            above = ((self.tops != row) & ~clear).sum(1)  # (T,)
            wrong = (behind + (above + below.min(0)[cover])[:, None]).T
            background, top = np.unravel_index(int(wrong.argmin()), wrong.shape)
            body, accessory = np.unravel_index(int(below[:, cover[top]].argmin()), self.shape[1:3])
            head, glasses = np.unravel_index(top, self.shape[3:])
            numbers[i] = np.ravel_multi_index((background, body, accessory, head, glasses), self.shape)
        return numbers

    def right(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """(N, 5) whether all that is seen of each part of the combinations (N,) is in the rows (N, L); NaN: nothing is."""
        tokens, seen = self.seen(numbers)
        right = np.full((len(rows), len(PARTS)), np.nan)
        for part in range(len(PARTS)):
            of_part = seen == part
            right[:, part] = np.where(of_part.any(1), ((tokens == rows) | ~of_part).all(1), np.nan)
        return right


@cache
def parts() -> Parts:
    """The parts that come with Zellige."""
    with np.load(SHIPPED / "nouns" / "parts.npz") as file:
        stored = {name: file[name] for name in file.files}
    keys = ("bodies", "accessories", "heads", "glasses")
    indices = [stored[key].reshape(len(stored[key]), -1) for key in keys]  # of the palette; 0 is clear
    used = np.setdiff1d(np.concatenate(indices), [0])
    backgrounds = stored["background"]
    token = np.full(len(stored["palette"]), CLEAR, np.uint8)
    token[used] = np.arange(len(used)) + len(backgrounds)
    flat = np.repeat(np.arange(len(backgrounds), dtype=np.uint8)[:, None], prod(SHAPE), 1)
    names = [tuple(name.removeprefix(f"{part}-") for name in stored[f"{key}_name"].tolist())
             for part, key in zip(PARTS[1:], keys)]  # fmt: skip
    return Parts(
        np.concatenate([backgrounds, stored["palette"][used]]),
        (flat, *(token[index] for index in indices)),
        (("cool", "warm"), *names),
    )


@cache
def splits() -> dict[str, np.ndarray]:
    """The combinations of each split, always the same ones. None of training looks like one of the others."""
    of, most = parts(), TRAINING + 2 * HELD_OUT
    drawn = np.random.default_rng(0).integers(0, prod(of.shape), most + most // 20)
    drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    held_out, others = drawn[: 2 * HELD_OUT], drawn[2 * HELD_OUT :]
    others = others[~np.isin(of.identity(others), of.identity(held_out))]
    return {"train": others[:TRAINING], "validation": held_out[:HELD_OUT], "test": held_out[HELD_OUT:]}


@dataclass(frozen=True)
class Composed:
    """The pictures of combinations one after another as one array of tokens, made where it is read."""

    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.numbers) * prod(SHAPE)

    def __getitem__(self, part: slice) -> np.ndarray:
        begin, end, _ = part.indices(self.size)
        first = begin // prod(SHAPE)
        tokens = parts().pictures(self.numbers[first : -(-end // prod(SHAPE))]).reshape(-1)
        return tokens[begin - first * prod(SHAPE) :][: end - begin]


def read(data: "Data", context: Context) -> Raw:
    """The pictures, composed as they are read; their class is the head, or the part that `data.labels_by` names."""
    _, about = locate_files(data, context)
    by = data.labels_by or "head"
    if by not in PARTS:
        raise InputError(
            f"`data.labels_by` is '{by}'; the parts of {data.name} are {', '.join(PARTS[:-1])} and {PARTS[-1]}"
        )
    of, numbers = parts(), splits()
    which = PARTS.index(by)
    about["protocol"] = (
        f"{len(numbers['train']):,} of {prod(of.shape):,} combinations, composed as they are read; none of training looks "
        "like a held-out one"
    )
    pictures: dict[str, Any] = {split: Composed(of_split) for split, of_split in numbers.items()}
    return Raw(
        pictures,
        len(of.colours), tokenizer=Palette(len(of.colours), SHAPE, "palette", "dim", labels=rgb(of.colours)), cut=True,
        classes={split: of.split(n)[which] for split, n in numbers.items()} if data.labels else {},
        names=of.names[which], about=about,
    )  # fmt: skip


def rgb(colours: np.ndarray) -> Sequence[int]:
    """Colours (V, 3) as whole numbers, 0xRRGGBB."""
    return (colours.astype(np.int64) @ [1 << 16, 1 << 8, 1]).tolist()
