"""Whose law a sampler draws from, and which number bounds it: of each sampler with its options, and each method.

A model of continuous time and its T-step models are several laws, and the bound of one is none of another: few steps draw
positions together that continuous time draws one after another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..methods.method import Method

CONTINUOUS = "the model of continuous time"


@dataclass(frozen=True)
class Law:
    """Whose law it is, and the arguments with which `evaluate` bounds -log p of it; None where no number does."""

    of: str
    number: Mapping[str, Any] | None = None


def steps_law(method: Method, steps: int, own: int) -> Law:
    """Of the model of so many steps; `own`: T of a method that has steps of its own, 0 for continuous time."""
    number = {"steps": steps} if not own else {} if steps == own else None
    return Law(f"the model of {steps:,} steps", number)


def continuous_law(method: Any) -> Law:
    """Of the model of continuous time; one that has steps of its own is bounded as such, and else in any order if at all."""
    if not method.steps:
        return Law(CONTINUOUS, {})
    return Law(CONTINUOUS, {"estimator": "any_order"} if "any_order" in method.estimators() else None)


def law_of(sampler: Any, method: Method, steps: int | None = None) -> Law:
    """Whose law the sampler draws texts of the model's own length from, in `steps` steps, and which number bounds it."""
    law = sampler.law(method, steps)
    if sampler.temperature != 1.0 or sampler.guided(method) is not method:
        return Law(f"{law.of}, changed by its temperature, top-p or top-k")
    return replace(law, number=None) if method.shape[0] != method.window else law
