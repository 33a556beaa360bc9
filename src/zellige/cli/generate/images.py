"""`zellige evaluate MODEL --generate` of images: FID and its kin beside real images of the same number."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data import Data
from ...errors import InputError
from ...show.numbers import byte_size
from ...show.progress import Bar
from ...show.record import json_record
from ...show.terminal import Terminal
from ..common import Document, note_change
from . import files
from .classes import classes_of, told_classes
from .draw import draw, ways_of

if TYPE_CHECKING:
    from ...evaluation.image_features import Features
    from ...evaluation.sweep import Set

OF_TEXT = ("judge", "tokens", "first", "eos", "long", "context", "mauve", "cheats", "distances", "no-distances")
FEATURES = "inception"


def generate_images(
    chosen: Any, data: Data | None, flags: set[str], model: Any, folder: Path | None, terminal: Terminal, began: float
) -> Document:
    """The command, of a model that makes images; `chosen` are its options, `flags` those given, `data` None for the run's own."""
    wrong = next((name for name in OF_TEXT if f"--{name}" in flags), None)
    if wrong is not None:
        raise InputError(f"--{wrong} is about texts, and this model makes images; leave it out")
    from ...evaluation import image_quality, sweep
    from ...evaluation.image_features import features_of

    ways, classes = ways_of(chosen, model), classes_of(chosen, model)
    sets: list[Set] = sweep.read_samples(chosen.samples, model) if chosen.samples else []
    device = next(model.method.parameters()).device
    with terminal.waiting("loading the features"):
        features = features_of(chosen.features or FEATURES, device)
    number = min((len(one.texts) for one in sets), default=chosen.count)
    reference, floor = real_images(chosen.reference, model, data, number, classes, terminal)
    image_quality.check_enough(number, len(reference[1]), features.width)
    sets = sets or draw(chosen, model, ways, folder, terminal)
    points, real = _scored(model, features, sets, reference[1], floor, chosen.seed, terminal)
    arguments = {name: value for name, value in files.arguments(chosen, data).items() if name not in OF_TEXT}
    document = _document(chosen, arguments, model, features, points, real, reference, time.monotonic() - began)
    files.publish(terminal, folder, document, chosen, bool(ways))
    return document


def real_images(
    split: str, model: Any, data: Any, number: int, classes: list[int], terminal: Terminal
) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The reference, and as many real images of another split as there are samples, to stand beside: names and rows.

    Where the samples are told classes, both are images of these.
    """
    from ...data.rows import evenly_spaced
    from ...evaluation.corpus import asked_of_classes, beside_training, corpus_of
    from ...models.model import class_names

    if split == "none":
        raise InputError("FID compares with real images; give --reference train or test")
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    note_change(terminal, {"sha256": corpus.about.get("sha256")} | beside_training(model, corpus))
    name, other = corpus.about["name"], "train" if split != "train" else "test"

    def of_classes(part: str, most: int | None = None) -> tuple[str, Any]:
        rows, _ = asked_of_classes(model, corpus, part, unconditional=not classes)
        if not classes:
            return f"{name} {part}", rows.array(most)
        if rows.labels is None:
            raise InputError(
                f"the samples have classes, and {name} comes without; give --data.labels, or leave out --class"
            )
        some = "" if len(set(classes)) == len(class_names(model)) else " of these classes"
        import numpy as np

        return f"{name} {part}{some}", evenly_spaced(rows.array()[np.isin(rows.labels, classes)], most)

    return of_classes(split), of_classes(other, number)


def _scored(
    model: Any, features: "Features", sets: "list[Set]", reference: Any, floor: tuple[str, Any], seed: int, terminal: Terminal
) -> tuple[list[dict[str, Any]], dict[str, Any]]:  # fmt: skip
    """Each set, and the real images that stand beside, as JSON has it."""
    from ...evaluation import metrics, sweep
    from ...show import kinds

    kind: Any = kinds.of(model.tokenizer)
    beside = sweep.Set(sweep.Way(), [], floor[1].tolist())
    with Bar(terminal, "look", 1, "images") as bar:
        every, done = len(reference) + sum(len(one.rows or ()) for one in [*sets, beside]), 0
        seen = []
        for rows in (reference, *(one.rows for one in sets), floor[1]):
            rows = sweep.checked_images(rows, model.tokenizer)
            show = lambda n, _, done=done: bar.update(done + n, total=every)  # noqa: E731
            seen.append(features.views(kind.pixels(rows), show))
            done += len(rows)
    with terminal.waiting("comparing"):
        measured = [metrics.measure_images(views, seen[0], seed) for views in seen[1:]]
    points = [sweep.image_point(one, measures) for one, measures in zip([*sets, beside], measured)]
    return points[:-1], {"name": floor[0]} | points[-1]


def _document(
    chosen: Any, arguments: Document, model: Any, features: "Features", points: list[dict], real: dict,
    reference: tuple[str, Any], seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """The result as JSON."""
    from ...evaluation import image_quality, metrics, sweep
    from ...models.model import identity

    about = identity(model)
    protocol = {
        "name": image_quality.PROTOCOL, "features": features.about, "library": image_quality.library(),
        "reference": f"{reference[0]}, {len(reference[1]):,} images", "images": model.tokenizer.describe(),
        **told_classes(chosen, model), "draws": sweep.DRAWS if not chosen.samples else f"samples of {chosen.samples}",
        "network": model.method.precision, "weights": about["weights"],
        **metrics.definitions(points[0]["measures"]), "streams": "sample i of every set has the stream of (seed, i)",
    }  # fmt: skip
    result = {"points": points, "real": real, "about": about | {"length": int(model.method.shape[0])}}
    return json_record(
        "evaluate", arguments, result,
        interval={"level": 0.95, "method": metrics.intervals(points[0]["measures"])}, unit="FID", kind="samples",
        protocol=protocol, seed=chosen.seed, seconds=seconds,
    )  # fmt: skip
