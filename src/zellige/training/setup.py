"""Setup of a run: its choices, checked against an existing run and the data, and the model that it begins with.

SIZES are network, batch, learning rate and steps that belong together, by one word (`zellige train --size`). Whatever
is given beside it comes first, one option in the place of one value. `small` is what `Net()` and `Train()` are; on a
machine without a GPU the command line takes `tiny` where no size is typed.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ..base.arguments import of_kind
from ..base.errors import InputError
from ..base.plugins import Registry
from ..base.requests import Progress
from ..data import DATASETS, Corpus
from ..data import load as load_tokenizer
from ..data.prepare import prepare
from ..data.tokenizer_base import OutsideVocabulary, Tokenizer
from ..methods.method import Method
from ..models import published
from ..models.checkpoint.layout import CONFIG, MODEL, TOKENIZER
from ..models.checkpoint.read import check_sums, load_weights, place_weights, read_config, run_config
from ..models.config import Config, Train
from ..models.ends import fill_for
from ..models.locate import locate
from ..models.model import load
from ..nn.block import UNREAD, Net
from ..papers.recipes import RECIPES

ADDED = ("classes", "self_condition")  # of a network, which `train.start` may lack
OF_STATES = ("network.embedding.weight", "network.head.weight", "network.head.bias")  # a row for each state

# what `resume` may change: of the numbers, of when and where things are written, and what computes them
NUMBERS = {"steps", "lr", "clip", "precision"}
WRITING = {
    "validate_every", "samples", "sample_steps", "save_every", "save_minutes",
    "async_save", "keep", "log_every", "tensorboard", "wandb", "workers",
}  # fmt: skip
# what computes a step: the same numbers up to rounding, but for dropout and self-conditioning
WHERE = {"devices", "nodes", "strategy", "accumulate"}


def check_choices(method: type[Method], net: Any, options: Any) -> None:
    """InputError unless a network is a Net or may stand for one, and the options are those of the method."""
    if not isinstance(net, Net) and not (hasattr(net, "features") and hasattr(net, "head")):
        raise InputError(f"`net` is {of_kind(net)}; it must be a Net, or a network with 'features' and 'head'")
    if not isinstance(options, method.Config):
        wrong = type(options).__qualname__ if type(options).__name__ == "Config" else of_kind(options)
        raise InputError(
            f"`options` is {wrong}; it must be {method.__name__}.Config, as {method.__name__}.Config() makes it"
        )


def check_new(config: Config) -> None:
    """InputError for a network that no new run has."""
    if config.net.grid and config.data.pack != "wrap":  # padding would be part of the picture
        raise InputError(f"`data.pack` {config.data.pack} needs positions on a line; leave out `net.grid`")
    if config.net.latents:
        raise InputError(
            "`net.latents` is for a mixture, which zellige train distill --by di4c makes of a run; leave it out"
        )


def with_network(config: Config, before: Config | None) -> Config:
    """The config with the class of the network of the run or the model that it goes on from, where that is none of
    Zellige's.

    Raises:
        InputError: it is an own one, which is not handed over.
    """
    if before is None or not before.network or config.network:
        return config
    if not published.has_class(before):
        raise InputError(f"the run has an own network ({before.network}); hand it over: train(..., net=...)")
    return replace(config, network=before.network)


def row_length(config: Config) -> int | None:
    """The tokens of a row; None where the data has its own and nothing else is asked for."""
    if config.adapter and config.adapter.length:
        return config.adapter.length
    has_shape = config.data.name in DATASETS and DATASETS[config.data.name].shaped
    return None if has_shape and config.net.length == Net().length else config.net.length


def shaped(config: Config, shape: Sequence[int] | None, classes: int = 0) -> Config:
    """The config with a network for rows of this shape, unless it asks for another: then whoever reads it says so; and
    for so many classes of them."""
    net, length = config.net, math.prod(shape or ())
    if classes and not config.network:
        if net.classes not in (0, classes):
            raise InputError(f"`net.classes` is {net.classes}, and {config.data.name} has {classes}; leave it out")
        net = replace(net, classes=classes)
        config = replace(config, net=net)
    if not shape or net.length not in (Net().length, length):
        return config
    grid = tuple(shape) if len(shape) > 1 else ()
    if net.grid not in ((), grid):
        grid_text, rows = (" x ".join(map(str, g)) for g in (net.grid, shape))
        raise InputError(f"`net.grid` is {grid_text}, the rows of {config.data.name} are {rows}; leave it out")
    return replace(config, net=replace(net, length=length, grid=grid))


def shaped_by(config: Config, corpus: Corpus) -> Config:
    """The config as its data makes it: what documents are filled up to, the shape of the rows,
    the number of classes."""
    config = filled_up(config, corpus)
    return shaped(config, corpus.tokenizer.shape, len(corpus.about.get("classes") or ()))


def changed(saved: Config, config: Config) -> dict[str, list[Any]]:
    """Changes by `resume`, by name: [before, now]. InputError for what it may not change."""
    changes: dict[str, list[Any]] = {}
    for section in ("options", "data", "net", "train", "adapter"):
        before, now = getattr(saved, section), getattr(config, section)
        for entry in dataclasses.fields(before) if before else ():
            a, b = getattr(before, entry.name), getattr(now, entry.name, None)
            if a == b:
                continue
            name = entry.name if section in ("options", "adapter") else f"{section}.{entry.name}"
            if section != "train" or entry.name not in NUMBERS | WRITING | WHERE:
                raise InputError(
                    f"`resume` with `{name}` {typed(b)}, but the run has {typed(a)}; leave it out, or use a new `run`"
                )
            changes[name] = [a, b]
    if saved.network != config.network:
        raise InputError(
            f"`resume` with the network {config.network}, but the run has {saved.network or 'the built-in one'}; "
            "hand over the same one, or use a new `run`"
        )
    return changes


def typed(value: object) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, (tuple, list)):
        return " ".join(map(typed, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def same_corpus(about: dict[str, Any], corpus: Corpus) -> None:
    """On `resume`: the data must be what it was."""
    before = about.get("data") or {}
    if not before:
        return
    tokenizer = before.get("tokenizer") or {}
    if tokenizer.get("fingerprint") not in (None, corpus.tokenizer.fingerprint):
        raise InputError(
            f"the tokens of the run, '{tokenizer['name']}' ({tokenizer['size']:,}), are not those of this data; give the "
            "data that the run began with, or use a new `run`"
        )
    rows = [(of.get("splits") or {}).get("train", {}).get("rows") for of in (before, corpus.about)]
    if rows[0] not in (None, rows[1]) and before.get("sha256") == corpus.about.get("sha256"):
        raise InputError(
            f"the data gives {rows[1]:,} training rows now, and {rows[0]:,} when the run began; use a new `run`"
        )
    now = corpus.about.get("sha256")
    if before.get("sha256") not in (None, now):
        raise InputError(
            f"the data has changed since the run began (sha256 {str(before['sha256'])[:8]}, now {str(now)[:8]}); "
            "give the same data, or use a new `run`"
        )


@dataclass(frozen=True)
class Start:
    """The model that a run begins with, `train.start`.

    Attributes:
        config: what it was trained as.
        weights: reads its tensors, by their names in the method.
        published: of a network with a class of its own, its `publication`.
    """

    name: str
    config: Config
    tokenizer: Any
    weights: Callable[[], Mapping[str, torch.Tensor]]
    published: dict[str, Any] = field(default_factory=dict)

    def sections(self, method: str) -> dict[str, Any]:
        """The network's sizes, and the options where it is a model of the same method.

        Raises:
            InputError: the network has a class of its own and is of another method.
        """
        if self.config.method == method:
            return {"net": self.config.net, "options": self.config.options}
        if self.config.network:
            raise InputError(
                f"'{self.name}' is a {self.config.method} with a network of its own ({self.config.network}), and this "
                f"is {method}; train {self.config.method}"
            )
        return {"net": self.config.net}

    def with_tokens(self, options: Any) -> Any:
        """The options with the tokens that a network with a class of its own has for the mask and the beginning."""
        tokens = (
            {"mask", "begin"} & {field.name for field in dataclasses.fields(options)} if self.config.network else ()
        )
        return replace(options, **{name: getattr(self.config.options, name) for name in tokens})


def load_start(name: str, method: type[Method], of: str) -> Start:
    """The model `name`: a run, a saved folder or a hub id; its weights are read when they are needed.

    Args:
        method, of: the class of an own method, and its name.
    """
    recipe = name.removeprefix("runs/")
    if recipe != name and recipe in RECIPES and not Path(name).exists():
        raise InputError(f"no run at '{name}'; zellige train --recipe {recipe} makes it, or give another `train.start`")
    folder = locate(name)
    if published.is_published(folder):
        layouts = published.plugin()
        model = layouts.read(folder, name, system=layouts.beginning(folder, of))
        of_network = publication(model.about) if model.config.network else {}
        return Start(name, model.config, model.tokenizer, model.method.state_dict, of_network)
    check_sums(folder, CONFIG, *TOKENIZER)
    cls = method if read_config(folder).get("method") == of else None
    config, about = run_config(folder, cls)
    refuse_int8(config, name)

    def weights() -> Mapping[str, torch.Tensor]:
        if config.adapter:
            return load(folder, method=cls).method.state_dict()
        check_sums(folder, *MODEL)
        return load_weights(folder)

    of_network = publication(about) if config.network else {}
    return Start(name, replace(config, adapter=None), load_tokenizer(folder), weights, of_network)


def refuse_int8(config: Config, name: str) -> None:
    """InputError if the weights of a model are rounded."""
    if config.int8:
        raise InputError(f"'{name}' has weights rounded to int8, which are not trained; take the model it was made of")


def publication(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a model trained further knows of how it was published, as `about` has it: all but which weights it had."""
    published = {name: value for name, value in (about.get("published") or {}).items() if name != "weights"}
    return {"published": published} if published else {}


def own_network(config: Config, about: Mapping[str, Any]) -> nn.Module | None:
    """The network of a published layout with a class of its own, to be filled; None where the network is another."""
    network = published.network_of(config, about)
    return None if network is None else network.to_empty(device="cpu")


def ends_for(config: Config, method: type[Method]) -> int:
    """What documents are filled up to where the config leaves it open, so that a method learns where they end."""
    return fill_for(
        method, method.block_size(config.options), row_length(config) or config.net.length, config.data.pack
    )


def filled_up(config: Config, corpus: Corpus) -> Config:
    """The config with what the documents of its corpus are filled up to, where it leaves that open."""
    if config.data.fill is not None or corpus.train.documents is None:
        return config
    return replace(config, data=config.data.replaced(fill=corpus.about["fill"]))


def read_corpus(
    config: Config,
    ends: int,
    tokenizer: Tokenizer | None = None,
    start: Start | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """The run's corpus, in the tokens of the model it begins (or goes on) with, where it names no tokenizer itself.

    ends: what documents are filled up to where the config leaves it open (`ends_for`).
    """
    tokenizer = start.tokenizer if start else tokenizer
    has_tokenizer = bool(config.data.tokenizer)
    try:
        corpus = prepare(
            config.data,
            row_length(config),
            tokenizer=None if has_tokenizer else tokenizer,
            progress=progress,
            ends=ends,
        )
    except OutsideVocabulary as problem:
        raise InputError(f"{problem}; take it out of the text, or train without `train.start`") from None
    if start and has_tokenizer and corpus.tokenizer.fingerprint != start.tokenizer.fingerprint:
        raise InputError(
            f"'{start.name}' has the tokenizer '{start.tokenizer.name}' ({start.tokenizer.size:,}), and "
            f"`data.tokenizer` {config.data.tokenizer} is another ({corpus.tokenizer.size:,}); leave it out"
        )
    if config.train.given_dropout and not config.data.given:
        raise InputError("`train.given_dropout` needs a given part; use `data.given`, or leave it out")
    if config.train.given_dropout and corpus.train.documents is not None:
        raise InputError("`train.given_dropout` needs rows without padding, and these hold documents; leave it out")
    return corpus


def copy_weights(method: Method, config: Config, start: Start) -> None:
    """Give a fresh method the network's weights of `start`. The sizes must be the same, but there may be more layers.

    What only the new network has begins without an effect: classes, its own first prediction, further blocks. So the
    training begins with the prediction of `start`.
    """
    added = False
    if config.network == start.config.network:
        for entry in dataclasses.fields(Net):
            start_value, value = getattr(start.config.net, entry.name), getattr(config.net, entry.name)
            if entry.name in ADDED and not start_value and not config.net.is_unet:
                added |= bool(value)
            elif entry.name == "layers" and value > start_value and config.net.kind == "dit" and not config.network:
                added = True
            elif start_value != value and entry.name not in ("length", "dropout", "checkpoint"):
                raise InputError(
                    f"`net.{entry.name}` is {typed(value)}, and '{start.name}' has {typed(start_value)}; leave it out"
                )
    fresh = method.state_dict()
    weights = {name: tensor for name, tensor in start.weights().items() if name.startswith("network.")}
    if not config.network and method.vocabulary == start.tokenizer.size:
        shared_names = [name for name in OF_STATES if name in weights and name in fresh]
        weights |= {name: rows_of_states(weights[name], fresh[name]) for name in shared_names}
    if added:
        weights = added_weights(weights, fresh) | weights
    rest = {name: tensor for name, tensor in fresh.items() if not name.startswith("network.")}
    if config.method != start.config.method and {*weights, *rest} != {*fresh}:
        raise InputError(
            f"'{start.name}' is a model of {start.config.method}, whose network differs from that of {config.method}; begin "
            f"with a model of {config.method}, or train {start.config.method}"
        )
    place_weights(method, weights | rest, config)


def added_weights(weights: Mapping[str, torch.Tensor], fresh: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that a network with classes, self-conditioning or more blocks has beyond `weights`: they change no
    prediction.

    Adaptive norms begin at zero, with open gates, 1, and the classes then have random embeddings; where there are such
    norms already, the embeddings are zero. The table of a network's own prediction is zero. A further block begins as
    the identity: what ends its attention and its MLP, and its convolution, are zero; the rest is random.
    """
    adaptive = any(".modulation." in name for name in weights)
    blocks = {match[0] for name in weights if (match := re.search(r"\.blocks\.\d+\.", name))}
    added = {}
    for name, tensor in fresh.items():
        block = re.search(r"\.blocks\.\d+\.", name)
        conditioned = re.search(r"\.(modulation|classes|estimates)\b", name)
        further = block is not None and block[0] not in blocks
        if name in weights or not (conditioned or further):
            continue
        zero = adaptive if conditioned else re.search(r"\.(out|conv|mlp\.2)\.\w+$", name)
        added[name] = torch.zeros_like(tensor) if zero else tensor.clone()
        if re.search(r"\.blocks\.\d+\.modulation\.bias$", name):
            added[name].unflatten(0, (6, -1))[[2, 5]] = 1.0
    return added


def rows_of_states(theirs: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """A table with a row for each state, (S, ...): theirs, and fresh rows for states that only the new method has.

    Tokens come first, a mask (or what begins a text) after them: so a model of masks may begin with an autoregressive
    one.
    """
    return torch.cat((theirs[: len(fresh)], fresh[len(theirs) :])) if theirs.shape[1:] == fresh.shape[1:] else theirs


@dataclass(frozen=True)
class Size:
    """One size; `about` says for what it is, in a few words. Images have a network and a training of their own, a U-Net
    (studies/images/README.md, "Which network?").

    Attributes:
        muon: peak learning rate of Muon, by which a transformer of text is trained, with the decay wsd (studies/half-hour);
            0: by AdamW, as `train` says.
        times: how the noise times of a text are drawn, where its method gains (`Method.learns_in_the_middle`).
    """

    about: str
    net: Net
    train: Train
    image_net: Net
    image_train: Train
    muon: float = 0.0
    times: Literal["stratified", "middle"] = "stratified"

    def of(self, data: str, *methods: type[Method], kind: str = "", optimizer: str = "") -> tuple[Net, Train]:
        """The network and the training that suit this data and all these methods, of the kind of network and by the
        optimizer that are asked for, if any: a transformer where one reads blocks, and noise times in the middle where
        all that have some gain."""
        source = DATASETS.get(data)
        images = source and {"flip", "path"} <= {*source.reads}  # not the 8 x 8 of scikit-learn, which have no files
        blocks = any(method.block_size(method.Config()) for method in methods)
        if images and kind not in ("dit", "conv") and not blocks:
            return fitted(self.image_net, kind or self.image_net.kind), self.image_train
        shaped = bool(source and source.shaped)
        optimizer = optimizer or ("muon" if kind in ("", "dit") and not shaped else "adamw")
        train = self.train
        gains = [method.learns_in_the_middle for method in methods if not method.exact]
        if gains and all(gains) and not shaped:
            train = replace(train, times=self.times)
        if optimizer == "muon" and self.muon:
            train = replace(train, optimizer="muon", lr=self.muon, decay="wsd")
        return fitted(self.net, kind or "dit", shaped), train


def fitted(net: Net, kind: str, shaped: bool = False) -> Net:
    """A network as one of this kind; for data whose rows have a shape of their own without what is for a line of
    tokens."""
    unread_fields = {"kind", *UNREAD.get(kind, ()), *(("length", "conv") if shaped else ())}
    values = {field.name: getattr(net, field.name) for field in fields(Net) if field.name not in unread_fields}
    return Net(kind=kind, **values)  # pyright: ignore[reportArgumentType]


SIZES: Registry[Size] = Registry("size")
SIZES |= {
    "tiny": Size(
        # 20M tokens of training, see studies/subwords; 48,000 images
        "a megabyte of text, or small images, in half an hour of a CPU at most",
        Net(layers=4, hidden=128, heads=4, length=128, conv=7),
        Train(steps=10_000, minutes=30, batch=16, lr=3e-3, warmup=200, ema=0.999, validate_every=500),
        Net(kind="flat-unet", channels=32, blocks=4, attention=(0,)),
        Train(steps=3000, minutes=30, batch=16, lr=2e-3, warmup=100, ema=0.997),
        muon=6e-3,
        times="middle",
    ),
    "small": Size(
        "megabytes of text or small images, minutes to hours on a GPU",
        Net(),
        Train(),
        Net(kind="unet", channels=64, multipliers=(1, 2, 2)),
        Train(steps=50_000, batch=64, lr=5e-4, warmup=1000, ema=0.9995),
    ),
    "base": Size(
        "hundreds of megabytes, hours on a GPU; the papers' small network",
        Net(layers=12, hidden=768, heads=12),
        Train(steps=100_000, batch=128, warmup=2000, ema=0.9999),
        Net(kind="unet"),  # as the recipes of D3PM
        Train(steps=500_000, batch=128, lr=2e-4, warmup=5000, ema=0.9999),
    ),
    "medium": Size(
        "gigabytes, days on a GPU; the papers' medium network",
        Net(layers=24, hidden=1024, heads=16, length=1024),
        Train(steps=200_000, batch=128, warmup=2500, ema=0.9999),
        Net(kind="u-vit", layers=12, hidden=768, heads=12, channels=256, condition=256),  # as md4-imagenet64
        Train(steps=1_000_000, batch=256, lr=2e-4, warmup=2500, ema=0.9999),
    ),
}
CPU, GPU = "tiny", "small"  # of the command line on a machine without a GPU, and with one


def machine_size(device: str = "auto") -> str:
    """The size that suits this machine; `device` as `Train` has it."""
    return CPU if device == "cpu" or (device == "auto" and not torch.cuda.is_available()) else GPU


def described(
    size: str, config: Config, *methods: type[Method], shaped: bool = False, varied: Container[str] = ()
) -> str:
    """`size tiny except `net.hidden` 192`: a size, and the values of a config, of one training or of several of these
    methods, that are not the size's; "note" without a size.

    Left out: how long is trained, what of the network follows from the data (`shaped`: its rows have a shape of their
    own), and settings that are `varied`.
    """
    if not size:
        return "note"
    of_size = partial(SIZES[size].of, getattr(config.data, "name", ""), *methods, kind=config.net.kind)
    net, usual = of_size(optimizer="adamw" if config.network else "")
    train = replace(of_size(optimizer=config.train.optimizer)[1], optimizer=usual.optimizer)
    if config.train.warmup == min(train.warmup, config.train.steps // 2):  # of steps that were fitted into minutes
        train = replace(train, warmup=config.train.warmup)
    by_data = {"grid", "classes", "given", *(("length",) if shaped else ())}
    of_net = [entry.name for entry in fields(Net) if entry.name not in by_data]
    sections = (
        ("net", net, config.net, of_net),
        ("train", train, config.train, ("batch", "optimizer", "lr", "warmup", "ema", "times")),
    )
    differing = [
        f"`{section}.{name}` {typed(getattr(now, name))}"
        for section, usual, now, names in sections
        for name in names
        if getattr(now, name) != getattr(usual, name) and f"{section}.{name}" not in varied
    ]
    return f"size {size}" + (f" except {', '.join(differing)}" if differing else "")
