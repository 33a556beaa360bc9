"""Which sampler supports which method, with how many steps, from which distribution it samples, and which number bounds
that.

A continuous-time model and its T-step models are different distributions, and the bound of one is no bound of another:
few steps sample positions together that continuous time samples one after another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..base.errors import InputError
from ..base.requests import CHAINS
from ..core.process import Mixture, Process
from ..methods.method import Method


@dataclass(frozen=True)
class Distribution:
    """A distribution of texts.

    Attributes:
        key: names it among the distributions of a model; only keys are compared.
        text: the same in words, for print alone.
        number: arguments with which `evaluate` bounds its -log p; None if no number does.
    """

    key: str
    text: str
    number: Mapping[str, Any] | None = None

    def changed(self, key: str, text: str, number: Mapping[str, Any] | None = None) -> "Distribution":
        """Another distribution, made from this one."""
        return Distribution(f"{self.key}, {key}", f"{self.text}, {text}", number)

    @property
    def protocol(self) -> dict[str, Any]:
        """Entries of a record's protocol."""
        return {"distribution": self.text, "distribution_key": self.key}

    @classmethod
    def of_protocol(cls, protocol: Mapping[str, Any], number: Mapping[str, Any] | None = None) -> "Distribution | None":
        """The distribution of a record's protocol; None if it has none."""
        key = protocol.get("distribution_key")
        return None if key is None else cls(key, protocol["distribution"], number)


CONTINUOUS = Distribution("continuous", "the model of continuous time")
AUTOREGRESSION = Distribution("autoregression", "autoregression")
CHAIN = Distribution("chain", "its chain, after many proposals")  # of Metropolis-Hastings
NEAR_CONTINUOUS = Distribution("near continuous", "near the model of continuous time, to order 1 in 1/steps")
OWN = Distribution("own", "its own")
BLOCKS = ("blocks", "block after block")


def steps_distribution(steps: int, own: int, grid: str = "uniform") -> Distribution:
    """Distribution of the model of `steps` steps on a grid; `own` is T of a method with steps of its own, 0 for
    continuous time.

    Fewer steps than T are a coarse chain of it, which has a bound; more are no part of the model.
    """
    uniform = grid == "uniform"
    key = f"steps {steps}" + ("" if uniform else f" {grid}")
    text = f"the model of {steps:,} steps" + ("" if uniform else f" on the grid {grid}")
    return Distribution(
        key, text, steps_number(steps, own, grid) if grid in CHAINS and (not own or steps <= own) else None
    )


def steps_number(steps: int, own: int, grid: str) -> dict[str, Any]:
    """Arguments of `evaluate` for the model of `steps` steps on a grid; {} for the `own` steps of a method."""
    if grid == "uniform":
        return {} if steps == own else {"steps": steps}
    return {"steps": steps, "grid": grid}


def continuous_distribution(method: Method) -> Distribution:
    """Distribution of the continuous-time model. One with steps of its own is bounded in any order, if at all."""
    by_order = {"estimator": "any_order"} if "any_order" in method.estimators() else None
    return replace(CONTINUOUS, number=by_order if method.steps else {})


M = TypeVar("M", bound=Method)


STEPS = 64  # of a sampler by default, if the model has no number of its own


def usual_steps(method: Method) -> int:
    """Default number of steps of a sampler: T of the model's own chain, whose grid is `method.grid(T)`."""
    return method.steps or STEPS


def count_of_steps(steps: int | None, usual: int) -> int:
    """Number of steps that is asked for, the usual one for None. Raises InputError below 1."""
    steps = usual if steps is None else steps
    if steps < 1:
        raise InputError(f"`steps` is {steps}; it must be 1 or more")
    return steps


def discrete_times(method: Method) -> int:
    """T if the noise has no other times than i/T, so that a chain takes some of them; else 0.

    `method.steps` is another number, that of the model's own steps, which continuous noise may have too.
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
    """Reason against a method: the sampler writes a text as a whole, and the network reads block after block.

    Or the model has a latent, which only a sampler of a `mixture` draws.
    """
    if not mixture and getattr(method, "latents", 0):
        return "draws no latent, and this model is a mixture over one"
    return (
        "samples a whole text at once, and this model block after block" if 0 < method.block < method.shape[0] else None
    )


def irreversible(method: Method, mixture: bool = False) -> str | None:
    """Reason against a method: there is no process to reverse."""
    return "needs a process to reverse" if method.process is None else at_once(method, mixture)


def not_absorbing(method: Method, one: bool = False, mixture: bool = False) -> str | None:
    """Reason against a method: the process is not absorbing, or (`one`) its tokens do not share one alpha."""
    process = method.process
    if not isinstance(process, Mixture) or process.mask is None:
        return "needs absorbing noise"
    return "needs one alpha for all tokens" if one and not one_alpha(process) else at_once(method, mixture)


def rateless(method: Method) -> str | None:
    """Reason against a method: there is no process, or its time is discrete."""
    if why := irreversible(method):
        return why
    rate = getattr(type(method.process), "rate", None)
    discrete = discrete_times(method) or rate is Process.rate
    return "needs continuous time, and this method has discrete steps" if discrete else None


def one_alpha(process: Process) -> bool:
    """Return whether the process has a schedule that all tokens share."""
    schedule = getattr(process, "schedule", None)
    return schedule is not None and schedule.alpha(process.prior.new_ones(())).shape[-1] == 1


def scores_masks(method: Method) -> bool:
    """Return whether `predict_then_choose` samples from the kernel: absorbing noise with one alpha, and a score."""
    return not_absorbing(method, one=True) is None and method.parameterization == "score"


def unnormalised(method: Method) -> str | None:
    """Reason against a method: the network gives no distribution, or guidance makes it none."""
    other = {"score": "a score", "tilted": "a guided one"}.get(method.parameterization)
    return f"needs a prediction that is a distribution, not {other}" if other else None


def can_choose_first(method: Method) -> bool:
    """Return whether `choose_then_predict` samples from the kernel: absorbing noise, and a normalised prediction.

    A score is not normalised: its total determines how likely a mask is revealed; and so it is where a classifier
    guides.
    """
    return not_absorbing(method, mixture=True) is None and unnormalised(method) is None
