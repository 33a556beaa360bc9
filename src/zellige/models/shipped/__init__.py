"""The models that come with Zellige, by name: beside this file a folder each, which `benchmarks/ship.py` makes of a run.

    zellige.load("text")

A folder is one that `Model.save` could have written, its weights in float16, with two files more: README.md, the card, and
card.json, the numbers and samples that stand in it with the commands that they came from.
"""

from pathlib import Path
from typing import Any

from ...schema import read_json

FOLDER = Path(__file__).parent
CARD = "card.json"


def names() -> list[str]:
    """The models that this installation has."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def find(name: str) -> Path | None:
    """The folder of a model by its name; None where it is not one of `names`."""
    return FOLDER / name if name in names() else None


def card(name: str) -> dict[str, Any]:
    """What is known of a model: `what` it writes, `options` of the sampler that it is shown with, `runs` with their numbers."""
    return read_json(FOLDER / name / CARD, dict, "install Zellige again")


def advice(model: Any) -> dict[str, Any]:
    """The options of `sample` that the card of a model from here draws with; {} for any other."""
    name = name_of(model)
    return card(name)["options"] if name else {}


def name_of(model: Any) -> str | None:
    """The name under which a model was loaded from here; None for any other."""
    source = getattr(model, "source", None)
    return source.name if source is not None and source.parent == FOLDER else None
