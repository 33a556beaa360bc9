"""Models on disk: a folder with `model.safetensors`, `config.json` and the tokenizer. Never a pickle, never code.

    model = load("runs/first")             # a run, one of its checkpoints, a saved folder or a Hugging Face id
    model.save("out/")

A checkpoint of a run is such a folder too, with the state of the training beside the model. What is published and what
is resumed are the same files.
"""

import copy
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

import torch
from torch import nn

from ..base.arguments import checked, of_kind
from ..base.errors import ELSEWHERE, InputError, no_attribute
from ..base.files import write_folder
from ..base.schema import shown
from ..base.trust import allow, may_have_changed, reading
from ..core.batch import usable, whole_numbers
from ..data import load as load_tokenizer
from ..data.tokenizer_base import Tokenizer
from ..methods import METHODS, build, find
from ..methods.method import Method
from ..nn.int8 import quantize
from ..nn.network import unfilled
from . import hub, published, shipped
from .adapter import merge
from .checkpoint.layout import CONFIG, MODEL, may_be_replaced
from .checkpoint.read import check_sums, load_weights, own_config, place_weights, read_config
from .checkpoint.write import explain_full_disk, nbytes, write_checksums, write_model
from .config import Config, from_json
from .defaults import check_defaults, read_defaults, write_defaults
from .locate import download, locate
from .speculative import load_verifier


def identity(model: "Model") -> dict[str, Any]:
    """The entries of a result about its model: method, T, parameters, step, which weights, tokenizer;
    the sha256 of both."""
    return {
        "method": getattr(model.method, "name", type(model.method).__name__),
        "time": getattr(model.method, "discrete_time", ""),
        **({"block": model.method.block} if getattr(model.method.config, "blocks", ()) else {}),
        "parameters": model.method.parameter_count,
        "step": getattr(model, "about", {}).get("step"),
        "weights": which_weights(model),
        "tokenizer": model.tokenizer.name,
        "weights_sha256": fingerprint(model.method),
        "tokenizer_sha256": model.tokenizer.fingerprint,
    }


def which_weights(model: "Model") -> str:
    """EMA, raw, or as published."""
    about, config = getattr(model, "about", {}), getattr(model, "config", None)
    if as_published := about.get("published", {}).get("weights"):  # a run that began with them has its own
        return "EMA" if as_published == "ema" else "as published"
    return "EMA" if config is None or config.train.ema else "raw"


def fingerprint(*parts: Any) -> str:
    """A hash of tensors, modules (their state) and anything that JSON can write."""
    digest = hashlib.sha256()
    for part in parts:
        tensors = part.state_dict().values() if isinstance(part, torch.nn.Module) else [part]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                data = tensor.detach().cpu().contiguous().reshape(-1)
                digest.update(f"{tensor.dtype} {[*tensor.shape]}".encode())
                digest.update(memoryview(data.view(torch.uint8).numpy()))  # pyright: ignore[reportArgumentType]
            else:
                digest.update(json.dumps(tensor, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def unit(tokenizer: Tokenizer) -> str:
    """The unit of a likelihood in these tokens."""
    unit = {"byte": "char"}.get(tokenizer.unit, tokenizer.unit)
    return f"bits/{unit}" if unit in ("char", "dim", "note", "cell") else "nats/token"


class Model:
    """A trained method with what is needed to use it.

    Attributes:
        method: the method, in eval mode, with the averaged (EMA) weights.
        tokenizer: text to tokens and back.
        config: the run that made it.
        about: what else is known: step, versions, parameters, ...
        defaults: arguments of `zellige.sample` that stand where a call says nothing: `model.defaults = {"temperature":
            0.7}`. Its entry "infill" has different values for filling in. They are saved with it
            (`defaults.GENERATION`).
        source: the run or folder that it was loaded from.
    """

    source: Path | None = None

    def __init__(
        self,
        method: Method,
        tokenizer: Tokenizer,
        config: Config,
        about: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ):
        if not isinstance(method, Method):
            raise InputError(
                f"`method` is {of_kind(method)}; it must be a Method; of a folder, zellige.load makes a Model"
            )
        if not hasattr(tokenizer, "decode"):
            raise InputError(
                f"`tokenizer` is {of_kind(tokenizer)}; it must be a tokenizer, as `prepare(...).tokenizer` is one"
            )
        if not isinstance(about, Mapping | None):
            raise InputError(f"`about` is {of_kind(about)}; it must be a dict or None")
        self.method: Any = method.eval()  # of a subclass, whose own attributes are read in many places
        self.tokenizer: Any = tokenizer
        self.config, self.about = config, dict(about or {})
        self.defaults = {} if defaults is None else defaults

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(no_attribute("Model", name), name=name, obj=self)

        def __call__(self, *_: Any, **__: Any) -> Any:
            raise TypeError(f"a Model is not called; {ELSEWHERE['Model']['__call__']}")

    @property
    def defaults(self) -> dict[str, Any]:
        return dict(self._defaults)

    @defaults.setter
    def defaults(self, values: Mapping[str, Any]) -> None:
        self._defaults = check_defaults(values, self.method)

    @property
    def unit(self) -> str:
        """Unit of its likelihood: bits per character, dimension, note or cell; "nats/token" for other tokens."""
        return unit(self.tokenizer)

    @checked
    def text(self, tokens: Any) -> list[str]:
        """The texts of a state, of a frame, or of tokens (B, L) or (L,)."""
        tokens = whole_numbers("tokens", getattr(tokens, "x", tokens))
        low, high = (int(x) for x in tokens.aminmax()) if tokens.numel() else (0, 0)
        most = self.method.vocabulary  # a mask stands there until the last step
        if low < 0 or high > most:
            wrong = f"{low if low < 0 else high:,} among them"
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

    def with_method(self, method: Method) -> "Model":
        """The same model with another method around its weights."""
        copied = copy.copy(self)
        copied.method = method
        return copied

    @checked
    def save(self, folder: str | Path) -> Path:
        """Write the model into a folder, all or nothing; an earlier model in it is replaced, with its card and its
        evaluations.

        Raises:
            InputError: the folder holds something else, or the disk is full.
        """
        return self._save(folder)

    def _save(self, folder: str | Path, complete: Callable[[Path], None] = lambda folder: None) -> Path:
        """Write the model into a folder; `complete` adds to it."""
        config = replace(self.config, int8=self.method.precision == "int8")

        def fill(here: Path) -> None:
            write_model(here, self.method.state_dict(), self.tokenizer, config, self.about, self.defaults)
            hub.complete_tokenizer(here, self.method, self.tokenizer)
            write_checksums(here)
            complete(here)

        return self._write(folder, fill)

    @checked
    def export(self, folder: str | Path, to: str | None = None) -> Path:
        """Write the model into a folder in a published layout (`zellige export --help` names them), all or nothing.

        Args:
            to: its name; if not given, the layout that the model came in: with the same keys, bytes of tensors
                and config.json, and beside them SHA256SUMS. "hub" is no layout of others: Zellige's own folder with a
                model card (`save_pretrained`), and the default of a model that was trained here.

        Raises:
            InputError: the model does not fit the layout, or its weights are rounded, which only "hub" takes; the
                folder holds something else, or the disk is full.
        """
        layouts = published.plugin()
        name = layouts.layout_name(self.about, to)
        if name == layouts.HUB:
            self.save_pretrained(folder)
            return Path(folder)
        if self.method.precision == "int8":
            raise InputError(f"the format {name} has no weights rounded to int8; use `to` {layouts.HUB}, Zellige's own")
        layout = layouts.LAYOUTS[name]

        def fill(here: Path) -> None:
            layouts.write_layout(here, self.method, self.tokenizer, self.config, self.about, layout)
            write_defaults(here, self.defaults)
            write_checksums(here)

        return self._write(folder, fill)

    def _write(self, folder: str | Path, fill: Callable[[Path], None]) -> Path:
        """Have `fill` write the model into a folder, which may hold an earlier one but nothing else."""
        folder, needed = Path(folder), nbytes(self.method.state_dict())
        if not may_be_replaced(folder):
            raise InputError(f"'{shown(folder)}' holds something that is not a model; choose another folder")
        with explain_full_disk(folder, f"saving '{shown(folder)}'", needed, lambda: "free space and save again"):
            return write_folder(folder, fill)

    # The three verbs of huggingface_hub's own models.
    @checked
    def save_pretrained(
        self, save_directory: str | Path, *, repo_id: str | None = None, license: str | None = None
    ) -> None:
        """Save the model into a folder with a model card, and the results of `zellige evaluate` that lie beside it.

        Args:
            repo_id: name on the hub, for the card.
            license: of the weights, for the card.
        """
        self._save(save_directory, lambda folder: hub.complete(folder, self, repo_id, license))

    @checked
    def push_to_hub(
        self,
        repo_id: str,
        *,
        license: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        commit_message: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Upload the model to the Hugging Face hub as "owner/model"; the address is returned.

        Args:
            license: of the weights, for the model card.
            private: whether only you can read it; by default as your organization has it.
            branch: the branch to write to (default: main).
            create_pr: open a pull request instead of writing to the branch.

        Raises:
            InputError: not such a name; no connection, or not logged in.
        """
        write = lambda folder: self.save_pretrained(folder, repo_id=repo_id, license=license)  # noqa: E731
        how = {"revision": branch, "commit_message": commit_message, "create_pr": create_pr}
        return hub.upload(write, repo_id, private, token, **how)

    @classmethod
    @checked
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        device: torch.device | str = "cpu",
        net: nn.Module | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
    ) -> "Model":
        """A model from a folder or the hub, as `load`.

        Args:
            revision, token, cache_dir, force_download, local_files_only: of a download, as huggingface_hub has them.

        Raises:
            InputError: nothing there, or what is there does not fit.
        """
        source = pretrained_model_name_or_path
        how = {"revision": revision, "token": token, "cache_dir": cache_dir}
        how |= {"force_download": force_download, "local_files_only": local_files_only}
        if any(how.values()) and not Path(source).is_dir():
            source = download(str(source), **how)
        return load(source, device=device, net=net)

    def __repr__(self) -> str:
        step = f", step {self.about['step']:,}" if "step" in self.about else ""
        return f"<model {self.config.method}{step}, {self.tokenizer!r}>"


# ---------------------------------------------------------------------------------------------------- reading
@checked
def load(
    path: str | os.PathLike,
    *,
    method: str | type[Method] | None = None,
    net: nn.Module | None = None,
    checkpoint: str | None = None,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    compile: bool = False,
    checksums: bool = True,
    head: str | os.PathLike | None = None,
    base: str | os.PathLike | None = None,
    **choices: Unpack[published.PublishedChoices],
) -> Model:
    """A model from a run, a checkpoint, a saved folder, a published one (`zellige list checkpoints`), or from the
    Hugging Face hub by its id ("owner/model").

    Args:
        method: the class, or the name, where it is not one of Zellige's: code is never read from a checkpoint.
        net: the network, where it is an own one.
        checkpoint: of a run: "best", "last" or the name of a checkpoint; by default the best one there is, else the
            last.
        precision: of the network's matrix products: "bfloat16", "tf32", "int8" on a CPU, or that of its weights
            (`Method.compute_in`). A model that was saved in int8 is in int8.
        compile: torch.compile the network; on a GPU each step of sampling is one graph, where the sampler allows it. It
            takes a minute or two at the start.
        checksums: refuse a folder whose files are not those that were written (SHA256SUMS).
        head: a folder of `zellige train speculative`, for the sampler `speculative`.
        base: of a tuned model, where its base is now, if not where it was.
        choices: what a published folder does not say: system="mdlm", length=1024, ...
            (`published.PublishedChoices`); of a model that was trained with several sizes of block (`blocks` of bd3lm)
            `block`, the one to read and write in.

    Raises:
        InputError: nothing there; a pickle; truncated; changed since it was written; of another format; keys that do
            not fit; weights that are not finite.
    """
    if choices:
        published.plugin().Choices.of(choices)
    method = None if method is None else find(method)
    device = usable(device)
    while True:
        folder = locate(path, checkpoint)
        try:
            with allow(changed=not checksums):
                model = _load(folder, path, method, net, device, {**choices}, base)
                if head is not None:
                    verifier = load_verifier(head, fingerprint(model.method), device)
                    model = model.with_method(model.method.verified_by(verifier))
            model.method.compute_in(precision, compile)
            return model
        except Exception:  # torch says RuntimeError of a file that has gone
            if folder.exists():
                raise  # else a training beside us has pruned it while it was read: look again


def _load(
    folder: Path,
    path: str | os.PathLike,
    method: type[Method] | None,
    net: nn.Module | None,
    device: torch.device,
    choices: dict[str, Any],
    base: str | os.PathLike | None = None,
) -> Model:
    entries = own_config(folder)
    if entries is None:
        return _load_published(folder, path, device, choices)
    block = choices.pop("block", None)
    if choices:
        raise InputError(
            f"'{shown(folder)}' is Zellige's own and says itself what it is; leave out {', '.join(choices)}"
        )
    check_sums(folder, *MODEL)
    config = from_json(entries, method=method, source=shown(folder / CONFIG))
    if block is not None:
        config = replace(config, options=_in_blocks(config.options, block, shown(path)))
    about = entries.get("about") or {}
    if config.adapter:
        return _tuned(folder, path, method, net, device, config, about, base)
    if base is not None:
        raise InputError(f"'{shown(path)}' is no tuned model and has no `base`; leave it out")
    tokenizer = load_tokenizer(folder)
    tensors = load_weights(folder)
    from_file = reading(shown(folder))  # which may name a layout or a schedule of another package
    with from_file, unfilled(), torch.random.fork_rng(devices=[]):  # global random numbers stay as they were
        cls, network = method or METHODS[config.method], net
        if network is None:
            network = published.network_of(config, about) if config.network else config.net
        if network is None:
            raise InputError(
                f"'{shown(path)}' was trained with an own network ({config.network}); hand it over: load(path, net=...)"
            )
        built = build(cls, tokenizer.size, network, config.options, config.net.length, tokenizer.ordered)
    if config.int8:
        quantize(built.eval().network, values=False)
    place_weights(built, tensors, config, take=net is None)
    loaded_model = Model(built.to(device), tokenizer, config, about, read_defaults(folder, built))
    loaded_model.source = Path(path) if Path(path).is_dir() and folder.parent != shipped.FOLDER else folder
    return loaded_model


def _load_published(folder: Path, path: str | os.PathLike, device: torch.device, choices: dict[str, Any]) -> Model:
    """The model in a folder or a file that Zellige did not write."""
    if not published.is_published(folder):
        read_config(folder)  # says what is missing
    hub_id = str(path) if not Path(path).exists() else ""
    imported = published.plugin().read(folder, hub_id, **choices)
    defaults = read_defaults(folder, imported.method, ours=False) if folder.is_dir() else {}
    return Model(imported.method.to(device), imported.tokenizer, imported.config, imported.about, defaults)


def _tuned(
    folder: Path,
    path: str | os.PathLike,
    method: type[Method] | None,
    net: nn.Module | None,
    device: torch.device,
    config: Config,
    about: dict[str, Any],
    base: str | os.PathLike | None,
) -> Model:
    """The base of a tuned model, with the adapter added to its matrices."""
    assert config.adapter is not None
    name = str(base or config.train.start)
    try:
        place = locate(name)
    except InputError as problem:
        raise InputError(
            f"'{shown(path)}' is tuned from '{name}', and {problem}; or say where it is with `base`"
        ) from None
    model = _load(place, name, method, net, device, {})
    if not may_have_changed() and fingerprint(model.method) != config.adapter.base_sha256:
        raise InputError(
            f"'{shown(path)}' is tuned from other weights than those in '{name}'; give its own base with `base`, or "
            "take this one with `checksums=False`"
        )
    merge(model.method, folder, lambda: place_weights(model.method, load_weights(folder), config))
    defaults, tokenizer = read_defaults(folder, model.method), load_tokenizer(folder)
    merged = Model(model.method, tokenizer, replace(config, adapter=None), about, defaults)
    merged.source = Path(path) if Path(path).is_dir() else folder
    return merged


def _in_blocks(options: Any, block: int, source: str) -> Any:
    """The options of a method, in blocks of another size that it was trained with."""
    trained = tuple(getattr(options, "blocks", ()))
    if not trained:
        raise InputError(
            f"'{source}' was not trained with several sizes of block (`blocks` of bd3lm); leave `block` out"
        )
    if block not in trained:
        sizes = ", ".join(map(str, trained))
        raise InputError(f"'{source}' was not trained with blocks of {block:,}; it has {sizes}")
    return replace(options, block=block)


class HasModel(Protocol):
    """Something that holds a model, such as a finished run."""

    @property
    def model(self) -> Model: ...


ModelSource = Model | HasModel | str | os.PathLike[str]  # what every verb takes in the place of a model


def as_model(model: ModelSource) -> Model:
    """A model: itself, that of a finished run, or from a run folder, a saved folder or a hub id."""
    if isinstance(model, Model):
        return model
    if isinstance(model, str | os.PathLike):
        return load(model)
    if not isinstance(model, type) and isinstance(inside := getattr(model, "model", None), Model):  # a `Run`
        return inside
    if isinstance(model, type) or not (hasattr(model, "method") and hasattr(model, "tokenizer")):
        raise InputError(f"`model` is {of_kind(model)}; it must be a Model (zellige.load), or the path or id of one")
    return cast(Model, model)
