"""The classes that the samples of `zellige evaluate --generate` are told: which, and how that is said."""

from typing import Any


def classes_of(chosen: Any, model: Any) -> list[int]:
    """The numbers of the classes asked for, `all` of them if that is none's name; [] where none is told."""
    from ...models.model import class_names, find_classes

    if not chosen.classes or model is None:
        return []
    names = class_names(model)
    every = chosen.classes == ("all",) and names and "all" not in names
    return [*range(len(names))] if every else find_classes(model, chosen.classes).tolist()


def told_classes(chosen: Any, model: Any) -> dict[str, str]:
    """What the protocol says of a model with classes: which ones its samples were told, one after another; or none."""
    from ...models.model import class_names

    if model is None or chosen.samples or not (names := class_names(model)):
        return {}
    asked = [names[i] for i in classes_of(chosen, model)]
    listed = "all in turn" if asked == names else f"{', '.join(asked)}{' in turn' if len(asked) > 1 else ''}"
    return {"class": f"given the class, {listed}" if asked else "without the class"}
