"""Interface of a published layout: names of its config and its tensors, there and here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zellige.base.arguments import MOST
from zellige.base.errors import InputError, unknown
from zellige.base.requests import declared, option
from zellige.base.schema import quoted
from zellige.nn.block import Net
from zellige.nn.transformer import DiT

Shapes = Mapping[str, tuple[int, ...]]  # of the tensors in a file, by their published names without prefixes


@declared
class Choices:
    """Choices of the reader of a published model; None is what its config says, or the usual value for its layout."""

    system: str | None = option(
        "format of the file (default: from its config.json); sedd, radd, mdlm and others", default=None
    )
    length: int | None = option("tokens per sequence", default=None, minimum=1)
    tokenizer: str | None = option(
        "its tokenizer: gpt2, bytes, integers, a tokenizer.json, a folder of vocabulary files or a hub id", default=None
    )
    heads: int | None = option(
        "number of attention heads; only if the file holds no rotary frequencies", default=None, minimum=1
    )
    block: int | None = option("tokens per block (bd3lm)", default=None, minimum=1)
    process: str | None = option("noise process: absorbing or uniform (sedd)", default=None)
    schedule: str | None = option("noise schedule", default=None)
    time: bool | None = option("True if the network is time-conditioned; False: sigma is always 0", default=None)
    begin: int | None = option("number of the token that begins a text (ar)", default=None, minimum=0)
    weights: str | None = option("which weights of a checkpoint: ema (default) or raw", default=None)

    @staticmethod
    def of(choices: Mapping[str, Any]) -> "Choices":
        """InputError for a word that is no choice."""
        names = [f.name for f in fields(Choices)]
        for name in choices:
            if name not in names:
                raise unknown("choice", name, names, "zellige import --help")
        values = Choices(**choices)
        if values.weights not in (None, "ema", "raw"):
            raise InputError(f"weights is '{values.weights}'; it must be ema or raw")
        return values


@dataclass(frozen=True)
class Description:
    """Contents of a published config, in our terms.

    Attributes:
        net: the sizes; for a network of an own class its length alone counts.
        rows: K of the network: rows of its table of embeddings.
        options: the method's own choices, by the names of its Config.
        tokenizer: its name, where the folder holds none.
        data: what it was trained on, by our name, "" where nothing says it.
        mask: the mask's id where it stands among the tokenizer's own; None: it follows them, or there is none.
    """

    net: Net
    rows: int
    options: dict[str, Any] = field(default_factory=dict)
    tokenizer: str = "gpt2"
    data: str = ""
    mask: int | None = None


@dataclass(frozen=True)
class Layout:
    """One way in which models are published.

    Attributes:
        name: how `system` and `to` call it.
        method: the system of ours (a name in METHODS) that it becomes.
        about: one line for people.
        prefix: what stands before its parameters' names when it is written.
        knows: whether a config.json is of this layout.
        read: a config and what is in the file -> what it says. Raises InputError.
        write: the way back, a config.json; InputError where a model does not fit.
        ours: a published name of a parameter (no prefix) in our network's words.
        theirs: the way back.
        order: sorts published names of parameters as the published class has them (the order of an EMA list).
        buffers: names that may stand in a file beside the parameters; kept for the way back.
        strips: prefixes that wrappers add, taken away wherever they begin a name.
        build: the network, where it is not our DiT: (config, description) -> a network (`nn.network`), its weights
            unset.
        tokenizer: that of a folder, where its tokens are the states: (folder, description) -> a tokenizer.
        usual: the config that a file without one is taken for.
        convert: published tensors, by names without prefixes, under our names and in our shapes, where they lie
            otherwise; revert: the way back.
        twins: published name of a tensor that may be written twice -> the name that it has in the network, which reads it
            once; only where the network has no tensor of the first name.
        safetensors: whether its weights are read from safetensors only, never from a pickle.
        adopt: the config.json of a model of another kind as one of this layout, which begins with its weights; None
            where it cannot.
        revise: a config.json with what the method's options say otherwise than it does.
        form: the tensors of our DiT, by our names, in the form that the layout has of the same function.
        extra: tensors that are written beside the parameters, by their names in the file.
        tables: published names of the tables that have a row for each state; a model that begins as another kind may
            have a state more, the mask, whose row is then the mean of the others.
    """

    name: str
    method: str
    about: str
    prefix: str
    knows: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Mapping[str, Any], Shapes], Description]
    write: Callable[[Description], dict[str, Any]]
    ours: Callable[[str], str]
    theirs: Callable[[str], str]
    order: Callable[[Sequence[str]], list[str]] = sorted
    buffers: tuple[str, ...] = ()
    strips: tuple[str, ...] = ("_orig_mod.", "module.", "model.", "backbone.")
    build: Callable[[Mapping[str, Any], Description], nn.Module] | None = None
    tokenizer: Callable[[Path, Description], Any] | None = None
    usual: Mapping[str, Any] | None = None
    convert: Callable[[Mapping[str, Tensor], Net], dict[str, Tensor]] | None = None
    revert: Callable[[Mapping[str, Tensor], Net], dict[str, Tensor]] | None = None
    twins: Mapping[str, str] = field(default_factory=dict)
    safetensors: bool = False
    adopt: Callable[[Mapping[str, Any]], dict[str, Any] | None] | None = None
    revise: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] | None = None
    form: Callable[[DiT], dict[str, Tensor]] = lambda network: dict(network.state_dict())
    extra: Callable[[Description], dict[str, Tensor]] = lambda description: {}
    tables: tuple[str, ...] = ()


def field_of(config: Mapping[str, Any], *path: str, default: Any = None) -> Any:
    """An entry of nested mappings, `default` where there is none."""
    for name in path:
        if not isinstance(config, Mapping) or name not in config:
            return default
        config = config[name]
    return config


def entries_in(config: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The entries of a nested mapping, none where it is not there; InputError where something else is."""
    value = field_of(config, *path, default={})
    if not isinstance(value, Mapping):
        raise _other(path, value, "an object")
    return value


def number_or(config: Mapping[str, Any], name: str, default: float | None) -> float:
    """A number of a config, `default` where it is not there (None: it must be);
    InputError where it is something else."""
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        raise _other((name,), value, "a number")
    return float(value)


def count_in(config: Mapping[str, Any], *path: str) -> int:
    """A whole number of a config that must be there, from 1 to `MOST`; InputError if it is not."""
    value = field_of(config, *path)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise _other(path, value, f"a whole number of at most {MOST:,}")
    return value


def count_or(config: Mapping[str, Any], name: str, default: int) -> int:
    """The same, `default` where it is not there."""
    return count_in(config, name) if name in config else default


def begin_in(config: Mapping[str, Any]) -> dict[str, int]:
    """The option `begin` of a causal model, where its config says which token begins a text."""
    token = config.get("bos_token_id")
    return {"begin": token} if type(token) is int else {}


def _other(path: Sequence[str], value: object, kind: str) -> InputError:
    has = "has no entry" if value is None else f"has {quoted(repr(value))[1:-1]} as"
    return InputError(
        f"the published config.json {has} '{'.'.join(path)}'; it must be {kind}, as in the folder it came from"
    )
