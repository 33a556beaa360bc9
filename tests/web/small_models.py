"""Models with random weights, small enough to draw from in a test: text, Sudoku, images, music, molecules."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

import zellige
from zellige import Net
from zellige.data import Data
from zellige.data.levels import Levels
from zellige.data.tokenizer import Bytes, Characters
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.kinds.molecules.tokens import Selfies, Smiles
from zellige.plugins.kinds.music.notes import SILENT, Notes

LENGTH = 24
TOKENIZERS = {
    "text": Characters("abcdefghijklmnopqrstuvwxyz <>()/'\u200f\x07"),
    "sudoku": Levels(4, (4, 4), "grid", "cell", labels=(1, 2, 3, 4)),
    "image": Levels(4, (6, 6), "image", "dim", ordered=True),
    "music": Notes(6, (8, 4), ordered=True, labels=(SILENT, 55, 60, 64, 67, 72)),
    "molecules": Smiles("CNO=()1\n", shape=(12,)),
    "bytes": Bytes(),
    "selfies": Selfies(["[C]", "[N]", "[O]", "[=O]", "[=C]", "[Branch1]", "[=Branch1]", "[Ring1]", "[F]"], (10,)),
}


def small(
    kind: str = "text", name: str = "mdlm", classes: int = 0, seed: int = 0, length: int = LENGTH, letters: str = "", **config
) -> Model:  # fmt: skip
    tokenizer = Characters(letters) if letters else TOKENIZERS[kind]
    length = length if kind in ("text", "bytes") else int(torch.tensor(tokenizer.shape).prod())
    net = Net(layers=1, hidden=16, heads=2, length=length, conv=3, classes=classes)
    cls = zellige.METHODS[name]
    torch.manual_seed(seed)
    method = build(cls, tokenizer.size, net, cls.Config(**config), length, tokenizer.ordered)
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return Model(method, tokenizer, Config(name, cls.Config(**config), Data("pydocs"), net))


def at_once(ask: Callable[[Any], Any], inputs: Iterable[Any]) -> list[Any]:
    """What each of several people gets who ask at the same time."""
    inputs = list(inputs)
    with ThreadPoolExecutor(len(inputs)) as people:
        return list(people.map(ask, inputs))
