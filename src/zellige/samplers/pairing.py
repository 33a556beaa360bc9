"""Which sampler supports which method, with how many steps, from which distribution it samples, and which number bounds that.

A continuous-time model and its T-step models are different distributions, and the bound of one is no bound of another: few
steps sample positions together that continuous time samples one after another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..core.process import Mixture, Process
from ..grids import CHAINS
from ..methods.method import Method

CONTINUOUS = "the model of continuous time"


@dataclass(frozen=True)
class Distribution:
    """Name of a sampled distribution, and the arguments with which `evaluate` bounds its -log p; None if no number does."""

    of: str
    number: Mapping[str, Any] | None = None


def steps_distribution(steps: int, own: int, grid: str = "uniform") -> Distribution:
    """Distribution of the model of `steps` steps on a grid; `own` is T of a method with steps of its own, 0 for continuous
    time.

    Fewer steps than T are a coarse chain of it, which has a bound; more are no part of the model.
    """
    uniform = grid == "uniform"
    of = f"the model of {steps:,} steps" + ("" if uniform else f" on the grid {grid}")
    number = {} if steps == own and uniform else {"steps": steps} | ({} if uniform else {"grid": grid})
    return Distribution(of, number if grid in CHAINS and (not own or steps <= own) else None)


def continuous_distribution(method: Method) -> Distribution:
    """Distribution of the continuous-time model. One with steps of its own is bounded in any order, if at all."""
    if not method.steps:
        return Distribution(CONTINUOUS, {})
    return Distribution(CONTINUOUS, {"estimator": "any_order"} if "any_order" in method.estimators() else None)


M = TypeVar("M", bound=Method)


STEPS = 64  # of a sampler by default, if the model has no number of its own


def usual_steps(method: Method) -> int:
    """Default number of steps of a sampler: T of the model's own chain, whose grid is `method.grid(T)`."""
    return method.steps or STEPS


def ticks(method: Method) -> int:
    """T if no times exist but i/T, so that a chain takes part of that grid; 0 if a closed form exists for every time.

    The model's own number of steps is `method.steps`.
    """
    return getattr(method.process, "T", 0)


def admissible(method: Method, steps: int) -> int:
    """The number of steps nearest to `steps` that the model supports: T at most, if it has T steps of its own."""
    return min(steps, method.steps or steps)


def of_length(method: M, length: int) -> M:
    """Return the method for sequences of `length` tokens (`Method.of_length`); itself if that is its length."""
    return method if method.shape == (length,) else method.of_length(length)


def blank(method: Method) -> int | None:
    """State of a position without a token: the mask; V without a process; None if noise consists of tokens."""
    without = method.parameterization in ("next", "insertion")
    return method.vocabulary if without else getattr(method.process, "blank", None)


def at_once(method: Method, mixture: bool = False) -> str | None:
    """Reason to refuse: the sampler writes a text as a whole, and the network reads block after block.

    Or the model has a latent, which only a sampler of a `mixture` draws.
    """
    if not mixture and getattr(method, "latents", 0):
        return "draws no latent, and this model is a mixture over one"
    return "draws all of a text at once, this network block after block" if 0 < method.block < method.shape[0] else None


def reverses(method: Method, mixture: bool = False) -> str | None:
    """Reason to refuse: there is no process to reverse."""
    return "needs a process to reverse" if method.process is None else at_once(method, mixture)


def absorbs(method: Method, one: bool = False, mixture: bool = False) -> str | None:
    """Reason to refuse: the process is not absorbing, or (`one`) its tokens do not share one alpha."""
    process = method.process
    if not isinstance(process, Mixture) or process.mask is None:
        return "needs absorbing noise"
    return at_once(method, mixture) if one_alpha(process) or not one else "needs one alpha for all tokens"


def rateless(method: Method) -> str | None:
    """Reason to refuse: there is no process, or its time is discrete."""
    if why := reverses(method):
        return why
    rate = getattr(type(method.process), "rate", None)
    discrete = ticks(method) or rate is Process.rate
    return "needs a rate, which discrete time has not" if discrete else None


def one_alpha(process: Process) -> bool:
    """Return whether the process has a schedule that all tokens share."""
    schedule = getattr(process, "schedule", None)
    return schedule is not None and schedule.alpha(process.prior.new_ones(())).shape[-1] == 1


def scores_masks(method: Method) -> bool:
    """Return whether `predict_then_choose` samples from the kernel: absorbing noise with one alpha, and a score."""
    return absorbs(method, one=True) is None and method.parameterization == "score"


def unnormalised(method: Method) -> str | None:
    """Reason to refuse: the network gives no distribution, or guidance makes it none."""
    other = {"score": "a score", "tilted": "a guided one"}.get(method.parameterization)
    return f"needs a prediction that is a distribution, not {other}" if other else None


def choosable(method: Method) -> bool:
    """Return whether `choose_then_predict` samples from the kernel: absorbing noise, and a normalised prediction.

    A score is not normalised: its total determines how likely a mask is revealed; and so it is where a classifier guides.
    """
    return absorbs(method, mixture=True) is None and unnormalised(method) is None
