"""Fixed-order sampling: tokens one after another in a given order (RADD, arXiv 2406.03736, section 3.3).

A network for masked tokens without a time input is an autoregressive model in each order. With one token a step its
distribution is

    p(x) = prod_l p(x_order(l) | the tokens before)

whose likelihood is known exactly (RADD's estimators for an order). The diffusion model is the average over all orders.
The two are equal if the network's conditional distributions agree with one another, as the exact ones do. Works with
absorbing noise with one alpha for all tokens, and every prediction.
"""

import functools
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch

from ..base.errors import InputError
from ..base.requests import PER_STEP, declared, option
from .any_order import AnyOrder
from .pairing import AUTOREGRESSION, Distribution
from .sampler import Exactness


@declared
class FixedOrder(AnyOrder):
    """One token per step, or several, in a given order."""

    per_step: int = option(**PER_STEP, default=1, kw_only=True)
    order: str | Sequence[int] = option(
        "order in which positions are filled: forward, backward, or a list of positions from 0, such as 2,0,1",
        default="forward",
    )
    given: Literal["skipped", "counted"] = option(
        "whether given tokens count for `per_step`: skipped (no), or counted (from the first mask on, as LMDeploy's "
        "`sequential` does)",
        default="skipped",
        kw_only=True,
    )

    name: ClassVar[str] = "fixed_order"
    label: ClassVar[str] = "One position at a time, in your order"
    sentence: ClassVar[str] = "Forward, backward, or in an order that you list under More options."
    exactness: ClassVar[Exactness] = "exact"
    samples_from: ClassVar[str] = "autoregression"
    claim: ClassVar[str] = "exact (one order)"

    def __post_init__(self):
        _ = self.positions  # an order that is none is refused at once

    @functools.cached_property
    def positions(self) -> str | Sequence[int]:
        """The order: "forward", "backward", or the positions."""
        return self.order if self.order in ("forward", "backward") else permutation(self.order)

    def distribution(self, method, steps):
        if self.per_step > 1:
            return Distribution(f"one order, {self.per_step} at once", f"{self.per_step} tokens of one order at once")
        if isinstance(self.positions, str):
            number = {"estimator": self.positions} if self.positions in method.estimators() else None
            return AUTOREGRESSION.changed(self.positions, self.positions, number)
        return AUTOREGRESSION.changed(",".join(map(str, self.positions)), "in this order")

    def init(self, method, shape, *, fixed=None, generator=None):
        if not isinstance(self.positions, str) and len(self.positions) != shape[1]:
            raise InputError(f"the order has {len(self.positions)} positions, the text {shape[1]}; name each one once")
        return super().init(method, shape, fixed=fixed, generator=generator)

    def _choose(self, masked, generator):
        order = torch.arange(masked.shape[-1], device=masked.device)
        if self.positions == "backward":
            order = order.flip(-1)
        elif self.positions != "forward":
            order = torch.tensor(self.positions, device=masked.device)
        # RADD section 3.3: how many of the masked positions come up to this one
        before = masked[:, order].cumsum(-1)
        if self.given == "counted":
            before = (before > 0).cumsum(-1)
        return masked & (before <= self.per_step)[:, order.argsort()]


def permutation(order: str | Sequence[int]) -> list[int]:
    """The positions of an order that is a list. InputError: it is none, or leaves a position out."""
    try:
        positions = [int(i) for i in (order.split(",") if isinstance(order, str) else order)]
    except ValueError:
        raise InputError(f"unknown order '{order}'; forward, backward, or positions such as 2,0,1") from None
    if sorted(positions) != list(range(len(positions))):
        names = ",".join(map(str, positions))
        raise InputError(f"order {names} is not a permutation; name each position from 0 to {len(positions) - 1} once")
    return positions
