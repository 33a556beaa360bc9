"""A network averaged over symmetries of its data: it reads symmetric copies of a sequence,
and its answers are averaged."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import InputError


class Averaged(nn.Module):
    """The mean of p(x_0 | g x_t) over symmetries g, each put back in the places and tokens of x_t.

    Its head gives log-probabilities. By Jensen's inequality the bound of the average is at most the average of the
    bounds of the copies. Where the symmetries are a whole group, the average treats symmetric sequences alike.

    Args:
        network: whose head gives the logits of p(x_0 | x_t).
        moves, renames: (n, L) and (n, V), as `data.symmetry` has them.
        mask: the state of a mask, which is no x_0; it keeps its name.
    """

    moves: Tensor
    renames: Tensor

    def __init__(self, network: Any, moves: Tensor, renames: Tensor, mask: int):
        super().__init__()
        self.network, self.mask = network, mask
        assert mask == renames.shape[1]
        self.register_buffer("moves", moves, persistent=False)
        self.register_buffer(
            "renames", torch.cat((renames, renames.new_full((len(renames), 1), mask)), 1), persistent=False
        )
        self.train(network.training)

    @property
    def symmetries(self) -> int:
        """Number of copies that one evaluation reads."""
        return len(self.moves)

    @property
    def passes(self) -> int:
        """Passes of the network in one evaluation."""
        return self.symmetries * getattr(self.network, "passes", 1)

    @property
    def estimates(self) -> Any:
        """Whether the network reads its own first prediction; see `DiT`."""
        return getattr(self.network, "estimates", None)

    def features(
        self,
        x: Tensor,
        time: Tensor | None = None,
        *,
        condition: Tensor | None = None,
        estimate: Tensor | None = None,
    ) -> Tensor:
        """The hidden states of each copy side by side, (B, L, n D), in the places of x (B, L); the rest as in `DiT`."""
        if x.shape[1] != self.moves.shape[1]:
            sizes = f"whole texts of {self.moves.shape[1]:,} tokens, and this one has {x.shape[1]:,}"
            raise InputError(f"`symmetries` are of {sizes}; leave them out")
        hidden = []
        for move, rename in zip(self.moves, self.renames):
            # what was said of v is said of rename[v]
            more = {} if estimate is None else {"estimate": estimate[:, move][..., rename.argsort()]}
            back = move.argsort()
            hidden.append(self.network.features(rename[x[:, move]], time, condition=condition, **more)[:, back])
        return torch.cat(hidden, -1)

    def head(self, h: Tensor) -> Tensor:
        """Log of the averaged distribution, (*, n D) -> (*, K): -inf at the mask."""
        logs = []
        for part, rename in zip(h.chunk(self.symmetries, -1), self.renames):
            logits = self.network.head(part)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            logits = logits.masked_fill(torch.arange(logits.shape[-1], device=h.device) == self.mask, -torch.inf)
            logs.append(logits.log_softmax(-1)[..., rename[: logits.shape[-1]]])
        return torch.stack(logs).logsumexp(0) - math.log(self.symmetries)
