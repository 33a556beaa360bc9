"""Which sampler can draw from which method, with how many steps, and from which distribution; and which number bounds it.

A model of continuous time and its T-step models are several distributions, and the bound of one is none of another: few steps
draw positions together that continuous time draws one after another.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..core.process import Mixture, Process
from ..methods.method import Method

CONTINUOUS = "the model of continuous time"


@dataclass(frozen=True)
class Distribution:
    """Whose distribution it is, and the arguments with which `evaluate` bounds -log p of it; None where no number does."""

    of: str
    number: Mapping[str, Any] | None = None


def steps_distribution(method: Method, steps: int, own: int) -> Distribution:
    """Of the model of so many steps; `own`: T of a method that has steps of its own, 0 for continuous time."""
    number = {"steps": steps} if not own else {} if steps == own else None
    return Distribution(f"the model of {steps:,} steps", number)


def continuous_distribution(method: Any) -> Distribution:
    """Of the model of continuous time; one that has steps of its own is bounded as such, and else in any order if at all."""
    if not method.steps:
        return Distribution(CONTINUOUS, {})
    return Distribution(CONTINUOUS, {"estimator": "any_order"} if "any_order" in method.estimators() else None)


def distribution_of(sampler: Any, method: Method, steps: int | None = None) -> Distribution:
    """Whose distribution the sampler draws texts of the model's own length from, in `steps` steps, and which number bounds
    it."""
    distribution = sampler.distribution(method, steps)
    if sampler.temperature != 1.0 or sampler.guided(method) is not method:
        return Distribution(f"{distribution.of}, changed by its temperature, top-p or top-k")
    return replace(distribution, number=None) if method.shape[0] != method.window else distribution


M = TypeVar("M", bound=Method)


STEPS = 64  # of a sampler where nobody says how many, and the model has no number of its own


def usual_steps(method: Method) -> int:
    """How many steps a sampler takes where nobody says: T of the model's own chain, whose grid is `method.grid(T)`."""
    return method.steps or STEPS


def ticks(method: Method) -> int:
    """T where no other times exist than i/T, and a chain is a part of that grid; 0 where a closed form knows every time.

    No more than that: how many steps the model itself has is `method.steps`.
    """
    return getattr(method.process, "T", 0)


def divisors(T: int, steps: int) -> list[int]:
    """The divisors of T, nearest to `steps` first (by their ratio)."""
    return sorted((d for d in range(1, T + 1) if T % d == 0), key=lambda d: abs(math.log(d / steps)))


def admissible(method: Method, steps: int) -> int:
    """The number of steps nearest to `steps` of a chain that the model has: of T steps of its own, T at most.

    Where no times exist but i/T, a divisor of T.
    """
    if ticks(method):
        return divisors(ticks(method), steps)[0]
    return min(steps, method.steps or steps)


def of_length(method: M, length: int) -> M:
    """Itself where texts have `length` tokens; else the same method for such texts (`Method.of_length`)."""
    return method if method.shape == (length,) else method.of_length(length)


def blank(method: Method) -> int | None:
    """What stands where no token is yet: the mask, after the tokens where nothing is noised; None where noise is tokens too."""
    return method.vocabulary if method.parameterization == "next" else getattr(method.process, "blank", None)


def at_once(method: Method) -> str | None:
    """A reason to refuse: a text is drawn as a whole, and the network reads one block after another."""
    return "draws all of a text at once, this network block after block" if 0 < method.block < method.shape[0] else None


def reverses(method: Method) -> str | None:
    """A reason to refuse: there is no process whose reverse could be drawn."""
    return "needs a process to reverse" if method.process is None else at_once(method)


def absorbs(method: Method, one: bool = False) -> str | None:
    """A reason to refuse: the process is not absorbing; or (`one`) its tokens do not share one alpha."""
    process = method.process
    if not isinstance(process, Mixture) or process.mask is None:
        return "needs absorbing noise"
    return at_once(method) if one_alpha(process) or not one else "needs one alpha for all tokens"


def rateless(method: Method) -> str | None:
    """A reason to refuse: there is no process, or its time is discrete."""
    if why := reverses(method):
        return why
    rate = getattr(type(method.process), "rate", None)
    discrete = ticks(method) or rate is Process.rate
    return "needs a rate, which discrete time has not" if discrete else None


def one_alpha(process: Process) -> bool:
    """Whether the process has a schedule that all its tokens share."""
    schedule = getattr(process, "schedule", None)
    return schedule is not None and schedule.alpha(process.prior.new_ones(())).shape[-1] == 1


def scores_masks(method: Method) -> bool:
    """Whether `ask_then_choose` has the distribution of the kernel: absorbing noise with one alpha, and a score."""
    return absorbs(method, one=True) is None and method.parameterization == "score"


def choosable(method: Method) -> bool:
    """Whether `choose_then_ask` has the distribution of the kernel: absorbing noise, and a prediction that is a distribution.

    A score is not: how much it says in all decides how likely a mask is revealed.
    """
    return absorbs(method) is None and method.parameterization != "score"
