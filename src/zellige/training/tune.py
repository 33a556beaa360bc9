"""Tune a model on other data by an adapter: `zellige tune MODEL`.

A run as any other: same loop, data, validations and checkpoints. Only the adapter is trained (`models.adapter`) and
stored; the base is named by its path or its id, and by a digest of its weights.

Of prompts and answers the prompt is given: it is never noised and never counted, so the loss is that of the bound of
-log p(answer | prompt) (`data.given`).
"""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..base.errors import InputError
from ..base.schema import shown
from ..core.random import mix
from ..data import Corpus, Data
from ..data.prepare import prepare
from ..data.table import refuse_mixed
from ..data.tokenizer_base import OutsideVocabulary, Tokenizer
from ..methods import METHODS
from ..methods.method import Method
from ..models import published, shipped
from ..models.adapter import inject, lora_config, resolve_targets
from ..models.config import Adapter, Config, Train
from ..models.ends import fill_for
from ..models.given import needs_sight, refuse_given
from ..models.locate import locate
from ..models.model import Model, fingerprint, load
from ..show.numbers import path
from . import device, setup
from .session import Session


@dataclass(frozen=True, kw_only=True)
class Tuning(Session):
    """A session that trains an adapter of a model.

    Attributes:
        base: the model, into which the adapter is put.
        strict: whether a pair that is left out is an error.
    """

    base: Model
    strict: bool = False

    @property
    def resume_command(self) -> str:
        return f"zellige tune {path(self.config.train.start)} --run {path(self.folder)} --resume"

    @property
    def start(self) -> None:
        """Nothing: the base has its weights."""

    def read(self, config: Config) -> Corpus:
        """The data in the tokens of the base, with what it gives; InputError where the base cannot be trained on it."""
        base, method = self.base, self.base.method
        if device.fleet(config).sharded(config):
            raise InputError("tune copies the model to each device; leave `train.strategy` out")
        try:
            corpus = prepare(
                config.data, setup.row_length(config), tokenizer=base.tokenizer, progress=self.progress.reading
            )
        except OutsideVocabulary as problem:
            raise InputError(f"{problem}; take it out of the text") from None
        if self.strict and (left := corpus.about.get("pairs")):
            raise InputError(f"{left['first']}; shorten it or take it out, or leave it out without `strict`")
        refuse_mixed(corpus.tokenizer, method)
        classes = len(corpus.about.get("classes") or ())
        if classes and classes != config.net.classes:
            raise InputError(
                f"the data has {classes} classes and the base {config.net.classes or 'none'}; leave `data.labels` out"
            )
        if config.data.given:
            refuse_given(method, config.data.given)
            if needs_sight(method) and not getattr(method.network, "sees_given", False):
                raise InputError(
                    f"this {method.name} cannot see which tokens are given, as its noise has no mask; tune a masked "
                    "model, or one that was trained with `data.given`"
                )
        return corpus

    def build(self, config: Config, corpus: Corpus, about: dict[str, Any]) -> tuple[Method, Config, dict[str, Any]]:
        """The base with the adapter in it, and how many parameters are trained."""
        method = self.base.method
        assert config.adapter is not None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(config.train.seed, "adapter") % 2**63)
            inject(method, lora_config(config.adapter, config.train.start))
        sizes = [(p.numel(), p.requires_grad) for p in method.parameters()]
        trained = sum(number for number, is_trained in sizes if is_trained)
        parameters = sum(number for number, is_trained in sizes if not is_trained)
        about = setup.publication(self.base.about) | about
        return method, config, about | {"trained": trained, "parameters": parameters}

    def sampling_defaults(self, method: Method, tokenizer: Tokenizer) -> dict[str, Any]:
        """The defaults of the base; where it has none, those of any training."""
        return self.base.defaults or super().sampling_defaults(method, tokenizer)


def pinned(name: str) -> str:
    """The name of a base that means the same weights from any folder: the absolute path, of a run that of its best
    checkpoint; a hub id and the name of an included model as they are."""
    return str(locate(name).resolve()) if Path(name).exists() else name


def base_of(model: Any, name: str) -> Model:
    """The base, loaded anew: a model that is handed over stays as it is.

    Raises:
        InputError: what is handed over has other weights than what lies there.
    """
    if not isinstance(model, Model):
        return load(name)
    cls, config = type(model.method), model.config
    own = bool(config.network) and not published.has_class(config)
    method, net = None if cls in METHODS.values() else cls, copy.deepcopy(model.method.network) if own else None
    base = load(name, method=method, net=net)
    if fingerprint(base.method) != fingerprint(model.method):
        raise InputError(f"the model has other weights than '{name}', from which it was loaded; save it first")
    return base


def name_of(model: Any) -> str:
    """The path or id of a base; InputError for a model that is in memory alone."""
    if included := shipped.name_of(model):
        return included
    source = getattr(model, "source", None) or getattr(model, "folder", None)
    published = (getattr(model, "about", None) or {}).get("published") or {}
    name = model if isinstance(model, str | Path) else source or published.get("source")
    if not name:
        raise InputError("the model is in memory alone, and an adapter names its base by its path; save it first")
    return str(name)


def resolved(
    model: Any, adapter: dict[str, Any], data: Data, train: Train, folder: Path, saved: Config | None
) -> tuple[Model, Config]:
    """The base and the complete config.

    Args:
        model: a model, its path or its id; None: that of the run that goes on.
        adapter: the fields of `Adapter` that are given.
        saved: the config of the run that goes on.
    """
    if model is None and saved is None:
        raise InputError("tune needs the model that is tuned; e.g. zellige tune runs/demo --data.path chat.jsonl")
    name = name_of(model) if model is not None else saved.train.start  # pyright: ignore[reportOptionalMemberAccess]
    base = base_of(model, name)
    setup.refuse_int8(base.config, name)
    sha256 = fingerprint(base.method)
    if saved and saved.adapter and saved.adapter.base_sha256 != sha256:
        raise InputError(f"'{shown(folder)}' is tuned from other weights than those in '{name}'; give its own base")
    start = saved.train.start if saved else pinned(name)
    targets = resolve_targets(base.method.network, tuple(adapter.get("targets") or ()))  # pyright: ignore[reportArgumentType]
    chosen = replace(saved.adapter if saved and saved.adapter else Adapter(), **adapter)
    if not saved or "targets" in adapter:
        chosen = replace(chosen, targets=targets)
    if chosen.length > base.config.net.length:
        raise InputError(
            f"`length` is {chosen.length:,}, and the model reads {base.config.net.length:,} tokens; give no more"
        )
    chosen = replace(chosen, base_sha256=sha256)
    if data.fill is None and (data.given == "field" or data.pack != "wrap"):
        data = data.replaced(fill=saved.data.fill if saved else fill_of(base, data.pack))
    config = Config(
        base.config.method,
        base.config.options,
        data,
        base.config.net,
        replace(train, start=start),
        str(folder),
        base.config.network,
        adapter=chosen,
    )
    return base, config


def fill_of(base: Model, pack: str) -> int:
    """Multiple of tokens to which an answer, or a document, is filled up with its end, where `data.fill` says nothing:
    the block of a model of blocks; of any other the whole row, as LLaDA is trained (arXiv 2502.09992); 0 where the
    model needs none.
    """
    if base.tokenizer.separator is None:
        return 0
    return fill_for(base.method, base.method.block, base.config.net.length, pack)
