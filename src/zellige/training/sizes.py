"""Sizes: network, batch, rate and steps that belong together, by one word (`zellige train --size`).

Whatever is given beside it comes first. `small` is what `Net()` and `Train()` are; on a machine without a GPU the command
line takes `tiny` where no size of a network is typed.
"""

from dataclasses import dataclass, fields

from ..errors import Registry
from ..models.config import Train
from ..nn.block import UNREAD, Net


@dataclass(frozen=True)
class Size:
    """One size; `about` says for what it is, in a few words."""

    about: str
    net: Net
    train: Train

    def fitted(self, kind: str = "dit", shaped: bool = False) -> Net:
        """The network as one of this kind; for data whose rows have a shape of their own without what is for a line of tokens."""
        others = {"kind", *UNREAD[kind], *(("length", "conv") if shaped else ())}
        own = {field.name: getattr(self.net, field.name) for field in fields(Net) if field.name not in others}
        return Net(kind=kind, **own)  # pyright: ignore[reportArgumentType]


SIZES: Registry[Size] = Registry("size")
SIZES |= {
    "tiny": Size(
        "a megabyte of text, half an hour on 2 cores",  # 20M characters of training; see docs/performance.md
        Net(layers=4, hidden=128, heads=4, length=128, conv=7),
        Train(steps=10_000, batch=16, rate=3e-3, warmup=200, ema=0.999),
    ),
    "small": Size("megabytes of text, minutes on a GPU", Net(), Train()),
    "base": Size(
        "hundreds of megabytes, hours on a GPU; the papers' small network",
        Net(layers=12, hidden=768, heads=12),
        Train(steps=100_000, batch=128, warmup=2000, ema=0.9999),
    ),
    "medium": Size(
        "gigabytes, days on a GPU; the papers' medium network",
        Net(layers=24, hidden=1024, heads=16, length=1024),
        Train(steps=200_000, batch=128, warmup=2500, ema=0.9999),
    ),
}
CPU = "tiny"  # of the command line on a machine without a GPU
