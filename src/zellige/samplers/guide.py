"""Truncation: change a model's distribution while sampling. A wrapper of a method is used as a method by samplers.

`Truncation` (temperature, top-k, top-p) acts on the clean posterior p(x_0 | x_t) whatever the network predicts, so it
means the same for every method. For an autoregressive model it acts on the distribution of the next token. Greedy
decoding is temperature 0.

Guidance (`guidance`) has the same form: a method around a method, whose `predict` and `next` change the predictions of
the inner one. `run(sampler, method, shape, around=guide)` puts it between the model and the truncation.
"""

import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..base.arguments import checked, of_kind
from ..base.errors import InputError, at_least
from ..base.requests import TEMPERATURE, TOP_K, TOP_P, declared, option
from ..core.batch import Batch
from ..core.prediction import Mean, Prediction, posterior
from ..core.random import Randomness
from ..methods.method import Method, NoBound
from .pairing import of_length


@declared
class Truncation:
    """Tempering and truncation of a distribution over tokens: p -> top-p of top-k of p^(1/temperature), normalised."""

    temperature: float = option(**TEMPERATURE, default=1.0, kw_only=True)
    top_p: float = option(**TOP_P, default=1.0, kw_only=True)
    top_k: int | None = option(**TOP_K, default=None, kw_only=True)
    drop_crossing: bool = option(
        "with `top_p`: also drop the token that crosses the limit, as the code of BD3-LM and ReMDM does",
        default=False,
        kw_only=True,
    )


class Wrapper:
    """A method around a method, with the same interface and another distribution, so it has no bound.

    A subclass overrides `predict` (and `next`, for autoregressive models). Its `changes` names what changes the
    distribution.
    """

    bounded = False
    changes: str = ""
    stands_for = Method  # where an argument must be one

    def __init__(self, method: Any):
        if isinstance(method, type) or not hasattr(method, "parameterization"):
            raise InputError(f"`method` is {of_kind(method)}; it must be a Method, such as `model.method`")
        self.method = method

    def __getattr__(self, name: str) -> Any:
        if name == "method" or name.startswith("__"):  # a copy looks attributes up before they exist
            raise AttributeError(name)
        return getattr(self.method, name)

    def of_length(self, length: int) -> Self:
        """The same for sequences of `length` tokens."""
        copied = copy.copy(self)
        copied.method = of_length(self.method, length)
        return copied

    def terms(self, batch: Batch, generator: Randomness = None) -> Any:
        """Raise NoBound: the bound is one of the method inside, which has another distribution."""
        raise NoBound(
            f"{self.changes} changes the distribution of {self.method.name}, so its bound does not hold; use the "
            "method inside"
        )

    bound = loss = terms


class Truncated(Wrapper):
    """A method with a tempered and truncated clean posterior: p -> top-p of top-k of p^(1/temperature), normalised.

    The noise, not the network, determines when a token is revealed, so every sampler of the method also works with this
    one.

    Args:
        method: a Method, or what answers as one.
        temperature: 0 keeps the likeliest token alone.
        top_p: keep the smallest set of tokens whose probability reaches this.
        top_k: keep this many tokens; None: all.
        drop_crossing: top_p drops the token that crosses the threshold, as the code of BD3-LM and ReMDM does.
    """

    changes = "a truncation"

    @checked
    def __init__(
        self,
        method: Any,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        drop_crossing: bool = False,
    ):
        super().__init__(method)
        Truncation(temperature=temperature, top_p=top_p, top_k=top_k, drop_crossing=drop_crossing)
        self.how = (temperature, top_p, top_k, drop_crossing)

    def predict(self, x_t: Tensor, t: Tensor | float, **more: Any) -> Prediction:
        """The method's prediction, truncated; see `Diffusion.predict`."""
        return truncated(self.method.predict(x_t, t, **more), *self.how)

    def next(self, h: Tensor) -> Tensor:
        """Truncated distribution of the next token: (*, V), not normalised; see `AR.next`."""
        return truncate(self.method.next(h), *self.how)


def truncated_as(method: Any, pred: Prediction) -> Prediction:
    """A prediction of the network itself, truncated as the method's own predictions are."""
    return truncated(truncated_as(method.method, pred), *method.how) if isinstance(method, Truncated) else pred


# ---------------------------------------------------------------------------------- a distribution, changed
@checked
def temperature(p: Tensor, value: float) -> Tensor:
    """p^(1/value), not normalised, (*, K) -> (*, K); value 0 keeps only the largest."""
    at_least("value", value, 0)
    if value == 1.0:
        return p
    top = p.amax(-1, keepdim=True)
    if value == 0.0:
        return torch.zeros_like(p).scatter(-1, p.argmax(-1, keepdim=True), 1.0)
    return (p / top) ** (1 / value)


@checked
def top_p(p: Tensor, value: float, drop: bool = False) -> Tensor:
    """Keep the smallest set of likeliest tokens whose probability reaches value; not normalised, (*, K) -> (*, K).

    The token that crosses the threshold stays, and so do ties with it. With `drop` they are dropped: the result is the
    largest such set whose probability is at most value. The likeliest token and ties with it always stay.
    """
    if value >= 1.0:
        return p
    descending = p.sort(-1, descending=True).values  # (*, K)
    cumulative, threshold = descending.cumsum(-1, dtype=torch.float64), value * p.sum(-1, keepdim=True)
    if drop:
        size = (cumulative <= threshold).sum(-1, keepdim=True)
        crossing = descending.gather(-1, size.clamp_max(p.shape[-1] - 1))
        nucleus = (p > crossing) | (p == descending[..., :1]) | (size == p.shape[-1])
        return torch.where(nucleus, p, 0.0)
    size = (cumulative - descending < threshold).sum(-1, keepdim=True).clamp_min(1)  # (*, 1), tokens kept
    return torch.where(p >= descending.gather(-1, size - 1), p, 0.0)


@checked
def top_k(p: Tensor, value: int | None) -> Tensor:
    """Keep the `value` likeliest tokens and ties with the last of them; not normalised, (*, K) -> (*, K)."""
    if value is None:
        return p
    at_least("value", value, 1)
    return torch.where(p >= p.topk(min(value, p.shape[-1])).values[..., -1:], p, 0.0)


@checked
def truncate(p: Tensor, heat: float, nucleus: float, most: int | None, drop: bool = False) -> Tensor:
    """p^(1/heat), then its top-k `most`, then its top-p `nucleus`; not normalised, (*, K) -> (*, K)."""
    return top_p(top_k(temperature(p, heat), most), nucleus, drop)


# ---------------------------------------------------------------------------------- a prediction, changed
@dataclass(frozen=True)
class TruncatedMean(Mean):
    """A truncated clean posterior, and the `original` prediction."""

    original: Prediction | None = None


@checked
def truncated(
    pred: Prediction, heat: float = 1.0, nucleus: float = 1.0, most: int | None = None, drop: bool = False
) -> Prediction:
    """Apply temperature `heat`, top-k `most` and top-p `nucleus` to the clean posterior of a prediction.

    Itself where nothing changes. `drop`: see `top_p`.
    """
    if heat == 1.0 and nucleus >= 1.0 and most is None:
        return pred
    p = truncate(posterior(pred), heat, nucleus, most, drop)
    return TruncatedMean(pred.process, p / p.sum(-1, keepdim=True), pred.x_t, pred.t, original=pred)


@checked
def untruncated(pred: Prediction) -> Prediction:
    """The prediction before truncation: confidence is measured before truncation."""
    return pred.original if isinstance(pred, TruncatedMean) and pred.original is not None else pred
