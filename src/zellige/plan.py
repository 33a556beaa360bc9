"""What a run will be: its choices, checked against the run that is there, the machine and the data; and how they are said."""

import dataclasses
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import checkpoint, journal, published
from .arguments import of_kind
from .checkpoint import versions
from .config import Config, Train, from_json
from .data import DATASETS, Corpus, Data, prepare, require_same
from .data import load as load_tokenizer
from .data.tokenizer import OutsideVocabulary
from .errors import InputError
from .files import check_sums, load_tensors, shown
from .groups import limit_processes
from .method import Method
from .methods import METHODS
from .nn.transformer import Net
from .terminal import count, counted, parameters, path

NUMBERS = {"steps", "rate", "clip", "precision"}  # what --resume may change, beside when and where things are written:
WRITING = {
    "validate_every", "validate_rows", "validate_draws", "samples", "sample_steps", "save_every", "save_minutes",
    "keep", "log_every", "tensorboard", "wandb", "workers",
}  # fmt: skip


def rate(train: Any, step: int) -> float:
    """The learning rate of step `step` (from 0)."""
    warm = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    if train.decay == "constant":
        return train.rate * warm
    share = min(max(step - train.warmup, 0) / max(train.steps - train.warmup, 1), 1.0)
    return train.rate * warm * (1 + math.cos(math.pi * share)) / 2


def cuda(config: Config) -> bool:
    """Whether the run is on GPUs."""
    device = config.train.device
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def precision(config: Config) -> str:
    """What "auto" means here: float32, or bfloat16, which pays on a GPU from hidden 256 up."""
    chosen = config.train.precision
    if chosen != "auto":
        return chosen
    return "bfloat16" if cuda(config) and torch.cuda.is_bf16_supported() and config.net.hidden >= 256 else "float32"


def choose(
    saved: Config | None, name, method, data, net, train, options, folder, start: "Start | None" = None
) -> Config:
    """What was asked for; what was not comes from the run that is resumed, from the model it begins with, or is the default."""
    own = type(net).__name__ if isinstance(net, nn.Module) else ""
    if own and not (hasattr(net, "features") and hasattr(net, "head")):
        raise InputError(f"net is {of_kind(net)}; it must be a Net, or a network with `features` and `head`")
    if isinstance(net, nn.Module):
        net = Net(length=int(getattr(net, "length", Net().length)))
    if saved is None:
        theirs = start.choices(name) if start else (None, None)
        net, options = net or theirs[0], theirs[1] if options is None else options
        options = method.Config() if options is None else options
        return _lines(Config(name, options, data or Data(), net or Net(), train or Train(), str(folder), own))
    if saved.network and not own:
        raise InputError(f"the run has an own network ({saved.network}); hand it over: train(..., net=...)")
    return replace(
        saved, options=saved.options if options is None else options, data=data or saved.data, net=net or saved.net,
        train=train or saved.train, run=str(folder), network=own,
    )  # fmt: skip


def _lines(config: Config) -> Config:
    """The same; InputError for documents on a grid, where padding would be part of the picture."""
    if config.net.grid and config.data.pack != "wrap":
        raise InputError(f"--data.pack {config.data.pack} needs positions on a line; leave out --net.grid")
    return config


def length(config: Config) -> int | None:
    """The tokens of a row; None where the data has its own and nothing else is asked for."""
    own = config.data.name in DATASETS and DATASETS[config.data.name].shaped
    return None if own and config.net.length == Net().length else config.net.length


def shaped(config: Config, shape: Sequence[int] | None) -> Config:
    """The config with a network for rows of this shape, unless it asks for another: then whoever reads it says so."""
    net, length = config.net, math.prod(shape or ())
    if not shape or net.length not in (Net().length, length):
        return config
    grid = tuple(shape) if len(shape) > 1 else ()
    if net.grid not in ((), grid):
        asked, rows = (" x ".join(map(str, g)) for g in (net.grid, shape))
        raise InputError(f"--net.grid is {asked}, the rows of {config.data.name} are {rows}; leave it out")
    return replace(config, net=replace(net, length=length, grid=grid))


def changed(saved: Config, config: Config) -> dict[str, list[Any]]:
    """What --resume changes, by its flag: [before, now]. InputError for what it may not."""
    changes: dict[str, list[Any]] = {}
    for section in ("options", "data", "net", "train"):
        before, now = getattr(saved, section), getattr(config, section)
        for entry in dataclasses.fields(before):
            a, b = getattr(before, entry.name), getattr(now, entry.name, None)
            if a == b:
                continue
            flag = entry.name if section == "options" else f"{section}.{entry.name}"
            if section != "train" or entry.name not in NUMBERS | WRITING:
                raise InputError(
                    f"--resume with --{flag} {_said(b)}, but the run has {_said(a)}; drop the flag, or use a new --run"
                )
            changes[flag] = [a, b]
    if saved.network != config.network:
        raise InputError(
            f"--resume with the network {config.network}, but the run has {saved.network or 'the built-in one'}; "
            "hand over the same one, or use a new --run"
        )
    return changes


def _said(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return " ".join(map(_said, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def devices(config: Config) -> int:
    """How many processes; InputError for what this machine has not."""
    t = config.train
    gpus = torch.cuda.device_count()
    gpu = t.device == "cuda" or (t.device == "auto" and gpus > 0)
    if t.device == "cuda" and not gpus:
        raise InputError(
            "--train.device is cuda, but this machine has no GPU that torch can use; leave it out, or use cpu"
        )
    if t.strategy == "fsdp" and not gpu:
        raise InputError("--train.strategy fsdp shards a model over GPUs, and this run is on the CPU; use ddp")
    if gpu and t.devices > gpus:
        raise InputError(
            f"--train.devices is {t.devices}, but this machine has {counted(gpus, 'GPU')}; use {gpus} or fewer"
        )
    if not gpu:
        limit_processes("--train.devices", t.devices)
    limit_processes("--train.workers", t.workers)
    return t.devices or (gpus if gpu else 1)


def split_batch(t: Train, devices: int) -> None:
    """InputError unless a step's sequences split into equal parts."""
    parts = devices * t.accumulate
    if t.batch % parts:
        near = max(parts, t.batch // parts * parts)
        raise InputError(
            f"--train.batch {t.batch} does not split into {parts} equal parts ({counted(devices, 'device')} x "
            f"{t.accumulate} accumulated); use {near} or {near + parts}"
        )


def same_corpus(about: dict[str, Any], corpus: Corpus) -> None:
    """On --resume: the data must be what it was."""
    before = about.get("data") or {}
    if not before:
        return
    tokenizer = before.get("tokenizer") or {}
    if not corpus.tokenizer.shape and tokenizer.get("fingerprint") not in (None, corpus.tokenizer.fingerprint):
        if (tokenizer["name"], tokenizer["size"]) == (corpus.tokenizer.name, corpus.tokenizer.size):
            raise InputError(
                f"the run's '{tokenizer['name']}' ({tokenizer['size']:,}) has other characters than this data's; "
                "give the data that the run began with, or use a new --run"
            )
        require_same(_Named(tokenizer["name"], tokenizer["size"], tokenizer["fingerprint"]), corpus.tokenizer)  # pyright: ignore
    rows = [(of.get("splits") or {}).get("train", {}).get("rows") for of in (before, corpus.about)]
    if rows[0] not in (None, rows[1]) and before.get("sha256") == corpus.about.get("sha256"):
        raise InputError(
            f"the data gives {rows[1]:,} training rows now, and {rows[0]:,} when the run began; use a new --run"
        )
    now = corpus.about.get("sha256")
    if before.get("sha256") not in (None, now):
        raise InputError(
            f"the data has changed since the run began (sha256 {str(before['sha256'])[:8]}, now {str(now)[:8]}); "
            "give the same data, or use a new --run"
        )


@dataclass(frozen=True)
class Start:
    """The model that a run begins with, `train.start`: what it was trained as, its tokenizer, its tensors."""

    name: str
    config: Config
    tokenizer: Any
    tensors: dict[str, torch.Tensor]

    def choices(self, method: str) -> tuple[Net, Any]:
        """The network's sizes, and the method's options where it is a model of the same method (else None)."""
        return self.config.net, self.config.options if self.config.method == method else None


def start(name: str, method: type[Method], of: str) -> Start:
    """The model `name`: a run, a saved folder or a hub id. method, of: the class of an own method, and its name."""
    folder = checkpoint.locate(name)
    if published.is_published(folder):
        theirs = published.read(folder, name)
        return Start(name, theirs.config, theirs.tokenizer, theirs.method.state_dict())
    check_sums(folder, checkpoint.WEIGHTS, *checkpoint.TOKENIZER)
    plain = checkpoint.read_config(folder)
    config = from_json(
        plain, method=method if plain.get("method") == of else None, source=shown(folder / "config.json")
    )
    return Start(name, config, load_tokenizer(folder), load_tensors(folder / checkpoint.WEIGHTS)[0])


def read(config: Config, tokenizer: Any = None, start: Start | None = None, progress: Any = None) -> Corpus:
    """The run's corpus, in the tokens of the model it begins (or goes on) with, where it names no tokenizer itself."""
    tokenizer = start.tokenizer if start else tokenizer
    named = bool(config.data.tokenizer)
    try:
        corpus = prepare(config.data, length(config), tokenizer=None if named else tokenizer, progress=progress)
    except OutsideVocabulary as problem:
        raise InputError(f"{problem}; take it out of the text, or train without --train.start") from None
    if start and named and corpus.tokenizer.fingerprint != start.tokenizer.fingerprint:
        raise InputError(
            f"'{start.name}' has the tokenizer '{start.tokenizer.name}' ({start.tokenizer.size:,}), and --data.tokenizer "
            f"{config.data.tokenizer} is another ({corpus.tokenizer.size:,}); leave it out"
        )
    return corpus


def begin(method: Method, config: Config, start: Start) -> None:
    """Give a fresh method the network's weights of `start`, whose sizes must be the same."""
    if not config.network:
        for entry in dataclasses.fields(Net):
            theirs, ours = getattr(start.config.net, entry.name), getattr(config.net, entry.name)
            if theirs != ours and entry.name not in ("length", "dropout", "checkpoint"):
                raise InputError(
                    f"--net.{entry.name} is {_said(ours)}, and '{start.name}' has {_said(theirs)}; leave it out"
                )
    weights = {name: tensor for name, tensor in start.tensors.items() if name.startswith("network.")}
    rest = {name: tensor for name, tensor in method.state_dict().items() if not name.startswith("network.")}
    checkpoint.fit(method, weights | rest, config)


@dataclass(frozen=True)
class _Named:
    name: str
    size: int
    fingerprint: str


def about_run(
    about: dict[str, Any], corpus: Corpus, method: Method, changes: dict[str, Any], step: int
) -> dict[str, Any]:
    """What config.json says beside the choices."""
    now = {
        "parameters": sum(p.numel() for p in method.parameters()),
        "vocabulary": corpus.tokenizer.size,
        "data": corpus.about,
        "versions": versions(),
        "command": journal.command(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "changes": [],
    }
    about = now | {k: v for k, v in about.items() if k not in ("versions", "step")}
    if changes:
        about["changes"] = [*about["changes"], {"step": step, **changes}]
    return about


# ---------------------------------------------------------------------------------------------------- what is said
def typed(method: type[Method]) -> str:
    """How a command line names a method: mdlm, or file.py:Class for an own one."""
    if METHODS.get(method.name) is method:
        return method.name
    file = getattr(sys.modules.get(method.__module__), "__file__", None)
    return f"{path(file)}:{method.__qualname__}" if file else method.__qualname__


def heading(config: Config, method: Method, corpus: Corpus, about: dict[str, Any], devices: int, folder: Path) -> str:
    """The three lines with which a run begins: the model, the data, the folder."""
    t, n = config.train, config.net
    kind = "GPU" if cuda(config) else "CPU"
    where = counted(devices, kind, f"{kind}s") if kind == "GPU" or devices > 1 else kind
    what = f"an own network ({config.network})" if config.network else f"{counted(n.layers, 'layer')}"
    ema = "EMA" if t.ema else "no EMA"
    tokenizer, train, validation = corpus.tokenizer, corpus.train, corpus.validation
    if tokenizer.shape:
        rows = f"{tokenizer.describe()}; train {count(len(train))}   validation {count(len(validation))}"
    else:
        rows = (
            f"{tokenizer.name}, {count(tokenizer.size)} + mask; "
            f"train {count(train.tokens_total)}   validation {count(validation.tokens_total)}"
        )
    wide = max(len(config.method), len(config.data.name), 3) + 2
    model = [
        method.discrete_time, parameters(about["parameters"]), what, f"length {n.length}", precision(config), where, ema,
        f"seed {t.seed}",
    ]  # fmt: skip
    lines = [
        (config.method, ", ".join(filter(None, model))),
        (config.data.name, rows),
        *(("", line) for line in left_out(corpus)),
        ("run", f"{path(folder)}: validates {_every(t.validate_every)}, saves {_saves(t)}"),
    ]  # fmt: skip
    return "\n".join(f"{name:<{wide}}{text}" for name, text in lines)


def left_out(corpus: Corpus) -> list[str]:
    """Which splits are one's own, what no row holds, which documents were cut to fit: a line each, none where there is none."""
    lines = [corpus.about["taken"]] if "taken" in corpus.about else []
    lines += [f"left out: {what}" for what in corpus.about.get("left_out", [])]
    for entry, text in (
        ("left_out", "left out: {} that fill no row"),
        ("cut", "cut into pieces: {} longer than a row"),
    ):
        numbers = {name: split[entry] for name, split in corpus.about["splits"].items() if split.get(entry)}
        if numbers:
            noun = counted(sum(numbers.values()), "token" if entry == "left_out" else "document")
            lines.append(f"{text.format(noun)} ({', '.join(f'{name} {count(n)}' for name, n in numbers.items())})")
    return lines


def _every(steps: int) -> str:
    return f"every {counted(steps, 'step')}" if steps > 1 else "every step" if steps else "at the end"


def _saves(t: Train) -> str:
    minutes = f"every {t.save_minutes:g} minutes" if t.save_minutes else ""
    steps = _every(t.save_every) if t.save_every else ""
    return " and ".join(x for x in (steps, minutes) if x) or "at validations"


def ending(config: Config, block: int) -> str:
    """What to say of a model in whose training no document ends within a block; "" where it learns to."""
    if (
        config.data.pack == "wrap"
        or config.data.fill >= config.net.length
        or max(config.data.fill, 1) % (block or 1) == 0
    ):
        return ""
    return (
        f"note: documents end with a shorter block, so that texts rarely end within one; --data.fill {block} teaches it"
    )


def resumed(step: int, config: Config, rows: int, changes: dict[str, list[Any]]) -> str:
    """Where a run goes on, and with what it does so."""
    t = config.train
    epoch, position = divmod(step * t.batch, rows)
    lines = [
        f"resumed at step {count(step)} of {count(t.steps)} "
        f"(epoch {count(epoch)}, batch {count(position // t.batch)} of {count(max(rows // t.batch, 1))})"
    ]
    for flag, (before, now) in changes.items():
        lines.append(f"  changed: --{flag} {_said(now)} (was {_said(before)})")
    if not {f.removeprefix("train.") for f in changes} & NUMBERS:
        lines.append("  data order, optimizer, EMA and random state restored: same numbers as unbroken")
    return "\n".join(lines)
