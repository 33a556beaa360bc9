"""Sizes: network, batch, rate and steps that belong together, by one word (`zellige train --size`).

Whatever is given beside it comes first. `small` is what `Net()` and `Train()` are; on a machine without a GPU the command
line takes `tiny` where no size of a network is typed.
"""

from dataclasses import dataclass, fields
from typing import Any

from ..data.catalogue import DATASETS
from ..errors import Registry
from ..models.config import Train
from ..nn.block import UNREAD, Net


@dataclass(frozen=True)
class Size:
    """One size; `about` says for what it is, in a few words. Images have a network and a training of their own, a U-Net
    (docs/results.md, "Which network")."""

    about: str
    net: Net
    train: Train
    image_net: Net
    image_train: Train

    def fitted(self, kind: str = "dit", shaped: bool = False) -> Net:
        """The network as one of this kind; for data whose rows have a shape of their own without what is for a line of tokens."""
        others = {"kind", *UNREAD[kind], *(("length", "conv") if shaped else ())}
        own = {field.name: getattr(self.net, field.name) for field in fields(Net) if field.name not in others}
        return Net(kind=kind, **own)  # pyright: ignore[reportArgumentType]

    def of(self, data: str, method: Any, kind: str = "") -> tuple[Net, Train]:
        """The network and the training for this data and method, of the kind of network that is asked for, if any."""
        source = DATASETS.get(data)
        images = source and {"flip", "path"} <= {*source.reads}  # not the 8 x 8 of scikit-learn, which have no files
        if images and not kind and not method.blocks(method.Config()):
            return self.image_net, self.image_train
        return self.fitted(kind or "dit", bool(source and source.shaped)), self.train


SIZES: Registry[Size] = Registry("size")
SIZES |= {
    "tiny": Size(
        # 20M tokens of training, see docs/performance.md; 48,000 images
        "a megabyte of text, or small images, in half an hour of a CPU at most",
        Net(layers=4, hidden=128, heads=4, length=128, conv=7),
        Train(steps=10_000, minutes=30, batch=16, rate=3e-3, warmup=200, ema=0.999),
        Net(kind="flat-unet", channels=32, blocks=4, attention=(0,)),
        Train(steps=3000, minutes=30, batch=16, rate=2e-3, warmup=100, ema=0.997),
    ),
    "small": Size(
        "megabytes of text or small images, minutes to hours on a GPU",
        Net(),
        Train(),
        Net(kind="unet", channels=64, multipliers=(1, 2, 2)),
        Train(steps=50_000, batch=64, rate=5e-4, warmup=1000, ema=0.9995),
    ),
    "base": Size(
        "hundreds of megabytes, hours on a GPU; the papers' small network",
        Net(layers=12, hidden=768, heads=12),
        Train(steps=100_000, batch=128, warmup=2000, ema=0.9999),
        Net(kind="unet"),  # as the recipes of D3PM
        Train(steps=500_000, batch=128, rate=2e-4, warmup=5000, ema=0.9999),
    ),
    "medium": Size(
        "gigabytes, days on a GPU; the papers' medium network",
        Net(layers=24, hidden=1024, heads=16, length=1024),
        Train(steps=200_000, batch=128, warmup=2500, ema=0.9999),
        Net(kind="u-vit", layers=12, hidden=768, heads=12, channels=256, condition=256),  # as md4-imagenet64
        Train(steps=1_000_000, batch=256, rate=2e-4, warmup=2500, ema=0.9999),
    ),
}
CPU, GPU = "tiny", "small"  # of the command line on a machine without a GPU, and with one
