"""Models on disk: a folder with `model.safetensors`, `config.json` and the tokenizer. Never a pickle, never code.

    model = load("runs/first")             # a run, one of its checkpoints, a saved folder or a Hugging Face id
    model.save("out/")

A checkpoint of a run is such a folder too, with the state of the training beside the model. What is published and what
is resumed are the same files.
"""

import contextlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from . import __version__, hub, published, weights
from .arguments import checked, of_kind
from .batch import whole_numbers
from .config import AGAIN, FORMAT, Config, check_format, from_json, to_json
from .data import load as load_tokenizer
from .data import remote
from .errors import InputError, nearest
from .files import (
    CHECKSUMS,
    FULL,
    check_sums,
    follow,
    header,
    is_full,
    load_tensors,
    point,
    refuse_pickle,
    remove,
    save_tensors,
    shown,
    size,
    write_checksums,
    write_folder,
)
from .method import Method
from .methods import METHODS, build
from .schema import checking, read_json, read_text, structure, unchecked

__all__ = ["Model", "load", "save", "write_folder"]

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", ("tokenizer.json", "tokenizer_config.json")
STATE = "training.json"  # of a checkpoint: the numbers of the training
METRICS = "metrics.csv"  # of a run, and of a checkpoint: what was measured up to its step
HUB = "hub"  # of `export`: a folder for the Hugging Face hub
_ID = re.compile(r"[\w.-]+/[\w.-]+")


class Model(hub.Shared):
    """A trained method with what is needed to use it.

    Attributes:
        method: the method, in eval mode, with the averaged (EMA) weights.
        tokenizer: text to tokens and back.
        config: the run that made it.
        about: what else is known: step, versions, parameters, ...
    """

    def __init__(self, method: Method, tokenizer: Any, config: Config, about: Mapping[str, Any] | None = None):
        self.method, self.tokenizer, self.config, self.about = method.eval(), tokenizer, config, dict(about or {})

    @property
    def unit(self) -> str:
        """What its likelihood is in: bits per character, dimension, note or cell; "nats/token" for other tokens."""
        return unit(self.tokenizer)

    @checked
    def text(self, tokens: Any) -> list[str]:
        """The texts of a state, of a frame, or of tokens (B, L) or (L,)."""
        tokens = whole_numbers("tokens", getattr(tokens, "x", tokens))
        low, high = (int(x) for x in tokens.aminmax()) if tokens.numel() else (0, 0)
        most = self.method.vocabulary  # a mask stands there until the last step
        if tokens.ndim == 0 or low < 0 or high > most:
            wrong = "a single number" if tokens.ndim == 0 else f"{low if low < 0 else high:,} among them"
            raise InputError(f"tokens are {wrong}; they must be (B, L) or (L,) numbers of 0 to {most:,}")
        return [
            self.tokenizer.decode(row.tolist())
            for row in (tokens if tokens.ndim > 1 else tokens[None]).flatten(0, -2).cpu()
        ]

    @checked
    def to(self, device: torch.device | str) -> "Model":
        """The same model on another device."""
        self.method.to(usable(device))
        return self

    @checked
    def save(self, folder: str | Path) -> Path:
        """Write the model into a folder of its own; see `save`."""
        return save(self, folder)

    @checked
    def export(self, folder: str | Path, to: str | None = None) -> Path:
        """Write the model in a published layout (`published.LAYOUTS`) into a folder; see `export`."""
        return export(self, folder, to)

    def _complete(self, folder: Path, complete: Callable[[Path], None]) -> None:
        save(self, folder, complete)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, device: Any = "cpu", net: Any = None, **how: Any) -> "Model":
        """For `from_pretrained`: a folder, or downloaded as huggingface_hub was asked to."""
        asked = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        chosen = {name: how[name] for name in asked if how.get(name)}
        here = _download(model_id, **chosen) if chosen and not Path(model_id).is_dir() else model_id
        return load(here, device=device, net=net)

    def __repr__(self) -> str:
        step = f", step {self.about['step']:,}" if "step" in self.about else ""
        return f"<model {self.config.method}{step}, {self.tokenizer!r}>"


def identity(model: Any) -> dict[str, Any]:
    """What a result says of its model: method, T, parameters, step, which weights (EMA, raw, as published), tokenizer."""
    about, config = getattr(model, "about", {}), getattr(model, "config", None)
    if "published" in about:
        weights = "EMA" if about["published"].get("weights") == "ema" else "as published"
    else:
        weights = "EMA" if config is None or config.train.ema else "raw"
    return {
        "method": getattr(model.method, "name", type(model.method).__name__),
        "time": getattr(model.method, "discrete_time", ""),
        "parameters": sum(p.numel() for p in model.method.parameters()),
        "step": about.get("step"),
        "weights": weights,
        "tokenizer": model.tokenizer.name,
    }


def unit(tokenizer: Any) -> str:
    """The unit of a likelihood in these tokens."""
    unit = {"byte": "char"}.get(tokenizer.unit, tokenizer.unit)
    return f"bits/{unit}" if unit in ("char", "dim", "note", "cell") else "nats/token"


def versions() -> dict[str, str]:
    """What this runs on."""
    found = {"zellige": __version__, "python": platform.python_version()}
    for package in ("torch", "lightning", "numpy", "safetensors"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a build of one's own
            continue
    return found


def usable(device: torch.device | str) -> torch.device:
    """A device of torch; InputError where there is none of this name, or it is not there."""
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError):
        ours = "cpu or cuda" if torch.cuda.is_available() else "cpu: there is no GPU that torch can use here"
        raise InputError(f"device is {of_kind(str(device))}; it must be {ours}") from None
    return chosen


# ---------------------------------------------------------------------------------------------------- writing
def write_model(
    folder: Path, tensors: Mapping[str, Tensor], tokenizer: Any, config: Config, about: Mapping[str, Any]
) -> None:
    """Fill `folder` with a model: its tensors, its config, its tokenizer."""
    save_tensors(folder / WEIGHTS, tensors, {"format": str(FORMAT), "zellige": __version__})
    text = json.dumps(to_json(config, about), indent=1, ensure_ascii=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    tokenizer.save(folder)


@checked
def save(model: Model, folder: str | Path, complete: Callable[[Path], None] = lambda folder: None) -> Path:
    """Write a model into a folder, all or nothing; an earlier model in it is replaced. `complete` adds to it.

    Raises:
        InputError: the folder holds something else, or the disk is full.
    """
    tensors = model.method.state_dict()

    def fill(here: Path) -> None:
        write_model(here, tensors, model.tokenizer, model.config, model.about)
        hub.complete_tokenizer(here, model.method, model.tokenizer)
        write_checksums(here)
        complete(here)

    return _write(folder, tensors, fill)


@checked
def export(model: Model, folder: str | Path, to: str | None = None) -> Path:
    """Write a model into a folder in a published layout, all or nothing.

    Args:
        to: a name in `published.LAYOUTS`; if not given, the layout that the model came in: with the same keys, bytes of tensors
            and config.json, and beside them SHA256SUMS. "hub" is no layout of others: Zellige's own folder with a model card
            (`Model.save_pretrained`).

    Raises:
        InputError: the model does not fit the layout; the folder holds something else, or the disk is full.
    """
    if to == HUB:
        model.save_pretrained(folder)
        return Path(folder)
    published.layout_of(model.config, model.about, to)

    def fill(here: Path) -> None:
        published.write(here, model.method, model.tokenizer, model.config, model.about, to)
        write_checksums(here)

    return _write(folder, model.method.state_dict(), fill)


def _write(folder: str | Path, tensors: Mapping[str, Tensor], fill: Callable[[Path], None]) -> Path:
    """Have `fill` write a model into a folder, which may hold an earlier one but nothing else."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / CONFIG).is_file())):
        raise InputError(f"'{shown(folder)}' holds something that is not a model; choose another folder")
    if (folder / "checkpoints").exists():
        raise InputError(f"'{shown(folder)}' holds a run; choose another folder")
    with room(folder, f"saving '{shown(folder)}'", nbytes(tensors), lambda: "free space and save again"):
        return write_folder(folder, fill)


def nbytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values())


@contextlib.contextmanager
def room(path: Path, doing: str, needs: float, then: Callable[[], str]) -> Iterator[None]:
    """A full disk within the block is one line (UX table, row 25): what was being done, what it takes, what to do then."""
    try:
        yield
    except (OSError, InputError) as problem:
        if not is_full(problem):
            raise
        while not path.exists() and path != path.parent:
            path = path.parent
        free = size(shutil.disk_usage(path).free)
        raise InputError(f"no space left while {doing} (needs {size(needs)}, {free} free); {then()}") from problem


def intact(checkpoints: Path) -> str:
    """What a full disk has left of a run, and what to do then."""
    last = newest(checkpoints)
    return f"step {step_of(last):,} is intact, free space and --resume" if last else "free space and start again"


# ---------------------------------------------------------------------------------------------------- a run's checkpoints
# No pointer says which checkpoint is which: a folder step-000500 is whole or absent (`write_folder`), so the last one is the
# one with the highest step, and it records which is the best. The links last and best are for people; a copy may lack them.
_STEP = re.compile(r"step-([0-9]{6,})")
LAST, BEST = "last", "best"


def step_name(step: int) -> str:
    """`step-000500`, the name of a checkpoint."""
    return f"step-{step:06d}"


def step_of(folder: Path) -> int:
    """The step of a checkpoint, by its name."""
    return int(folder.name.removeprefix("step-"))


def steps(checkpoints: Path) -> list[Path]:
    """A run's checkpoints, the newest last. Folders of other names are not ours: a copy, `step-000060-backup`."""
    if not checkpoints.is_dir():
        return []
    named = ((_STEP.fullmatch(path.name), path) for path in checkpoints.iterdir())
    return sorted((p for m, p in named if m and p.name == step_name(int(m[1])) and p.is_dir()), key=step_of)


def newest(checkpoints: Path) -> Path | None:
    """The last checkpoint of a run; None where there is none."""
    return next(reversed(steps(checkpoints)), None)


def best(checkpoints: Path) -> Path | None:
    """The checkpoint with the best validation, as the newest one records it; None where that is not there."""
    last = newest(checkpoints)
    if last is None:
        return None
    try:
        record = read_state(last)["run"]["best"]
        folder = checkpoints / step_name(record["step"]) if record else None
    except (InputError, OSError):  # nothing is recorded, or it is damaged: the link is left
        if not last.is_dir():  # a training beside us has pruned it while it was read
            return best(checkpoints)
        folder = follow(checkpoints / BEST)
        if folder is None and (last / STATE).is_file():
            raise
    return folder if folder is not None and folder.is_dir() else None


def named(checkpoints: Path, name: str) -> Path | None:
    """The checkpoint that "last", "best" or a name of its own means; None where there is no such.

    A folder that a copy has put in a link's place is what is meant where there are no others.
    """
    if name in (LAST, BEST) and steps(checkpoints):
        return newest(checkpoints) if name == LAST else best(checkpoints)
    return follow(checkpoints / name)


class Best(TypedDict):
    """The best validation of a run: its step, and the result as JSON has it."""

    step: int
    value: float
    result: dict[str, Any]


class Progress(TypedDict):
    """How far a run is: steps, seconds, tokens, the best validation, and the parts of rows of metrics.csv to come."""

    step: int
    settled: int
    seconds: float
    tokens: int
    best: Best | None
    window: list[Any]
    validations: int
    norms: list[float]


class State(TypedDict):
    """training.json: the progress, and where in training.safetensors the weights and the optimizer's moments are."""

    weights: dict[str, Any]
    optimizer_states: list[Any]
    run: Progress
    global_step: int
    epoch: int


def read_state(folder: Path) -> dict[str, Any]:
    """The numbers of the training that a checkpoint holds beside its tensors.

    Raises:
        InputError: there are none; they have changed since they were written, or an entry is not what it should be.
    """
    if not os.path.lexists(folder / STATE):
        raise InputError(f"'{shown(folder)}' holds a model but no state of its training; start a new run with --run")
    instead = "copy the checkpoint again, or remove it to resume an earlier one"
    check_sums(folder, STATE)
    plain = read_json(folder / STATE, dict, instead)
    structure(plain, State, f"'{shown(folder / STATE)}'", instead=instead)
    return plain


def read_metrics(run: Path) -> str:
    """metrics.csv of a run; "" where there is none.

    Raises:
        InputError: it does not begin with what the newest checkpoint whose copy is whole holds; it is not UTF-8.
    """
    folder, saved = _saved_metrics(run / "checkpoints")  # read first: a training beside us only adds to the other
    path = run / METRICS
    if not path.is_file():
        return ""
    text = read_text(path, "copy the run again, or remove the file")
    if not text.startswith(saved):
        raise InputError(
            f"'{shown(path)}' has changed since '{shown(folder)}' was written; --resume restores it, "
            "or take it as it is with --no-checksums"
        )
    return text


def _saved_metrics(checkpoints: Path) -> tuple[Path, str]:
    """The newest checkpoint whose copy of metrics.csv is whole, and that copy; "" where there is none."""
    for folder in reversed(steps(checkpoints)) if checking.get() else ():
        with contextlib.suppress(InputError):  # damaged, of an earlier version that has none, or pruned beside us
            check_sums(folder, METRICS)
            return folder, read_text(folder / METRICS)
    return checkpoints, ""


def link(checkpoints: Path) -> None:
    """Let the links `last` and `best` lead where they should, for people; nothing depends on them."""
    for name, folder in ((LAST, newest(checkpoints)), (BEST, best(checkpoints))):
        if folder is not None:
            point(checkpoints / name, folder.name)


def prune(checkpoints: Path, keep: int) -> None:
    """Keep the newest of a run's checkpoints, and the best one."""
    kept_always = best(checkpoints)
    for old in steps(checkpoints)[:-keep]:
        if old != kept_always and not old.is_symlink():
            remove(old)


# ---------------------------------------------------------------------------------------------------- reading
@checked
def load(
    path: str | os.PathLike,
    *,
    method: type[Method] | None = None,
    net: nn.Module | None = None,
    checkpoint: str | None = None,
    device: torch.device | str = "cpu",
    checksums: bool = True,
    **choices: Any,
) -> Model:
    """A model from a run, a checkpoint, a saved folder, a published one (`zellige list checkpoints`), or from the Hugging Face
    hub by its id ("owner/model").

    Args:
        method: the class, where it is not one of METHODS: code is never read from a checkpoint.
        net: the network, where it is an own one.
        checkpoint: of a run: "best", "last" or the name of a checkpoint; by default the best one there is, else the last.
        checksums: refuse a folder whose files are not those that were written (SHA256SUMS).
        choices: of a published model, what nothing in it says (`published.Choices`): system="mdlm", length=1024, ...

    Raises:
        InputError: nothing there; a pickle; truncated; changed since it was written; written by a newer format; keys that do
            not fit; weights that are not finite.
    """
    device = usable(device)
    while True:
        folder = locate(path, checkpoint)
        try:
            with unchecked(not checksums):
                return _load(folder, path, method, net, device, choices)
        except Exception:  # torch says RuntimeError of a file that has gone
            if folder.exists():
                raise  # else a training beside us has pruned it while it was read: look again


def _load(folder: Path, path: str | os.PathLike, method: Any, net: Any, device: Any, choices: dict[str, Any]) -> Model:
    if published.is_published(folder):
        hub = str(path) if not Path(path).exists() else ""
        found = published.read(folder, hub, **choices)
        return Model(found.method.to(device), found.tokenizer, found.config, found.about)
    if choices:
        raise InputError(
            f"'{shown(folder)}' is Zellige's own and says itself what it is; leave out {', '.join(choices)}"
        )
    plain = read_config(folder)
    check_sums(folder, CONFIG, *TOKENIZER)
    if (folder / WEIGHTS).is_file():
        check_format(_format(folder / WEIGHTS), shown(folder / WEIGHTS))
    config = from_json(plain, method=method, source=shown(folder / CONFIG))
    mine = net is None
    layout = published.LAYOUTS.get(config.network)
    if net is None and layout is not None and layout.build is not None:
        net = published.rebuild(layout, plain.get("about") or {}, config)
    if config.network and net is None:
        raise InputError(
            f"'{shown(path)}' was trained with an own network ({config.network}); hand it over: load(path, net=...)"
        )
    tokenizer = load_tokenizer(folder)
    with weights.unfilled(), torch.random.fork_rng(devices=[]):  # leave the global random numbers as they were
        model = build(
            method or METHODS[config.method], tokenizer.size, net or config.net, config.options, config.net.length,
            tokenizer.ordered,
        )  # fmt: skip
    check_sums(folder, WEIGHTS)
    tensors, _ = load_tensors(folder / WEIGHTS)
    fit(model, tensors, config, take=mine)
    made = Model(model.to(device), tokenizer, config, plain.get("about"))
    made.source = Path(path) if Path(path).is_dir() else folder
    return made


def _format(path: Path) -> Any:
    number = (header(path).get("__metadata__") or {}).get("format", "1")
    return int(number) if str(number).isdigit() else number if number != "pt" else 1


def fit(method: nn.Module, tensors: Mapping[str, Tensor], config: Config, take: bool = False) -> None:
    """Put tensors into a method (`weights.place`); InputError if one is missing, left over or of another shape."""
    layers = f"config says {config.net.layers} layers" if not config.network else f"the network is {config.network}"
    weights.place(method, tensors, layers, take)


def read_config(folder: Path) -> dict[str, Any]:
    """The JSON of a folder's config."""
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"'{shown(folder)}' holds no {CONFIG}; give a run or a folder that Zellige wrote")
    plain = read_json(path, dict, AGAIN)
    if "format" not in plain:
        raise InputError(f"'{shown(path)}' is not the config of a Zellige model; give a folder that Zellige wrote")
    return plain


def locate(path: str | os.PathLike, checkpoint: str | None = None) -> Path:
    """The folder that holds the model: of a run its best (or last) checkpoint; downloaded if it is a hub id."""
    folder = Path(path)
    if folder.name in (LAST, BEST) and folder.parent.name == "checkpoints":
        meant = named(folder.parent, folder.name)
        if meant is not None:
            return meant
    if folder.is_file():
        if published.is_published(folder):
            return folder
        refuse_pickle(folder)
        inside = folder.parent if folder.name in (WEIGHTS, CONFIG) else None
        raise InputError(
            f"'{shown(folder)}' is a file; give the folder"
            + (f" '{shown(inside)}'" if inside else f" that holds {WEIGHTS} and {CONFIG}")
        )
    if not folder.is_dir():
        if _ID.fullmatch(str(path)) and not folder.parent.is_dir():
            return _download(str(path))
        raise InputError(f"no run or model at '{path}'; {_near(folder)}")
    points = folder / "checkpoints"
    if points.is_dir():
        names = [Path(checkpoint).name] if checkpoint else [BEST, LAST]
        found = next((f for f in (named(points, name) for name in names) if f), None)
        if found is None:
            short = (name for name in (BEST, LAST) if named(points, name))
            there = sorted({*short, *(p.name for p in points.iterdir() if not p.name.startswith("."))})
            if checkpoint and there:
                raise InputError(
                    f"'{shown(folder)}' has no checkpoint '{checkpoint}', only {', '.join(there)}; give one of them"
                )
            if there:
                raise InputError(
                    f"'{shown(points)}' holds no checkpoint such as step-000500, only {', '.join(there)}; rename one so"
                )
            raise InputError(f"'{shown(folder)}' holds no checkpoint yet; continue it with --resume")
        return found
    if checkpoint:
        raise InputError(f"'{shown(folder)}' is not a run, so it has no checkpoint '{checkpoint}'; leave it out")
    return folder


def _near(path: Path) -> str:
    """What may have been meant by a folder that is not there."""
    if not path.parent.is_dir():
        return "give a run, a folder that Zellige saved, or the id of a model on the Hugging Face hub"
    names = [p.name for p in path.parent.iterdir() if p.is_dir() and not p.name.startswith(".")]
    near = nearest(path.name, names)
    if near:
        return f"nearest in that folder: '{near}'"
    where = shown(path.parent)
    return f"'{where}' holds {', '.join(sorted(names)[:5])}" if names else f"'{where}' holds no folders"


def _download(name: str, **how: Any) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    silence = ""
    try:
        with remote.hub() as silence:
            folder = Path(
                snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", CHECKSUMS], **how)
            )
            if not any(folder.glob("*.safetensors")):  # an older one
                folder = Path(snapshot_download(name, allow_patterns=["*.json", "*.bin", "*.ckpt", "*.txt"], **how))
        return folder
    except GatedRepoError:
        raise InputError(
            f"'{name}' on the Hugging Face hub asks for consent; give it there, then: hf auth login"
        ) from None
    except (RepositoryNotFoundError, HFValidationError):
        raise InputError(
            f"no folder at '{name}' and no such model on the Hugging Face hub; give a run, a saved folder or a hub id"
        ) from None
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno in FULL:
            raise InputError(f"no space left while downloading '{name}'; free space and run it again") from problem
        raise InputError(
            f"no folder at '{name}', and the Hugging Face hub cannot be reached ({silence or hub.first_line(problem)}); "
            "check the connection, or give a folder"
        ) from problem
