"""The tensors of a published file: safetensors, `pytorch_model.bin`, or a training checkpoint (`.ckpt`, `.pt`, `.pth`).

The last two are pickles. What they name is read first, without running it; then torch's unpickler that knows tensors
only reads them, with stand-ins, which do nothing, for the classes of configurations and tokenizers that training
checkpoints hold.
"""

import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from zellige.base.arguments import refuse_path
from zellige.base.errors import InputError
from zellige.base.schema import read_json, shown
from zellige.models.checkpoint.pickles import refuse_code
from zellige.models.checkpoint.read import check_sums, load_tensors


class Inert:
    """Stands for an object of a training checkpoint: it keeps what it was made of, and does nothing."""

    state: Any = None

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        pass


_BUILTINS = ("bool", "bytes", "dict", "float", "int", "list", "long", "str", "tuple", "unicode")
INERT = (
    *[f"{module}.{name}" for module in ("builtins", "__builtin__") for name in _BUILTINS],
    "argparse.Namespace",
    "collections.defaultdict",
    "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata",
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    *[f"omegaconf.nodes.{kind}Node" for kind in ("Any", "Boolean", "Bytes", "Enum", "Float", "Integer", "String")],
    "pathlib.Path",
    "pathlib.PosixPath",
    "tokenizers.AddedToken",
    "tokenizers.Tokenizer",
    "tokenizers.models.BPE",
    "tokenizers.models.Model",
    "tokenizers.models.WordPiece",
    "transformers.models.bert.tokenization_bert.BertTokenizer",
    "transformers.models.bert.tokenization_bert_fast.BertTokenizerFast",
    "transformers.models.gpt2.tokenization_gpt2.GPT2Tokenizer",
    "transformers.models.gpt2.tokenization_gpt2_fast.GPT2TokenizerFast",
    "transformers.tokenization_utils_fast.PreTrainedTokenizerFast",
    "typing.Any",
    "typing.Union",
)


@dataclass
class WeightsFile:
    """Contents of a file of weights.

    Attributes:
        tensors: by their published names, whole.
        average: the averaged (EMA) weights, if it holds any: in the order of the published class's parameters, or by
            name.
        config: the configuration inside a training checkpoint.
        step: how far its training was.
    """

    file: Path
    tensors: dict[str, Tensor]
    average: list[Tensor] | dict[str, Tensor] | None = None
    config: dict[str, Any] | None = None
    step: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)


def open_weights(file: Path) -> WeightsFile:
    """The tensors of a file, or of all the files that an index names.

    Raises:
        InputError: truncated; changed since its checksum was written (SHA256SUMS); a pickle that names anything but
            tensors; no tensors.
    """
    if file.name.endswith(".index.json"):
        return _open_shards(file)
    check_sums(file.parent, file.name)
    if file.suffix == ".safetensors":
        tensors, metadata = load_tensors(file)
        return WeightsFile(file, tensors, metadata=metadata)
    return _from_pickle(file, unpickle(file))


class Index(TypedDict):
    """model.safetensors.index.json: which file holds which tensor."""

    weight_map: dict[str, str]


def _open_shards(index: Path) -> WeightsFile:
    files = sorted({*read_json(index, Index, "copy or download it again")["weight_map"].values()})
    if not all(Path(name).name == name for name in files):
        raise InputError(f"'{shown(index)}' names files outside its folder; copy or download it again")
    tensors: dict[str, Tensor] = {}
    for name in files:
        refuse_path("weight_map", name)
        tensors |= open_weights(index.parent / name).tensors
    return WeightsFile(index, tensors)


def unpickle(file: Path) -> Any:
    """Read a file of torch.save, if it holds tensors and plain values alone."""
    if not file.is_file():
        raise InputError(f"no file at '{shown(file)}'; copy or download the folder again")
    refuse_code(file, INERT)
    try:
        with torch.serialization.safe_globals([(Inert, name) for name in INERT]):
            return torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError:
        raise InputError(
            f"'{shown(file)}' is damaged or holds more than tensors; refused, nothing was run: copy or download it "
            "again"
        ) from None
    except Exception as problem:
        why = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        raise InputError(f"'{shown(file)}' is damaged ({why[:100].rstrip('.')}); copy or download it again") from None


def _from_pickle(file: Path, held: object) -> WeightsFile:
    if not isinstance(held, Mapping):
        raise InputError(f"'{shown(file)}' holds no tensors by name; give a checkpoint of a model")
    inside = next(
        (held[name] for name in ("state_dict", "model", "module") if isinstance(held.get(name), Mapping)), held
    )
    tensors = {str(name): value for name, value in inside.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(f"'{shown(file)}' holds no tensors by name; give a checkpoint of a model")
    config = as_values(held.get("hyper_parameters", {}))
    config = config.get("config", config) if isinstance(config, dict) else {}
    step = next((held[name] for name in ("global_step", "step", "n_iter") if isinstance(held.get(name), int)), None)
    return WeightsFile(file, tensors, _average(held, inside), config or None, step)


def _average(held: Mapping[str, Any], inside: Mapping[str, Any]) -> list[Tensor] | dict[str, Tensor] | None:
    """The averaged weights of a checkpoint, as a list or by name; they may be an entry of the state of the model."""
    average = held.get("ema", held.get("ema_state_dict", inside.get("ema_shadow_params")))
    if isinstance(average, Mapping) and "shadow_params" in average:
        average = average["shadow_params"]
    if isinstance(average, Mapping):
        average = average["state_dict"] if isinstance(average.get("state_dict"), Mapping) else average
        return {str(name): value for name, value in average.items() if isinstance(value, Tensor)} or None
    return [t for t in average if isinstance(t, Tensor)] or None if isinstance(average, (list, tuple)) else None


def as_values(value: object) -> Any:
    """Stand-ins of a configuration as dicts, lists and values."""
    if isinstance(value, Inert):
        state = value.state if isinstance(value.state, Mapping) else {}
        inside = state.get("_content", state.get("_val"))
        return as_values(inside)
    if isinstance(value, Mapping):
        return {str(k): as_values(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_values(v) for v in value]
    return value if isinstance(value, (bool, int, float, str)) else None
