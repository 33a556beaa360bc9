"""Models on the Hugging Face hub: uploads, the model card, the files that AutoTokenizer reads.

    model.save_pretrained("out/")                    # what `save` writes, and README.md
    Model.from_pretrained("me/model", revision="v2")
    model.push_to_hub("me/model", license="mit")

The folder is the one format of Zellige (see `model`), so `zellige.load` reads it too. huggingface_hub is imported where
the hub is asked.
Where the tokens are those of the `tokenizers` library, `transformers.AutoTokenizer.from_pretrained(folder)` loads them,
with the mask as its mask token, under the number that the model's noise has for it.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .. import __version__
from ..base.errors import InputError
from ..base.schema import read_json
from ..data import DATASETS
from ..data.tokenizer import Tokens
from ..data.tokenizer_base import Tokenizer
from ..methods.method import Method
from .checkpoint.layout import CARD, EVALUATIONS

if TYPE_CHECKING:
    from .config import Config

MASK = "<|mask|>"
ID = re.compile(r"[\w.-]+/[\w.-]+")  # of a model: owner/model


class Shared(Protocol):
    """The parts of a model that its card describes."""

    method: Any
    tokenizer: Any
    config: Any
    about: dict[str, Any]
    source: Path | None


def complete(folder: Path, model: Shared, repo_id: str | None, license: str | None) -> None:
    """Add the model card to a saved model, and its results of `zellige evaluate` that lie beside its source."""
    for result in _results(model):
        shutil.copyfile(result, folder / result.name)
    (folder / CARD).write_text(card(model, repo_id, license) + "\n", encoding="utf-8")


def upload(save: Callable[[Path], None], repo_id: str, private: bool | None, token: str | None, **how: Any) -> str:
    """Upload the folder that `save` writes to the Hugging Face hub; returns the address.

    Args:
        how: as `HfApi.upload_folder` has it.

    Raises:
        InputError: not owner/model; no connection, or not logged in.
    """
    if not ID.fullmatch(repo_id):
        raise InputError(f"'{repo_id}' is not a name on the Hugging Face hub; it must be owner/model")
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        save(folder)
        try:
            api = HfApi(token=token)
            api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=folder, **how)
        except Exception as problem:
            reason = first_line(problem)
            raise InputError(
                f"'{repo_id}' cannot be written on the Hugging Face hub ({reason}); log in with: hf auth login"
            ) from problem
    return f"https://huggingface.co/{repo_id}"


def first_line(problem: BaseException) -> str:
    """Short description of an error."""
    lines = str(problem).strip().splitlines()
    return (lines[0].rstrip(".") if lines else type(problem).__name__)[:120]


# ---------------------------------------------------------------------------------------------------- AutoTokenizer
def complete_tokenizer(folder: Path, method: Method, tokenizer: Tokenizer) -> None:
    """Tell the tokenizer_config.json that `Tokens.save` wrote of the mask and of the length."""
    path = folder / "tokenizer_config.json"
    if not (isinstance(tokenizer, Tokens) and path.is_file()):
        return
    entries = read_json(path) | {"model_max_length": int(method.shape[0])}
    mask = None if method.process is None else method.process.mask
    if mask == tokenizer.known:  # transformers numbers a token that is not in the vocabulary after all others
        entries["mask_token"] = MASK
    elif mask is not None and mask < tokenizer.known:
        entries["mask_token"] = tokenizer.inner.id_to_token(mask)
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------------- the model card
def card(model: Shared, repo_id: str | None = None, license: str | None = None) -> str:
    """README.md of a model: system and paper, network, data and its licence, results with their intervals, how to load
    it.

    Everything stands in the model; only the licence of the weights is the author's to say.
    """
    method, tokenizer, config = model.method, model.tokenizer, model.config
    mask = None if method.process is None else method.process.mask
    page = (sys.modules[type(method).__module__].__doc__ or type(method).__doc__ or "").strip()
    title = " ".join(page.partition("\n\n")[0].split()).rstrip(".")
    name = repo_id or "PATH"
    text = tokenizer.kind in ("text", "smiles")
    tags = ["discrete-diffusion" if method.parameterization != "next" else "autoregressive", method.name]
    tags += [f"arxiv:{method.paper}"] if method.paper else []
    head = ["library_name: zellige", *([f"license: {license}"] if license else [])]
    head += ["pipeline_tag: text-generation"] if text else []
    source = DATASETS.get(config.data.name)
    corpus = f"{config.data.name}: {source.what}; licence of the data: {source.licence}" if source else config.data.name
    rows = {
        "System": title,
        "Paper": f"[arXiv {method.paper}](https://arxiv.org/abs/{method.paper})" if method.paper else "-",
        "Time": method.discrete_time or ("continuous" if method.process or method.time_conditioned else "-"),
        "Choices": ", ".join(f"{k} = {v}" for k, v in vars(config.options).items()) or "-",
        "Network": _network(config, method),
        "Tokenizer": f"{tokenizer.name}, {tokenizer.size:,} tokens{'' if mask is None else f', mask {mask}'}",
        "Data": corpus,
        "Training": f"{model.about['step']:,} steps" if "step" in model.about else "-",
    }
    table = [f"| {key} | {value} |" for key, value in rows.items()]
    lines = ["---", *head, "tags:", *(f"- {tag}" for tag in tags), "---", "", f"# {repo_id or method.name.upper()}", ""]
    lines += ["| | |", "|---|---|", *table, "", "## Results", "", *_numbers(model), "", "## Use", ""]
    # files that only its author has
    own = source is None or bool(config.data.mix or (config.data.path and not source.files and not source.hub))
    lines += [
        "```python",
        "# pip install zellige",
        "import zellige",
        "",
        f'model = zellige.load("{name}")',
        "print(zellige.sample(model, count=2, seed=0))",
        *([] if own else [f'print(zellige.evaluate(model, "{config.data.name}"))']),
        "```",
    ]
    owns = f"The weights: {license}." if license else "Of the weights: not stated by their author."
    of_data = f"Of the data: {source.licence}. " if source else ""
    lines += ["", "## Licence", "", f"{owns} {of_data}Zellige: Apache-2.0."]
    return "\n".join([*lines, "", f"Written by Zellige {__version__}."])


def _network(config: "Config", method: Method) -> str:
    count = f"{method.parameter_count:,} parameters"
    net, rounded = config.net, ", int8" if method.precision == "int8" else ""
    return f"{config.network or str(net)}, length {method.shape[0]:,}, {count}{rounded}"


def _results(model: Shared) -> list[Path]:
    """The files that `zellige evaluate` wrote beside a model: of int8 weights if the model has such, else of others."""
    files = [] if model.source is None else sorted(model.source.glob(EVALUATIONS))
    protocols = [read_json(file).get("protocol") for file in files]
    rounded = [isinstance(protocol, dict) and protocol.get("network") == "int8" for protocol in protocols]
    return [file for file, is_int8 in zip(files, rounded) if is_int8 == (model.method.precision == "int8")]


def _numbers(model: Shared) -> list[str]:
    """A table of these results, each with its interval and what was done for it."""
    rows: list[tuple[bool, str]] = []
    for path in _results(model):
        result = read_json(path)
        try:
            value, (low, high) = result["result"]["value"], (result["interval"][end] for end in ("low", "high"))
            about, protocol = result["result"].get("about") or {}, result.get("protocol") or {}
            sign = {"bound": "≤ ", "exact": "= "}.get(result.get("kind"), "")
            on = " ".join(str(about[key]) for key in ("data", "split") if about.get(key)) or path.stem
            number = f"{sign}{value:.3f} ± {(high - low) / 2:.3f} {result['unit']}"
            partial = result["result"].get("partial")
            part = f", a partial result: {partial}" if partial else ""
            draws = f", {protocol['draws']} draws, seed {result.get('seed')}" if "draws" in protocol else ""
            rows.append((bool(partial), f"| {Path(on).name}{part} | {number} | {protocol.get('name', '-')}{draws} |"))
        except (ValueError, KeyError, TypeError):  # something else, or of another version
            continue
    if not rows:
        return ["Not evaluated yet: `zellige evaluate` writes its results beside the model."]
    return [
        "| data | 95% interval | protocol |",
        "|---|---|---|",
        *(row for _, row in sorted(rows, key=lambda row: row[0])),  # partial ones last
        "",
        "How each was made: the `evaluate-*.json` beside.",
    ]
