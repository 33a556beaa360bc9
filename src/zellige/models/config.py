"""One run as data: `Train`, `Config`, and their JSON.

The dataclasses are the options of the command line too. A value out of its range is an InputError wherever it comes
from. JSON goes through cattrs, strictly: nothing is coerced, no entry is ignored, and the method's name is the tag that
says which class its options are.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypedDict

from .. import __version__
from ..base.errors import InputError
from ..base.requests import check_fields, option
from ..base.schema import CONVERTER, check_format, structure
from ..base.trust import reading
from ..data import Data
from ..methods import METHODS
from ..methods.method import Method
from ..nn.block import Net
from .low_rank import Adapter

AGAIN = "copy it again from where it was trained"
FORMAT = 1  # of config.json and of model folders


@partial(check_fields, prefix="train.")
@dataclass(frozen=True)
class Train:
    """Settings of a training. The defaults suit a small text model on one device."""

    steps: int = option("optimizer steps", default=10_000, minimum=1)
    minutes: float = option(
        "on a CPU: as many steps as fit into this time (estimated at the start); 0: all steps", default=0.0, minimum=0
    )
    batch: int = option("sequences per optimizer step, over all devices", default=32, minimum=1)
    accumulate: int = option(
        "gradient-accumulation steps: less memory, and the same result but for dropout and self-conditioning",
        default=1,
        minimum=1,
    )
    optimizer: Literal["adamw", "muon"] = option(
        "muon: Muon for the matrices of a transformer's blocks, AdamW for all other weights. It needs about twice AdamW's "
        "`train.lr`; `size` tiny uses it for text",
        default="adamw",
    )
    lr: float = option("peak learning rate", default=3e-4, above=0)
    warmup: int = option("steps over which the learning rate rises from 0", default=100, minimum=0)
    decay: Literal["cosine", "wsd", "constant", "inverse-sqrt"] = option(
        "learning-rate schedule after the warmup; cosine ends at 0, wsd (warmup, stable, decay) falls to 0 in the last "
        "fifth of the steps, inverse-sqrt falls with the root of the step; `size` tiny uses wsd with Muon",
        default="cosine",
    )
    weight_decay: float = option(
        "weight decay of matrices; with `train.decay_all` also of vectors and scalars", default=0.01, minimum=0
    )
    decay_all: bool = option("also apply weight decay to biases and norms, as AdamW does by default", default=False)
    betas: tuple[float, float] = option("the two betas of AdamW; Muon's momentum is 0.95", default=(0.9, 0.99))
    clip: float = option(
        "largest norm of the gradient of the loss, which is the whole bound in nats per token. Papers "
        "with another scale of the loss need another limit (recipes convert it). 0: no limit",
        default=1.0,
        minimum=0,
    )
    ema: float = option(
        "decay of the averaged weights, which are evaluated and saved; 0: no average", default=0.999, minimum=0, below=1
    )
    ema_warmup: bool = option(
        "let the average forget the first weights fast: at step n its decay is at most (1 + n) / (10 + n)", default=True
    )
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = option(
        "precision of the network; auto: bfloat16 from hidden 128 or 192 channels up, on a GPU or a CPU that computes "
        "in it (AVX-512 or AMX), else float32; tf32: float32 with TF32 matrix products on a GPU",
        default="auto",
    )
    compile: bool = option(
        "compile the whole step with torch.compile: a minute or two at the start, faster in long runs on a GPU",
        default=False,
    )
    device: Literal["auto", "cpu", "cuda"] = option("where to train; auto: the GPU if there is one", default="auto")
    devices: int = option(
        "devices (GPUs) of each node, with a process for each; 0: all of them, one process on a CPU, or "
        "what torchrun or Slurm started",
        default=0,
        minimum=0,
    )
    nodes: int = option("number of computers; torchrun and Slurm set it", default=1, minimum=1)
    strategy: Literal["auto", "ddp", "fsdp", "hybrid"] = option(
        "how several devices hold the model: ddp copies it to each, fsdp shards it over all, hybrid over "
        "those of each node; auto is ddp",
        default="auto",
    )
    validate_every: int = option("steps between validations; 0: only at the end", default=1000, minimum=0)
    validate_rows: int = option(
        "sequences of the validation split to use, evenly spaced; 0: all", default=256, minimum=0
    )
    validate_draws: int = option("noisy copies of each validation sequence", default=1, minimum=1)
    samples: int = option("texts sampled at each validation, into samples/", default=2, minimum=0)
    sample_steps: int = option(
        "sampling steps of `train.samples`; at most T for a model of T steps", default=64, minimum=1
    )
    save_every: int = option("steps between checkpoints; 0: only `train.save_minutes` counts", default=0, minimum=0)
    save_minutes: float = option(
        "minutes between checkpoints; 0: only `train.save_every` counts", default=30.0, minimum=0
    )
    async_save: bool = option(
        "continue training while a checkpoint is written, from a copy in CPU memory", default=False
    )
    keep: int = option(
        "number of checkpoints to keep, the newest ones; the best one is always kept", default=2, minimum=1
    )
    log_every: int = option("steps in each row of metrics.csv", default=10, minimum=1)
    workers: int = option("processes that read data ahead; 0: the training process reads", default=0, minimum=0)
    tensorboard: bool = option("also write TensorBoard events into the run folder", default=True)
    wandb: str = option("Weights & Biases project to log to", default="")
    start: str = option(
        "begin with the weights, tokenizer and network of a trained model: a run, an included model, a "
        "folder or a hub id",
        default="",
    )
    label_dropout: float = option(
        "with `data.labels`: fraction of examples that are trained without their class, so that the model"
        " can do without it",
        default=0.1,
        minimum=0,
        maximum=1,
    )
    given_dropout: float = option(
        "with `data.given`: fraction of sequences that are learnt whole, so that the model can do without a given part",
        default=0.0,
        minimum=0,
        maximum=1,
    )
    times: Literal["stratified", "independent", "middle"] = option(
        "noise times of a batch: stratified spreads them evenly over its sequences; independent times vary more; middle "
        "draws nine of ten between 0.2 and 0.8: learns faster, but the loss is then no bound; `size` tiny uses it for "
        "text, by methods that gain",
        default="stratified",
    )
    seed: int = option("random seed of the weights, the data order and the noise", default=0, minimum=0)

    def __post_init__(self) -> None:
        if self.validate_rows == 1:
            raise InputError("`train.validate_rows` is 1; it must be 2 or more (an interval needs two), or 0 for all")
        for beta in self.betas:
            if not 0 <= beta < 1:
                raise InputError(f"`train.betas` is {beta:g}; it must be at least 0 and below 1")


@dataclass(frozen=True)
class Config:
    """One run: enough to rebuild the model and to train it again.

    Attributes:
        method: its name in METHODS, or the name of an own class.
        options: the method's own Config.
        network: the class of an own network, "" for the built-in one (`net` then gives its length only).
        recipe: the recipe that filled what was not asked for otherwise; "" where there was none.
        adapter: of a tuned model, whose other weights are those of its base, `train.start`; None for any other.
        int8: whether the weights of linear layers in its folder are rounded (`nn.int8`).
    """

    method: str
    options: Any
    data: Data = field(default_factory=Data)
    net: Net = field(default_factory=Net)
    train: Train = field(default_factory=Train)
    run: str = ""
    network: str = ""
    recipe: str = ""
    adapter: Adapter | None = None
    int8: bool = False


# ---------------------------------------------------------------------------------------------------- JSON
class About(TypedDict, total=False):
    """What `about` must be where it holds it; there may be more."""

    step: int
    data: dict[str, Any]
    published: dict[str, Any]


def to_json(config: Config, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A config as plain data, with the format's number; `about` is what else is to be known (step, versions, ...)."""
    section = CONVERTER.unstructure
    entries: dict[str, Any] = {
        "format": FORMAT,
        "zellige": __version__,
        "method": config.method,
        "options": section(config.options),
        "network": config.network,
        "data": section(config.data),
        "net": section(config.net),
        "train": section(config.train),
        "run": config.run,
        "recipe": config.recipe,
    }
    entries |= {"adapter": section(config.adapter)} if config.adapter else {}
    entries |= {"int8": True} if config.int8 else {}
    return entries | ({"about": dict(about)} if about else {})


def from_json(entries: Mapping[str, Any], *, method: type[Method] | None = None, source: str = "config.json") -> Config:
    """The config that `to_json` wrote, every dataclass exactly as it was.

    Args:
        method: the class of a method that is not in METHODS.
        source: what to call it in an error.

    Raises:
        InputError: another format, an unknown entry, a value of another type or out of range.
    """
    if not isinstance(entries, Mapping) or "format" not in entries or "method" not in entries:
        raise InputError(f"'{source}' is not the config of a Zellige model; give a folder that Zellige wrote")
    check_format(entries["format"], FORMAT, source)
    structure(entries.get("about") or {}, About, f"'{source}'", "about", AGAIN)
    entries = {n: value for n, value in entries.items() if n not in ("format", "zellige", "about")}
    config = structure({"adapter": None, "int8": False} | entries, Config, f"'{source}'", instead=AGAIN)
    with reading(source):
        kind = _options(config.method, method)
    return dataclasses.replace(config, options=structure(config.options, kind, f"'{source}'", "options", AGAIN))


def _options(name: str, method: type[Method] | None) -> type:
    if method is not None:
        return method.Config
    if name not in METHODS:
        raise InputError(
            f"'{name}' is not a method of Zellige; hand its class over, e.g. load(path, method={name.capitalize()})"
        )
    return METHODS[name].Config
