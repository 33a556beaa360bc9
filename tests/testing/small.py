"""Small things that the tests of several packages are about: texts in memory, methods with a small transformer."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from zellige import Config, Data, Net
from zellige.core.batch import Batch
from zellige.methods import METHODS, build
from zellige.methods.diffusion import clean_end, inside, noisy_end

RECORD = [  # the keys that --json writes
    "zellige", "format", "command", "request", "arguments", "result", "interval", "unit", "kind", "protocol", "seed",
    "versions", "seconds",
]  # fmt: skip
V, LENGTH = 3, 8  # tokens and length of the transformers that `make` makes


class Rows:
    """Texts in memory: (N, L) tokens, and a mask where some are padded."""

    def __init__(self, tokens, mask=None):
        self.tokens, self.mask = tokens, mask
        self.tokens_total = int(tokens.numel() if mask is None else mask.sum())

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return i

    def collate(self, rows):
        return Batch(self.tokens[rows], None if self.mask is None else self.mask[rows])


def make(
    name: str, choices: dict[str, Any] | None = None, conv: int = 3, length: int = LENGTH, vocabulary: int = V, **net
) -> Any:
    """A small transformer with random weights, float64."""
    torch.manual_seed(0)
    config = METHODS[name].Config(**(choices or {}))
    sizes = {"layers": 2, "hidden": 8, "heads": 2, "condition": 8} | net
    method = build(name, vocabulary, Net(length=length, conv=conv, **sizes), config, ordered=True).double().eval()
    with torch.no_grad():
        for p in method.network.parameters():
            p.normal_(std=0.4)
    return method


def loop(method: Any, config: Config, vocabulary: int, kind: str = "cpu") -> Any:
    """The loop of a training of a method on random rows, before its first step; kind: of its device."""
    from zellige.data.prepare import prepare
    from zellige.show.progress import Progress
    from zellige.training.device import Fleet
    from zellige.training.fit import Loop
    from zellige.training.prepared import Prepared
    from zellige.training.signals import Signals

    length = config.net.length
    tokens = torch.randint(0, vocabulary, (40, length), generator=torch.Generator().manual_seed(0))
    corpus = prepare(Data.of(tokens, vocabulary=vocabulary), length)
    made = Loop(Prepared(method, corpus, config, {}, Fleet(), {}, None, 0), "", Progress(), Signals(str))
    strategy = SimpleNamespace(root_device=torch.device(kind))
    made._trainer = SimpleNamespace(global_rank=0, strategy=strategy)  # pyright: ignore[reportAttributeAccessIssue]
    return made


def apart(method: Any) -> list[Any]:
    """Draws whose sum is that of the bound: its terms, if each has draws of its own. The product of all outcomes is large."""
    drawn = (
        [method.bound]
        if method.steps or method.draws_mask_counts
        else [partial(term, method) for term in (inside, clean_end, noisy_end)]
    )
    batch = Batch(torch.zeros(2, *method.shape, dtype=torch.long))
    same, whole = (torch.Generator().manual_seed(0) for _ in range(2))
    assert torch.equal(sum(draw(batch, same) for draw in drawn), method.bound(batch, whole))
    return drawn
