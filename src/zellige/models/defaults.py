"""A model's sampling defaults: generation_config.json beside its weights, as in transformers.

    {"zellige": "0.2.0", "sampler": "confidence", "steps": 81, "temperature": 0.7}

The entries are the fields of `decoding.Decoding` and the options of a sampler. The entry `infill` has different values
for filling in, where tokens are given: {"temperature": 0.7, "infill": {"temperature": 0}}, since a puzzle has one
solution.

`sample`, `watch`, `infill`, `pipeline`, `serve` and `play` use the defaults, and so do the samples of a training.
Measurements do not: a likelihood, a comparison and an evaluation of samples are of the model's own distribution unless
their options say otherwise.

A model of text that is trained here has the defaults of `for_text`. Temperature 0.7 or 0.8 and top-p 0.9 are usual
(llama2.c samples at top-p 0.9, nanoGPT at temperature 0.8): at temperature 1 small models make up words.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..base.arguments import of_kind
from ..base.errors import InputError
from ..base.schema import parse, read_text, shown, structure, unknown_entry
from ..base.trust import reading
from ..data.tokenizer import Integers
from ..data.tokenizer_base import Tokenizer
from ..methods.method import Method
from ..samplers import Blockwise, Confidence, every_option, find, of_length, options_of
from .checkpoint.layout import GENERATION
from .checkpoint.read import check_sums
from .config import AGAIN
from .decoding import DECODING, INFILL, Decoding


def names() -> tuple[str, ...]:
    """The entries of a generation_config.json: the fields of `Decoding`, every option of a sampler, and `infill`."""
    return (*dict.fromkeys((*DECODING, *every_option())), INFILL)


def check_defaults(values: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """Return the sampling defaults that are given; InputError where `method` does not support them."""
    if not isinstance(values, Mapping):
        raise InputError(f"`defaults` is {of_kind(values)}; it must hold sampling defaults by name")
    if not values:
        return {}
    _refuse_unknown(values, names(), "the sampling defaults have")
    entries = {name: value for name, value in values.items() if value is not None}
    of_infill = entries.pop(INFILL, {})
    if not isinstance(of_infill, Mapping):
        raise InputError(f"`infill` of the sampling defaults is {of_kind(of_infill)}; it must hold defaults by name")
    _refuse_unknown(of_infill, names()[:-1], "`infill` of the sampling defaults has")
    of_infill = {name: value for name, value in of_infill.items() if value is not None}
    for options in (entries, entries | of_infill):
        decoding = Decoding.of(**options)
        decoding.sampler_for(method).times(method, decoding.steps)
    return entries | ({INFILL: of_infill} if of_infill else {})


def _refuse_unknown(entries: Mapping[str, Any], known: Sequence[str], who: str) -> None:
    """Raise InputError where an entry is none of those that are known."""
    for name in entries:
        if name not in known:
            raise unknown_entry(name, known, who)


def for_text(method: Method, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return sampling defaults by which a small model of text reads well; {} where the tokens are no running text.

    Masked text is written most confident first, in blocks where the network has them. Methods that have no masks, or no
    choice of what comes first, have their own sampler.
    """
    if tokenizer.kind != "text" or tokenizer.shape or isinstance(tokenizer, Integers):
        return {}
    if method.parameterization == "next":
        return {"temperature": 0.8, "top_p": 0.9}
    truncation = {"temperature": 0.7, "top_p": 0.9}
    if (
        method.block > 1
        and not Blockwise.reason_against(method)
        and not Confidence.reason_against(of_length(method, 1))
    ):
        return {"block_sampler": Confidence.name, "confidence": "entropy", **truncation}
    if not Confidence.reason_against(method):
        return {"sampler": Confidence.name, "confidence": "entropy", **truncation}
    own_options = options_of(find(getattr(method, "sampler", "ancestral")))
    return {name: value for name, value in truncation.items() if name in own_options}


def write_defaults(folder: Path, defaults: Mapping[str, Any]) -> None:
    """Write generation_config.json into a model's folder; no file without defaults."""
    if defaults:
        text = json.dumps({"zellige": __version__, **defaults}, indent=1)
        (folder / GENERATION).write_text(text + "\n", encoding="utf-8")


def read_defaults(folder: Path, method: Method, ours: bool = True) -> dict[str, Any]:
    """Return the sampling defaults in a model's folder; {} without any.

    Args:
        ours: the folder is Zellige's own, and its checksums are compared; beside a model in a layout of others only a
            file that Zellige wrote is read.

    Raises:
        InputError: the file is damaged or changed, has an unknown entry, or a value that does not go with the model.
    """
    path = folder / GENERATION
    if not path.is_file():
        return {}
    source = f"'{shown(path)}'"
    text = read_text(path, AGAIN)
    if not ours:
        if '"zellige"' not in text:
            return {}
        check_sums(folder, GENERATION)
    entries = dict(structure(parse(text, source, AGAIN), dict, source))
    entries.pop("zellige", None)
    _refuse_unknown(entries, names(), f"{source} has")
    try:
        with reading(shown(path)):  # which may name a sampler of another package
            return check_defaults(entries, method)
    except InputError as error:
        message = str(error).replace("`", "")
        raise InputError(message if message.startswith(source) else f"{source}: {message}") from None
