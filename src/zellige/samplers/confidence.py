"""Confidence-based unmasking: the most confident predictions come first (MaskGIT, arXiv 2202.04200).

A step evaluates the network at all masks, and samples the n most confident. The model's distribution is an average over
all orders, but here the network chooses the order. So **these are not samples of the model**, whatever the number of
steps. With one token a step, the product of its predictions in that order is their exact distribution. An exact network
has the same distribution in every order; a trained one does not.

Confidence c is measured on the model's clean posterior p before truncation, each in [0, 1]:

    probability    max p
    margin         max p minus the second largest     (Kim et al. 2025, arXiv 2502.06768)
    entropy        1 - H(p) / log V

A step reveals at least one mask. How many is one of five rules, where c_1 >= c_2 >= ... are the confidences and H_i the
entropies in the same order:

    equally many      so that `steps` steps are enough                        (MaskGIT)
    per_step k        k                                                       (LMDeploy: low_confidence_static)
    threshold tau     all n with c_n >= tau                                   (Fast-dLLM, arXiv 2505.22618)
    factor f          the largest n with (n + 1) (1 - c_n) < f                (Fast-dLLM)
    entropy_bound g   the largest n with H_1 + ... + H_n - max_i H_i <= g     (EB, arXiv 2505.24857)

**The error of an entropy bound is known.** n tokens that are sampled independently lose their total correlation, sum_i
H_i - H(joint), in nats of KL divergence. H(joint) is at least max_i H_i. So with the exact network each step loses at
most g nats, and

    KL(data || samples) <= g E[steps]

where E[steps] is the mean number of steps over the data. g = 0 has no error. A trained network has errors of its own,
to which this bound does not apply.

Works with absorbing noise and every prediction. A network with a time input gets the time at which the noise has, on
average, as many masks as there are now.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import PER_STEP, declared, option
from ..core import maths, random
from ..core.positions import positions
from ..core.prediction import posterior
from ..methods.diffusion import Diffusion
from .guide import untruncated
from .pairing import STEPS, Distribution, count_of_steps, not_absorbing
from .predict import expected_time, fill, free, predict_at
from .sampler import Exactness, Sampler, State

Measure = Literal["probability", "margin", "entropy"]
RULES = ("per_step", "threshold", "factor", "entropy_bound")  # at most one of them; none: equally many


@declared
class NetworkChooses(Sampler):
    """The network chooses the order: it is evaluated at all masks in each step,
    and tokens are sampled where `choose` says."""

    exactness: ClassVar[Exactness] = "heuristic"
    samples_from: ClassVar[str] = "its own order"
    claim: ClassVar[str] = "not the model's distribution"
    needs: ClassVar[str] = "absorbing"

    @classmethod
    def reason_against(cls, method):
        return not_absorbing(method)

    def choose(self, state: State, masks: Tensor, p: Tensor, t: Tensor) -> tuple[Tensor, Any]:
        """Positions (B, L) bool to reveal, all of them masks, and the memory of the state after them.

        Args:
            masks: (B, L) bool, N in all.
            p: (N, K) float64, the clean posteriors there, before truncation.
            t: the time of the step.
        """
        ...

    def step(self, method: Diffusion, state, t, s, generator=None):
        masks = free(method, state)  # (B, L) bool, N of them
        pred = predict_at(method, state, masks, expected_time(method, state))
        if pred is None:
            random.discard(masks.shape, generator)
            return state
        at, memory = self.choose(state, masks, posterior(untruncated(pred)).double(), t)
        p = positions(masks).among(at, posterior(pred))
        state = fill(state, at, random.categorical(p, generator, at), masks.any(-1))
        return replace(state, memory=memory)


@declared
class Confidence(NetworkChooses):
    """Most confident masks first, ties from the left: equally many in each step, or as many as a rule allows."""

    confidence: Measure = option(
        "measure of confidence: probability of the likeliest token, margin to the second, or entropy",
        default="probability",
    )
    threshold: float | None = option(
        "reveal in each step all masks of at least this confidence, and at least one (default: the same "
        "number in each step)",
        default=None,
        minimum=0,
        maximum=1,
    )
    factor: float | None = option(
        "reveal the largest number n of masks for which (n + 1) (1 - the n-th highest confidence) is "
        "below this; larger values reveal more",
        default=None,
        kw_only=True,
        above=0,
    )
    entropy_bound: float | None = option(
        "reveal as many of the most confident masks as possible whose entropies, without the largest, sum to at most "
        "this, in nats; larger values reveal more",
        default=None,
        kw_only=True,
        minimum=0,
    )
    per_step: int | None = option(**PER_STEP, default=None, kw_only=True)

    name: ClassVar[str] = "confidence"
    label: ClassVar[str] = "Most confident first"
    sentence: ClassVar[str] = "Each step writes the positions of which the network is most confident."
    calls: ClassVar[str] = "steps"

    def __post_init__(self):
        given = [rule for rule in RULES if getattr(self, rule) is not None]
        if len(given) > 1:
            raise InputError(f"`{given[0]}` and `{given[1]}` both say how many tokens a step reveals; give one of them")

    def distribution(self, method, steps):
        return Distribution(self.name, "its own order, most confident first")

    def has_fixed_shape(self, method, shape):
        return True

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A counter of the steps left; with a rule as many as can be needed, most of which may evaluate nothing."""
        (length,) = method.shape
        if any(getattr(self, rule) is not None for rule in RULES):
            steps = -(-length // (self.per_step or 1))
        return torch.arange(min(count_of_steps(steps, STEPS), length), -1, -1, dtype=torch.float64)

    def choose(self, state, masks, p, t):
        confidence = confidence_at(masks, p, self.confidence)
        order = torch.argsort(confidence, dim=-1, descending=True, stable=True)  # (B, L), most confident first
        entropy = torch.zeros_like(confidence)
        if self.entropy_bound is not None:
            entropy = positions(masks).put(entropy, -maths.xlogy(p, p).sum(-1))
        count = self.count(t, masks.sum(-1), confidence.gather(-1, order), entropy.gather(-1, order)).clamp_min(1)
        return masks & (order.argsort(-1) < count[:, None]), state.memory

    def count(self, t: Tensor, masks: Tensor, confidence: Tensor, entropy: Tensor) -> Tensor:
        """Number of masks (B,) that the rule reveals; `choose` takes at least one.

        Args:
            t: the steps left.
            masks: (B,) how many there are.
            confidence, entropy: (B, L) of the masks, most confident first; -1 and 0 after the last.
        """
        if self.threshold is not None:
            return (confidence >= self.threshold).sum(-1)
        if self.factor is not None:  # Fast-dLLM; grows with n, so that the n that are allowed are the first ones
            n = torch.arange(1, confidence.shape[-1] + 1, device=confidence.device)
            return ((n + 1) * (1 - confidence) < self.factor).sum(-1)
        if self.entropy_bound is not None:  # EB; grows with n, too
            return (entropy.cumsum(-1) - entropy.cummax(-1).values <= self.entropy_bound).sum(-1)
        return torch.full_like(masks, self.per_step) if self.per_step else (masks / t.reshape(-1)).ceil().long()


def confidence_at(masks: Tensor, p: Tensor, measure: Measure = "probability") -> Tensor:
    """Confidence (B, L) float64 of the distributions p (N, K) at the masks (B, L); -1 elsewhere.

    Rounded to five decimals: values that differ only by the network's rounding are a tie.
    """
    if measure == "entropy":
        values = 1 + maths.xlogy(p, p).sum(-1) / math.log(max(p.shape[-1] - 1, 2))
    else:
        largest, second = p.topk(2, -1).values.unbind(-1)  # MaskGIT; Kim et al. 2025 for the margin
        values = largest if measure == "probability" else largest - second
    outside = torch.full(masks.shape, -1.0, dtype=torch.float64, device=masks.device)
    return positions(masks).put(outside, values.round(decimals=5))
