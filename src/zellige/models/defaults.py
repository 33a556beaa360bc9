"""How a model is sampled where nobody says otherwise: generation_config.json beside its weights, as in transformers.

    {"zellige": "0.2.0", "sampler": "confidence", "steps": 81, "temperature": 0.7}

The entries are arguments of `zellige.sample`. What draws for people takes them (`sample`, `watch`, `infill`, `pipeline`, `serve`,
`play`); what measures a model does not: a likelihood, a comparison, samples that are judged are of the model's own distribution
unless their options say otherwise.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from ..arguments import checked
from ..errors import InputError, check_counts
from ..methods.method import Method
from ..samplers import choose_sampler, every_option
from ..samplers.grid import step_size
from ..schema import parse, read_text, shown, structure
from .checkpoint.read import check_sums
from .config import AGAIN, refuse_unknown

GENERATION = "generation_config.json"  # of a model's folder
STEPS = 1_000_000  # at most, of a sampler


PLAIN = ("sampler", "steps", "temperature", "top_p")  # arguments of every sampling; the others are options of a sampler


def names() -> tuple[str, ...]:
    """What generation_config.json may hold: the plain arguments and every option of a sampler."""
    return tuple(dict.fromkeys((*PLAIN, *every_option())))


@checked
def check_steps(steps: int | None) -> None:
    """InputError where a sampler cannot take so many steps."""
    if steps is None:
        return
    check_counts(steps=steps)
    if steps > STEPS:
        raise InputError(f"`steps` is {steps:,}; it must be at most {STEPS:,}")


def check_defaults(values: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """Sampling defaults as a dict of those that are given; InputError where `method` cannot be sampled so."""
    refuse_unknown(values, names(), "the sampling defaults have")
    entries = {name: value for name, value in values.items() if value is not None}
    check_steps(entries.get("steps"))
    options = {name: value for name, value in entries.items() if name not in PLAIN}
    sampler = choose_sampler(
        entries.get("sampler"), method, entries.get("temperature", 1.0), entries.get("top_p", 1.0), options
    )
    sampler.times(method, entries.get("steps"))
    return entries


def write_defaults(folder: Path, defaults: Mapping[str, Any]) -> None:
    """Write generation_config.json into a model's folder; nothing where there are none."""
    if defaults:
        text = json.dumps({"zellige": __version__, **defaults}, indent=1)
        (folder / GENERATION).write_text(text + "\n", encoding="utf-8")


def read_defaults(folder: Path, method: Method, ours: bool = True) -> dict[str, Any]:
    """The sampling defaults that lie beside a model; {} where there are none.

    Args:
        ours: the folder is Zellige's own; beside a model in a layout of others only a file that Zellige wrote is read.

    Raises:
        InputError: the file is damaged or changed, has an unknown entry, or a value that does not go with the model.
    """
    path = folder / GENERATION
    if ours:
        check_sums(folder, GENERATION)
    if not path.is_file():
        return {}
    source = f"'{shown(path)}'"
    text = read_text(path, AGAIN)
    if not ours and '"zellige"' not in text:
        return {}
    check_sums(folder, GENERATION)
    entries = dict(structure(parse(text, source, AGAIN), dict, source))
    entries.pop("zellige", None)
    refuse_unknown(entries, names(), f"{source} has")
    try:
        return check_defaults(entries, method)
    except InputError as error:
        message = str(error).replace("`", "")
        raise InputError(message if message.startswith(source) else f"{source}: {message}") from None


def with_defaults(model: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `sample` with the defaults that the model carries for those of which nothing is said.

    Who names another sampler asks for none of the options and steps of the model's; who gives the size of the steps, not for
    their number; a sampler that is made already has all of its own.
    """
    asked = {name: value for name, value in arguments.items() if value is not None or name not in PLAIN}
    carried = dict(getattr(model, "defaults", {}))
    sampler = asked.get("sampler")
    if sampler is not None and not isinstance(sampler, str):
        return asked
    if any(name in asked and asked[name] != carried.get(name) for name in ("sampler", "block_sampler")):
        carried = {name: carried[name] for name in ("temperature", "top_p") if name in carried}
    grid = asked.get("grid")
    if isinstance(grid, str) and step_size(grid) is not None:
        carried.pop("steps", None)
    return carried | asked


def end_token(tokenizer: Any, documents: bool = False) -> int | None:
    """The token that ends a text, where the tokenizer has one.

    Of characters none does; but a line end ends a molecule, and the text of a model that was trained on `documents`.
    """
    token = getattr(tokenizer, "separator", None)
    ends = getattr(tokenizer, "unit", "token") == "token" or getattr(tokenizer, "kind", "text") == "smiles"
    return token if ends or (documents and token is not None and tokenizer.decode([token]) != " ") else None
