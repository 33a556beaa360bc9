"""Guidance to the class of a request."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..models.classifier import classifier_of
from ..samplers.guidance import ByClassifier, ClassifierFree


def guide(
    model: Any, guidance: float | None, classifier: Any, labels: Any, first_order: bool = False
) -> tuple[Callable[[Any], Any] | None, Any]:
    """The wrapper that a request for samples asks for (None: none), and whose classes its labels are.

    Args:
        guidance: the strength; None: 1.
        classifier: a folder, a `NoisyClassifier`, or None for classifier-free guidance.
        labels: the classes that are asked for; None without any.

    Raises:
        InputError: guidance without a class, or by a model without classes; a classifier of other tokens or other
            noise.
    """
    if classifier is None:
        if first_order:
            raise InputError("`first_order` is an option of guidance by a `classifier`; leave it out")
        if guidance is None:
            return None, model
        if labels is None:
            raise InputError("`guidance` needs a class to guide to; give `class`")
        if guidance == 1.0:
            return None, model  # the model given its class, at half the cost
        return lambda method: ClassifierFree(method, guidance), model
    if labels is None:
        raise InputError("`classifier` needs a class to guide to; give `class`")
    if isinstance(classifier, str | Path):
        classifier = classifier_of(model, classifier)
    strength = 1.0 if guidance is None else guidance
    return lambda method: ByClassifier(method, classifier, strength, first_order=first_order), classifier
