"""Guidance: changes a model's distribution while sampling. A guide wraps a method, and samplers draw from it as from any other.

`Truncation` (temperature, top-k, top-p) acts on the clean posterior p(x_0 | x_t) whatever the network predicts, so it means the
same for every method; of an autoregressive model on the distribution of the next token. Greedy decoding is temperature 0.

Other guidance takes the same form, a method around a method whose `predict` and `next` change what the method inside says:
`run(sampler, method, shape, around=guide)` puts it between the model and the truncation.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ..arguments import checked, of_kind
from ..core.prediction import Mean, Prediction, posterior
from ..errors import InputError
from ..methods.method import NoBound
from ..requests import check_ranges, declared, option
from .pairing import of_length

TOKENS = 1_000_000  # at most, of an option that counts tokens or names one


@declared
class Truncation:
    """How a distribution over tokens is cooled and cut: p -> top-p of top-k of p^(1/temperature), normalised."""

    temperature: float = option(
        "below 1 favours likely tokens, 0 takes the likeliest", default=1.0, kw_only=True, minimum=0
    )
    top_p: float = option(
        "keep the likeliest tokens that hold this share of the probability",
        default=1.0,
        kw_only=True,
        above=0,
        maximum=1,
    )
    top_k: int | None = option(
        "keep so many of the likeliest tokens, before top-p", default=None, kw_only=True, minimum=1, maximum=TOKENS
    )
    drop_crossing: bool = option(
        "with top-p: drop the token that crosses it, too, as the code of BD3-LM and ReMDM does",
        default=False,
        kw_only=True,
    )

    def __post_init__(self):
        check_ranges(self)

    def truncates(self) -> bool:
        """Whether it changes anything."""
        return self.temperature != 1.0 or self.top_p < 1.0 or self.top_k is not None

    def guided(self, method: Any) -> Any:
        """The method with this truncation; itself where nothing changes."""
        how = {field.name: getattr(self, field.name) for field in fields(Truncation)}
        return Guided(method, **how) if self.truncates() else method


class Guided:
    """A method whose clean posterior is cooled and cut: p -> top-p of top-k of p^(1/temperature), normalised.

    It answers as the method does, but for its distribution: it has no bound. When a token is revealed the noise says, not the
    network, so what a sampler may do with the method, it may do with this.

    Args:
        method: a Method, or what answers as one.
        temperature: 0 keeps the likeliest token alone.
        top_p: the smallest set of tokens whose mass reaches it.
        top_k: so many tokens are left; None: all.
        drop_crossing: top_p drops the token that crosses the threshold, as the code of BD3-LM and ReMDM does.
    """

    bounded = False

    @checked
    def __init__(
        self,
        method: Any,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        drop_crossing: bool = False,
    ):
        if isinstance(method, type) or not hasattr(method, "parameterization"):
            raise InputError(f"`method` is {of_kind(method)}; it must be a Method, such as `model.method`")
        Truncation(temperature=temperature, top_p=top_p, top_k=top_k, drop_crossing=drop_crossing)
        self.method, self.how = method, (temperature, top_p, top_k, drop_crossing)

    def __getattr__(self, name: str) -> Any:
        if name == "method" or name.startswith("__"):  # a copy asks before anything is there
            raise AttributeError(name)
        return getattr(self.method, name)

    def predict(self, x_t: Tensor, t: Tensor | float, **more: Any) -> Prediction:
        """The method's prediction, guided; see `Diffusion.predict`."""
        return guided(self.method.predict(x_t, t, **more), *self.how)

    def next(self, h: Tensor) -> Tensor:
        """The distribution of the next token, guided: (*, V), not normalised; see `AR.next`."""
        return guided_distribution(self.method.next(h), *self.how)

    def of_length(self, length: int) -> "Guided":
        """The same for texts of `length` tokens."""
        return Guided(of_length(self.method, length), *self.how)

    def terms(self, batch: Any, generator: Any = None) -> Any:
        """Raises NoBound: the bound is one of the method inside, whose distribution is another."""
        raise NoBound(
            f"guidance changes the distribution of {self.method.name}, which its bound is of; ask the method inside"
        )

    bound = loss = terms


# ---------------------------------------------------------------------------------- a distribution, changed
def temperature(p: Tensor, value: float) -> Tensor:
    """p^(1/value), not normalised, (*, K) -> (*, K); value 0 keeps only the largest."""
    if value == 1.0:
        return p
    top = p.amax(-1, keepdim=True)
    if value == 0.0:
        return torch.zeros_like(p).scatter(-1, p.argmax(-1, keepdim=True), 1.0)
    return (p / top) ** (1 / value)


def top_p(p: Tensor, value: float, drop: bool = False) -> Tensor:
    """The smallest set of tokens whose mass reaches value, the others at zero; not normalised, (*, K) -> (*, K).

    The token that crosses the threshold stays, and so do ties with it. With `drop` it goes, and ties with it: the largest set
    of that kind whose mass is at most value. Only the first token never goes, nor do ties with it.
    """
    if value >= 1.0:
        return p
    descending = p.sort(-1, descending=True).values
    cumulative, threshold = descending.cumsum(-1, dtype=torch.float64), value * p.sum(-1, keepdim=True)
    if drop:
        size = (cumulative <= threshold).sum(-1, keepdim=True)
        crossing = descending.gather(-1, size.clamp_max(p.shape[-1] - 1))
        nucleus = (p > crossing) | (p == descending[..., :1]) | (size == p.shape[-1])
        return torch.where(nucleus, p, 0.0)
    size = (cumulative - descending < threshold).sum(-1, keepdim=True).clamp_min(1)
    return torch.where(p >= descending.gather(-1, size - 1), p, 0.0)


def top_k(p: Tensor, value: int | None) -> Tensor:
    """The `value` likeliest tokens and ties with the last of them, the others at zero; not normalised, (*, K) -> (*, K)."""
    if value is None:
        return p
    return torch.where(p >= p.topk(min(value, p.shape[-1])).values[..., -1:], p, 0.0)


def guided_distribution(p: Tensor, heat: float, nucleus: float, most: int | None, drop: bool = False) -> Tensor:
    """p^(1/heat), then its top-k `most`, then its top-p `nucleus`; not normalised, (*, K) -> (*, K)."""
    return top_p(top_k(temperature(p, heat), most), nucleus, drop)


# ---------------------------------------------------------------------------------- a prediction, changed
@dataclass(frozen=True)
class GuidedMean(Mean):
    """A guided clean posterior, and the prediction `own` of the model that it was made of."""

    own: Prediction | None = None


def guided(
    pred: Prediction, heat: float = 1.0, nucleus: float = 1.0, most: int | None = None, drop: bool = False
) -> Prediction:
    """The prediction with temperature `heat`, top-k `most` and top-p `nucleus` applied to its clean posterior.

    Itself where nothing changes. `drop`: see `top_p`.
    """
    if heat == 1.0 and nucleus >= 1.0 and most is None:
        return pred
    p = guided_distribution(posterior(pred), heat, nucleus, most, drop)
    return GuidedMean(pred.process, p / p.sum(-1, keepdim=True), pred.x_t, pred.t, own=pred)


def unguided(pred: Prediction) -> Prediction:
    """What the model itself said: how sure it is of a token is no matter of guidance."""
    return pred.own if isinstance(pred, GuidedMean) and pred.own is not None else pred
