"""The models that come with Zellige, by name: a folder each beside this file, made of a run by
`studies/included-models/ship.py`.

    zellige.load("stories")

A folder is one that `Model.save` could have written, its weights in float16, with files more: README.md, the card;
card.json, the numbers and samples that stand in it with the commands that they came from; and log.csv, the training
step by step, where its metrics.csv was kept.
"""

from pathlib import Path
from typing import Any

from ...base.schema import read_json

FOLDER = Path(__file__).parent
CARD = "card.json"
LOG = "log.csv"  # metrics.csv of the training, thinned


def names() -> list[str]:
    """The models that this installation has."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def find(name: str) -> Path | None:
    """The folder of a model by its name; None where it is not one of `names`."""
    return FOLDER / name if name in names() else None


def card(name: str) -> dict[str, Any]:
    """Facts about a model: `what` it writes, `runs` with their numbers."""
    return read_json(FOLDER / name / CARD, dict, "install Zellige again")


def name_of(model: object) -> str | None:
    """The name under which a model was loaded from here; None for any other."""
    source = getattr(model, "source", None)
    return source.name if source is not None and source.parent == FOLDER else None
