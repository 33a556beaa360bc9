"""Rewards of samples (`samplers.smc`) as functions of tokens: from a function of samples, a file, or a
classifier."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.arguments import of_kind
from ..base.errors import InputError
from ..base.trust import may_run_code, names_code, object_of
from ..core.schedule import CLEAN
from ..models.classifier import classifier_of
from ..samplers.growing import Ending
from ..samplers.smc import Rewarded, Smc
from ..show import kinds


def steer(
    model: Any, reward: Any, strength: float | None, labels: Any, end: int | None = None, width: int | None = None
) -> tuple[Callable[[Any], Any], Any]:
    """The wrapper of a method that a reward makes, and whose classes the labels are: the model's, or those of a
    classifier.

    Args:
        reward: a function of samples, as `zellige.sample` gives them; `file.py:function`; or the folder of a
            classifier.
        strength: the factor of the reward; None: 1.
        labels: the classes that are asked for; None without any.
        end: the token that ends a text.
        width: how many tokens of a sample are its own; None: all.

    Raises:
        InputError: code that was not allowed, no such file or function, a classifier of other tokens or without a
            class.
    """
    strength = 1.0 if strength is None else strength
    if isinstance(reward, str | Path) and not names_code(str(reward)):
        if labels is None:
            raise InputError("`reward` is a classifier, and needs a class; give `class`")
        classifier: Any = classifier_of(model, reward)

        def log_p(x: Tensor, condition: Tensor | None) -> Tensor:
            assert condition is not None
            time = torch.full(x.shape, CLEAN, dtype=torch.float64, device=x.device)
            return classifier.log_p(x, time, model.method.process).gather(-1, condition[:, None])[:, 0]

        return lambda method: Rewarded(method, log_p, strength, of_class=True), classifier
    function = named_function(reward) if isinstance(reward, str) else reward
    if not callable(function):
        raise InputError(f"`reward` is {of_kind(reward)}; it must be a function of a list of samples")
    kind = kinds.of(model.tokenizer)

    def of_samples(x: Tensor, condition: Tensor | None) -> Any:
        x = x[:, :width]
        ends = Ending(end).find(x, torch.zeros_like(x, dtype=torch.bool), 0, x.shape[1]).tolist()
        rows = [row[:stop] for row, stop in zip(x.tolist(), ends)] if kind.running else x.cpu()
        try:
            return function(kind.values(rows))
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0]
            raise InputError(
                f"`reward` failed on {len(x)} samples ({type(error).__name__}: {reason}); it must take a list of "
                "samples"
            ) from error

    return lambda method: Rewarded(method, of_samples, strength), model


def named_function(name: str) -> Callable[[Any], Any]:
    """The function `file.py:name`, which runs the file: refused unless code is allowed."""
    if not may_run_code():
        raise InputError(f"`reward` runs code, '{name}'; read it first, then add `allow_code`")
    return object_of(name, "function", callable)


def check_particles(sampler: Any, reward: Any) -> None:
    """InputError where a reward weighs no particles, or nothing weighs the particles that are asked for."""
    if not isinstance(sampler, Smc):
        if reward is not None:
            raise InputError(
                f"`reward` weighs particles, and sampler '{sampler.name}' has none; use smc, or leave `sampler` out"
            )
    elif reward is None and sampler.anneal == 1 and (sampler.particles or 1) > 1:
        raise InputError("`particles` are weighed by a `reward` or by `anneal`; give one of them")
